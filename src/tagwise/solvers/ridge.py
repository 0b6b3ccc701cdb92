"""Ridge regression of many columns on one matrix in closed form: of full rank, and of the best rank k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.feature_blocks import FeatureBlocks
from tagwise.kernels import csr_matmul, dense_matmul
from tagwise.kernels.products import as_dense
from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas
from tagwise.solvers.gram_system import cholesky_factor
from tagwise.validation import Features, all_finite, require_memory

__all__ = ["RidgeFactor", "RidgeSolution", "closed_form_memory", "reduced_rank_ridge"]

# Numbers of a dense stripe of the matrix: 32 MB of float64.
_STRIPE = 1 << 22
# Columns of a dense matrix whose products with all others a thread makes at a time.
_COLUMNS = 512


@dataclass(frozen=True)
class RidgeSolution:
    """Coefficients Z (d×B), intercepts b (B), and each column's ½‖y − Xz − b‖² + ½λ‖z‖²; float64."""

    coefficients: np.ndarray
    intercept: np.ndarray
    value: np.ndarray


class RidgeFactor:
    r"""Solves min ½‖Y − XZ − 1bᵀ‖² + ½λ‖Z‖² for any number of sparse columns Y, exactly.

    Where rows have weights v, all of X, Y and 1 are taken times √v first. With centred rows X_c (not stored; only where
    there is an intercept) either of

    .. math:: Z = (X_c^\top X_c + \lambda I)^{-1} X_c^\top Y = X_c^\top (X_c X_c^\top + \lambda I)^{-1} (Y - \bar Y)

    is solved, whichever system is smaller; b = ȳ − Zᵀμ.

    Parameters
    ----------
    X : CSR or array (n, d)
    reg : float
        λ > 0.
    fit_intercept : bool
    row_weight : array (n,), optional
        v > 0, what the squared error of each row counts.
    n_threads : int
        For the Gram matrix; the factorisation itself is one BLAS thread's, so that its rounding is always the same.

    Notes
    -----
    In float64 throughout. With m = min(n, d): O(nnz(X)·m + m³/3) time to build, O(m²) per column to solve; memory 8·m²
    bytes, twice that while it is built (and a copy of a dense X).
    """

    def __init__(
        self,
        X: Features,
        reg: float,
        *,
        fit_intercept: bool,
        row_weight: np.ndarray | None = None,
        n_threads: int = 1,
    ) -> None:
        n_rows, n_features = X.shape
        self.blocks: list[Any] = list(X) if isinstance(X, FeatureBlocks) else [X]
        self.weighted = row_weight is not None
        self.ones = np.ones(n_rows) if row_weight is None else np.sqrt(row_weight)
        if self.weighted:
            self.blocks = [sp.diags(self.ones) @ block.astype(np.float64) for block in self.blocks]
        self.blocks = [block if isinstance(block, np.ndarray) else sp.csr_matrix(block) for block in self.blocks]
        self.total = float(self.ones @ self.ones)
        self.dual = n_rows < n_features
        self.mean = np.zeros(n_features)
        if fit_intercept:
            self.mean = np.concatenate([np.asarray(block.T @ self.ones) for block in self.blocks]) / self.total
        self.fit_intercept = fit_intercept
        if self.dual:
            system = np.zeros((n_rows, n_rows))
            for block in self.blocks:
                system += _gram_of_rows(block, n_threads)
        else:
            system = _gram_of_features(self.blocks, n_threads)
        if fit_intercept and self.dual:
            means = system @ self.ones / self.total
            means -= 0.5 * (means @ self.ones) / self.total * self.ones
            system -= self.ones[:, None] * means[None, :]
            system -= means[:, None] * self.ones[None, :]
        elif fit_intercept:
            system -= self.total * self.mean[:, None] * self.mean[None, :]
        system[np.diag_indices(len(system))] += reg
        advice = 'raise reg, or use solver="cg"'
        self.factor = cholesky_factor(
            system, f"reg={reg:g} is too small beside the features to solve for directly; {advice}."
        )

    def solve(self, columns: sp.csr_matrix) -> RidgeSolution:
        """For the columns of Y given as rows: CSR (B, n)."""
        columns = columns.astype(np.float64)
        if self.weighted:
            columns = sp.csr_matrix(columns @ sp.diags(self.ones))
        squares = np.asarray(columns.multiply(columns).sum(axis=1)).ravel()
        means = columns @ self.ones / self.total if self.fit_intercept else np.zeros(columns.shape[0])
        # Row j is y_jᵀX; centring the rows of X or the columns of Y comes to the same here.
        seen = np.concatenate([as_dense(columns @ block) for block in self.blocks], axis=1)
        cross = (seen - self.total * means[:, None] * self.mean[None, :]).T
        with single_threaded_blas():
            if self.dual:
                centred = columns.toarray().T - np.outer(self.ones, means)
                weights = scipy.linalg.cho_solve(self.factor, centred, overwrite_b=True, check_finite=False)
                # Centring X here would subtract μ·1ᵀα, and 1ᵀα = 0.
                Z = np.concatenate([np.asarray(block.T @ weights) for block in self.blocks])
            else:
                Z = scipy.linalg.cho_solve(self.factor, cross, check_finite=False)
            intercept = means - self.mean @ Z
        # At the minimum, ½‖residual‖² + ½λ‖z‖² = ½‖y − ȳ‖² − ½⟨X_cᵀy, z⟩.
        value = 0.5 * (squares - self.total * means**2) - 0.5 * np.einsum("ij,ij->j", cross, Z)
        return RidgeSolution(Z, intercept, value)


def _gram_of_features(blocks: list[Any], n_threads: int) -> np.ndarray:
    """XᵀX (d×d) in float64 of blocks of columns: one, or a sparse and a dense one."""
    if len(blocks) == 1:
        return _gram_of_columns(blocks[0], n_threads)
    sparse, dense = blocks
    width = sparse.shape[1]
    out = np.empty((width + dense.shape[1],) * 2)
    out[:width, :width] = _gram_of_columns(sparse, n_threads)
    out[width:, width:] = _gram_of_columns(dense, n_threads)
    out[:width, width:] = csr_matmul(sp.csr_matrix(sparse.T), dense.astype(np.float64), n_threads=n_threads)
    out[width:, :width] = out[:width, width:].T
    return out


def _gram_of_columns(matrix: sp.spmatrix | np.ndarray, n_threads: int) -> np.ndarray:
    """MᵀM in float64 for M (m×p)."""
    if not isinstance(matrix, np.ndarray):
        return _gram_of_rows(matrix.T, n_threads)
    M = np.ascontiguousarray(matrix, dtype=np.float64)
    out = np.empty((M.shape[1],) * 2)

    def columns(start: int, stop: int) -> None:
        np.matmul(M[:, start:stop].T, M, out=out[start:stop])

    # BLAS reads a transpose as it is; a product of all columns at once is symmetric, which takes half the time.
    with single_threaded_blas():
        run_chunks(columns, even_chunks(len(out), _COLUMNS), n_threads)
    return out


def _gram_of_rows(rows: sp.spmatrix | np.ndarray, n_threads: int) -> np.ndarray:
    """M Mᵀ in float64 for M (m×p)."""
    if isinstance(rows, np.ndarray):
        wide = np.ascontiguousarray(rows, dtype=np.float64)
        return dense_matmul(wide, wide.T, n_threads=n_threads)
    matrix = sp.csr_matrix(rows)
    size, length = matrix.shape
    out = np.empty((size, size))
    for start, stop in even_chunks(size, max(1, min(256, _STRIPE // length))):
        stripe = np.ascontiguousarray(matrix[start:stop].toarray().T, dtype=np.float64)
        out[:, start:stop] = csr_matmul(matrix, stripe, n_threads=n_threads)
    return out


def closed_form_memory(n_rows: int, n_features: int, n_labels: int) -> int:
    """Bytes of the dense matrices of :func:`reduced_rank_ridge`."""
    side = min(n_rows, n_features)
    # The Gram matrix, its eigenvectors and LAPACK's copy; XᵀY and M; the smaller Gram matrix of M.
    return int(8 * (3 * side**2 + 2 * side * n_labels + min(side, n_labels) ** 2))


def reduced_rank_ridge(
    X: Features, Y: sp.csr_matrix, rank: int, reg: float, *, fit_intercept: bool, memory_limit: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    r"""Minimise ½‖Y − XZ − 1bᵀ‖² + ½λ‖Z‖²_F over Z of rank at most k, exactly.

    With X = UΣVᵀ (columns centred where there is an intercept), the minimiser is

    .. math:: Z = V(\Sigma^2 + \lambda)^{-1/2} M_k, \qquad M = (\Sigma^2 + \lambda)^{-1/2} V^\top X^\top Y,

    M_k the best rank-k approximation of M. For λ = 0 this is Claim 1 of LEML, and CPLST's solution.

    At λ = 0, directions of X with singular values below rounding are left out (the pseudo-inverse). A problem whose
    dense matrices need more than ``memory_limit`` bytes is refused. Returns W (d×k), H (L×k) with orthonormal columns,
    Z = WHᵀ, b (L) and the value of the objective, all float64.

    Notes
    -----
    Time O(m³ + mL·min(m, L)) and memory O(m² + mL) with m = min(n, d): for problems where the smaller side of X has
    at most some thousands.
    """
    n_rows, n_features = X.shape
    n_labels = Y.shape[1]
    require_memory(
        closed_form_memory(n_rows, n_features, n_labels),
        memory_limit,
        f"the closed form for {n_rows:,} rows, {n_features:,} features and {n_labels:,} labels",
        "use the iterative solver with reg above 0, or raise memory_limit",
    )
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    mean_x = np.asarray(X.mean(axis=0)).ravel() * fit_intercept
    mean_y = np.asarray(Y.mean(axis=0)).ravel() * fit_intercept
    with single_threaded_blas():
        if n_features <= n_rows:
            gram = _gram_of_rows(X.T, 1)
            gram -= n_rows * mean_x[:, None] * mean_x[None, :]
            cross = as_dense(X.T @ Y) - n_rows * np.outer(mean_x, mean_y)
            values, V = _positive_eigenpairs(gram)
            root = 1 / np.sqrt(values + reg)
            M = root[:, None] * (V.T @ cross)
        else:
            # The n×n twin: with XXᵀ = UΣ²Uᵀ, V = XᵀUΣ⁻¹ is applied at the end and never stored.
            to_mean = as_dense(X @ mean_x[:, None]).ravel()
            gram = _gram_of_rows(X, 1)
            gram -= to_mean[:, None] + to_mean[None, :] - mean_x @ mean_x
            values, U = _positive_eigenpairs(gram)
            root = 1 / np.sqrt(values + reg)
            M = (root * np.sqrt(values))[:, None] * (as_dense(Y.T @ U).T - np.outer(U.sum(axis=0), mean_y))
        H = _top_right_singular_vectors(M, rank)
        inner = root[:, None] * (M @ H)
        if n_features <= n_rows:
            W = V @ inner
        else:
            weights = U @ (inner / np.sqrt(values)[:, None])
            W = as_dense(X.T @ weights) - np.outer(mean_x, weights.sum(axis=0))
        b = mean_y - H @ (W.T @ mean_x)
        return W, H, b, _objective(X, Y, W, H, b, reg)


def _objective(X: Features, Y: sp.csr_matrix, W: np.ndarray, H: np.ndarray, b: np.ndarray, reg: float) -> float:
    """½‖Y − XWHᵀ − 1bᵀ‖² + ½λ‖W‖² without n×L: as H is orthonormal, ‖XWHᵀ‖ = ‖XW‖ and ‖WHᵀ‖ = ‖W‖."""
    A = as_dense(X @ W)
    against_labels = float(np.sum(A * as_dense(Y @ H))) + float(np.asarray(Y.sum(axis=0)).ravel() @ b)
    squared_scores = float(np.sum(A**2)) + 2 * float(A.sum(axis=0) @ (H.T @ b)) + len(A) * float(b @ b)
    loss = 0.5 * (Y.nnz - 2 * against_labels + squared_scores)
    return loss + 0.5 * reg * float(np.sum(W**2))


def _positive_eigenpairs(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not all_finite(gram):
        raise InvalidInputError("X: products of its numbers overflow; scale X down, or set normalize=True.")
    values, vectors = scipy.linalg.eigh(gram, overwrite_a=True)
    kept = values > len(values) * np.finfo(np.float64).eps * max(values[-1], 0)
    return values[kept], vectors[:, kept]


def _top_right_singular_vectors(M: np.ndarray, rank: int) -> np.ndarray:
    """The first ``rank`` right singular vectors of M (m×L), as L×rank, through the smaller Gram matrix."""
    rows, columns = M.shape
    if columns <= rows:
        return scipy.linalg.eigh(M.T @ M, subset_by_index=(columns - min(rank, columns), columns - 1))[1][:, ::-1]
    if rows == 0:
        return np.zeros((columns, 0), dtype=M.dtype)
    kept = min(rank, rows)
    _, left = scipy.linalg.eigh(M @ M.T, subset_by_index=(rows - kept, rows - 1))
    # M's rows may span fewer than ``rank`` dimensions; an orthonormal basis keeps H well defined all the same.
    basis = np.linalg.qr(M.T @ left[:, ::-1])[0]
    return np.ascontiguousarray(basis)
