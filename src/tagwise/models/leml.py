"""LEML: low-rank empirical risk minimisation for multi-label learning (Yu, Jain, Kar, Dhillon, ICML 2014)."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from tagwise.exceptions import ConvergenceWarning, TagwiseWarning
from tagwise.kernels import TwoWayMatrix, two_way
from tagwise.losses import Loss, get_loss
from tagwise.models.alternation import Factors, alternation_for
from tagwise.models.factor_model import FactorModel, unit_rows
from tagwise.models.positive_weight import PositiveWeight, check_positive_weight, resolve_positive_weight
from tagwise.models.progress import FitProgress
from tagwise.parallel import thread_count
from tagwise.problems.labels import TrainingLabels
from tagwise.problems.spectral_start import spectral_start
from tagwise.solvers.inner import whole
from tagwise.validation import check_integer, check_real

__all__ = ["LEML"]

# A label of which nothing is known must rank below every other, yet stay a finite number.
_LOWEST_SCORE = -1e30


class LEML(FactorModel):
    r"""Low-rank linear model learnt by alternating minimisation, with missing labels.

    Minimises over W (d×k), H (L×k) and an unpenalised intercept b (L)

    .. math:: \sum_{(i,j)\in\Omega} \omega_{ij}\,\tfrac12 (Y_{ij} - x_i^\top W h_j - b_j)^2
              + \tfrac\lambda2 (\|W\|_F^2 + \|H\|_F^2),

    whose penalty is the trace norm of Z = WHᵀ in factored form. Each round solves W by a few steps of conjugate
    gradients and then H and b exactly.

    Parameters
    ----------
    rank : int
        k. More than min(d, L) is clipped with a warning.
    loss : {"squared"}
    reg : float
        λ > 0.
    max_iter : int
        Rounds at the most.
    positive_weight : float, array (L,) or "propensity"
        ω of a positive relative to a negative: one number, one per label, or the inverse propensities of Jain et al.
        2016. Larger weights favour rare labels, and suit data in which only positives are trustworthy.
    fit_intercept : bool
        Whether b is learnt (else 0).
    normalize : bool
        Scale rows of X to unit length, at fit and at prediction.
    inner_iter : int
        Steps of conjugate gradients per round at the most. A few are better than many: solving W to the end in early
        rounds fits the training labels closer and ranks unseen rows worse at the same λ.
    tol : float
        The fit has converged when the Newton decrement of W (the fall of the objective along its step; H and b are at
        their exact minimum) is at most ``tol`` times that of the first round. Unlike a gradient norm it does not change
        when a factor moves from W to H. The default stops before the training labels are fitted too closely.
    n_jobs : int or None
        Threads, as in joblib. The result is bit-identical for every number.
    random_state : int, RandomState or None
        Seeds the randomised start.
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    feature_factors_ : array (d, k)
        W.
    label_factors_ : array (L, k)
        H. The factor of a label without a known entry is zero and its score below all others.
    intercept_ : array (L,)
        b − ½: scores are centred, so that 0 is the border between off and on.
    objective_, history_, n_iter_
        Objective after each round; the same with seconds and Newton decrement; number of rounds.

    Notes
    -----
    The start is H = the top right singular vectors of the loss's gradient at W = 0. With nnz(X) stored features and all
    labels known, a step costs O((nnz X + nnz Y)k + (n + L)k²); with a mask, O((nnz X + |Ω|)k) for W and
    O(|Ω|k² + Lk³) for H. Memory O(nnz X + nnz Y + |Ω| + (n + d + L)k). n×L is never allocated.

    Examples
    --------
    >>> from tagwise import LEML
    >>> from tagwise.data import load_dataset
    >>> data = load_dataset("debtags-sample")
    >>> model = LEML(rank=50, max_iter=3, tol=0.5).fit(data.X_train, data.Y_train)
    >>> labels, scores = model.predict_topk(data.X_test, k=3)
    >>> labels.shape == (data.X_test.shape[0], 3)
    True
    """

    _saved_values: ClassVar[tuple[str, ...]] = ("rank_",)

    def __init__(
        self,
        rank: int = 100,
        loss: str = "squared",
        reg: float = 1.0,
        max_iter: int = 10,
        positive_weight: PositiveWeight = 1.0,
        fit_intercept: bool = True,
        normalize: bool = True,
        inner_iter: int = 5,
        tol: float = 1e-2,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.rank = rank
        self.loss = loss
        self.reg = reg
        self.max_iter = max_iter
        self.positive_weight = positive_weight
        self.fit_intercept = fit_intercept
        self.normalize = normalize
        self.inner_iter = inner_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_integer(self.rank, "rank", minimum=1)
        get_loss(self.loss)
        check_real(self.reg, "reg", minimum=0, open_minimum=True)
        check_integer(self.max_iter, "max_iter", minimum=1)
        check_integer(self.inner_iter, "inner_iter", minimum=1)
        check_real(self.tol, "tol", minimum=0)
        check_positive_weight(self.positive_weight)

    def _fit(
        self,
        X: sp.csr_matrix | np.ndarray,
        Y: sp.csr_matrix,
        observed: sp.csr_matrix | None,
        progress: FitProgress,
    ) -> None:
        threads = thread_count(self.n_jobs)
        weight = resolve_positive_weight(self.positive_weight, Y, observed)
        loss = get_loss(self.loss)
        self.rank_ = self._usable_rank(X.shape[1], Y.shape[1])
        features = two_way(unit_rows(X) if self.normalize else X, n_threads=threads)
        labels = TrainingLabels.build(Y, observed, weight, dtype=X.dtype, n_threads=threads)
        alternation = alternation_for(
            loss, features, labels, self.reg, fit_intercept=self.fit_intercept, inner_iter=self.inner_iter
        )
        factors = self._start(loss, features, labels, X.dtype)

        first, converged = 0.0, False
        for _ in range(self.max_iter):
            decrement = alternation.step_features(factors)
            value = alternation.step_labels(factors)
            objective = value + 0.5 * self.reg * whole(factors.W, factors.W).item()
            first = first or decrement
            converged = decrement <= self.tol * first
            if progress.step(objective, decrement=decrement) or converged:
                break

        if not converged and not progress.stopped:
            warnings.warn(
                f"LEML stopped after max_iter={self.max_iter} rounds; the last one still lowered the objective by "
                f"{decrement / first:.2g} of what the first one did, above tol={self.tol:g}; raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        unknown = labels.unknown_labels()
        factors.H[unknown] = 0
        factors.b[unknown] = _LOWEST_SCORE
        self.feature_factors_, self.label_factors_ = factors.W, factors.H
        self.intercept_ = (factors.b - loss.threshold).astype(X.dtype)

    def _start(self, loss: Loss, X: TwoWayMatrix, labels: TrainingLabels, dtype: np.dtype) -> Factors:
        """W = 0, the best constant scores as b, and H where the loss falls fastest."""
        n_labels = labels.shape[1]
        b = loss.constant(labels.rates()) if self.fit_intercept else np.zeros(n_labels)
        slope, row = labels.slope_at(loss, b)
        H = spectral_start(X, slope, row, self.rank_, check_random_state(self.random_state), dtype)
        rows, features = X.shape
        return Factors(
            W=np.zeros((features, self.rank_), dtype=dtype), A=np.zeros((rows, self.rank_), dtype=dtype), H=H, b=b
        )

    def _usable_rank(self, n_features: int, n_labels: int) -> int:
        largest = min(n_features, n_labels)
        if self.rank > largest:
            warnings.warn(
                f"rank={self.rank} is more than {n_features} features and {n_labels} labels allow; using {largest}.",
                TagwiseWarning,
                stacklevel=4,
            )
        return min(self.rank, largest)
