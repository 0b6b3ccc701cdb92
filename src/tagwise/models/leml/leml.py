"""LEML: low-rank empirical risk minimisation for multi-label learning (Yu, Jain, Kar, Dhillon, ICML 2014)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import ConvergenceWarning, InvalidInputError, warn
from tagwise.feature_blocks import FeatureBlocks
from tagwise.kernels.vectors import aligned_zeros, dot_all
from tagwise.losses import get_loss
from tagwise.models.factor_model import (
    LOWEST_SCORE,
    FactorModel,
    PositiveWeight,
    check_positive_weight,
    resolve_positive_weight,
    usable_rank,
)
from tagwise.models.leml.kernel_map import Kernel, KernelMap, check_kernel_parameters
from tagwise.models.leml.steps import (
    Factors,
    LocalRows,
    Rounds,
    TrainingRows,
    ValidationRows,
    feature_products,
    solved_labels,
)
from tagwise.models.updating import LabelRows, UpdatableModel, replaced
from tagwise.parallel import thread_count
from tagwise.persistence.loading import require_finite_floats
from tagwise.problems.labels import TrainingLabels
from tagwise.progress import FitProgress
from tagwise.randomness import check_random_state, random_generator
from tagwise.solvers.ridge import reduced_rank_ridge
from tagwise.validation import Features, check_choice, check_flag, check_integer, check_real

__all__ = ["LEML"]

# W moves in an update once this share of the rows is new to it. On validation rows of debtags, in ten portions, a
# quarter is as good as a fit, and a tenth costs half a point of P@1 or more: rounds fit the training labels closer.
_NEW_ROWS = 0.25
# Before this many rounds of a cold start a small fall does not end them: the second is often small beside the first,
# which does most of the work, and the third still worth its time.
_LEAST_ROUNDS = 3


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
        Rounds at the most.
    positive_weight : float, array (L,) or "propensity"
        ω of a positive relative to a negative: one number, one per label, or the inverse propensities of Jain et al.
        2016. Larger weights favour rare labels, and suit data in which only positives are trustworthy.
    fit_intercept : bool
        Whether b is learnt (else 0).
    normalize : bool
        Scale rows of X to unit length, at fit and at prediction.
    solver : {"alternating", "closed_form"}
        "closed_form" solves squared loss with all labels known exactly, with the penalty ½λ‖Z‖²_F in place of the trace
        norm (reduced-rank ridge regression; at λ = 0 Claim 1 of the paper, which is CPLST). For min(n, d) up to some
        thousands.
    init : {"spectral", "random"}
        Where H starts: the top right singular vectors of the loss's gradient at W = 0, or Gaussian noise. The spectral
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
        Steps of conjugate gradients at the most, for every system that is not solved exactly: W, and the labels where
        they are not (below). A few are better than many: solving W to the end in early rounds fits the training labels
        closer and ranks unseen rows worse at the same λ.
    tol : float
        The fit has converged when a round's step in W, from the third round on, lowers the objective by at most ``tol``
        times what the first round's did. Unlike a gradient norm this does not change when a factor moves from W to H.
        The default stops squared loss after three rounds as a rule, before the training labels are fitted too closely
        (docs/notes/leml.md).
    updatable : bool
        Keep the training rows in the model and its folder, so that :meth:`update` can learn further ones and
        :meth:`merge_labels` can unite labels. See docs/updating.md.
    dense_weight : float
        What a dense block of features (:class:`~tagwise.data.FeatureBlocks`) is multiplied by, at fit and at
        prediction, after its rows are scaled to unit length where rows are.
    n_jobs : int or None
        Threads, as in joblib. The result is bit-identical for every number.
    random_state : int, Generator, RandomState or None
        Seeds the start, the landmarks and the validation rows.
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    feature_factors_ : array (d, k)
        W. With a kernel: the coefficients of the landmarks (m, k).
    label_factors_ : array (L, k)
        H. The factor of a label without a known entry is zero and its score below all others.
    intercept_ : array (L,)
        b, less ½ for squared loss: scores are centred, so that 0 is the border between off and on.
    landmarks_ : CSR or array (m, d)
        Only with a kernel.
    objective_, history_, n_iter_
        Objective after each round; the same with seconds, the fall by the step in W and, with early stopping, the
        validation score; number of rounds.
    best_iter_ : int
        The round whose factors the model has: the last one, or with early stopping the best on the validation rows.

    Notes
    -----
    Squared loss: W by conjugate gradients; H and b exactly, or, with a mask or weights and a rank above 64, improved by
    conjugate gradients. Other losses: trust-region Newton, two steps of W and up to three of the labels per round. With
    all labels known, a product costs O((nnz X + nnz Y)k + (n + L)k²) for squared loss and O(nnz(X)k + nLk) for the
    others, which stream over blocks of scores. With a mask it is O((nnz X + nnz Ω)k); labels that are solved exactly
    then cost O(nnz(Ω)k² + Lk³). Memory O(nnz X + nnz Y + nnz Ω + (n + d + L)k), never n×L. Squared loss with
    all labels known and sparse X takes at most W, H, XW, two n×k and a tenth beside the data while d ≤ n; of X that
    takes a few megabytes it stores a transpose as well, and another n×k. For d > n, conjugate gradients hold four d×k.
    Early stopping and kernels make copies of X on top.

    :meth:`add_labels` solves H and b of the new labels for the W that is there. :meth:`update` moves W too, by one
    round from where it is, once a quarter of the rows is new to it. ``drift_`` is by how much that round's step in W
    lowered the objective per row, as a share of what the first round of the fit did: ``tol`` is what a fit would stop
    at.

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

    _saved_values: ClassVar[tuple[str, ...]] = ("rank_", "gamma_", "best_iter_")
    _kept_values: ClassVar[tuple[str, ...]] = (*UpdatableModel._kept_values, "moved_rows_")
    _label_axes: ClassVar[Mapping[str, tuple[int, ...]]] = {"label_factors_": (0,), "intercept_": (0,)}

    landmarks_: Features
    moved_rows_: int
    """Only with ``updatable``: how many rows there were when W last moved."""

    def __init__(
        self,
        rank: int = 100,
        loss: str = "squared",
        reg: float = 1.0,
        max_iter: int = 10,
        positive_weight: PositiveWeight = 1.0,
        fit_intercept: bool = True,
        normalize: bool = True,
        solver: str = "alternating",
        init: str = "spectral",
        kernel: Kernel | None = None,
        gamma: float | None = None,
        degree: int = 3,
        coef0: float = 1.0,
        memory_limit: float = 2**28,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 2,
        warm_start: bool = False,
        inner_iter: int = 5,
        tol: float = 0.15,
        updatable: bool = False,
        dense_weight: float = 1.0,
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
        self.solver = solver
        self.init = init
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.memory_limit = memory_limit
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.warm_start = warm_start
        self.inner_iter = inner_iter
        self.tol = tol
        self.updatable = updatable
        self.dense_weight = dense_weight
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        check_integer(self.rank, "rank", minimum=1)
        get_loss(self.loss)
        check_choice(self.solver, "solver", ("alternating", "closed_form"))
        check_choice(self.init, "init", ("spectral", "random"))
        check_real(self.reg, "reg", minimum=0, open_minimum=self.solver == "alternating")
        check_integer(self.max_iter, "max_iter", minimum=1)
        check_integer(self.inner_iter, "inner_iter", minimum=1)
        check_real(self.tol, "tol", minimum=0)
        check_positive_weight(self.positive_weight)
        check_real(self.dense_weight, "dense_weight", minimum=0)
        check_flag(self.early_stopping, "early_stopping")
        check_flag(self.warm_start, "warm_start")
        check_random_state(self.random_state)
        check_real(self.memory_limit, "memory_limit", minimum=0, open_minimum=True)
        if self.kernel is not None:
            check_kernel_parameters(self.kernel, self.gamma, self.degree, self.coef0)
        if self.early_stopping:
            check_real(self.validation_fraction, "validation_fraction", minimum=0, maximum=0.9, open_minimum=True)
            check_integer(self.patience, "patience", minimum=1)
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

    def _check_against_data(self, X: Features, Y: sp.csr_matrix, observed: sp.csr_matrix | None) -> None:
        """What can only be seen once the data is there, still before any work starts."""
        resolve_positive_weight(self.positive_weight, Y, observed)
        if self.solver == "closed_form" and observed is not None:
            raise InvalidInputError(
                'solver="closed_form" needs every label to be known; with observed, use solver="alternating".'
            )
        if self.solver == "closed_form" and self._row_weight is not None:
            raise InvalidInputError('solver="closed_form" does not weigh rows; with sample_weight, use "alternating".')
        self._check_warm_start(X.shape[1], Y.shape[1])

    def _check_warm_start(self, n_features: int, n_labels: int) -> None:
        if self._starts_warm():
            rank = min(self.rank, n_features, n_labels)
            found = (self.feature_factors_.shape, self.label_factors_.shape)
            expected = ((n_features, rank), (n_labels, rank))
            if found != expected:
                raise InvalidInputError(
                    f"warm_start needs the features, labels and rank of the last fit: its factors are {found[0]} and "
                    f"{found[1]} where {expected[0]} and {expected[1]} are needed; set warm_start=False or fit anew."
                )

    def _reads_blocks(self) -> bool:
        return True

    def _iterations(self) -> int:
        return 1 if self.solver == "closed_form" else self.max_iter

    # ------------------------------------------------------------------ fit

    def _fit(self, X: Features, Y: sp.csr_matrix, observed: sp.csr_matrix | None, progress: FitProgress) -> None:
        self._check_against_data(X, Y, observed)
        # Plain rows are scaled within the products; all else works on rows that have been.
        plain = self.kernel is None and self.solver == "alternating" and not self.early_stopping
        rows = X if plain else self._prepared(X)
        if isinstance(rows, FeatureBlocks) and (self.kernel is not None or self.solver == "closed_form"):
            rows = rows.tocsr()
        kernel_map: KernelMap | None = None
        self.gamma_ = None
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
        n_features, n_labels = rows.shape[1], Y.shape[1]
        rank = usable_rank(self.rank, min(n_features, n_labels), f"{n_features} features and {n_labels} labels allow")
        self.best_iter_ = 0
        if self.solver == "closed_form":
            W, H, b, objective = reduced_rank_ridge(
                rows, Y, rank, self.reg, fit_intercept=self.fit_intercept, memory_limit=self.memory_limit
            )
            factors = Factors(W=W, A=np.empty((0, rank)), H=H, b=b)
            progress.step(objective)
        else:
            factors = self._alternate_locally(rows, Y, observed, rank, progress, plain=plain)
        self._keep(factors if kernel_map is None else replace(factors, W=kernel_map.fold(factors.W)), X.dtype)

    def _fit_rows(self, rows: TrainingRows, progress: FitProgress) -> None:
        """Fit to rows that are wherever they are."""
        n_features, n_labels = rows.n_features, rows.n_labels
        self._check_warm_start(n_features, n_labels)
        rank = usable_rank(self.rank, min(n_features, n_labels), f"{n_features} features and {n_labels} labels allow")
        self.gamma_, self.best_iter_ = None, 0
        self._keep(self._alternate(rows, rank, progress), rows.dtype)

    def _keep(self, factors: Factors, dtype: np.dtype) -> None:
        self.rank_ = factors.H.shape[1]
        self.feature_factors_ = factors.W.astype(dtype, copy=False)
        self.label_factors_ = factors.H.astype(dtype, copy=False)
        self.intercept_ = (factors.b - get_loss(self.loss).threshold).astype(dtype)
        if self.updatable:
            self.moved_rows_ = self._n_kept

    def _alternate_locally(
        self,
        X: Features,
        Y: sp.csr_matrix,
        observed: sp.csr_matrix | None,
        rank: int,
        progress: FitProgress,
        *,
        plain: bool,
    ) -> Factors:
        loss, threads = get_loss(self.loss), thread_count(self.n_jobs)
        row_weight = self._row_weight
        validation: ValidationRows | None = None
        if self.early_stopping:
            train, chosen = ValidationRows.split(Y, observed, self.validation_fraction, self.random_state)
            known = None if observed is None else observed[chosen]
            row_weight = None if row_weight is None else row_weight[train]
            validation = ValidationRows(X[chosen], Y[chosen], known, n_threads=threads)
            X, Y, observed = X[train], Y[train], None if observed is None else observed[train]
        weight = resolve_positive_weight(self.positive_weight, Y, observed)
        features = feature_products(
            X,
            Y,
            rank,
            unit_length=self.normalize and plain,
            streamed=loss.name == "squared",
            n_threads=threads,
            dense_weight=self.dense_weight if plain else 1.0,
        )
        labels = TrainingLabels.build(Y, observed, weight, dtype=X.dtype, n_threads=threads, row_weight=row_weight)
        return self._alternate(LocalRows(features, labels, loss), rank, progress, validation)

    def _alternate(
        self, rows: TrainingRows, rank: int, progress: FitProgress, validation: ValidationRows | None = None
    ) -> Factors:
        """Algorithm 1 of the paper: minimise in turn over W with H fixed and over H with W fixed."""
        steps = rows.steps(self.reg, fit_intercept=self.fit_intercept, inner_iter=self.inner_iter)
        sizes: dict[str, Any] = {
            "d": rows.n_features,
            "L": rows.n_labels,
            "k": rank,
            "dtype": rows.dtype,
            "max_iter": self.max_iter,
        }
        rounds = progress.resume(Rounds, check=lambda found: found.require_best(validation is not None), **sizes)
        if rounds is None:
            # A warm start is measured against the fit that it continues, not against its own small first step.
            first = self.history_[0]["fall"] if self._starts_warm() else 0.0
            rounds = Rounds(self._start(rows, rank), first)
        else:
            rounds.factors.A = rows.embedded(rounds.factors.W)

        least = 1 if self._starts_warm() else _LEAST_ROUNDS
        factors, info = rounds.factors, {}
        while not rounds.ended and rounds.done < self.max_iter:
            fall = steps.step_features(factors)  # W: a few steps towards the minimum for this H
            value = steps.step_labels(factors)  # H and b: each label its own problem for this W
            objective = value + 0.5 * self.reg * dot_all(factors.W, factors.W).item()
            rounds.add(fall, tol=self.tol, least=least)
            if validation is not None:
                info = {"validation": validation.score(factors)}
                rounds.judge(info["validation"], self.patience)
            if progress.step(objective, state=rounds, fall=fall, **info):
                break

        if not rounds.ended and not progress.stopped:
            share = rounds.fall / rounds.first
            early = f"and tol counts from round {least} on; raise max_iter."
            warn(
                f"LEML stopped after max_iter={self.max_iter} rounds; the last one still lowered the objective by "
                f"{share:.2g} of what the first one did, "
                + (f"above tol={self.tol:g}; raise max_iter or tol." if share > self.tol else early),
                ConvergenceWarning,
            )
        factors, self.best_iter_ = rounds.kept()
        unknown = rows.unknown_labels()
        factors.H[unknown] = 0
        factors.b[unknown] = LOWEST_SCORE
        return factors

    def _start(self, rows: TrainingRows, rank: int) -> Factors:
        """The last fit's factors, or W = 0, the best constant scores as b, and H as ``init`` says."""
        loss, dtype, n_labels = get_loss(self.loss), rows.dtype, rows.n_labels
        b = loss.constant(rows.rates()) if self.fit_intercept else np.zeros(n_labels)
        if self._starts_warm():
            W = self.feature_factors_.astype(dtype)
            b = np.where(self.intercept_ > LOWEST_SCORE / 2, self.intercept_ + loss.threshold, b).astype(float)
            return Factors(W=W, A=rows.embedded(W), H=self.label_factors_.astype(dtype), b=b)
        rng = random_generator(self.random_state)
        if self.init == "spectral":
            H = rows.spectral_start(b, rank, rng)
        else:
            H = (rng.standard_normal((n_labels, rank)) / np.sqrt(rank)).astype(dtype)
        return Factors(W=aligned_zeros((rows.n_features, rank), dtype), A=rows.zeros(rank), H=H, b=b)

    def _starts_warm(self) -> bool:
        return self.warm_start and hasattr(self, "feature_factors_")

    def _warm_start_arrays(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in self._saved_arrays} if self._starts_warm() else {}

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        loss = get_loss(self.loss)
        return loss.rate(scores + scores.dtype.type(loss.threshold))

    # ------------------------------------------------------------------ after the fit

    def _feature_axes(self) -> Mapping[str, tuple[int, ...]]:
        return {"feature_factors_": (0,)} if self.kernel is None else {"landmarks_": (1,)}

    def _learn_labels(self, rows: LabelRows, labels: np.ndarray, progress: FitProgress) -> None:
        loss, known = get_loss(self.loss), self._training_labels(rows, labels)
        A, back = self._embed(rows.X), None
        if self.solver == "closed_form":
            if self.kernel is not None:
                raise InvalidInputError(
                    'solver="closed_form" with a kernel cannot learn labels after its fit; use solver="alternating".'
                )
            # Its penalty is ½λ‖Wh‖², which is ½λ‖h‖² for an orthonormal basis of W's columns.
            _, back = np.linalg.qr(self.feature_factors_.astype(np.float64))
            back = np.linalg.pinv(back)
            A = np.ascontiguousarray(A @ back, dtype=A.dtype)
        H, b = solved_labels(known, A, loss, self.reg, fit_intercept=self.fit_intercept)
        if back is not None:
            H = H @ back.T
        unknown = known.unknown_labels()
        H[unknown], b[unknown] = 0, LOWEST_SCORE
        self.label_factors_ = replaced(self.label_factors_, labels, H)
        self.intercept_ = replaced(self.intercept_, labels, b - loss.threshold)

    def _learn_shared(self, start: int, progress: FitProgress) -> None:
        """W by one round from where it is, once enough rows are new to it; then H and b of all labels."""
        new = self._n_kept - self.moved_rows_
        if self.kernel is not None or self.solver == "closed_form" or not self._can_be_fitted():
            return
        if new < _NEW_ROWS * self._n_kept:
            return
        progress.note("W, from where it is")
        kept, loss = self._kept_rows(), get_loss(self.loss)
        features = feature_products(
            kept.X,
            kept.Y,
            self.rank_,
            unit_length=self.normalize,
            streamed=loss.name == "squared",
            n_threads=thread_count(self.n_jobs),
        )
        labels = self._training_labels(kept, np.arange(self.n_labels_))
        steps = LocalRows(features, labels, loss).steps(
            self.reg, fit_intercept=self.fit_intercept, inner_iter=self.inner_iter
        )
        W, b = self.feature_factors_.copy(), self.intercept_.astype(np.float64) + loss.threshold
        b[labels.unknown_labels()] = 0
        factors = Factors(W=W, A=features.matmul(W), H=self.label_factors_.copy(), b=b)
        fall = steps.step_features(factors)
        steps.step_labels(factors)
        unknown = labels.unknown_labels()
        factors.H[unknown], factors.b[unknown] = 0, LOWEST_SCORE
        self._keep(factors, W.dtype)
        self.pending_, self.moved_rows_ = np.zeros_like(self.pending_), self._n_kept
        first = self.history_[0]["fall"] / self.fitted_rows_
        self.drift_ = max(0.0, float(fall / self._n_kept / first)) if first > 0 else 0.0

    def _measured_drift(self) -> float:
        return self.drift_

    # ------------------------------------------------------------------ kernels

    def _embed(self, X: Features) -> np.ndarray:
        if self.kernel is None:
            return super()._embed(X)
        kernel_map = KernelMap(self.kernel, self.gamma_, self.degree, self.coef0, self.landmarks_, np.empty((0, 0)))
        rows = self._prepared(X)
        return kernel_map.embed(rows.tocsr() if isinstance(rows, FeatureBlocks) else rows, self.feature_factors_)

    def _fitted_arrays(self) -> tuple[str, ...]:
        return super()._fitted_arrays() if self.kernel is None else (*super()._fitted_arrays(), "landmarks_")

    def _check_restored(self) -> None:
        check_integer(self.rank_, "rank_", minimum=1)
        if self.updatable:
            self._check_kept()
            check_integer(self.moved_rows_, "moved_rows_", minimum=0, maximum=self._n_kept)
        if self.kernel is None:
            self._check_factors(self.n_features_in_)
            return
        if self.landmarks_.ndim != 2 or self.landmarks_.shape[1] != self.n_features_in_:
            raise ValueError(f"landmarks of shape {self.landmarks_.shape} for {self.n_features_in_} features")
        require_finite_floats(landmarks_=self.landmarks_)
        if self.gamma_ is not None or self.kernel in ("rbf", "poly"):
            check_real(self.gamma_, "gamma_", minimum=0, open_minimum=True)
        self._check_factors(self.landmarks_.shape[0])
