"""Checks that the arrays of a loaded model must pass before anything is computed with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

__all__ = ["require_dense", "require_finite_floats", "require_sparse"]


def require_dense(n_dimensions: int, **arrays: Any) -> None:
    """Raise ValueError unless all are dense arrays of so many dimensions."""
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.ndim != n_dimensions:
            raise ValueError(f"{name} must be a dense array of {n_dimensions} dimensions; found {_described(array)}")


def require_sparse(**matrices: Any) -> None:
    """Raise ValueError unless all are sparse matrices."""
    for name, matrix in matrices.items():
        if not sp.issparse(matrix):
            raise ValueError(f"{name} must be a sparse matrix; found {_described(matrix)}")


def require_finite_floats(**arrays: Any) -> None:
    """Raise ValueError unless all, dense or sparse, hold finite numbers of one floating type."""
    first = next(iter(arrays.values()))
    for name, array in arrays.items():
        if array.dtype.kind != "f" or array.dtype != first.dtype:
            raise ValueError(f"{', '.join(arrays)} must share one floating type; {name} has {array.dtype}")
        if not np.isfinite(array.data if sp.issparse(array) else array).all():
            raise ValueError(f"{name} holds NaN or infinity")


def _described(array: Any) -> str:
    return f"a {'sparse' if sp.issparse(array) else 'dense'} array of shape {array.shape}"
