"""Least squares on small supports: each column of a 0/1 matrix on a few features of its own, beside a low rank."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.products import csr_matmul
from tagwise.kernels.sampled_pairs import sampled_product
from tagwise.kernels.supports import (
    Choice,
    GramParts,
    IndexedCSR,
    KnownRows,
    LowRankScores,
    Positives,
    Space,
    Supports,
    feature_sums,
    gram_of_last,
    indexed_csr,
    solve_known_supports,
    solve_supports,
)
from tagwise.parallel import run_chunks, single_threaded_blas, work_chunks
from tagwise.validation import canonical_csr

__all__ = ["TOO_SMALL", "SupportFeatures", "SupportRidge", "SupportSolution"]

# Gathering a feature's entries of XᵀX costs up to ``support`` cache misses; walking over this many stored entries for
# each of them costs about the same. Walks below the second figure are not worth avoiding, however few the misses:
# paging the memory in would cost more.
_WALK_PER_GATHER = 4
_LEAST_WALK = 400
# What is kept takes no more than so many times the memory of X, unless that is little anyway: the last features kept
# save the least time for the most memory.
_KEPT_PER_X, _LITTLE_MEMORY = 6, 2**27
# Features of a column with less than this share of its largest gain are not worth their weights: leaving them out
# changes P@k by less than 0.1 points and saves a third of the time and most of the weights of frequent features.
LEAST_SHARE = 0.002
TOO_SMALL = (
    "reg={:g} is too small beside the features: a system of one column is not positive definite in floating point; "
    "raise reg, scale the rows of X to unit length, or pass X in float64."
)
# XU is made for so many columns at a time, so that it takes n×32 numbers rather than n×k.
_FACTOR_COLUMNS = 32
# Following a column and its rows' chains costs so many steps of a walk along a row, which is read in order.
_COLUMN_STEP = 4


@dataclass(frozen=True)
class SupportFeatures:
    """X by rising frequency of its features, both ways, with the costly part of XᵀX kept: shared by all columns.

    Attributes
    ----------
    order : int array (d,)
        Ids of the features from the rarest to the most frequent; all below is in this order.
    rows : IndexedCSR
        X, each row times the root of its weight.
    walks : int array (d,)
        w_f: stored entries at or after a feature in the rows that hold it.
    kept : int
        t: of how many of the most frequent features XᵀX is kept; 0 where it is not needed.
    triangle : array (t·(t + 1)/2,)
        Its upper triangle, row after row.
    diagonal, column_sums : arrays (d,)
        Of XᵀVX, and XᵀV1, for the rows' weights V.
    """

    order: np.ndarray
    rows: IndexedCSR
    walks: np.ndarray
    kept: int
    triangle: np.ndarray
    diagonal: np.ndarray
    column_sums: np.ndarray

    @classmethod
    def build(
        cls,
        X: sp.csr_matrix,
        *,
        support: int,
        with_gram: bool = True,
        row_weight: np.ndarray | None = None,
        memory_limit: float = 2**31,
        n_threads: int = 1,
        place: str | None = None,
    ) -> SupportFeatures:
        """Time Σ w_f over the t kept features (see :class:`SupportRidge`), memory ½t² numbers and two copies of X.

        Explicit zeros of X do not count as occurrences. ``memory_limit`` is in bytes, for what is kept of XᵀX and the
        workspace of one thread; each further thread adds its own. ``with_gram=False`` leaves XᵀX out: for columns that
        are known on rows of their own. ``row_weight`` (n) says how often each row counts. With a ``place``, processes
        of this machine share what is kept of XᵀX, and the work.
        """
        order, rows = _by_rising_frequency(X, row_weight)
        found = feature_sums(rows)
        kept = _features_kept(found.walks, support, memory_limit, rows) if with_gram else 0
        return cls(
            order=order,
            rows=rows,
            walks=found.walks,
            kept=kept,
            triangle=gram_of_last(rows, kept, walks=found.walks, n_threads=n_threads, place=place),
            diagonal=found.squares,
            column_sums=found.sums,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return len(self.rows.indptr) - 1, len(self.order)

    def matrix(self) -> sp.csr_matrix:
        """The rows with their features in this order; shares the arrays."""
        return sp.csr_matrix((self.rows.data, self.rows.indices, self.rows.indptr), shape=self.shape)

    def gram_times(self, U: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
        """XᵀXU (d×k) in the type of U, which is in this order."""
        X, transpose = self.matrix(), self._transpose()
        out = np.empty_like(U)
        for first in range(0, U.shape[1], _FACTOR_COLUMNS):
            columns = slice(first, first + _FACTOR_COLUMNS)
            embedded = csr_matmul(X, U[:, columns], n_threads=n_threads)
            out[:, columns] = csr_matmul(transpose, embedded, n_threads=n_threads)
        return out

    def transposed_times(self, A: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
        """XᵀA (d×k) in the type of A (n×k)."""
        return csr_matmul(self._transpose(), A, n_threads=n_threads)

    def _transpose(self) -> sp.csr_matrix:
        rows = self.rows
        return sp.csr_matrix(
            (rows.data[rows.feature_positions], rows.feature_rows, rows.feature_indptr), shape=self.shape[::-1]
        )


def _by_rising_frequency(X: sp.csr_matrix, row_weight: np.ndarray | None) -> tuple[np.ndarray, IndexedCSR]:
    """The ids of the features from the rarest to the most frequent, and the rows with their features in that order."""
    root = np.ones(X.shape[0]) if row_weight is None else np.sqrt(row_weight)
    if row_weight is not None:
        X = sp.csr_matrix((X.data * np.repeat(root, np.diff(X.indptr)).astype(X.dtype), X.indices, X.indptr), X.shape)
    if X.nnz and not X.data.all():
        X = X.copy()
        X.eliminate_zeros()
    order = np.argsort(np.bincount(X.indices, minlength=X.shape[1]), kind="stable")
    rank = np.empty(len(order), dtype=X.indices.dtype)
    rank[order] = np.arange(len(order), dtype=X.indices.dtype)
    return order, indexed_csr(sp.csr_matrix((X.data, rank[X.indices], X.indptr), shape=X.shape), root)


def _features_kept(walks: np.ndarray, support: int, memory_limit: float, rows: IndexedCSR) -> int:
    """t: how many of the most frequent features have their part of XᵀX stored.

    One thread's workspace is set aside, however many there are: stored and gathered entries are rounded differently,
    and t must not depend on the number of threads.
    """
    side = min(support, len(walks))
    left = memory_limit - (16 * side**2 + 48 * len(walks))
    if left < 0:
        raise InvalidInputError(
            f"memory_limit is {memory_limit:,.0f} bytes, but systems of {side:,} features need "
            f"{memory_limit - left:,.0f}; raise it, or lower support."
        )
    worth_it = int(np.count_nonzero(walks > max(_LEAST_WALK, _WALK_PER_GATHER * side)))
    left = min(left, max(_LITTLE_MEMORY, _KEPT_PER_X * (rows.data.nbytes + rows.indices.nbytes)))
    # The largest t with t·(t + 1)/2 numbers within the limit.
    return min(worth_it, (math.isqrt(1 + 8 * int(left / rows.data.itemsize)) - 1) // 2)


@dataclass(frozen=True)
class SupportSolution:
    """S (d×L, CSR in the type of X) and per column by how much its objective is below that at S = 0: ½bᵀs (L).

    A column without positives is empty.
    """

    weights: sp.csr_matrix
    gain: np.ndarray


class SupportRidge:
    r"""The residual of a low-rank model fitted by a sparse matrix S: one exact small ridge problem per column.

    With scores :math:`x^\top(UV^\top + S) + a`, targets 0/1 and :math:`G = X^\top X`, column j minimises

    .. math:: \tfrac12 \sum_i c_{ij} (y_{ij} - x_i^\top U v_j - a_j - x_i^\top s_j)^2
        + \tfrac\lambda2 \lVert s_j\rVert^2,

    c = c_j at the positives P and 1 elsewhere, over the support F that is chosen so: of the features that occur in the
    rows of P, the ``support`` with the largest :math:`b_f^2/(A_{ff} + \lambda)`, where

    .. math:: b &= X^\top y_j - (GU)v_j - a_j X^\top 1 + (c_j - 1)\, X_P^\top(1 - X_P U v_j - a_j), \\
              A &= G + (c_j - 1)\, X_P^\top X_P

    (twice the fall of the objective for that feature alone), without those that have less than 0.002 of the largest;
    equal gains go to the feature that occurs in fewer rows, then to the lower id. Then
    :math:`(A_{FF} + \lambda I)\, s_F = b_F` by Cholesky in float64. All negatives are inside G, so none is sampled, and
    b is only ever formed on a column's candidates.

    With a mask, sums run over the known rows of each column: P are the known positives, and b and A are added up from
    the rows, as no G serves two columns. Where rows have weights v, c_ij is v_i times what it is above.

    ``positives`` (n×L, ones) say where the targets are 1, inside the mask ``known`` (n×L, ones) where there is one;
    λ = ``reg`` > 0; c = ``positive_weight`` (L), 1 by default. Several fits can share X. The result has the same bits
    for any number of threads.

    Notes
    -----
    Half of G, a triangle, is kept for the t most frequent features: those whose entries cost more to add up again than
    to fetch, and no more of them than ``memory_limit`` and six times the memory of X (or 128 MB) allow. The entries of
    rarer features are added up when a column chooses them, in the smaller of two times: Σ w_f over these features,
    w_f = Σ_{i: x_if ≠ 0} (entries of row i that are more frequent than f), along the rows; or about 4 Σ (occurrences)
    over all its features, along the columns of X, which wins where rows are long. So any limit will do that holds a
    workspace; a small one costs time only.

    With m = ``support``: time Σ w_f over the kept features once; per solve O(nnz(X)·k) for GU and, per column,
    O(candidates·k + m²) + m³/3 + the smaller time above. With a mask: O(|Ω|·k), and per known entry
    the entries of its row and the square of how many of them are in the support. Memory: ½t² numbers of X's type,
    16·m² + 48·d + 8·n bytes per thread and 24 for each entry of a column's rare features, two copies of X, 2·d·k + 32·n
    numbers of the type of U, and S twice; with a mask 3·|Ω| numbers in place of ½t².
    """

    def __init__(
        self,
        X: SupportFeatures,
        positives: sp.csr_matrix,
        *,
        known: sp.csr_matrix | None = None,
        reg: float = 1.0,
        support: int = 200,
        positive_weight: np.ndarray | None = None,
        n_threads: int = 1,
    ) -> None:
        self.X, self.n_threads = X, n_threads
        self.reg, self.support = float(reg), support
        self.shape = (X.shape[1], positives.shape[1])
        self.positive_weight = (
            np.ones(self.shape[1]) if positive_weight is None else np.ascontiguousarray(positive_weight)
        )
        self._positives = canonical_csr(positives.T)
        self._known = None if known is None else self._known_entries(known)

    def _known_entries(self, known: sp.csr_matrix) -> tuple[sp.csr_matrix, np.ndarray]:
        """By column, the weights of the known entries (CSR L×n) and their targets in the same storage order."""
        weights = canonical_csr(known.T).astype(self.X.rows.data.dtype)
        # 1 on the mask, 2 on the positives in it: a sum of ones never loses an entry to scipy's pruning of zeros.
        targets = sp.csr_matrix(weights + self._positives.astype(weights.dtype)).data - 1
        of_positives = np.repeat(self.positive_weight, np.diff(weights.indptr)).astype(weights.dtype)
        weights.data = np.where(targets > 0, of_positives, weights.dtype.type(1))
        return weights, targets

    def solve(
        self,
        U: np.ndarray,
        V: np.ndarray,
        intercept: np.ndarray,
        *,
        pattern: sp.csr_matrix | None = None,
        beside: np.ndarray | None = None,
    ) -> SupportSolution:
        """S for the residual of a low-rank model.

        Parameters
        ----------
        U, V, intercept : arrays (d, k), (L, k), (L,)
            The part that is already explained: UVᵀ and a.
        pattern : CSR (d, L), optional
            The S of an earlier solve, whose supports are used again; then the objective at the new S is never above
            that at the old one.
        beside : array (n, k), optional
            Scores of features beside those of X, added to XU.
        """
        if not (np.isfinite(U).all() and np.isfinite(V).all()):
            raise InvalidInputError("low_rank contains NaN or infinity.")
        candidates = self._stored_entries(self._positives)
        most = np.minimum(candidates, min(self.support, self.shape[0]))
        choice, order = Choice(self.reg, self.support, LEAST_SHARE, self._supports(pattern, most)), self.X.order
        counts, gains = np.zeros(self.shape[1], dtype=np.int64), np.zeros(self.shape[1])
        X, threads = self.X, self.n_threads
        on = Positives(self._positives.indptr, self._positives.indices, self.positive_weight)
        U = np.ascontiguousarray(U[order])
        others = np.empty((0, U.shape[1]), dtype=U.dtype)
        if beside is not None:
            others = np.ascontiguousarray(beside * X.rows.root[:, None], dtype=U.dtype)
        if self._known is None:
            seen = X.gram_times(U, n_threads=threads)
            if beside is not None:
                seen += X.transposed_times(others, n_threads=threads)
            low_rank_scores = LowRankScores(seen, U, V, intercept, others)
            kept = GramParts(X.triangle, X.kept, X.diagonal, X.column_sums, X.walks, _COLUMN_STEP)

            def solve(space: Space, start: int, stop: int) -> int:
                return solve_supports(X.rows, kept, low_rank_scores, on, choice, space, (counts, gains), start, stop)
        else:
            weights, targets = self._known
            embedded = csr_matmul(X.matrix(), U, n_threads=threads)
            if beside is not None:
                embedded += others
            root = X.rows.root[weights.indices]
            residuals = targets * root.astype(targets.dtype) - sampled_product(weights, V, embedded, n_threads=threads)
            residuals -= (np.repeat(intercept, np.diff(weights.indptr)) * root).astype(residuals.dtype)
            known = KnownRows(weights.indptr, weights.indices, residuals, weights.data)

            def solve(space: Space, start: int, stop: int) -> int:
                return solve_known_supports(X.rows, known, on, choice, space, (counts, gains), start, stop)

        def chunk(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
            space = Space.of(X.rows, most[start:stop])
            filled = solve(space, start, stop)
            return space.features[:filled].copy(), space.values[:filled].copy()

        read = candidates if self._known is None else self._stored_entries(self._known[0])
        work = read + np.minimum(candidates, self.support) ** 2  # the rows that a column reads, and its system
        try:
            with single_threaded_blas():
                found = run_chunks(chunk, work_chunks(np.concatenate([[0], np.cumsum(work)])), threads)
        except np.linalg.LinAlgError:
            raise InvalidInputError(TOO_SMALL.format(self.reg)) from None
        chosen = order[np.concatenate([part for part, _ in found])]
        values = np.concatenate([part for _, part in found])
        columns = sp.csc_matrix((values, chosen, np.concatenate([[0], np.cumsum(counts)])), shape=self.shape)
        return SupportSolution(weights=canonical_csr(sp.csr_matrix(columns)), gain=0.5 * gains)

    def _supports(self, pattern: sp.csr_matrix | None, most: np.ndarray) -> Supports:
        """The supports of a pattern in the order of the frequencies, of at most so many features (L,) each."""
        if pattern is None:
            return Supports(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        # Rows in the order of the frequencies: the columns of the transpose then list their features rising.
        by_column = sp.csr_matrix(pattern[self.X.order].T)
        by_column.sort_indices()
        if (wrong := np.diff(by_column.indptr) > most).any():
            raise InvalidInputError(
                f"pattern: column {wrong.argmax()} has more features than its positive rows hold, or than support = "
                f"{self.support} allows; no solve has made it."
            )
        return Supports(by_column.indptr.astype(np.int64), by_column.indices.astype(np.int64))

    def _stored_entries(self, by_column: sp.csr_matrix) -> np.ndarray:
        """Per column the stored entries of X in all of its rows (L,); ``by_column`` is L×n."""
        lengths = np.diff(self.X.rows.indptr)
        stored = np.concatenate([[0], np.cumsum(lengths[by_column.indices], dtype=np.int64)])
        return np.diff(stored[by_column.indptr])
