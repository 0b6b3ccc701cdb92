"""Slow, obvious numpy twins of the sparse-part kernels: what each one must compute. Tests compare against these."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.kernels.reference import top_k_of_scores

__all__ = ["scores_of_factors_and_sparse", "support_least_squares", "top_k_of_factors_and_sparse"]


def scores_of_factors_and_sparse(
    left: np.ndarray, right: np.ndarray, intercept: np.ndarray | None, rows: sp.csr_matrix, sparse: sp.csr_matrix
) -> np.ndarray:
    """The whole n×L array, in float64."""
    block = left.astype(np.float64) @ right.astype(np.float64).T
    block += rows.toarray().astype(np.float64) @ sparse.toarray().astype(np.float64)
    return block if intercept is None else block + intercept


def top_k_of_factors_and_sparse(
    left: np.ndarray,
    right: np.ndarray,
    k: int,
    intercept: np.ndarray | None,
    rows: sp.csr_matrix,
    sparse: sp.csr_matrix,
    exclude: sp.csr_matrix | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The whole n×L array, then the best of each row."""
    block = scores_of_factors_and_sparse(left, right, intercept, rows, sparse)
    return top_k_of_scores(block.astype(left.dtype), k, exclude)


def support_least_squares(
    X: np.ndarray,
    Y: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    reg: float,
    support: int,
    weights: np.ndarray,
    intercept: np.ndarray,
    known: np.ndarray | None = None,
) -> np.ndarray:
    """Weighted least squares on the residual of each label over its known rows, on dense arrays: S (d×L), float64."""
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    if known is None:
        known = np.ones(Y.shape)
    frequency = np.count_nonzero(X, axis=0)
    S = np.zeros((X.shape[1], Y.shape[1]))
    for label, y in enumerate(Y.T):
        weight = np.where(y == 1, weights[label], 1.0) * known[:, label]
        residual = y - X @ U @ V[label] - intercept[label]
        right = X.T @ (weight * residual)
        system = X.T @ (weight[:, None] * X) + reg * np.eye(X.shape[1])
        candidates = np.flatnonzero(np.count_nonzero(X[(y == 1) & (known[:, label] > 0)], axis=0))
        gain = right[candidates] ** 2 / system[candidates, candidates]
        chosen = candidates[np.lexsort((candidates, frequency[candidates], -gain))[:support]]
        S[chosen, label] = np.linalg.solve(system[np.ix_(chosen, chosen)], right[chosen])
    return S
