"""The sparse part of low rank plus sparse: least squares on the residual over a few of each label's own features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.products import csr_matmul
from tagwise.kernels.sampled import sampled_product
from tagwise.kernels.supports import IndexedCSR, Supports, solve_known_supports, solve_supports
from tagwise.parallel import run_chunks, single_threaded_blas, work_chunks
from tagwise.solvers.support_features import SupportFeatures
from tagwise.validation import (
    canonical_csr,
    check_integer,
    check_labels,
    check_observed,
    check_real,
)

__all__ = ["SupportRidge", "SupportSolution", "support_least_squares"]

# Following a column and its rows' chains costs so many steps of a walk along a row, which is read in order.
_COLUMN_STEP = 4
# counts, gains, first and last label → features and values of their supports
_Solver = Callable[[np.ndarray, np.ndarray, int, int], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class SupportSolution:
    """What :meth:`SupportRidge.solve` found.

    Attributes
    ----------
    weights : CSR (d, L) in the type of X, sorted indices
        S. The column of a label without positives is empty.
    gain : array (L,)
        By how much each label's objective is below its value at S = 0: ½bᵀs.
    """

    weights: sp.csr_matrix
    gain: np.ndarray


class SupportRidge:
    r"""The residual of a low-rank model fitted by a sparse matrix S: one exact small ridge problem per label.

    With scores :math:`x^\top(UV^\top + S) + a`, targets 0/1 and :math:`G = X^\top X`, label j minimises

    .. math:: \tfrac12 \sum_i c_{ij} (y_{ij} - x_i^\top U v_j - a_j - x_i^\top s_j)^2
        + \tfrac\lambda2 \lVert s_j\rVert^2,

    c = c_j at the positives P and 1 elsewhere, over the support F that is chosen so: of the features that occur in the
    rows of P, the ``support`` with the largest :math:`b_f^2/(A_{ff} + \lambda)`, where

    .. math:: b &= X^\top y_j - (GU)v_j - a_j X^\top 1 + (c_j - 1)\, X_P^\top(1 - X_P U v_j - a_j), \\
              A &= G + (c_j - 1)\, X_P^\top X_P

    (twice the fall of the objective for that feature alone); equal gains go to the feature that occurs in fewer rows,
    then to the lower id. Then :math:`(A_{FF} + \lambda I)\, s_F = b_F` by Cholesky in float64. All negatives are inside
    G, so none is sampled, and b is only ever formed on a label's candidates.

    With a mask, sums run over the known rows of each label: P are the known positives, and b and A are added up from
    the rows, as no G serves two labels.

    Parameters
    ----------
    X : CSR or array (n, d), or SupportFeatures
        Explicit zeros do not count as occurrences. Several fits can share the features made ready once.
    Y : CSR or 0/1 array (n, L)
    observed : CSR or array (n, L), optional
        The known pairs; what Y says outside is ignored. All are known by default.
    reg : float
        λ > 0.
    support : int
        The most features a label may use.
    positive_weight : array (L,), optional
        c > 0 per label; 1 by default.
    memory_limit : float
        Bytes for what is kept of G and for the workspace of one thread; each further thread adds its own.
    n_threads : int
        Labels are spread over this many threads; the result has the same bits for any number of them.

    Notes
    -----
    G is kept, dense, for the t most frequent features: those whose entries cost more to add up again than to fetch, and
    no more of them than ``memory_limit`` allows. The entries of rarer features are added up when a label chooses them,
    in the smaller of two times: Σ w_f over these features, w_f = Σ_{i: x_if ≠ 0} (entries of row i that are more
    frequent than f), along the rows; or about 4 Σ (occurrences) over all its features, along the columns, which wins
    where rows are long. So any limit will do that holds a workspace; a small one costs time only.

    With m = ``support``: time Σ w_f over the kept features once; per solve O(nnz(X)·k) for GU and, per label,
    O(candidates·k + m²) + m³/3 + the smaller time above. With a mask: O(|Ω|·k), and per known pair
    the entries of its row and the square of how many of them are in the support. Memory: t² numbers of X's type,
    16·m² + 48·d + 8·n bytes a thread and 24 for each entry of a label's rare features, two copies of X, 2·d·k + 32·n
    numbers of the type of U, and S twice; with a mask 3·|Ω| numbers in place of t².
    """

    def __init__(
        self,
        X: sp.csr_matrix | np.ndarray | SupportFeatures,
        Y: sp.csr_matrix,
        *,
        observed: sp.csr_matrix | None = None,
        reg: float = 1.0,
        support: int = 200,
        positive_weight: np.ndarray | None = None,
        memory_limit: float = 2**31,
        n_threads: int = 1,
    ) -> None:
        self.reg = check_real(reg, "reg", minimum=0, open_minimum=True)
        self.support = check_integer(support, "support", minimum=1)
        self.n_threads = n_threads
        if not isinstance(X, SupportFeatures):
            X = SupportFeatures.build(
                X,
                support=support,
                with_gram=observed is None,
                memory_limit=memory_limit,
                n_threads=n_threads,
            )
        labels = check_labels(Y, n_rows=X.shape[0])
        self.shape = (X.shape[1], labels.shape[1])
        weights = _check_per_label(positive_weight, "positive_weight", labels.shape[1], default=1.0)
        if not (weights > 0).all():
            raise InvalidInputError(f"positive_weight must be above 0 for every label; found {weights.min():g}.")
        self._order = X.order
        self._systems: _AllRows | _KnownRows
        if observed is None:
            self._systems = _AllRows(X, labels, weights, n_threads)
        else:
            self._systems = _KnownRows(X, labels, _mask(observed, labels.shape), weights, n_threads)

    def solve(
        self,
        low_rank: tuple[np.ndarray, np.ndarray] | None = None,
        intercept: np.ndarray | None = None,
        *,
        pattern: sp.csr_matrix | None = None,
    ) -> SupportSolution:
        """S for the residual of a low-rank model.

        Parameters
        ----------
        low_rank : (U (d, k), V (L, k)), optional
            The part that is already explained; none by default.
        intercept : array (L,), optional
            a; 0 by default.
        pattern : CSR (d, L), optional
            The S of an earlier solve, whose supports are used again; then the objective at the new S is never above
            that at the old one.
        """
        U, V = _check_low_rank(low_rank, *self.shape)
        shift = _check_per_label(intercept, "intercept", self.shape[1], default=0.0)
        counts, gains = np.zeros(self.shape[1], dtype=np.int64), np.zeros(self.shape[1])
        solve = self._systems.solver(
            np.ascontiguousarray(U[self._order]), V, shift, self.reg, self.support, self._supports(pattern)
        )
        try:
            with single_threaded_blas():
                found = run_chunks(
                    lambda start, stop: solve(counts, gains, start, stop),
                    self._systems.label_chunks(self.support),
                    self.n_threads,
                )
        except np.linalg.LinAlgError:
            raise InvalidInputError(
                f"reg={self.reg:g} is too small beside the features: a label's system is not positive definite in "
                "floating point; raise reg, scale the rows of X to unit length, or pass X in float64."
            ) from None
        chosen = self._order[np.concatenate([part for part, _ in found])]
        values = np.concatenate([part for _, part in found])
        indptr = np.concatenate([[0], np.cumsum(counts)])
        columns = sp.csc_matrix((values, chosen, indptr), shape=self.shape)
        return SupportSolution(weights=canonical_csr(sp.csr_matrix(columns)), gain=0.5 * gains)

    def _supports(self, pattern: sp.csr_matrix | None) -> Supports:
        """The supports of a pattern in the order of the frequencies."""
        if pattern is None:
            return Supports(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        if pattern.shape != self.shape:
            raise InvalidInputError(f"pattern has shape {pattern.shape}; the S of an earlier solve has {self.shape}.")
        # Rows in the order of the frequencies: the columns of the transpose then list their features rising.
        by_label = sp.csr_matrix(sp.csr_matrix(pattern)[self._order].T)
        by_label.sort_indices()
        return Supports(by_label.indptr.astype(np.int64), by_label.indices.astype(np.int64))


def _mask(observed: Any, shape: tuple[int, int]) -> sp.csr_matrix:
    # Labels without a known row simply stay without weights.
    return check_observed(observed, shape=shape, may_be_empty=True)


class _AllRows:
    """Systems of labels of which every row is known: all of them inside one XᵀX."""

    def __init__(self, X: SupportFeatures, labels: sp.csr_matrix, weights: np.ndarray, n_threads: int) -> None:
        self.X, self.weights, self.n_threads = X, weights, n_threads
        self.positives = canonical_csr(labels.T)

    def solver(
        self, U: np.ndarray, V: np.ndarray, shift: np.ndarray, reg: float, support: int, given: Supports
    ) -> _Solver:
        X, positives = self.X, self.positives
        gram_factors = X.gram_times(U, n_threads=self.n_threads)

        def solve(counts: np.ndarray, gains: np.ndarray, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
            return solve_supports(
                X.rows, X.walks, X.block, X.diagonal, positives.indptr, positives.indices, gram_factors, U, V, shift,
                X.column_sums, self.weights, reg, support, given, _COLUMN_STEP, counts, gains, start, stop,
            )  # fmt: skip

        return solve

    def label_chunks(self, support: int) -> list[tuple[int, int]]:
        """Labels in chunks of about equal work, guessed from the sizes of their systems."""
        candidates = _stored_entries(self.X.rows, self.positives)
        work = candidates + np.minimum(candidates, support) ** 2
        return work_chunks(np.concatenate([[0], np.cumsum(work)]))


class _KnownRows:
    """Systems of labels with known rows of their own."""

    def __init__(
        self, X: SupportFeatures, labels: sp.csr_matrix, observed: sp.csr_matrix, weights: np.ndarray, n_threads: int
    ) -> None:
        self.X, self.n_threads = X, n_threads
        known = canonical_csr(observed.T).astype(X.rows.data.dtype)
        self.positives = canonical_csr(labels.multiply(observed).T).astype(known.dtype)
        # 1 on the mask, 2 on the positives in it: a sum of ones never loses an entry to scipy's pruning of zeros.
        self.targets = sp.csr_matrix(known + self.positives).data - 1
        of_positives = np.repeat(weights, np.diff(known.indptr)).astype(known.dtype)
        known.data = np.where(self.targets > 0, of_positives, known.dtype.type(1))
        self.weights = known

    def solver(
        self, U: np.ndarray, V: np.ndarray, shift: np.ndarray, reg: float, support: int, given: Supports
    ) -> _Solver:
        rows = self.X.rows
        embedded = csr_matmul(self.X.matrix(), U, n_threads=self.n_threads)
        residuals = self.targets - sampled_product(self.weights, V, embedded, n_threads=self.n_threads)
        residuals -= np.repeat(shift, np.diff(self.weights.indptr)).astype(residuals.dtype)

        def solve(counts: np.ndarray, gains: np.ndarray, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
            return solve_known_supports(
                rows, self.weights.indptr, self.weights.indices, residuals, self.weights.data, self.positives.indptr,
                self.positives.indices, reg, support, given, counts, gains, start, stop,
            )  # fmt: skip

        return solve

    def label_chunks(self, support: int) -> list[tuple[int, int]]:
        """Labels in chunks of about equal work: the entries of their known rows, and their systems."""
        candidates = _stored_entries(self.X.rows, self.positives)
        work = _stored_entries(self.X.rows, self.weights) + np.minimum(candidates, support) ** 2
        return work_chunks(np.concatenate([[0], np.cumsum(work)]))


def support_least_squares(
    X: sp.csr_matrix | np.ndarray,
    Y: sp.csr_matrix,
    *,
    observed: sp.csr_matrix | None = None,
    low_rank: tuple[np.ndarray, np.ndarray] | None = None,
    reg: float = 1.0,
    support: int = 200,
    positive_weight: np.ndarray | None = None,
    intercept: np.ndarray | None = None,
    memory_limit: float = 2**31,
    n_threads: int = 1,
) -> sp.csr_matrix:
    """S (d×L) of :class:`SupportRidge`, for one low-rank model."""
    ridge = SupportRidge(
        X,
        Y,
        observed=observed,
        reg=reg,
        support=support,
        positive_weight=positive_weight,
        memory_limit=memory_limit,
        n_threads=n_threads,
    )
    return ridge.solve(low_rank, intercept).weights


def _check_low_rank(
    low_rank: tuple[np.ndarray, np.ndarray] | None, n_features: int, n_labels: int
) -> tuple[np.ndarray, np.ndarray]:
    """U and V as C-ordered arrays of one floating type; of width 0 where there is no low rank."""
    if low_rank is None:
        return np.empty((n_features, 0), dtype=np.float32), np.empty((n_labels, 0), dtype=np.float32)
    try:
        U, V = (np.asarray(factor) for factor in low_rank)
    except (TypeError, ValueError):
        raise InvalidInputError("low_rank must be a pair of arrays, U (d×k) and V (L×k).") from None
    expected = f"U {n_features:,}×k and V {n_labels:,}×k"
    if U.ndim != 2 or V.ndim != 2 or U.shape[1] != V.shape[1] or (len(U), len(V)) != (n_features, n_labels):
        raise InvalidInputError(f"low_rank must be a pair of arrays {expected}; found shapes {U.shape} and {V.shape}.")
    if U.dtype.kind not in "fiub" or V.dtype.kind not in "fiub":
        raise InvalidInputError(f"low_rank must hold real numbers; found types {U.dtype} and {V.dtype}.")
    single = U.dtype == np.float32 and V.dtype == np.float32
    U, V = (np.ascontiguousarray(factor, dtype=np.float32 if single else np.float64) for factor in (U, V))
    if not (np.isfinite(U).all() and np.isfinite(V).all()):
        raise InvalidInputError("low_rank contains NaN or infinity.")
    return U, V


def _check_per_label(values: Any, name: str, n_labels: int, *, default: float) -> np.ndarray:
    if values is None:
        return np.full(n_labels, default)
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name} must be an array of one number per label; found {values!r:.60}.") from None
    if array.shape != (n_labels,):
        raise InvalidInputError(f"{name} has shape {array.shape}; one number per label ({n_labels:,}) is expected.")
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} contains NaN or infinity.")
    return np.ascontiguousarray(array)


def _stored_entries(rows: IndexedCSR, rows_of_labels: sp.csr_matrix) -> np.ndarray:
    """For each label the stored entries of its rows in all (L,); ``rows_of_labels`` is L×n."""
    stored = np.concatenate([[0], np.cumsum(np.diff(rows.indptr)[rows_of_labels.indices], dtype=np.int64)])
    return np.diff(stored[rows_of_labels.indptr])
