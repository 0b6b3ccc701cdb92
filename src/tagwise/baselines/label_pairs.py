"""Which labels of a ranking a row really has."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

__all__ = ["listed_pairs"]


def listed_pairs(Y: sp.csr_matrix, labels: np.ndarray) -> np.ndarray:
    """Whether Y (n×L, sorted) lists each pair of a row and one of its ``labels`` (n×k); never for the label −1.

    Time O((nnz(Y) + n·k)·log nnz(Y)), memory O(nnz(Y) + n·k).
    """
    width = Y.shape[1] + 1
    listed = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)) * width + Y.indices
    asked = np.arange(len(labels))[:, None] * width + np.where(labels >= 0, labels, Y.shape[1])
    if not len(listed):
        return np.zeros(labels.shape, dtype=bool)
    places = np.minimum(np.searchsorted(listed, asked), len(listed) - 1)
    return listed[places] == asked
