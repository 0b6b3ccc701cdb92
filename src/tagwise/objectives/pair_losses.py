"""The low-rank problem for any loss, one block of variables at a time: on known pairs only, or on all of them.

Scores are s_ij = left_i · right_j. Seen from the rows, left = XW and right = H; seen from the labels, the roles are
swapped and the pairs transposed. Either way a problem needs three sums, all per row of ``left``:

    value       Σ_j ω_ij ℓ(y_ij, s_ij)
    slope       Σ_j ω_ij ℓ'(y_ij, s_ij) right_j
    curvature   Σ_j ω_ij ℓ''(y_ij, s_ij) (direction_i · right_j) right_j
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import FeatureMatrix, csr_matmul, pair_curvature_product, sampled_product
from tagwise.losses import Loss
from tagwise.objectives.labels import TrainingLabels
from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas, work_chunks

__all__ = ["AllPairs", "FeatureProblem", "KnownPairs", "LabelProblem", "PairLoss", "label_side", "row_side"]

# Scores made at a time where all pairs count: 2 MB of float32, so that a block stays in cache through its four passes.
_BLOCK_SCORES = 1 << 19


class KnownPairs:
    """Only the pairs stored in a CSR pattern count. Time O(nnz·k), memory O(nnz)."""

    def __init__(self, weights: sp.csr_matrix, targets: np.ndarray, loss: Loss, *, n_threads: int = 1) -> None:
        """``weights`` holds ω on the pattern; ``targets`` the labels there, in the loss's coding."""
        self.weights, self.targets, self.loss, self.n_threads = weights, targets, loss, n_threads
        self._chunks = work_chunks(weights.indptr)

    def evaluate(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Σ_j ω ℓ per row."""
        self._right = right
        self._scores = sampled_product(self.weights, left, right, n_threads=self.n_threads)
        sums, indptr = np.zeros(len(left)), self.weights.indptr

        def rows(start: int, stop: int) -> None:
            pairs = slice(indptr[start], indptr[stop])
            values = self.weights.data[pairs] * self.loss.value(self.targets[pairs], self._scores[pairs])
            # np.add.reduceat needs the starts of non-empty rows only.
            filled = start + np.flatnonzero(np.diff(indptr[start : stop + 1]))
            if len(filled):
                sums[filled] = np.add.reduceat(values.astype(np.float64), indptr[filled] - indptr[start])

        run_chunks(rows, self._chunks, self.n_threads)
        return sums

    def slope(self) -> np.ndarray:
        """Σ_j ω ℓ' right_j per row."""
        pattern = self.weights
        first, self._second = np.empty_like(pattern.data), np.empty_like(pattern.data)

        def rows(start: int, stop: int) -> None:
            pairs = slice(pattern.indptr[start], pattern.indptr[stop])
            weights, targets, scores = pattern.data[pairs], self.targets[pairs], self._scores[pairs]
            first[pairs] = weights * self.loss.first(targets, scores)
            self._second[pairs] = weights * self.loss.second(targets, scores)

        run_chunks(rows, self._chunks, self.n_threads)
        matrix = sp.csr_matrix((first, pattern.indices, pattern.indptr), shape=pattern.shape)
        return csr_matmul(matrix, self._right, n_threads=self.n_threads)

    def curvature(self, direction: np.ndarray) -> np.ndarray:
        """Σ_j ω ℓ'' (direction_i · right_j) right_j per row."""
        return pair_curvature_product(self.weights, self._second, direction, self._right, n_threads=self.n_threads)


class AllPairs:
    """Every pair counts: positives are stored, negatives are all others. Scores are made and dropped block by block.

    Time O(m·p·k) for m×p pairs, done by BLAS; memory one block of scores per thread.
    """

    def __init__(
        self, positives: sp.csr_matrix, loss: Loss, *, off_weights: np.ndarray | None = None, n_threads: int = 1
    ) -> None:
        """``positives`` (m×p) holds ω of the pairs that are on.

        ``off_weights`` (m×1 or 1×p) has ω of the pairs that are off, None where all are 1.
        """
        self.positives, self.loss, self.n_threads = positives, loss, n_threads
        self.off_weights = None if off_weights is None else off_weights.astype(positives.dtype)
        self._blocks = even_chunks(positives.shape[0], max(1, _BLOCK_SCORES // positives.shape[1]))

    def evaluate(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Σ_j ω ℓ per row; the slope is made in the same pass, while the scores are at hand."""
        self._left, self._right = left, right
        values, self._slope = np.empty(len(left)), np.empty_like(left)

        def block(start: int, stop: int) -> None:
            scores, stored, rows, columns = self._scores(start, stop)
            on = scores[rows, columns]
            one = np.ones_like(on)
            weights = self.positives.data[stored]
            losses = self._weigh_off(self.loss.value(self._off(scores), scores), start, stop)
            value = losses.sum(axis=1, dtype=np.float64)
            excess = weights * self.loss.value(one, on) - losses[rows, columns]
            values[start:stop] = value + np.bincount(rows, weights=excess, minlength=stop - start)
            first = self._weigh_off(self.loss.first(self._off(scores), scores), start, stop)
            first[rows, columns] = weights * self.loss.first(one, on)
            np.matmul(first, right, out=self._slope[start:stop])

        self._run(block)
        return values

    def slope(self) -> np.ndarray:
        """Σ_j ω ℓ' right_j per row."""
        return self._slope

    def curvature(self, direction: np.ndarray) -> np.ndarray:
        """Σ_j ω ℓ'' (direction_i · right_j) right_j per row."""
        out = np.empty_like(direction)

        def block(start: int, stop: int) -> None:
            scores, stored, rows, columns = self._scores(start, stop)
            on = scores[rows, columns]
            second = self._weigh_off(self.loss.second(self._off(scores), scores), start, stop)
            second[rows, columns] = self.positives.data[stored] * self.loss.second(np.ones_like(on), on)
            second *= np.matmul(direction[start:stop], self._right.T, out=scores)
            np.matmul(second, self._right, out=out[start:stop])

        self._run(block)
        return out

    def _run(self, block: Callable[[int, int], None]) -> None:
        with single_threaded_blas():
            run_chunks(block, self._blocks, self.n_threads)

    def _weigh_off(self, values: np.ndarray, start: int, stop: int) -> np.ndarray:
        """Values of rows ``start`` to ``stop`` times the weights of pairs that are off, in place."""
        if self.off_weights is not None:
            values *= self.off_weights if len(self.off_weights) == 1 else self.off_weights[start:stop]
        return values

    def _off(self, scores: np.ndarray) -> np.ndarray:
        # A scalar in the scores' own type: a Python float would turn float32 scores into float64 in old numpy.
        return scores.dtype.type(self.loss.negative)

    def _scores(self, start: int, stop: int) -> tuple[np.ndarray, slice, np.ndarray, np.ndarray]:
        """Scores of a block of rows, and where its positives lie: in storage, and by row and column of the block."""
        indptr = self.positives.indptr
        stored = slice(indptr[start], indptr[stop])
        rows = np.repeat(np.arange(stop - start), np.diff(indptr[start : stop + 1]))
        return self._left[start:stop] @ self._right.T, stored, rows, self.positives.indices[stored]


PairLoss: TypeAlias = KnownPairs | AllPairs
"""``evaluate`` fixes the point at which slope and curvature are taken; all are per row of ``left``."""


def row_side(labels: TrainingLabels, loss: Loss) -> PairLoss:
    """The pairs seen from the rows: left is n×k, right L×k."""
    if labels.observed is None:
        off = None if labels.row_weight is None else labels.row_weight[:, None]
        return AllPairs(labels.weighted_positives, loss, off_weights=off, n_threads=labels.n_threads)
    return KnownPairs(*_weights_and_targets(labels, loss), loss, n_threads=labels.n_threads)


def label_side(labels: TrainingLabels, loss: Loss) -> PairLoss:
    """The pairs seen from the labels: left is L×k, right n×k."""
    if labels.observed is None:
        off, weighted = None if labels.row_weight is None else labels.row_weight[None, :], labels.weighted_positives
        return AllPairs(sp.csr_matrix(weighted.T), loss, off_weights=off, n_threads=labels.n_threads)
    weights, targets = _weights_and_targets(labels, loss)
    transposed = sp.csr_matrix(weights.T)
    as_matrix = sp.csr_matrix((targets, weights.indices, weights.indptr), shape=weights.shape)
    return KnownPairs(transposed, sp.csr_matrix(as_matrix.T).data, loss, n_threads=labels.n_threads)


def _weights_and_targets(labels: TrainingLabels, loss: Loss) -> tuple[sp.csr_matrix, np.ndarray]:
    """ω on Ω, and the coded labels there in the same storage order."""
    weights = labels.observed_weights
    return weights, loss.targets(labels.observed_on).astype(weights.dtype)


class FeatureProblem:
    """W (d×k) for fixed label factors: Σ ω ℓ(y, x_iᵀWh_j + b_j), one problem of d·k variables, without its penalty.

    ``extended`` is H, or [H, b] where there is an intercept.
    """

    def __init__(self, X: FeatureMatrix, pairs: PairLoss, extended: np.ndarray, rank: int) -> None:
        self.X, self.pairs, self.extended, self.rank = X, pairs, extended, rank

    def move_to(self, W: np.ndarray, A: np.ndarray | None = None) -> None:
        """Evaluate the loss at W; A = XW where it is at hand."""
        A = self.X.matmul(W) if A is None else A
        self._loss = float(self.pairs.evaluate(self._extend(A, 1), self.extended).sum())

    def value(self) -> np.ndarray:
        """The loss, shape (1, 1)."""
        return np.full((1, 1), self._loss)

    def gradient(self) -> np.ndarray:
        """Xᵀ·slope, at A = XW."""
        return self.X.rmatmul(np.ascontiguousarray(self.pairs.slope()[:, : self.rank]))

    def hessian_vector(self, direction: np.ndarray) -> np.ndarray:
        """Xᵀ·curvature(X·direction)."""
        curved = self.pairs.curvature(self._extend(self.X.matmul(direction), 0))
        return self.X.rmatmul(np.ascontiguousarray(curved[:, : self.rank]))

    def _extend(self, A: np.ndarray, last: int) -> np.ndarray:
        if self.extended.shape[1] == self.rank:
            return A
        return np.column_stack([A, np.full(len(A), last, dtype=A.dtype)])


class LabelProblem:
    """[H, b] (L×(k+1)) for fixed A = XW: an independent problem of k+1 variables per label, b unpenalised.

    ``extended`` is A, or [A, 1] where there is an intercept.
    """

    def __init__(self, pairs: PairLoss, extended: np.ndarray, rank: int, reg: float) -> None:
        self.pairs, self.extended = pairs, extended
        self.penalty = np.zeros(extended.shape[1], dtype=extended.dtype)
        self.penalty[:rank] = reg

    def move_to(self, H: np.ndarray) -> None:
        """Evaluate the loss at [H, b]."""
        self._H = H
        self._losses = self.pairs.evaluate(H, self.extended)

    def value(self) -> np.ndarray:
        """The objective of each label, shape (L, 1)."""
        penalty = np.sum(0.5 * self.penalty * self._H.astype(np.float64) ** 2, axis=1)
        return (self._losses + penalty)[:, None]

    def gradient(self) -> np.ndarray:
        """Slope + penalty · H."""
        return self.pairs.slope() + self.penalty * self._H

    def hessian_vector(self, direction: np.ndarray) -> np.ndarray:
        """Curvature(direction) + penalty · direction."""
        return self.pairs.curvature(direction) + self.penalty * direction
