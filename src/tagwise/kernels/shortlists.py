"""A few candidates per row: the k best of them, their margins, and scores that are stored for a few columns only.

Margins are exact scores of sparse linear models for the shortlisted labels alone; in long rows of the weights their
entries are looked up. Methods that look at neighbors store scores for a few columns of each row, while every other
column has a base score of its own: a label that no neighbor has gets the same score in every row. The k best of a row
are then found among its stored columns and the head of the columns sorted by base score; n×L never exists.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import FAST, compiled
from tagwise.kernels.gather_sum import fetch
from tagwise.kernels.top_k import hidden_pairs, keep, nothing_found
from tagwise.kernels.vectors import scratch
from tagwise.parallel import even_chunks, run_chunks
from tagwise.validation import shape_text

__all__ = [
    "Lookup",
    "behind",
    "behind_shortlist",
    "listed_products",
    "place_in_bitmap",
    "scores_of_listed",
    "shortlist_margins",
    "steps_by_feature",
    "top_k_of_listed",
]

_ROWS = 512
# Measured: looking a weight up takes as long as adding so many that are next to each other.
_ADDITIONS_PER_LOOKUP = 4
_BITS = 64
# How many labels ahead weights are prefetched.
_AHEAD = 3
# A row has a bitmap if it has more entries than this, and more than one in so many columns: the bitmap then takes at
# most three quarters of the bytes of the row's entries.
_SHORT, _SPARSE = 256, 32
# Numbers of an array that are taken in float64 together.
_FLOAT64_AT_ONCE = 1 << 15


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


def shortlist_margins(
    rows: sp.csr_matrix,
    labels: np.ndarray,
    weights: sp.csr_matrix | Lookup,
    intercept: np.ndarray,
    *,
    n_threads: int = 1,
) -> np.ndarray:
    """``x_iᵀ w_j + b_j`` for the labels j of a shortlist of each row: (n, M) in the type of ``rows``.

    ``labels`` is int (n, M), −1 for none (margin 0); ``weights`` CSR (L, d), or a
    :class:`Lookup` (d, L).

    By label, a row is spread over an array of d numbers and read at each label's features: time O(Σ weights of the
    shortlisted labels), memory d numbers per thread. By feature, the weights of a row's features are added up;
    of features with very many of them only those of the shortlisted labels, which are looked up. Memory L numbers per
    thread.
    """
    n_labels, n_features = len(intercept), rows.shape[1]
    by_feature = isinstance(weights, Lookup)
    expected = (n_features, n_labels) if by_feature else (n_labels, n_features)
    if labels.shape[0] != rows.shape[0] or weights.shape != expected:
        raise InvalidInputError(
            f"rows {rows.shape}, labels {labels.shape} and weights {weights.shape} must be n×d, n×M and "
            f"{'d×L' if by_feature else 'L×d'}."
        )
    out = np.zeros(labels.shape, dtype=rows.dtype)
    shift = intercept.astype(rows.dtype, copy=False)
    features = rows.indptr, rows.indices, rows.data
    if isinstance(weights, Lookup):
        lookup = weights

        def part(start: int, stop: int) -> None:
            totals = scratch("totals", n_labels, rows.dtype)
            _margins_by_feature(features, labels, lookup, shift, totals, out, start, stop)
    else:
        lists = weights.indptr, weights.indices, weights.data

        def part(start: int, stop: int) -> None:
            spread = scratch("spread", n_features, rows.dtype)
            _margins(features, labels, lists, shift, spread, out, start, stop)

    run_chunks(part, even_chunks(len(labels), _ROWS), n_threads)
    return out


def listed_products(rows: np.ndarray, labels: np.ndarray, weights: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
    """Inner products (n, M) of dense rows (n, q) with the weights (L, q) of listed labels (n, M); −1 gives 0.

    In the type of ``rows``. Time O(n·M·q), no memory but the result.
    """
    out = np.empty(labels.shape, dtype=rows.dtype)
    run_chunks(
        lambda start, stop: _listed_products(rows, labels, weights, out, start, stop),
        even_chunks(len(labels), _ROWS),
        n_threads,
    )
    return out


@compiled(fastmath=FAST)
def _listed_products(rows, labels, weights, out, start, stop):
    for row in range(start, stop):
        for place in range(labels.shape[1]):
            total = rows.dtype.type(0)
            if labels[row, place] >= 0:
                for feature in range(rows.shape[1]):
                    total += rows[row, feature] * weights[labels[row, place], feature]
            out[row, place] = total


def steps_by_feature(rows: sp.csr_matrix, weights: sp.csr_matrix, n_listed: int) -> int:
    """Cost of :func:`shortlist_margins` by feature, in additions, for ``weights`` (d, L) and M = ``n_listed``."""
    lookup = Lookup.of(weights)
    additions = np.where(lookup.bitmap_of < 0, np.diff(weights.indptr), _ADDITIONS_PER_LOOKUP * n_listed)
    return int(additions[rows.indices].sum())


def behind_shortlist(proposed: np.ndarray) -> np.ndarray:
    """Scores of labels outside a shortlist, in the order they were proposed in: below −½, under all shortlisted ones.

    s − 1 for a proposed score s < 0, and −½ − ½/(1 + s) from there on. ``proposed`` is (n, m), and so is the result.
    """
    out = np.empty_like(proposed)
    for start, stop in even_chunks(len(out), max(1, _FLOAT64_AT_ONCE // max(1, out.shape[1]))):
        scores = proposed[start:stop].astype(np.float64)
        out[start:stop] = np.where(scores < 0, scores - 1, -0.5 - 0.5 / (1 + np.maximum(scores, 0)))
    return out


def scores_of_listed(listed: sp.csr_matrix, base: np.ndarray) -> np.ndarray:
    """The scores as a dense array (n, L) in the type of ``base``; memory is the result."""
    _check_base(listed, base)
    out = np.tile(base, (listed.shape[0], 1))
    rows = np.repeat(np.arange(listed.shape[0]), np.diff(listed.indptr))
    out[rows, listed.indices] = listed.data
    return out


def top_k_of_listed(
    listed: sp.csr_matrix, base: np.ndarray, k: int, *, exclude: sp.csr_matrix | None = None, n_threads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest scores of each row, as :mod:`tagwise.kernels.top_k` says.

    Parameters
    ----------
    listed : CSR (n, L) without duplicates
        A stored entry is the score of its column, a stored 0 too.
    base : array (L,)
        The score of each column in the rows that do not list it.
    k, exclude, n_threads
        As in :func:`~tagwise.kernels.top_k_of_factors`; the indices of ``exclude`` need not be sorted.

    Notes
    -----
    Time O(L log L) once, then O(l·k) for a row of l listed and excluded columns. Memory O(n·k) and L numbers
    per thread.
    """
    _check_base(listed, base)
    hidden = hidden_pairs(exclude, listed.shape)
    labels, scores = nothing_found(listed.shape[0], k, base.dtype)
    by_base = np.argsort(-base, kind="stable")
    stored = listed.indptr, listed.indices, listed.data.astype(base.dtype, copy=False)
    run_chunks(
        lambda start, stop: _merge_listed(stored, base, by_base, hidden, start, stop, scores, labels),
        even_chunks(listed.shape[0], _ROWS),
        n_threads,
    )
    return labels, scores


def _check_base(listed: sp.csr_matrix, base: np.ndarray) -> None:
    if base.shape != (listed.shape[1],):
        raise InvalidInputError(
            f"base has shape {base.shape} where {shape_text(listed.shape)} listed scores need ({listed.shape[1]},)."
        )


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


@compiled(inner=True)
def _count_bits(word):
    """Number of bits that are 1, which the compiler makes one instruction."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled(inner=True)
def place_in_bitmap(lookup, bitmap, column):
    """Number of entries of a row before a column, by the row's bitmap, and whether (0 or 1) it is stored.

    Without a branch: whether an entry is there cannot be predicted.
    """
    word, bit = np.uintp(column) >> np.uintp(6), np.uint64(column) & np.uint64(63)
    bits = lookup.bits[bitmap, word]
    lower = (np.uint64(1) << bit) - np.uint64(1)
    return lookup.before[bitmap, word] + _count_bits(bits & lower), np.int64((bits >> bit) & np.uint64(1))


@compiled(inner=True)
def behind(score: float) -> float:
    """:func:`behind_shortlist` of one number, in compiled code."""
    if score < 0:
        return np.float64(score) - 1
    return -0.5 - 0.5 / (1 + np.float64(score))


@compiled(fastmath=FAST)
def _margins(features, labels, by_label, intercept, spread, out, start, stop):
    """``spread`` (d) is full of zeros, and left so."""
    indptr, indices, data = features
    label_indptr, weight_features, weights = by_label
    for row in range(start, stop):
        for position in range(indptr[row], indptr[row + 1]):
            spread[indices[position]] = data[position]
        for place in range(labels.shape[1]):
            label = labels[row, place]
            if label < 0:
                continue
            later = max(0, labels[row, min(place + _AHEAD, labels.shape[1] - 1)])
            fetch(weight_features, weights, label_indptr[later], label_indptr[later + 1])
            total = intercept[label]
            for position in range(np.uintp(label_indptr[label]), np.uintp(label_indptr[label + 1])):
                total += weights[position] * spread[np.uintp(weight_features[position])]
            out[row, place] = total
        for position in range(indptr[row], indptr[row + 1]):
            spread[indices[position]] = 0


@compiled(fastmath={"contract"})
def _margins_by_feature(features, labels, lookup, shift, totals, out, start, stop):
    indptr, indices, data = features
    n_listed, last = labels.shape[1], len(lookup.values) - 1
    for row in range(start, stop):
        listed, margins = labels[row], out[row]
        # Totals of labels that are not on the row's shortlist are never read.
        for place in range(n_listed):
            if listed[place] >= 0:
                margins[place], totals[listed[place]] = shift[listed[place]], 0
        for entry in range(indptr[row], indptr[row + 1]):
            value, feature, later = data[entry], indices[entry], indices[min(entry + 1, indptr[row + 1] - 1)]
            if lookup.bitmap_of[later] < 0:
                fetch(lookup.columns, lookup.values, lookup.starts[later], lookup.starts[later + 1])
            begin, end, bitmap = lookup.starts[feature], lookup.starts[feature + 1], lookup.bitmap_of[feature]
            if bitmap < 0:
                for at in range(np.uintp(begin), np.uintp(end)):
                    totals[np.uintp(lookup.columns[at])] += value * lookup.values[at]
                continue
            for place in range(n_listed):
                before, there = place_in_bitmap(lookup, bitmap, max(listed[place], 0))
                margins[place] += value * (lookup.values[np.uintp(min(begin + before, last))] * there)
        for place in range(n_listed):
            margins[place] = margins[place] + totals[listed[place]] if listed[place] >= 0 else 0


@compiled()
def _merge_listed(stored, base, by_base, hidden, start, stop, scores, labels):
    indptr, indices, values = stored
    hidden_indptr, hidden_indices = hidden
    # The last row, counted from 1, that hid or listed a column: hidden columns first, so that listing cannot bring them
    # back; neither takes a base score.
    seen_in = np.zeros(len(base), dtype=np.int64)
    for row in range(start, stop):
        best, names = scores[row], labels[row]
        if len(hidden_indptr) > 0:
            for position in range(hidden_indptr[row], hidden_indptr[row + 1]):
                seen_in[hidden_indices[position]] = row + 1
        for position in range(indptr[row], indptr[row + 1]):
            column = indices[position]
            if seen_in[column] != row + 1:
                seen_in[column] = row + 1
                keep(best, names, values[position], column)
        for column in by_base:
            if seen_in[column] != row + 1 and not keep(best, names, base[column], column):
                break
