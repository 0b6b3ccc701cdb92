"""Bayesian compressed sensing of labels (Kapoor, Viswanathan, Jain, NIPS 2012)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.baselines.compressed_model import CompressedModel
from tagwise.baselines.label_codes import LabelCodes, default_measurements
from tagwise.baselines.label_inference import SparseLabelModel
from tagwise.baselines.linear_map import LinearMap, MappedTargets
from tagwise.exceptions import ConvergenceWarning, warn
from tagwise.models.factor_model import LOWEST_SCORE
from tagwise.parallel import thread_count
from tagwise.problems.labels import TrainingLabels, per_label
from tagwise.progress import FitProgress
from tagwise.randomness import check_random_state, random_generator
from tagwise.validation import check_integer, check_real

__all__ = ["BayesianCS"]

# Rounds move W by far more than this relative residual of the regression.
_REGRESSION_TOL = 1e-4


class BayesianCS(CompressedModel):
    r"""A joint model of labels and compressed labels, learnt by variational inference, with missing labels.

    With random codes Φ (m×L) and, for every row x, compressed labels z (m) and labels y (L), the joint density is

    .. math:: p(W)\prod_i e^{-\|z_i - W^\top x_i - c\|^2 / 2\sigma^2}\; e^{-\|\Phi y_i - z_i\|^2 / 2\chi^2}
              \prod_j N(y_{ij}; 0, 1/\alpha_{ij})\,\mathrm{Gamma}(\alpha_{ij}; a, b), \qquad W_{fr} \sim N(0, 1/\tau).

    Regression errors and errors of compression are thus weighed against each other, and a y that is unknown is inferred
    like everything else: the prior with a precision of its own for every entry makes y sparse.

    Steps: the posterior is approximated by q(W)∏q(z_i)q(y_ij)q(α_ij) over the unknown pairs. A round updates the last
    three for every row (:mod:`tagwise.baselines.label_inference`) and then W and c, a ridge regression of E z with
    λ = σ²τ. A new row is scored by E y, with nothing known. If every label is known, eliminating z leaves one ridge
    regression of ΦY with λ = (σ² + χ²)τ, which is where the rounds would converge to; it is solved at once.

    Parameters
    ----------
    n_measurements : int or None
        m. None is half the number of labels, at most 400.
    reg : float
        (σ² + χ²)τ > 0: the λ of the ridge regression that is left when every label is known. τ follows from it.
    feature_noise : float
        σ² > 0, between the measurements that the features predict and the compressed labels.
    code_noise : float
        χ² > 0, between the compressed labels and the codes of the labels.
    prior_shape, prior_rate : float
        a, b > 0. Small values leave the precisions open.
    n_sweeps : int
        Updates of a row's labels, at fit in every round and at prediction. Precisions α move from the fourth on: with
        at most 3 the prior is one Gaussian for all labels, and nothing makes y sparse.
    max_iter : int
        Rounds at the most.
    tol : float
        The fit has converged when a round changes W by at most ``tol`` times its norm.
    normalize : bool
        Scale rows of X to unit length, at fit and at prediction.
    n_jobs : int or None
        Threads, as in joblib. The result is bit-identical for every number.
    random_state : int, Generator, RandomState or None
        Seeds Φ.
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    feature_factors_ : array (d, m)
        E W.
    measurement_intercept_ : array (m,)
        c.
    label_codes_ : array (L, m)
        Φᵀ; zeros for labels whose known entries are all on, all off, or none.
    base_score_ : array (L,)
        −½; ½ for labels that are on in all known rows; −10³⁰, below all others, for labels of which nothing is known.
        With E y added these are the scores.
    objective_, history_, n_iter_
        The negative lower bound on the log-likelihood, but for constants, of the W that a round begins with; the same
        with seconds and the relative change of W; number of rounds.

    Notes
    -----
    All labels known: one ridge regression with m targets (:mod:`tagwise.baselines.linear_map`). With a mask: a round
    costs a regression and O(m) for every unknown pair and sweep, that is O(n·L·m·n_sweeps). Prediction costs that, too.
    Memory O(nnz X + nnz Y + |Ω| + (n + d + L)m): inferred labels are never stored. For that reason a round infers them
    from the start, given W, and the objective need not fall in every round.

    Deviations: q(y_i) is factored over its labels, where the publication keeps the L×L covariance of every row, which
    would cost O(m²L) a row and sweep; c is unpenalised; labels that are constant take no part; Φ is Gaussian; every
    inference starts from y = 0 with E y² = 0.05 in the precisions, which stay there for three sweeps, as otherwise the
    labels that are visited first would explain away all others. The publication's active learning is left out. Defaults
    were chosen on validation rows of bibtex, where 20 sweeps rank no better than 8. The prior's mean of 0 takes a label
    that is unknown for off unless the features say otherwise: with few labels known, LEML ranks clearly better.

    Examples
    --------
    >>> from tagwise.baselines import BayesianCS
    >>> from tagwise.data import load_dataset
    >>> data = load_dataset("debtags-sample")
    >>> model = BayesianCS(n_measurements=80).fit(data.X_train, data.Y_train)
    >>> labels, scores = model.predict_topk(data.X_test[:50], k=3)
    >>> labels.shape
    (50, 3)
    """

    def __init__(
        self,
        n_measurements: int | None = None,
        reg: float = 1.0,
        feature_noise: float = 0.02,
        code_noise: float = 0.02,
        prior_shape: float = 1e-3,
        prior_rate: float = 1e-3,
        n_sweeps: int = 8,
        max_iter: int = 20,
        tol: float = 1e-2,
        normalize: bool = True,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.n_measurements = n_measurements
        self.reg = reg
        self.feature_noise = feature_noise
        self.code_noise = code_noise
        self.prior_shape = prior_shape
        self.prior_rate = prior_rate
        self.n_sweeps = n_sweeps
        self.max_iter = max_iter
        self.tol = tol
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        if self.n_measurements is not None:
            check_integer(self.n_measurements, "n_measurements", minimum=1)
        for name in ("reg", "feature_noise", "code_noise", "prior_shape", "prior_rate"):
            check_real(getattr(self, name), name, minimum=0, open_minimum=True)
        for name in ("n_sweeps", "max_iter"):
            check_integer(getattr(self, name), name, minimum=1)
        check_real(self.tol, "tol", minimum=0)
        check_random_state(self.random_state)

    def _fit(
        self, X: sp.csr_matrix | np.ndarray, Y: sp.csr_matrix, observed: sp.csr_matrix | None, progress: FitProgress
    ) -> None:
        threads = thread_count(self.n_jobs)
        labels = TrainingLabels.build(Y, observed, None, n_threads=threads)
        size = default_measurements(Y.shape[1]) if self.n_measurements is None else self.n_measurements
        drawn = LabelCodes.draw(labels.rates(), size, random_generator(self.random_state), X.dtype)
        codes = drawn.codes.astype(np.float64)
        rows = self._prepared(X)
        mapped = LinearMap(rows, self.reg, n_threads=threads).fit(_start(labels, codes))
        if observed is None:
            progress.total = 1
            progress.step(mapped.value / (self.feature_noise + self.code_noise), change=0.0)
        else:
            mapped = self._alternate(rows, labels, codes, mapped, progress, threads)
        drawn.base[labels.unknown_labels()] = LOWEST_SCORE
        self.feature_factors_ = mapped.coefficients.astype(X.dtype)
        self.measurement_intercept_ = mapped.intercept.astype(X.dtype)
        self.label_codes_, self.base_score_ = drawn.codes, drawn.base.astype(X.dtype)

    def _alternate(
        self,
        X: sp.csr_matrix | np.ndarray,
        labels: TrainingLabels,
        codes: np.ndarray,
        mapped: MappedTargets,
        progress: FitProgress,
        threads: int,
    ) -> MappedTargets:
        tau = self.reg / (self.feature_noise + self.code_noise)
        linear_map = LinearMap(X, self.feature_noise * tau, n_threads=threads, tol=_REGRESSION_TOL)
        model = self._label_model(codes)
        converged, change = False, 0.0
        for _ in range(self.max_iter):
            W = mapped.coefficients
            predicted = linear_map.predict(mapped)
            measurements, bound = model.measurements(predicted, labels.observed, labels.observed_on)
            bound += 0.5 * tau * float(np.sum(W**2))
            mapped = linear_map.fit(measurements)
            length = float(np.linalg.norm(W))
            moved = float(np.linalg.norm(mapped.coefficients - W))
            change = moved / length if length > 0 else moved
            converged = change <= self.tol
            if progress.step(bound, change=change) or converged:
                break
        if not converged and not progress.stopped:
            warn(
                f"BayesianCS stopped after max_iter={self.max_iter} rounds, of which the last one still changed W by "
                f"{change:.2g} of its norm, above tol={self.tol:g}; raise max_iter or tol.",
                ConvergenceWarning,
            )
        return mapped

    def _label_model(self, codes: np.ndarray) -> SparseLabelModel:
        return SparseLabelModel(
            codes=codes,
            feature_noise=float(self.feature_noise),
            code_noise=float(self.code_noise),
            prior_shape=float(self.prior_shape),
            prior_rate=float(self.prior_rate),
            sweeps=int(self.n_sweeps),
            n_threads=thread_count(self.n_jobs),
        )

    def _decode(self, measurements: np.ndarray) -> np.ndarray:
        return self._label_model(self.label_codes_.astype(np.float64, copy=False)).labels(measurements)


def _start(labels: TrainingLabels, codes: np.ndarray) -> np.ndarray:
    """ΦY (n×m), with the share of known rows that have it in the place of a label that is unknown."""
    if labels.observed is None:
        return np.asarray(labels.positives @ codes)
    rates = labels.rates()
    return np.asarray((labels.positives - per_label(labels.observed, rates)) @ codes) + rates @ codes
