"""CPLST: conditional principal label space transformation (Chen & Lin, NIPS 2012)."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from tagwise.baselines.label_space import (
    LabelSpaceModel,
    centered_matmul,
    centered_rmatmul,
    label_rates,
    principal_label_directions,
)
from tagwise.baselines.linear_map import LARGEST_DIRECT, LinearMap
from tagwise.estimator import OVERFLOW
from tagwise.exceptions import ConvergenceWarning, InvalidInputError, warn
from tagwise.fields import Fields
from tagwise.models.factor_model import factors, usable_rank
from tagwise.parallel import thread_count
from tagwise.parameters import Count, NonNegative, Positive, parameters, random_generator
from tagwise.problem import Problem
from tagwise.progress import FitProgress
from tagwise.solvers.ridge import closed_form_memory, reduced_rank_ridge
from tagwise.validation import Features, all_finite

__all__ = ["CPLST"]

# Directions beyond the rank, which make the last wanted ones converge.
_SPARE = 10
# Regressing all labels once costs less than the rounds of a subspace up to about this many times its width.
_ALL_LABELS = 6


@parameters
class CPLST(LabelSpaceModel):
    r"""Ridge regression onto the label directions that the features predict best.

    Minimises over W (d×k), orthonormal H (L×k) and b (L)

    .. math:: \tfrac12\|Y - X W H^\top - 1 b^\top\|_F^2 + \tfrac\lambda2\|W\|_F^2 .

    Where PLST takes the directions along which the labels vary most, H here holds the leading eigenvectors of
    Y_cᵀ P Y_c, with the centered labels Y_c and the hat matrix P = X_c(X_cᵀX_c + λI)⁻¹X_cᵀ: directions count by what is
    left of them after the regression. W = (X_cᵀX_c + λI)⁻¹X_cᵀY_cH is the regression onto them.

    Parameters
    ----------
    rank : int
        k. More than the features and labels allow is clipped with a warning.
    reg : float
        λ ≥ 0; 0 needs the closed form. At 0 this is ``LEML(solver="closed_form", reg=0)``.
    solver : {"auto", "closed_form", "subspace"}
        ``"closed_form"``: exactly, by the eigenvectors of the smaller Gram matrix of X
        (:func:`tagwise.solvers.ridge.reduced_rank_ridge`). ``"subspace"``: by subspace iteration from the
        principal directions, each round one ridge regression onto k + 10 directions; with at most 6(k + 10) labels one
        regression of all labels, which is exact. ``"auto"``: the closed form where λ = 0, or where min(n, d) ≤ 4,000,
        L ≤ 4,000 and its matrices fit into ``memory_limit``; else subspace.
    max_iter : int
        At most this many rounds of subspace iteration.
    tol : float
        Converged when a round lowers the objective by at most ``tol`` times the label variance explained so far.
    memory_limit : float
        Bytes for the dense matrices of the closed form. Above it, ``"auto"`` falls back to the subspace; where λ = 0 or
        the closed form is asked for, the problem is refused.

    Attributes
    ----------
    objective_ : array (rounds,)
        The objective after each round (the closed form has one); the same with seconds; number of rounds.

    Notes
    -----
    Closed form: time O(m³ + mL·min(m, L)), memory O(m² + mL), m = min(n, d). Subspace: a round costs a ridge regression
    with K = k + 10 targets (K = L where all labels are regressed at once) and O(nnz(Y)K + (n + L)K²); memory a few
    arrays of (n + d + L)·K numbers, and 16·min(n, d)² bytes where that side is at most 4,000.

    Deviations: the publication derives the method for λ = 0 and then puts a ridge regression into it as here; the
    subspace iteration is not in it. Labels are 0/1 instead of ±1, which only changes the scale.
    """

    fields: ClassVar[Fields] = factors(intercept="b − ½: a score of 0 is the border between off and on.")

    solver: Literal["auto", "closed_form", "subspace"] = "auto"
    max_iter: Count = 10
    tol: NonNegative = 1e-3
    memory_limit: Positive = 2**32
    reg: NonNegative = 1.0

    def _check_parameters(self) -> None:
        if self.solver == "subspace" and self.reg == 0:
            raise InvalidInputError('reg must be above 0 for solver="subspace"; found 0.')

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        X, Y = problem.X, problem.Y
        threads = thread_count(self.n_jobs)
        n_features, n_labels = X.shape[1], Y.shape[1]
        rank = usable_rank(self.rank, min(n_features, n_labels), f"{n_features} features and {n_labels} labels allow")
        rows = self._prepared(X)
        closed_form = self.solver != "subspace"
        if self.solver == "auto" and self.reg > 0:
            small = max(min(X.shape), n_labels) <= LARGEST_DIRECT
            closed_form = small and closed_form_memory(X.shape[0], n_features, n_labels) <= self.memory_limit
        if closed_form:
            progress.total = 1
            W, H, b, objective = reduced_rank_ridge(
                rows, Y, rank, self.reg, fit_intercept=True, memory_limit=self.memory_limit
            )
            progress.step(objective)
        else:
            W, H, b = self._subspace(rows, Y.astype(np.float64), rank, progress, threads)
        self._take_factors(W, H, b - 0.5, X.dtype)

    def _subspace(
        self, X: Features, Y: sp.csr_matrix, rank: int, progress: FitProgress, threads: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """W, H, b. With an orthonormal basis Q, the best H within its span is Q·(eigenvectors of QᵀY_cᵀPY_cQ)."""
        n_rows, n_labels = Y.shape
        rates = label_rates(Y)
        variance = n_rows * float(np.sum(rates * (1 - rates)))
        width = min(n_labels, rank + _SPARE)
        exact = n_labels <= _ALL_LABELS * width
        rng = random_generator(self.random_state)
        span = np.eye(n_labels) if exact else principal_label_directions(Y, width, rng)
        linear_map = LinearMap(X, self.reg, n_threads=threads)
        explained, converged = 0.0, False
        for _ in range(self.max_iter):
            basis = np.linalg.qr(span)[0]
            mapped = linear_map.fit(centered_matmul(Y, rates, basis))
            span = centered_rmatmul(Y, rates, linear_map.predict(mapped))
            within = basis.T @ span
            if not all_finite(within):
                raise InvalidInputError(OVERFLOW)
            values, turn = scipy.linalg.eigh((within + within.T) / 2)
            values, turn = values[::-1][:rank], turn[:, ::-1][:, :rank]
            previous, explained = explained, float(values.sum())
            converged = exact or explained - previous <= self.tol * explained
            if progress.step(0.5 * (variance - explained)) or converged:
                break
        if not converged and not progress.stopped:
            warn(
                f"CPLST stopped after max_iter={self.max_iter} rounds; the last one still explained "
                f"{(explained - previous) / explained:.2g} more of the labels than the one before, above "
                f"tol={self.tol:g}; raise max_iter or tol.",
                ConvergenceWarning,
            )
        H = basis @ turn
        return mapped.coefficients @ turn, H, rates + H @ (mapped.intercept @ turn)
