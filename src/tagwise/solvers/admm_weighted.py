"""ADMM as in :mod:`tagwise.solvers.admm`, where every entry of R has a weight of its own, which may be 0 (unknown).

For every column of R alone,

    min over H of  Σ ω(R − XH)² + λ1‖H‖² + λ3 Σ_{ω>0} |XH|.

With the loss in the H-step, as there, each column would need a factorisation of its own. Here the loss moves to the
Z-step, which is entry by entry anyway, and one factorisation serves all columns, weights and masks again:

    H ← (ρXᵀX + λ1 I)⁻¹ ρXᵀ(Z − μ)
    F ← αXH + (1−α)Z                                                 over-relaxation
    Z ← soft((ωR + ρ(F + μ)) / (ω + ρ), λ3/2(ω + ρ)),  F + μ where ω = 0
    μ ← F + μ − Z

After every step 2ρμ is a subgradient of the loss and of λ3‖·‖₁ at Z; what is missing to optimality is

    primal   ‖XH − Z‖
    dual     ‖λ1 H + ρXᵀμ‖
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.vectors import dot_columns
from tagwise.parallel import even_chunks
from tagwise.solvers.admm import CHUNK_NUMBERS, SparseFitRidge
from tagwise.solvers.admm_state import ADMMResult, Columns, relax
from tagwise.validation import check_integer, check_real, shape_text

__all__ = ["WeightedFitRidge"]


class WeightedFitRidge(SparseFitRidge):
    """The weighted problem for one X, λ1 and λ3. Parameters as in :class:`SparseFitRidge`; λ3 = 0 is no special case.

    A column costs two more arrays of n numbers than :func:`~tagwise.solvers.admm.columns_that_fit` counts.
    """

    def weighted_objective(self, H: np.ndarray, residual: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Σ ω(R − XH)² + λ1‖H‖² + λ3 Σ_{ω>0} |XH| for each column, float64; R and ω are n×B."""
        fitted = self.X.matmul(H)
        left = residual - fitted
        squares = dot_columns(weights * left, left) + self.reg * dot_columns(H, H)
        np.abs(fitted, out=fitted)
        fitted *= weights > 0
        return squares[0] + self.sparsity * fitted.sum(axis=0, dtype=np.float64)

    def solve_weighted(
        self,
        residual: np.ndarray,
        weights: np.ndarray,
        *,
        start: tuple[np.ndarray, np.ndarray | None] | None = None,
        relaxation: float = 1.6,
        adapt: bool = True,
        tol: float = 1e-4,
        abs_tol: float = 1e-6,
        max_iter: int = 200,
    ) -> ADMMResult:
        """Solve for the columns of R (n×B) with weights ω ≥ 0 (n×B); the rest as in :meth:`SparseFitRidge.solve`."""
        residual, weights = self._check_weighted(residual, weights)
        check_real(relaxation, "relaxation", minimum=1, maximum=1.8)
        check_real(tol, "tol", minimum=0)
        check_real(abs_tol, "abs_tol", minimum=0)
        check_integer(max_iter, "max_iter", minimum=1)
        self._check_start(start, residual.shape[1])
        cross = self.X.rmatmul(weights * residual)
        base = Columns.begin(self.X, cross, start, np.full(residual.shape[1], self.penalty))
        work = _WeightedColumns(**vars(base), residual=residual, weights=weights)
        return self._iterate(
            work,
            lambda H: self.weighted_objective(H, residual, weights),
            started=start is not None,
            relaxation=relaxation,
            adapt=adapt,
            tol=tol,
            abs_tol=abs_tol,
            max_iter=max_iter,
        )

    def _is_ridge(self) -> bool:
        return False

    def _scale(self, rho: Any) -> Any:
        return rho

    def _split(self, work: Columns, fitted: np.ndarray, relaxation: float) -> None:
        assert isinstance(work, _WeightedColumns)
        rho = work.rho.astype(fitted.dtype)
        half = fitted.dtype.type(self.sparsity / 2)
        for start, stop in even_chunks(len(fitted), max(1, CHUNK_NUMBERS // fitted.shape[1])):
            z, m, weight = work.Z[start:stop], work.mu[start:stop], work.weights[start:stop]
            relax(z, fitted[start:stop], relaxation)
            z += m
            m[:] = z
            z *= rho
            z += weight * work.residual[start:stop]
            threshold = half * (weight > 0)
            z -= np.clip(z, -threshold, threshold)
            z /= weight + rho
            m -= z
            # Exactly: an unknown entry pulls nowhere.
            m[weight == 0] = 0

    def _check_weighted(self, residual: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residual, weights = np.ascontiguousarray(residual), np.ascontiguousarray(weights)
        expected = f"{self.X.shape[0]:,} rows (those of X) and at least one column"
        if residual.ndim != 2 or residual.shape[0] != self.X.shape[0] or residual.shape[1] == 0:
            raise InvalidInputError(f"residual must have {expected}; found shape {shape_text(residual.shape)}.")
        if weights.shape != residual.shape or weights.dtype != residual.dtype:
            raise InvalidInputError(
                f"weights must have the shape and type of residual, {shape_text(residual.shape)} {residual.dtype}; "
                f"found {shape_text(weights.shape)} {weights.dtype}."
            )
        if residual.dtype not in (np.float32, np.float64):
            raise InvalidInputError(f"residual must be of type float32 or float64; found {residual.dtype}.")
        if not (np.isfinite(residual).all() and np.isfinite(weights).all() and (weights >= 0).all()):
            raise InvalidInputError("residual and weights must be finite, and weights not below 0.")
        return residual, weights


@dataclass
class _WeightedColumns(Columns):
    residual: np.ndarray
    weights: np.ndarray
    _kept: ClassVar[tuple[str, ...]] = (*Columns._kept, "residual", "weights")

    def right(self) -> np.ndarray:
        right = self.back_Z - self.back_mu
        right *= self.rho.astype(right.dtype)
        return right

    def smooth_slope(self) -> np.ndarray:
        return np.zeros_like(self.H)
