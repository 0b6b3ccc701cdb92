"""CSR × dense. The transposed product is the same kernel on a stored transpose, so nothing is ever scattered."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.aligned import aligned_empty
from tagwise.kernels.compiled import compiled
from tagwise.kernels.dense import rows_times
from tagwise.kernels.gathered_rows import sum_rows
from tagwise.parallel import even_chunks, run_chunks, work_chunks

__all__ = ["csr_times_dense", "times", "times_in_order", "unit_rows"]

# A float32 sum over a long row loses digits; partial sums of this many terms are collected in float64 instead.
_PARTIAL_TERMS = 256
# A dense matrix that is read often but doesn't fit into the cache is multiplied in stripes of columns that do. Each
# stripe is copied so that it lies close together, which must pay for the copy, for reading the entries once a stripe,
# and for rows of the result that are written in pieces: both matrices need so many entries a row.
_CACHED_BYTES = 1 << 24
_STRIPE, _STRIPE_BYTES = 64, 1 << 22
_OFTEN = 32
# Rows of a stripe copied by a thread at a time.
_STRIPE_ROWS = 2048
# Dense rows multiplied in order by a thread at a time.
_ROWS = 64


def csr_times_dense(matrix: sp.csr_matrix, dense: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
    """``matrix @ dense`` for CSR (m×d) and C-ordered dense (d×k); the result (m×k) has the type of ``dense``.

    Time O(nnz·k), memory the result and at most 4 MB. Duplicates add up, and indices need not be sorted.
    """
    if dense.ndim != 2 or dense.shape[0] != matrix.shape[1]:
        raise InvalidInputError(
            f"dense must have {matrix.shape[1]} rows to be multiplied by a matrix of shape {matrix.shape}; "
            f"found shape {dense.shape}."
        )
    if dense.dtype.kind != "f":
        raise InvalidInputError(f"dense must hold floating numbers; found type {dense.dtype}.")
    dense = np.ascontiguousarray(dense)
    out = aligned_empty((matrix.shape[0], dense.shape[1]), dense.dtype)
    striped = dense.nbytes > _CACHED_BYTES and len(dense) * _STRIPE * dense.itemsize <= _STRIPE_BYTES
    if not striped or matrix.nnz < _OFTEN * max(matrix.shape):
        _times_columns(matrix, dense, out, 0, n_threads)
        return out
    for first, stop in even_chunks(dense.shape[1], _STRIPE):
        _times_columns(matrix, _stripe(dense, first, stop, n_threads), out, first, n_threads)
    return out


def _stripe(dense: np.ndarray, first: int, stop: int, n_threads: int) -> np.ndarray:
    """A copy of the columns ``first`` to ``stop``."""
    stripe = aligned_empty((len(dense), stop - first), dense.dtype)

    def rows(start: int, end: int) -> None:
        stripe[start:end] = dense[start:end, first:stop]

    run_chunks(rows, even_chunks(len(dense), _STRIPE_ROWS), n_threads)
    return stripe


def _times_columns(matrix: sp.csr_matrix, columns: np.ndarray, out: np.ndarray, first: int, n_threads: int) -> None:
    """Fill the columns of ``out`` from ``first`` on with ``matrix @ columns``."""
    arrays = matrix.indptr, matrix.indices, matrix.data, columns, out, first
    run_chunks(lambda start, stop: _csr_times_dense(*arrays, start, stop), work_chunks(matrix.indptr), n_threads)


def times(rows: sp.csr_matrix | np.ndarray, matrix: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
    """``rows @ matrix`` (n×d by d×k) for either form of rows, in the type of ``matrix``.

    Dense rows are multiplied by BLAS, whose rounding depends on how many rows there are; where rows that are equal must
    have equal products in any company, use :func:`times_in_order`.
    """
    if isinstance(rows, np.ndarray):
        return rows_times(np.ascontiguousarray(rows, dtype=matrix.dtype), matrix, n_threads=n_threads)
    return csr_times_dense(rows, matrix, n_threads=n_threads)


def times_in_order(rows: sp.csr_matrix | np.ndarray, matrix: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
    """``rows @ matrix`` (n×d by d×k) in float64, a row's terms added in the order of its columns.

    A row has the same bits alone and in company, and equal columns of ``matrix`` give equal columns. Time O(n·d·k),
    several times that of BLAS for dense rows; memory a copy of ``matrix`` and the result.
    """
    matrix = np.ascontiguousarray(matrix, dtype=np.float64)
    if not isinstance(rows, np.ndarray):
        return csr_times_dense(rows, matrix, n_threads=n_threads)
    if rows.ndim != 2 or matrix.ndim != 2 or rows.shape[1] != len(matrix):
        raise InvalidInputError(f"rows of shape {rows.shape} cannot be multiplied by a matrix of shape {matrix.shape}.")
    rows = np.ascontiguousarray(rows)
    out = np.empty((len(rows), matrix.shape[1]))

    def block(start: int, stop: int) -> None:
        dense_in_order(rows[start:stop], matrix, out[start:stop])

    run_chunks(block, even_chunks(len(rows), _ROWS), n_threads)
    return out


# Not even contraction is allowed: a product must not depend on the place of its column in a vector register.
@compiled()
def dense_in_order(rows, matrix, out):
    """``out`` = ``rows`` @ ``matrix``, each entry summed in the order of the columns of ``rows``; C-ordered arrays."""
    n_columns, width = matrix.shape
    for row in range(len(rows)):
        target, values = out[row], rows[row]
        target[:] = 0
        column = 0
        while column + 3 < n_columns:
            a, b, c, d = matrix[column], matrix[column + 1], matrix[column + 2], matrix[column + 3]
            va, vb = np.float64(values[column]), np.float64(values[column + 1])
            vc, vd = np.float64(values[column + 2]), np.float64(values[column + 3])
            for place in range(width):
                target[place] = (((target[place] + va * a[place]) + vb * b[place]) + vc * c[place]) + vd * d[place]
            column += 4
        while column < n_columns:
            a, va = matrix[column], np.float64(values[column])
            for place in range(width):
                target[place] += va * a[place]
            column += 1


@compiled()
def _csr_times_dense(indptr, indices, data, dense, out, shift, start, stop):
    """Columns ``shift`` to ``shift`` + width of ``out`` = CSR rows ``start`` to ``stop`` times ``dense`` (d×width)."""
    width = dense.shape[1]
    part = np.empty(width, dtype=dense.dtype)
    total = np.empty(width, dtype=np.float64)
    limit, first = np.int64(indptr[stop]), np.uintp(shift)
    for row in range(start, stop):
        begin, end = np.int64(indptr[row]), np.int64(indptr[row + 1])
        if end - begin <= _PARTIAL_TERMS:
            sum_rows(indices, data, dense, begin, end, limit, 0, width, 0, out, row * out.shape[1] + shift)
            continue
        total[:] = 0
        while begin < end:
            last = min(begin + _PARTIAL_TERMS, end)
            sum_rows(indices, data, dense, begin, last, limit, 0, width, 0, part, 0)
            for column in range(width):
                total[column] += part[column]
            begin = last
        for column in range(np.uintp(width)):
            out[row, first + column] = total[column]


def unit_rows(indptr: np.ndarray, data: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
    """The values of CSR rows scaled to Euclidean length 1, in the type of ``data``; rows of zeros stay zero.

    Rows are divided by their largest value first, so that neither huge nor tiny values overflow or vanish.
    """
    out = np.empty_like(data)

    def rows(start: int, stop: int) -> None:
        _unit_rows(indptr, data, out, start, stop)

    run_chunks(rows, work_chunks(indptr), n_threads)
    return out


# "nnan" and "reassoc" let maximum and sum use vector registers; values are finite, and the order is still fixed.
@compiled(fastmath={"nnan", "nsz", "reassoc", "contract"})
def _unit_rows(indptr, data, out, start, stop):
    for row in range(start, stop):
        begin, end = indptr[row], indptr[row + 1]
        largest = 0.0
        for position in range(begin, end):
            largest = max(largest, abs(np.float64(data[position])))
        if largest == 0:
            out[begin:end] = 0
            continue
        squared = 0.0
        for position in range(begin, end):
            squared += (np.float64(data[position]) / largest) ** 2
        length = np.sqrt(squared)
        factor = 1 / (largest * length)
        if 1e-300 < factor < 1e300:
            for position in range(begin, end):
                out[position] = np.float64(data[position]) * factor
        else:  # the factor itself would overflow or vanish
            for position in range(begin, end):
                out[position] = np.float64(data[position]) / largest / length
