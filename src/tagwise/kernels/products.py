"""Products of a data matrix, CSR or dense, with dense matrices, from both sides.

The transposed CSR product is the same kernel on a stored transpose, so nothing is ever scattered. Dense products are
BLAS in fixed row blocks, so that rounding does not depend on the number of threads.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.feature_blocks import FeatureBlocks
from tagwise.kernels.compiled import FAST, compiled
from tagwise.kernels.gather_sum import sum_rows
from tagwise.kernels.vectors import aligned_empty
from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas, work_chunks

__all__ = [
    "BlockFeatures",
    "CSRWithTranspose",
    "DenseFeatures",
    "FeatureMatrix",
    "add_scaled_rows",
    "as_dense",
    "csr_matmul",
    "dense_matmul",
    "feature_matrix",
    "gram",
    "matmul",
    "matmul_in_order",
    "scaled_rows",
    "squared_norms",
    "unit_rows",
]

# A float32 sum over a long row loses digits; partial sums of this many terms are collected in float64 instead.
_PARTIAL_TERMS = 256
# A dense matrix that is read often but doesn't fit into the cache is multiplied in stripes of columns that do. Each
# stripe is copied so that it lies close together, which must pay for the copy, for reading the entries once a stripe,
# and for rows of the result that are written in pieces: both matrices need so many entries per row.
_CACHED_BYTES = 1 << 24
_STRIPE, _STRIPE_BYTES = 64, 1 << 22
_OFTEN = 32
# Rows of a stripe copied by a thread at a time.
_STRIPE_ROWS = 2048
# Dense rows multiplied in order, and chosen rows added, by a thread at a time.
_ROWS = 64
_SCALED_ROWS = 256
# Rows of a block of BLAS: for sums, which take k×l numbers each, and for products, which keep several threads busy.
_SUMMED_ROWS = 2048
_MULTIPLIED_ROWS = 512


class FeatureMatrix(Protocol):
    """A data matrix X (n×d) that is multiplied from both sides."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        ...

    def matmul(self, right: np.ndarray) -> np.ndarray:
        """X @ right: n×d by d×k."""
        ...

    def rmatmul(self, left: np.ndarray) -> np.ndarray:
        """Xᵀ @ left: d×n by n×k, in the type of ``left``."""
        ...


class CSRWithTranspose(FeatureMatrix):
    """CSR beside the CSR of its transpose, so that both products read rows and write rows.

    Costs the memory of the matrix once more; a scattered transposed product would need a private d×k copy per thread.
    """

    def __init__(self, matrix: sp.csr_matrix, *, n_threads: int = 1) -> None:
        self.matrix, self.n_threads = matrix, n_threads

    @cached_property
    def transpose(self) -> sp.csr_matrix:
        """Xᵀ (d×n), made when it is first needed."""
        return sp.csr_matrix(self.matrix.T)

    def __getstate__(self) -> dict[str, Any]:
        # Processes that are sent the matrix share one transpose instead of each making its own.
        return {"matrix": self.matrix, "n_threads": self.n_threads, "transpose": self.transpose}

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def matmul(self, right: np.ndarray) -> np.ndarray:
        """X @ right."""
        return csr_matmul(self.matrix, right, n_threads=self.n_threads)

    def rmatmul(self, left: np.ndarray) -> np.ndarray:
        """Xᵀ @ left."""
        return csr_matmul(self.transpose, left, n_threads=self.n_threads)


class DenseFeatures(FeatureMatrix):
    """A dense array; both products are BLAS calls on fixed row blocks."""

    def __init__(self, matrix: np.ndarray, *, n_threads: int = 1) -> None:
        self.matrix, self.n_threads = matrix, n_threads

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def matmul(self, right: np.ndarray) -> np.ndarray:
        """X @ right."""
        return dense_matmul(self.matrix, right, n_threads=self.n_threads)

    def rmatmul(self, left: np.ndarray) -> np.ndarray:
        """Xᵀ @ left."""
        return gram(self.matrix, left, n_threads=self.n_threads).astype(left.dtype)


class BlockFeatures(FeatureMatrix):
    """[S, D] (n×d): the products of both blocks, each in its own way.

    ``words`` is S beside empty columns for D, n×d: what has features of words alone has the shape of all.
    """

    def __init__(self, words: FeatureMatrix, dense: DenseFeatures) -> None:
        self.words, self.dense = words, dense
        self.n_threads = dense.n_threads

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.words.shape

    def matmul(self, right: np.ndarray) -> np.ndarray:
        """S @ upper + D @ lower, the upper and lower rows of ``right``."""
        product = self.words.matmul(right)
        product += self.dense.matmul(right[-self.dense.shape[1] :])
        return product

    def rmatmul(self, left: np.ndarray) -> np.ndarray:
        """Sᵀ @ left above Dᵀ @ left."""
        product = self.words.rmatmul(left)
        product[-self.dense.shape[1] :] = self.dense.rmatmul(left)
        return product


def feature_matrix(matrix: sp.csr_matrix | np.ndarray | FeatureBlocks, *, n_threads: int = 1) -> FeatureMatrix:
    """The form of a CSR matrix, of a dense array or of both that has both products."""
    if isinstance(matrix, FeatureBlocks):
        words = CSRWithTranspose(matrix.words, n_threads=n_threads)
        return BlockFeatures(words, DenseFeatures(matrix.dense, n_threads=n_threads))
    if sp.issparse(matrix):
        return CSRWithTranspose(matrix, n_threads=n_threads)
    return DenseFeatures(matrix, n_threads=n_threads)


def csr_matmul(matrix: sp.csr_matrix, dense: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
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
        _matmul_columns(matrix, dense, out, 0, n_threads)
        return out
    for first, stop in even_chunks(dense.shape[1], _STRIPE):
        _matmul_columns(matrix, _stripe(dense, first, stop, n_threads), out, first, n_threads)
    return out


def _stripe(dense: np.ndarray, first: int, stop: int, n_threads: int) -> np.ndarray:
    """A copy of the columns ``first`` to ``stop``."""
    stripe = aligned_empty((len(dense), stop - first), dense.dtype)

    def rows(start: int, end: int) -> None:
        stripe[start:end] = dense[start:end, first:stop]

    run_chunks(rows, even_chunks(len(dense), _STRIPE_ROWS), n_threads)
    return stripe


def _matmul_columns(matrix: sp.csr_matrix, columns: np.ndarray, out: np.ndarray, first: int, n_threads: int) -> None:
    """Fill the columns of ``out`` from ``first`` on with ``matrix @ columns``."""
    arrays = matrix.indptr, matrix.indices, matrix.data, columns, out, first
    run_chunks(lambda start, stop: _csr_matmul(*arrays, start, stop), work_chunks(matrix.indptr), n_threads)


def matmul(rows: sp.csr_matrix | np.ndarray | FeatureBlocks, matrix: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
    """``rows @ matrix`` (n×d by d×k) for any form of rows, in the type of ``matrix``.

    Dense rows are multiplied by BLAS, whose rounding depends on how many rows there are; where rows that are equal must
    have equal products in any company, use :func:`matmul_in_order`.
    """
    if isinstance(rows, FeatureBlocks):
        width = rows.sparse.shape[1]
        product = csr_matmul(rows.sparse, matrix[:width], n_threads=n_threads)
        product += matmul(rows.dense, matrix[width:], n_threads=n_threads)
        return product
    if isinstance(rows, np.ndarray):
        return dense_matmul(np.ascontiguousarray(rows, dtype=matrix.dtype), matrix, n_threads=n_threads)
    return csr_matmul(rows, matrix, n_threads=n_threads)


def matmul_in_order(rows: sp.csr_matrix | np.ndarray, matrix: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
    """``rows @ matrix`` (n×d by d×k) in float64, a row's terms added in the order of its columns.

    A row has the same bits alone and among others, and equal columns of ``matrix`` give equal columns. Time O(n·d·k),
    several times that of BLAS for dense rows; memory a copy of ``matrix`` and the result.
    """
    matrix = np.ascontiguousarray(matrix, dtype=np.float64)
    if not isinstance(rows, np.ndarray):
        return csr_matmul(rows, matrix, n_threads=n_threads)
    if rows.ndim != 2 or matrix.ndim != 2 or rows.shape[1] != len(matrix):
        raise InvalidInputError(f"rows of shape {rows.shape} cannot be multiplied by a matrix of shape {matrix.shape}.")
    dense = np.ascontiguousarray(rows)
    out = np.empty((len(dense), matrix.shape[1]))
    run_chunks(
        lambda start, stop: dense_in_order(dense[start:stop], matrix, out[start:stop]),
        even_chunks(len(dense), _ROWS),
        n_threads,
    )
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
def _csr_matmul(indptr, indices, data, dense, out, shift, start, stop):
    """Columns ``shift`` to ``shift`` + width of ``out`` = CSR rows ``start`` to ``stop`` times ``dense`` (d×width)."""
    width = dense.shape[1]
    part = np.empty(width, dtype=dense.dtype)
    total = np.empty(width, dtype=np.float64)
    limit, first = np.int64(indptr[stop]), np.uintp(shift)
    for row in range(start, stop):
        begin, end = np.int64(indptr[row]), np.int64(indptr[row + 1])
        if end - begin <= _PARTIAL_TERMS:
            sum_rows(indices, data, dense, (begin, end, limit), (0, width), 0, out, row * out.shape[1] + shift)
            continue
        total[:] = 0
        while begin < end:
            last = min(begin + _PARTIAL_TERMS, end)
            sum_rows(indices, data, dense, (begin, last, limit), (0, width), 0, part, 0)
            for column in range(width):
                total[column] += part[column]
            begin = last
        for column in range(np.uintp(width)):
            out[row, first + column] = total[column]


def as_dense(product: sp.spmatrix | np.ndarray) -> np.ndarray:
    """An array of the same type: scipy answers products of two sparse matrices sparse, all others dense."""
    return product if isinstance(product, np.ndarray) else np.asarray(product.toarray())


def gram(left: np.ndarray, right: np.ndarray | None = None, *, n_threads: int = 1) -> np.ndarray:
    """``leftᵀ @ right`` (k×l) for tall matrices (n×k, n×l), in float64; ``right`` is ``left`` by default.

    Blocks of rows are multiplied in the matrices' own type and added in float64 in a fixed order.
    Time O(n·k·l), memory O(k·l) per block under way.
    """
    right = left if right is None else right
    chunks = even_chunks(len(left), _SUMMED_ROWS)

    def partial(start: int, stop: int) -> np.ndarray:
        return np.asarray(left[start:stop].T @ right[start:stop])

    total = np.zeros((left.shape[1], right.shape[1]))
    # A few blocks at a time: keeping every partial until the end would cost (n / 2048)·k·l numbers.
    group = 4 * n_threads
    with single_threaded_blas():
        for first in range(0, len(chunks), group):
            for block in run_chunks(partial, chunks[first : first + group], n_threads):
                total += block
    return total


def dense_matmul(
    tall: np.ndarray, small: np.ndarray, *, n_threads: int = 1, out: np.ndarray | None = None
) -> np.ndarray:
    """``tall @ small`` (n×k by k×l), in the type of ``tall``, row blocks on threads; ``out`` may be ``tall`` itself."""
    small = np.ascontiguousarray(small, dtype=tall.dtype)
    if out is None:
        out = aligned_empty((len(tall), small.shape[1]), tall.dtype)

    def block(start: int, stop: int) -> None:
        np.matmul(tall[start:stop], small, out=out[start:stop])

    with single_threaded_blas():
        run_chunks(block, even_chunks(len(tall), _MULTIPLIED_ROWS), n_threads)
    return out


def add_scaled_rows(
    target: np.ndarray, matrix: sp.csr_matrix | np.ndarray, rows: np.ndarray, scale: np.ndarray, *, n_threads: int = 1
) -> None:
    """``target[i] += scale[i] · matrix[rows[i]]`` in place, for all i; duplicates of a CSR matrix add up.

    A dense matrix gives the same numbers as its CSR form. Time O(stored entries of the rows), no memory.
    """
    scale = scale.astype(target.dtype, copy=False)

    def chunk(start: int, stop: int) -> None:
        if isinstance(matrix, np.ndarray):
            _add_scaled_dense_rows(target, matrix, rows, scale, start, stop)
        else:
            _add_scaled_rows(target, matrix.indptr, matrix.indices, matrix.data, rows, scale, start, stop)

    run_chunks(chunk, even_chunks(len(rows), _SCALED_ROWS), n_threads)


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


def unit_rows(X: sp.csr_matrix | np.ndarray, *, n_threads: int = 1) -> sp.csr_matrix | np.ndarray:
    """X with rows of Euclidean length 1 (rows of zeros stay zero); indices are shared, values are new.

    Rows are divided by their largest value first, so that neither huge nor tiny values overflow or vanish.
    """
    if isinstance(X, np.ndarray):
        indptr = np.arange(X.shape[0] + 1) * X.shape[1]
        return _unit_values(indptr, X.reshape(-1), n_threads).reshape(X.shape)
    data = _unit_values(X.indptr, X.data, n_threads)
    if X.indices.dtype != np.int32:
        return sp.csr_matrix((data, X.indices, X.indptr), shape=X.shape)  # which takes 32 bits for indices if they do
    # scipy's constructor would check the indices again, which takes a tenth of the time of an answer to one row.
    scaled: sp.csr_matrix = object.__new__(type(X))
    scaled.__dict__.update(X.__dict__)
    scaled.data = data
    return scaled


def scaled_rows(
    X: sp.csr_matrix | np.ndarray | FeatureBlocks, *, normalize: bool, dense_weight: float = 1.0, n_threads: int = 1
) -> sp.csr_matrix | np.ndarray | FeatureBlocks:
    """Rows of unit length with ``normalize``; of blocks, those of each, and the dense one then times its weight."""
    if not isinstance(X, FeatureBlocks):
        return unit_rows(X, n_threads=n_threads) if normalize else X
    sparse, dense = X
    if normalize:
        sparse, dense = unit_rows(sparse, n_threads=n_threads), unit_rows(dense, n_threads=n_threads)
    return FeatureBlocks([sparse, dense if dense_weight == 1 else dense * dense.dtype.type(dense_weight)])


def _unit_values(indptr: np.ndarray, data: np.ndarray, n_threads: int) -> np.ndarray:
    out = np.empty_like(data)
    run_chunks(lambda start, stop: _unit_rows(indptr, data, out, start, stop), work_chunks(indptr), n_threads)
    return out


def squared_norms(X: sp.csr_matrix | np.ndarray, *, n_threads: int = 1) -> np.ndarray:
    """‖x_i‖² of each row in float64, added up in the order of its entries. Time O(stored entries)."""
    if isinstance(X, np.ndarray):
        indptr, data = np.arange(X.shape[0] + 1) * X.shape[1], X.reshape(-1)
    else:
        indptr, data = X.indptr, X.data
    out = np.empty(X.shape[0])
    run_chunks(lambda start, stop: _squared_norms(indptr, data, out, start, stop), work_chunks(indptr), n_threads)
    return out


@compiled()
def _squared_norms(indptr, data, out, start, stop):
    for row in range(start, stop):
        total = 0.0
        for position in range(indptr[row], indptr[row + 1]):
            total += np.float64(data[position]) ** 2
        out[row] = total


# "nnan" and "reassoc" let maximum and sum use vector registers; values are finite, and the order is still fixed.
@compiled(inner=True, fastmath=FAST)
def _largest_and_length(data, begin, end):
    """The largest magnitude of some entries, and their length in units of it, which no square can overflow."""
    largest, squared = 0.0, 0.0
    for position in range(begin, end):
        largest = max(largest, abs(np.float64(data[position])))
    if largest > 0:
        for position in range(begin, end):
            share = np.float64(data[position]) / largest
            squared += share * share
    return largest, np.sqrt(squared)


@compiled(fastmath=FAST)
def _unit_rows(indptr, data, out, start, stop):
    for row in range(start, stop):
        begin, end = indptr[row], indptr[row + 1]
        largest, length = _largest_and_length(data, begin, end)
        if largest == 0:
            out[begin:end] = 0
            continue
        factor = 1 / (largest * length)
        if 1e-300 < factor < 1e300:
            for position in range(begin, end):
                out[position] = np.float64(data[position]) * factor
        else:  # the factor itself would overflow or vanish
            for position in range(begin, end):
                out[position] = np.float64(data[position]) / largest / length
