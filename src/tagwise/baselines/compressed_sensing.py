"""Multi-label prediction via compressed sensing (Hsu, Kakade, Langford, Zhang, NIPS 2009), and its sparse recovery."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.base import SCORES_OVERFLOW, MultiLabelModel, finite_scores
from tagwise.baselines.label_space import label_rates
from tagwise.baselines.linear_map import LinearMap, MappedTargets
from tagwise.exceptions import InvalidInputError
from tagwise.kernels import matmul_in_order, top_k_of_scores
from tagwise.kernels.compiled import compiled
from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas, thread_count
from tagwise.persistence.loading import require_dense, require_finite_floats
from tagwise.progress import FitProgress
from tagwise.randomness import check_random_state, random_generator
from tagwise.validation import Features, check_choice, check_integer, check_real

__all__ = ["CompressedModel", "CompressedSensing", "cosamp", "orthogonal_matching_pursuit"]

_MAX_MEASUREMENTS = 400
# A ranking that stops short of the five labels that are commonly looked at would be of little use.
_LEAST_NONZERO = 5
# Correlations of a block of rows: 2 MB of float64.
_BLOCK = 1 << 18
_MAX_ROWS = 256
# A code this close to the span of those already picked (relative to its length, squared) adds nothing but rounding.
_DEPENDENT = 1e-10


class CompressedModel(MultiLabelModel):
    """Measurements Wᵀx + c are decoded to labels by random codes Φ, so scores are nonlinear in x.

    Fitted: ``feature_factors_`` W (d×m), ``measurement_intercept_`` c (m), ``label_codes_`` Φᵀ (L×m) and
    ``base_score_`` (L).
    """

    _saved_arrays = ("feature_factors_", "measurement_intercept_", "label_codes_", "base_score_")

    n_measurements: int | None

    @abstractmethod
    def _decode(self, measurements: np.ndarray) -> np.ndarray:
        """The recovered labels (n×L) of float64 measurements (n×m)."""

    def _draw_codes(self, rates: np.ndarray, rng: np.random.Generator, dtype: np.dtype) -> np.ndarray:
        """Set Φᵀ and base scores for labels that are on in ``rates`` (L) of the known rows; returns Φᵀ in float64.

        Codes are independent normal numbers of variance 1/m, so that their mean length is 1, rounded to the type of the
        features, so that a saved model decodes as the fitted one. Constant labels have a code of zeros and a base score
        of ±½.
        """
        size = self.n_measurements
        if size is None:
            size = min(_MAX_MEASUREMENTS, (len(rates) + 1) // 2)
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

    def _check_restored(self) -> None:
        arrays = [getattr(self, name) for name in self._saved_arrays]
        require_dense(2, feature_factors_=self.feature_factors_, label_codes_=self.label_codes_)
        require_dense(1, measurement_intercept_=self.measurement_intercept_, base_score_=self.base_score_)
        size = self.feature_factors_.shape[1]
        expected = [(self.n_features_in_, size), (size,), (self.n_labels_, size), (self.n_labels_,)]
        found = [array.shape for array in arrays]
        if found != expected or size < 1:
            raise ValueError(f"arrays of shapes {found} where {expected} are expected")
        require_finite_floats(**dict(zip(self._saved_arrays, arrays)))


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
    reg : float
        λ > 0.
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
        W.
    measurement_intercept_ : array (m,)
        c.
    label_codes_ : array (L, m)
        Φᵀ; zeros for labels that all rows or no rows have.
    base_score_ : array (L,)
        −½, and ½ for labels that all rows have; added to the recovered ŷ these are the scores.
    n_nonzero_ : int
        s.
    objective_, history_, n_iter_
        The minimum of the regression; the same with seconds; 1.

    Notes
    -----
    Fit: one ridge regression with m targets, memory O(nnz X + nnz Y + (n + d + L)m). Prediction: O(nnz(X)m + n·s·mL)
    with "omp", about the same with "cosamp", which takes up to ten rounds.

    Deviations: labels are never negative, so only codes with a positive correlation are picked, which ranks better when
    m is small; labels that are constant in training keep their constant and take no part; c is the regression's
    intercept. Φ is Gaussian, one of the publication's choices. The method has no notion of unknown labels:
    ``observed`` is refused; :class:`tagwise.baselines.BayesianCS` has one.

    Examples
    --------
    >>> from tagwise.baselines import CompressedSensing
    >>> from tagwise.data import load_dataset
    >>> data = load_dataset("debtags-sample")
    >>> model = CompressedSensing(n_measurements=80).fit(data.X_train, data.Y_train)
    >>> labels, scores = model.predict_topk(data.X_test, k=3)
    >>> labels.shape == (data.X_test.shape[0], 3)
    True
    """

    _saved_values = ("n_nonzero_",)

    n_nonzero_: int

    def __init__(
        self,
        n_measurements: int | None = None,
        n_nonzero: int | None = None,
        recovery: str = "omp",
        reg: float = 1.0,
        normalize: bool = True,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.n_measurements = n_measurements
        self.n_nonzero = n_nonzero
        self.recovery = recovery
        self.reg = reg
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        for name in ("n_measurements", "n_nonzero"):
            if getattr(self, name) is not None:
                check_integer(getattr(self, name), name, minimum=1)
        check_choice(self.recovery, "recovery", ("omp", "cosamp"))
        check_real(self.reg, "reg", minimum=0, open_minimum=True)
        check_random_state(self.random_state)

    def _fit(self, X: Features, Y: sp.csr_matrix, observed: sp.csr_matrix | None, progress: FitProgress) -> None:
        codes = self._draw_codes(label_rates(Y), random_generator(self.random_state), X.dtype)
        compressed = np.asarray(Y.astype(np.float64) @ codes)
        mapped = LinearMap(self._prepared(X), self.reg, n_threads=thread_count(self.n_jobs)).fit(compressed)
        progress.step(mapped.value)
        average = max(_LEAST_NONZERO, int(np.ceil(Y.nnz / Y.shape[0])))
        self.n_nonzero_ = int(average if self.n_nonzero is None else self.n_nonzero)
        self._keep(mapped, X.dtype)

    def _decode(self, measurements: np.ndarray) -> np.ndarray:
        recover = cosamp if self.recovery == "cosamp" else orthogonal_matching_pursuit
        codes = self.label_codes_.astype(np.float64, copy=False)
        return recover(measurements, codes, self.n_nonzero_, n_threads=thread_count(self.n_jobs))

    def _check_restored(self) -> None:
        super()._check_restored()
        check_integer(self.n_nonzero_, "n_nonzero_", minimum=1)


# ------------------------------------------------------------------ sparse recovery


def orthogonal_matching_pursuit(
    measurements: np.ndarray, codes: np.ndarray, n_nonzero: int, *, n_threads: int = 1
) -> np.ndarray:
    """For each row z of ``measurements`` (n×m), y (L) with at most ``n_nonzero`` entries and Σ_j y_j code_j ≈ z.

    Each step picks the code with the largest correlation with the residual, then refits all picked codes by least
    squares. As y is a sum of labels, only positive correlations count; a row without any left stops. ``codes`` (L×m) of
    zeros are never picked. All arrays are float64; the result is n×L. Correlations of a block of rows are one BLAS
    product; the small systems are solved row by row.

    Time O(n·s·(mL + s²)) for s = ``n_nonzero``; memory the result, and O(mL) and a block of correlations per thread.
    """
    out = np.zeros((len(measurements), len(codes)))
    steps = min(n_nonzero, *codes.shape)
    norms = np.einsum("ij,ij->i", codes, codes)

    def rows(start: int, stop: int) -> None:
        block = measurements[start:stop]
        pursuit = _Pursuit.start(block, steps)
        correlation = np.empty((len(block), len(codes)))
        for step in range(steps):
            np.matmul(pursuit.residual, codes.T, out=correlation)
            _extend(block, codes, norms, correlation, step, pursuit)
        picked = np.nonzero(pursuit.support >= 0)
        out[start + picked[0], pursuit.support[picked]] = pursuit.coefficients[picked]

    _in_blocks(rows, len(measurements), len(codes), n_threads)
    return out


def cosamp(
    measurements: np.ndarray, codes: np.ndarray, n_nonzero: int, *, max_iter: int = 10, n_threads: int = 1
) -> np.ndarray:
    """The problem of :func:`orthogonal_matching_pursuit` by compressive sampling matching pursuit.

    Each round adds the 2·``n_nonzero`` codes with the largest (positive) correlations with the residual to those of the
    last round, fits all by least squares, and keeps the ``n_nonzero`` largest coefficients. A row stops once a round
    does not shorten its residual, and keeps its best. With fewer measurements than 3·``n_nonzero``, fewer codes are
    added, so that the least squares stay determined.

    Parameters, result and memory as there; time O(n·rounds·(mL + m·s² + s³)).
    """
    out = np.zeros((len(measurements), len(codes)))
    kept = min(n_nonzero, *codes.shape)
    added = max(1, min(2 * kept, codes.shape[1] - kept))

    def rows(start: int, stop: int) -> None:
        block, best = measurements[start:stop], out[start:stop]
        residual = block.copy()
        lengths = np.einsum("ij,ij->i", residual, residual)
        active = np.arange(stop - start)
        for _ in range(max_iter):
            candidates, correlation = top_k_of_scores(residual[active] @ codes.T, added)
            candidates[correlation <= 0] = -1
            active = _round_of_cosamp(block, codes, candidates, kept, active, best, residual, lengths)
            if len(active) == 0:
                break

    _in_blocks(rows, len(measurements), len(codes), n_threads)
    return out


def _in_blocks(rows: Callable[[int, int], None], n_rows: int, n_codes: int, n_threads: int) -> None:
    size = max(1, min(_MAX_ROWS, _BLOCK // n_codes))
    with single_threaded_blas():
        run_chunks(rows, even_chunks(n_rows, size), n_threads)


class _Pursuit(NamedTuple):
    """OMP of a block of n rows: picked codes (n×s, −1 where none), their least squares and its residuals (n×m)."""

    support: np.ndarray
    factor: np.ndarray
    right: np.ndarray
    coefficients: np.ndarray
    residual: np.ndarray

    @classmethod
    def start(cls, measurements: np.ndarray, steps: int) -> _Pursuit:
        shape = (len(measurements), steps)
        support = np.full(shape, -1, dtype=np.int64)
        return cls(support, np.zeros((*shape, steps)), np.zeros(shape), np.zeros(shape), measurements.copy())


@compiled()
def _extend(
    measurements: np.ndarray,
    codes: np.ndarray,
    norms: np.ndarray,
    correlation: np.ndarray,
    step: int,
    pursuit: _Pursuit,
) -> None:
    """One step of OMP for a block: pick a code, extend the Cholesky factor of the picked codes' Gram matrix, refit."""
    support, factor, right, coefficients, residual = pursuit
    n_rows, n_codes = correlation.shape
    for row in range(n_rows):
        if step > 0 and support[row, step - 1] < 0:
            continue
        for earlier in range(step):
            correlation[row, support[row, earlier]] = 0
        pick, largest = -1, 0.0
        for code in range(n_codes):
            if correlation[row, code] > largest:
                pick, largest = code, correlation[row, code]
        if pick < 0:
            continue
        new = factor[row, step]
        squared = norms[pick]
        for earlier in range(step):
            total = np.dot(codes[support[row, earlier]], codes[pick])
            for column in range(earlier):
                total -= factor[row, earlier, column] * new[column]
            new[earlier] = total / factor[row, earlier, earlier]
            squared -= new[earlier] ** 2
        if squared <= _DEPENDENT * norms[pick]:
            continue
        new[step] = np.sqrt(squared)
        support[row, step] = pick
        right[row, step] = np.dot(codes[pick], measurements[row])
        coefficients[row, : step + 1] = _solve(factor[row], right[row], step + 1)
        residual[row] = measurements[row]
        for position in range(step + 1):
            residual[row] -= coefficients[row, position] * codes[support[row, position]]


@compiled()
def _solve(factor: np.ndarray, right: np.ndarray, size: int) -> np.ndarray:
    """The x with F Fᵀ x = right, F the leading ``size`` rows of a lower triangular ``factor``."""
    x = right[:size].copy()
    for i in range(size):
        for j in range(i):
            x[i] -= factor[i, j] * x[j]
        x[i] /= factor[i, i]
    for i in range(size - 1, -1, -1):
        for j in range(i + 1, size):
            x[i] -= factor[j, i] * x[j]
        x[i] /= factor[i, i]
    return x


@compiled()
def _round_of_cosamp(
    measurements: np.ndarray,
    codes: np.ndarray,
    candidates: np.ndarray,
    kept: int,
    active: np.ndarray,
    best: np.ndarray,
    residual: np.ndarray,
    lengths: np.ndarray,
) -> np.ndarray:
    """One round for the active rows of a block; returns those whose residual it shortened."""
    shortened = np.zeros(len(active), dtype=np.bool_)
    for index in range(len(active)):
        row = active[index]
        merged = np.append(np.flatnonzero(best[row]), candidates[index][candidates[index] >= 0])
        merged = np.unique(merged)
        size = len(merged)
        if size == 0:
            continue
        chosen = codes[merged]
        gram = np.dot(chosen, chosen.T)
        for i in range(size):  # keeps the system regular where codes depend on one another
            gram[i, i] *= 1 + _DEPENDENT
        coefficients = np.linalg.solve(gram, np.dot(chosen, measurements[row]))
        order = np.argsort(-np.abs(coefficients), kind="mergesort")[:kept]
        left = measurements[row].copy()
        for position in order:
            left -= coefficients[position] * chosen[position]
        length = np.dot(left, left)
        if length < lengths[row]:
            shortened[index] = True
            lengths[row] = length
            residual[row] = left
            best[row] = 0
            for position in order:
                best[row, merged[position]] = coefficients[position]
    return active[shortened]
