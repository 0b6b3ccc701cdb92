"""Label-space transformations: principal directions of a sparse label matrix, columns centered but never formed."""

from __future__ import annotations

from dataclasses import KW_ONLY

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg

from tagwise.baselines.linear_map import LinearMap
from tagwise.models.factor_model import FactorModel
from tagwise.parallel import single_threaded_blas, thread_count
from tagwise.parameters import Count, Positive, Seed, parameters
from tagwise.validation import Features

__all__ = ["LabelSpaceModel", "centered_matmul", "centered_rmatmul", "label_rates", "principal_label_directions"]

# Up to here the Gram matrix of all labels (32 MB) is decomposed; Lanczos beyond.
_LARGEST_DENSE = 2000


def label_rates(Y: sp.csr_matrix) -> np.ndarray:
    """ȳ: the share of rows that have each label (L), float64."""
    return np.bincount(Y.indices, minlength=Y.shape[1]) / Y.shape[0]


def centered_matmul(Y: sp.csr_matrix, rates: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(Y − 1ȳᵀ) @ right: n×k, with Y of float64."""
    return np.asarray(Y @ right) - rates @ right


def centered_rmatmul(Y: sp.csr_matrix, rates: np.ndarray, left: np.ndarray) -> np.ndarray:
    """(Y − 1ȳᵀ)ᵀ @ left: L×k, with Y of float64."""
    return np.asarray(Y.T @ left) - np.outer(rates, left.sum(axis=0))


def principal_label_directions(Y: sp.csr_matrix, rank: int, rng: np.random.Generator) -> np.ndarray:
    """The first ``rank`` right singular vectors of Y − 1ȳᵀ, as orthonormal columns (L×rank), largest first.

    Labels that all rows or no rows have are constant and have coordinates 0. Where fewer than ``rank`` labels vary,
    there are fewer columns (one of zeros where none varies).

    Time O(nnz(Y)·L + L³) up to 2,000 labels; beyond, Lanczos with O(nnz(Y) + L·rank) per step and memory O(L·rank).
    """
    rates = label_rates(Y)
    varying = np.flatnonzero((rates > 0) & (rates < 1))
    rank = min(rank, len(varying))
    directions = np.zeros((Y.shape[1], max(rank, 1)))
    if rank == 0:
        return directions
    kept = sp.csr_matrix(Y[:, varying], dtype=np.float64)
    mean, n_rows, size = rates[varying], Y.shape[0], len(varying)
    with single_threaded_blas():
        if size <= max(_LARGEST_DENSE, 2 * rank):
            gram = (kept.T @ kept).toarray() - n_rows * np.outer(mean, mean)
            vectors = scipy.linalg.eigh(gram, subset_by_index=(size - rank, size - 1))[1]
        else:
            transpose = sp.csr_matrix(kept.T)
            operator = scipy.sparse.linalg.LinearOperator(
                (size, size),
                dtype=np.float64,
                matvec=lambda v: transpose @ (kept @ v.ravel()) - n_rows * mean * float(mean @ v.ravel()),
            )
            values, vectors = scipy.sparse.linalg.eigsh(operator, k=rank, v0=rng.standard_normal(size))
            vectors = vectors[:, np.argsort(values, kind="stable")]
    directions[varying] = vectors[:, ::-1]
    return directions


@parameters
class LabelSpaceModel(FactorModel):
    """A ridge regression onto k numbers per row, from which all labels are decoded linearly."""

    rank: Count = 100
    reg: Positive = 1.0
    _: KW_ONLY
    normalize: bool = True
    n_jobs: int | None = None
    random_state: Seed = 0
    verbose: int = 0

    def _regress(self, X: Features, targets: np.ndarray, decoder: np.ndarray, rates: np.ndarray) -> float:
        """Learn W and c of the compressed labels (n×k), which ``decoder`` (L×k) decodes to scores; the objective."""
        mapped = LinearMap(self._prepared(X), self.reg, n_threads=thread_count(self.n_jobs)).fit(targets)
        self._take_factors(mapped.coefficients, decoder, rates + decoder @ mapped.intercept - 0.5, X.dtype)
        return mapped.value
