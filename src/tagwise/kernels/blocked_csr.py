"""A CSR matrix that is multiplied from both sides without a stored transpose: rows are transposed a group at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import compiled
from tagwise.kernels.gather_sum import sum_rows
from tagwise.kernels.products import FeatureMatrix, RowsOf, csr_matmul, row_range
from tagwise.kernels.vectors import aligned_zeros
from tagwise.parallel import Bounds, even_chunks, run_chunks, work_chunks

__all__ = ["N_BLOCKS", "BlockedCSR"]

# Features gather from as many columns of a group's rows at a time as a processor's last cache holds, at least from one
# stripe.
_CACHED_BYTES = 1 << 24
_STRIPE = 64
# Rows within a group are numbered by 16 bits.
_MOST_GROUP_ROWS = 1 << 16
# The dense factor of a transposed product is asked for in this many blocks of rows by default.
N_BLOCKS = 4
# A float32 sum over many rows loses digits; partial sums of this many terms are collected in float64 instead. A sum
# that goes on over all groups has no more terms either.
_PARTIAL_TERMS = 256
# Rows scaled by a thread at a time.
_SCALED_ROWS = 2048


class BlockedCSR(FeatureMatrix):
    """diag(``row_scale``) · CSR, for products from both sides with dense factors of about ``width`` columns.

    The transposed product goes over blocks of rows and, within them, over groups: the entries of a group are transposed
    (sorted by feature), and features then gather from its rows, in stripes of columns that fit the cache. Groups are
    transposed for every product or, as far as ``keep_bytes`` allow, once. Sums over rows run in the order of the rows
    whatever the number of threads.

    Parameters
    ----------
    matrix : CSR (n, d), n > 0
    width : int
        k, which decides about the size of groups.
    row_scale : array (n,), optional
        Factors of the rows, so that scaled rows need no copy of the values.
    keep_bytes : float
        Memory for transposed groups.
    n_blocks : int
        More of them need less memory at a time, for the dense factor and for groups that are not kept.
    n_threads : int
    """

    def __init__(
        self,
        matrix: sp.csr_matrix,
        *,
        width: int,
        row_scale: np.ndarray | None = None,
        keep_bytes: float = 0,
        n_blocks: int = N_BLOCKS,
        n_threads: int = 1,
    ) -> None:
        if matrix.shape[0] == 0:
            raise InvalidInputError("matrix must have rows: without any there is no transposed product.")
        self.matrix, self.row_scale, self.n_threads = matrix, row_scale, n_threads
        self._blocks = even_chunks(matrix.shape[0], -(-matrix.shape[0] // n_blocks))
        self._group_rows = _rows_per_group(matrix, self._blocks, width, keep_bytes)
        self._groups = _groups(self._blocks, self._group_rows)
        n_kept = int(np.searchsorted(_transposed_bytes(matrix, self._groups), keep_bytes, side="right"))
        self._kept = _rooms(matrix, self._groups[:n_kept])
        for (start, stop), room in zip(self._groups, self._kept, strict=False):
            self._transpose(start, stop, room)
        # For the groups that are not kept, one after the other; as large as the largest of all.
        self._room: _Transposed | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def matmul_rows(self, right: np.ndarray, start: int, stop: int) -> np.ndarray:
        """The rows ``start`` to ``stop`` of X @ right."""
        product = csr_matmul(row_range(self.matrix, start, stop), right, n_threads=self.n_threads)
        if self.row_scale is not None:
            scale = self.row_scale[start:stop, None]

            def scaled(first: int, last: int) -> None:
                product[first:last] *= scale[first:last]

            run_chunks(scaled, even_chunks(len(product), _SCALED_ROWS), self.n_threads)
        return product

    def rmatmul(self, left: np.ndarray) -> np.ndarray:
        """Xᵀ @ left."""
        if left.ndim != 2 or len(left) != self.shape[0]:
            raise InvalidInputError(
                f"left must have {self.shape[0]} rows to be multiplied by the transpose of a matrix of shape "
                f"{self.shape}; found shape {left.shape}."
            )
        return self.rmatmul_blocks(lambda start, stop: left[start:stop])

    def rmatmul_blocks(self, rows_of: RowsOf) -> np.ndarray:
        """Xᵀ @ left for the left (n×k) of which ``rows_of(start, stop)`` gives rows; asked for once each, in order."""
        out = np.empty((0, 0))
        place = 0
        for start, stop in self._blocks:
            left = np.ascontiguousarray(rows_of(start, stop))
            if start == 0:
                out = aligned_zeros((self.shape[1], left.shape[1]), left.dtype)
            if left.shape != (stop - start, out.shape[1]) or left.dtype != out.dtype:
                raise InvalidInputError(
                    f"rows {start} to {stop} must have the shape {(stop - start, out.shape[1])} and the type "
                    f"{out.dtype}; found shape {left.shape} and type {left.dtype}."
                )
            for first, last in even_chunks(stop - start, self._group_rows):
                if place < len(self._kept):
                    transposed = self._kept[place]
                else:
                    transposed = self._transposed(start + first, start + last)
                _add_transposed(transposed, left[first:last], out, _PARTIAL_TERMS // len(self._groups), self.n_threads)
                place += 1
            del left  # or the next block would be made beside it
        return out

    def _transposed(self, start: int, stop: int) -> _Transposed:
        """A group that is not kept, in the room that all of them share."""
        if self._room is None:
            indptr = self.matrix.indptr
            self._room = _rooms(
                self.matrix, [max(self._groups, key=lambda group: indptr[group[1]] - indptr[group[0]])]
            )[0]
        self._transpose(start, stop, self._room)
        return self._room

    def _transpose(self, start: int, stop: int, room: _Transposed) -> None:
        """Transpose rows of the matrix into ``room``, by a counting sort."""
        rows = self.matrix.indptr, self.matrix.indices, self.matrix.data
        scale = np.ones(1, dtype=self.matrix.dtype) if self.row_scale is None else self.row_scale
        # How many pieces share the counting does not show in the result, so there may be one a thread.
        positions = np.empty((max(1, self.n_threads), self.shape[1]), dtype=self.matrix.indptr.dtype)
        size = -(-(stop - start) // len(positions))
        pieces = even_chunks(stop - start, size)
        positions[len(pieces) :] = 0

        def count(first: int, last: int) -> None:
            _count(rows, start + first, start + last, positions[first // size])

        def place(first: int, last: int) -> None:
            _place(rows, scale, start, start + first, start + last, positions[first // size], room)

        run_chunks(count, pieces, self.n_threads)
        _counts_to_positions(positions, room.indptr)
        run_chunks(place, pieces, self.n_threads)


def _groups(blocks: Bounds, group_rows: int) -> Bounds:
    return [
        (start + first, start + last) for start, stop in blocks for first, last in even_chunks(stop - start, group_rows)
    ]


def _rows_per_group(matrix: sp.csr_matrix, blocks: Bounds, width: int, keep_bytes: float) -> int:
    """A block if all transposed groups can be kept, else about what takes half as much, transposed, as a block of n×k.

    Every group reads and writes a row of the product for each of its features, so few large groups are best.
    """
    block = blocks[0][1]
    rows = _equal_parts(block, _MOST_GROUP_ROWS)
    if _transposed_bytes(matrix, _groups(blocks, rows))[-1] <= keep_bytes:
        return rows
    row_bytes = max(1.0, matrix.nnz / matrix.shape[0]) * _entry_bytes(matrix)
    most = block * max(1, width) * matrix.data.itemsize / 2 / row_bytes
    return min(rows, _equal_parts(block, max(1, int(most))))


def _equal_parts(rows: int, most: int) -> int:
    """Rows of each when ``rows`` are cut into as few parts of at most ``most`` rows as possible."""
    return -(-rows // -(-rows // most))


def _transposed_bytes(matrix: sp.csr_matrix, groups: Bounds) -> np.ndarray:
    """Memory of the first group, of the first two, and so on, when transposed."""
    ends = matrix.indptr[[stop for _, stop in groups]].astype(np.int64)
    indptr_bytes = (matrix.shape[1] + 1) * matrix.indptr.itemsize
    return ends * _entry_bytes(matrix) + indptr_bytes * np.arange(1, len(groups) + 1)


def _entry_bytes(matrix: sp.csr_matrix) -> int:
    """A value and 16 bits of a row's number."""
    return 2 + matrix.data.itemsize


class _Transposed(NamedTuple):
    """Some rows of the matrix as CSR over features: a feature's entries lie together, in the order of the rows."""

    indptr: np.ndarray
    rows: np.ndarray
    values: np.ndarray


def _rooms(matrix: sp.csr_matrix, groups: Bounds) -> list[_Transposed]:
    """Room for groups that follow one another, in three arrays: many small ones would split the heap."""
    starts = [int(matrix.indptr[start]) for start, _ in groups]
    stops = [int(matrix.indptr[stop]) for _, stop in groups]
    entries = stops[-1] - starts[0] if groups else 0
    indptr = np.empty((len(groups), matrix.shape[1] + 1), dtype=matrix.indptr.dtype)
    rows, values = np.empty(entries, dtype=np.uint16), np.empty(entries, dtype=matrix.dtype)
    parts = [slice(start - starts[0], stop - starts[0]) for start, stop in zip(starts, stops, strict=True)]
    return [_Transposed(indptr[place], rows[part], values[part]) for place, part in enumerate(parts)]


def _add_transposed(
    transposed: _Transposed, left: np.ndarray, out: np.ndarray, added_terms: int, n_threads: int
) -> None:
    """``out`` += transposed @ left, in stripes of columns; sums of up to ``added_terms`` continue those in ``out``."""
    arrays = tuple(transposed)  # numba 0.59 takes named tuples of other types for those that it has compiled
    chunks = work_chunks(transposed.indptr)
    stripe = max(1, int(_CACHED_BYTES // (len(left) * left.itemsize * _STRIPE))) * _STRIPE
    for start, stop in even_chunks(left.shape[1], stripe):

        def features(first: int, last: int, start: int = start, stop: int = stop) -> None:
            _add_products(arrays, left, out, added_terms, (start, stop), first, last)

        run_chunks(features, chunks, n_threads)


@compiled()
def _count(matrix, start, stop, counts):
    """How often each feature is stored in the rows ``start`` to ``stop``."""
    indptr, indices, _ = matrix
    counts[:] = 0
    for position in range(np.uintp(indptr[start]), np.uintp(indptr[stop])):
        counts[np.uintp(indices[position])] += 1


@compiled()
def _counts_to_positions(counts, indptr):
    """Counts of each piece (p×d) to where its first entry of each feature goes; ``indptr`` of the transposed rows."""
    total = 0
    for feature in range(counts.shape[1]):
        indptr[feature] = total
        for piece in range(counts.shape[0]):
            here = counts[piece, feature]
            counts[piece, feature] = total
            total += here
    indptr[counts.shape[1]] = total


@compiled()
def _place(matrix, scale, origin, start, stop, positions, room):
    """Put the scaled entries of the rows ``start`` to ``stop`` where ``positions`` says, numbered from ``origin``."""
    indptr, indices, data = matrix
    _, rows, values = room
    one = scale[0]
    for row in range(start, stop):
        factor = scale[row] if len(scale) > 1 else one
        place = np.uint16(row - origin)
        for position in range(np.uintp(indptr[row]), np.uintp(indptr[row + 1])):
            feature = np.uintp(indices[position])
            target = np.uintp(positions[feature])
            positions[feature] += 1
            rows[target] = place
            values[target] = data[position] * factor


@compiled(fastmath={"contract"})
def _add_products(transposed, left, out, added_terms, columns, first, last):
    """``out[f]`` += Σ values · rows of ``left``: features ``first`` to ``last``, in ``columns`` = (start, stop)."""
    indptr, rows, values = transposed
    start, stop = columns
    width = left.shape[1]
    part = np.empty(stop - start, dtype=left.dtype)
    total = np.empty(stop - start, dtype=np.float64)
    limit, shift = np.int64(indptr[last]), np.uintp(start)
    for feature in range(first, last):
        begin, end = np.int64(indptr[feature]), np.int64(indptr[feature + 1])
        if begin == end:
            continue
        if end - begin <= added_terms:
            sum_rows(rows, values, left, (begin, end, limit), columns, 1, out, feature * width)
            continue
        total[:] = 0
        while begin < end:
            after = min(begin + _PARTIAL_TERMS, end)
            sum_rows(rows, values, left, (begin, after, limit), columns, 0, part, -start)
            for column in range(len(part)):
                total[column] += part[column]
            begin = after
        for column in range(np.uintp(len(part))):
            out[feature, shift + column] += total[column]
