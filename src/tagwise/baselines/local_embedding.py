"""SLEEC's part for one cluster of rows: an embedding that keeps near label vectors near, and a linear map to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import times_in_order
from tagwise.kernels.neighbours import inverted_index, nearest_sparse_rows
from tagwise.models.factor_model import unit_rows
from tagwise.solvers.admm import SparseFitRidge
from tagwise.solvers.singular_value_projection import SVPResult, singular_value_projection

__all__ = ["LocalEmbedding", "learn_embedding", "near_label_products", "placed_rows"]

# Beyond these the regression goes by conjugate gradients: in ADMM a factorisation for 5,600 rows or features, for one
# ridge regression for 2,000.
_FACTOR_BYTES = 2.0**29
_LARGEST_FACTOR = 2000
_REGRESSION_STEPS = 200


@dataclass(frozen=True)
class LocalEmbedding:
    """What a cluster has learnt.

    Attributes
    ----------
    members : int array (m,)
        Its rows.
    embedding : array (m, r)
        XV of these rows, scaled to unit length (:func:`placed_rows`); r is the rank asked for, or m if that is less.
    features : int array (f,)
        The features that the rows have.
    regressors : array (f, r)
        V for these features; for all others it is 0.
    projection : SVPResult
        How the singular value projection ended.
    regressed : bool
        Whether the regression converged.
    """

    members: np.ndarray
    embedding: np.ndarray
    features: np.ndarray
    regressors: np.ndarray
    projection: SVPResult
    regressed: bool


def learn_embedding(
    rows: sp.csr_matrix | np.ndarray,
    Y: sp.csr_matrix,
    members: np.ndarray,
    *,
    rank: int,
    label_neighbors: int,
    reg: float,
    sparsity: float,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
    n_threads: int = 1,
) -> LocalEmbedding:
    """Learn from the rows ``members`` of X (n, d) and Y (n, L); see :class:`tagwise.baselines.SLEEC` for the rest."""
    own = rows[members]
    known = near_label_products(Y[members], label_neighbors, n_threads=n_threads)
    projection = singular_value_projection(known, rank, rng=rng, tol=tol, max_iter=max_iter, n_threads=n_threads)
    features = _features_of(own)
    own = own[:, features]
    # In float64 throughout: a dense product has the type of the rows.
    own = np.ascontiguousarray(own, dtype=np.float64) if isinstance(own, np.ndarray) else sp.csr_matrix(own)
    Z = projection.factor
    cross = np.ascontiguousarray(own.T @ Z, dtype=np.float64)
    side = min(own.shape)
    # One ridge solution needs no eigenvectors, which ADMM's many steps reuse.
    method = "auto" if sparsity > 0 else "cholesky" if side <= _LARGEST_FACTOR else "cg"
    problem = SparseFitRidge(own, reg, sparsity, method=method, memory_limit=_FACTOR_BYTES, n_threads=n_threads)
    solved = problem.solve(cross, np.einsum("ij,ij->j", Z, Z), max_iter=_REGRESSION_STEPS)
    V = solved.solution.astype(rows.dtype)
    return LocalEmbedding(
        members=members,
        embedding=placed_rows(own, V, n_threads=n_threads),
        features=features,
        regressors=V,
        projection=projection,
        regressed=solved.status == "converged",
    )


def near_label_products(Y: sp.csr_matrix, k: int, *, n_threads: int = 1) -> sp.csr_matrix:
    """Cosines of label rows (n, n) on Ω: pairs of which one is among the k nearest of the other; float64, symmetric.

    A row is its own nearest (unless it is empty). Zeros among the k nearest are stored.
    """
    rows = unit_rows(Y.astype(np.float64))
    k = min(k, rows.shape[0])
    ids, cosines = nearest_sparse_rows(rows, inverted_index(rows), k, n_threads=n_threads)
    # Above every cosine, so that a stored 0 outlives the union with pairs that are not stored.
    pairs = (cosines.ravel() + 2, ids.ravel(), np.arange(0, ids.size + 1, k))
    chosen = sp.csr_matrix(pairs, shape=(rows.shape[0], rows.shape[0]))
    both = sp.csr_matrix(chosen.maximum(sp.csr_matrix(chosen.T)))
    both.data -= 2
    both.sort_indices()
    return both


def placed_rows(rows: sp.csr_matrix | np.ndarray, regressors: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
    """XV of rows (m, f), scaled to unit length, in the type of V (f, r).

    Made in float64 and in a fixed order, then rounded once: equal rows have one place, at fit and at prediction.
    """
    placed = unit_rows(times_in_order(rows, regressors, n_threads=n_threads), n_threads=n_threads)
    return np.asarray(placed, dtype=regressors.dtype)


def _features_of(rows: sp.csr_matrix | np.ndarray) -> np.ndarray:
    """The features that any of the rows has; the first one where none has any."""
    present = (
        (rows != 0).any(axis=0) if isinstance(rows, np.ndarray) else np.bincount(rows.indices, minlength=rows.shape[1])
    )
    found = np.flatnonzero(present)
    return found if len(found) else np.zeros(1, dtype=np.int64)
