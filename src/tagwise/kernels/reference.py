"""Slow, obvious numpy twins of the kernels: what each one must compute. Tests compare against these."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.sparse as sp

__all__ = [
    "csr_matmul",
    "dense_matmul",
    "gram",
    "pair_curvature_product",
    "sampled_product",
    "solve_row_systems",
    "top_k_of_factors",
    "top_k_of_scores",
    "unit_rows",
]


def csr_matmul(matrix: sp.csr_matrix, dense: np.ndarray) -> np.ndarray:
    """``matrix @ dense``, one stored entry after the other, in float64."""
    out = np.zeros((matrix.shape[0], dense.shape[1]))
    for row in range(matrix.shape[0]):
        for position in range(matrix.indptr[row], matrix.indptr[row + 1]):
            out[row] += float(matrix.data[position]) * dense[matrix.indices[position]].astype(np.float64)
    return out


def unit_rows(indptr: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Each row over its Euclidean length, in extended precision."""
    out = np.zeros(len(data), dtype=np.longdouble)
    for begin, end in pairwise(indptr):
        length = np.sqrt(np.sum(data[begin:end].astype(np.longdouble) ** 2))
        out[begin:end] = data[begin:end] / length if length > 0 else 0
    return out


def sampled_product(pattern: sp.csr_matrix, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``left_i · right_j`` per stored entry (i, j), in float64."""
    out = np.zeros(pattern.nnz)
    for row in range(pattern.shape[0]):
        for position in range(pattern.indptr[row], pattern.indptr[row + 1]):
            out[position] = left[row].astype(np.float64) @ right[pattern.indices[position]].astype(np.float64)
    return out


def pair_curvature_product(
    pattern: sp.csr_matrix, weights: np.ndarray, left: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """Σ_j w_ij (left_i · right_j) right_j over the stored pairs of row i, in float64."""
    weighted = weights * sampled_product(pattern, left, right)
    return csr_matmul(sp.csr_matrix((weighted, pattern.indices, pattern.indptr), shape=pattern.shape), right)


def solve_row_systems(
    pattern: sp.csr_matrix, weights: np.ndarray, right: np.ndarray, features: np.ndarray, base: np.ndarray
) -> np.ndarray:
    """One dense system per row of the pattern, made and solved in float64."""
    out = np.empty_like(right)
    for label in range(pattern.shape[0]):
        stored = slice(pattern.indptr[label], pattern.indptr[label + 1])
        rows = features[pattern.indices[stored]].astype(np.float64)
        system = base + rows.T @ (weights[stored, None].astype(np.float64) * rows)
        out[label] = np.linalg.solve(system, right[label])
    return out


def gram(left: np.ndarray, right: np.ndarray | None = None) -> np.ndarray:
    """``leftᵀ @ right`` in float64."""
    right = left if right is None else right
    return np.asarray(left.astype(np.float64).T @ right.astype(np.float64))


def dense_matmul(tall: np.ndarray, small: np.ndarray) -> np.ndarray:
    """``tall @ small`` in float64."""
    return np.asarray(tall.astype(np.float64) @ small.astype(np.float64))


def top_k_of_scores(block: np.ndarray, k: int, exclude: sp.csr_matrix | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Sort each row by falling score, then rising label; -1 and -inf fill the places beyond the last label."""
    labels = np.full((len(block), k), -1, dtype=np.int64)
    scores = np.full((len(block), k), -np.inf, dtype=block.dtype)
    for row, values in enumerate(block):
        hidden = set() if exclude is None else set(exclude.indices[exclude.indptr[row] : exclude.indptr[row + 1]])
        order = sorted((-value, label) for label, value in enumerate(values) if label not in hidden)[:k]
        for place, (negated, label) in enumerate(order):
            labels[row, place], scores[row, place] = label, -negated
    return labels, scores


def top_k_of_factors(
    left: np.ndarray,
    right: np.ndarray,
    k: int,
    intercept: np.ndarray | None = None,
    exclude: sp.csr_matrix | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The whole n×L product, then :func:`top_k_of_scores`."""
    block = left @ right.T
    if intercept is not None:
        block = block + intercept
    return top_k_of_scores(block, k, exclude)
