"""Start of the low rank for a dense block of features: the block's least squares solution, for all labels at once."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from tagwise.kernels import DenseFeatures, gram
from tagwise.losses import get_loss
from tagwise.objectives.labels import TrainingLabels
from tagwise.solvers.gram_system import cholesky_factor
from tagwise.solvers.support import TOO_SMALL

__all__ = ["dense_rank", "start_of_dense"]

# Multiplications that a dense block may cost per row and for all labels. Up to so many it has its full rank.
_PRODUCTS = 1 << 21
_LEAST_RANK = 16


def dense_rank(n_dense: int, n_labels: int) -> int:
    """Number of columns of the low rank for a dense block of q features: min(q, L), or 2²¹/L if that is less.

    But 16 at least, where there are so many features and labels.
    """
    return min(n_dense, n_labels, max(_LEAST_RANK, _PRODUCTS // n_labels))


def start_of_dense(
    D: DenseFeatures, labels: TrainingLabels, intercept: np.ndarray, reg: float, rank: int
) -> tuple[np.ndarray, np.ndarray]:
    r"""Factors (q×r, L×r) of the rank-r ridge regression of what constant scores leave on the dense block.

    .. math:: \min_{\mathrm{rank} B \le r} \tfrac12\lVert R - DB\rVert^2 + \tfrac\lambda2\lVert B\rVert^2 ,

    R = Y less the constant scores at known pairs and 0 elsewhere, each label times n over its known rows, which is
    what its least squares are with all rows in expectation: pairs that are unknown say nothing. With DᵀD + λI = CCᵀ
    and the singular values C⁻¹DᵀR = UΣVᵀ, B = C⁻ᵀU√Σ · √ΣVᵀ for the r largest. One factorisation of side q serves all
    labels. Time O(n·q² + nnz(Y)·q + q²·L) by BLAS, memory O(q·(q + L)).
    """
    slope, row = labels.slope_at(get_loss("squared"), intercept)
    cross = -slope.rmatmul(D.matrix).astype(np.float64)  # RᵀD (L×q)
    n_rows, rows, weight = D.shape[0], D.matrix, labels.full_weight
    if labels.row_weight is not None:
        rows = rows * np.sqrt(labels.row_weight).astype(rows.dtype)[:, None]
    if row is not None:
        cross -= np.outer(row, (np.ones(n_rows) if weight is None else weight) @ D.matrix)
    if labels.known is not None:
        pairs = np.bincount(labels.known.pairs.indices, minlength=len(cross))
        known = pairs + np.count_nonzero(labels.known.complete)
        cross *= (n_rows / np.maximum(known, 1))[:, None]
    system = gram(rows, n_threads=D.n_threads)
    system[np.diag_indices(len(system))] += reg
    factor, lower = cholesky_factor(system, TOO_SMALL.format(reg))
    triangle = np.tril(factor) if lower else np.triu(factor).T
    M = scipy.linalg.solve_triangular(triangle, cross.T, lower=True, check_finite=False)
    squares, U = np.linalg.eigh(M @ M.T)
    U, sizes = U[:, ::-1][:, :rank], np.sqrt(np.maximum(squares[::-1][:rank], 0))
    root = np.sqrt(np.maximum(sizes, 1e-6))
    coefficients = scipy.linalg.solve_triangular(triangle.T, U, lower=False, check_finite=False) * root
    dtype = D.matrix.dtype
    return np.ascontiguousarray(coefficients, dtype), ((M.T @ U) / root).astype(dtype)
