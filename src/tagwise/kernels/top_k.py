"""The k best columns of each row: fused with blocked scoring, exact, ties to the lower column.

A tile of scores is made by BLAS, merged into each row's k best, and dropped, so memory is O(n·k) plus one tile a thread
and an n×L array never exists.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import compiled
from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas

__all__ = ["check_exclude", "keep", "nothing_found", "row_blocks", "tile_width", "top_k_of_factors", "top_k_of_scores"]

# 512 rows × 512 labels of float32 are 1 MB: large enough for BLAS to run at speed, small enough for the L2 cache.
_TILE_SCORES = 1 << 18
_MOST_ROWS, _FEWEST_ROWS = 512, 256
# As many blocks as keep several threads busy come before large blocks.
_BLOCKS = 8
SCAN_WIDTH = 64


def top_k_of_factors(
    left: np.ndarray,
    right: np.ndarray,
    k: int,
    *,
    intercept: np.ndarray | None = None,
    exclude: sp.csr_matrix | None = None,
    n_threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest entries of each row of ``left @ rightᵀ + intercept``.

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
        Stored pairs are never returned (a row's labels that are known already, say).
    n_threads : int
        Row blocks are spread over this many threads.

    Returns
    -------
    labels : int64 array (n, k), best first; equal scores in the order of their ids; -1 where a row has no more labels.
    scores : array (n, k) in the type of ``left``; -inf where the label is -1.

    Notes
    -----
    Time O(n·L·r), memory O(n·k) and one tile of about a megabyte per thread.
    """
    n_rows, n_labels = len(left), len(right)
    check_exclude(exclude, (n_rows, n_labels))
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    labels, scores = nothing_found(n_rows, k, left.dtype)
    shift = np.zeros(n_labels, dtype=left.dtype) if intercept is None else intercept.astype(left.dtype, copy=False)

    def rows(start: int, stop: int) -> None:
        width = tile_width(stop - start)
        buffer = np.empty((stop - start) * min(width, n_labels), dtype=left.dtype)
        for first, last in even_chunks(n_labels, width):
            tile = buffer[: (stop - start) * (last - first)].reshape(stop - start, last - first)
            np.matmul(left[start:stop], right[first:last].T, out=tile)
            if exclude is not None:
                _hide(tile, exclude.indptr, exclude.indices, start, first)
            _merge_shifted(tile, first, shift[first:last], scores[start:stop], labels[start:stop])

    with single_threaded_blas():
        run_chunks(rows, row_blocks(n_rows), n_threads)
    return labels, scores


def row_blocks(n_rows: int) -> list[tuple[int, int]]:
    """Borders of the blocks of rows whose scores are made together."""
    return even_chunks(n_rows, min(_MOST_ROWS, max(_FEWEST_ROWS, n_rows // _BLOCKS)))


def tile_width(n_rows: int) -> int:
    """For how many labels a block of rows is scored at a time."""
    return max(_MOST_ROWS, _TILE_SCORES // max(1, n_rows))


def top_k_of_scores(
    block: np.ndarray, k: int, *, exclude: sp.csr_matrix | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest entries of each row of a block of scores (n×L); returns what :func:`top_k_of_factors` returns.

    Time O(n·L). The block itself is left as it is.
    """
    check_exclude(exclude, block.shape)
    labels, scores = nothing_found(len(block), k, block.dtype)
    if exclude is not None:
        block = block.copy()
        _hide(block, exclude.indptr, exclude.indices, 0, 0)
    _merge(np.ascontiguousarray(block), 0, scores, labels)
    return labels, scores


def nothing_found(n_rows: int, k: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Labels (n, k) of -1 and scores (n, k) of -inf, which a merge begins with."""
    if k < 1:
        raise InvalidInputError(f"k must be at least 1; found {k}.")
    return np.full((n_rows, k), -1, dtype=np.int64), np.full((n_rows, k), -np.inf, dtype=dtype)


def check_exclude(exclude: sp.csr_matrix | None, shape: tuple[int, ...]) -> None:
    """Raise InvalidInputError unless the pairs to exclude, if any, have the shape of the scores."""
    if exclude is not None and exclude.shape != shape:
        raise InvalidInputError(f"exclude has shape {exclude.shape} where the scores have {shape}.")


@compiled()
def _merge(tile, first_label, best_scores, best_labels):
    """Merge scores (n×width) of labels ``first_label`` … into the k best of each row; labels come in rising order."""
    _merge_shifted(tile, first_label, np.zeros(tile.shape[1], dtype=tile.dtype), best_scores, best_labels)


# Scores are finite or -inf, never NaN.
@compiled(fastmath={"nnan", "nsz"})
def _merge_shifted(tile, first_label, shift, best_scores, best_labels):
    """:func:`_merge` of scores to which the labels' ``shift`` (width) is still to be added."""
    n_rows, width = tile.shape
    last = best_scores.shape[1] - 1
    for row in range(n_rows):
        scores = tile[row]
        best = best_scores[row]
        names = best_labels[row]
        worst = best[last]
        for begin in range(0, width, SCAN_WIDTH):
            end = begin + SCAN_WIDTH
            if end > width:
                end = width
            else:
                # Counting takes a comparison and an addition of integers for 8 scores at once; a maximum, which would
                # answer the same question, is computed a score at a time by the compiler.
                above = np.int32(0)
                for column in range(begin, begin + SCAN_WIDTH):
                    above += np.int32(scores[column] + shift[column] > worst)
                if above == 0:
                    continue
            for column in range(begin, end):
                score = scores[column] + shift[column]
                # Labels come in rising order, so ">" leaves an equal score to the label that is there already.
                if score > worst:
                    place = last
                    while place > 0 and best[place - 1] < score:
                        best[place] = best[place - 1]
                        names[place] = names[place - 1]
                        place -= 1
                    best[place] = score
                    names[place] = first_label + column
                    worst = best[last]


@compiled()
def _hide(tile, indptr, indices, first_row, first_label):
    n_rows, width = tile.shape
    for row in range(n_rows):
        begin, end = indptr[first_row + row], indptr[first_row + row + 1]
        position = begin + np.searchsorted(indices[begin:end], first_label)
        while position < end and indices[position] < first_label + width:
            tile[row, indices[position] - first_label] = -np.inf
            position += 1


@compiled(fastmath={"nnan", "nsz"})
def keep(best, names, score, label):
    """Put a label at its place among the k best of a row; of equal scores, the lower label comes first."""
    last = len(best) - 1
    if score < best[last] or (score == best[last] and label > names[last]):
        return
    place = last
    while place > 0 and (best[place - 1] < score or (best[place - 1] == score and names[place - 1] > label)):
        best[place], names[place] = best[place - 1], names[place - 1]
        place -= 1
    best[place], names[place] = score, label
