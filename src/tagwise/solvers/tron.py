"""TRON: trust-region Newton for smooth convex problems (Lin, Weng, Keerthi 2008), many problems at once.

The solver sees a value, a gradient and Hessian·vector products, nothing else. Each Newton step minimises the quadratic
model within a ball by truncated conjugate gradients (Steihaug); the ratio of the actual to the predicted fall decides
whether the step is taken and how the ball changes. Independent problems share every product, but each has its own ball,
steps and convergence (see :mod:`tagwise.kernels.vectors`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tagwise.kernels.vectors import Inner, dot_all
from tagwise.solvers.cg import SmoothProblem

__all__ = ["TRONResult", "tron"]

# Constants of the paper: a step is taken above ETA0; the ball shrinks below ETA1 and grows above ETA2.
_ETA0, _ETA1, _ETA2 = 1e-4, 0.25, 0.75
_SIGMA1, _SIGMA2, _SIGMA3 = 0.25, 0.5, 4.0
# Each rejection at least halves the ball; after so many in a row, nothing that rounding can see is left to gain.
_MOST_REJECTIONS = 40


@dataclass(frozen=True)
class TRONResult:
    """Minimisers. ``status`` is ``"stalled"`` where rounding leaves no step that gains.

    ``start_value`` and ``value`` have one entry per problem.
    """

    solution: np.ndarray
    start_value: np.ndarray
    value: np.ndarray
    status: Literal["converged", "max_iter", "stalled"]
    n_iter: int


def tron(
    problem: SmoothProblem,
    start: np.ndarray,
    *,
    tol: float,
    max_iter: int,
    cg_tol: float = 0.1,
    cg_max_iter: int = 30,
    inner: Inner = dot_all,
) -> TRONResult:
    """Minimise from ``start``.

    A problem has converged when its gradient norm is at most ``tol`` times the norm at the start. ``max_iter`` counts
    Newton steps, without rounds in which no problem takes its step: the balls have shrunk, and a smaller step is tried
    at once. The model of a step is solved to the relative residual ``cg_tol`` with at most ``cg_max_iter`` products.
    ``inner`` says what counts as one problem.

    Notes
    -----
    The value never rises. Keeps eight arrays of the size of ``start``.
    """
    x = start.copy()
    problem.move_to(x)
    start_value = value = problem.value()
    gradient = problem.gradient()
    squared = inner(gradient, gradient)
    scale = np.where(squared > 0, squared, 1.0)
    radius = np.sqrt(squared)
    active = squared > tol * tol * scale
    first, n_iter, rejected, stalled = True, 0, 0, np.zeros_like(active)
    while active.any() and n_iter < max_iter and rejected < _MOST_REJECTIONS:
        step, residual = _truncated_cg(problem, gradient, radius, active, cg_tol, cg_max_iter, inner)
        slope = inner(gradient, step)
        predicted = -0.5 * (slope - inner(step, residual))
        problem.move_to(x + step)
        trial = problem.value()
        actual = value - trial
        length = np.sqrt(inner(step, step))
        if first:
            radius = np.where(active, np.minimum(radius, length), radius)
            first = False
        radius = np.where(active, _next_radius(radius, length, slope, actual, predicted), radius)
        taken = active & (actual > _ETA0 * predicted)
        n_iter += bool(taken.any())
        rejected = 0 if taken.any() else rejected + 1
        # Where neither the model nor the function can tell the step from rounding, there is nothing left to gain.
        rounding = 1e-12 * np.abs(value)
        stuck = active & (np.abs(actual) <= rounding) & (predicted <= rounding)
        x += np.where(taken, step, 0)
        value = np.where(taken, trial, value)
        if not np.array_equal(taken, active):
            problem.move_to(x)  # some problems stayed where they were: this is the point that was really reached
        gradient = problem.gradient()
        squared = inner(gradient, gradient)
        unsolved = squared > tol * tol * scale
        stalled |= stuck & unsolved
        active &= unsolved & ~stuck
    status: Literal["converged", "max_iter", "stalled"] = "converged"
    if rejected >= _MOST_REJECTIONS or (stalled.any() and not active.any()):
        status = "stalled"
    elif active.any():
        status = "max_iter"
    return TRONResult(x, start_value, value, status, n_iter)


def _next_radius(
    radius: np.ndarray, length: np.ndarray, slope: np.ndarray, actual: np.ndarray, predicted: np.ndarray
) -> np.ndarray:
    """The ball's new radius: the step that a parabola through value, slope and trial value suggests, within limits."""
    curvature = -actual - slope
    alpha = np.where(
        curvature <= 0,
        _SIGMA3,
        np.maximum(_SIGMA1, -0.5 * np.divide(slope, curvature, out=np.zeros_like(slope), where=curvature > 0)),
    )
    suggested = alpha * length
    return np.select(
        [actual < _ETA0 * predicted, actual < _ETA1 * predicted, actual < _ETA2 * predicted],
        [
            np.minimum(np.maximum(suggested, _SIGMA1 * length), _SIGMA2 * radius),
            np.maximum(_SIGMA1 * radius, np.minimum(suggested, _SIGMA2 * radius)),
            np.maximum(_SIGMA1 * radius, np.minimum(suggested, _SIGMA3 * radius)),
        ],
        np.maximum(radius, np.minimum(suggested, _SIGMA3 * radius)),
    )


def _truncated_cg(
    problem: SmoothProblem,
    gradient: np.ndarray,
    radius: np.ndarray,
    active: np.ndarray,
    tol: float,
    max_iter: int,
    inner: Inner,
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise the model ⟨g, s⟩ + ½⟨s, Hs⟩ within the ball; returns s and the residual −g − Hs."""
    dtype = gradient.dtype
    step = np.zeros_like(gradient)
    residual = np.where(active, -gradient, 0).astype(dtype)
    direction = residual.copy()
    squared = inner(residual, residual)
    goal = tol * tol * squared
    running = active & (squared > 0)
    for _ in range(max_iter):
        if not running.any():
            break
        curved = problem.hessian_vector(direction)
        curvature = inner(direction, curved)
        positive = running & (curvature > 0)
        alpha = np.divide(squared, curvature, out=np.zeros_like(squared), where=positive)
        along, size, length = inner(step, direction), inner(direction, direction), inner(step, step)
        outside = running & (~positive | (length + 2 * alpha * along + alpha**2 * size > radius**2))
        # To the border of the ball: the positive root of ‖s + αd‖ = radius.
        gap = np.maximum(radius**2 - length, 0)
        root = np.sqrt(along**2 + size * gap)
        border = np.where(
            along >= 0,
            np.divide(gap, along + root, out=np.zeros_like(gap), where=(along + root) > 0),
            np.divide(root - along, size, out=np.zeros_like(gap), where=size > 0),
        )
        alpha = np.where(outside, border, np.where(running, alpha, 0)).astype(dtype)
        step += alpha * direction
        residual -= alpha * curved
        previous = squared
        squared = inner(residual, residual)
        running &= ~outside & (squared > goal)
        beta = np.divide(squared, previous, out=np.zeros_like(squared), where=running & (previous > 0))
        direction *= beta.astype(dtype)
        direction += np.where(running, residual, 0)
    return step, residual
