"""The k best columns of each row, exact, ties to the lower column: of scores, of low rank, of low rank plus sparse.

A tile of scores is made by BLAS, merged into each row's k best, and dropped, so memory is O(n·k) plus one tile per
thread and an n×L array never exists.

A sparse part S is stored by features: row f lists the labels with a weight on f. A tile of scores covers some rows and
a range of labels; each stored feature of a row keeps a cursor into its list of labels, which the tiles of a row block
move from left to right. So every list is read once per row.

All functions of this file, of :mod:`tagwise.kernels.norm_pruned` and of :mod:`tagwise.kernels.shortlists` return

- labels, int64 (n, k): best first, equal scores in the order of their ids; -1 where a row has no more labels;
- scores, (n, k) in the type of the factors or scores: -inf where the label is -1;

and leave out the pairs that ``exclude``, CSR (n, L) with sorted indices, stores.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import FAST, compiled
from tagwise.kernels.sampled_pairs import first_from
from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas

__all__ = [
    "check_parts",
    "count_above",
    "count_from",
    "hidden_pairs",
    "hide",
    "keep",
    "keep_from",
    "kth_largest",
    "lowest_finite",
    "merge",
    "nothing_found",
    "row_blocks",
    "scores_of_factors_and_sparse",
    "sort_best",
    "sort_names",
    "top_k_of_factors",
    "top_k_of_factors_and_sparse",
    "top_k_of_scores",
]

# 512 rows × 512 labels of float32 are 1 MB: large enough for BLAS to run at speed, small enough for the L2 cache.
_TILE_SCORES = 1 << 18
_MOST_ROWS, _FEWEST_ROWS = 512, 256
# As many blocks as keep several threads busy come before large blocks.
_BLOCKS = 8
SCAN_WIDTH = 64
# With a sparse part, measured: BLAS wants many rows; the lists of labels want wide tiles, as each tile has to find its
# end in every list. 4 MB of float32 hold both and stay in a shared cache. Without factors few rows of all labels are
# best.
_SPARSE_TILE_SCORES = 1 << 20
_ROWS_WITH_FACTORS = 256
_ROWS_WITHOUT_FACTORS = 16
# Measured: from so many of the best on, and up to so many scores for each of them, a search for the least one pays.
_LONG_LIST, _SCORES_PER_PLACE = 10, 64

# Sorting one number takes as long as a look at so many places.
_SORTED_PER_LOOK = 16
_LOWEST_FLOAT32, _LOWEST_FLOAT64 = float(np.finfo(np.float32).min), float(np.finfo(np.float64).min)
_NONE_HIDDEN = np.zeros(0, dtype=np.int32)


def top_k_of_factors(
    left: np.ndarray,
    right: np.ndarray,
    k: int,
    *,
    intercept: np.ndarray | None = None,
    exclude: sp.csr_matrix | None = None,
    n_threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest entries of each row of ``left @ rightᵀ + intercept``, as the module says.

    Parameters
    ----------
    left : array (n, r)
    right : array (L, r)
        Both of one floating type.
    k : int
        How many per row; may exceed L.
    intercept : array (L,), optional
        Added to every row.
    exclude : CSR (n, L) with sorted indices, optional
    n_threads : int
        Row blocks are spread over this many threads; the result has the same bits for any number of them.

    Notes
    -----
    Time O(n·L·r), memory O(n·k) and one tile of about a megabyte per thread.
    """
    n_rows, n_labels = len(left), len(right)
    hidden = hidden_pairs(exclude, (n_rows, n_labels))
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    labels, scores = nothing_found(n_rows, k, left.dtype)
    shift = np.zeros(n_labels, dtype=left.dtype) if intercept is None else intercept.astype(left.dtype, copy=False)

    def rows(start: int, stop: int) -> None:
        width = max(_MOST_ROWS, _TILE_SCORES // (stop - start))
        buffer = np.empty((stop - start) * min(width, n_labels), dtype=left.dtype)
        for first, last in even_chunks(n_labels, width):
            tile = buffer[: (stop - start) * (last - first)].reshape(stop - start, last - first)
            np.matmul(left[start:stop], right[first:last].T, out=tile)
            hide(tile, hidden, start, first, -np.inf)
            _merge_shifted(tile, first, shift[first:last], scores[start:stop], labels[start:stop])

    with single_threaded_blas():
        run_chunks(rows, row_blocks(n_rows), n_threads)
    return labels, scores


def row_blocks(n_rows: int) -> list[tuple[int, int]]:
    """Borders of the blocks of rows whose scores are made together."""
    return even_chunks(n_rows, min(_MOST_ROWS, max(_FEWEST_ROWS, n_rows // _BLOCKS)))


def top_k_of_scores(
    block: np.ndarray, k: int, *, exclude: sp.csr_matrix | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest entries of each row of a block of scores (n×L), which is left as it is. Time O(n·L)."""
    hidden = hidden_pairs(exclude, block.shape)
    labels, scores = nothing_found(len(block), k, block.dtype)
    if exclude is not None:
        block = block.copy()
        hide(block, hidden, 0, 0, -np.inf)
    merge(np.ascontiguousarray(block), 0, scores, labels)
    return labels, scores


def nothing_found(n_rows: int, k: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Labels (n, k) of -1 and scores (n, k) of -inf, which a merge starts from."""
    if k < 1:
        raise InvalidInputError(f"k must be at least 1; found {k}.")
    labels, scores = np.empty((n_rows, k), dtype=np.int64), np.empty((n_rows, k), dtype=dtype)
    labels.fill(-1)
    scores.fill(-np.inf)
    return labels, scores


def hidden_pairs(exclude: sp.csr_matrix | None, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Indptr and indices of the pairs to exclude from scores of this shape; both empty for none."""
    if exclude is None:
        return _NONE_HIDDEN, _NONE_HIDDEN
    if exclude.shape != shape:
        raise InvalidInputError(f"exclude has shape {exclude.shape} where the scores have {shape}.")
    return exclude.indptr, exclude.indices


def top_k_of_factors_and_sparse(
    left: np.ndarray,
    right: np.ndarray,
    k: int,
    *,
    intercept: np.ndarray | None = None,
    rows: sp.csr_matrix,
    sparse: sp.csr_matrix,
    exclude: sp.csr_matrix | None = None,
    n_threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest entries of each row of ``left @ rightᵀ + intercept + rows @ sparse``, as the module says.

    ``rows`` is CSR (n, d), the features X; ``sparse`` CSR (d, L), the weights S, where sorted indices save a copy; the
    other arguments are those of :func:`top_k_of_factors`. Without a low rank, ``left`` and ``right`` have width 0.

    Time O(n·L·r) by BLAS, O(n·L) to look for the best and one addition for every weight that a stored feature of a row
    has. Memory O(n·k) and, per thread, one tile of 2²⁰ scores and 8 bytes for each stored entry of 256 rows.
    """
    n_rows, n_labels = len(left), len(right)
    sparse = check_parts(left, right, rows, sparse)
    hidden = hidden_pairs(exclude, (n_rows, n_labels))
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    labels, scores = nothing_found(n_rows, k, left.dtype)
    shift = _check_intercept(intercept, n_labels, left.dtype)
    features, lists = (rows.indptr, rows.indices, rows.data), (sparse.indptr, sparse.indices, sparse.data)

    def block(start: int, stop: int) -> None:
        width = _SPARSE_TILE_SCORES // (stop - start)
        buffer = np.empty((stop - start) * min(width, n_labels), dtype=left.dtype)
        cursors = _first_positions(rows, sparse, start, stop)
        for first, last in even_chunks(n_labels, width):
            tile = buffer[: (stop - start) * (last - first)].reshape(stop - start, last - first)
            _multiply(left[start:stop], right[first:last], tile)
            _add_sparse(tile, first, start, features, lists, shift, cursors)
            hide(tile, hidden, start, first, -np.inf)
            merge(tile, first, scores[start:stop], labels[start:stop])

    with single_threaded_blas():
        run_chunks(block, even_chunks(n_rows, _rows_per_block(left)), n_threads)
    return labels, scores


def scores_of_factors_and_sparse(
    left: np.ndarray,
    right: np.ndarray,
    *,
    intercept: np.ndarray | None = None,
    rows: sp.csr_matrix,
    sparse: sp.csr_matrix,
    n_threads: int = 1,
) -> np.ndarray:
    """``left @ rightᵀ + intercept + rows @ sparse`` as a dense array (n, L) in the type of ``left``.

    Arguments as in :func:`top_k_of_factors_and_sparse`, with the same time; memory is the result.
    """
    n_labels = len(right)
    sparse = check_parts(left, right, rows, sparse)
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    shift = _check_intercept(intercept, n_labels, left.dtype)
    out = np.empty((len(left), n_labels), dtype=left.dtype)
    features, lists = (rows.indptr, rows.indices, rows.data), (sparse.indptr, sparse.indices, sparse.data)

    def block(start: int, stop: int) -> None:
        _multiply(left[start:stop], right, out[start:stop])
        cursors = _first_positions(rows, sparse, start, stop)
        _add_sparse(out[start:stop], 0, start, features, lists, shift, cursors)

    with single_threaded_blas():
        run_chunks(block, even_chunks(len(left), _rows_per_block(left)), n_threads)
    return out


def _rows_per_block(left: np.ndarray) -> int:
    return _ROWS_WITH_FACTORS if left.shape[1] else _ROWS_WITHOUT_FACTORS


def _multiply(left: np.ndarray, right: np.ndarray, tile: np.ndarray) -> None:
    """``left @ rightᵀ`` into the tile; numpy is slow at sums of no terms."""
    if left.shape[1]:
        np.matmul(left, right.T, out=tile)
    else:
        tile.fill(0)


def check_parts(left: np.ndarray, right: np.ndarray, rows: sp.csr_matrix, sparse: sp.csr_matrix) -> sp.csr_matrix:
    """``sparse`` with sorted indices; raises where the four parts do not fit together."""
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1]:
        raise InvalidInputError(f"left and right must be n×r and L×r; found shapes {left.shape} and {right.shape}.")
    if left.dtype != right.dtype or left.dtype.kind != "f":
        raise InvalidInputError(
            f"left and right must share one floating type; found types {left.dtype} and {right.dtype}."
        )
    if not (sp.issparse(rows) and sp.issparse(sparse) and rows.format == "csr" and sparse.format == "csr"):
        raise InvalidInputError("rows and sparse must be CSR matrices; convert them with scipy.sparse.csr_matrix.")
    if rows.shape[0] != len(left) or sparse.shape[1] != len(right) or rows.shape[1] != sparse.shape[0]:
        raise InvalidInputError(
            f"rows and sparse must be {len(left)}×d and d×{len(right)}; found shapes {rows.shape} and {sparse.shape}."
        )
    return sparse if sparse.has_sorted_indices else sparse.sorted_indices()


def _check_intercept(intercept: np.ndarray | None, n_labels: int, dtype: np.dtype) -> np.ndarray:
    """As an array of the scores' type; of length 0 where there is none."""
    if intercept is None:
        return np.empty(0, dtype=dtype)
    if intercept.shape != (n_labels,):
        raise InvalidInputError(f"intercept has shape {intercept.shape} where {(n_labels,)} is expected.")
    return np.ascontiguousarray(intercept, dtype=dtype)


def _first_positions(rows: sp.csr_matrix, sparse: sp.csr_matrix, start: int, stop: int) -> np.ndarray:
    """Where the list of labels of each stored entry of these rows begins."""
    return sparse.indptr[rows.indices[rows.indptr[start] : rows.indptr[stop]]].astype(np.int64)


@compiled()
def merge(tile, first_label, best_scores, best_labels):
    """Merge scores (n×width) of labels ``first_label`` … into the k best of each row; labels come in rising order."""
    _merge_shifted(tile, first_label, np.zeros(tile.shape[1], dtype=tile.dtype), best_scores, best_labels)


# Scores are finite or -inf, never NaN.
@compiled(fastmath=FAST)
def _merge_shifted(tile, first_label, shift, best_scores, best_labels):
    """:func:`merge` of scores to which the labels' ``shift`` (width) is still to be added."""
    n_rows, width = tile.shape
    last = best_scores.shape[1] - 1
    # Of a long list, most scores that enter are pushed out again, unless those that stay are known beforehand.
    k = last + 1
    is_long = k >= _LONG_LIST and k < width <= _SCORES_PER_PLACE * k
    shifted = np.empty(width if is_long else 0, dtype=tile.dtype)
    own_names = np.arange(first_label, first_label + (width if is_long else 0))
    floor = tile.dtype.type(-np.inf)
    for row in range(n_rows):
        scores = tile[row]
        best = best_scores[row]
        names = best_labels[row]
        worst = best[last]
        if is_long:
            for column in range(width):
                shifted[column] = scores[column] + shift[column]
            floor = kth_largest(shifted, k)
            if names[0] < 0 and floor > -np.inf:
                keep_from(floor, shifted, own_names, best, names)
                sort_best(best, names, k)
                continue
        for begin in range(0, width, SCAN_WIDTH):
            end = begin + SCAN_WIDTH
            if end > width:
                end = width
            else:
                # Counting takes a comparison and an addition of integers for 8 scores at once; a maximum, which would
                # answer the same question, is computed a score at a time by the compiler.
                above = np.int32(0)
                for column in range(begin, begin + SCAN_WIDTH):
                    score = scores[column] + shift[column]
                    above += np.int32(score > worst) & np.int32(score >= floor)
                if above == 0:
                    continue
            for column in range(begin, end):
                score = scores[column] + shift[column]
                # Labels come in rising order, so ">" leaves an equal score to the label that is there already.
                if score > worst and score >= floor:
                    place = last
                    while place > 0 and best[place - 1] < score:
                        best[place] = best[place - 1]
                        names[place] = names[place - 1]
                        place -= 1
                    best[place] = score
                    names[place] = first_label + column
                    worst = best[last]


@compiled()
def hide(tile, hidden, first_row, first_label, value):
    """Give hidden pairs the score ``value`` in a tile; ``hidden`` as in :func:`hidden_pairs`."""
    indptr, indices = hidden
    if len(indptr) == 0:
        return
    n_rows, width = tile.shape
    for row in range(n_rows):
        begin, end = indptr[first_row + row], indptr[first_row + row + 1]
        position = first_from(indices, begin, end, first_label)
        while position < end and indices[position] < first_label + width:
            tile[row, indices[position] - first_label] = value
            position += 1


@compiled(inner=True, fastmath=FAST)
def keep(best, names, score, label):
    """Put a label among the k best of a row, of equal scores the lower label first; returns whether it got a place."""
    last = len(best) - 1
    if names[last] >= 0 and (score < best[last] or (score == best[last] and label > names[last])):
        return False
    at = last
    while at > 0 and (names[at - 1] < 0 or best[at - 1] < score or (best[at - 1] == score and names[at - 1] > label)):
        best[at], names[at] = best[at - 1], names[at - 1]
        at -= 1
    best[at], names[at] = score, label
    return True


@compiled(inner=True, fastmath=FAST)
def count_above(values, least):
    """Number of values above ``least``."""
    count = np.int32(0)
    for at in range(len(values)):
        count += np.int32(values[at] > least)
    return count


@compiled(inner=True, fastmath=FAST)
def count_from(values, least):
    """Number of values of at least ``least``."""
    count = np.int32(0)
    for at in range(len(values)):
        count += np.int32(values[at] >= least)
    return count


@compiled(inner=True)
def lowest_finite(values):
    """The lowest finite number of the array's floating type."""
    return values.dtype.type(_LOWEST_FLOAT32 if values.itemsize == 4 else _LOWEST_FLOAT64)


@compiled(inner=True, fastmath=FAST)
def kth_largest(values, k):
    """A number that the k largest values reach, and no others unless they equal it; -inf if fewer are finite.

    By halving the range in which it lies: a step counts 8 values or more at once, without a branch for any, which takes
    a fifth of the time of a partition of some hundred values.
    """
    low, high = values[0], values[0]
    for at in range(len(values)):
        low = values[at] if values[at] < low else low
        high = values[at] if values[at] > high else high
    if low == -np.inf:
        low = lowest_finite(values)
        if count_from(values, low) < k:
            return values.dtype.type(-np.inf)
    if count_from(values, high) >= k:
        return high
    if high == np.inf:
        high = -lowest_finite(values)
        if count_from(values, high) >= k:
            return high
    # At least k values reach low, and fewer reach high.
    half = values.dtype.type(0.5)
    while True:
        middle = low + (high - low) * half if high - low < np.inf else low * half + high * half
        if not low < middle < high:
            return low
        count = count_from(values, middle)
        if count == k:
            return middle
        if count > k:
            low = middle
        else:
            high = middle


@compiled(fastmath={"contract"})
def _add_sparse(tile, first, start, features, lists, shift, cursors):
    """Add the intercept and the weights of labels ``first`` … to a tile, and move the cursors past them."""
    indptr, indices, data = features
    list_indptr, list_labels, list_weights = lists
    n_rows, width = tile.shape
    stop = first + width
    origin = indptr[start]
    for row in range(n_rows):
        target = tile[row]
        if len(shift) > 0:
            for column in range(width):
                target[column] += shift[first + column]
        for entry in range(indptr[start + row], indptr[start + row + 1]):
            begin = cursors[entry - origin]
            # A loop of known length is twice as fast as one that compares each label with the tile's end.
            end = first_from(list_labels, begin, list_indptr[indices[entry] + 1], stop)
            value = tile.dtype.type(data[entry])
            for at in range(np.uintp(begin), np.uintp(end)):
                target[np.uintp(list_labels[at] - first)] += value * tile.dtype.type(list_weights[at])
            cursors[entry - origin] = end


@compiled(inner=True)
def keep_from(least, scores, names, best_scores, best_names):
    """The k best scores and their names, in the order they come in: those above ``least``, and the first equal ones."""
    equal = len(best_scores) - count_above(scores, least)
    kept = 0
    for at in range(len(scores)):
        if scores[at] > least or (scores[at] == least and equal > 0):
            equal -= scores[at] == least
            best_scores[kept], best_names[kept] = scores[at], names[at]
            kept += 1


@compiled(inner=True)
def sort_best(scores, names, count):
    """Bring the first ``count`` scores, and their names, in falling order; of equal scores the lower name first.

    Shell's sort, as numba takes a second and a half to compile ``argsort``.
    """
    gap = count // 2
    while gap > 0:
        for at in range(gap, count):
            score, name, place = scores[at], names[at], at
            while place >= gap:
                before = place - gap
                if scores[before] > score or (scores[before] == score and names[before] < name):
                    break
                scores[place], names[place] = scores[before], names[before]
                place = before
            scores[place], names[place] = score, name
        gap //= 2


@compiled(inner=True)
def sort_names(names, places):
    """Bring names in rising order; ``places`` is −1 for every name that is not among them.

    Where there are many, by a look at all places; else Shell's sort, as numba takes half a second to compile ``sort``.
    """
    count = len(names)
    if count * _SORTED_PER_LOOK > len(places):
        at = 0
        for name in range(len(places)):
            if places[name] >= 0:
                names[at] = name
                at += 1
        return
    gap = 1
    while 3 * gap < count:
        gap = 3 * gap + 1
    while gap > 0:
        for at in range(gap, count):
            name, place = names[at], at
            while place >= gap and names[place - gap] > name:
                names[place] = names[place - gap]
                place -= gap
            names[place] = name
        gap //= 3
