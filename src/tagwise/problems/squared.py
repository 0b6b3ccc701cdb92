"""The squared-loss low-rank problem: one quadratic for full, weighted and masked labels alike.

With scores S = XWHᵀ + 1bᵀ and labels 0/1, every variant of Σ ½ω_ij (Y_ij − S_ij)² is, up to a constant,

    ½ [full] ‖S‖²  +  ½ Σ_{(i,j)∈C} c_ij S_ij²  −  Σ_{(i,j)∈T} t_ij S_ij

    all labels known              full,      C = ∅,                     T = positives, t = 1
    … positives weighted p_j      full,      C = positives, c = p_j−1,  T = positives, t = p_j
    known on Ω only               not full,  C = Ω, c = ω,              T = positives in Ω, t = ω

so that negatives are never stored where all labels are known: they are the ½‖S‖², which needs only k×k matrices.

Scores that are fixed while W, H and b are sought, S = XWHᵀ + 1bᵀ + F, change T alone: ½(S+F)² is ½S² + SF up to a
constant, so that −t becomes −t + c·F on C and, where all labels are known, +F everywhere. There F is a product of two
matrices and stays one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import (
    CSRWithTranspose,
    FeatureMatrix,
    csr_matmul,
    dense_matmul,
    gram,
    pair_curvature_product,
    sampled_product,
    solve_row_systems,
)
from tagwise.kernels.products import row_range
from tagwise.kernels.vectors import axpy, dot_all, dot_rows
from tagwise.parallel import even_chunks, run_chunks
from tagwise.problems.labels import TrainingLabels, per_label
from tagwise.solvers.cg import conjugate_gradient

__all__ = ["FeatureBlock", "FixedScores", "LabelSolution", "SquaredTerms", "with_intercept"]

# Keeps the system of a label without any known entry solvable; against one known row it is nothing.
_TINY = 1e-9
# Labels whose shared system is solved by a thread at a time.
_LABELS = 256


@dataclass(frozen=True)
class SquaredTerms:
    """The three terms above, ready for products from both sides.

    Attributes
    ----------
    full : bool
        Whether ½‖S‖² is there.
    targets : FeatureMatrix (n, L)
        T with its values t.
    curvature : CSRWithTranspose (n, L) or None
        C with its values c.
    constant : float
        What the three terms leave out of Σ ½ω(Y − S)²: ½ Σ t.
    n_threads : int
    """

    full: bool
    targets: FeatureMatrix
    curvature: CSRWithTranspose | None
    constant: float
    n_threads: int

    @classmethod
    def build(cls, labels: TrainingLabels) -> SquaredTerms:
        """The terms for these labels."""
        if labels.observed is not None:
            curvature = labels.observed_weights
        elif labels.positive_weight is not None:
            curvature = per_label(labels.positives, labels.positive_weight - 1)
        else:
            curvature = None
        threads = labels.n_threads
        targets = labels.weighted_positives
        return cls(
            full=labels.observed is None,
            targets=CSRWithTranspose(targets, n_threads=threads),
            curvature=None if curvature is None else CSRWithTranspose(curvature, n_threads=threads),
            constant=0.5 * float(targets.data.sum(dtype=np.float64)),
            n_threads=threads,
        )

    def around(self, fixed: FixedScores) -> SquaredTerms:
        """The terms of W, H and b beside fixed scores F; their values leave out what F alone adds."""
        targets: FeatureMatrix = self.targets
        if self.curvature is not None:
            pairs = self.curvature.matrix
            pull = sp.csr_matrix((pairs.data * fixed.on(pairs), pairs.indices, pairs.indptr), shape=pairs.shape)
            # Where there is curvature, T is still as it was built.
            matrix = sp.csr_matrix(cast(CSRWithTranspose, targets).matrix - pull)
            targets = CSRWithTranspose(matrix, n_threads=self.n_threads)
        if self.full:
            targets = _Difference(targets, fixed)
        return replace(self, targets=targets)

    def value(self, A: np.ndarray, H: np.ndarray, b: np.ndarray) -> float:
        """Σ ½ω (Y − S)² at S = AHᵀ + 1bᵀ. Time O((nnz Y + |C|)k + (n + L)k²)."""
        extended_A, extended_H = with_intercept(A), np.column_stack([H, b]).astype(A.dtype)
        total = self.constant - dot_all(extended_A, self.targets.matmul(extended_H)).item()
        if self.full:
            total += 0.5 * float(np.sum(gram(extended_A) * gram(extended_H)))
        if self.curvature is not None:
            inner = sampled_product(self.curvature.matrix, extended_A, extended_H, n_threads=self.n_threads)
            total += 0.5 * float(inner.astype(np.float64) ** 2 @ self.curvature.matrix.data)
        return total

    def solve_labels(self, A: np.ndarray, reg: float, *, fit_intercept: bool) -> LabelSolution:
        """The exact minimiser over H and b for fixed A = XW: one k×k system for all labels, or one each.

        Time O(nnz(Y)k + (n+L)k²) when all labels are known and unweighted, else O(|C|k² + Lk³).
        """
        if self.curvature is None:
            return self._solve_together(A, reg, fit_intercept)
        extended = with_intercept(A) if fit_intercept else A
        right = self.targets.rmatmul(extended).astype(np.float64)
        base = self._base(extended, reg, fit_intercept)
        transpose = self.curvature.transpose
        solution = solve_row_systems(transpose, transpose.data, right, extended, base, n_threads=self.n_threads)
        # At the exact minimiser, loss + ½λ‖H‖² = constant − ½⟨right, solution⟩.
        value = self.constant - 0.5 * float(np.sum(right * solution))
        return _split(solution, A, value, fit_intercept)

    def _solve_together(self, A: np.ndarray, reg: float, fit_intercept: bool) -> LabelSolution:
        """The same small system for every label: a k×k inverse turns L solves into one product of L×k by k×k.

        [A, 1] is never made, and H takes the place of its right side a few labels at a time.
        """
        rank = A.shape[1]
        inverse = np.linalg.inv(self._shared_system(A, reg, fit_intercept))
        H = self.targets.rmatmul(A)
        b = np.zeros((len(H), 1))
        if fit_intercept:
            b[:] = self.targets.rmatmul(np.ones((len(A), 1), A.dtype))

        def solve(start: int, stop: int) -> float:
            right = H[start:stop].astype(np.float64)
            if fit_intercept:
                right = np.column_stack([right, b[start:stop]])
            solution = right @ inverse
            H[start:stop] = solution[:, :rank]
            if fit_intercept:
                b[start:stop] = solution[:, rank:]
            return float(np.sum(right * solution))

        # At the exact minimiser, loss + ½λ‖H‖² = constant − ½⟨right, solution⟩.
        along = sum(run_chunks(solve, even_chunks(len(H), _LABELS), self.n_threads))
        return LabelSolution(H=H, intercept=b.ravel(), value=self.constant - 0.5 * along)

    def _shared_system(self, A: np.ndarray, reg: float, fit_intercept: bool) -> np.ndarray:
        """[A, 1]ᵀ[A, 1] (or AᵀA) and the penalty, all labels known."""
        rank = A.shape[1]
        system = np.zeros((rank + fit_intercept, rank + fit_intercept))
        system[:rank, :rank] = gram(A, n_threads=self.n_threads)
        if fit_intercept:
            total = gram(A, np.ones((len(A), 1), A.dtype), n_threads=self.n_threads)
            system[:rank, rank:], system[rank:, :rank], system[rank, rank] = total, total.T, len(A)
        system[np.diag_indices(len(system))] += _penalties(len(system), reg, fit_intercept)
        return system

    def improve_labels(
        self, A: np.ndarray, H: np.ndarray, b: np.ndarray, reg: float, *, fit_intercept: bool, max_iter: int
    ) -> LabelSolution:
        """Conjugate gradients from (H, b) towards what :meth:`solve_labels` finds; only for weighted or masked labels.

        Time O(|C|k) per step and nothing of order k² per pair, so it wins for large ranks. The value never rises.
        """
        if self.curvature is None:
            raise ValueError("all labels share one system here: solve_labels is cheaper")
        pairs = self.curvature.transpose
        extended = with_intercept(A) if fit_intercept else A
        start = np.column_stack([H, b]).astype(A.dtype) if fit_intercept else H
        base = self._base(extended, reg, fit_intercept).astype(A.dtype)

        def system(labels: np.ndarray) -> np.ndarray:
            product = pair_curvature_product(pairs, pairs.data, labels, extended, n_threads=self.n_threads)
            product += dense_matmul(labels, base, n_threads=self.n_threads)
            return product

        right = self.targets.rmatmul(extended)
        moved = system(start)
        step = conjugate_gradient(system, right - moved, tol=1e-3, max_iter=max_iter, inner=dot_rows).solution
        solution = start + step
        # ½⟨x, Mx⟩ − ⟨right, x⟩ at x = start + step, from products that are at hand: M·step = right − moved − residual,
        # and the residual of conjugate gradients is orthogonal to the step.
        gain = 0.5 * dot_rows(step, right - moved).sum()
        at_start = 0.5 * dot_rows(start, moved).sum() - dot_rows(start, right).sum()
        return _split(solution, A, self.constant + float(at_start - gain), fit_intercept)

    def _base(self, extended: np.ndarray, reg: float, fit_intercept: bool) -> np.ndarray:
        """What the systems of all labels share: the penalty, and the Gram matrix where all labels are known."""
        width = extended.shape[1]
        base = gram(extended, n_threads=self.n_threads) if self.full else np.zeros((width, width))
        base[np.diag_indices(width)] += _penalties(width, reg, fit_intercept)
        return base


class FixedScores(FeatureMatrix, Protocol):
    """Scores F (n×L) that do not change while W, H and b are sought: products with them, and single entries."""

    def on(self, pairs: sp.csr_matrix) -> np.ndarray:
        """F_ij for every stored pair, in storage order."""
        ...


@dataclass(frozen=True)
class _Difference(FeatureMatrix):
    """first − second, never formed."""

    first: FeatureMatrix
    second: FeatureMatrix

    @property
    def shape(self) -> tuple[int, int]:
        return self.first.shape

    def matmul(self, right: np.ndarray) -> np.ndarray:
        return self.first.matmul(right) - self.second.matmul(right)

    def matmul_rows(self, right: np.ndarray, start: int, stop: int) -> np.ndarray:
        return self.first.matmul_rows(right, start, stop) - self.second.matmul_rows(right, start, stop)

    def rmatmul(self, left: np.ndarray) -> np.ndarray:
        return self.first.rmatmul(left) - self.second.rmatmul(left)


@dataclass(frozen=True)
class LabelSolution:
    """Label factors H (L×k), intercepts b (L), and the value of loss + ½λ‖H‖² there."""

    H: np.ndarray
    intercept: np.ndarray
    value: float


class FeatureBlock:
    """The problem in W (d×k) for fixed H and b: gradient and Hessian·vector of loss + ½λ‖W‖².

    With A = XW, the slope M = ∂loss/∂S · H (n×k) gives the gradient XᵀM + λW; the Hessian does the same to XS.
    A product costs O((nnz X + nnz C)k + nk²) and O(nk) memory.
    """

    def __init__(self, X: FeatureMatrix, terms: SquaredTerms, H: np.ndarray, intercept: np.ndarray, reg: float) -> None:
        self.X, self.terms, self.H, self.reg = X, terms, H, H.dtype.type(reg)
        self.intercept = intercept.astype(H.dtype)
        self.label_gram = gram(H, n_threads=terms.n_threads).astype(H.dtype) if terms.full else None

    def gradient(self, W: np.ndarray, A: np.ndarray) -> np.ndarray:
        """∇ at W, given A = XW."""
        gradient = self.X.rmatmul_blocks(lambda start, stop: self._slope(A[start:stop], start, stop))
        axpy(gradient, self.reg, W, n_threads=self.terms.n_threads)
        return gradient

    def _slope(self, A: np.ndarray, start: int, stop: int) -> np.ndarray:
        """Rows of M, given those of A."""
        slope = self.terms.targets.matmul_rows(self.H, start, stop)
        np.negative(slope, out=slope)
        if self.label_gram is not None:
            slope += dense_matmul(A, self.label_gram, n_threads=self.terms.n_threads)
            slope += self.intercept @ self.H
        if self.terms.curvature is not None:
            pairs = row_range(self.terms.curvature.matrix, start, stop)
            scores = sampled_product(pairs, A, self.H, n_threads=self.terms.n_threads)
            scores += self.intercept[pairs.indices]
            scores *= pairs.data
            weighted = sp.csr_matrix((scores, pairs.indices, pairs.indptr), shape=pairs.shape)
            slope += csr_matmul(weighted, self.H, n_threads=self.terms.n_threads)
        return slope

    def hessian_vector(self, direction: np.ndarray) -> np.ndarray:
        """∇²·direction, d×k."""
        product = self.X.rmatmul_blocks(
            lambda start, stop: self._curved(self.X.matmul_rows(direction, start, stop), start, stop)
        )
        axpy(product, self.reg, direction, n_threads=self.terms.n_threads)
        return product

    def _curved(self, moved: np.ndarray, start: int, stop: int) -> np.ndarray:
        """The Hessian in the scores, times H on both sides, of rows of XS."""
        threads = self.terms.n_threads
        curved: np.ndarray | None = None
        if self.terms.curvature is not None:
            pairs = row_range(self.terms.curvature.matrix, start, stop)
            curved = pair_curvature_product(pairs, pairs.data, moved, self.H, n_threads=threads)
        if self.label_gram is not None:
            moved = dense_matmul(moved, self.label_gram, n_threads=threads, out=moved)
            if curved is not None:
                moved += curved
            return moved
        return np.zeros_like(moved) if curved is None else curved


def _penalties(width: int, reg: float, fit_intercept: bool) -> np.ndarray:
    penalties = np.full(width, float(reg))
    if fit_intercept:
        penalties[-1] = _TINY
    return penalties


def _split(solution: np.ndarray, A: np.ndarray, value: float, fit_intercept: bool) -> LabelSolution:
    H = np.ascontiguousarray(solution[:, : A.shape[1]], dtype=A.dtype)
    b = solution[:, -1].astype(np.float64) if fit_intercept else np.zeros(len(solution))
    return LabelSolution(H=H, intercept=b, value=value)


def with_intercept(A: np.ndarray) -> np.ndarray:
    """A (n×k) with a column of ones behind it."""
    return np.column_stack([A, np.ones(len(A), dtype=A.dtype)])
