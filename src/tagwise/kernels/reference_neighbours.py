"""Slow, obvious numpy twins of the neighbour kernels: what each one must compute. Tests compare against these."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.kernels.reference import top_k_of_scores

__all__ = ["nearest_rows", "scores_of_listed", "top_k_of_listed"]


def nearest_rows(
    queries: np.ndarray, rows: np.ndarray, k: int, *, by_distance: bool, exclude: sp.csr_matrix | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """All m×n measures in float64, then the best of each query."""
    measures = queries.astype(np.float64) @ rows.astype(np.float64).T
    if by_distance:
        measures -= 0.5 * np.sum(rows.astype(np.float64) ** 2, axis=1)
    return top_k_of_scores(measures, k, exclude)


def scores_of_listed(listed: sp.csr_matrix, base: np.ndarray) -> np.ndarray:
    """Entry by entry."""
    out = np.empty(listed.shape, dtype=base.dtype)
    for row in range(listed.shape[0]):
        out[row] = base
        for position in range(listed.indptr[row], listed.indptr[row + 1]):
            out[row, listed.indices[position]] = listed.data[position]
    return out


def top_k_of_listed(
    listed: sp.csr_matrix, base: np.ndarray, k: int, exclude: sp.csr_matrix | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The whole n×L array, then the best of each row."""
    return top_k_of_scores(scores_of_listed(listed, base), k, exclude)
