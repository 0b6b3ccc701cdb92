"""REML: low rank plus sparse for labels that are rare (Xu, Tao, Xu: Robust Extreme Multi-label Learning, KDD 2016)."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from tagwise.answers import require_finite
from tagwise.exceptions import ConvergenceWarning, InvalidInputError, warn
from tagwise.executor import Executor, Threads
from tagwise.feature_blocks import FeatureBlocks
from tagwise.fields import Fields, csr, dense, matrix, put, value
from tagwise.kernels import (
    BlockFeatures,
    matmul,
    scores_of_factors_and_sparse,
    top_k_of_factors_and_sparse,
)
from tagwise.kernels.norm_pruned import BoundedLabels, top_k_within_bounds
from tagwise.kernels.vectors import dot_all
from tagwise.losses import get_loss
from tagwise.models.factor_model import (
    FactorModel,
    FitData,
    PositiveWeight,
    may_be_added,
    usable_rank,
)
from tagwise.models.leml.steps import FACTORS, Alternation, Factors, words_of
from tagwise.models.reml.dense_start import dense_rank, start_of_dense
from tagwise.models.reml.partitions import project_onto_first, random_parts
from tagwise.models.reml.sparse_part import ADMMPart, SparsePart, SparseStep, SupportPart, admm_fits, pruned
from tagwise.models.updating import UpdatableModel
from tagwise.objectives.labels import TrainingLabels
from tagwise.parallel import even_chunks, on_this_thread, run_chunks, single_threaded_blas, thread_count
from tagwise.parameters import Count, NonNegative, Positive, Seed, Share, parameters, random_generator
from tagwise.problem import Problem
from tagwise.progress import FitProgress
from tagwise.validation import Features, check_choice, check_integer, check_real

__all__ = ["REML"]

# The alternation works with 0/1 labels, S± = 2·S01 − 1, and halves of squares:
# ½‖Y − S‖² + ½·½λ2(‖W‖² + ‖H‖²) + ½λ1‖S‖² + ¼λ3‖XS‖₁. With Y± = 2Y − 1, factors that are √2 and a sparse part that is
# 2 times as large, equation 5 is this many times that.
_EQUATION_5 = 8.0
# A fall below this share of the objective is rounding.
_ROUNDING = 1e-12
# Bounds rule few of these labels out; one product by BLAS for many rows is then faster, if factors are long.
_FEW_ROWS, _FEW_LABELS, _SHORT_FACTORS = 16, 2048, 32
# Up to this number of labels, learning after a fit is faster without XᵀX than computing it.
_FEW_LEARNT = 150
# H of a part only keeps the low rank from running after rare labels, and is thrown away: a coarse one does.
_SUPPORT_SHARE = 4


_PART = FACTORS | Fields(
    value=value(check_real, "The objective, an eighth of equation 5."),
    first=value(check_real, "Decrease in the first round."),
    fall=value(check_real, "Decrease in the last round."),
    unsolved=value(check_integer, "Number of labels whose S fell short of its tolerance."),
    done=value(check_integer, "Number of rounds."),
)
_ROUNDS = _PART | Fields(S=matrix("d", "L", meaning="The sparse part of the last round."))
"""A part of the labels, and an alternation under way, as a checkpoint holds them."""


@parameters
class REML(UpdatableModel, FactorModel):
    r"""Low rank plus sparse: a low rank for correlations of labels, and a sparse part for rare labels.

    Minimises over U (d×k), V (L×k), H (d×L) and an unpenalised intercept b (L), with labels −1/+1 and
    S = XUVᵀ + XH + 1bᵀ (equation 5 of the paper, in which b = 0 and all labels are known)

    .. math:: \sum_{(i,j)\in\Omega} \omega_{ij} (Y_{ij} - S_{ij})^2 + \lambda_1 \|H\|_F^2
              + \lambda_2 (\|U\|_F^2 + \|V\|_F^2) + \lambda_3 \|XH\|_1 .

    Rounds of three steps, none of which raises the objective: U by conjugate gradients, V and b in closed form (one
    k×k factorisation for all labels), then H. H has two forms. **ADMM** is the paper's: equations 10-16, in blocks of
    labels, on one factorisation of XᵀX (or XXᵀ) for all labels and rounds. **Support** replaces λ3‖XH‖₁ by sparsity of
    H itself: each label chooses, in the first round, the ``support`` features that lower its residual most among those
    of its own positive rows, and is solved exactly on them. It takes memory for H only, and so any number of labels.

    Parameters
    ----------
    rank : int
        k. More than min(d, L) is clipped with a warning.
    reg_low_rank : float
        λ2 > 0. The same low rank as LEML's with reg = λ2/2 (LEML's squares are halves and its labels 0/1).
    reg_sparse : float
        λ1 > 0.
    sparsity : float
        λ3 ≥ 0; only ADMM has it.
    partitions : int
        t. Above 1, divide and conquer: labels are dealt into t random parts, each with its share of the rank and a
        quarter of the support, learnt on ``n_jobs`` threads at a time, or by the workers of a cluster; the low ranks
        are projected onto the column space of the first part's, and H is found for all labels together. A little
        less accurate. It pays for many labels and large ranks; see docs/reml.md for where it does not.
    sparse_part : {"auto", "admm", "support"}
        How H is found. "auto" takes ADMM where XᵀX or XXᵀ is factorised quickly (a side of at most 2,000) and within
        half of ``memory_limit``, and all labels' Z, μ and H fit the other half; else support.
    support : int
        Most features per label, with "support"; those with less than 0.002 of the largest gain are not used.
    prune : float
        After ADMM, entries of H below ``prune`` times the largest of their label are dropped. The default is the
        largest one that cost less than 0.1 points on validation rows of four sets; docs/reml.md shows the curve.
    max_iter : int
        Maximum number of rounds.
    inner_iter : int
        Steps of conjugate gradients for U per round. Few leave to H what H explains better.
    tol : float
        The fit has converged when a round lowers the objective by at most ``tol`` times what the first round did. The
        default was the best on validation rows of 18 sets (docs/reml.md); 0 makes ``max_iter`` rounds.
    memory_limit : float
        Bytes for XᵀX (or its factorisation) and for the blocks of labels that ADMM works on; for each part, where
        there are several. A dense H, while ADMM runs, comes on top. With "support" and very many features, a larger
        limit saves much time: the part of XᵀX that does not fit is added up again for every label that needs it.
    random_state : int, Generator, RandomState or None
        Seeds the start and the partition.

    Attributes
    ----------
    objective_, history_, n_iter_
        Equation 5 after each round (without λ3‖XH‖₁ for "support", and before pruning); ``fall`` in the history is
        the decrease in the round over that in the first one. With ``partitions``: the objective of each part
        alone, and at last of all labels together.

    Notes
    -----
    Time: a round costs LEML's O((nnz X + nnz Y + nnz H)k + (n + L)k²), O(nnz(Ω)k) more with a mask, and H. ADMM: a step
    O(nnz(X)L) and O(min(n, d)²L), and min(n, d)³ once. Support: see
    :class:`tagwise.solvers.support.SupportRidge`.
    Memory O(nnz X + nnz Y + nnz Ω + nnz H + (n + d + L)k) + ``memory_limit``; d×L dense while ADMM runs; never n×L.
    Prediction: per row one addition for every stored weight of its features, a few passes over L numbers and O(k) for
    each label that bounds do not rule out, one in a hundred of 27,754; with fewer than 2,048 labels and k > 32,
    O(Lk) by BLAS.

    A mask (``observed``) is handled by both forms: residuals, Gram matrices and λ3‖XH‖₁ then run over known pairs.
    ``sample_weight`` counts each row in all of them.

    Examples
    --------
    >>> from tagwise import REML
    >>> from tagwise.data import load_dataset
    >>> data = load_dataset("debtags-sample")
    >>> model = REML(rank=50, tol=0.5).fit(data.X_train, data.Y_train)
    >>> labels, scores = model.predict_topk(data.X_test, k=3)
    >>> labels.shape == (data.X_test.shape[0], 3)
    True
    """

    fields: ClassVar[Fields] = Fields(
        feature_factors_=dense("d", "k", meaning="U, in the scale of 0/1 labels, as all below."),
        label_factors_=dense("L", "k", meaning="V."),
        intercept_=dense(
            "L",
            meaning="b, less ½: scores are centred, 0 is the border between off and on; twice a score is that of "
            "equation 5.",
        ),
        sparse_weights_=csr("d", "L", meaning='H. The column of a label without a positive is empty with "support".'),
        rank_=value(partial(check_integer, minimum=1), "k; with ``partitions`` that of the first part."),
        sparse_part_=value(partial(check_choice, choices=("admm", "support")), "How H was found."),
    )

    checkpointed: ClassVar[tuple[str, ...]] = tuple(_ROUNDS)
    """Names of the arrays and values that its rounds keep in a checkpoint."""

    rank: Count = 100
    reg_low_rank: Positive = 1.0
    reg_sparse: Positive = 1.0
    sparsity: NonNegative = 0.01
    partitions: Count = 1
    sparse_part: Literal["auto", "admm", "support"] = "auto"
    support: Count = 200
    prune: Share = 0.02
    max_iter: Count = 5
    positive_weight: PositiveWeight = 1.0
    fit_intercept: bool = True
    normalize: bool = True
    inner_iter: Count = 1
    tol: NonNegative = 0.2
    memory_limit: Positive = 2**31
    updatable: bool = False
    dense_weight: NonNegative = 1.0
    n_jobs: int | None = None
    random_state: Seed = 0
    verbose: int = 0

    def _reads_blocks(self) -> bool:
        return self.sparse_part != "admm" and self.partitions == 1

    def _iterations(self) -> int:
        return self.max_iter if self.partitions == 1 else self.partitions + 1

    # ------------------------------------------------------------------ fit

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        X, n_features, n_labels = problem.X, problem.X.shape[1], problem.n_labels
        rank = usable_rank(self.rank, min(n_features, n_labels), f"{n_features} features and {n_labels} labels allow")
        if isinstance(X, FeatureBlocks):
            self.sparse_part_ = "support"
            rank += dense_rank(X.n_dense, n_labels)
        else:
            self.sparse_part_ = self._which_sparse_part(X.shape, n_labels, X.dtype.itemsize)
        data = self._fit_data(problem)
        unknown = data.targets.unknown_labels()
        known = np.setdiff1d(np.arange(n_labels), unknown)
        partitions = usable_rank(
            self.partitions, len(known), f"the {len(known)} labels to share out", name="partitions"
        )
        # The same model with what the data made of its parameters; with parts, each has its share of the rank.
        model = clone(self).set_params(rank=-(-rank // partitions), sparse_part=self.sparse_part_)
        steps = self._steps(data)
        rng = random_generator(self.random_state)
        if partitions == 1:
            rounds = model._alternate(steps, lambda: model._start(steps, rng), progress)
        else:
            rounds = model._divide_and_conquer(steps, random_parts(known, partitions, rng), rng, progress)
        if not rounds.converged and not progress.stopped:
            warn(
                f"REML stopped after max_iter={self.max_iter} rounds; the last one still lowered the objective by "
                f"{rounds.share:.2g} of what the first one did, above tol={self.tol:g}; raise max_iter or tol.",
                ConvergenceWarning,
            )
        if rounds.unsolved:
            warn(
                f"ADMM did not reach its tolerance for {rounds.unsolved} of {n_labels} labels in the last round, which "
                "keep the best sparse part found; lower positive_weight or sparsity, scale the features, or use "
                'sparse_part="support".',
                ConvergenceWarning,
            )
        factors = rounds.factors
        self.rank_ = factors.H.shape[1]
        self._take_factors(factors.W, factors.H, factors.b - 0.5, X.dtype, unknown)
        self.sparse_weights_ = pruned(rounds.sparse, self.prune).astype(X.dtype, copy=False)

    def _fit_data(self, problem: Problem) -> FitData:
        prepared = replace(problem, X=self._as_sparse(problem.X))
        return FitData.build(prepared, get_loss("squared"), self.positive_weight, self.n_jobs)

    def _steps(self, data: FitData, executor: Executor | None = None) -> Alternation:
        intercept, inner = self.fit_intercept, self.inner_iter
        return Alternation(data, self.reg_low_rank / 2, fit_intercept=intercept, inner_iter=inner, executor=executor)

    def _alternate(
        self,
        steps: Alternation,
        start: Callable[[], Factors],
        progress: FitProgress | None = None,
        *,
        fixed_features: bool = False,
        keep_gram: bool = True,
    ) -> Rounds:
        """Minimise equation 5 in turn over U, V and H, whose problems are 6b, 6a and 6c; no step raises it.

        U, V and H of the paper are W, H and the sparse part here.
        """
        reg, offset, data = self.reg_low_rank / 2, self._offset(), steps.local
        sparse = self._sparse_part(data, keep_gram=keep_gram)
        sizes = {"d": data.X.shape[1], "k": self.rank, "L": data.n_labels}
        kept = None if progress is None else progress.resume(_ROUNDS, data.X.dtype, **sizes)
        if kept is not None:
            rounds = Rounds.of(self.tol, **kept)
        else:
            factors = start()
            value = steps.squared_loss(factors.shifted(offset)) + _penalty(factors, reg)
            empty = sp.csr_matrix((len(factors.W), len(factors.H)), dtype=data.X.dtype)
            rounds = Rounds(self.tol, factors, value, empty)
        factors = rounds.factors
        while not rounds.converged and rounds.done < self.max_iter:
            steps.beside(rounds.sparse, offset)
            if not fixed_features:
                steps.step_features(factors)  # U: a few steps of conjugate gradients
            steps.step_labels(factors)  # V and b: closed form
            step = sparse.step(steps, factors.shifted(offset), rounds.sparse if rounds.done else None)  # H
            rounds.add(step, step.value + _penalty(factors, reg))
            if progress is not None:
                progress.keep(**rounds.kept(), S=rounds.sparse)
                if progress.step(_EQUATION_5 * rounds.value, unsolved=step.unsolved, fall=rounds.share):
                    break
        return replace(rounds, factors=factors.shifted(offset))

    def _start(self, steps: Alternation, rng: np.random.Generator) -> Factors:
        """W = 0, H as in LEML, b the best constants (0 beside the offset where there is no intercept).

        A dense block has the last columns of W and H to itself, which start at its least squares.
        """
        data, X = steps.local, steps.local.features()
        constants, dense = self._constants(data.targets), X.dense if isinstance(X, BlockFeatures) else None
        n_dense = 0 if dense is None else dense_rank(dense.shape[1], data.n_labels)
        W = np.zeros((X.shape[1], self.rank), data.X.dtype)
        H = steps.spectral_start(constants, self.rank - n_dense, rng)
        if dense is not None:
            coefficients, of_labels = start_of_dense(dense, data.targets, constants, self.reg_sparse, n_dense)
            W[-dense.shape[1] :, -n_dense:] = coefficients
            H = np.column_stack([H, of_labels])
        return Factors(W, H, constants - self._offset())

    def _divide_and_conquer(
        self, steps: Alternation, ids: list[np.ndarray], rng: np.random.Generator, progress: FitProgress
    ) -> Rounds:
        """Algorithm 1: parts alone, their low ranks projected onto the first one's column space, then H for all."""
        data, executor, threads = steps.local, steps.fit_executor, thread_count(self.n_jobs)
        tasks = list(zip(ids, [int(seed) for seed in rng.integers(2**31, size=len(ids))]))
        sparse, parts = self._sparse_part(data), list[Rounds]()
        if isinstance(sparse, SupportPart) and executor.n_blocks == 1:
            sparse.features(data)  # what all parts use is made once
        for labels, part in zip(ids, progress.kept.get("parts", ())):
            sizes = {"d": data.X.shape[1], "k": min(self.rank, len(labels)), "L": len(labels)}
            parts.append(Rounds.of(self.tol, **progress.resume(_PART, data.X.dtype, part, **sizes) or {}))
        left = tasks[len(parts) :]
        for start, stop in even_chunks(len(left), threads if executor.n_blocks == 1 else len(ids)):
            if executor.n_blocks == 1:
                places = [(place, place + 1) for place in range(start, stop)]
                found = run_chunks(lambda place, _: learn_part(left[place], data, self), places, threads)
            else:
                found = executor.map(learn_part, left[start:stop], steps.fit_data, executor.share(self))
            for rounds in found:
                parts.append(rounds)
                progress.keep(parts=[part.kept() for part in parts])
                progress.step(_EQUATION_5 * rounds.value, part=len(parts))
            if progress.stopped:
                break
        progress.keep("parts")
        learnt = [(labels, part.factors) for labels, part in zip(ids, parts)]
        factors = project_onto_first(words_of(data.features()), learnt, self._constants(data.targets), data.row_weight)
        step = sparse.step(steps, factors, None)
        value = step.value + _penalty(factors, self.reg_low_rank / 2)
        if not progress.stopped:
            progress.step(_EQUATION_5 * value, unsolved=step.unsolved)
        fall = max((part.share for part in parts if not part.converged), default=0.0)
        return Rounds(self.tol, factors, value, step.weights, 1.0, fall, step.unsolved, done=1)

    def _sparse_part(self, data: FitData, *, keep_gram: bool = True) -> SparsePart:
        if self.sparse_part != "support":
            return ADMMPart(data, reg=self.reg_sparse, sparsity=self.sparsity, memory_limit=self.memory_limit)
        return SupportPart(
            reg=self.reg_sparse, support=self.support, memory_limit=self.memory_limit, keep_gram=keep_gram
        )

    def _offset(self) -> float:
        """The score that is fixed where no intercept is learnt: the border between off and on."""
        return 0.0 if self.fit_intercept else get_loss("squared").threshold

    def _constants(self, labels: TrainingLabels) -> np.ndarray:
        """The best constant score of each label, or the border between off and on (L)."""
        loss, rates = get_loss("squared"), labels.rates()
        return loss.constant(rates) if self.fit_intercept else np.full(len(rates), loss.threshold)

    def _which_sparse_part(self, shape: tuple[int, int], n_labels: int, itemsize: int) -> str:
        dense = itemsize * shape[1] * n_labels
        if self.sparse_part == "admm" and dense > self.memory_limit:
            raise InvalidInputError(
                f'sparse_part="admm" keeps a dense H while it runs, memory of {dense / 2**20:,.3g} MiB for '
                f"{shape[1]:,} features and {n_labels:,} labels; memory_limit is {self.memory_limit / 2**20:,.3g} MiB. "
                'Raise it, or use sparse_part="support".'
            )
        if self.sparse_part != "auto":
            return self.sparse_part
        return "admm" if admm_fits(shape, n_labels, self.memory_limit, itemsize) else "support"

    # ------------------------------------------------------------------ after the fit

    def _learn_labels(self, problem: Problem, labels: np.ndarray, progress: FitProgress) -> None:
        """The rounds of a fit, in which W stays."""
        W, dtype = self.feature_factors_, self._floats()
        model = clone(self).set_params(
            rank=self.rank_, sparse_part=self.sparse_part_, positive_weight=self._weights_of(labels)
        )
        data = model._fit_data(problem)
        known = data.targets

        def start() -> Factors:
            zeros = np.zeros((len(labels), W.shape[1]), dtype=dtype)
            return Factors(W, zeros, model._constants(known) - model._offset())

        rounds = model._alternate(model._steps(data), start, fixed_features=True, keep_gram=len(labels) > _FEW_LEARNT)
        weights = pruned(rounds.sparse, self.prune).astype(dtype, copy=False)
        self._put_labels(labels, rounds.factors.H, rounds.factors.b - 0.5, known.unknown_labels())
        self.sparse_weights_ = put(self.sparse_weights_, labels, weights, axis=1)

    # ------------------------------------------------------------------ proposals

    def of_labels(self, labels: np.ndarray) -> REML:
        """The same for some labels, in this order; for :class:`~tagwise.Cascade`, as are the next methods."""
        model = copy(self)
        model.n_labels_, model.label_factors_ = len(labels), self.label_factors_[labels]
        model.intercept_, model.sparse_weights_ = (
            self.intercept_[labels],
            sp.csr_matrix(self.sparse_weights_[:, labels]),
        )
        model._build_prediction_cache()
        return model

    def with_sparse_part_of(self, labels: np.ndarray, problem: Problem) -> REML:
        """The same with the sparse part of some labels learnt from other rows, beside low rank and intercepts."""
        data = self._fit_data(problem).labels(labels)
        intercept = self.intercept_[labels].astype(np.float64) + 0.5
        low_rank = Factors(self.feature_factors_, self.label_factors_[labels], intercept)
        weights = pruned(self._sparse_part(data).step(self._steps(data), low_rank, None).weights, self.prune)
        model = copy(self)
        model.sparse_weights_ = put(self.sparse_weights_, labels, weights.astype(self._floats(), copy=False), axis=1)
        model._build_prediction_cache()
        return model

    def propose(
        self,
        rows: sp.csr_matrix | FeatureBlocks,
        k: int,
        exclude: sp.csr_matrix | None = None,
        *,
        best_first: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best labels and scores of rows that are scaled already; ``best_first`` or in the order of labels."""
        H, threads = self.label_factors_, self._threads_for(rows)
        embedded = matmul(rows, self.feature_factors_, n_threads=threads)
        # Bounds rule out few labels where a dense block says much about all of them.
        few_labels = len(H) < _FEW_LABELS or isinstance(rows, FeatureBlocks)
        words = _words(rows)
        most_weights = self._largest_weight * math.sqrt(words.nnz)
        if not (may_be_added(embedded, self._longest) and may_be_added(words.data, most_weights)):
            require_finite(lambda start, stop: self.all_scores(rows[start:stop]), self._row_blocks(words))
        parts = {"rows": words, "sparse": self.sparse_weights_, "exclude": exclude}
        if len(embedded) > _FEW_ROWS and few_labels and H.shape[1] > _SHORT_FACTORS:
            return top_k_of_factors_and_sparse(embedded, H, k, intercept=self.intercept_, **parts, n_threads=threads)
        return top_k_within_bounds(embedded, self._bounded, k, **parts, best_first=best_first, n_threads=threads)

    def all_scores(self, rows: sp.csr_matrix | FeatureBlocks) -> np.ndarray:
        """All scores (n×L) of rows that are scaled already."""
        threads = self._threads_for(rows)
        return scores_of_factors_and_sparse(
            matmul(rows, self.feature_factors_, n_threads=threads),
            self.label_factors_,
            intercept=self.intercept_,
            rows=_words(rows),
            sparse=self.sparse_weights_,
            n_threads=threads,
        )

    # ------------------------------------------------------------------ predict

    def _label_weights(self, labels: np.ndarray) -> np.ndarray | sp.csr_matrix:
        return super()._label_weights(labels) + self.sparse_weights_[:, labels].toarray().T

    def _as_sparse(self, X: Features) -> sp.csr_matrix | FeatureBlocks:
        """The rows as they were at fit (n×d)."""
        rows = self._prepared(X)
        return sp.csr_matrix(rows) if isinstance(rows, np.ndarray) else rows

    def _score_rows(self, X: Features) -> np.ndarray:
        return self.all_scores(self._as_sparse(X))

    def answers_without_blas(self, X: Features) -> bool:
        """Prediction for few sparse rows."""
        return X.shape[0] <= _FEW_ROWS and not isinstance(X, FeatureBlocks)

    def _build_prediction_cache(self) -> None:
        self._bounded = BoundedLabels.of(self.label_factors_, self.intercept_)
        self._longest = float(self._bounded.lengths.max())
        self._largest_weight = float(np.abs(self.sparse_weights_.data).max(initial=0))

    def _top_k(self, X: Features, k: int, exclude: sp.csr_matrix | None) -> tuple[np.ndarray, np.ndarray]:
        return self.propose(self._as_sparse(X), k, exclude)


@dataclass
class Rounds:
    """State of an alternation: while it runs, and its result.

    ``factors`` are without the offset ½ of a model without intercept; ``sparse`` is S of the last round, None in a part
    of the labels; of the others see ``_PART``. Of all parts together, ``first`` is 1 and ``fall`` the largest ``share``
    of a part that has not converged.
    """

    tol: float
    factors: Factors
    value: float
    sparse: Any = None
    first: float = 0.0
    fall: float = 0.0
    unsolved: int = 0
    done: int = 0

    @classmethod
    def of(cls, tol: float, *, W: np.ndarray, H: np.ndarray, b: np.ndarray, S: Any = None, **numbers: Any) -> Rounds:
        """Restore from a checkpoint."""
        return cls(tol, Factors(W, H, b), sparse=S, **numbers)

    def kept(self) -> dict[str, Any]:
        """Content of a checkpoint, beside S."""
        return vars(self.factors) | {
            name: getattr(self, name) for name in ("value", "first", "fall", "unsolved", "done")
        }

    def add(self, step: SparseStep, value: float) -> None:
        """One more round, at whose end the objective is ``value``."""
        self.fall = self.value - value
        self.first = self.first or self.fall
        self.sparse, self.value, self.unsolved = step.weights, value, step.unsolved
        self.done += 1

    @property
    def converged(self) -> bool:
        """Whether the last round met the stopping rule."""
        return bool(self.done and self.fall <= max(self.tol * self.first, _ROUNDING * abs(self.value)))

    @property
    def share(self) -> float:
        """Decrease of the objective in the last round over that in the first one."""
        return self.fall / self.first if self.first else 0.0


def _words(rows: sp.csr_matrix | FeatureBlocks) -> sp.csr_matrix:
    """The features that have a sparse part (n×d)."""
    return rows.words if isinstance(rows, FeatureBlocks) else rows


def learn_part(task: tuple[np.ndarray, int], data: FitData, model: REML) -> Rounds:
    """Equation 5 for one part of the labels, on one thread; its H is not kept."""
    ids, seed = task
    rank, support = min(model.rank, len(ids)), max(1, model.support // _SUPPORT_SHARE)
    alone = clone(model).set_params(rank=rank, support=support)
    with single_threaded_blas(), on_this_thread():
        steps = model._steps(data.labels(ids), Threads())
        rounds = alone._alternate(steps, lambda: alone._start(steps, random_generator(seed)))
    return replace(rounds, sparse=None)


def _penalty(factors: Factors, reg: float) -> float:
    """½λ(‖W‖² + ‖H‖²)."""
    return 0.5 * reg * (dot_all(factors.W, factors.W).item() + dot_all(factors.H, factors.H).item())
