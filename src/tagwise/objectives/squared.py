"""The squared-loss low-rank problem: one quadratic for full, weighted and masked labels alike.

With scores S = XWHᵀ + 1bᵀ and labels 0/1, every variant of Σ ½ω_ij (Y_ij − S_ij)² is, up to a constant,

    ½ [full] ‖S‖²  +  ½ Σ_{(i,j)∈C} c_ij S_ij²  −  Σ_{(i,j)∈T} t_ij S_ij

    all labels known              full,      C = ∅,                     T = positives, t = 1
    … positives weighted p_j      full,      C = positives, c = p_j−1,  T = positives, t = p_j
    known on Ω only               not full,  C = Ω, c = ω,              T = positives in Ω, t = ω
    … and complete rows           full,      C = both of these

where ½‖S‖² runs over the complete rows alone, and weights v_i of rows multiply c, t and, in ½ Σ_i v_i ‖S_i‖², the full
term, so that negatives of complete rows are never stored: they are the ½‖S‖², which needs only k×k matrices.

Scores that are fixed while W, H and b are sought, S = XWHᵀ + 1bᵀ + F, change T alone: ½(S+F)² is ½S² + SF up to a
constant, so that −t becomes −t + c·F on C and, where all labels are known, +F everywhere. There F is a product of two
matrices and stays one.

What runs over rows is a sum of small statistics (AᵀA and YᵀA for the labels, XᵀM for W), which those of shards add up
to; what runs over labels is one small system each, mapped over blocks of labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import (
    CSRWithTranspose,
    FeatureMatrix,
    csr_matmul,
    dense_matmul,
    feature_matrix,
    gram,
    pair_curvature_product,
    sampled_product,
    sampled_sparse_product,
    solve_row_systems,
)
from tagwise.kernels.vectors import dot_all, dot_rows
from tagwise.objectives.labels import TrainingLabels, per_label, per_row
from tagwise.parallel import even_chunks, run_chunks

__all__ = [
    "LabelSums",
    "LinearScores",
    "SquaredFeatureProblem",
    "SquaredLabelProblem",
    "SquaredTerms",
    "with_intercept",
]

# Keeps the system of a label without any known entry solvable; against one known row it is nothing.
_TINY = 1e-9
# Labels whose shared system is solved by a thread at a time.
_LABELS = 256
# Scores of a block of labels, where S is dense and its product with X has to be made to be read: 4 MB of float32.
_BLOCK_SCORES = 1 << 20


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
        Σ ½ω(Y − S)² less the three terms: ½ Σ t.
    n_threads : int
    row_weight : array (n,) or None
        v of the full term; C and T have it in their values already.
    """

    full: bool
    targets: FeatureMatrix
    curvature: CSRWithTranspose | None
    constant: float
    n_threads: int
    row_weight: np.ndarray | None = None

    @classmethod
    def build(cls, labels: TrainingLabels) -> SquaredTerms:
        """The terms for these labels."""
        known, curvature, weight = labels.known, None, labels.positive_weight
        if weight is not None:
            curvature = per_row(per_label(labels.positives, weight - 1), labels.row_weight)
        if known is not None:
            # Positives of complete rows have c = p − 1; those of others c = p, which is this and their pair's 1.
            pairs = per_row(known.pairs.astype(labels.positives.dtype, copy=False), labels.row_weight)
            curvature = pairs if curvature is None else sp.csr_matrix(pairs + curvature)
        threads = labels.n_threads
        targets = labels.weighted_positives
        return cls(
            full=known is None or bool(known.complete.any()),
            targets=CSRWithTranspose(targets, n_threads=threads),
            curvature=None if curvature is None else CSRWithTranspose(curvature, n_threads=threads),
            constant=0.5 * float(targets.data.sum(dtype=np.float64)),
            n_threads=threads,
            row_weight=labels.full_weight,
        )

    def around(self, fixed: LinearScores) -> SquaredTerms:
        """The terms of W, H and b beside fixed scores F; their values leave out what F alone adds."""
        targets: FeatureMatrix = self.targets
        if self.curvature is not None:
            pairs = self.curvature.matrix
            pull = sp.csr_matrix((pairs.data * fixed.on(pairs), pairs.indices, pairs.indptr), shape=pairs.shape)
            # Where there is curvature, T is still as it was built.
            matrix = sp.csr_matrix(cast(CSRWithTranspose, targets).matrix - pull)
            targets = CSRWithTranspose(matrix, n_threads=self.n_threads)
        if self.full:
            targets = _Difference(targets, fixed, self.row_weight)
        return replace(self, targets=targets)

    def value(self, A: np.ndarray, H: np.ndarray, b: np.ndarray) -> float:
        """Σ ½ω (Y − S)² at S = AHᵀ + 1bᵀ. Time O((nnz Y + |C|)k + (n + L)k²)."""
        extended_A, extended_H = with_intercept(A), np.column_stack([H, b]).astype(A.dtype)
        total = self.constant - dot_all(extended_A, self.targets.matmul(extended_H)).item()
        if self.full:
            total += 0.5 * float(np.sum(self._gram_of_rows(extended_A) * gram(extended_H)))
        if self.curvature is not None:
            inner = sampled_product(self.curvature.matrix, extended_A, extended_H, n_threads=self.n_threads)
            total += 0.5 * float(inner.astype(np.float64) ** 2 @ self.curvature.matrix.data)
        return total

    def solve_labels(self, A: np.ndarray, reg: float, *, fit_intercept: bool) -> tuple[np.ndarray, np.ndarray, float]:
        """The exact minimiser over H (L×k) and b (L) for fixed A = XW, and loss + ½λ‖H‖² there.

        One k×k system for all labels in O(nnz(Y)k + (n+L)k²) when they are known and unweighted, else one each, in
        O(|C|k² + Lk³).
        """
        if self.curvature is None:
            return self.label_sums(A, fit_intercept=fit_intercept).solve(reg, n_threads=self.n_threads)
        extended = with_intercept(A) if fit_intercept else A
        right = self.targets.rmatmul(extended).astype(np.float64)
        base = self.base_system(extended, reg, fit_intercept)
        transpose = self.curvature.transpose
        solution = solve_row_systems(transpose, transpose.data, right, extended, base, n_threads=self.n_threads)
        # At the exact minimiser, loss + ½λ‖H‖² = constant − ½⟨right, solution⟩.
        value = self.constant - 0.5 * float(np.sum(right * solution))
        H = np.ascontiguousarray(solution[:, : A.shape[1]], dtype=A.dtype)
        return H, solution[:, -1].astype(np.float64) if fit_intercept else np.zeros(len(solution)), value

    def label_sums(self, A: np.ndarray, *, fit_intercept: bool) -> LabelSums:
        """Sums over rows for H and b at fixed A = XW, all labels known and unweighted; [A, 1] is never made."""
        rank = A.shape[1]
        system = np.zeros((rank + fit_intercept, rank + fit_intercept))
        system[:rank, :rank] = self._gram_of_rows(A)
        H = self.targets.rmatmul(A)
        b = np.zeros((len(H), 1))
        if fit_intercept:
            weights = np.ones(len(A)) if self.row_weight is None else self.row_weight
            total = gram(A, weights[:, None].astype(A.dtype), n_threads=self.n_threads)
            system[:rank, rank:], system[rank:, :rank], system[rank, rank] = total, total.T, weights.sum()
            b[:] = self.targets.rmatmul(np.ones((len(A), 1), A.dtype))
        return LabelSums(system, H, b, self.constant)

    def base_system(self, extended: np.ndarray, reg: float, fit_intercept: bool) -> np.ndarray:
        """The common part of the systems of weighted or masked labels: penalty and Gram matrix of complete rows."""
        width = extended.shape[1]
        base = self._gram_of_rows(extended) if self.full else np.zeros((width, width))
        base[np.diag_indices(width)] += _penalties(width, reg, fit_intercept)
        return base

    def _gram_of_rows(self, A: np.ndarray) -> np.ndarray:
        """Σ_i v_i a_i a_iᵀ."""
        if self.row_weight is None:
            return gram(A, n_threads=self.n_threads)
        return gram(A, A * self.row_weight[:, None].astype(A.dtype), n_threads=self.n_threads)


class LinearScores(FeatureMatrix):
    """F = XS + offset (n×L) as products: X (n×d) CSR, S (d×L) CSR or dense, one offset for all pairs.

    A product with F costs O((nnz X + nnz S)k); single entries cost what :func:`sampled_sparse_product` says, or, for a
    dense S, XS in blocks of labels. n×L is never allocated.
    """

    def __init__(
        self, X: CSRWithTranspose, S: sp.csr_matrix | np.ndarray, *, offset: float = 0.0, n_threads: int = 1
    ) -> None:
        self.X, self.offset, self.n_threads = X, offset, n_threads
        self.S: Any = feature_matrix(S, n_threads=n_threads)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, L)."""
        return self.X.shape[0], self.S.shape[1]

    def matmul(self, right: np.ndarray) -> np.ndarray:
        """F @ right."""
        product = self.X.matmul(self.S.matmul(right))
        product += (self.offset * right.sum(axis=0, dtype=np.float64)).astype(product.dtype)
        return product

    def rmatmul(self, left: np.ndarray) -> np.ndarray:
        """Fᵀ @ left: L×k."""
        product = self.S.rmatmul(self.X.rmatmul(left))
        product += (self.offset * left.sum(axis=0, dtype=np.float64)).astype(product.dtype)
        return product

    def on(self, pairs: sp.csr_matrix) -> np.ndarray:
        """F_ij for every stored pair of ``pairs`` (n×L), in storage order."""
        S = self.S.matrix
        if sp.issparse(S):
            found = sampled_sparse_product(pairs, self.X.matrix, S, n_threads=self.n_threads)
        else:
            found = np.empty(pairs.nnz, dtype=self.X.matrix.dtype)
            rows = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
            by_label = np.argsort(pairs.indices, kind="stable")
            ends = np.concatenate([[0], np.cumsum(np.bincount(pairs.indices, minlength=pairs.shape[1]))])
            for start, stop in even_chunks(S.shape[1], max(1, _BLOCK_SCORES // self.X.shape[0])):
                scores = self.X.matmul(np.ascontiguousarray(S[:, start:stop]))
                here = by_label[ends[start] : ends[stop]]
                found[here] = scores[rows[here], pairs.indices[here] - start]
        found += found.dtype.type(self.offset)
        return found


@dataclass(frozen=True)
class _Difference(FeatureMatrix):
    """first − diag(v)·second, never formed; v are the weights of the rows, if they have any."""

    first: FeatureMatrix
    second: FeatureMatrix
    row_weight: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.first.shape

    def matmul(self, right: np.ndarray) -> np.ndarray:
        product = self.first.matmul(right)
        product -= weighed(self.second.matmul(right), self.row_weight)
        return product

    def rmatmul(self, left: np.ndarray) -> np.ndarray:
        pulled = left if self.row_weight is None else weighed(left.copy(), self.row_weight)
        return self.first.rmatmul(left) - self.second.rmatmul(pulled)


class LabelSums(NamedTuple):
    """Sums over rows that H and b follow from: those of several parts of the rows add up to those of all.

    ``system`` ((k+1)×(k+1), or k×k without an intercept) is [A, 1]ᵀ[A, 1]; ``factors`` (L×k) and ``intercept`` (L×1)
    are TᵀA and Tᵀ1; ``constant`` is that of the terms.
    """

    system: np.ndarray
    factors: np.ndarray
    intercept: np.ndarray
    constant: float

    def solve(self, reg: float, *, n_threads: int = 1) -> tuple[np.ndarray, np.ndarray, float]:
        """H (L×k), b (L) and loss + ½λ‖H‖² there: one k×k inverse turns L solves into a product of L×k by k×k.

        H and b take the place of the sums a few labels at a time.
        """
        system, H, b, constant = self
        rank, fit_intercept = H.shape[1], len(system) > H.shape[1]
        system[np.diag_indices(len(system))] += _penalties(len(system), reg, fit_intercept)
        inverse = np.linalg.inv(system)

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
        along = sum(run_chunks(solve, even_chunks(len(H), _LABELS), n_threads))
        return H, b.ravel(), constant - 0.5 * along


class SquaredFeatureProblem:
    """The loss in W (d×k) for fixed H and b, without W's penalty.

    With A = XW, the slope M = ∂loss/∂S · H (n×k) gives the gradient XᵀM; the Hessian does the same to XS.
    A product costs O((nnz X + nnz C)k + nk²) and O(nk) memory.
    """

    def __init__(self, X: FeatureMatrix, terms: SquaredTerms, H: np.ndarray, intercept: np.ndarray) -> None:
        self.X, self.terms, self.H = X, terms, H
        self.intercept = intercept.astype(H.dtype)
        self.label_gram = gram(H, n_threads=terms.n_threads).astype(H.dtype) if terms.full else None

    def move_to(self, W: np.ndarray, A: np.ndarray | None = None) -> None:
        """To W; A = XW where it is at hand."""
        self._W, self._A = W, A

    def value(self) -> np.ndarray:
        """The loss, shape (1, 1)."""
        A = self.X.matmul(self._W) if self._A is None else self._A
        return np.full((1, 1), self.terms.value(A, self.H, self.intercept))

    def gradient(self) -> np.ndarray:
        """XᵀM. A is given up here: the Hessian does not need it, and n×k is what a solver's steps can use."""
        A, self._A = self.X.matmul(self._W) if self._A is None else self._A, None
        return self.X.rmatmul(self._slope(A))

    def _slope(self, A: np.ndarray) -> np.ndarray:
        """M, in a frame of its own: what it is made of is freed before the product with X."""
        slope = self.terms.targets.matmul(self.H)
        np.negative(slope, out=slope)
        if self.label_gram is not None:
            full = dense_matmul(A, self.label_gram, n_threads=self.terms.n_threads)
            full += self.intercept @ self.H
            slope += weighed(full, self.terms.row_weight)
        if self.terms.curvature is not None:
            pairs = self.terms.curvature.matrix
            scores = sampled_product(pairs, A, self.H, n_threads=self.terms.n_threads)
            scores += self.intercept[pairs.indices]
            scores *= pairs.data
            weighted = sp.csr_matrix((scores, pairs.indices, pairs.indptr), shape=pairs.shape)
            slope += csr_matmul(weighted, self.H, n_threads=self.terms.n_threads)
        return slope

    def hessian_vector(self, direction: np.ndarray) -> np.ndarray:
        """∇²·direction, d×k."""
        return self.X.rmatmul(self._curved(self.X.matmul(direction)))

    def _curved(self, moved: np.ndarray) -> np.ndarray:
        """The Hessian in the scores, times H on both sides, of XS, whose memory it takes."""
        threads, curved = self.terms.n_threads, None
        if self.terms.curvature is not None:
            pairs = self.terms.curvature.matrix
            curved = pair_curvature_product(pairs, pairs.data, moved, self.H, n_threads=threads)
        if self.label_gram is None:
            return np.zeros_like(moved) if curved is None else curved
        moved = weighed(dense_matmul(moved, self.label_gram, n_threads=threads, out=moved), self.terms.row_weight)
        if curved is not None:
            moved += curved
        return moved


class SquaredLabelProblem:
    """[H, b] (L×(k+1)) for fixed A = XW, weighted or masked labels: a quadratic of k+1 variables per label.

    For large ranks a few steps of conjugate gradients on it, O(|C|k) each, beat :meth:`SquaredTerms.solve_labels`,
    which needs k² per pair. The values leave the constant of the terms out.
    """

    def __init__(self, terms: SquaredTerms, A: np.ndarray, reg: float, *, fit_intercept: bool) -> None:
        if terms.curvature is None:
            raise ValueError("all labels share one system here: solve_labels is cheaper")
        self.pairs, self.n_threads = terms.curvature.transpose, terms.n_threads
        self.extended = with_intercept(A) if fit_intercept else A
        self.base = terms.base_system(self.extended, reg, fit_intercept).astype(A.dtype)
        self.right = terms.targets.rmatmul(self.extended)

    def move_to(self, H: np.ndarray) -> None:
        """To [H, b], or H without an intercept."""
        self._H, self._curved = H, self.hessian_vector(H)

    def value(self) -> np.ndarray:
        """Loss + ½λ‖h‖² of each label less its constant, shape (L, 1)."""
        return 0.5 * dot_rows(self._H, self._curved) - dot_rows(self._H, self.right)

    def gradient(self) -> np.ndarray:
        """Shaped like the point."""
        return self._curved - self.right

    def hessian_vector(self, direction: np.ndarray) -> np.ndarray:
        """The systems of all labels, each times its row of the direction."""
        product = pair_curvature_product(
            self.pairs, self.pairs.data, direction, self.extended, n_threads=self.n_threads
        )
        product += dense_matmul(direction, self.base, n_threads=self.n_threads)
        return product


def _penalties(width: int, reg: float, fit_intercept: bool) -> np.ndarray:
    penalties = np.full(width, float(reg))
    if fit_intercept:
        penalties[-1] = _TINY
    return penalties


def weighed(rows: np.ndarray, row_weight: np.ndarray | None) -> np.ndarray:
    """Rows times their weights, in place."""
    if row_weight is not None:
        rows *= row_weight[:, None].astype(rows.dtype)
    return rows


def with_intercept(A: np.ndarray) -> np.ndarray:
    """A (n×k) with a column of ones behind it."""
    return np.column_stack([A, np.ones(len(A), dtype=A.dtype)])
