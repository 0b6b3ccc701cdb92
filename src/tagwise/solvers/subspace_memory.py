"""Bytes that MSE's training and its dictionary take at the most, counted before any of them is allocated."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.kernels.products import _SUMMED_ROWS as GRAM_ROWS
from tagwise.solvers.low_rank_plus_sparse import _BLOCK_RESIDUALS as BLOCK_RESIDUALS

__all__ = ["decomposition_memory", "dictionary_memory"]

# Indices of sparse matrices and places of entries; 32 bits would do for small ones.
_INDEX = 8
# Borders of groups, curvatures, and what else is small.
_REST = 2**20


def decomposition_memory(
    X: sp.csr_matrix | np.ndarray,
    Y: sp.csr_matrix,
    ranks: np.ndarray,
    n_outliers: int,
    *,
    decomposition: str,
    n_threads: int = 1,
) -> float:
    """Bytes of a decomposition of X at its peak, without X and Y themselves.

    Parameters
    ----------
    X : CSR or array (n, p)
    Y : CSR (n, L)
    ranks : int array (L,)
        As :func:`tagwise.solvers.subspace_decomposition.usable_ranks` gives them.
    n_outliers : int
        K.
    decomposition : {"brp", "svd"}
    n_threads : int
        Each thread has products of its own under way.

    Returns
    -------
    float
        An upper bound that is reached within a small factor: what stays (Z, V, S, the pairs of Y), and the larger of
        what the most expensive label and the search for outliers need besides.
    """
    n_rows, n_features = X.shape
    number = X.dtype.itemsize
    rows_of_label = np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.float64)
    coefficients = float(rows_of_label @ ranks)
    outliers = float(min(n_outliers, n_rows * n_features))
    size = float(ranks.sum())

    stays = coefficients * (number + _INDEX) + size * n_features * number + outliers * (number + _INDEX)
    # For each stored pair its id, row, and place in Z, by rows and by labels; for each row its share of the start.
    stays += 6.0 * _INDEX * Y.nnz + 5.0 * _INDEX * (n_rows + Y.shape[1])
    numbering = coefficients * 2 * _INDEX
    # Canonical bases come from a second copy of Z, by label, and are held in two pieces while they are joined.
    largest = float((rows_of_label * ranks).max(initial=0))
    canonical = coefficients * (number + _INDEX) + 2 * size * n_features * number + 4 * 8 * largest
    label = _label_memory(rows_of_label, ranks, coefficients, n_features, number, decomposition, n_threads)
    return _REST + stays + max(numbering, canonical, label, _search_memory(n_rows, n_features, outliers, number))


def dictionary_memory(size: float, n_features: int, *, n_threads: int = 1) -> float:
    """Bytes of the dictionary that prediction uses, for R = ``size`` directions: C and CCᵀ, and products under way."""
    return _REST + 8 * size * n_features + 8 * size**2 * (1 + float(_products_under_way(n_features, n_threads)))


def _label_memory(
    rows_of_label: np.ndarray,
    ranks: np.ndarray,
    coefficients: float,
    n_features: int,
    number: int,
    decomposition: str,
    n_threads: int,
) -> float:
    """What one label needs while its part is replaced: the most of all labels."""
    block = rows_of_label * n_features
    # The coefficients of the label's rows, of all their labels, are copied out of Z.
    copied = np.minimum(coefficients, rows_of_label * float(ranks.sum())) * (number + _INDEX)
    places = rows_of_label * ranks * (2 * _INDEX + 2 * number)
    needed = block * number + copied + places
    if decomposition == "svd":
        smaller = np.minimum(rows_of_label, n_features)
        longer = np.maximum(rows_of_label, n_features)
        products = (8 + number * _products_under_way(longer, n_threads)) * smaller**2
        # The Gram matrix, LAPACK's copy of it, and a transposed N: in its own type first, then in float64.
        needed = needed + products + 2 * 8 * smaller**2 + np.where(rows_of_label <= n_features, 8 * block, 0)
    else:
        needed = needed + number * _products_under_way(rows_of_label, n_threads) * n_features * ranks
    # Start, its product, and QR factors in float64.
    needed = needed + 6 * 8 * n_features * ranks
    return float(np.max(needed, initial=0))


def _search_memory(n_rows: int, n_features: int, outliers: float, number: int) -> float:
    """What the search for the largest residuals needs: a block, and candidates beside those found so far."""
    block = float(min(n_rows * n_features, max(BLOCK_RESIDUALS, n_features)))
    needed = 2 * block * number
    if outliers:
        # As many as are kept may wait until both are joined; together they are no more than all entries.
        joined = min(2 * outliers + block, float(n_rows * n_features))
        # The block's candidates; pieces, whole and result; absolute values, and a copy to find their border; indices.
        needed += block * (number + 2 * _INDEX + 1) + (2 * joined + outliers) * (number + _INDEX)
        needed += joined * (2 * number + 2) + 2 * outliers * _INDEX
    return needed


def _products_under_way(rows: np.ndarray | float, n_threads: int) -> np.ndarray:
    """How many partial products ``gram`` holds at a time for so many rows."""
    return np.minimum(np.ceil(np.asarray(rows) / GRAM_ROWS), 4 * n_threads)
