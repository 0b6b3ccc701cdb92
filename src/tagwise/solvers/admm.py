"""ADMM for ridge regression whose fitted values are kept sparse: many columns on one matrix.

For each column of R,

    min over H of  ‖R − XH‖² + λ1‖H‖² + λ3‖XH‖₁,

by the splitting Z = XH (Boyd, Parikh, Chu, Peleato, Eckstein 2011, in scaled form, with penalty ρ‖XH − Z + μ‖²):

    H ← ((1+ρ)XᵀX + λ1 I)⁻¹ (XᵀR + ρXᵀ(Z − μ))
    F ← αXH + (1−α)Z                                 over-relaxation
    Z ← soft(F + μ, λ3/2ρ),   μ ← F + μ − Z = clip(F + μ, ±λ3/2ρ)

The last identity shows that 2ρμ is a subgradient of λ3‖·‖₁ at Z after every step. The residuals are then all that is
missing to the optimality conditions, with factors of 2 left out:

    primal   ‖XH − Z‖
    dual     ‖XᵀXH − XᵀR + λ1 H + ρXᵀμ‖     (= ρ‖Xᵀ(Z − Z_before)‖ when α = 1 and the H-step is exact)

R itself is never needed: XᵀR and ‖R‖² are enough.

With a weight ω ≥ 0 per entry of R (0: unknown),

    min over H of  Σ ω(R − XH)² + λ1‖H‖² + λ3 Σ_{ω>0} |XH|,

(where rows have weights v, |XH| is counted v times; ω has them already), the loss moves to the Z-step, which is entry
by entry anyway, so that one factorisation still serves all columns:

    H ← (ρXᵀX + λ1 I)⁻¹ ρXᵀ(Z − μ)
    Z ← soft((ωR + ρ(F + μ)) / (ω + ρ), λ3/2(ω + ρ)),  F + μ where ω = 0
    μ ← F + μ − Z

Then 2ρμ is a subgradient of the loss and of λ3‖·‖₁ at Z, and the dual residual is ‖λ1 H + ρXᵀμ‖.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import FeatureMatrix, feature_matrix
from tagwise.kernels.vectors import dot_columns
from tagwise.parallel import even_chunks
from tagwise.solvers.gram_system import CGSystem, CholeskySystem, EigenSystem, GramSystem, is_single
from tagwise.validation import Features

__all__ = ["ADMMResult", "L1FitRidge", "WeightedL1FitRidge", "columns_that_fit", "factorisation_bytes"]

# α: 1 is plain ADMM; 1.5 to 1.8 saves about a third of the steps where there are many.
_RELAXATION = 1.6
# Tolerance of the residuals beside the relative one, per root of their length.
_ABSOLUTE_TOL = 1e-6
# ρ at the start. The quadratic has curvature 1 + λ1/σ² in the fitted values (σ a singular value of X), so a good ρ is
# seldom below 1.
_PENALTY = 1.0
# ρ of a column is reconsidered every so many steps, moved (by the root of the imbalance, at most tenfold) only when the
# residuals are out of balance by this factor, and left alone after the last step named: ADMM with a penalty that is
# constant in the end converges from any start.
_ADAPT_EVERY, _ADAPT_RATIO, _ADAPT_UNTIL = 5, 4.0, 200
_MOST_CHANGE = 10.0
_SMALLEST_PENALTY, _LARGEST_PENALTY = 1e-6, 1e6
# Up to this side an eigendecomposition (some ten times a Cholesky factor's time) is made in seconds.
_EIGEN_SIDE = 2000
# Numbers of Z and μ that pass through the cache together.
_CHUNK_NUMBERS = 1 << 16
# Arrays of n and of d rows that a solve keeps at its peak, results included; see columns_that_fit.
_ROW_ARRAYS, _FEATURE_ARRAYS = 6, 14


def columns_that_fit(
    n_rows: int, n_features: int, memory_limit: float, itemsize: int = 4, *, extra_rows: int = 0
) -> int:
    """Number of columns that :meth:`L1FitRidge.solve` can take at once within ``memory_limit`` bytes, at least 1.

    A column costs 6 arrays of n and 14 of d numbers at the peak (the H-step works in float64), results included, and
    ``extra_rows`` arrays of n that the caller holds. The matrix and its factorisation come on top.
    """
    per = itemsize * ((_ROW_ARRAYS + extra_rows) * n_rows + _FEATURE_ARRAYS * n_features)
    return max(1, int(memory_limit // per))


def factorisation_bytes(side: int) -> int:
    """Peak memory of an eigendecomposition, side = min(n, d)."""
    return 24 * side**2


@dataclass(frozen=True)
class ADMMResult:
    """Solutions of B columns.

    ``solution`` is H (d×B), ``split`` the copy Z of XH that holds exact zeros (n×B), ``dual`` the multiplier 2ρμ of
    Z = XH (n×B): a subgradient of λ3‖·‖₁ at Z. ``objective`` and ``converged`` are per column.
    """

    solution: np.ndarray
    split: np.ndarray
    dual: np.ndarray
    objective: np.ndarray
    converged: np.ndarray


@dataclass
class _State:
    """The columns still under way. ``back_Z`` = XᵀZ, ``back_mu`` = Xᵀμ, ``gram_H`` = XᵀXH.

    ``residual`` and ``weights`` are R and ω of the weighted problem, None otherwise.
    """

    columns: np.ndarray
    rho: np.ndarray
    cross: np.ndarray
    Z: np.ndarray
    mu: np.ndarray
    back_Z: np.ndarray
    back_mu: np.ndarray
    H: np.ndarray
    gram_H: np.ndarray
    residual: np.ndarray | None
    weights: np.ndarray | None

    def right(self) -> np.ndarray:
        """The right side of the H-step: ρXᵀ(Z − μ), and XᵀR where the H-step knows the loss."""
        right = self.back_Z - self.back_mu
        right *= self.rho.astype(right.dtype)
        if self.weights is None:
            right += self.cross
        return right

    def keep(self, which: np.ndarray) -> None:
        """Only these columns continue."""
        for name, array in vars(self).items():
            if array is not None:
                setattr(self, name, np.take(array, which, axis=-1))

    def rescale(self, factor: np.ndarray) -> None:
        """ρ times ``factor``; μ the other way round, as ρμ is what has been learnt."""
        rho = np.clip(self.rho * factor, _SMALLEST_PENALTY, _LARGEST_PENALTY)
        back = (self.rho / rho).astype(self.mu.dtype)
        self.mu *= back
        self.back_mu *= back
        self.rho = rho


class L1FitRidge:
    """The problem for one X, λ1 and λ3, with the factorisation that serves all columns and calls.

    Parameters
    ----------
    X : FeatureMatrix, CSR or array (n, d)
    reg : float
        λ1 > 0.
    sparsity : float
        λ3 ≥ 0. At 0 the problem is ridge regression, and one H-step with ρ = 0 is its solution.
    method : "auto", "eigen", "cholesky" or "cg"
        How the H-step is solved. With m = min(n, d):

        ``"eigen"``: an eigendecomposition of XᵀX (of XXᵀ when n < d), in which each column may adapt its own ρ. O(m³)
        once, O(m²) per column and step, 8m² bytes, 24m² while it is made.
        ``"cholesky"``: a Cholesky factor of (1+ρ)XᵀX + λ1 I, or of its n×n twin by Woodbury's identity. m³/3 once,
        O(m²) per column and step, 8m² bytes, 16m² while it is made. **ρ stays fixed.**
        ``"cg"``: conjugate gradients from the last H; ρ may adapt; no memory beyond the arrays of a solve.
        ``"auto"`` takes the first for m ≤ 2,000, else the second, each if ``memory_limit`` allows, else the third.
    memory_limit : float
        Bytes for the factorisation.
    n_threads : int
        For products and direct solves; used only when X is not a FeatureMatrix, which brings its own.

    Notes
    -----
    The factorisation and the H-step are in float64 whatever the type of the columns; all else is in their type. For
    n < d and a dense float32 X a float64 copy of X is kept: Woodbury's identity subtracts numbers that are λ1⁻¹σ²
    times their difference.
    """

    def __init__(
        self,
        X: FeatureMatrix | Features,
        reg: float,
        sparsity: float,
        *,
        method: str = "auto",
        memory_limit: float = 2.0**30,
        n_threads: int = 1,
    ) -> None:
        self.X = feature_matrix(X, n_threads=n_threads) if isinstance(X, np.ndarray) or sp.issparse(X) else X
        self.reg, self.sparsity = float(reg), float(sparsity)
        self.penalty = 0.0 if self._is_ridge() else _PENALTY
        n_rows, n_features = self.X.shape
        side = min(n_rows, n_features)
        # Only a dense matrix of single precision needs its copy, and only where n < d.
        extra = 8 * n_rows * n_features if n_rows < n_features and is_single(self.X) else 0
        if method == "auto":
            if side <= _EIGEN_SIDE and factorisation_bytes(side) + extra <= memory_limit:
                method = "eigen"
            else:
                method = "cholesky" if 16 * side**2 + extra <= memory_limit else "cg"
        self.method = method
        threads = int(getattr(self.X, "n_threads", n_threads))
        self._system: GramSystem
        if method == "eigen":
            self._system = EigenSystem(self.X, self.reg, threads)
        elif method == "cholesky":
            self._system = CholeskySystem(self.X, self.reg, self._scale(self.penalty), threads)
        else:
            self._system = CGSystem(self.X, self.reg)

    def objective(self, H: np.ndarray, cross: np.ndarray, squared_norm: np.ndarray) -> np.ndarray:
        """‖R − XH‖² + λ1‖H‖² + λ3‖XH‖₁ per column; cross = XᵀR (d×B), squared_norm = ‖R‖² (B). float64."""
        fitted = self.X.matmul(H)
        squares = dot_columns(fitted, fitted) - 2 * dot_columns(cross, H) + self.reg * dot_columns(H, H)
        np.abs(fitted, out=fitted)
        return squared_norm + squares[0] + self.sparsity * fitted.sum(axis=0, dtype=np.float64)

    def solve(
        self,
        cross: np.ndarray,
        squared_norm: np.ndarray,
        *,
        start: np.ndarray | None = None,
        tol: float = 1e-4,
        max_iter: int = 200,
    ) -> ADMMResult:
        """Solve for the columns of R given by XᵀR and ‖R‖².

        ``cross`` = XᵀR (d×B) is in float32 or float64, the type of all results; ``squared_norm`` = ‖R‖² (B) serves the
        objective alone. ``start`` is the Z (n×B) to begin at, 0 by default. A column has converged when
        primal ≤ √n·10⁻⁶ + tol·max(‖XH‖, ‖Z‖) and dual ≤ √d·10⁻⁶ + tol·max(‖XᵀR‖, ρ‖Xᵀμ‖), and costs nothing from then
        on.

        Notes
        -----
        Columns do not influence each other: any split into blocks gives the same up to rounding. A step costs one
        product with X, two with Xᵀ and the H-step. Memory: :func:`columns_that_fit`.
        """
        cross = np.ascontiguousarray(cross)
        _require_finite(cross, "cross")
        _require_finite(squared_norm, "squared_norm")

        def objective(H: np.ndarray) -> np.ndarray:
            return self.objective(H, cross, squared_norm)

        if self._is_ridge():
            return self._ridge(cross, objective, tol)
        return self._iterate(cross, objective, start, tol, max_iter)

    def _is_ridge(self) -> bool:
        """Whether one solve of the H-step's system is the solution."""
        return self.sparsity == 0

    def _scale(self, rho: Any) -> Any:
        """The factor of XᵀX in the H-step."""
        return 1 + rho

    def _iterate(
        self,
        cross: np.ndarray,
        objective: Callable[[np.ndarray], np.ndarray],
        start: np.ndarray | None,
        tol: float,
        max_iter: int,
        residual: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> ADMMResult:
        """Steps until every column has met its tolerances."""
        n_rows, n_columns = self.X.shape[0], cross.shape[1]
        Z = np.zeros((n_rows, n_columns), cross.dtype) if start is None else start.astype(cross.dtype)
        state = _State(
            columns=np.arange(n_columns),
            rho=np.full(n_columns, self.penalty),
            cross=cross,
            Z=Z,
            mu=np.zeros_like(Z),
            back_Z=np.zeros_like(cross) if start is None else self.X.rmatmul(Z),
            back_mu=np.zeros_like(cross),
            H=np.zeros_like(cross),
            gram_H=np.zeros_like(cross),
            residual=residual,
            weights=weights,
        )
        del Z
        if start is not None and self.method == "cg":
            # A rough first H would spoil the Z that was given.
            exact = self._exact_system(tol)
            state.H = exact.solve(state.right(), self._scale(state.rho), state.H, state.gram_H)
            state.gram_H = self.X.rmatmul(self.X.matmul(state.H))

        solution = np.empty_like(cross)
        split, dual = (np.empty((n_rows, n_columns), dtype=cross.dtype) for _ in range(2))
        converged = np.zeros(n_columns, dtype=bool)
        for step in range(1, max_iter + 1):
            primal, primal_size, dual_left, dual_size = self._step(state)
            primal_goal = np.sqrt(n_rows) * _ABSOLUTE_TOL + tol * primal_size
            dual_goal = np.sqrt(len(cross)) * _ABSOLUTE_TOL + tol * dual_size
            met = (primal <= primal_goal) & (dual_left <= dual_goal)
            done = met if step < max_iter else np.ones_like(met)
            if done.any():
                which = state.columns[done]
                solution[:, which], split[:, which] = state.H[:, done], state.Z[:, done]
                dual[:, which] = state.mu[:, done] * (2 * state.rho[done]).astype(cross.dtype)
                converged[which] = met[done]
                if done.all():
                    break
                state.keep(np.flatnonzero(~done))
            if self._system.adaptive and step % _ADAPT_EVERY == 0 and step <= _ADAPT_UNTIL:
                left = ~done
                state.rescale(_balance(primal[left], primal_goal[left], dual_left[left], dual_goal[left]))
        del state
        return ADMMResult(solution, split, dual, objective(solution), converged)

    def _step(self, state: _State) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """One round of H, Z and μ; the norms of both residuals and of what they are measured against."""
        dtype = state.cross.dtype
        rho = state.rho.astype(dtype)
        solved = self._system.solve(state.right(), self._scale(state.rho), state.H, state.gram_H)
        state.H = solved.astype(dtype, copy=False)
        fitted = self.X.matmul(state.H)
        # F in place of Z, then Z and μ: a few rows at a time, so that a chunk of them passes through the cache once.
        for start, stop in even_chunks(len(fitted), max(1, _CHUNK_NUMBERS // fitted.shape[1])):
            Z = state.Z[start:stop]
            Z *= 1 - _RELAXATION
            Z += _RELAXATION * fitted[start:stop]
            self._split(state, start, stop)
        sizes = np.maximum(_norms(fitted), _norms(state.Z))
        fitted -= state.Z
        primal = _norms(fitted)
        del fitted
        # XᵀF = Xᵀ(μ − μ_before + Z), and F = αXH + (1−α)Z_before: XᵀXH comes without a product of its own.
        state.gram_H = (_RELAXATION - 1) * state.back_Z - state.back_mu
        state.back_Z, state.back_mu = self.X.rmatmul(state.Z), self.X.rmatmul(state.mu)
        state.gram_H += state.back_Z
        state.gram_H += state.back_mu
        state.gram_H /= _RELAXATION
        slope = rho * state.back_mu
        against = np.maximum(_norms(state.cross), _norms(slope))
        if state.weights is None:
            slope += state.gram_H - state.cross
        slope += self.reg * state.H
        return primal, sizes, _norms(slope), against

    def _split(self, state: _State, start: int, stop: int) -> None:
        """Z and μ of some rows anew, in place, given F in place of Z."""
        threshold = (self.sparsity / (2 * state.rho)).astype(state.cross.dtype)
        z, m = state.Z[start:stop], state.mu[start:stop]
        z += m
        np.clip(z, -threshold, threshold, out=m)
        z -= m

    def _ridge(self, cross: np.ndarray, objective: Callable[[np.ndarray], np.ndarray], tol: float) -> ADMMResult:
        rho, zero = np.zeros(cross.shape[1]), np.zeros_like(cross)
        H = self._exact_system(tol).solve(cross, self._scale(rho), zero, zero).astype(cross.dtype, copy=False)
        fitted = self.X.matmul(H)
        slope = _norms(self.X.rmatmul(fitted) - cross + self.reg * H)
        converged = slope <= np.sqrt(len(H)) * _ABSOLUTE_TOL + tol * _norms(cross)
        return ADMMResult(H, fitted, np.zeros_like(fitted), objective(H), converged)

    def _exact_system(self, tol: float) -> GramSystem:
        """The system, where one solve of it must be good enough on its own and not just one of many steps."""
        return CGSystem(self.X, self.reg, 0.1 * tol, 1000) if self.method == "cg" else self._system


class WeightedL1FitRidge(L1FitRidge):
    """The weighted problem for one X, λ1 and λ3. Parameters as in :class:`L1FitRidge`; λ3 = 0 is no special case.

    ``row_weight`` (n) is what |XH| of a row counts, 1 where it is None; ω has the weights of rows already. A column
    costs two more arrays of n numbers than :func:`columns_that_fit` counts.
    """

    def __init__(
        self,
        X: FeatureMatrix | Features,
        reg: float,
        sparsity: float,
        *,
        row_weight: np.ndarray | None = None,
        **options: Any,
    ) -> None:
        super().__init__(X, reg, sparsity, **options)
        self._row_weight = np.ones((self.X.shape[0], 1)) if row_weight is None else row_weight[:, None]

    def weighted_objective(self, H: np.ndarray, residual: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Σ ω(R − XH)² + λ1‖H‖² + λ3 Σ_{ω>0} |XH| per column, float64; R and ω are n×B."""
        fitted = self.X.matmul(H)
        left = residual - fitted
        squares = dot_columns(weights * left, left) + self.reg * dot_columns(H, H)
        np.abs(fitted, out=fitted)
        fitted *= (weights > 0) * self._row_weight.astype(fitted.dtype)
        return squares[0] + self.sparsity * fitted.sum(axis=0, dtype=np.float64)

    def solve_weighted(
        self,
        residual: np.ndarray,
        weights: np.ndarray,
        *,
        start: np.ndarray | None = None,
        tol: float = 1e-4,
        max_iter: int = 200,
    ) -> ADMMResult:
        """Solve for the columns of R (n×B) with weights ω ≥ 0 (n×B); the rest as in :meth:`L1FitRidge.solve`."""
        _require_finite(residual, "residual")

        def objective(H: np.ndarray) -> np.ndarray:
            return self.weighted_objective(H, residual, weights)

        cross = self.X.rmatmul(weights * residual)
        return self._iterate(cross, objective, start, tol, max_iter, residual, weights)

    def _is_ridge(self) -> bool:
        return False

    def _scale(self, rho: Any) -> Any:
        return rho

    def _split(self, state: _State, start: int, stop: int) -> None:
        assert state.weights is not None
        assert state.residual is not None
        rho = state.rho.astype(state.Z.dtype)
        half = (self.sparsity / 2 * self._row_weight[start:stop]).astype(state.Z.dtype)
        z, m, weight = state.Z[start:stop], state.mu[start:stop], state.weights[start:stop]
        z += m
        m[:] = z
        z *= rho
        z += weight * state.residual[start:stop]
        threshold = half * (weight > 0)
        z -= np.clip(z, -threshold, threshold)
        z /= weight + rho
        m -= z
        # Exactly: an unknown entry pulls nowhere.
        m[weight == 0] = 0


def _balance(primal: np.ndarray, primal_goal: np.ndarray, dual: np.ndarray, dual_goal: np.ndarray) -> np.ndarray:
    """The factor of ρ that brings both residuals, over their tolerances, closer to each other."""
    tiny = np.finfo(np.float64).tiny
    ratio = np.maximum(primal * dual_goal, tiny) / np.maximum(dual * primal_goal, tiny)
    factor = np.clip(np.sqrt(ratio), 1 / _MOST_CHANGE, _MOST_CHANGE)
    return np.where((ratio > _ADAPT_RATIO) | (ratio < 1 / _ADAPT_RATIO), factor, 1.0)


def _norms(columns: np.ndarray) -> np.ndarray:
    """The length of each column."""
    return np.sqrt(dot_columns(columns, columns)[0])


def _require_finite(array: np.ndarray, name: str) -> None:
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} contains NaN or infinity; check what it was computed from.")
