"""ADMM for ridge regression whose fitted values are kept sparse: many columns on one matrix.

For every column of R alone,

    min over H of  ‖R − XH‖² + λ1‖H‖² + λ3‖XH‖₁,

by the splitting Z = XH (Boyd, Parikh, Chu, Peleato, Eckstein 2011, in scaled form, with penalty ρ‖XH − Z + μ‖²):

    H ← ((1+ρ)XᵀX + λ1 I)⁻¹ (XᵀR + ρXᵀ(Z − μ))
    F ← αXH + (1−α)Z                                 over-relaxation
    Z ← soft(F + μ, λ3/2ρ),   μ ← F + μ − Z = clip(F + μ, ±λ3/2ρ)

The last identity shows that 2ρμ is a subgradient of λ3‖·‖₁ at Z after every step. The residuals that are watched are
then all that is missing to the optimality conditions, with factors of 2 left out:

    primal   ‖XH − Z‖
    dual     ‖XᵀXH − XᵀR + λ1 H + ρXᵀμ‖     (= ρ‖Xᵀ(Z − Z_before)‖ when α = 1 and the H-step is exact)

R itself is never needed: XᵀR and ‖R‖² are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import FeatureMatrix, feature_matrix
from tagwise.kernels.vectors import dot_columns
from tagwise.parallel import even_chunks
from tagwise.solvers.admm_state import ADMMResult, Columns, balance, may_adapt_after, norms, relax
from tagwise.solvers.gram_system import CGSystem, CholeskySystem, EigenSystem, GramSystem, is_single
from tagwise.validation import check_choice, check_integer, check_real, shape_text

__all__ = ["CHUNK_NUMBERS", "ADMMResult", "SparseFitRidge", "columns_that_fit", "factorisation_bytes"]

# Up to this side an eigendecomposition (some ten times a Cholesky factor's time) is made in seconds.
_EIGEN_SIDE = 2000
# Numbers of Z and μ that pass through the cache together.
CHUNK_NUMBERS = 1 << 16
# Arrays of n and of d rows that a solve keeps at its peak, results included; see columns_that_fit.
_ROW_ARRAYS, _FEATURE_ARRAYS = 6, 14


def columns_that_fit(
    n_rows: int, n_features: int, memory_limit: float, itemsize: int = 4, *, extra_rows: int = 0
) -> int:
    """How many columns :meth:`SparseFitRidge.solve` can take at once within ``memory_limit`` bytes, at least 1.

    A column costs 6 arrays of n and 14 of d numbers at the peak (the H-step works in float64), results included, and
    ``extra_rows`` arrays of n that the caller holds. The matrix and its factorisation come on top.
    """
    per = itemsize * ((_ROW_ARRAYS + extra_rows) * n_rows + _FEATURE_ARRAYS * n_features)
    return max(1, int(memory_limit // per))


def factorisation_bytes(side: int) -> int:
    """What an eigendecomposition takes at its peak, side = min(n, d)."""
    return 24 * side**2


class SparseFitRidge:
    """The problem for one X, λ1 and λ3, with the factorisation that serves all columns and calls.

    Parameters
    ----------
    X : FeatureMatrix, CSR or array (n, d)
    reg : float
        λ1 > 0.
    sparsity : float
        λ3 ≥ 0. At 0 the problem is ridge regression, and one H-step with ρ = 0 is its solution.
    penalty : float
        ρ > 0. The quadratic has curvature 1 + λ1/σ² in the fitted values (σ a singular value of X), so a good ρ is
        seldom below 1.
    method : "auto", "eigen", "cholesky" or "cg"
        How the H-step is solved. With m = min(n, d):

        ``"eigen"``: an eigendecomposition of XᵀX (of XXᵀ when n < d), in which a new ρ is a new diagonal, so that each
        column may adapt its own. O(m³) once (a large constant), O(m²) a column and step, 8m² bytes, 24m² while it is
        made.

        ``"cholesky"``: a Cholesky factor of (1+ρ)XᵀX + λ1 I, or of its n×n twin by Woodbury's identity. m³/3 once,
        O(m²) a column and step, 8m² bytes, 16m² while it is made. **ρ stays fixed.**

        ``"cg"``: conjugate gradients from the last H; ρ may adapt; no memory beyond the arrays of a solve.

        ``"auto"`` takes the first for m ≤ 2,000, else the second, each if ``memory_limit`` allows, else the third.
    memory_limit : float
        Bytes for the factorisation.
    n_threads : int
        For products and direct solves; used only when X is no FeatureMatrix, which brings its own.

    Notes
    -----
    The factorisation and the H-step are in float64 whatever the type of the columns; all else is in their type. For
    n < d and a dense float32 X a float64 copy of X is kept: Woodbury's identity subtracts numbers that are λ1⁻¹σ²
    times their difference.
    """

    def __init__(
        self,
        X: FeatureMatrix | sp.csr_matrix | np.ndarray,
        reg: float,
        sparsity: float,
        *,
        penalty: float = 1.0,
        method: str = "auto",
        memory_limit: float = 2.0**30,
        n_threads: int = 1,
    ) -> None:
        self.X = _as_feature_matrix(X, n_threads)
        self.reg = check_real(reg, "reg", minimum=0, open_minimum=True)
        self.sparsity = check_real(sparsity, "sparsity", minimum=0)
        self.penalty = check_real(penalty, "penalty", minimum=0, open_minimum=True)
        if self._is_ridge():
            self.penalty = 0.0
        check_choice(method, "method", ("auto", "eigen", "cholesky", "cg"))
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
        """‖R − XH‖² + λ1‖H‖² + λ3‖XH‖₁ for each column; cross = XᵀR (d×B), squared_norm = ‖R‖² (B). float64."""
        fitted = self.X.matmul(H)
        squares = dot_columns(fitted, fitted) - 2 * dot_columns(cross, H) + self.reg * dot_columns(H, H)
        np.abs(fitted, out=fitted)
        return squared_norm + squares[0] + self.sparsity * fitted.sum(axis=0, dtype=np.float64)

    def solve(
        self,
        cross: np.ndarray,
        squared_norm: np.ndarray,
        *,
        start: tuple[np.ndarray, np.ndarray | None] | None = None,
        penalty: np.ndarray | None = None,
        relaxation: float = 1.6,
        adapt: bool = True,
        tol: float = 1e-4,
        abs_tol: float = 1e-6,
        max_iter: int = 200,
    ) -> ADMMResult:
        """Solve for the columns of R given by XᵀR and ‖R‖².

        Parameters
        ----------
        cross : array (d, B)
            XᵀR in float32 or float64, the type of all results.
        squared_norm : array (B,)
            Each column's ‖R‖², for the objective alone.
        start : (split, dual), optional
            Of an earlier result, for the same or a similar R. By default both are 0; a dual of None is 0 too.
        penalty : array (B,), optional
            ρ to begin with for each column, that of an earlier result say; not with ``"cholesky"``.
        relaxation : float in [1, 1.8]
            α. 1 is plain ADMM; 1.5 to 1.8 saves about a third of the steps where there are many.
        adapt : bool
            Whether ρ may change, each column's on its own (never with ``"cholesky"``): every 5 steps, when primal and
            dual residual, each over its tolerance, differ by more than a factor of 4, ρ is multiplied by the square
            root of their ratio, by 10 at most. No change after step 200.
        tol, abs_tol : float
            A column has converged when primal ≤ √n·abs_tol + tol·max(‖XH‖, ‖Z‖) and
            dual ≤ √d·abs_tol + tol·max(‖XᵀR‖, ρ‖Xᵀμ‖). From then on it stands still and costs nothing.
        max_iter : int

        Notes
        -----
        Columns do not influence each other: any split into blocks gives the same up to rounding. A step costs one
        product with X, two with Xᵀ and the H-step. Memory: :func:`columns_that_fit`.
        """
        cross, squared_norm = self._check_columns(cross, squared_norm)
        check_real(relaxation, "relaxation", minimum=1, maximum=1.8)
        check_real(tol, "tol", minimum=0)
        check_real(abs_tol, "abs_tol", minimum=0)
        check_integer(max_iter, "max_iter", minimum=1)
        self._check_start(start, cross.shape[1])
        begin = self._first_penalty(penalty, cross.shape[1])
        work = Columns.begin(self.X, cross, start, begin)
        if self._is_ridge():
            return self._ridge(work, squared_norm, tol, abs_tol)
        return self._iterate(
            work,
            lambda H: self.objective(H, cross, squared_norm),
            started=start is not None,
            relaxation=relaxation,
            adapt=adapt,
            tol=tol,
            abs_tol=abs_tol,
            max_iter=max_iter,
        )

    def _is_ridge(self) -> bool:
        """Whether one solve of the H-step's system is the solution."""
        return self.sparsity == 0

    def _scale(self, rho: Any) -> Any:
        """The factor of XᵀX in the H-step."""
        return 1 + rho

    def _iterate(
        self,
        work: Columns,
        objective: Callable[[np.ndarray], np.ndarray],
        *,
        started: bool,
        relaxation: float,
        adapt: bool,
        tol: float,
        abs_tol: float,
        max_iter: int,
    ) -> ADMMResult:
        """Steps until every column has met its tolerances."""
        cross, begin = work.cross, work.rho
        if started and self.method == "cg":
            # A rough first H would spoil the Z and μ that were given.
            work.H = self._exact_system(tol).solve(work.right(), self._scale(work.rho), work.H, work.gram_H)
            work.gram_H = self.X.rmatmul(self.X.matmul(work.H))

        n_rows, n_features = self.X.shape
        solution = np.empty_like(cross)
        split, dual = (np.empty((n_rows, cross.shape[1]), dtype=cross.dtype) for _ in range(2))
        last_penalty = begin.copy()
        steps = np.zeros(cross.shape[1], dtype=np.int64)
        converged = np.zeros(cross.shape[1], dtype=bool)
        history: list[np.ndarray] = []
        for step in range(1, max_iter + 1):
            primal, primal_goal, dual_left, dual_goal = self._step(work, relaxation)
            primal_goal = np.sqrt(n_rows) * abs_tol + tol * primal_goal
            dual_goal = np.sqrt(n_features) * abs_tol + tol * dual_goal
            now = np.zeros((2, cross.shape[1])) if not history else history[-1].copy()
            now[:, work.columns] = primal, dual_left
            history.append(now)
            met = (primal <= primal_goal) & (dual_left <= dual_goal)
            done = met if step < max_iter else np.ones_like(met)
            if done.any():
                which = work.columns[done]
                solution[:, which], split[:, which] = work.H[:, done], work.Z[:, done]
                dual[:, which] = work.mu[:, done] * (2 * work.rho[done]).astype(cross.dtype)
                last_penalty[which], steps[which], converged[which] = work.rho[done], step, met[done]
                if done.all():
                    break
                work.keep(np.flatnonzero(~done))
            if adapt and self._system.adaptive and may_adapt_after(step):
                left = ~done
                work.rescale(balance(primal[left], primal_goal[left], dual_left[left], dual_goal[left]))
        del work
        residuals = np.array(history).reshape(len(history), 2, -1)
        return ADMMResult(
            solution=solution,
            split=split,
            dual=dual,
            penalty=last_penalty,
            status="converged" if converged.all() else "max_iter",
            n_iter=len(history),
            converged=converged,
            column_iterations=steps,
            primal_residual=residuals[:, 0],
            dual_residual=residuals[:, 1],
            objective=objective(solution),
        )

    def _step(self, work: Columns, relaxation: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """One round of H, Z and μ; the norms of both residuals and of what they are measured against."""
        dtype = work.cross.dtype
        rho = work.rho.astype(dtype)
        solved = self._system.solve(work.right(), self._scale(work.rho), work.H, work.gram_H)
        work.H = solved.astype(dtype, copy=False)
        fitted = self.X.matmul(work.H)
        self._split(work, fitted, relaxation)
        sizes = np.maximum(norms(fitted), norms(work.Z))
        fitted -= work.Z
        primal = norms(fitted)
        del fitted
        # XᵀF = Xᵀ(μ − μ_before + Z), and F = αXH + (1−α)Z_before: XᵀXH comes without a product of its own.
        work.gram_H = (relaxation - 1) * work.back_Z - work.back_mu
        work.back_Z, work.back_mu = self.X.rmatmul(work.Z), self.X.rmatmul(work.mu)
        work.gram_H += work.back_Z
        work.gram_H += work.back_mu
        work.gram_H /= relaxation
        slope = rho * work.back_mu
        against = np.maximum(norms(work.cross), norms(slope))
        slope += work.smooth_slope()
        slope += self.reg * work.H
        return primal, sizes, norms(slope), against

    def _split(self, work: Columns, fitted: np.ndarray, relaxation: float) -> None:
        """Z and μ anew, in place, a few rows at a time so that a chunk passes through the cache once."""
        threshold = (self.sparsity / (2 * work.rho)).astype(work.cross.dtype)
        for start, stop in even_chunks(len(fitted), max(1, CHUNK_NUMBERS // fitted.shape[1])):
            z, m = work.Z[start:stop], work.mu[start:stop]
            relax(z, fitted[start:stop], relaxation)
            z += m
            np.clip(z, -threshold, threshold, out=m)
            z -= m

    def _ridge(self, work: Columns, squared_norm: np.ndarray, tol: float, abs_tol: float) -> ADMMResult:
        cross = work.cross
        H = (
            self._exact_system(tol)
            .solve(cross, self._scale(work.rho), work.H, work.gram_H)
            .astype(cross.dtype, copy=False)
        )
        fitted = self.X.matmul(H)
        slope = norms(self.X.rmatmul(fitted) - cross + self.reg * H)
        met = slope <= np.sqrt(len(H)) * abs_tol + tol * norms(cross)
        return ADMMResult(
            solution=H,
            split=fitted,
            dual=np.zeros_like(fitted),
            penalty=work.rho,
            status="converged" if met.all() else "max_iter",
            n_iter=1,
            converged=met,
            column_iterations=np.ones(len(met), dtype=np.int64),
            primal_residual=np.zeros((1, len(met))),
            dual_residual=slope[None, :],
            objective=self.objective(H, cross, squared_norm),
        )

    def _exact_system(self, tol: float) -> GramSystem:
        """The system, where one solve of it must be good enough on its own and not just one of many steps."""
        return CGSystem(self.X, self.reg, 0.1 * tol, 1000) if self.method == "cg" else self._system

    def _check_columns(self, cross: np.ndarray, squared_norm: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cross = np.ascontiguousarray(cross)
        if cross.ndim != 2 or cross.shape[0] != self.X.shape[1] or cross.shape[1] == 0:
            raise InvalidInputError(
                f"cross must be XᵀR with {self.X.shape[1]:,} rows (features of X) and at least one column; "
                f"found shape {shape_text(cross.shape)}."
            )
        if cross.dtype not in (np.float32, np.float64):
            raise InvalidInputError(f"cross must be of type float32 or float64; found {cross.dtype}.")
        squared_norm = np.asarray(squared_norm, dtype=np.float64)
        if squared_norm.shape != (cross.shape[1],):
            raise InvalidInputError(
                f"squared_norm must have one entry for each of the {cross.shape[1]:,} columns of cross; "
                f"found shape {shape_text(squared_norm.shape)}."
            )
        _require_finite(cross, "cross")
        _require_finite(squared_norm, "squared_norm")
        return cross, squared_norm

    def _check_start(self, start: tuple[np.ndarray, np.ndarray | None] | None, n_columns: int) -> None:
        expected = (self.X.shape[0], n_columns)
        for name, array in zip(("split", "dual"), start or ()):
            if array is None:
                continue
            if array.shape != expected:
                raise InvalidInputError(
                    f"start holds a {name} of shape {shape_text(array.shape)} where rows × columns is "
                    f"{shape_text(expected)}."
                )
            _require_finite(array, f"the {name} of start")

    def _first_penalty(self, penalty: np.ndarray | None, size: int) -> np.ndarray:
        if penalty is None or self.sparsity == 0:
            return np.full(size, self.penalty)
        given = np.array(penalty, dtype=np.float64)
        if given.shape != (size,) or not np.isfinite(given).all() or (given <= 0).any():
            raise InvalidInputError(
                f"penalty must hold {size:,} positive numbers, one a column; found {penalty!r:.200}."
            )
        if not self._system.adaptive and (given != self.penalty).any():
            raise InvalidInputError(
                f'penalty is fixed at {self.penalty:g} by the factorisation of method="cholesky"; leave it out here.'
            )
        return given


def _as_feature_matrix(X: FeatureMatrix | sp.csr_matrix | np.ndarray, n_threads: int) -> FeatureMatrix:
    if sp.issparse(X):
        return feature_matrix(sp.csr_matrix(X), n_threads=n_threads)
    if isinstance(X, np.ndarray):
        if X.ndim != 2 or X.dtype not in (np.float32, np.float64):
            raise InvalidInputError(
                f"X must have two dimensions and type float32 or float64; found {X.ndim} and {X.dtype}."
            )
        return feature_matrix(np.ascontiguousarray(X), n_threads=n_threads)
    return X


def _require_finite(array: np.ndarray, name: str) -> None:
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} contains NaN or infinity; check what it was computed from.")
