"""Where the alternation begins: the label directions along which the loss falls fastest."""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.linalg

from tagwise.kernels import CSRWithTranspose, FeatureMatrix
from tagwise.parallel import even_chunks, single_threaded_blas

__all__ = ["spectral_start"]

_POWER_ROUNDS = 2
# Labels that the intercepts' row is added to at a time.
_LABELS = 256


def spectral_start(
    X: FeatureMatrix,
    slope: CSRWithTranspose,
    row: np.ndarray | None,
    rank: int,
    rng: np.random.Generator,
    dtype: np.dtype,
) -> np.ndarray:
    """Orthonormal H (L×k) spanning about the top right singular vectors of Xᵀ D, D = ∂loss/∂S at W = 0.

    XᵀD is the gradient of the loss in Z = WHᵀ at the model that knows only the intercepts, so its leading right
    singular vectors are the best k label directions for a first step. They are found by a randomised subspace
    iteration; D = ``slope`` + 1·``row``ᵀ is never formed. Time O((nnz X + nnz D)k + (L + n)k²) per round.
    """

    def label_side(scores: np.ndarray) -> np.ndarray:  # Dᵀ: n×k → L×k
        product = slope.rmatmul(scores)
        if row is not None:
            total = scores.sum(axis=0, dtype=np.float64)
            for first, last in even_chunks(len(product), _LABELS):
                product[first:last] += np.outer(row[first:last], total).astype(product.dtype)
        return product

    def row_side(H: np.ndarray, start: int, stop: int) -> np.ndarray:  # D: L×k → rows of n×k
        product = slope.matmul_rows(H, start, stop)
        if row is not None:
            product += (row @ H).astype(product.dtype)
        return product

    # Noise on the rows, not on the features: features rotated by an orthogonal map (those of a linear kernel, say) then
    # start, and end, at the same model.
    def noise(start: int, stop: int) -> np.ndarray:
        return rng.standard_normal((stop - start, rank)).astype(dtype)

    H = label_side(X.matmul(X.rmatmul_blocks(noise)))
    with single_threaded_blas():
        for _ in range(_POWER_ROUNDS):
            basis = _orthonormal(H, dtype)
            del H
            H = label_side(X.matmul(X.rmatmul_blocks(partial(row_side, basis))))
        return _orthonormal(H, dtype)


def _orthonormal(columns: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A basis of the columns, from a QR decomposition in float64 that needs one copy of them."""
    work = np.array(columns, dtype=np.float64, order="F")
    basis, _ = scipy.linalg.qr(work, mode="economic", overwrite_a=True, check_finite=False)
    return np.ascontiguousarray(basis, dtype=dtype)
