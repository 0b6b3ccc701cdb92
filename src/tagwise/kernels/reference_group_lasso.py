"""The slow, obvious numpy twin of the group lasso kernel, from rows and atoms rather than from a Gram matrix."""

from __future__ import annotations

import numpy as np

__all__ = ["accelerated_group_lasso", "group_lasso_gap", "group_lasso_objective", "proximal_group_lasso"]


def group_lasso_objective(
    X: np.ndarray, atoms: np.ndarray, starts: np.ndarray, reg: float, coefficients: np.ndarray
) -> np.ndarray:
    """½‖x − βC‖² + λ Σ_g ‖β_g‖ of each row."""
    residual = X - coefficients @ atoms
    lengths = np.sqrt(np.add.reduceat(coefficients**2, starts[:-1], axis=1))
    return np.asarray(0.5 * (residual**2).sum(axis=1) + reg * lengths.sum(axis=1))


def group_lasso_gap(
    X: np.ndarray, atoms: np.ndarray, starts: np.ndarray, reg: float, coefficients: np.ndarray
) -> np.ndarray:
    """The objective of each row less the value of the best dual point along its residual."""
    residual = X - coefficients @ atoms
    largest = np.sqrt(np.add.reduceat((residual @ atoms.T) ** 2, starts[:-1], axis=1)).max(axis=1)
    squared = (residual**2).sum(axis=1)
    against_row = (residual * X).sum(axis=1)
    border = np.divide(reg, largest, out=np.full(len(X), np.inf), where=largest > 0)
    scale = np.clip(np.divide(against_row, squared, out=np.ones(len(X)), where=squared > 0), -border, border)
    dual = scale * against_row - 0.5 * scale**2 * squared
    return np.asarray(group_lasso_objective(X, atoms, starts, reg, coefficients) - dual)


def proximal_group_lasso(
    X: np.ndarray, atoms: np.ndarray, starts: np.ndarray, reg: float, *, tol: float, max_iter: int
) -> np.ndarray:
    """Proximal gradient steps on all rows at once until every gap is at most ``tol`` · ½‖x‖²: β (n×R)."""
    return _proximal(X, atoms, starts, reg, tol=tol, max_iter=max_iter, accelerated=False)


def accelerated_group_lasso(
    X: np.ndarray, atoms: np.ndarray, starts: np.ndarray, reg: float, *, tol: float, max_iter: int
) -> np.ndarray:
    """The same with Nesterov's momentum."""
    return _proximal(X, atoms, starts, reg, tol=tol, max_iter=max_iter, accelerated=True)


def _proximal(
    X: np.ndarray,
    atoms: np.ndarray,
    starts: np.ndarray,
    reg: float,
    *,
    tol: float,
    max_iter: int,
    accelerated: bool,
) -> np.ndarray:
    gram, c = atoms @ atoms.T, X @ atoms.T
    step = 1 / np.linalg.eigvalsh(gram)[-1]
    sizes = np.diff(starts)
    beta = point = np.zeros_like(c)
    momentum = 1.0
    wanted = tol * 0.5 * (X**2).sum(axis=1)
    for iteration in range(max_iter):
        # A gap costs a few steps, so it is not looked at after every one.
        if iteration % 10 == 0 and (group_lasso_gap(X, atoms, starts, reg, beta) <= wanted).all():
            break
        moved = point + step * (c - point @ gram)
        lengths = np.sqrt(np.add.reduceat(moved**2, starts[:-1], axis=1))
        shrink = np.maximum(0, 1 - step * reg / np.maximum(lengths, np.finfo(float).tiny))
        new = moved * np.repeat(shrink, sizes, axis=1)
        if accelerated:
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            point = new + (momentum - 1) / following * (new - beta)
            momentum = following
        else:
            point = new
        beta = new
    return beta
