"""What is known about the labels of the training rows: positives, mask and weights, and where a fit begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from tagwise.kernels import CSRWithTranspose, FeatureMatrix
from tagwise.losses import Loss
from tagwise.parallel import even_chunks, single_threaded_blas

__all__ = [
    "UNLISTED",
    "KnownCounts",
    "LabelBatch",
    "LabelColumns",
    "SpectralSides",
    "TrainingLabels",
    "known_positives",
    "per_label",
    "per_row",
    "spectral_start",
    "subspace_iteration",
]

UNLISTED = ("off", "unknown")
"""What it may mean that a row does not list a label: that it is off, or nothing, since nobody looked."""

# Of the subspace iteration of the start: its rounds, and labels that the intercepts' row is added to at a time.
_POWER_ROUNDS = 2
_LABELS = 256


class KnownCounts(NamedTuple):
    """Rows that are known to be on (L) and that are known at all (L), each counted as it weighs."""

    positives: np.ndarray
    known: np.ndarray

    def rates(self, positive_weight: np.ndarray) -> np.ndarray:
        """The share of positives (L), each counted as often as its label's weight (L) says; 0 of nothing."""
        weighted = self.positives * positive_weight
        total = weighted + (self.known - self.positives)
        return np.divide(weighted, total, out=np.zeros_like(total), where=total > 0)


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
        What a label's positives weigh; negatives, and everything where it is None, weigh 1.
    n_threads : int
    row_weight : array (n,), or None
        What rows weigh: ω_ij is this times the weight above.
    """

    positives: sp.csr_matrix
    observed: sp.csr_matrix | None
    positive_weight: np.ndarray | None
    n_threads: int = 1
    row_weight: np.ndarray | None = None

    @classmethod
    def build(
        cls,
        Y: sp.csr_matrix,
        observed: sp.csr_matrix | None,
        positive_weight: np.ndarray | None,
        *,
        dtype: np.dtype | type = np.float64,
        n_threads: int = 1,
        row_weight: np.ndarray | None = None,
    ) -> TrainingLabels:
        """From checked 0/1 labels and mask; what Y says outside the mask is dropped here and seen by nobody after."""
        return cls(
            positives=known_positives(Y, observed).astype(dtype, copy=False),
            observed=None if observed is None else observed.astype(dtype, copy=False),
            positive_weight=positive_weight,
            n_threads=n_threads,
            row_weight=row_weight,
        )

    def of(self, ids: np.ndarray) -> TrainingLabels:
        """The labels ``ids`` alone, in this order."""
        return TrainingLabels(
            positives=sp.csr_matrix(self.positives[:, ids]),
            observed=None if self.observed is None else sp.csr_matrix(self.observed[:, ids]),
            positive_weight=None if self.positive_weight is None else self.positive_weight[ids],
            n_threads=self.n_threads,
            row_weight=self.row_weight,
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

    def rates(self) -> np.ndarray:
        """The weighted share of known positives among each label's known pairs (L); 0 where nothing is known."""
        return self.counts().rates(self.weight_or_one)

    def unknown_labels(self) -> np.ndarray:
        """Ids of the labels without a single known pair."""
        return np.flatnonzero(self.counts().known == 0)

    def counts(self) -> KnownCounts:
        """How many rows are known of each label, and on; those of parts of the rows add up to those of all."""
        if self.observed is None:
            total = self.shape[0] if self.row_weight is None else self.row_weight.sum()
            known = np.full(self.shape[1], float(total))
        else:
            known = _column_sums(self.observed, self.row_weight)
        return KnownCounts(_column_sums(self.positives, self.row_weight), known)

    def slope_at(self, loss: Loss, intercept: np.ndarray) -> tuple[CSRWithTranspose, np.ndarray | None]:
        """∂loss/∂S at S = 1·interceptᵀ: a sparse matrix plus, where all labels are known, one row repeated.

        Where rows have weights, that row is repeated with them.
        """
        off = loss.first(np.full_like(intercept, loss.negative), intercept)
        on = self.weight_or_one * loss.first(np.ones_like(intercept), intercept)
        slope = per_label(self.positives, on - off)
        if self.observed is not None:
            slope = sp.csr_matrix(per_label(self.observed, off) + slope)
        slope = per_row(slope, self.row_weight).astype(self.positives.dtype, copy=False)
        return CSRWithTranspose(slope, n_threads=self.n_threads), (off if self.observed is None else None)


def known_positives(Y: sp.csr_matrix, observed: sp.csr_matrix | None) -> sp.csr_matrix:
    """The pairs (n, L) that are known to be on."""
    return Y if observed is None else sp.csr_matrix(Y.multiply(observed))


def only_positives_known(Y: sp.csr_matrix, observed: sp.csr_matrix | None) -> bool:
    """Whether no label is known to be off in any row."""
    return observed is not None and known_positives(Y, observed).nnz == observed.nnz


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
    """How many entries each column has, or what their rows weigh."""
    weights = None if row_weight is None else np.repeat(row_weight, np.diff(matrix.indptr))
    return np.bincount(matrix.indices, weights, minlength=matrix.shape[1]).astype(np.float64)


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

    Memory O(nnz Y + nnz Ω); a batch of B labels takes O(n·B).
    """

    def __init__(self, labels: TrainingLabels, loss: Loss) -> None:
        self.loss = loss
        self.positives = sp.csr_matrix(labels.positives.T)
        self.observed = None if labels.observed is None else sp.csr_matrix(labels.observed.T)
        self.positive_weight, self.row_weight = labels.positive_weight, labels.row_weight
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
        elif self.positive_weight is not None or self.row_weight is not None:
            weights = np.ones(shape, dtype=dtype)
        if weights is not None and self.positive_weight is not None:
            weights[on] = self.positive_weight[ids][on[1]]
        if weights is not None and self.row_weight is not None:
            weights *= self.row_weight[:, None].astype(dtype)
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
    row_weight: np.ndarray | None = None,
) -> np.ndarray:
    """Orthonormal H (L×k) spanning about the top right singular vectors of Xᵀ D, D = ∂loss/∂S at W = 0.

    XᵀD is the gradient of the loss in Z = WHᵀ at the model that knows only the intercepts, so its leading right
    singular vectors are the best k label directions for a first step. They are found by a randomised subspace
    iteration; D = ``slope`` + 1·``row``ᵀ, or with ``row_weight`` in place of 1, is never formed. Time
    O((nnz X + nnz D)k + (L + n)k²) per round.
    """
    sides = SpectralSides(X, slope, row, row_weight)
    return subspace_iteration(sides.of_noise(rng, rank, dtype), sides.feature_side, sides.label_side, dtype)


@dataclass(frozen=True)
class SpectralSides:
    """The products of a spectral start: sums over rows, so that those of parts of the rows add up to those of all."""

    X: FeatureMatrix
    slope: CSRWithTranspose
    row: np.ndarray | None
    row_weight: np.ndarray | None

    def of_noise(self, rng: np.random.Generator, rank: int, dtype: np.dtype) -> np.ndarray:
        """Xᵀ·noise (d×k).

        Noise on the rows, not on the features: features rotated by an orthogonal map (those of a linear kernel, say)
        then start, and end, at the same model.
        """
        return self.X.rmatmul_blocks(lambda start, stop: rng.standard_normal((stop - start, rank)).astype(dtype))

    def feature_side(self, H: np.ndarray) -> np.ndarray:
        """XᵀDH (d×k)."""
        return self.X.rmatmul_blocks(partial(self._rows, H))

    def _rows(self, H: np.ndarray, start: int, stop: int) -> np.ndarray:
        """Rows of DH."""
        product = self.slope.matmul_rows(H, start, stop)
        if self.row is not None:
            shared, weight = self.row @ H, self.row_weight
            product += (shared if weight is None else np.outer(weight[start:stop], shared)).astype(product.dtype)
        return product

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
    """The iteration of :func:`spectral_start` from Xᵀ·noise (d×k), by its two products."""
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
