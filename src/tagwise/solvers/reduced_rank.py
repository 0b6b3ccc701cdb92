"""Reduced-rank ridge regression in closed form: the best matrix of rank k for squared loss, all labels known."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.products import as_dense
from tagwise.parallel import single_threaded_blas
from tagwise.solvers.ridge import gram_of_rows

__all__ = ["closed_form_memory", "reduced_rank_ridge"]


def closed_form_memory(n_rows: int, n_features: int, n_labels: int) -> int:
    """Bytes that :func:`reduced_rank_ridge` needs for its dense matrices."""
    side = min(n_rows, n_features)
    # The Gram matrix, its eigenvectors and LAPACK's copy; XᵀY and M; the smaller Gram matrix of M.
    return int(8 * (3 * side**2 + 2 * side * n_labels + min(side, n_labels) ** 2))


def reduced_rank_ridge(
    X: sp.csr_matrix | np.ndarray,
    Y: sp.csr_matrix,
    rank: int,
    reg: float,
    *,
    fit_intercept: bool,
    memory_limit: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    r"""Minimise ½‖Y − XZ − 1bᵀ‖² + ½λ‖Z‖²_F over Z of rank at most k, exactly.

    With X = UΣVᵀ (columns centred where there is an intercept), the minimiser is

    .. math:: Z = V(\Sigma^2 + \lambda)^{-1/2} M_k, \qquad M = (\Sigma^2 + \lambda)^{-1/2} V^\top X^\top Y,

    M_k the best rank-k approximation of M. For λ = 0 this is Claim 1 of LEML, and CPLST's solution.

    Parameters
    ----------
    X : CSR or array (n, d)
    Y : CSR (n, L)
    rank : int
    reg : float
        λ ≥ 0. At 0, directions of X with singular values below rounding are left out (the pseudo-inverse).
    fit_intercept : bool
    memory_limit : float
        Bytes for the dense matrices; a problem that needs more is refused.

    Returns
    -------
    W (d, k), H (L, k) with orthonormal columns, Z = WHᵀ; b (L); the value of the objective. All float64.

    Notes
    -----
    Time O(m³ + mL·min(m, L)) and memory O(m² + mL) with m = min(n, d): for problems where the smaller side of X has
    some thousands at the most.
    """
    n_rows, n_features = X.shape
    n_labels = Y.shape[1]
    needed = closed_form_memory(n_rows, n_features, n_labels)
    if needed > memory_limit:
        raise InvalidInputError(
            f'solver="closed_form" would need memory of {needed / 2**30:.3g} GiB for {n_rows:,} rows, {n_features:,} '
            f"features and {n_labels:,} labels, above memory_limit ({memory_limit / 2**30:.3g} GiB); use the "
            "alternating solver."
        )
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    mean_x = np.asarray(X.mean(axis=0)).ravel() * fit_intercept
    mean_y = np.asarray(Y.mean(axis=0)).ravel() * fit_intercept
    with single_threaded_blas():
        if n_features <= n_rows:
            gram = gram_of_rows(X.T, 1)
            gram -= n_rows * mean_x[:, None] * mean_x[None, :]
            cross = as_dense(X.T @ Y) - n_rows * np.outer(mean_x, mean_y)
            values, V = _positive_eigenpairs(gram)
            root = 1 / np.sqrt(values + reg)
            M = root[:, None] * (V.T @ cross)
        else:
            # The n×n twin: with XXᵀ = UΣ²Uᵀ, V = XᵀUΣ⁻¹ is applied at the end and never stored.
            to_mean = as_dense(X @ mean_x[:, None]).ravel()
            gram = gram_of_rows(X, 1)
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


def _objective(
    X: sp.csr_matrix | np.ndarray, Y: sp.csr_matrix, W: np.ndarray, H: np.ndarray, b: np.ndarray, reg: float
) -> float:
    """½‖Y − XWHᵀ − 1bᵀ‖² + ½λ‖W‖² without n×L: as H is orthonormal, ‖XWHᵀ‖ = ‖XW‖ and ‖WHᵀ‖ = ‖W‖."""
    A = as_dense(X @ W)
    against_labels = float(np.sum(A * as_dense(Y @ H))) + float(np.asarray(Y.sum(axis=0)).ravel() @ b)
    squared_scores = float(np.sum(A**2)) + 2 * float(A.sum(axis=0) @ (H.T @ b)) + len(A) * float(b @ b)
    loss = 0.5 * (Y.nnz - 2 * against_labels + squared_scores)
    return loss + 0.5 * reg * float(np.sum(W**2))


def _positive_eigenpairs(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = scipy.linalg.eigh(gram, overwrite_a=True)
    kept = values > len(values) * np.finfo(np.float64).eps * max(values[-1], 0)
    return values[kept], vectors[:, kept]


def _top_right_singular_vectors(M: np.ndarray, rank: int) -> np.ndarray:
    """The first ``rank`` right singular vectors of M (m×L), as L×rank, through the smaller Gram matrix."""
    rows, columns = M.shape
    if columns <= rows:
        return scipy.linalg.eigh(M.T @ M, subset_by_index=(columns - min(rank, columns), columns - 1))[1][:, ::-1]
    kept = min(rank, rows)
    _, left = scipy.linalg.eigh(M @ M.T, subset_by_index=(rows - kept, rows - 1))
    # M's rows may span fewer than ``rank`` dimensions; an orthonormal basis keeps H well defined all the same.
    basis = np.linalg.qr(M.T @ left[:, ::-1])[0]
    return np.ascontiguousarray(basis)
