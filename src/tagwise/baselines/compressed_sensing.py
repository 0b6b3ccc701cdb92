"""Multi-label prediction via compressed sensing (Hsu, Kakade, Langford, Zhang, NIPS 2009)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from tagwise.answers import SCORES_OVERFLOW, finite_scores
from tagwise.baselines.label_space import label_rates
from tagwise.baselines.linear_map import LinearMap, MappedTargets
from tagwise.estimator import MultiLabelModel
from tagwise.exceptions import InvalidInputError
from tagwise.fields import Fields, dense, value
from tagwise.kernels import matmul_in_order
from tagwise.parallel import thread_count
from tagwise.parameters import Count, Positive, Seed, parameters, random_generator
from tagwise.problem import Problem
from tagwise.progress import FitProgress
from tagwise.solvers.sparse_recovery import cosamp, orthogonal_matching_pursuit
from tagwise.validation import Features, check_integer

__all__ = ["CompressedModel", "CompressedSensing"]

_MAX_MEASUREMENTS = 400
# A ranking that stops short of the five labels that are commonly looked at would be of little use.
_LEAST_NONZERO = 5


@parameters
class CompressedModel(MultiLabelModel):
    """Measurements Wᵀx + c are decoded to labels by random codes Φ, so scores are nonlinear in x."""

    fields: ClassVar[Fields] = Fields(
        feature_factors_=dense("d", "m", meaning="W."),
        measurement_intercept_=dense("m", meaning="c."),
        label_codes_=dense("L", "m", meaning="Φᵀ; zeros for labels whose known entries are all on, all off, or none."),
        base_score_=dense(
            "L",
            meaning="−½, and ½ for labels that all rows have; −10³⁰, below all others, for labels of which nothing is "
            "known. Added to the recovered labels these are the scores.",
        ),
    )

    n_measurements: Count | None = None
    reg: Positive = 1.0
    _: KW_ONLY
    normalize: bool = True
    n_jobs: int | None = None
    random_state: Seed = 0
    verbose: int = 0

    @abstractmethod
    def _decode(self, measurements: np.ndarray) -> np.ndarray:
        """The recovered labels (n×L) of float64 measurements (n×m)."""

    def _draw_codes(self, rates: np.ndarray, rng: np.random.Generator, dtype: np.dtype) -> np.ndarray:
        """Set Φᵀ and base scores for labels that are on in ``rates`` (L) of the known rows; returns Φᵀ in float64.

        Codes are independent normal numbers of variance 1/m, so that their mean length is 1, rounded to the type of the
        features, so that a saved model decodes as the fitted one. Constant labels have a code of zeros and a base score
        of ±½.
        """
        size = self.n_measurements or min(_MAX_MEASUREMENTS, (len(rates) + 1) // 2)
        codes = rng.standard_normal((len(rates), size)) / np.sqrt(size)
        codes[(rates <= 0) | (rates >= 1)] = 0
        self.label_codes_ = codes.astype(dtype)
        self.base_score_ = np.where(rates >= 1, 0.5, -0.5).astype(dtype)
        return self.label_codes_.astype(np.float64)

    def _keep(self, mapped: MappedTargets, dtype: np.dtype) -> None:
        self.feature_factors_ = mapped.coefficients.astype(dtype)
        self.measurement_intercept_ = mapped.intercept.astype(dtype)

    def _score_rows(self, X: Features) -> np.ndarray:
        W = self.feature_factors_
        # In a fixed order of sums: decoding picks labels, and other rounding could pick others.
        measurements = matmul_in_order(self._prepared(X), W, n_threads=thread_count(self.n_jobs))
        try:
            scores = self._decode(finite_scores(measurements + self.measurement_intercept_))
        except np.linalg.LinAlgError:  # systems of codes that overflow
            raise InvalidInputError(SCORES_OVERFLOW) from None
        scores += self.base_score_
        return scores.astype(W.dtype, copy=False)

    def _check_fitted(self) -> None:
        if not self.feature_factors_.shape[1]:
            raise ValueError("feature_factors_ and label_codes_ must have a measurement")


@parameters
class CompressedSensing(CompressedModel):
    r"""Random projections of the labels are regressed on the features; sparse recovery decodes them.

    With a random Φ (m×L) of independent N(0, 1/m), learns

    .. math:: \min_{W, c}\; \tfrac12\|Y\Phi^\top - XW - 1c^\top\|_F^2 + \tfrac\lambda2\|W\|_F^2

    and scores a row x by

    .. math:: \hat y \approx \arg\min_{\|y\|_0 \le s} \|\Phi y - (W^\top x + c)\|^2 ,

    found greedily. About s·log L measurements are enough to recover a label vector with s ones.

    Parameters
    ----------
    n_measurements : int or None
        m. None is half the number of labels, at most 400.
    n_nonzero : int or None
        s, how many labels a row gets at most; all others have the score −½ and rank by their ids. None is the mean
        number of labels per training row, rounded up, and at least 5.
    recovery : {"omp", "cosamp"}
        Orthogonal matching pursuit, which picks one label at a time, or compressive sampling matching pursuit, which
        picks 2s at a time and revises.

    Attributes
    ----------
    objective_ : array (rounds,)
        The minimum of the regression.

    Notes
    -----
    Fit: one ridge regression with m targets, memory O(nnz X + nnz Y + (n + d + L)m). Prediction: O(nnz(X)m + n·s·mL)
    with "omp", about the same with "cosamp", which takes up to ten rounds.

    Deviations: labels are never negative, so only codes with a positive correlation are picked, which ranks better when
    m is small; labels that are constant in training keep their constant and take no part; c is the regression's
    intercept. Φ is Gaussian, one of the publication's choices. :class:`tagwise.baselines.BayesianCS` learns
    from a mask.
    """

    fields: ClassVar[Fields] = CompressedModel.fields | Fields(
        n_nonzero_=value(partial(check_integer, minimum=1), "s.")
    )

    n_nonzero: Count | None = None
    recovery: Literal["omp", "cosamp"] = "omp"

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        X, Y = problem.X, problem.Y
        codes = self._draw_codes(label_rates(Y), random_generator(self.random_state), X.dtype)
        compressed = np.asarray(Y.astype(np.float64) @ codes)
        mapped = LinearMap(self._prepared(X), self.reg, n_threads=thread_count(self.n_jobs)).fit(compressed)
        progress.step(mapped.value)
        self.n_nonzero_ = int(self.n_nonzero or max(_LEAST_NONZERO, np.ceil(Y.nnz / Y.shape[0])))
        self._keep(mapped, X.dtype)

    def _decode(self, measurements: np.ndarray) -> np.ndarray:
        recover = cosamp if self.recovery == "cosamp" else orthogonal_matching_pursuit
        codes = self.label_codes_.astype(np.float64, copy=False)
        return recover(measurements, codes, self.n_nonzero_, n_threads=thread_count(self.n_jobs))
