"""What is known about the labels of the training rows: positives, mask and weights, and where a fit begins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from tagwise.kernels import CSRWithTranspose, FeatureMatrix
from tagwise.losses import Loss
from tagwise.parallel import even_chunks, single_threaded_blas

__all__ = ["UNLISTED", "LabelBatch", "LabelColumns", "TrainingLabels", "known_positives", "per_label", "spectral_start"]

UNLISTED = ("off", "unknown")
"""What it may mean that a row does not list a label: that it is off, or nothing, since nobody looked."""

# Of the subspace iteration of the start: its rounds, and labels that the intercepts' row is added to at a time.
_POWER_ROUNDS = 2
_LABELS = 256


@dataclass(frozen=True)
class TrainingLabels:
    """Known labels of n rows: each known pair (i, j) has a target (on or off) and a weight ω_ij.

    Attributes
    ----------
    positives : CSR (n, L) of ones
        The pairs known to be on.
    observed : CSR (n, L) of ones, or None
        Ω, the known pairs; None means all.
    positive_weight : array (L,), or None
        ω of a label's positives; negatives, and everything where it is None, weigh 1.
    n_threads : int
    """

    positives: sp.csr_matrix
    observed: sp.csr_matrix | None
    positive_weight: np.ndarray | None
    n_threads: int = 1

    @classmethod
    def build(
        cls,
        Y: sp.csr_matrix,
        observed: sp.csr_matrix | None,
        positive_weight: np.ndarray | None,
        *,
        dtype: np.dtype | type = np.float64,
        n_threads: int = 1,
    ) -> TrainingLabels:
        """From checked 0/1 labels and mask; what Y says outside the mask is dropped here and seen by nobody after."""
        return cls(
            positives=known_positives(Y, observed).astype(dtype, copy=False),
            observed=None if observed is None else observed.astype(dtype, copy=False),
            positive_weight=positive_weight,
            n_threads=n_threads,
        )

    def of(self, ids: np.ndarray) -> TrainingLabels:
        """The labels ``ids`` alone, in this order."""
        return TrainingLabels(
            positives=sp.csr_matrix(self.positives[:, ids]),
            observed=None if self.observed is None else sp.csr_matrix(self.observed[:, ids]),
            positive_weight=None if self.positive_weight is None else self.positive_weight[ids],
            n_threads=self.n_threads,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(n, L)."""
        return self.positives.shape[0], self.positives.shape[1]

    @property
    def weight_or_one(self) -> np.ndarray:
        """ω of each label's positives (L)."""
        return np.ones(self.shape[1]) if self.positive_weight is None else self.positive_weight

    @cached_property
    def weighted_positives(self) -> sp.csr_matrix:
        """The positives with their weights as values (n×L)."""
        return self.positives if self.positive_weight is None else per_label(self.positives, self.positive_weight)

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
            return known
        weights = np.where(on > 0, self.positive_weight.astype(known.dtype)[known.indices], known.dtype.type(1))
        return sp.csr_matrix((weights, known.indices, known.indptr), shape=known.shape)

    def rates(self) -> np.ndarray:
        """The weighted share of known positives among each label's known pairs (L); 0 where nothing is known."""
        positives = _column_counts(self.positives)
        negatives = self._known_counts() - positives
        weighted = positives * self.weight_or_one
        total = weighted + negatives
        return np.divide(weighted, total, out=np.zeros_like(total), where=total > 0)

    def unknown_labels(self) -> np.ndarray:
        """Ids of the labels without a single known pair."""
        return np.flatnonzero(self._known_counts() == 0)

    def slope_at(self, loss: Loss, intercept: np.ndarray) -> tuple[CSRWithTranspose, np.ndarray | None]:
        """∂loss/∂S at S = 1·interceptᵀ: a sparse matrix plus, where all labels are known, one row repeated."""
        off = loss.first(np.full_like(intercept, loss.negative), intercept)
        on = self.weight_or_one * loss.first(np.ones_like(intercept), intercept)
        slope = per_label(self.positives, on - off)
        if self.observed is not None:
            slope = sp.csr_matrix(per_label(self.observed, off) + slope)
        slope = slope.astype(self.positives.dtype, copy=False)
        return CSRWithTranspose(slope, n_threads=self.n_threads), (off if self.observed is None else None)

    def _known_counts(self) -> np.ndarray:
        if self.observed is None:
            return np.full(self.shape[1], float(self.shape[0]))
        return _column_counts(self.observed)


def known_positives(Y: sp.csr_matrix, observed: sp.csr_matrix | None) -> sp.csr_matrix:
    """The pairs (n, L) that are known to be on."""
    return Y if observed is None else sp.csr_matrix(Y.multiply(observed))


def per_label(matrix: sp.csr_matrix, factor: np.ndarray) -> sp.csr_matrix:
    """Each stored entry times its label's factor."""
    data = matrix.data * factor.astype(matrix.dtype)[matrix.indices]
    return sp.csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _column_counts(matrix: sp.csr_matrix) -> np.ndarray:
    return np.bincount(matrix.indices, minlength=matrix.shape[1]).astype(np.float64)


@dataclass(frozen=True)
class LabelBatch:
    """B labels of n rows, and the constant score that minimises each label's loss (``start``, B).

    ``targets`` (n×B) are in the loss's coding; unknown pairs hold the code of "off" and weigh 0. ``weights`` (n×B) are
    ω_ij, 0 outside Ω; None where every pair weighs 1.
    """

    targets: np.ndarray
    weights: np.ndarray | None
    start: np.ndarray


class LabelColumns:
    """Training labels by column, so that a batch of labels costs its own entries and not all of Y's.

    Memory O(nnz Y + |Ω|); a batch of B labels takes O(n·B).
    """

    def __init__(self, labels: TrainingLabels, loss: Loss) -> None:
        self.loss = loss
        self.positives = sp.csr_matrix(labels.positives.T)
        self.observed = None if labels.observed is None else sp.csr_matrix(labels.observed.T)
        self.positive_weight = labels.positive_weight
        self.start = loss.constant(labels.rates())

    def batch(self, ids: np.ndarray, *, with_start: bool) -> LabelBatch:
        """The labels ``ids``; ``with_start=False`` starts them at the score 0 (models without an intercept)."""
        shape = (self.positives.shape[1], len(ids))
        dtype = self.positives.dtype
        on = _entries(self.positives, ids)
        targets = np.full(shape, self.loss.negative, dtype=dtype)
        targets[on] = 1
        weights = None
        if self.observed is not None:
            weights = np.zeros(shape, dtype=dtype)
            weights[_entries(self.observed, ids)] = 1
        elif self.positive_weight is not None:
            weights = np.ones(shape, dtype=dtype)
        if weights is not None and self.positive_weight is not None:
            weights[on] = self.positive_weight[ids][on[1]]
        start = self.start[ids] if with_start else np.zeros(len(ids))
        return LabelBatch(targets, weights, start)


def _entries(by_label: sp.csr_matrix, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of the stored pairs of the chosen labels, in a block with one column per label."""
    chosen = by_label[ids]
    return chosen.indices, np.repeat(np.arange(len(ids)), np.diff(chosen.indptr))


def spectral_start(
    X: FeatureMatrix,
    slope: CSRWithTranspose,
    row: np.ndarray | None,
    rank: int,
    rng: np.random.Generator,
    dtype: np.dtype,
) -> np.ndarray:
    """Orthonormal H (L×k) spanning about the top right singular vectors of Xᵀ D, D = ∂loss/∂S at W = 0.

    XᵀD is the gradient of the loss in Z = WHᵀ at the model that knows only the intercepts, so its leading right
    singular vectors are the best k label directions for a first step. They are found by a randomised subspace
    iteration; D = ``slope`` + 1·``row``ᵀ is never formed. Time O((nnz X + nnz D)k + (L + n)k²) per round.
    """

    def label_side(scores: np.ndarray) -> np.ndarray:  # Dᵀ: n×k → L×k
        product = slope.rmatmul(scores)
        if row is not None:
            total = scores.sum(axis=0, dtype=np.float64)
            for first, last in even_chunks(len(product), _LABELS):
                product[first:last] += np.outer(row[first:last], total).astype(product.dtype)
        return product

    def row_side(H: np.ndarray, start: int, stop: int) -> np.ndarray:  # D: L×k → rows of n×k
        product = slope.matmul_rows(H, start, stop)
        if row is not None:
            product += (row @ H).astype(product.dtype)
        return product

    # Noise on the rows, not on the features: features rotated by an orthogonal map (those of a linear kernel, say) then
    # start, and end, at the same model.
    def noise(start: int, stop: int) -> np.ndarray:
        return rng.standard_normal((stop - start, rank)).astype(dtype)

    H = label_side(X.matmul(X.rmatmul_blocks(noise)))
    with single_threaded_blas():
        for _ in range(_POWER_ROUNDS):
            basis = _orthonormal(H, dtype)
            del H
            H = label_side(X.matmul(X.rmatmul_blocks(partial(row_side, basis))))
        return _orthonormal(H, dtype)


def _orthonormal(columns: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A basis of the columns, from a QR decomposition in float64 that needs one copy of them."""
    work = np.array(columns, dtype=np.float64, order="F")
    basis, _ = scipy.linalg.qr(work, mode="economic", overwrite_a=True, check_finite=False)
    return np.ascontiguousarray(basis, dtype=dtype)
