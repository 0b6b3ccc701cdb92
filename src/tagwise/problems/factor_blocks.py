"""The low-rank problem for any loss, one block of variables at a time, as trust-region Newton wants it."""

from __future__ import annotations

import numpy as np

from tagwise.kernels import FeatureMatrix
from tagwise.problems.pair_losses import PairLoss

__all__ = ["FeatureProblem", "LabelProblem"]


class FeatureProblem:
    """W (d×k) for fixed label factors: Σ ω ℓ(y, x_iᵀWh_j + b_j) + ½λ‖W‖², one problem of d·k variables.

    With A = XW the gradient is Xᵀ·slope + λW, and a Hessian product Xᵀ·curvature(X·S) + λS.
    ``extended`` is H, or [H, b] where there is an intercept.
    """

    def __init__(self, X: FeatureMatrix, pairs: PairLoss, extended: np.ndarray, rank: int, reg: float) -> None:
        self.X, self.pairs, self.extended, self.rank, self.reg = X, pairs, extended, rank, extended.dtype.type(reg)

    def value(self, W: np.ndarray) -> np.ndarray:
        """The objective at W, shape (1, 1)."""
        self._W = W
        self.A = self.X.matmul(W)
        loss = float(self.pairs.evaluate(self._extend(self.A, 1), self.extended).sum())
        return np.full((1, 1), loss + 0.5 * float(self.reg) * float(np.sum(W.astype(np.float64) ** 2)))

    def gradient(self) -> np.ndarray:
        """Xᵀ·slope + λW."""
        gradient = self.X.rmatmul(np.ascontiguousarray(self.pairs.slope()[:, : self.rank]))
        gradient += self.reg * self._W
        return gradient

    def hessian_vector(self, direction: np.ndarray) -> np.ndarray:
        """Xᵀ·curvature(X·direction) + λ·direction."""
        curved = self.pairs.curvature(self._extend(self.X.matmul(direction), 0))
        product = self.X.rmatmul(np.ascontiguousarray(curved[:, : self.rank]))
        product += self.reg * direction
        return product

    def _extend(self, A: np.ndarray, last: int) -> np.ndarray:
        if self.extended.shape[1] == self.rank:
            return A
        return np.column_stack([A, np.full(len(A), last, dtype=A.dtype)])


class LabelProblem:
    """[H, b] (L×(k+1)) for fixed A = XW: an independent problem of k+1 variables per label, b unpenalised.

    ``extended`` is A, or [A, 1] where there is an intercept.
    """

    def __init__(self, pairs: PairLoss, extended: np.ndarray, rank: int, reg: float) -> None:
        self.pairs, self.extended = pairs, extended
        self.penalty = np.zeros(extended.shape[1], dtype=extended.dtype)
        self.penalty[:rank] = reg

    def value(self, H: np.ndarray) -> np.ndarray:
        """The objective of each label, shape (L, 1)."""
        self._H = H
        penalty = np.sum(0.5 * self.penalty * H.astype(np.float64) ** 2, axis=1)
        return (self.pairs.evaluate(H, self.extended) + penalty)[:, None]

    def gradient(self) -> np.ndarray:
        """Slope + penalty · H."""
        return self.pairs.slope() + self.penalty * self._H

    def hessian_vector(self, direction: np.ndarray) -> np.ndarray:
        """Curvature(direction) + penalty · direction."""
        return self.pairs.curvature(direction) + self.penalty * direction
