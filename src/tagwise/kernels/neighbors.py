"""Exact nearest rows, block by block: a tile of inner products, merged into each query's k best, and dropped.

Sparse rows are kept as an inverted index (Xᵀ as CSR: for each feature the rows that have it), so a query costs one
addition for every stored entry that shares a feature with it. Products are sums in float64 in the order of a query's
features, for dense rows too: BLAS, whose order depends on how many queries there are, would part rows that are equal,
and a query would have other neighbors in other company. So ties go to the lower row id, whatever is asked beside, and
the result has the same bits for every number of threads.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.products import dense_in_order, squared_norms
from tagwise.kernels.top_k import hidden_pairs, hide, merge, nothing_found, top_k_of_factors_and_sparse
from tagwise.parallel import even_chunks, run_chunks
from tagwise.validation import shape_text

__all__ = ["half_squared_norms", "inverted_index", "nearest_dense_rows", "nearest_sparse_rows"]

# A tile of 64 queries × 256 rows, and the columns of 256 rows of a few hundred features, stay in the L2 cache.
_QUERIES = 64
_TILE_WIDTH = 256


def inverted_index(rows: sp.csr_matrix) -> sp.csr_matrix:
    """Xᵀ (d×n) as CSR with sorted indices: for each feature the rows that have it."""
    return sp.csr_matrix(rows.T).sorted_indices()


def half_squared_norms(stored: sp.csr_matrix | np.ndarray) -> np.ndarray:
    """½‖b‖² of each row of an array (n, d), or of each row behind an inverted index (d, n); float64."""
    if isinstance(stored, np.ndarray):
        return 0.5 * squared_norms(stored)
    with np.errstate(over="ignore"):
        squares = stored.data.astype(np.float64) ** 2
        return 0.5 * np.bincount(stored.indices, weights=squares, minlength=stored.shape[1])


def nearest_sparse_rows(
    queries: sp.csr_matrix,
    index: sp.csr_matrix,
    k: int,
    *,
    half_squares: np.ndarray | None = None,
    exclude: sp.csr_matrix | None = None,
    n_threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """The k rows behind an inverted index that are nearest to each query.

    Parameters
    ----------
    queries : CSR (m, d)
    index : CSR (d, n)
        From :func:`inverted_index`.
    k : int
        How many; may exceed n.
    half_squares : array (n,), optional
        ½‖b‖² of each row, which makes q·b − ½‖b‖² the measure: its order is that of rising Euclidean distance. Without
        it the measure is the inner product, which is the cosine for rows of unit length.
    exclude : CSR (m, n) with sorted indices, optional
        Pairs that never count as neighbors: the diagonal, when rows look for neighbors among themselves.
    n_threads : int

    Returns
    -------
    rows : int64 array (m, k), nearest first; equal measures in the order of their ids; -1 where there are no more rows.
    measures : float64 array (m, k), -inf where the row is -1.

    Notes
    -----
    Sums are in float64 whatever the type of the rows. Time: one addition for every pair of stored entries with one
    feature, O(m·n) to look for the best; memory O(m·k) and 16·n numbers per thread.
    """
    if queries.shape[1] != index.shape[0]:
        raise InvalidInputError(
            f"queries of {queries.shape[1]:,} features do not fit an index of shape {shape_text(index.shape)} "
            "(features × rows)."
        )
    return top_k_of_factors_and_sparse(
        np.empty((queries.shape[0], 0)),
        np.empty((index.shape[1], 0)),
        k,
        intercept=None if half_squares is None else -half_squares,
        rows=queries,
        sparse=index,
        exclude=exclude,
        n_threads=n_threads,
    )


def nearest_dense_rows(
    queries: np.ndarray,
    rows: np.ndarray,
    k: int,
    *,
    half_squares: np.ndarray | None = None,
    exclude: sp.csr_matrix | None = None,
    n_threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """As :func:`nearest_sparse_rows` for arrays (m, d) and (n, d).

    Time O(m·n·d), about three times that of BLAS; memory O(m·k), a copy of the rows in float64 and a tile of 128 KB a
    thread.
    """
    if queries.ndim != 2 or rows.ndim != 2 or queries.shape[1] != rows.shape[1]:
        raise InvalidInputError(
            f"queries and rows must have as many columns; found {shape_text(queries.shape)} and "
            f"{shape_text(rows.shape)}."
        )
    hidden = hidden_pairs(exclude, (len(queries), len(rows)))
    ids, measures = nothing_found(len(queries), k, np.dtype(np.float64))
    queries = np.ascontiguousarray(queries)
    tiles = [
        (first, np.ascontiguousarray(rows[first:last].T, dtype=np.float64))
        for first, last in even_chunks(len(rows), _TILE_WIDTH)
    ]

    def block(start: int, stop: int) -> None:
        buffer = np.empty((stop - start) * _TILE_WIDTH)
        for first, columns in tiles:
            width = columns.shape[1]
            tile = buffer[: (stop - start) * width].reshape(stop - start, width)
            dense_in_order(queries[start:stop], columns, tile)
            if half_squares is not None:
                tile -= half_squares[first : first + width]
            hide(tile, hidden, start, first, -np.inf)
            merge(tile, first, measures[start:stop], ids[start:stop])

    run_chunks(block, even_chunks(len(queries), _QUERIES), n_threads)
    return ids, measures
