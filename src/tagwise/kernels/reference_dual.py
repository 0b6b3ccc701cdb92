"""The slow, obvious twin of :mod:`tagwise.kernels.dual_coordinate_descent`."""

from __future__ import annotations

import numpy as np

__all__ = ["dual_coordinate_descent"]


def dual_coordinate_descent(
    X: np.ndarray, y: np.ndarray, cost: np.ndarray, *, squared: bool, constant: float, n_passes: int
) -> tuple[np.ndarray, float]:
    """Solve one label (w and b) from dense rows, signs and costs: full passes, no shrinking."""
    rows = np.column_stack([X, np.full(len(X), constant)]) * y[:, None]
    dual, w = np.zeros(len(X)), np.zeros(rows.shape[1])
    diagonal = 0.5 / cost if squared else np.zeros(len(X))
    upper = np.full(len(X), np.inf) if squared else cost
    for _ in range(n_passes):
        for i, row in enumerate(rows):
            curvature = row @ row + diagonal[i]
            if curvature == 0:
                continue
            before = dual[i]
            dual[i] = np.clip(before - (row @ w - 1 + diagonal[i] * before) / curvature, 0, upper[i])
            w += (dual[i] - before) * row
    return w[:-1], float(w[-1] * constant)
