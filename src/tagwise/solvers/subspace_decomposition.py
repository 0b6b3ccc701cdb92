"""X as a sum of one low-rank part per label and a sparse rest (Algorithm 1 of MSE), kept in factors throughout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import DenseFeatures, csr_matmul, dense_matmul, gram
from tagwise.kernels.scaled_rows import add_scaled_rows
from tagwise.parallel import single_threaded_blas
from tagwise.randomness import RandomState, random_generator
from tagwise.solvers.low_rank_plus_sparse import largest_residuals
from tagwise.solvers.random_projection import project_bilaterally
from tagwise.validation import check_choice, check_features, check_integer, check_labels, check_real

__all__ = ["SubspaceDecomposition", "decompose_into_subspaces", "usable_ranks"]


@dataclass(frozen=True)
class SubspaceDecomposition:
    """X ≈ ZV + S, where the columns of Z come in groups, one per label.

    Attributes
    ----------
    coefficients : CSR (n, R)
        Z; row i has entries in the groups of its labels only, so that Z_{·g}V_g is L^g.
    subspaces : array (R, p)
        V: orthonormal rows within each group.
    starts : int64 array (L + 1,)
        Group j holds the rows starts[j] to starts[j + 1] of V; it is empty for a label without rows.
    outliers : CSR (n, p)
        S.
    objective : array (rounds,)
        ‖X − ZV − S‖²_F after each round.
    status : "converged", "max_iter" or "stopped"
        "stopped" by ``on_round``.
    """

    coefficients: sp.csr_matrix
    subspaces: np.ndarray
    starts: np.ndarray
    outliers: sp.csr_matrix
    objective: np.ndarray
    status: Literal["converged", "max_iter", "stopped"]


def usable_ranks(Y: sp.csr_matrix, ranks: np.ndarray, n_features: int) -> np.ndarray:
    """The rank of each label's part (L): what is asked for, but no more than its rows and the features allow."""
    rows_of_label = np.bincount(Y.indices, minlength=Y.shape[1])
    return np.minimum(np.minimum(ranks, rows_of_label), n_features).astype(np.int64)


def decompose_into_subspaces(
    X: sp.csr_matrix | np.ndarray,
    Y: sp.csr_matrix,
    ranks: np.ndarray,
    n_outliers: int,
    *,
    decomposition: str = "brp",
    max_iter: int = 20,
    tol: float = 1e-3,
    random_state: RandomState = 0,
    n_threads: int = 1,
    on_round: Callable[[float], bool] | None = None,
) -> SubspaceDecomposition:
    r"""Split X into parts that the labels explain and a few outliers (problem 3 of MSE).

    .. math:: \min_{L, S} \Bigl\lVert X - \sum_j L^j - S \Bigr\rVert_F^2 \quad\text{s.t.}\quad
        \operatorname{rank} L^j \le r_j,\; L^j = 0 \text{ outside the rows } \Omega_j \text{ of label } j,\;
        \operatorname{card} S \le K .

    Each round takes the labels in turn, replacing L^j by a low-rank approximation of N = (X − Σ_{l≠j} L^l − S) on
    Ω_j, and then S by the K largest entries of X − Σ L^j, with their signs.

    Parameters
    ----------
    X : CSR or array (n, p)
    Y : CSR or 0/1 array (n, L)
    ranks : int array (L,)
        r_j ≥ 1; cut down to |Ω_j| and p where those are less.
    n_outliers : int
        K ≥ 0.
    decomposition : {"brp", "svd"}
        ``"svd"``: the best approximation of N, from the eigenvectors of its smaller Gram matrix. ``"brp"``: one
        bilateral random projection of N, from a Gaussian matrix in the first round and from the label's last subspace
        in later ones.
    max_iter : int
        Rounds at the most.
    tol : float
        Converged when a round lowers the objective by at most this share of it.
    random_state : int, Generator, RandomState or None
        For "brp".
    n_threads : int
        The result has the same bits for any number.
    on_round : callable(objective) → bool, optional
        Called after each round; True stops.

    Returns
    -------
    SubspaceDecomposition

    Notes
    -----
    The start is the paper's (6), L^j = D⁻¹X on Ω_j with D the number of labels of each row, which has no low rank: so
    Theorem 1, that the objective never rises, holds from the end of the first round on. It holds for "brp" too,
    although the paper's own, which draws a new Gaussian matrix every time, may rise: a projection that starts from
    the last subspace keeps at least the energy that this one had.

    Neither Σ L^j nor the residual is ever stored whole, and X is used in the form it has, dense or sparse. Memory: a
    few times Σ|Ω_j|r_j + K numbers, R·p, one dense |Ω_j|×p for the label under way (two with "svd", and Gram matrices
    of m below), and a block of residuals; :func:`tagwise.solvers.subspace_memory.decomposition_memory` counts it in
    bytes. Time a round: "brp" O(Σ_j |Ω_j|·p·r_j), "svd" beside that
    O(|Ω_j|·p·m + m³) with m = min(|Ω_j|, p); ZV costs (labels of a row)·r·p for each of its labels; S takes O(n·p).
    """
    X = check_features(X)
    Y = check_labels(Y, n_rows=X.shape[0])
    ranks = np.asarray(ranks)
    if ranks.shape != (Y.shape[1],) or ranks.dtype.kind not in "iu" or (ranks < 1).any():
        raise InvalidInputError(f"ranks must be {Y.shape[1]:,} whole numbers of at least 1, one for each label.")
    n_outliers = check_integer(n_outliers, "n_outliers", minimum=0)
    check_choice(decomposition, "decomposition", ("svd", "brp"))
    check_integer(max_iter, "max_iter", minimum=1)
    check_real(tol, "tol", minimum=0)
    parts = _Parts(X, Y, usable_ranks(Y, ranks, X.shape[1]), n_threads)
    rng = random_generator(random_state) if decomposition == "brp" else None
    values = X.reshape(-1) if isinstance(X, np.ndarray) else X.data
    rounding = np.finfo(X.dtype).eps * float(np.einsum("i,i->", values, values, dtype=np.float64))
    history: list[float] = []
    status: Literal["converged", "max_iter", "stopped"] = "max_iter"
    for _ in range(max_iter):
        for label in np.flatnonzero(parts.ranks):
            parts.improve(int(label), rng)
        objective = parts.find_outliers(n_outliers)
        history.append(objective)
        stop = on_round is not None and on_round(objective)
        # Rounding is all that is left where the labels explain everything.
        if objective <= rounding or (len(history) > 1 and history[-2] - objective <= tol * history[-2]):
            status = "converged"
            break
        if stop:
            status = "stopped"
            break
    return SubspaceDecomposition(parts.Z, parts.V, parts.starts, parts.S, np.array(history), status)


class _Parts:
    """The state of the alternation: Z, V and S, and how far each row has left the start."""

    def __init__(self, X: sp.csr_matrix | np.ndarray, Y: sp.csr_matrix, ranks: np.ndarray, n_threads: int) -> None:
        self.X = X
        self.ranks, self.n_threads = ranks, n_threads
        self.starts = np.concatenate([[0], np.cumsum(ranks)]).astype(np.int64)
        n_rows, n_features = X.shape
        widths = ranks[Y.indices]
        # Where in Z.data the coefficients of each stored pair (row, label) begin.
        self.places = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
        columns = np.arange(self.places[-1])
        columns -= np.repeat(self.places[:-1] - self.starts[Y.indices], widths)
        self.Z = sp.csr_matrix(
            (np.zeros(len(columns), dtype=X.dtype), columns, self.places[Y.indptr]),
            shape=(n_rows, int(self.starts[-1])),
        )
        pairs = sp.csr_matrix((np.arange(Y.nnz), Y.indices, Y.indptr), shape=Y.shape).tocsc()
        self.rows, self.pairs, self.borders = pairs.indices, pairs.data, pairs.indptr
        self.V = np.zeros((int(self.starts[-1]), n_features), dtype=X.dtype)
        self.S = sp.csr_matrix(X.shape, dtype=X.dtype)
        self.seen = np.zeros(Y.shape[1], dtype=bool)
        n_labels = np.diff(Y.indptr)
        self.share = np.where(n_labels > 0, 1 / np.maximum(n_labels, 1), 0)
        # The part of a row that labels not yet visited hold back in the first round.
        self.held_back = n_labels * self.share

    def improve(self, label: int, rng: np.random.Generator | None) -> None:
        """Replace the part of one label by the low-rank approximation of what the others leave to it."""
        at = slice(self.borders[label], self.borders[label + 1])
        rows, first, rank = self.rows[at], self.starts[label], int(self.ranks[label])
        group = slice(first, first + rank)
        entries = self.places[self.pairs[at]][:, None] + np.arange(rank)
        self.Z.data[entries] = 0
        if not self.seen[label]:
            self.held_back[rows] -= self.share[rows]
        N = self._remainder(rows)
        if rng is None:
            coefficients, subspace = _best_projection(N, rank, self.n_threads)
        else:
            start = self.V[group].T if self.seen[label] else rng.standard_normal((N.shape[1], rank)).astype(N.dtype)
            coefficients, subspace = project_bilaterally(DenseFeatures(N, n_threads=self.n_threads), start)
        self.seen[label] = True
        self.V[group] = subspace.T
        self.Z.data[entries] = coefficients

    def find_outliers(self, n_outliers: int) -> float:
        """S from the largest residuals; returns the sum of squares of the others."""
        self.S, objective = largest_residuals(self.X, self.Z, self.V.T, n_outliers)
        return objective

    def _remainder(self, rows: np.ndarray) -> np.ndarray:
        """X − ZV − S on some rows, dense, less what the start still assigns to unvisited labels."""
        N = csr_matmul(self.Z[rows], self.V, n_threads=self.n_threads)
        np.negative(N, out=N)
        add_scaled_rows(N, self.X, rows, 1 - self.held_back[rows], n_threads=self.n_threads)
        if self.S.nnz:
            add_scaled_rows(N, self.S, rows, np.full(len(rows), -1.0), n_threads=self.n_threads)
        return N


def _best_projection(N: np.ndarray, rank: int, n_threads: int) -> tuple[np.ndarray, np.ndarray]:
    """The rank-r truncated singular value decomposition of N (m×p): coefficients (m×r) and orthonormal basis (p×r)."""
    m, p = N.shape
    with single_threaded_blas():
        if m <= p:
            _, left = scipy.linalg.eigh(
                gram(np.ascontiguousarray(N.T), n_threads=n_threads), subset_by_index=(m - rank, m - 1)
            )
            basis = np.linalg.qr(N.T.astype(np.float64) @ left[:, ::-1])[0]
        else:
            _, right = scipy.linalg.eigh(gram(N, n_threads=n_threads), subset_by_index=(p - rank, p - 1))
            basis = right[:, ::-1]
    basis = np.ascontiguousarray(basis.astype(N.dtype))
    return dense_matmul(N, basis, n_threads=n_threads), basis
