"""Exact nearest rows, block by block: a tile of inner products, merged into each query's k best, and dropped.

Sparse rows are kept as an inverted index (Xᵀ as CSR: for each feature the rows that have it), so a query costs one
addition for every stored entry that shares a feature with it. Dense rows are compared by BLAS. Both are the fused top-k
kernels that find the best labels, with rows in the place of labels: ties go to the lower row id, and the result has the
same bits for every number of threads.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.sparse_scores import top_k_of_factors_and_sparse
from tagwise.kernels.top_k import top_k_of_factors
from tagwise.validation import shape_text

__all__ = ["half_squared_norms", "inverted_index", "nearest_dense_rows", "nearest_sparse_rows"]


def inverted_index(rows: sp.csr_matrix) -> sp.csr_matrix:
    """Xᵀ (d×n) as CSR with sorted indices: for each feature the rows that have it."""
    return sp.csr_matrix(rows.T).sorted_indices()


def half_squared_norms(stored: sp.csr_matrix | np.ndarray) -> np.ndarray:
    """½‖b‖² of each row of an array (n, d), or of each row behind an inverted index (d, n); float64."""
    with np.errstate(over="ignore"):
        if isinstance(stored, np.ndarray):
            return 0.5 * np.einsum("ij,ij->i", stored, stored, dtype=np.float64)
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
        Pairs that never count as neighbours: the diagonal, when rows look for neighbours among themselves.
    n_threads : int

    Returns
    -------
    rows : int64 array (m, k), nearest first; equal measures in the order of their ids; -1 where there are no more rows.
    measures : float64 array (m, k), -inf where the row is -1.

    Notes
    -----
    Sums are in float64 whatever the type of the rows. Time: one addition for every pair of stored entries with one
    feature, O(m·n) to look for the best; memory O(m·k) and 16·n numbers a thread.
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
    """As :func:`nearest_sparse_rows` for arrays (m, d) and (n, d) of one floating type, which measures have too.

    Time O(m·n·d) by BLAS; memory O(m·k) and one tile of about a megabyte a thread.
    """
    if queries.shape[1] != rows.shape[1] or queries.dtype != rows.dtype:
        raise InvalidInputError(
            f"queries and rows must have as many columns and one floating type; found {shape_text(queries.shape)} of "
            f"{queries.dtype} and {shape_text(rows.shape)} of {rows.dtype}."
        )
    return top_k_of_factors(
        queries,
        rows,
        k,
        intercept=None if half_squares is None else -half_squares,
        exclude=exclude,
        n_threads=n_threads,
    )
