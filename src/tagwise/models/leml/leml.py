"""LEML: low-rank empirical risk minimisation for multi-label learning (Yu, Jain, Kar, Dhillon, ICML 2014)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from tagwise.data.splits import split_rows
from tagwise.exceptions import ConvergenceWarning, InvalidInputError, warn
from tagwise.feature_blocks import FeatureBlocks
from tagwise.fields import Fields, dense, matrix, value
from tagwise.kernels import sampled_product, top_k_of_factors
from tagwise.kernels.vectors import aligned_zeros, dot_all
from tagwise.losses import get_loss
from tagwise.metrics import ndcg_at_k
from tagwise.models.factor_model import (
    LOWEST_SCORE,
    FactorModel,
    FitData,
    PositiveWeight,
    usable_rank,
)
from tagwise.models.leml.kernel_map import Kernel, KernelMap
from tagwise.models.leml.steps import FACTORS, Alternation, Factors, solve_labels
from tagwise.models.updating import UpdatableModel
from tagwise.parameters import Count, NonNegative, Positive, Seed, parameters, random_generator
from tagwise.problem import Problem
from tagwise.progress import FitProgress
from tagwise.solvers.ridge import reduced_rank_ridge
from tagwise.validation import Features, check_integer, check_real

__all__ = ["LEML"]

# Before this many rounds of a cold start a small fall does not end them: the second is often small beside the first,
# which does most of the work, and the third still worth its time.
_LEAST_ROUNDS = 3
# The k of the nDCG by which validation rows judge a round.
_K = 5


def _check_gamma(gamma: Any, name: str) -> None:
    if gamma is not None:
        check_real(gamma, name, minimum=0, open_minimum=True)


_BEST = Fields(**{f"best_{name}": field for name, field in FACTORS.items()})


LossName = Annotated[str, lambda value, _: get_loss(value)]
ValidationShare = Annotated[float, partial(check_real, minimum=0, maximum=0.9, open_minimum=True)]


@parameters
class LEML(UpdatableModel, FactorModel):
    r"""Low-rank linear model learnt by alternating minimisation, with missing labels.

    Minimises over W (d×k), H (L×k) and an unpenalised intercept b (L)

    .. math:: \sum_{(i,j)\in\Omega} \omega_{ij}\,\ell(Y_{ij},\; x_i^\top W h_j + b_j)
              + \tfrac\lambda2 (\|W\|_F^2 + \|H\|_F^2),

    whose penalty is the trace norm of Z = WHᵀ in factored form.

    Parameters
    ----------
    rank : int
        k. More than min(d, L) is clipped with a warning.
    loss : {"squared", "logistic", "squared_hinge"}
        ℓ: ½(y − s)² with labels 0/1; log(1 + e^{−ys}) and max(0, 1 − ys)² with labels −1/+1. Squared is by far the
        fastest; where few labels are known, logistic often ranks better.
    reg : float
        λ > 0 (≥ 0 for the closed form).
    max_iter : int
        Maximum number of rounds.
    solver : {"alternating", "closed_form"}
        "closed_form" solves squared loss with all labels known exactly, with the penalty ½λ‖Z‖²_F in place of the trace
        norm (reduced-rank ridge regression; at λ = 0 Claim 1 of the paper, which is CPLST). For min(n, d) up to some
        thousands.
    init : {"spectral", "random"}
        Start of H: the top right singular vectors of the loss's gradient at W = 0, or Gaussian noise. The spectral
        start reaches the same objective in fewer rounds.
    kernel : {None, "linear", "rbf", "poly"} or callable
        A kernel model: f_j(x) = Σ_t K(x, x_t) (…). The Gram matrix of all rows while it fits ``memory_limit``, else
        Nyström features on as many random landmarks as fit. "linear" gives the model without a kernel.
    gamma, degree, coef0 : float or None, int, float
        Of "rbf" and "poly", as in scikit-learn. For unit-length rows a gamma near 1 is a good first try.
    memory_limit : float
        Bytes that the kernel's or the closed form's dense matrices may take.
    early_stopping : bool
        Hold rows out, stop when their nDCG@5 has not risen for ``patience`` rounds, and keep the best round.
    validation_fraction : float
        Share of the rows set aside for early stopping. Labels with few rows stay in training, so the validation score
        ranks rounds, but is too high as an estimate for new rows.
    patience : int
    warm_start : bool
        Start from the factors of the last fit, which must have had the same features, labels and rank.
    inner_iter : int
        Maximum number of conjugate gradient steps for every system that is not solved exactly: W, and the labels in
        the cases below. Few steps are better than many: solving W to the end in early rounds fits the training labels
        closer and ranks unseen rows worse at the same λ.
    tol : float
        The fit has converged when a round's step in W, from the third round on, lowers the objective by at most ``tol``
        times what the first round's did. Unlike a gradient norm this does not change when a factor moves from W to H.
        The default stops squared loss after three rounds as a rule, before the training labels are fitted too closely
        (docs/notes/leml.md).
    random_state : int, Generator, RandomState or None
        Seeds the start, the landmarks and the validation rows.

    Attributes
    ----------
    landmarks_ : CSR or array (m, d)
        Only with a kernel.
    objective_, history_, n_iter_
        Objective after each round; the same with seconds, the fall by the step in W and, with early stopping, the
        validation score; number of rounds.

    Notes
    -----
    Squared loss: W by conjugate gradients; H and b exactly, or, with a mask or weights and a rank above 64, improved by
    conjugate gradients. Other losses: trust-region Newton, two steps of W and up to three of the labels per round. With
    all labels known, a product costs O((nnz X + nnz Y)k + (n + L)k²) for squared loss and O(nnz(X)k + nLk) for the
    others, which stream over blocks of scores. With a mask it is O((nnz X + nnz Ω)k); labels that are solved exactly
    then cost O(nnz(Ω)k² + Lk³). Memory O(nnz X + nnz Y + nnz Ω + (n + d + L)k), never n×L. Squared loss with
    all labels known and sparse X takes at most W, H, five n×k (XW is one), the scaled values and the transpose of X,
    and a tenth beside the data while d ≤ n. For d > n, conjugate gradients hold four d×k. Early stopping and kernels
    make copies of X on top.

    :meth:`add_labels` solves H and b of the new labels for the current W, and :meth:`update` those of labels with many
    new examples; once there are a third more rows than at the last fit, it fits everything again.

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

    fields: ClassVar[Fields] = Fields(
        feature_factors_=dense("d", "k", meaning="W. With a kernel: the coefficients of the landmarks (m, k)."),
        label_factors_=dense(
            "L",
            "k",
            meaning="H. The factor of a label without a known entry is zero and its score below all others.",
        ),
        intercept_=dense(
            "L", meaning="b, less ½ for squared loss: scores are centred, so that 0 is the border between off and on."
        ),
        rank_=value(partial(check_integer, minimum=1), "k."),
        gamma_=value(_check_gamma, "γ of the kernel, or None."),
        best_iter_=value(
            partial(check_integer, minimum=0),
            "The round whose factors the model has: the last one, or with early stopping the best on the validation "
            "rows.",
        ),
    )

    refit_growth: ClassVar[float] = 4 / 3

    rank: Count = 100
    loss: LossName = "squared"
    reg: NonNegative = 1.0
    max_iter: Count = 10
    positive_weight: PositiveWeight = 1.0
    fit_intercept: bool = True
    normalize: bool = True
    solver: Literal["alternating", "closed_form"] = "alternating"
    init: Literal["spectral", "random"] = "spectral"
    kernel: Kernel | None = None
    gamma: Positive | None = None
    degree: Count = 3
    coef0: NonNegative = 1.0
    memory_limit: Positive = 2**28
    early_stopping: bool = False
    validation_fraction: ValidationShare = 0.1
    patience: Count = 2
    warm_start: bool = False
    inner_iter: Count = 5
    tol: NonNegative = 0.15
    updatable: bool = False
    dense_weight: NonNegative = 1.0
    n_jobs: int | None = None
    random_state: Seed = 0
    verbose: int = 0

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        check_real(self.reg, "reg", minimum=0, open_minimum=self.solver == "alternating")
        if self.solver == "closed_form":
            unsuitable = [
                ("loss", self.loss != "squared", "squared"),
                ("positive_weight", not np.array_equal(self.positive_weight, 1), "1"),
                ("early_stopping", self.early_stopping, "False"),
                ("warm_start", self.warm_start, "False"),
            ]
            for name, wrong, needed in unsuitable:
                if wrong:
                    raise InvalidInputError(
                        f'solver="closed_form" needs {name}={needed}; found {getattr(self, name)!r}. '
                        'Use solver="alternating".'
                    )
        if self.warm_start and self.kernel is not None:
            raise InvalidInputError("warm_start cannot continue a kernel model: the features of a fit are its own.")

    def _reads_blocks(self) -> bool:
        return True

    def _iterations(self) -> int:
        return 1 if self.solver == "closed_form" else self.max_iter

    # ------------------------------------------------------------------ fit

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        data = FitData.build(problem, get_loss(self.loss), self.positive_weight, self.n_jobs)
        if self.solver == "closed_form" and problem.known is not None:
            raise InvalidInputError(
                'solver="closed_form" needs every label to be known; with observed, use solver="alternating".'
            )
        if self.solver == "closed_form" and problem.row_weight is not None:
            raise InvalidInputError(
                'solver="closed_form" does not support row weights; with sample_weight, use "alternating".'
            )
        rows, kernel_map, self.gamma_ = self._prepared(problem.X), None, None
        if isinstance(rows, FeatureBlocks) and (self.kernel is not None or self.solver == "closed_form"):
            rows = rows.tocsr()
        if self.kernel is not None:
            kernel_map = KernelMap.build(
                rows,
                kernel=self.kernel,
                gamma=self.gamma,
                degree=self.degree,
                coef0=self.coef0,
                memory_limit=self.memory_limit,
                random_state=self.random_state,
            )
            rows = kernel_map.features(rows)
            self.gamma_, self.landmarks_ = kernel_map.gamma, kernel_map.landmarks
        n_features, n_labels = rows.shape[1], problem.n_labels
        rank = usable_rank(self.rank, min(n_features, n_labels), f"{n_features} features and {n_labels} labels allow")
        if self.solver == "closed_form":
            W, H, b, objective = reduced_rank_ridge(
                rows, problem.Y, rank, self.reg, fit_intercept=self.fit_intercept, memory_limit=self.memory_limit
            )
            factors, self.best_iter_ = Factors(W, H, b), 0
            progress.step(objective)
        else:
            factors = self._alternate(replace(data, X=rows), rank, progress)
        if kernel_map is not None:
            factors.W = kernel_map.fold(factors.W)
        self.rank_ = factors.H.shape[1]
        self._take_factors(factors.W, factors.H, factors.b - data.loss.threshold, problem.X.dtype)

    def _alternate(self, data: FitData, rank: int, progress: FitProgress) -> Factors:
        """Algorithm 1 of the paper: minimise in turn over W with H fixed and over H with W fixed."""
        data, validation = self._hold_out(data) if self.early_stopping else (data, None)
        steps = Alternation(data, self.reg, fit_intercept=self.fit_intercept, inner_iter=self.inner_iter)
        history, sizes = progress.history, {"d": data.X.shape[1], "k": rank, "L": data.n_labels}
        kept, kept_best = (progress.resume(fields, data.X.dtype, **sizes) for fields in (FACTORS, _BEST))
        factors = self._start(data, steps, rank) if kept is None else Factors(**kept)
        best = None if kept_best is None else Factors(*kept_best.values())

        while not self._has_ended(history) and len(history) < self.max_iter:
            fall = steps.step_features(factors)  # W: a few steps towards the minimum for this H
            value = steps.step_labels(factors)  # H and b: each label its own problem for this W
            objective, info = value + 0.5 * self.reg * dot_all(factors.W, factors.W).item(), {"fall": fall}
            if validation is not None:
                info["validation"] = validation_score(validation, factors)
                if best is None or info["validation"] > max(round_["validation"] for round_ in history):
                    best = Factors(factors.W.copy(), factors.H.copy(), factors.b.copy())
                    progress.keep(best_W=best.W, best_H=best.H, best_b=best.b)
            progress.keep(W=factors.W, H=factors.H, b=factors.b)
            if progress.step(objective, **info):
                break

        if not self._has_ended(history) and not progress.stopped:
            self._warn_of_early_end(history)
        self.best_iter_ = _best_round(history)
        best = factors if best is None else best
        unknown = data.targets.unknown_labels()
        best.H[unknown], best.b[unknown] = 0, LOWEST_SCORE
        return best

    def _hold_out(self, data: FitData) -> tuple[FitData, FitData]:
        """Rows to train on and rows to validate on, by known labels alone. Rare labels stay in training."""
        train, chosen = split_rows(data.Y, self.validation_fraction, self.random_state, keep_labels=True)
        if len(chosen) == 0:
            raise InvalidInputError(
                f"validation_fraction={self.validation_fraction} of {data.n_rows} rows holds no row out (every row is "
                "needed to keep its labels in training); raise it or switch early_stopping off."
            )
        validation = data.rows(chosen)
        if validation.observed is not None and validation.observed.nnz == 0:
            raise InvalidInputError("none of the validation rows has a known label; switch early_stopping off.")
        return FitData.build(data.rows(train), data.loss, self.positive_weight, self.n_jobs), validation

    def _has_ended(self, history: list[dict[str, Any]]) -> bool:
        """Whether the last round met a stopping rule: a small step in W, or no better validation score for a while."""
        if not history:
            return False
        fall, done = history[-1]["fall"], len(history)
        small = fall <= self.tol * self._first_fall(history) and done >= self._least_rounds()
        return fall <= 0 or small or (self.early_stopping and done - _best_round(history) >= self.patience)

    def _first_fall(self, history: list[dict[str, Any]]) -> float:
        """Decrease of the objective in the first round; for a warm start, that of the fit it continues.

        A closed form had no rounds.
        """
        continued = [info for info in self.history_ if "fall" in info] if self._starts_warm() else []
        first: float = (continued or history)[0]["fall"]
        return first

    def _least_rounds(self) -> int:
        return 1 if self._starts_warm() else _LEAST_ROUNDS

    def _warn_of_early_end(self, history: list[dict[str, Any]]) -> None:
        share, early = history[-1]["fall"] / self._first_fall(history), self._least_rounds()
        advice = f"above tol={self.tol:g}" if share > self.tol else f"and tol counts from round {early} on"
        warn(
            f"LEML stopped after max_iter={self.max_iter} rounds; the last one still lowered the objective by "
            f"{share:.2g} of what the first one did, {advice}; raise max_iter{' or tol' * (share > self.tol)}.",
            ConvergenceWarning,
        )

    def _start(self, data: FitData, steps: Alternation, rank: int) -> Factors:
        """The last fit's factors, or W = 0, the best constant scores as b, and H as ``init`` says."""
        loss, dtype, (n_labels, n_features) = data.loss, data.X.dtype, (data.n_labels, data.X.shape[1])
        b = loss.constant(data.targets.rates()) if self.fit_intercept else np.zeros(n_labels)
        if self._starts_warm():
            found = (self.feature_factors_.shape, self.label_factors_.shape)
            expected = ((n_features, rank), (n_labels, rank))
            if found != expected:
                raise InvalidInputError(
                    f"warm_start needs the features, labels and rank of the last fit: its factors are {found[0]} and "
                    f"{found[1]} where {expected[0]} and {expected[1]} are needed; set warm_start=False or fit anew."
                )
            b = np.where(self.intercept_ > LOWEST_SCORE / 2, self.intercept_ + loss.threshold, b).astype(float)
            return Factors(self.feature_factors_.astype(dtype), self.label_factors_.astype(dtype), b)
        rng = random_generator(self.random_state)
        if self.init == "spectral":
            H = steps.spectral_start(b, rank, rng)
        else:
            H = (rng.standard_normal((n_labels, rank)) / np.sqrt(rank)).astype(dtype)
        return Factors(aligned_zeros((n_features, rank), dtype), H, b)

    def _starts_warm(self) -> bool:
        return self.warm_start and hasattr(self, "feature_factors_")

    def _warm_start_arrays(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in self.fields.arrays()} if self._starts_warm() else {}

    def probabilities_of(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities from scores, by the loss."""
        loss = get_loss(self.loss)
        return loss.rate(scores + scores.dtype.type(loss.threshold))

    # ------------------------------------------------------------------ after the fit

    def _learn_labels(self, problem: Problem, labels: np.ndarray, progress: FitProgress) -> None:
        loss = get_loss(self.loss)
        known = FitData.build(problem, loss, self._weights_of(labels), self.n_jobs).targets
        A, back = self._embed(problem.X), None
        if self.solver == "closed_form":
            if self.kernel is not None:
                raise InvalidInputError(
                    'solver="closed_form" with a kernel cannot learn labels after its fit; use solver="alternating".'
                )
            # Its penalty is ½λ‖Wh‖², which is ½λ‖h‖² for an orthonormal basis of W's columns.
            _, back = np.linalg.qr(self.feature_factors_.astype(np.float64))
            back = np.linalg.pinv(back)
            A = np.ascontiguousarray(A @ back, dtype=A.dtype)
        H, b, _ = solve_labels(known, A, loss, self.reg, fit_intercept=self.fit_intercept)
        if back is not None:
            H = H @ back.T
        self._put_labels(labels, H, b - loss.threshold, known.unknown_labels())

    # ------------------------------------------------------------------ kernels

    def _embed(self, X: Features) -> np.ndarray:
        if self.kernel is None:
            return super()._embed(X)
        kernel_map = KernelMap(self.kernel, self.gamma_, self.degree, self.coef0, self.landmarks_, np.empty((0, 0)))
        rows = self._prepared(X)
        return kernel_map.embed(rows.tocsr() if isinstance(rows, FeatureBlocks) else rows, self.feature_factors_)

    def _fields(self) -> Fields:
        fields = super()._fields()
        if self.kernel is not None:
            fields |= Fields(
                feature_factors_=dense("m", "k", meaning="Coefficients of the landmarks."),
                landmarks_=matrix("m", "d", meaning="Rows that others are compared with."),
            )
        return fields

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if self.kernel in ("rbf", "poly") and self.gamma_ is None:
            raise ValueError("gamma_ is None, and the kernel needs it")


def _best_round(history: list[dict[str, Any]]) -> int:
    """The first round of the best validation score, or the last round if there are none; from 1."""
    if not history or "validation" not in history[0]:
        return len(history)
    return int(np.argmax([round_["validation"] for round_ in history])) + 1


def validation_score(rows: FitData, factors: Factors) -> float:
    """nDCG@5 of these rows by these factors; with a mask, only the known pairs of a row are ranked."""
    A, b, known, threads = rows.features().matmul(factors.W), factors.b, rows.observed, rows.n_threads
    b = b.astype(factors.H.dtype)
    ranking: Any
    if known is None:
        ranking, _ = top_k_of_factors(A, factors.H, _K, intercept=b, n_threads=threads)
    else:
        scores = sampled_product(known, A, factors.H, n_threads=threads) + b[known.indices]
        ranking = sp.csr_matrix((scores, known.indices, known.indptr), shape=known.shape)
    return float(ndcg_at_k(rows.Y, ranking, k=_K))
