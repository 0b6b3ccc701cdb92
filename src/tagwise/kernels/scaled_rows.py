"""Chosen rows of a matrix, scaled and added to a dense block, without making a copy of them first."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.kernels.compiled import compiled
from tagwise.parallel import even_chunks, run_chunks

__all__ = ["add_scaled_rows"]

_ROWS = 256


def add_scaled_rows(
    target: np.ndarray, matrix: sp.csr_matrix | np.ndarray, rows: np.ndarray, scale: np.ndarray, *, n_threads: int = 1
) -> None:
    """``target[i] += scale[i] · matrix[rows[i]]`` in place, for all i; duplicates of a CSR matrix add up.

    A dense matrix gives the same numbers as its CSR form. Time O(stored entries of the rows), no memory.
    """
    scale = scale.astype(target.dtype, copy=False)

    if isinstance(matrix, np.ndarray):

        def chunk(start: int, stop: int) -> None:
            _add_scaled_dense_rows(target, matrix, rows, scale, start, stop)

    else:
        indptr, indices, data = matrix.indptr, matrix.indices, matrix.data

        def chunk(start: int, stop: int) -> None:
            _add_scaled_rows(target, indptr, indices, data, rows, scale, start, stop)

    run_chunks(chunk, even_chunks(len(rows), _ROWS), n_threads)


@compiled()
def _add_scaled_rows(target, indptr, indices, data, rows, scale, start, stop):
    for i in range(start, stop):
        factor = scale[i]
        for position in range(indptr[rows[i]], indptr[rows[i] + 1]):
            target[i, indices[position]] += factor * data[position]


@compiled()
def _add_scaled_dense_rows(target, matrix, rows, scale, start, stop):
    for i in range(start, stop):
        factor = scale[i]
        for column in range(matrix.shape[1]):
            target[i, column] += factor * matrix[rows[i], column]
