"""Training labels: positives, mask and weights, and the start of a fit."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from tagwise.kernels import CSRWithTranspose, FeatureMatrix
from tagwise.losses import Loss
from tagwise.parallel import even_chunks, single_threaded_blas
from tagwise.problem import Known

__all__ = [
    "UNLISTED",
    "LabelBatch",
    "SpectralSides",
    "TrainingLabels",
    "per_label",
    "per_row",
    "subspace_iteration",
]

UNLISTED = ("off", "unknown")
"""Meanings of a label that a row does not list: off, or unknown, since not checked."""

# Of the subspace iteration of the start: its rounds, and labels that the intercepts' row is added to at a time.
_POWER_ROUNDS = 2
_LABELS = 256
# Rows of noise that are drawn, in float64, at a time.
_NOISE_ROWS = 1 << 12


@dataclass(frozen=True)
class TrainingLabels:
    """Known labels of n rows: each known pair (i, j) has a target (on or off) and a weight ω_ij.

    Attributes
    ----------
    positives : CSR (n, L) of ones
        The pairs known to be on; what Y says outside Ω is not among them.
    known : Known or None
        Ω: rows of which all labels are known, and the known pairs of the others; None means all.
    positive_weight : array (L,), or None
        Weights of each label's positives; negatives, and everything where it is None, weigh 1.
    n_threads : int
    row_weight : array (n,), or None
        Weights of rows: ω_ij is this times the weight above.
    """

    positives: sp.csr_matrix
    known: Known | None
    positive_weight: np.ndarray | None
    n_threads: int = 1
    row_weight: np.ndarray | None = None

    def of(self, ids: np.ndarray) -> TrainingLabels:
        """The labels ``ids`` alone, in this order."""
        return TrainingLabels(
            positives=sp.csr_matrix(self.positives[:, ids]),
            known=None if self.known is None else self.known.labels(ids),
            positive_weight=None if self.positive_weight is None else self.positive_weight[ids],
            n_threads=self.n_threads,
            row_weight=self.row_weight,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(n, L)."""
        return self.positives.shape[0], self.positives.shape[1]

    @cached_property
    def observed(self) -> sp.csr_matrix | None:
        """Ω (n, L) of ones, written out; None where all is known."""
        return None if self.known is None else self.known.mask().astype(self.positives.dtype, copy=False)

    @property
    def full_weight(self) -> np.ndarray | None:
        """Weights (n,) of the rows of which everything is known, 0 for the others; None where all weigh 1."""
        if self.known is None:
            return self.row_weight
        return self.known.complete * (1.0 if self.row_weight is None else self.row_weight)

    @cached_property
    def weighted_positives(self) -> sp.csr_matrix:
        """The positives with their weights as values (n×L)."""
        weighted = self.positives if self.positive_weight is None else per_label(self.positives, self.positive_weight)
        return per_row(weighted, self.row_weight)

    @cached_property
    def observed_on(self) -> np.ndarray:
        """0 or 1 for every known pair, in the storage order of Ω; only where there is a mask."""
        if self.observed is None:
            raise AttributeError("all labels are known: there is no mask")
        # 1 on Ω, 2 on the positives in it: a sum of ones never loses an entry to scipy's pruning of zeros.
        return sp.csr_matrix(self.observed + self.positives).data - 1

    @cached_property
    def observed_weights(self) -> sp.csr_matrix:
        """Ω with ω as values (n×L); only where there is a mask."""
        on = self.observed_on
        known = self.observed
        if known is None or self.positive_weight is None:
            return per_row(known, self.row_weight)
        weights = np.where(on > 0, self.positive_weight.astype(known.dtype)[known.indices], known.dtype.type(1))
        return per_row(sp.csr_matrix((weights, known.indices, known.indptr), shape=known.shape), self.row_weight)

    @cached_property
    def by_label(self) -> tuple[sp.csr_matrix, sp.csr_matrix | None]:
        """Positives, and known pairs of rows that are not complete, by label (L×n)."""
        pairs = None if self.known is None else sp.csr_matrix(self.known.pairs.T)
        return sp.csr_matrix(self.positives.T), pairs

    def batch(self, ids: np.ndarray, loss: Loss, *, with_start: bool) -> LabelBatch:
        """The labels ``ids``, dense: O(n·B) for B labels, and the time for their own entries.

        ``with_start=False`` starts them at the score 0 (models without an intercept).
        """
        positives, pairs = self.by_label
        shape, dtype, on = (self.shape[0], len(ids)), self.positives.dtype, _entries(positives, ids)
        targets = np.full(shape, loss.negative, dtype=dtype)
        targets[on] = 1
        weights = None
        if self.known is not None and pairs is not None:
            weights = np.zeros(shape, dtype=dtype)
            weights[self.known.complete] = 1
            weights[_entries(pairs, ids)] = 1
        elif self.positive_weight is not None or self.row_weight is not None:
            weights = np.ones(shape, dtype=dtype)
        if weights is not None and self.positive_weight is not None:
            weights[on] = self.positive_weight[ids][on[1]]
        if weights is not None and self.row_weight is not None:
            weights *= self.row_weight[:, None].astype(dtype)
        return LabelBatch(targets, weights, loss.constant(self._rates[ids]) if with_start else np.zeros(len(ids)))

    def rates(self) -> np.ndarray:
        """The weighted share of known positives among each label's known pairs (L); 0 where nothing is known."""
        return self._rates.copy()

    @cached_property
    def _rates(self) -> np.ndarray:
        positives = _column_sums(self.positives, self.row_weight)
        weighted = positives if self.positive_weight is None else positives * self.positive_weight
        total = weighted + (self._known_rows() - positives)
        return np.divide(weighted, total, out=np.zeros_like(total), where=total > 0)

    def unknown_labels(self) -> np.ndarray:
        """Ids of the labels without a single known pair."""
        return np.flatnonzero(self._known_rows() == 0)

    def _known_rows(self) -> np.ndarray:
        """Number, or weight, of the known rows of each label (L)."""
        weight = self.full_weight
        known = np.full(self.shape[1], float(self.shape[0] if weight is None else weight.sum()))
        return known if self.known is None else known + _column_sums(self.known.pairs, self.row_weight)

    def slope_at(self, loss: Loss, intercept: np.ndarray) -> tuple[CSRWithTranspose, np.ndarray | None]:
        """∂loss/∂S at S = 1·interceptᵀ: a sparse matrix plus one row, repeated with ``full_weight``.

        That row is None where no row of the data is known completely.
        """
        off = loss.first(np.full_like(intercept, loss.negative), intercept)
        on = loss.first(np.ones_like(intercept), intercept)
        on = on if self.positive_weight is None else self.positive_weight * on
        slope = per_label(self.positives, on - off)
        if self.known is not None:
            slope = sp.csr_matrix(per_label(self.known.pairs.astype(slope.dtype, copy=False), off) + slope)
        slope = per_row(slope, self.row_weight).astype(self.positives.dtype, copy=False)
        repeated = self.known is None or self.known.complete.any()
        return CSRWithTranspose(slope, n_threads=self.n_threads), (off if repeated else None)


def per_label(matrix: sp.csr_matrix, factor: np.ndarray) -> sp.csr_matrix:
    """Each stored entry times its label's factor."""
    data = matrix.data * factor.astype(matrix.dtype)[matrix.indices]
    return sp.csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def per_row(matrix: sp.csr_matrix, factor: np.ndarray | None) -> sp.csr_matrix:
    """Each stored entry times its row's factor; the matrix itself where there is none."""
    if factor is None:
        return matrix
    data = matrix.data * np.repeat(factor.astype(matrix.dtype), np.diff(matrix.indptr))
    return sp.csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _column_sums(matrix: sp.csr_matrix, row_weight: np.ndarray | None) -> np.ndarray:
    """Number of entries of each column, or the weight of their rows."""
    weights = None if row_weight is None else np.repeat(row_weight, np.diff(matrix.indptr))
    return np.bincount(matrix.indices, weights, minlength=matrix.shape[1]).astype(np.float64)


class LabelBatch(NamedTuple):
    """B labels of n rows, and the constant score that minimises each label's loss (``start``, B).

    ``targets`` (n×B) are in the loss's coding; unknown pairs hold the code of "off" and weigh 0. ``weights`` (n×B) are
    ω_ij, 0 outside Ω; None where every pair weighs 1.
    """

    targets: np.ndarray
    weights: np.ndarray | None
    start: np.ndarray


def _entries(by_label: sp.csr_matrix, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of the stored pairs of the chosen labels, in a block with one column per label."""
    chosen = by_label[ids]
    return chosen.indices, np.repeat(np.arange(len(ids)), np.diff(chosen.indptr))


@dataclass(frozen=True)
class SpectralSides:
    """The products of a spectral start: sums over rows, so that those of shards of rows add up to those of all.

    D = ∂loss/∂S at W = 0 is ``slope`` + 1·``row``ᵀ, or with ``row_weight`` in place of 1, and is never formed.
    ``first_row`` is the number of the first of these rows among all.
    """

    X: FeatureMatrix
    slope: CSRWithTranspose
    row: np.ndarray | None
    row_weight: np.ndarray | None
    first_row: int = 0

    def of_noise(self, rng: np.random.Generator, rank: int) -> np.ndarray:
        """Xᵀ·noise (d×k).

        Noise on the rows, not on the features: features rotated by an orthogonal map (those of a linear kernel, say)
        then start, and end, at the same model. That of a row does not depend on how rows are divided.
        """
        rng = deepcopy(rng)
        for start, stop in even_chunks(self.first_row, _NOISE_ROWS):
            rng.standard_normal((stop - start, rank))
        noise = np.empty((self.X.shape[0], rank), dtype=self.slope.matrix.dtype)
        for start, stop in even_chunks(len(noise), _NOISE_ROWS):
            noise[start:stop] = rng.standard_normal((stop - start, rank))
        return self.X.rmatmul(noise)

    def feature_side(self, H: np.ndarray) -> np.ndarray:
        """XᵀDH (d×k)."""
        product = self.slope.matmul(H)
        if self.row is not None:
            shared, weight = self.row @ H, self.row_weight
            product += (shared if weight is None else np.outer(weight, shared)).astype(product.dtype)
        return self.X.rmatmul(product)

    def label_side(self, W: np.ndarray) -> np.ndarray:
        """DᵀXW (L×k)."""
        scores = self.X.matmul(W)
        product = self.slope.rmatmul(scores)
        if self.row is not None:
            weight = self.row_weight
            total = scores.sum(axis=0, dtype=np.float64) if weight is None else weight @ scores
            for first, last in even_chunks(len(product), _LABELS):
                product[first:last] += np.outer(self.row[first:last], total).astype(product.dtype)
        return product


def subspace_iteration(
    noise: np.ndarray,
    feature_side: Callable[[np.ndarray], np.ndarray],
    label_side: Callable[[np.ndarray], np.ndarray],
    dtype: np.dtype,
) -> np.ndarray:
    """Orthonormal H (L×k) spanning about the top right singular vectors of XᵀD, from Xᵀ·noise (d×k) by its products.

    XᵀD is the gradient of the loss in Z = WHᵀ at the model that knows only the intercepts, so its leading right
    singular vectors are the best k label directions for a first step. Time O((nnz X + nnz D)k + (L + n)k²) per round.
    """
    H = label_side(noise)
    del noise
    with single_threaded_blas():
        for _ in range(_POWER_ROUNDS):
            basis = _orthonormal(H, dtype)
            del H
            H = label_side(feature_side(basis))
        return _orthonormal(H, dtype)


def _orthonormal(columns: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A basis of the columns, from a QR decomposition in float64 that needs one copy of them."""
    work = np.array(columns, dtype=np.float64, order="F")
    basis, _ = scipy.linalg.qr(work, mode="economic", overwrite_a=True, check_finite=False)
    return np.ascontiguousarray(basis, dtype=dtype)
