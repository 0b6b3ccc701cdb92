"""A matrix as low rank plus sparse (equation 3 of REML).

    min ‖Y − UVᵀ − S‖²_F   subject to   rank(UVᵀ) ≤ k,  card(S) ≤ c,

by alternation: UVᵀ from a truncated singular value decomposition of Y − S, then S from the c largest of |Y − UVᵀ|.
Neither step can raise the objective.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import CSRWithTranspose, FeatureMatrix, feature_matrix
from tagwise.parallel import even_chunks, single_threaded_blas
from tagwise.parameters import RandomState, random_generator
from tagwise.validation import check_features, check_integer, check_real

__all__ = ["LowRankPlusSparse", "largest_residuals", "low_rank_plus_sparse"]

# Random directions beside the k wanted, as in every randomised singular value decomposition.
_OVERSAMPLING = 10
# The first round starts from noise; later ones from the last round's factors, which are nearly right already.
_FIRST_POWER_ROUNDS, _POWER_ROUNDS = 5, 2
# Residuals made at a time: 8 MB of float64.
_BLOCK_RESIDUALS = 1 << 20


@dataclass(frozen=True)
class LowRankPlusSparse:
    """Y ≈ UVᵀ + S.

    Attributes
    ----------
    U : array (n, k)
        Left singular vectors of Y − S times its singular values, largest first.
    V : array (L, k)
        Right singular vectors: orthonormal columns.
    S : CSR (n, L)
        At most ``cardinality`` entries, none of them 0.
    objective : array (rounds,)
        ‖Y − UVᵀ − S‖²_F after each round; never rises.
    status : "converged" or "max_iter"
    """

    U: np.ndarray
    V: np.ndarray
    S: sp.csr_matrix
    objective: np.ndarray
    status: Literal["converged", "max_iter"]


def low_rank_plus_sparse(
    Y: Any, rank: int, cardinality: int, *, max_iter: int = 50, tol: float = 1e-5, random_state: RandomState = 0
) -> LowRankPlusSparse:
    """Split a matrix into a low-rank and a sparse part.

    Parameters
    ----------
    Y : sparse matrix or array (n, L)
        float32 is worked on in float32, everything else in float64; sums are in float64.
    rank : int
        k ≥ 1; above min(n, L) it means min(n, L).
    cardinality : int
        c ≥ 0. At 0 the result is the truncated singular value decomposition.
    max_iter : int
        Maximum number of rounds.
    tol : float
        Stop when a round lowers the objective by no more than ``tol`` times ‖Y‖²_F.
    random_state : int, Generator or None
        For the randomised decomposition.

    Notes
    -----
    A round costs O(nLk) time: all n·L residuals are made, a block of rows at a time, since any of them may be among
    the c largest. Memory is O((n + L)k + c + nnz(Y)) and a block; n×L is never allocated.

    The subspace iteration starts each round from the last V and some random directions, and takes the best rank-k
    approximation within the subspace. As a power step never loses what the subspace held, the objective falls even
    where the decomposition is not exact; with k + 10 ≥ min(n, L) it is exact. The problem is not convex: the
    alternation ends at a point where neither step alone can improve.
    """
    Y = check_features(Y, name="Y")
    wanted = min(check_integer(rank, "rank", minimum=1), *Y.shape)
    check_integer(cardinality, "cardinality", minimum=0)
    check_integer(max_iter, "max_iter", minimum=1)
    check_real(tol, "tol", minimum=0)
    rng = random_generator(random_state)
    values = Y.reshape(-1) if isinstance(Y, np.ndarray) else Y.data
    total = float(np.einsum("i,i->", values, values, dtype=np.float64))
    given = feature_matrix(Y)
    S = sp.csr_matrix(Y.shape, dtype=Y.dtype)
    V = np.zeros((Y.shape[1], 0), dtype=Y.dtype)
    history: list[float] = []
    status: Literal["converged", "max_iter"] = "max_iter"
    for round_number in range(max_iter):
        U, V = _leading_part(
            given, CSRWithTranspose(S), V, wanted, rng, _POWER_ROUNDS if round_number else _FIRST_POWER_ROUNDS
        )
        S, value = largest_residuals(Y, U, V, cardinality)
        history.append(value)
        before = history[-2] if round_number else total
        if before - value <= tol * total:
            status = "converged"
            break
    return LowRankPlusSparse(U, V, S, np.array(history), status)


def largest_residuals(
    Y: sp.csr_matrix | np.ndarray, U: np.ndarray, V: np.ndarray, cardinality: int, *, block: int = _BLOCK_RESIDUALS
) -> tuple[sp.csr_matrix, float]:
    """The ``cardinality`` largest entries of |Y − UVᵀ| with their signs, and the sum of squares of all others.

    Exact; equal ones in row-major order, and zeros never. Rows are streamed in blocks of about ``block`` residuals:
    time O(nLk), memory O(cardinality + block).
    """
    n_rows, n_columns = Y.shape
    found = _Largest(cardinality, np.result_type(U, V))
    total = 0.0
    with single_threaded_blas():
        for start, stop in even_chunks(n_rows, max(1, block // n_columns)):
            residual = U[start:stop] @ V.T
            rows = Y[start:stop]
            np.subtract(rows if isinstance(rows, np.ndarray) else rows.toarray(), residual, out=residual)
            flat = residual.reshape(-1)
            total += float(np.einsum("i,i->", flat, flat, dtype=np.float64))
            found.offer(flat, start * n_columns)
    positions, values = found.result()
    index = np.int32 if max(n_columns, len(positions)) <= np.iinfo(np.int32).max else np.int64
    indptr = np.searchsorted(positions, np.arange(n_rows + 1, dtype=np.int64) * n_columns).astype(index)
    S = sp.csr_matrix((values, (positions % n_columns).astype(index), indptr), shape=(n_rows, n_columns))
    return S, max(0.0, total - float(np.einsum("i,i->", values, values, dtype=np.float64)))


class _Largest:
    """Keeps the largest of a stream of numbers by absolute value, the earlier of equal ones."""

    def __init__(self, size: int, dtype: np.dtype) -> None:
        self.size = size
        self.positions = np.empty(0, dtype=np.int64)
        self.values = np.empty(0, dtype=dtype)
        self.waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self.n_waiting = 0
        # Only what is above can still enter; an equal one would come later than those that are kept.
        self.least = 0.0

    def offer(self, values: np.ndarray, first_position: int) -> None:
        if self.size == 0:
            return
        entering = np.flatnonzero(np.abs(values) > self.least)
        self.waiting.append((entering + first_position, values[entering]))
        self.n_waiting += len(entering)
        # Merging only once as much waits as is kept makes the cost of all merges O(1) per number.
        if self.n_waiting >= self.size:
            self._merge()

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions in rising order, and their values."""
        self._merge()
        return self.positions, self.values

    def _merge(self) -> None:
        positions = np.concatenate([self.positions, *(position for position, _ in self.waiting)])
        values = np.concatenate([self.values, *(value for _, value in self.waiting)])
        self.waiting, self.n_waiting = [], 0
        if len(values) > self.size:
            sizes = np.abs(values)
            border = np.partition(sizes, len(sizes) - self.size)[len(sizes) - self.size]
            kept = sizes > border
            # Positions rise throughout, so the first of those equal to the border are the earliest.
            ties = np.flatnonzero(sizes == border)[: self.size - np.count_nonzero(kept)]
            kept[ties] = True
            positions, values = positions[kept], values[kept]
        self.positions, self.values = positions, values
        if len(values) == self.size:
            self.least = float(np.abs(values).min(initial=np.inf))


def _leading_part(
    Y: FeatureMatrix, S: CSRWithTranspose, V: np.ndarray, rank: int, rng: np.random.Generator, power_rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """The leading ``rank`` singular triplets of Y − S by subspace iteration from V: U scaled, V orthonormal."""
    n_columns, dtype = Y.shape[1], V.dtype
    width = min(rank + _OVERSAMPLING, *Y.shape)
    noise = rng.standard_normal((n_columns, width - V.shape[1])).astype(dtype)
    with single_threaded_blas():
        basis = _orthonormal(np.column_stack([V, noise]))
        for _ in range(power_rounds):
            # Orthonormal at both sides: small singular values would drown in rounding after two products.
            left = _orthonormal(Y.matmul(basis) - S.matmul(basis))
            basis = _orthonormal(Y.rmatmul(left) - S.rmatmul(left))
        left, values, right = np.linalg.svd(Y.matmul(basis) - S.matmul(basis), full_matrices=False)
        U = left[:, :rank] * values[:rank]
        return np.ascontiguousarray(U), np.ascontiguousarray(basis @ right[:rank].T)


def _orthonormal(columns: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.linalg.qr(columns)[0])
