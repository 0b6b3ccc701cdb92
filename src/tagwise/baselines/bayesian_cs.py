"""Bayesian compressed sensing of labels (Kapoor, Viswanathan, Jain, NIPS 2012)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.baselines.compressed_sensing import CompressedModel
from tagwise.baselines.linear_map import LinearMap, MappedTargets
from tagwise.exceptions import ConvergenceWarning, warn
from tagwise.kernels.compiled import compiled
from tagwise.models.factor_model import LOWEST_SCORE
from tagwise.parallel import even_chunks, run_chunks, thread_count
from tagwise.problems.labels import TrainingLabels, per_label
from tagwise.progress import FitProgress
from tagwise.randomness import check_random_state, random_generator
from tagwise.validation import Features, check_choice, check_integer, check_real

__all__ = ["BayesianCS", "JointLabelModel", "LabelPrior", "SparseLabelModel"]

# Rounds move W by far more than this relative residual of the regression.
_REGRESSION_TOL = 1e-4
# E[y²] of an unknown label before its first update, and for how many sweeps precisions stay there: updated from the
# first sweep on, the labels that happen to be visited first would explain away all others.
_START_SQUARE = 0.05
_FIXED_SWEEPS = 3
# Predictions take as many: a folder must not be able to ask for hours.
_MOST_SWEEPS = 1000
_ROWS = 64
_JOINT_ROWS = 32


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
    normalize : bool
        Scale rows of X to unit length, at fit and at prediction.
    n_jobs : int or None
        Threads, as in joblib. The result is bit-identical for every number.
    random_state : int, Generator, RandomState or None
        Seeds Φ.
    posterior : {"factored", "joint"}
        See above.
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
        Added to E y these are the scores.
    objective_, history_, n_iter_
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
        posterior: str = "factored",
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
        self.posterior = posterior

    def _check_parameters(self) -> None:
        if self.n_measurements is not None:
            check_integer(self.n_measurements, "n_measurements", minimum=1)
        for name in ("reg", "feature_noise", "code_noise", "prior_shape", "prior_rate"):
            check_real(getattr(self, name), name, minimum=0, open_minimum=True)
        check_integer(self.n_sweeps, "n_sweeps", minimum=1, maximum=_MOST_SWEEPS)
        check_integer(self.max_iter, "max_iter", minimum=1)
        check_real(self.tol, "tol", minimum=0)
        check_random_state(self.random_state)
        check_choice(self.posterior, "posterior", ("factored", "joint"))

    def _fit(self, X: Features, Y: sp.csr_matrix, observed: sp.csr_matrix | None, progress: FitProgress) -> None:
        threads = thread_count(self.n_jobs)
        labels = TrainingLabels.build(Y, observed, None, n_threads=threads)
        codes = self._draw_codes(labels.rates(), random_generator(self.random_state), X.dtype)
        rows = self._prepared(X)
        mapped = LinearMap(rows, self.reg, n_threads=threads).fit(_start(labels, codes))
        if observed is None:
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
            ahead = _beyond(before, mapped, number / (number + 3)) if self.posterior == "joint" else mapped
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


def _beyond(old: MappedTargets, new: MappedTargets, share: float) -> MappedTargets:
    """The new coefficients and intercepts, and ``share`` of the way that they have come once more."""
    return MappedTargets(
        new.coefficients + share * (new.coefficients - old.coefficients),
        new.intercept + share * (new.intercept - old.intercept),
        new.value,
    )


def _start(labels: TrainingLabels, codes: np.ndarray) -> np.ndarray:
    """ΦY (n×m), an unknown label replaced by the share of its known rows that are on."""
    if labels.observed is None:
        return np.asarray(labels.positives @ codes)
    rates = labels.rates()
    return np.asarray((labels.positives - per_label(labels.observed, rates)) @ codes) + rates @ codes


class LabelPrior(NamedTuple):
    """σ², χ², a, b and the number of sweeps of a :class:`SparseLabelModel` or :class:`JointLabelModel`."""

    feature_noise: float
    code_noise: float
    shape: float
    rate: float
    n_sweeps: int


@dataclass(frozen=True)
class SparseLabelModel:
    r"""The model of one row's compressed labels z (m) and labels y (L), given predicted measurements p (m).

    .. math:: z \sim N(p, \sigma^2 I), \quad z \mid y \sim N(\Phi y, \chi^2 I), \quad
              y_j \sim N(0, 1/\alpha_j), \quad \alpha_j \sim \mathrm{Gamma}(a, b)

    The two densities of z are multiplied as potentials, and known y_j are fixed. The posterior is approximated by
    q(z)∏_j q(y_j)q(α_j) over the unknown j, whose factors are updated in turn, to the following optima:

    .. math:: q(y_j) = N(\mu_j, s_j), \quad s_j = (E\alpha_j + \|\phi_j\|^2/\chi^2)^{-1}, \quad
              \mu_j = s_j\,\phi_j^\top(E z - \Phi_{-j}\mu_{-j})/\chi^2

    .. math:: E\alpha_j = (a + \tfrac12) / (b + \tfrac12(\mu_j^2 + s_j)), \quad
              E z = (p/\sigma^2 + \Phi\mu/\chi^2) / (1/\sigma^2 + 1/\chi^2).

    ``codes`` are Φᵀ (L×m, float64); labels with a code of zeros take no part: their μ is 0. All factors are updated
    ``n_sweeps`` times. Time O(m) per label and sweep; memory O(m + L) per thread and the result.
    """

    codes: np.ndarray
    prior: LabelPrior
    n_threads: int = 1

    @property
    def target_noise(self) -> float:
        """σ², the noise between p and :meth:`measurements`."""
        return self.prior.feature_noise

    def labels(self, predicted: np.ndarray) -> np.ndarray:
        """μ (n×L) of rows of which nothing is known, from p (n×m)."""
        nothing = sp.csr_matrix((len(predicted), len(self.codes)))
        out = np.empty((len(predicted), len(self.codes)))
        self._run(predicted, nothing, np.zeros(0), out, np.empty((0, 0)))
        return out

    def measurements(self, predicted: np.ndarray, known: sp.csr_matrix, values: np.ndarray) -> tuple[np.ndarray, float]:
        """E z (n×m), and the sum over all rows of the negative lower bound, up to constants.

        From p (n×m), the known pairs (CSR, n×L) and their labels (nnz) in storage order.
        """
        out = np.empty_like(predicted)
        bound = self._run(predicted, known, values, np.empty((0, 0)), out)
        return out, bound

    def _run(
        self, predicted: np.ndarray, known: sp.csr_matrix, values: np.ndarray, labels: np.ndarray, means: np.ndarray
    ) -> float:
        predicted = np.ascontiguousarray(predicted, dtype=np.float64)
        norms = np.einsum("ij,ij->i", self.codes, self.codes)
        pairs = (known.indptr, known.indices, np.asarray(values, dtype=np.float64))

        def rows(start: int, stop: int) -> float:
            part = slice(start, stop)
            return float(_infer(predicted[part], self.codes, norms, pairs, self.prior, labels, means, start))

        return sum(run_chunks(rows, even_chunks(len(predicted), _ROWS), self.n_threads))


@dataclass(frozen=True)
class JointLabelModel:
    r"""The same model as :class:`SparseLabelModel` with z eliminated and q(y)∏_j q(α_j) over the unknown labels.

    With v = σ² + χ², r = p − Φ_K y_K what the known labels leave, D = diag(1/Eα) and S = vI + Φ_U D Φ_Uᵀ (m×m),

    .. math:: q(y_U) = N(\mu, \Sigma), \quad \mu = D\Phi_U^\top S^{-1} r, \quad
              \Sigma = D - D\Phi_U^\top S^{-1}\Phi_U D, \quad
              E\alpha_j = (a + \tfrac12) / (b + \tfrac12(\mu_j^2 + \Sigma_{jj})).

    Labels that the codes cannot tell apart keep the variance of their prior, where the factored posterior, which looks
    at one label at a time, takes them for known. ``codes`` as there. Sums in float32, whose rounding is far below v.
    Time O(m²L + m³) per row and sweep; memory O(m(m + L)) per row of a block of 32 and thread.
    """

    codes: np.ndarray
    prior: LabelPrior
    n_threads: int = 1

    @property
    def target_noise(self) -> float:
        """σ² + χ², the noise between p and :meth:`measurements`."""
        return self.prior.feature_noise + self.prior.code_noise

    def labels(self, predicted: np.ndarray) -> np.ndarray:
        """μ (n×L) of rows of which nothing is known, from p (n×m)."""
        nothing = np.zeros((_JOINT_ROWS, len(self.codes)), dtype=np.float32)
        out = np.empty((len(predicted), len(self.codes)))

        def rows(start: int, stop: int) -> None:
            none = nothing[: stop - start]
            out[start:stop] = self._infer(predicted[start:stop], none != 0, none, with_bound=False)[0]

        run_chunks(rows, even_chunks(len(predicted), _JOINT_ROWS), self.n_threads)
        return out

    def measurements(self, predicted: np.ndarray, known: sp.csr_matrix, values: np.ndarray) -> tuple[np.ndarray, float]:
        """Φ E y (n×m), and the sum over all rows of the negative lower bound, up to constants.

        From p (n×m), the known pairs (CSR, n×L) and their labels (nnz) in storage order.
        """
        out = np.empty_like(predicted, dtype=np.float64)

        def rows(start: int, stop: int) -> float:
            pairs = slice(known.indptr[start], known.indptr[stop])
            row = np.repeat(np.arange(stop - start), np.diff(known.indptr[start : stop + 1]))
            fixed = np.zeros((stop - start, len(self.codes)), dtype=bool)
            fixed[row, known.indices[pairs]] = True
            labels = np.zeros(fixed.shape, dtype=np.float32)
            labels[row, known.indices[pairs]] = values[pairs]
            means, bound = self._infer(predicted[start:stop], fixed, labels, with_bound=True)
            out[start:stop] = means.astype(np.float64) @ self.codes
            return bound

        return out, sum(run_chunks(rows, even_chunks(len(predicted), _JOINT_ROWS), self.n_threads))

    def _infer(
        self, predicted: np.ndarray, fixed: np.ndarray, labels: np.ndarray, *, with_bound: bool
    ) -> tuple[np.ndarray, float]:
        """E y of a block of rows, known labels included, and the negative bound where it is asked for."""
        codes, prior, noise = self.codes.astype(np.float32), self.prior, np.float32(self.target_noise)
        size = codes.shape[1]
        free = ~fixed & (np.einsum("ij,ij->i", codes, codes) > 0)
        left = (predicted - labels @ codes).astype(np.float32)[:, :, None]
        variance = np.where(free, np.float32((prior.rate + 0.5 * _START_SQUARE) / (prior.shape + 0.5)), np.float32(0))
        mean, bound = labels, 0.0
        for sweep in range(prior.n_sweeps):
            system = np.matmul(codes.T * variance[:, None, :], codes)
            system[:, np.arange(size), np.arange(size)] += noise
            last = sweep == prior.n_sweeps - 1
            if last and not with_bound:
                mean = labels + variance * (np.linalg.solve(system, left)[:, :, 0] @ codes.T)
                break
            inverse = np.linalg.inv(system)
            along = np.matmul(inverse, left)[:, :, 0]
            mean = labels + variance * (along @ codes.T)
            explained = np.einsum("bml,lm->bl", np.matmul(inverse, codes.T), codes)
            square = mean**2 + np.maximum(variance - variance**2 * explained, 0)
            if last:
                trace = np.trace(inverse, axis1=1, axis2=2, dtype=np.float64)
                terms = (prior.shape + 0.5) * np.log(prior.rate + 0.5 * square[free]) - 0.5 * np.log(variance[free])
                bound = float(
                    0.5 * noise * np.sum(along.astype(np.float64) ** 2)
                    + 0.5 * np.sum(size - noise * trace + np.linalg.slogdet(system)[1])
                    + np.sum(terms, dtype=np.float64)
                )
            else:
                variance = np.where(free, (prior.rate + 0.5 * square) / (prior.shape + 0.5), 0).astype(np.float32)
        return mean, bound


@compiled(fastmath={"contract", "reassoc"})
def _infer(
    predicted: np.ndarray,
    codes: np.ndarray,
    norms: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray, np.ndarray],
    prior: LabelPrior,
    labels: np.ndarray,
    means: np.ndarray,
    first: int,
) -> float:
    """Infer rows ``first``, ``first`` + 1, …; write their labels or their E z where these arrays are not empty."""
    indptr, indices, values = pairs
    feature_noise, code_noise, shape, rate, n_sweeps = prior
    n_labels, size = codes.shape
    mu, precision, alpha = np.zeros(n_labels), np.ones(n_labels), np.empty(n_labels)
    free = np.empty(n_labels, dtype=np.bool_)
    z, left, explained = np.empty(size), np.empty(size), np.empty(size)  # E z, E z − Φμ and Φμ
    weight = code_noise / (feature_noise + code_noise)  # of p in E z
    bound = 0.0
    for row in range(first, first + len(predicted)):
        p = predicted[row - first]
        explained[:] = 0
        for j in range(n_labels):
            free[j] = norms[j] > 0
            mu[j] = 0
            alpha[j] = (shape + 0.5) / (rate + 0.5 * _START_SQUARE)
        for position in range(indptr[row], indptr[row + 1]):
            j = indices[position]
            free[j] = False
            mu[j] = values[position]
            if mu[j] != 0:
                for c in range(size):
                    explained[c] += mu[j] * codes[j, c]
        for c in range(size):
            z[c] = weight * p[c] + (1 - weight) * explained[c]
            left[c] = z[c] - explained[c]
        for sweep in range(n_sweeps):
            for j in range(n_labels):
                if not free[j]:
                    continue
                code = codes[j]
                along = 0.0
                for c in range(size):
                    along += code[c] * left[c]
                precision[j] = alpha[j] + norms[j] / code_noise
                step = (along + norms[j] * mu[j]) / (code_noise * precision[j]) - mu[j]
                mu[j] += step
                for c in range(size):
                    left[c] -= step * code[c]
                if sweep >= _FIXED_SWEEPS:
                    alpha[j] = (shape + 0.5) / (rate + 0.5 * (mu[j] * mu[j] + 1 / precision[j]))
            for c in range(size):
                explained[c] = z[c] - left[c]
                z[c] = weight * p[c] + (1 - weight) * explained[c]
                left[c] = z[c] - explained[c]
        for c in range(size):
            moved = z[c] - p[c]
            bound += 0.5 * left[c] * left[c] / code_noise + 0.5 * moved * moved / feature_noise
            if means.size:
                means[row, c] = z[c]
        for j in range(n_labels):
            if free[j]:
                variance = 1 / precision[j]
                bound += 0.5 * variance * norms[j] / code_noise - 0.5 * np.log(variance)
                # With q(α) at its optimum, all of its terms come to this.
                bound += (shape + 0.5) * np.log(rate + 0.5 * (mu[j] * mu[j] + variance))
            if labels.size:
                labels[row, j] = mu[j]
    return bound
