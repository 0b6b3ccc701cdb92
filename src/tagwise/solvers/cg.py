"""Conjugate gradients for symmetric positive definite systems given only by their product with an array.

Also the protocol of what is minimised, here (a quadratic) and by :mod:`tagwise.solvers.tron` (any smooth convex
function).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import numpy as np

from tagwise.kernels.vectors import Inner, aligned_copy, axpy, aypx, dot_all

__all__ = ["CGResult", "SmoothProblem", "conjugate_gradient", "quadratic_step"]


class SmoothProblem(Protocol):
    """A convex, once (almost everywhere twice) differentiable function of an array, or many independent ones.

    An inner product of :mod:`tagwise.kernels.vectors` says which entries of the array belong to one problem. The
    function holds what depends on its point; the solver owns all other arrays.
    """

    def move_to(self, x: np.ndarray) -> None:
        """Make ``x`` the point at which all below is taken; ``x`` is not copied."""
        ...

    def value(self) -> np.ndarray:
        """The value of each problem in float64, broadcastable against the point."""
        ...

    def gradient(self) -> np.ndarray:
        """Shaped like the point."""
        ...

    def hessian_vector(self, direction: np.ndarray) -> np.ndarray:
        """Hessian · direction; may be called many times."""
        ...


@dataclass(frozen=True)
class CGResult:
    """A solution by conjugate gradients.

    ``status`` is ``"converged"`` (every residual fell below the tolerance), ``"max_iter"``, ``"not_positive"`` (some
    problem met a direction without positive curvature: its operator is not positive definite, or rounding has the last
    word; that problem keeps its last good iterate), or ``"not_finite"`` (the right side of some problem overflows, and
    it was left at 0). ``relative_residual`` is the largest of all problems. ``fall`` is
    by how much each problem's ½⟨s, operator(s)⟩ − ⟨right, s⟩ fell from s = 0 on, in the shape of its inner product.
    """

    solution: np.ndarray
    status: Literal["converged", "max_iter", "not_positive", "not_finite"]
    n_iter: int
    relative_residual: float
    fall: np.ndarray


def conjugate_gradient(
    operator: Callable[[np.ndarray], np.ndarray],
    right: np.ndarray,
    *,
    tol: float,
    max_iter: int,
    inner: Inner | None = None,
    add_to: np.ndarray | None = None,
    n_threads: int = 1,
) -> CGResult:
    """Solve ``operator(s) = right`` for ``s``, from ``s = 0``: one problem, or many independent ones together.

    ``operator`` is the product of a symmetric positive definite operator with an array shaped like ``right``. A problem
    has converged when ‖operator(s) − right‖ ≤ tol · ‖right‖; there are at most ``max_iter`` products. ``inner`` says
    what counts as one problem (:mod:`tagwise.kernels.vectors`), by default everything: each has its own step lengths,
    and stands still once it has converged. With ``add_to`` the solution is added to this array, in place, and
    ``right`` is used up as workspace: two arrays less. ``n_threads`` are for the arrays of one problem.

    Notes
    -----
    Every iterate minimises ½⟨s, operator(s)⟩ − ⟨right, s⟩ over a growing Krylov space, so stopping early is safe: the
    value has fallen. Keeps four arrays of the size of ``right``, with ``add_to`` two beside ``right`` itself; inner
    products are summed in float64.
    """
    inner = partial(dot_all, n_threads=n_threads) if inner is None else inner
    dtype = right.dtype
    solution = np.zeros_like(right) if add_to is None else add_to
    residual = right.copy() if add_to is None else right
    direction = aligned_copy(right)  # what products read
    length = inner(residual, residual)
    finite = np.isfinite(length)
    squared = np.where(finite, length, 0.0)
    active = squared > 0
    start = np.where(active, squared, 1.0)
    failed = np.zeros_like(active)
    fall = np.zeros_like(squared)
    n_iter = 0
    while active.any() and n_iter < max_iter:
        product = operator(direction)
        n_iter += 1
        curvature = inner(direction, product)
        failed |= active & ~(curvature > 0)
        active &= curvature > 0
        step = np.divide(squared, curvature, out=np.zeros_like(squared), where=active)
        # Along conjugate directions, ⟨right, direction⟩ is what is left of the squared residual.
        fall += 0.5 * step * squared
        axpy(solution, step.astype(dtype), direction, n_threads=n_threads)
        axpy(residual, -step.astype(dtype), product, n_threads=n_threads)
        del product  # the next one is made beside the direction, not beside this one as well
        previous = squared
        squared = np.where(active, inner(residual, residual), squared)
        active &= squared > tol * tol * start
        turn = np.divide(squared, previous, out=np.zeros_like(squared), where=active).astype(dtype)
        aypx(direction, turn, residual, n_threads=n_threads)
    status: Literal["converged", "max_iter", "not_positive", "not_finite"] = "converged"
    if not finite.all():
        status = "not_finite"
    elif failed.any():
        status = "not_positive"
    elif active.any():
        status = "max_iter"
    relative = float(np.sqrt(np.max(squared / start, initial=0.0))) if finite.all() else float("inf")
    return CGResult(solution, status, n_iter, relative, fall)


def quadratic_step(
    problem: SmoothProblem,
    *,
    tol: float,
    max_iter: int,
    inner: Inner | None = None,
    add_to: np.ndarray | None = None,
    n_threads: int = 1,
) -> CGResult:
    """The step from its point to the minimum of a quadratic: Hessian · s = −gradient by conjugate gradients.

    Parameters as in :func:`conjugate_gradient`; with ``add_to`` the point itself is moved. ``fall`` of the result is by
    how much the value has fallen.
    """
    downhill = problem.gradient()
    np.negative(downhill, out=downhill)
    return conjugate_gradient(
        problem.hessian_vector, downhill, tol=tol, max_iter=max_iter, inner=inner, add_to=add_to, n_threads=n_threads
    )
