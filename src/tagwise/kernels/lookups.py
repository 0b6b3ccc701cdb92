"""Sparse matrices of which single entries are looked up: long rows have bitmaps, short ones are read as a whole."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.kernels.compiled import compiled

__all__ = ["Lookup", "place_in_bitmap"]

_BITS = 64
# A row has a bitmap if it has more entries than this, and more than one in so many columns: the bitmap then takes at
# most three quarters of the bytes of the row's entries.
_SHORT, _SPARSE = 256, 32


class Lookup(NamedTuple):
    """A CSR matrix (m, n) without duplicates, and bitmaps of those rows that are too long to be read for a few entries.

    Memory beside the matrix, whose arrays are shared: 4 bytes per row, and 12 bytes for 64 columns of a long one.
    """

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    bitmap_of: np.ndarray
    """int32 (m,): the number of the row's bitmap, −1 for none."""
    bits: np.ndarray
    """uint64 (bitmaps, ⌈n/64⌉): which columns are stored."""
    before: np.ndarray
    """int32, as ``bits``: how many entries of the row come before these 64 columns."""
    n_columns: int

    @classmethod
    def of(cls, matrix: sp.csr_matrix) -> Lookup:
        """Time O(nnz), and a copy of the matrix where its indices are not sorted yet."""
        if not matrix.has_sorted_indices:
            matrix = matrix.sorted_indices()
        n_columns = matrix.shape[1]
        is_long = np.diff(matrix.indptr) > max(_SHORT, n_columns // _SPARSE)
        bitmap_of = np.where(is_long, np.cumsum(is_long) - 1, -1).astype(np.int32)
        bits = np.zeros((int(is_long.sum()), -(-n_columns // _BITS)), dtype=np.uint64)
        before = np.zeros(bits.shape, dtype=np.int32)
        found = cls(matrix.indptr, matrix.indices, matrix.data, bitmap_of, bits, before, n_columns)
        if len(bits):
            _fill_bitmaps(found)
        return found

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        return len(self.bitmap_of), self.n_columns


@compiled()
def _fill_bitmaps(lookup):
    for row in range(len(lookup.bitmap_of)):
        if lookup.bitmap_of[row] < 0:
            continue
        bits, before = lookup.bits[lookup.bitmap_of[row]], lookup.before[lookup.bitmap_of[row]]
        for at in range(lookup.starts[row], lookup.starts[row + 1]):
            bits[lookup.columns[at] >> 6] |= np.uint64(1) << np.uint64(lookup.columns[at] & 63)
        for word in range(1, len(bits)):
            before[word] = before[word - 1] + _count_bits(bits[word - 1])


@compiled()
def _count_bits(word):
    """How many bits are 1; the compiler knows this for one instruction."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled()
def place_in_bitmap(lookup, bitmap, column):
    """How many entries of a row come before a column, by the row's bitmap, and whether (0 or 1) it is stored.

    Without a branch: whether an entry is there cannot be predicted.
    """
    word, bit = np.uintp(column) >> np.uintp(6), np.uint64(column) & np.uint64(63)
    bits = lookup.bits[bitmap, word]
    lower = (np.uint64(1) << bit) - np.uint64(1)
    return lookup.before[bitmap, word] + _count_bits(bits & lower), np.int64((bits >> bit) & np.uint64(1))
