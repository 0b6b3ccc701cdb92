"""Conjugate gradients for a symmetric positive definite system given only by its product with an array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

__all__ = ["CGResult", "conjugate_gradient"]


@dataclass(frozen=True)
class CGResult:
    """How a run of conjugate gradients ended.

    ``status`` is ``"converged"`` (the residual fell below the tolerance), ``"max_iter"``, or ``"not_positive"`` (a
    direction without positive curvature was met: the operator is not positive definite, or rounding has the last
    word; ``solution`` is the last good iterate).
    """

    solution: np.ndarray
    status: Literal["converged", "max_iter", "not_positive"]
    n_iter: int
    relative_residual: float


def conjugate_gradient(
    operator: Callable[[np.ndarray], np.ndarray], right: np.ndarray, *, tol: float, max_iter: int
) -> CGResult:
    """Solve ``operator(s) = right`` for ``s``, from ``s = 0``.

    Parameters
    ----------
    operator : callable
        The product of a symmetric positive definite operator with an array shaped like ``right``.
    right : array of any shape
    tol : float
        Stop when ‖operator(s) − right‖ ≤ tol · ‖right‖.
    max_iter : int
        At most this many products.

    Notes
    -----
    Every iterate minimises ½⟨s, operator(s)⟩ − ⟨right, s⟩ over a growing Krylov space, so stopping early is safe: the
    value has fallen. Keeps four arrays of the size of ``right``; inner products are summed in float64.
    """
    solution = np.zeros_like(right)
    residual = right.copy()
    direction = right.copy()
    squared = _dot(residual, residual)
    start = squared
    if start == 0.0:
        return CGResult(solution, "converged", 0, 0.0)
    for iteration in range(1, max_iter + 1):
        product = operator(direction)
        curvature = _dot(direction, product)
        if not curvature > 0.0:
            return CGResult(solution, "not_positive", iteration - 1, float(np.sqrt(squared / start)))
        step = right.dtype.type(squared / curvature)
        solution += step * direction
        residual -= step * product
        previous, squared = squared, _dot(residual, residual)
        if squared <= tol * tol * start:
            return CGResult(solution, "converged", iteration, float(np.sqrt(squared / start)))
        direction *= right.dtype.type(squared / previous)
        direction += residual
    return CGResult(solution, "max_iter", max_iter, float(np.sqrt(squared / start)))


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    # einsum accumulates float32 in float32; a blocked float64 sum keeps the step lengths exact for long vectors.
    a, b = a.reshape(-1), b.reshape(-1)
    size = 1 << 16
    return float(
        sum(
            np.dot(a[first : first + size].astype(np.float64), b[first : first + size].astype(np.float64))
            for first in range(0, len(a), size)
        )
    )
