"""The features of a LEML fit, ready for products from both sides within the memory that a fit may take."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import FeatureMatrix, feature_matrix, unit_rows
from tagwise.kernels.blocked_csr import N_BLOCKS, BlockedCSR, row_factors

__all__ = ["feature_products"]

# Rows whose length is within this factor of 1 can be scaled after a product; the products of others might overflow or
# vanish in float32 before the scale sets them right.
_SAFE_LENGTH = 1e12
# A fit may take 1.1 times W + H + XW + 2·n×k. It plans for this much of that sum, less some megabytes: the rest is for
# blocks of some thousand rows, for k×k matrices, and for what the heap loses between arrays.
_PLANNED = 0.95
_UNPLANNED_BYTES = 5_000_000
# Up to this size of n×k few blocks are worth their memory. Larger ones run as fast in more of them; arrays of 10 MB
# that come and go leave holes in the heap, which took a tenth of what is allowed.
_FEW_BLOCKS_BYTES = 1 << 25
# A few megabytes are worth their speed whatever the plan: where a transpose and scaled values take no more than this,
# both are stored, and rounds take half as long.
_STORED_BYTES = 5_000_000


def feature_products(
    X: sp.csr_matrix | np.ndarray, Y: sp.csr_matrix, rank: int, *, unit_length: bool, streamed: bool, n_threads: int
) -> FeatureMatrix:
    """X, or X with rows of length 1, for products from both sides; ``streamed`` for fits of squared loss.

    A transpose of X takes as much memory as X and scaled values half of that: together often more than LEML's factors.
    So streamed products make neither, and keep what the transposed product can reuse only as far as the whole fit then
    stays within W + H + XW + 2·n×k and a tenth; of small features a transpose is stored all the same.
    Nothing of this changes the result by more than rounding, nor by a bit with the number of threads.
    """
    if streamed and not isinstance(X, np.ndarray) and _stored_bytes(X, unit_length) > _STORED_BYTES:
        return _streamed_products(X, Y, rank, unit_length=unit_length, n_threads=n_threads)
    return feature_matrix(unit_rows(X, n_threads=n_threads) if unit_length else X, n_threads=n_threads)


def _stored_bytes(X: sp.csr_matrix, unit_length: bool) -> int:
    """Of a transpose, and of scaled values."""
    values, indices = X.data.nbytes, X.indices.nbytes
    return values + indices + (values if unit_length else 0)


def _streamed_products(
    X: sp.csr_matrix, Y: sp.csr_matrix, rank: int, *, unit_length: bool, n_threads: int
) -> BlockedCSR:
    scale: np.ndarray | None = None
    if unit_length:
        factors = row_factors(X, n_threads=n_threads)
        positive = factors[factors > 0]
        if len(positive) and not 1 / _SAFE_LENGTH <= positive.min() <= positive.max() <= _SAFE_LENGTH:
            X = unit_rows(X, n_threads=n_threads)
        else:
            scale = factors.astype(X.dtype)
    (n_rows, n_features), n_labels = X.shape, Y.shape[1]
    size = X.dtype.itemsize * rank
    allowed = size * (n_features + n_labels + 3 * n_rows)
    n_blocks, needed = 0, 0.0
    fewest = N_BLOCKS if size * n_rows <= _FEW_BLOCKS_BYTES else 2 * N_BLOCKS
    for n_blocks in (fewest, 2 * fewest, 4 * fewest):
        # Labels take their values, and indices and values of their transpose.
        needed = size * _largest_step(n_rows, n_features, n_labels, n_blocks) + 12 * Y.nnz
        if needed <= allowed:
            break
    spare = _PLANNED * allowed - _UNPLANNED_BYTES - needed
    return BlockedCSR(X, width=rank, row_scale=scale, keep_bytes=spare, n_blocks=n_blocks, n_threads=n_threads)


def _largest_step(n_rows: int, n_features: int, n_labels: int, n_blocks: int) -> float:
    """Rows of k numbers that a fit of squared loss holds at a time, at its peak."""
    block = n_rows / n_blocks
    transposed = block / 2
    start = n_rows + n_features + 3 * n_labels  # XXᵀ·noise, and its label side with a QR decomposition's copies
    gradient = n_rows + 2 * n_features + n_labels + 2 * block  # A, W, the gradient, H, slopes
    steps = 4 * n_features + n_labels + block  # W, residual, direction, product, H, a block of XS
    labels = n_rows + n_features + 2 * n_labels  # A, W, the old and the new H
    return max(start, gradient + transposed, steps + transposed, labels + transposed)
