"""What an ADMM solve carries from step to step, how its penalty adapts, and how it tells its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from tagwise.kernels import FeatureMatrix
from tagwise.kernels.vectors import dot_columns

__all__ = ["ADMMResult", "Columns", "balance", "may_adapt_after", "norms", "relax"]

# ρ is reconsidered every so many steps, moved only when the residuals are out of balance by this factor, and left
# alone after the last step named: ADMM with a penalty that is constant in the end converges from any start.
_ADAPT_EVERY, _ADAPT_RATIO, _ADAPT_UNTIL = 5, 4.0, 200
_MOST_CHANGE = 10.0
_SMALLEST_PENALTY, _LARGEST_PENALTY = 1e-6, 1e6


@dataclass(frozen=True)
class ADMMResult:
    """How a solve ended.

    Attributes
    ----------
    solution : array (d, B)
        H.
    split : array (n, B)
        Z, the copy of XH that holds exact zeros.
    dual : array (n, B)
        The multiplier 2ρμ of Z = XH: a subgradient of λ3‖·‖₁ at Z. Independent of ρ, so fit for warm starts.
    penalty : array (B,)
        The last ρ of each column.
    status : "converged" or "max_iter"
        ``"converged"`` when every column met its tolerances.
    n_iter : int
        Steps of the column that took most.
    converged, column_iterations : arrays (B,)
        The same for each column.
    primal_residual, dual_residual : arrays (n_iter, B)
        After every step; a column that has converged repeats its last value.
    objective : array (B,)
        ‖R − XH‖² + λ1‖H‖² + λ3‖XH‖₁ at the solution.
    """

    solution: np.ndarray
    split: np.ndarray
    dual: np.ndarray
    penalty: np.ndarray
    status: Literal["converged", "max_iter"]
    n_iter: int
    converged: np.ndarray
    column_iterations: np.ndarray
    primal_residual: np.ndarray
    dual_residual: np.ndarray
    objective: np.ndarray


@dataclass
class Columns:
    """The columns still under way. ``back_Z`` = XᵀZ, ``back_mu`` = Xᵀμ, ``gram_H`` = XᵀXH."""

    columns: np.ndarray
    rho: np.ndarray
    cross: np.ndarray
    Z: np.ndarray
    mu: np.ndarray
    back_Z: np.ndarray
    back_mu: np.ndarray
    H: np.ndarray
    gram_H: np.ndarray
    _kept: ClassVar[tuple[str, ...]] = ("columns", "rho", "cross", "Z", "mu", "back_Z", "back_mu", "H", "gram_H")

    @classmethod
    def begin(
        cls, X: FeatureMatrix, cross: np.ndarray, start: tuple[np.ndarray, np.ndarray | None] | None, rho: np.ndarray
    ) -> Columns:
        """At Z and μ of an earlier result, or at 0."""
        shape, dtype = (X.shape[0], cross.shape[1]), cross.dtype
        if start is None or not rho.all():
            Z, mu, back_Z, back_mu = np.zeros(shape, dtype), np.zeros(shape, dtype), *np.zeros((2, *cross.shape), dtype)
        else:
            Z, back_mu = start[0].astype(dtype), np.zeros_like(cross)
            back_Z = X.rmatmul(Z)
            if start[1] is None:
                mu = np.zeros(shape, dtype)
            else:
                mu = (start[1] / (2 * rho)).astype(dtype)
                back_mu = X.rmatmul(mu)
        H, gram_H = np.zeros_like(cross), np.zeros_like(cross)
        return cls(np.arange(shape[1]), rho, cross, Z, mu, back_Z, back_mu, H, gram_H)

    def right(self) -> np.ndarray:
        """XᵀR + ρXᵀ(Z − μ)."""
        right = self.back_Z - self.back_mu
        right *= self.rho.astype(right.dtype)
        right += self.cross
        return right

    def smooth_slope(self) -> np.ndarray:
        """XᵀXH − XᵀR: the slope of the part of the loss that the H-step knows."""
        return self.gram_H - self.cross

    def keep(self, places: np.ndarray) -> None:
        """Only these columns go on."""
        for name in self._kept:
            setattr(self, name, np.take(getattr(self, name), places, axis=-1))

    def rescale(self, factor: np.ndarray) -> None:
        """ρ times ``factor``; μ the other way round, as ρμ is what has been learnt."""
        rho = np.clip(self.rho * factor, _SMALLEST_PENALTY, _LARGEST_PENALTY)
        if np.array_equal(rho, self.rho):
            return
        back = (self.rho / rho).astype(self.mu.dtype)
        self.mu *= back
        self.back_mu *= back
        self.rho = rho


def relax(Z: np.ndarray, fitted: np.ndarray, relaxation: float) -> None:
    """F = α·XH + (1−α)·Z in place of Z."""
    if relaxation == 1:
        Z[:] = fitted
    else:
        Z *= 1 - relaxation
        Z += relaxation * fitted


def balance(primal: np.ndarray, primal_goal: np.ndarray, dual: np.ndarray, dual_goal: np.ndarray) -> np.ndarray:
    """The factor of ρ that brings both residuals, over their tolerances, closer to each other."""
    tiny = np.finfo(np.float64).tiny
    ratio = np.maximum(primal * dual_goal, tiny) / np.maximum(dual * primal_goal, tiny)
    factor = np.clip(np.sqrt(ratio), 1 / _MOST_CHANGE, _MOST_CHANGE)
    return np.where((ratio > _ADAPT_RATIO) | (ratio < 1 / _ADAPT_RATIO), factor, 1.0)


def may_adapt_after(step: int) -> bool:
    """Whether ρ is reconsidered after this step."""
    return step % _ADAPT_EVERY == 0 and step <= _ADAPT_UNTIL


def norms(columns: np.ndarray) -> np.ndarray:
    """The length of each column."""
    return np.sqrt(dot_columns(columns, columns)[0])
