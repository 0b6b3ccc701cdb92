"""Bayesian compressed sensing of labels (Kapoor, Viswanathan, Jain, NIPS 2012)."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import numpy as np

from tagwise.baselines.compressed_sensing import CompressedModel
from tagwise.baselines.label_inference import JointLabelModel, LabelPrior, SparseLabelModel
from tagwise.baselines.linear_map import LinearMap, MappedTargets
from tagwise.exceptions import ConvergenceWarning, warn
from tagwise.models.factor_model import LOWEST_SCORE
from tagwise.objectives.labels import TrainingLabels, per_label
from tagwise.parallel import thread_count
from tagwise.parameters import Count, NonNegative, Positive, parameters, random_generator
from tagwise.problem import Problem
from tagwise.progress import FitProgress
from tagwise.validation import Features, check_integer

__all__ = ["BayesianCS"]

# Rounds move W by far more than this relative residual of the regression.
_REGRESSION_TOL = 1e-4
# Predictions take as many: a folder must not be able to ask for hours.
_MOST_SWEEPS = 1000


@parameters
class BayesianCS(CompressedModel):
    r"""A joint model of labels and compressed labels, learnt by variational inference, with missing labels.

    With random codes Φ (m×L) and, per row x, compressed labels z (m) and labels y (L), the joint density is

    .. math:: p(W)\prod_i e^{-\|z_i - W^\top x_i - c\|^2 / 2\sigma^2}\; e^{-\|\Phi y_i - z_i\|^2 / 2\chi^2}
              \prod_j N(y_{ij}; 0, 1/\alpha_{ij})\,\mathrm{Gamma}(\alpha_{ij}; a, b), \qquad W_{fr} \sim N(0, 1/\tau).

    Regression and compression errors are weighed against each other, and an unknown y is inferred like everything else:
    the prior with one precision per entry makes y sparse.

    The posterior is approximated in one of two ways, with q(α_ij) for every unknown pair in both:

    - ``posterior="joint"``: q(W)∏q(y_i)∏q(α_ij), with z eliminated and the covariance of all unknown labels of a row,
      as in the publication. A round infers the labels of each row (:class:`JointLabelModel`) and then W and c, a ridge
      regression of Φ E y with λ = (σ² + χ²)τ. Only the sum of the two noises matters.
    - ``posterior="factored"``: q(W)∏q(z_i)∏q(y_ij)q(α_ij), an order of magnitude cheaper (:class:`SparseLabelModel`);
      the ridge regression is of E z with λ = σ²τ. Its variances are too small, so that labels that the codes cannot
      tell apart are decided too early: with few labels known it ranks clearly worse.

    A new row is scored by E y, with nothing known. If every label is known, eliminating z leaves one ridge regression
    of ΦY with λ = (σ² + χ²)τ, the limit of the rounds; it is solved at once.

    Parameters
    ----------
    n_measurements : int or None
        m. None is half the number of labels, at most 400.
    reg : float
        (σ² + χ²)τ > 0: the λ of the ridge regression when every label is known. τ follows from it.
    feature_noise : float
        σ² > 0, between the measurements that the features predict and the compressed labels.
    code_noise : float
        χ² > 0, between the compressed labels and the codes of the labels.
    prior_shape, prior_rate : float
        a, b > 0. Small values leave the precisions open.
    n_sweeps : int
        Updates of a row's labels, in each round of the fit and at prediction. With the factored posterior precisions α
        move from the fourth on: with at most 3 the prior is one Gaussian for all labels, and nothing makes y sparse.
        The joint posterior moves them from the first on; 4 are enough. At most 1,000.
    max_iter : int
        At most this many rounds.
    tol : float
        Converged when a round changes W by at most ``tol`` times its norm.
    posterior : {"factored", "joint"}
        Which of the two approximations.

    Attributes
    ----------
    objective_ : array (rounds,)
        The negative lower bound on the log-likelihood, up to constants, for the W that a round begins with; the same
        with seconds and the relative change of W; number of rounds.

    Notes
    -----
    All labels known: one ridge regression with m targets. With a mask, a round costs a regression and per row and sweep
    O(mL) with the factored posterior, O(m²L + m³) with the joint one; so does prediction. Memory
    O(nnz X + nnz Y + nnz Ω + (n + d + L)m): inferred labels are never stored, so a round infers them from the start,
    and the objective need not fall in every round. Rounds of the joint posterior have momentum.

    Deviations: c is unpenalized; constant labels take no part; Φ is Gaussian; inference starts from y = 0 with
    E y² = 0.05 in the precisions, which the factored posterior keeps for three sweeps; no active learning. The prior's
    mean of 0 takes an unknown label for off unless the features say otherwise: with few labels known, LEML ranks
    better.
    """

    feature_noise: Positive = 0.02
    code_noise: Positive = 0.02
    prior_shape: Positive = 1e-3
    prior_rate: Positive = 1e-3
    n_sweeps: Annotated[int, partial(check_integer, minimum=1, maximum=_MOST_SWEEPS)] = 8
    max_iter: Count = 20
    tol: NonNegative = 1e-2
    posterior: Literal["factored", "joint"] = "factored"

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        X, Y = problem.X, problem.Y
        threads = thread_count(self.n_jobs)
        labels = TrainingLabels(Y.astype(np.float64), problem.known, None, n_threads=threads)
        codes = self._draw_codes(labels.rates(), random_generator(self.random_state), X.dtype)
        rows = self._prepared(X)
        mapped = LinearMap(rows, self.reg, n_threads=threads).fit(_start(labels, codes))
        if problem.known is None:
            progress.total = 1
            progress.step(mapped.value / (self.feature_noise + self.code_noise), change=0.0)
        else:
            mapped = self._alternate(rows, labels, codes, mapped, progress)
        self.base_score_[labels.unknown_labels()] = LOWEST_SCORE
        self._keep(mapped, X.dtype)

    def _alternate(
        self, X: Features, labels: TrainingLabels, codes: np.ndarray, mapped: MappedTargets, progress: FitProgress
    ) -> MappedTargets:
        tau = self.reg / (self.feature_noise + self.code_noise)
        threads = thread_count(self.n_jobs)
        model = self._label_model(codes)
        linear_map = LinearMap(X, model.target_noise * tau, n_threads=threads, tol=_REGRESSION_TOL)
        ahead = mapped
        for number in range(self.max_iter):
            W = mapped.coefficients
            measurements, bound = model.measurements(linear_map.predict(ahead), labels.observed, labels.observed_on)
            bound += 0.5 * tau * float(np.sum(ahead.coefficients**2))
            before, mapped = mapped, linear_map.fit(measurements)
            # Rounds approach their limit from one side and slowly where few labels are known: momentum (Nesterov).
            share = number / (number + 3) if self.posterior == "joint" else 0.0
            ahead = MappedTargets(
                mapped.coefficients + share * (mapped.coefficients - before.coefficients),
                mapped.intercept + share * (mapped.intercept - before.intercept),
                mapped.value,
            )
            length = float(np.linalg.norm(W))
            moved = float(np.linalg.norm(mapped.coefficients - W))
            change = moved / length if length > 0 else moved
            converged = change <= self.tol
            if progress.step(bound, change=change) or converged:
                break
        if not converged and not progress.stopped:
            warn(
                f"BayesianCS stopped after max_iter={self.max_iter} rounds; the last one still changed W by "
                f"{change:.2g} of its norm, above tol={self.tol:g}; raise max_iter or tol.",
                ConvergenceWarning,
            )
        return mapped

    def _label_model(self, codes: np.ndarray) -> SparseLabelModel | JointLabelModel:
        noises = float(self.feature_noise), float(self.code_noise)
        prior = LabelPrior(*noises, float(self.prior_shape), float(self.prior_rate), int(self.n_sweeps))
        model = JointLabelModel if self.posterior == "joint" else SparseLabelModel
        return model(codes, prior, thread_count(self.n_jobs))

    def _decode(self, measurements: np.ndarray) -> np.ndarray:
        return self._label_model(self.label_codes_.astype(np.float64, copy=False)).labels(measurements)


def _start(labels: TrainingLabels, codes: np.ndarray) -> np.ndarray:
    """ΦY (n×m), an unknown label replaced by the share of its known rows that are on."""
    if labels.observed is None:
        return np.asarray(labels.positives @ codes)
    rates = labels.rates()
    return np.asarray((labels.positives - per_label(labels.observed, rates)) @ codes) + rates @ codes
