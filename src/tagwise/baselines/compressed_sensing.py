"""Multi-label prediction via compressed sensing (Hsu, Kakade, Langford, Zhang, NIPS 2009)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.baselines.compressed_model import CompressedModel
from tagwise.baselines.label_codes import LabelCodes, default_measurements
from tagwise.baselines.label_directions import label_rates
from tagwise.baselines.linear_map import LinearMap
from tagwise.baselines.sparse_recovery import cosamp, orthogonal_matching_pursuit
from tagwise.parallel import thread_count
from tagwise.progress import FitProgress
from tagwise.randomness import check_random_state, random_generator
from tagwise.validation import check_choice, check_integer, check_real

__all__ = ["CompressedSensing"]

# A ranking that stops short of the five labels that are commonly looked at would be of little use.
_LEAST_SPARSITY = 5


class CompressedSensing(CompressedModel):
    r"""Random projections of the labels are regressed on the features; sparse recovery decodes them.

    With a random Φ (m×L) of independent N(0, 1/m), learns

    .. math:: \min_{W, c}\; \tfrac12\|Y\Phi^\top - XW - 1c^\top\|_F^2 + \tfrac\lambda2\|W\|_F^2

    and answers for a row x

    .. math:: \hat y \approx \arg\min_{\|y\|_0 \le s} \|\Phi y - (W^\top x + c)\|^2 ,

    found greedily. m of the order of s·log L measurements are enough to recover a label vector with s ones.

    Parameters
    ----------
    n_measurements : int or None
        m. None is half the number of labels, at most 400.
    sparsity : int or None
        s, how many labels a row may get at the most; all others have the score −½ and rank by their ids. None is the
        mean number of labels of the training rows, rounded up, and at least 5.
    recovery : {"omp", "cosamp"}
        Orthogonal matching pursuit, which picks one label at a time, or compressive sampling matching pursuit, which
        picks 2s at a time and thinks again (:mod:`tagwise.baselines.sparse_recovery`).
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
        −½, and ½ for labels that all rows have; with the recovered ŷ added these are the scores.
    sparsity_ : int
        s.
    objective_, history_, n_iter_
        The minimum of the regression; the same with seconds; 1.

    Notes
    -----
    Fit: one ridge regression with m targets (:mod:`tagwise.baselines.linear_map`), memory O(nnz X + nnz Y +
    (n + d + L)m). Prediction: O(nnz(X)m + n·s·mL) with "omp", and about that with "cosamp", which takes up to ten
    rounds.

    Deviations: labels are never negative, so only codes with a positive correlation are picked, which ranks better when
    m is small; labels that are constant in training keep their constant and take no part; c is the regression's
    intercept. Φ is Gaussian, of the choices in the publication. Defaults were chosen on validation rows of bibtex and
    delicious: a ranking by ŷ beats the order in which labels are picked. Unknown labels have no meaning in the method,
    so ``observed`` is refused; :class:`tagwise.baselines.BayesianCS` gives them one.

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

    _saved_values: ClassVar[tuple[str, ...]] = ("sparsity_",)

    sparsity_: int

    def __init__(
        self,
        n_measurements: int | None = None,
        sparsity: int | None = None,
        recovery: str = "omp",
        reg: float = 1.0,
        normalize: bool = True,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.n_measurements = n_measurements
        self.sparsity = sparsity
        self.recovery = recovery
        self.reg = reg
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        for name in ("n_measurements", "sparsity"):
            if getattr(self, name) is not None:
                check_integer(getattr(self, name), name, minimum=1)
        check_choice(self.recovery, "recovery", ("omp", "cosamp"))
        check_real(self.reg, "reg", minimum=0, open_minimum=True)
        check_random_state(self.random_state)

    def _fit(
        self, X: sp.csr_matrix | np.ndarray, Y: sp.csr_matrix, observed: sp.csr_matrix | None, progress: FitProgress
    ) -> None:
        threads = thread_count(self.n_jobs)
        n_rows, n_labels = Y.shape
        size = default_measurements(n_labels) if self.n_measurements is None else self.n_measurements
        drawn = LabelCodes.draw(label_rates(Y), size, random_generator(self.random_state), X.dtype)
        rows = self._prepared(X)
        compressed = np.asarray(Y.astype(np.float64) @ drawn.codes.astype(np.float64))
        mapped = LinearMap(rows, self.reg, n_threads=threads).fit(compressed)
        progress.step(mapped.value)
        average = max(_LEAST_SPARSITY, int(np.ceil(Y.nnz / n_rows)))
        self.sparsity_ = int(average if self.sparsity is None else self.sparsity)
        self.feature_factors_ = mapped.coefficients.astype(X.dtype)
        self.measurement_intercept_ = mapped.intercept.astype(X.dtype)
        self.label_codes_, self.base_score_ = drawn.codes, drawn.base.astype(X.dtype)

    def _decode(self, measurements: np.ndarray) -> np.ndarray:
        recover = cosamp if self.recovery == "cosamp" else orthogonal_matching_pursuit
        codes = self.label_codes_.astype(np.float64, copy=False)
        return recover(measurements, codes, self.sparsity_, n_threads=thread_count(self.n_jobs))

    def _check_restored(self) -> None:
        super()._check_restored()
        check_integer(self.sparsity_, "sparsity_", minimum=1)
