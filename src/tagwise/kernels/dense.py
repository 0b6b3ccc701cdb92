"""Dense products by BLAS in fixed row blocks, so that rounding does not depend on the number of threads."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.kernels.aligned import aligned_empty
from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas

__all__ = ["as_dense", "gram", "rows_times"]

# Rows of a block: for sums, which take k×l numbers each, and for products, which are to keep several threads busy.
_SUMMED_ROWS = 2048
_MULTIPLIED_ROWS = 512


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


def rows_times(tall: np.ndarray, small: np.ndarray, *, n_threads: int = 1, out: np.ndarray | None = None) -> np.ndarray:
    """``tall @ small`` (n×k by k×l), in the type of ``tall``, row blocks on threads; ``out`` may be ``tall`` itself."""
    small = np.ascontiguousarray(small, dtype=tall.dtype)
    if out is None:
        out = aligned_empty((len(tall), small.shape[1]), tall.dtype)

    def block(start: int, stop: int) -> None:
        np.matmul(tall[start:stop], small, out=out[start:stop])

    with single_threaded_blas():
        run_chunks(block, even_chunks(len(tall), _MULTIPLIED_ROWS), n_threads)
    return out
