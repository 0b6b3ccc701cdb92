"""Scores of low rank plus sparse: blocked BLAS products, onto which an inverted index adds the sparse part.

S is stored by features: row f lists the labels with a weight on f. A tile of scores covers some rows and a range of
labels; each stored feature of a row keeps a cursor into its list of labels, which the tiles of a row block move on from
left to right. So every list is read once per row, and the n×L scores never exist.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import compiled
from tagwise.kernels.top_k import _hide, _merge, check_exclude, nothing_found
from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas

__all__ = ["scores_of_factors_and_sparse", "top_k_of_factors_and_sparse"]

# Measured: BLAS wants many rows; the lists of labels want wide tiles, as each tile has to find its end in every list.
# 4 MB of float32 hold both and stay in a shared cache. Without BLAS few rows of all labels are best.
_TILE_SCORES = 1 << 20
_ROWS_WITH_FACTORS = 256
_ROWS_WITHOUT_FACTORS = 16


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
    """The k largest entries of each row of ``left @ rightᵀ + intercept + rows @ sparse``.

    Parameters
    ----------
    left : array (n, r)
        Of width 0 where there is no low rank.
    right : array (L, r)
        Of the same floating type, which is the type of the scores.
    k : int
        How many per row; may exceed L.
    intercept : array (L,), optional
        Added to every row.
    rows : CSR (n, d)
        The features X.
    sparse : CSR (d, L)
        The weights S; sorted indices save a copy.
    exclude : CSR (n, L) with sorted indices, optional
        Stored pairs are never returned.
    n_threads : int
        Row blocks are spread over this many threads; the result has the same bits for any number of them.

    Returns
    -------
    labels : int64 array (n, k), best first; equal scores in the order of their ids; -1 where a row has no more labels.
    scores : array (n, k) in the type of ``left``; -inf where the label is -1.

    Notes
    -----
    Time O(n·L·r) by BLAS, O(n·L) to look for the best and one addition for every weight that a stored feature of a row
    has. Memory O(n·k) and, per thread, one tile of 2²⁰ scores and 8 bytes for each stored entry of 256 rows.
    """
    n_rows, n_labels = len(left), len(right)
    sparse = _check_parts(left, right, rows, sparse)
    check_exclude(exclude, (n_rows, n_labels))
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    labels, scores = nothing_found(n_rows, k, left.dtype)
    shift = _check_intercept(intercept, n_labels, left.dtype)

    def block(start: int, stop: int) -> None:
        width = _TILE_SCORES // (stop - start)
        buffer = np.empty((stop - start) * min(width, n_labels), dtype=left.dtype)
        cursors = _first_places(rows, sparse, start, stop)
        for first, last in even_chunks(n_labels, width):
            tile = buffer[: (stop - start) * (last - first)].reshape(stop - start, last - first)
            _multiply(left[start:stop], right[first:last], tile)
            _add_sparse(tile, first, start, rows.indptr, rows.indices, rows.data, sparse.indptr, sparse.indices,
                        sparse.data, shift, cursors)  # fmt: skip
            if exclude is not None:
                _hide(tile, exclude.indptr, exclude.indices, start, first)
            _merge(tile, first, scores[start:stop], labels[start:stop])

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
    sparse = _check_parts(left, right, rows, sparse)
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    shift = _check_intercept(intercept, n_labels, left.dtype)
    out = np.empty((len(left), n_labels), dtype=left.dtype)

    def block(start: int, stop: int) -> None:
        _multiply(left[start:stop], right, out[start:stop])
        cursors = _first_places(rows, sparse, start, stop)
        _add_sparse(out[start:stop], 0, start, rows.indptr, rows.indices, rows.data, sparse.indptr, sparse.indices,
                    sparse.data, shift, cursors)  # fmt: skip

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


def _check_parts(left: np.ndarray, right: np.ndarray, rows: sp.csr_matrix, sparse: sp.csr_matrix) -> sp.csr_matrix:
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


def _first_places(rows: sp.csr_matrix, sparse: sp.csr_matrix, start: int, stop: int) -> np.ndarray:
    """Where the list of labels of each stored entry of these rows begins."""
    return sparse.indptr[rows.indices[rows.indptr[start] : rows.indptr[stop]]].astype(np.int64)


@compiled(fastmath={"contract"})
def _add_sparse(tile, first, start, indptr, indices, data, list_indptr, list_labels, list_weights, shift, cursors):
    """Add the intercept and the weights of labels ``first`` … to a tile, and move the cursors past them."""
    n_rows, width = tile.shape
    stop = first + width
    origin = indptr[start]
    for row in range(n_rows):
        target = tile[row]
        if len(shift) > 0:
            for column in range(width):
                target[column] += shift[first + column]
        for entry in range(indptr[start + row], indptr[start + row + 1]):
            begin, end = cursors[entry - origin], list_indptr[indices[entry] + 1]
            labels, weights = list_labels[begin:end], list_weights[begin:end]
            # A loop of known length is twice as fast as one that compares each label with the tile's end.
            count = np.searchsorted(labels, stop)
            value = tile.dtype.type(data[entry])
            for i in range(count):
                target[np.uintp(labels[i] - first)] += value * tile.dtype.type(weights[i])
            cursors[entry - origin] = begin + count
