"""Where the alternation begins: the label directions along which the loss falls fastest."""

from __future__ import annotations

import numpy as np

from tagwise.kernels import SparseTwoWay, TwoWayMatrix
from tagwise.parallel import single_threaded_blas

__all__ = ["spectral_start"]

_POWER_ROUNDS = 2


def spectral_start(
    X: TwoWayMatrix,
    slope: SparseTwoWay,
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
        product = slope.transposed_times(scores)
        if row is not None:
            product += np.outer(row, scores.sum(axis=0, dtype=np.float64)).astype(product.dtype)
        return product

    def row_side(H: np.ndarray) -> np.ndarray:  # D: L×k → n×k
        product = slope.times(H)
        if row is not None:
            product += (row @ H).astype(product.dtype)
        return product

    # Noise on the rows, not on the features: features rotated by an orthogonal map (those of a linear kernel, say) then
    # start, and end, at the same model.
    noise = rng.standard_normal((X.shape[0], rank)).astype(dtype)
    H = label_side(X.times(X.transposed_times(noise)))
    with single_threaded_blas():
        for _ in range(_POWER_ROUNDS):
            basis = np.ascontiguousarray(np.linalg.qr(H)[0], dtype=dtype)
            H = label_side(X.times(X.transposed_times(row_side(basis))))
        return np.ascontiguousarray(np.linalg.qr(H)[0], dtype=dtype)
