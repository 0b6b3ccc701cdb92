"""REML: low rank plus sparse for labels that are rare (Xu, Tao, Xu: Robust Extreme Multi-label Learning, KDD 2016)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from tagwise.base import require_finite
from tagwise.exceptions import ConvergenceWarning, InvalidInputError, TagwiseWarning, warn
from tagwise.feature_blocks import FeatureBlocks
from tagwise.kernels import (
    BlockFeatures,
    CSRWithTranspose,
    DenseFeatures,
    FeatureMatrix,
    feature_matrix,
    matmul,
    scores_of_factors_and_sparse,
    top_k_of_factors_and_sparse,
)
from tagwise.kernels.norm_pruned import BoundedLabels, top_k_within_bounds
from tagwise.kernels.vectors import dot_all
from tagwise.losses import get_loss
from tagwise.models.factor_model import (
    LOWEST_SCORE,
    FactorModel,
    PositiveWeight,
    check_positive_weight,
    may_be_added,
    resolve_positive_weight,
    usable_rank,
)
from tagwise.models.leml.steps import Factors, FixedFeatures, LocalRows, SquaredAlternation, TrainingRows
from tagwise.models.reml.dense_start import dense_rank, start_of_dense
from tagwise.models.reml.partitions import LearntParts, Part, map_parts, project_onto_first, random_parts
from tagwise.models.reml.sparse_part import ADMMPart, Prepared, SparsePart, SparseStep, SupportPart, admm_fits, pruned
from tagwise.models.updating import LabelRows, UpdatableModel, replaced, with_columns
from tagwise.parallel import on_this_thread, single_threaded_blas, thread_count
from tagwise.persistence.fit_state import State, count, flag, matrix, nested, real
from tagwise.persistence.loading import require_finite_floats, require_sparse
from tagwise.problems.labels import TrainingLabels
from tagwise.problems.squared import SquaredTerms
from tagwise.progress import FitProgress
from tagwise.randomness import check_random_state, random_generator
from tagwise.solvers.admm import L1FitRidge, WeightedL1FitRidge
from tagwise.solvers.support import SupportFeatures, SupportRidge
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
# So many labels or fewer, learnt after a fit, take less time without XᵀX than it takes to make.
_FEW_LEARNT = 150
# H of a part only keeps the low rank from running after rare labels, and is thrown away: a coarse one does.
_SUPPORT_SHARE = 4

Report: TypeAlias = Callable[..., bool]
"""Called with the objective after every round, its ``state``, ``unsolved`` and ``fall``; True ends the alternation."""


class REML(UpdatableModel, FactorModel):
    r"""Low rank plus sparse: correlations of labels in a low rank, rare labels in a sparse part of their own.

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
        quarter of the support, learnt in parallel processes (``n_jobs`` of them) that share X as a memory map; the low
        ranks are projected onto the column space of the first part's, and H is found for all labels together. A little
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
    positive_weight : float, array (L,) or "propensity"
        ω of a positive relative to a negative, as in LEML.
    fit_intercept, normalize : bool
        Whether b is learnt; scale rows of X to unit length, at fit and at prediction.
    inner_iter : int
        Steps of conjugate gradients for U per round. Few leave to H what H explains better.
    tol : float
        The fit has converged when a round lowers the objective by at most ``tol`` times what the first round did. The
        default was the best on validation rows of 18 sets (docs/reml.md); 0 makes ``max_iter`` rounds.
    memory_limit : float
        Bytes for XᵀX (or its factorisation) and for the blocks of labels that ADMM works on; in each process, where
        there are several. A dense H, while ADMM runs, comes on top. With "support" and very many features, a larger
        limit saves much time: the part of XᵀX that does not fit is added up again for every label that needs it.
    updatable : bool
        Keep the training rows in the model and its folder, so that :meth:`update` can learn further ones and
        :meth:`merge_labels` can unite labels. See docs/updating.md.
    dense_weight : float
        What a dense block of features (:class:`~tagwise.data.FeatureBlocks`) is multiplied by, at fit and at
        prediction, after its rows are scaled to unit length where rows are.
    n_jobs : int or None
        Threads, or with ``partitions`` processes, as in joblib. The result is bit-identical for every number.
    random_state : int, Generator, RandomState or None
        Seeds the start and the partition.
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    feature_factors_, label_factors_, intercept_
        U (d×k), V (L×k), b (L) in the scale of 0/1 labels, b less ½: scores are centred, 0 is the border between off
        and on; twice a score is that of equation 5.
    sparse_weights_ : CSR (d, L)
        H, in the same scale. The column of a label without a positive is empty with "support".
    sparse_part_ : str
        "admm" or "support", whichever was used.
    rank_ : int
        k; with ``partitions`` that of the first part.
    objective_, history_, n_iter_
        Equation 5 after each round (without λ3‖XH‖₁ for "support", and before pruning); ``fall`` in the history is by
        how much the round lowered it, over what the first one did. With ``partitions``: the objective of each part
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

    _saved_arrays: ClassVar[tuple[str, ...]] = (*FactorModel._saved_arrays, "sparse_weights_")
    _saved_values: ClassVar[tuple[str, ...]] = ("rank_", "sparse_part_")
    _label_axes: ClassVar[Mapping[str, tuple[int, ...]]] = {
        "label_factors_": (0,),
        "intercept_": (0,),
        "sparse_weights_": (1,),
    }

    sparse_part_: str
    sparse_weights_: sp.csr_matrix
    _bounded: BoundedLabels

    def __init__(
        self,
        rank: int = 100,
        reg_low_rank: float = 1.0,
        reg_sparse: float = 1.0,
        sparsity: float = 0.01,
        partitions: int = 1,
        sparse_part: str = "auto",
        support: int = 200,
        prune: float = 0.02,
        max_iter: int = 5,
        positive_weight: PositiveWeight = 1.0,
        fit_intercept: bool = True,
        normalize: bool = True,
        inner_iter: int = 1,
        tol: float = 0.2,
        memory_limit: float = 2**31,
        updatable: bool = False,
        dense_weight: float = 1.0,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.rank = rank
        self.reg_low_rank = reg_low_rank
        self.reg_sparse = reg_sparse
        self.sparsity = sparsity
        self.partitions = partitions
        self.sparse_part = sparse_part
        self.support = support
        self.prune = prune
        self.max_iter = max_iter
        self.positive_weight = positive_weight
        self.fit_intercept = fit_intercept
        self.normalize = normalize
        self.inner_iter = inner_iter
        self.tol = tol
        self.memory_limit = memory_limit
        self.updatable = updatable
        self.dense_weight = dense_weight
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_integer(self.rank, "rank", minimum=1)
        check_real(self.reg_low_rank, "reg_low_rank", minimum=0, open_minimum=True)
        check_real(self.reg_sparse, "reg_sparse", minimum=0, open_minimum=True)
        check_real(self.sparsity, "sparsity", minimum=0)
        check_integer(self.partitions, "partitions", minimum=1)
        check_choice(self.sparse_part, "sparse_part", ("auto", "admm", "support"))
        check_integer(self.support, "support", minimum=1)
        check_real(self.prune, "prune", minimum=0, maximum=1)
        check_integer(self.max_iter, "max_iter", minimum=1)
        check_integer(self.inner_iter, "inner_iter", minimum=1)
        check_real(self.tol, "tol", minimum=0)
        check_positive_weight(self.positive_weight)
        check_real(self.memory_limit, "memory_limit", minimum=0, open_minimum=True)
        check_real(self.dense_weight, "dense_weight", minimum=0)
        check_random_state(self.random_state)

    def _reads_blocks(self) -> bool:
        return self.sparse_part != "admm" and self.partitions == 1

    def _iterations(self) -> int:
        return self.max_iter if self.partitions == 1 else self.partitions + 1

    # ------------------------------------------------------------------ fit

    def _fit(self, X: Features, Y: sp.csr_matrix, observed: sp.csr_matrix | None, progress: FitProgress) -> None:
        threads = thread_count(self.n_jobs)
        weight = resolve_positive_weight(self.positive_weight, Y, observed)
        dtype, n_features, n_labels = X.dtype, X.shape[1], Y.shape[1]
        rank = usable_rank(self.rank, min(n_features, n_labels), f"{n_features} features and {n_labels} labels allow")
        if isinstance(X, FeatureBlocks):
            self.sparse_part_ = "support"
            rank += dense_rank(X.n_dense, n_labels)
            features = feature_matrix(self._prepared(X), n_threads=threads)
        else:
            self.sparse_part_ = self._which_sparse_part(X.shape, n_labels, dtype.itemsize)
            features = CSRWithTranspose(sp.csr_matrix(self._prepared(X)), n_threads=threads)
        labels = TrainingLabels.build(Y, observed, weight, dtype=dtype, n_threads=threads, row_weight=self._row_weight)
        unknown = labels.unknown_labels()
        known = np.setdiff1d(np.arange(n_labels), unknown)
        partitions = self._usable_partitions(len(known))
        # The same model with what the data made of its parameters; with parts, each has its share of the rank.
        model = clone(self).set_params(rank=-(-rank // partitions), sparse_part=self.sparse_part_)
        prepared = model._prepare(features, labels)
        rng = random_generator(self.random_state)
        if partitions == 1:
            saved = model._resumed(features, labels, progress)
            rounds = model._alternate_locally(features, prepared, labels, rng, progress.step, saved)
        else:
            ids = random_parts(known, partitions, rng)
            rounds = model._divide_and_conquer(_words(features), prepared, labels, ids, rng, progress)
        self._keep(rounds, unknown, dtype, progress)

    def _keep(self, rounds: Rounds, unknown: np.ndarray, dtype: np.dtype, progress: FitProgress) -> None:
        """The fitted attributes, and warnings where the rounds fell short."""
        if not rounds.converged and not progress.stopped:
            warn(
                f"REML stopped after max_iter={self.max_iter} rounds; the last one still lowered the objective by "
                f"{rounds.share:.2g} of what the first one did, above tol={self.tol:g}; raise max_iter or tol.",
                ConvergenceWarning,
            )
        if rounds.unsolved:
            warn(
                f"ADMM did not reach its tolerance for {rounds.unsolved} of {len(rounds.factors.b)} labels in the last "
                "round, which keep the best sparse part found; lower positive_weight or sparsity, scale the features, "
                'or use sparse_part="support".',
                ConvergenceWarning,
            )
        factors = rounds.factors
        factors.H[unknown] = 0
        factors.b[unknown] = LOWEST_SCORE
        self.rank_ = factors.H.shape[1]
        self.feature_factors_ = factors.W.astype(dtype, copy=False)
        self.label_factors_ = factors.H.astype(dtype, copy=False)
        self.intercept_ = (factors.b - 0.5).astype(dtype)
        self.sparse_weights_ = pruned(rounds.sparse, self.prune).astype(dtype, copy=False)

    def _alternate_locally(
        self,
        X: FeatureMatrix,
        prepared: Prepared,
        labels: TrainingLabels,
        seed: int | np.random.Generator,
        report: Report,
        rounds: Rounds | None = None,
    ) -> Rounds:
        """:meth:`_alternate` on rows in memory; ``rounds`` are those of a fit to resume."""
        terms, fit_intercept = SquaredTerms.build(labels), self.fit_intercept
        low_rank = SquaredAlternation(
            X, terms, self.reg_low_rank / 2, fit_intercept=fit_intercept, inner_iter=self.inner_iter
        )
        sparse = self._sparse_part(X, prepared, labels, terms)
        if rounds is None:
            rows = LocalRows(X, labels, get_loss("squared"))
            rounds = self._start(
                rows,
                lambda found: terms.value(found.A, found.H, found.b),
                random_generator(seed),
                dense=X.dense if isinstance(X, BlockFeatures) else None,
            )
        return self._alternate(low_rank, sparse, rounds, report)

    def _alternate(self, low_rank: Any, sparse: Any, rounds: Rounds, report: Report) -> Rounds:
        """Minimise equation 5 in turn over U, V and H, whose problems are 6b, 6a and 6c; no step raises it.

        U, V and H of the paper are W, H and the sparse part here.
        """
        reg, offset, factors = self.reg_low_rank / 2, self._offset(), rounds.factors
        while not rounds.converged and rounds.done < self.max_iter:
            low_rank.beside(rounds.sparse, offset)
            low_rank.step_features(factors)  # U: a few steps of conjugate gradients
            low_rank.step_labels(factors)  # V and b: closed form
            step = sparse.step(factors.shifted(offset), rounds.sparse if rounds.done else None)  # H
            rounds.add(step, step.value + _penalty(factors, reg), self.tol)
            if report(_EQUATION_5 * rounds.value, state=rounds, unsolved=step.unsolved, fall=rounds.share):
                break
        return replace(rounds, factors=factors.shifted(offset))

    def _start(
        self,
        rows: TrainingRows,
        value: Callable[[Factors], float],
        rng: np.random.Generator,
        dense: DenseFeatures | None = None,
    ) -> Rounds:
        """W = 0, H as in LEML, b the best constants (0 beside the offset where there is no intercept), S empty.

        A dense block has the last columns of W and H to itself, which start at its least squares.
        """
        dtype, constants = rows.dtype, self._constants(rows)
        n_dense = 0 if dense is None else dense_rank(dense.shape[1], rows.n_labels)
        factors = Factors(
            W=np.zeros((rows.n_features, self.rank), dtype),
            A=rows.zeros(self.rank),
            H=rows.spectral_start(constants, self.rank - n_dense, rng),
            b=constants - self._offset(),
        )
        if dense is not None:
            assert isinstance(rows, LocalRows)
            first = start_of_dense(dense, rows.labels, constants, self.reg_sparse, n_dense)
            factors.W[-dense.shape[1] :, -n_dense:] = first.coefficients
            factors.A[:, -n_dense:] = dense.matmul(first.coefficients)
            factors.H = np.column_stack([factors.H, first.labels])
        start = value(factors.shifted(self._offset())) + _penalty(factors, self.reg_low_rank / 2)
        return Rounds(factors, sp.csr_matrix((rows.n_features, rows.n_labels), dtype=dtype), start)

    def _divide_and_conquer(
        self,
        X: CSRWithTranspose,
        prepared: Prepared,
        labels: TrainingLabels,
        ids: list[np.ndarray],
        rng: np.random.Generator,
        progress: FitProgress,
    ) -> Rounds:
        """Algorithm 1: parts alone, their low ranks projected onto the first one's column space, then H for all."""
        seeds = [int(seed) for seed in rng.integers(2**31, size=len(ids))]
        ready = progress.resume(
            LearntParts, check=lambda found: found.require_parts_of(ids, self.rank), d=X.shape[1], dtype=X.matrix.dtype
        ) or LearntParts([])
        parts = ready.parts
        left = list(zip(ids, seeds))[len(parts) :]
        tasks = ((self._of_part(len(part)), X, prepared, labels.of(part), part, seed) for part, seed in left)
        work = X.matrix.nnz * self.rank
        learnt = map_parts(_learn_part, tasks, n_parts=len(left), n_processes=thread_count(self.n_jobs), work=work)
        for part in learnt:
            parts.append(part)
            if progress.step(part.objective, state=ready, part=len(parts)):
                break
        factors = project_onto_first(X, parts, self._constants(labels), labels.row_weight)
        step = self._sparse_part(X, prepared, labels, SquaredTerms.build(labels)).step(factors, None)
        value = step.value + _penalty(factors, self.reg_low_rank / 2)
        if not progress.stopped:
            progress.step(_EQUATION_5 * value, unsolved=step.unsolved)
        return Rounds(
            factors,
            step.weights,
            value,
            first=1.0,
            fall=max(part.fall for part in parts),
            unsolved=step.unsolved,
            converged=all(part.converged for part in parts),
        )

    def _of_part(self, n_labels: int) -> REML:
        return clone(self).set_params(rank=min(self.rank, n_labels), support=max(1, self.support // _SUPPORT_SHARE))

    def _prepare(self, X: FeatureMatrix, labels: TrainingLabels, *, keep_gram: bool = True) -> Prepared:
        """What the sparse part needs of X. Of the labels it matters whether there is a mask, and what rows weigh.

        ``keep_gram=False`` for few labels, which add up what they need of XᵀX faster than all of it is.
        """
        if self.sparse_part == "support":
            return SupportFeatures.build(
                _words(X).matrix,
                support=self.support,
                with_gram=keep_gram and labels.observed is None,
                row_weight=labels.row_weight,
                memory_limit=self.memory_limit,
                n_threads=_words(X).n_threads,
            )
        # The solver's objective has whole squares, twice the alternation's: ¼λ3 becomes ½λ3.
        parameters, memory = (X, self.reg_sparse, self.sparsity / 2), self.memory_limit / 2
        if labels.observed is None and labels.positive_weight is None and labels.row_weight is None:
            return L1FitRidge(*parameters, memory_limit=memory)
        return WeightedL1FitRidge(*parameters, row_weight=labels.row_weight, memory_limit=memory)

    def _sparse_part(
        self, X: FeatureMatrix, prepared: Prepared, labels: TrainingLabels, terms: SquaredTerms
    ) -> SparsePart:
        if isinstance(prepared, SupportFeatures):
            dense = X.dense if isinstance(X, BlockFeatures) else None
            return SupportPart(prepared, labels, terms, reg=self.reg_sparse, support=self.support, dense=dense)
        return ADMMPart(_words(X), prepared, labels, self.memory_limit)

    def _resumed(self, X: CSRWithTranspose, labels: TrainingLabels, progress: FitProgress) -> Rounds | None:
        """The rounds of a checkpoint, if there is one."""
        support = self.support if self.sparse_part == "support" else None
        rounds = progress.resume(
            Rounds,
            check=lambda found: _require_possible_sparse_part(found.sparse, _words(X), labels, support),
            d=X.shape[1],
            L=labels.shape[1],
            k=self.rank,
            dtype=_words(X).matrix.dtype,
            max_iter=self.max_iter,
        )
        if rounds is not None:
            rounds.factors.A = X.matmul(rounds.factors.W)
        return rounds

    def _offset(self) -> float:
        """The score that is fixed where no intercept is learnt: the border between off and on."""
        return 0.0 if self.fit_intercept else get_loss("squared").threshold

    def _constants(self, labels: TrainingRows | TrainingLabels) -> np.ndarray:
        """The best constant score of each label, or the border between off and on (L)."""
        loss, rates = get_loss("squared"), labels.rates()
        return loss.constant(rates) if self.fit_intercept else np.full(len(rates), loss.threshold)

    def _usable_partitions(self, n_labels: int) -> int:
        if self.partitions > n_labels:
            warn(
                f"partitions={self.partitions} is more than the {n_labels} labels to share out; using {n_labels}.",
                TagwiseWarning,
            )
        return min(self.partitions, n_labels)

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

    def _relearnt(
        self,
        labels: np.ndarray,
        X: sp.csr_matrix,
        Y: sp.csr_matrix,
        observed: sp.csr_matrix | None,
        row_weight: np.ndarray | None,
    ) -> REML:
        """A model of some labels alone: their S learnt from these rows, low rank and intercepts those of this model."""
        threads = thread_count(self.n_jobs)
        weight = resolve_positive_weight(self.positive_weight, Y, observed)
        known = TrainingLabels.build(Y, observed, weight, dtype=X.dtype, n_threads=threads, row_weight=row_weight).of(
            labels
        )
        model, rows = self._of_labels(labels), self._prepared(X)
        beside: np.ndarray | None = None
        if isinstance(rows, FeatureBlocks):
            beside = matmul(rows.dense, self.feature_factors_[-rows.n_dense :], n_threads=threads)
        ridge = SupportRidge(
            SupportFeatures.build(
                words_of(rows),
                support=self.support,
                with_gram=observed is None,
                row_weight=row_weight,
                memory_limit=self.memory_limit,
                n_threads=threads,
            ),
            known.positives,
            known=known.observed,
            reg=self.reg_sparse,
            support=self.support,
            positive_weight=known.positive_weight,
            n_threads=threads,
        )
        intercept = model.intercept_.astype(np.float64) + 0.5
        solved = ridge.solve(model.feature_factors_, model.label_factors_, intercept, beside=beside)
        return self._with_sparse_part(model, solved.weights)

    def _of_labels(self, labels: np.ndarray) -> REML:
        """The low rank of some labels alone; their sparse part is still to be set."""
        model = copy(self)
        model.n_labels_, model.label_factors_ = len(labels), self.label_factors_[labels]
        model.intercept_ = self.intercept_[labels]
        return model

    def _with_sparse_part(self, model: REML, weights: sp.csr_matrix) -> REML:
        model.sparse_weights_ = weights.astype(self.feature_factors_.dtype, copy=False)
        model._build_prediction_cache()
        return model

    # ------------------------------------------------------------------ after the fit

    def _feature_axes(self) -> Mapping[str, tuple[int, ...]]:
        return {"feature_factors_": (0,), "sparse_weights_": (0,)}

    def _learn_labels(self, rows: LabelRows, labels: np.ndarray, progress: FitProgress) -> None:
        """The rounds of a fit, in which W stays."""
        W, dtype = self.feature_factors_, self._floats()
        features = CSRWithTranspose(sp.csr_matrix(self._prepared(rows.X)), n_threads=thread_count(self.n_jobs))
        known = self._training_labels(rows, labels)
        model = clone(self).set_params(rank=self.rank_, sparse_part=self.sparse_part_)
        terms = SquaredTerms.build(known)
        low_rank = FixedFeatures(
            features, terms, self.reg_low_rank / 2, fit_intercept=self.fit_intercept, inner_iter=self.inner_iter
        )
        prepared = model._prepare(features, known, keep_gram=len(labels) > _FEW_LEARNT)
        sparse = model._sparse_part(features, prepared, known, terms)
        factors = Factors(
            W=W,
            A=features.matmul(W),
            H=np.zeros((len(labels), W.shape[1]), dtype=dtype),
            b=model._constants(known) - model._offset(),
        )
        start = terms.value(factors.A, factors.H, factors.b + model._offset()) + _penalty(factors, 0.0)
        empty = sp.csr_matrix((W.shape[0], len(labels)), dtype=dtype)
        rounds = model._alternate(low_rank, sparse, Rounds(factors, empty, start), lambda *_, **__: False)
        found, unknown = rounds.factors, known.unknown_labels()
        found.H[unknown], found.b[unknown] = 0, LOWEST_SCORE
        weights = pruned(rounds.sparse, self.prune).astype(dtype, copy=False)
        self.label_factors_ = replaced(self.label_factors_, labels, found.H)
        self.intercept_ = replaced(self.intercept_, labels, found.b - 0.5)
        self.sparse_weights_ = with_columns(self.sparse_weights_, labels, weights)

    def _measured_drift(self) -> float:
        return self._low_rank_drift(self._comparable_rows())

    def _low_rank_drift(self, rows: LabelRows) -> float:
        """By what share the low rank alone, labels solved for it, is worse on rows than one fitted to them."""
        features = CSRWithTranspose(sp.csr_matrix(self._prepared(rows.X)), n_threads=thread_count(self.n_jobs))
        known = self._training_labels(rows, np.arange(self.n_labels_))
        model, terms = clone(self).set_params(rank=self.rank_), SquaredTerms.build(known)
        steps = SquaredAlternation(
            features, terms, self.reg_low_rank / 2, fit_intercept=self.fit_intercept, inner_iter=self.inner_iter
        )

        def value(factors: Factors) -> float:
            return steps.step_labels(factors) + _penalty(replace(factors, H=factors.H[:0]), self.reg_low_rank / 2)

        local = LocalRows(features, known, get_loss("squared"))
        fresh = model._start(local, lambda _: 0.0, random_generator(self.random_state)).factors
        now = Factors(self.feature_factors_, features.matmul(self.feature_factors_), fresh.H, fresh.b)
        for _ in range(min(self.n_iter_, self.max_iter)):
            steps.step_features(fresh)
            refitted = value(fresh)
        return max(0.0, value(now) / refitted - 1) if refitted > 0 else 0.0

    # ------------------------------------------------------------------ predict

    def _label_weights(self, labels: np.ndarray) -> np.ndarray | sp.csr_matrix:
        return super()._label_weights(labels) + self.sparse_weights_[:, labels].toarray().T

    def _rows_and_embedding(self, X: Features) -> tuple[sp.csr_matrix | FeatureBlocks, np.ndarray]:
        """The rows as they were at fit (n×d, CSR or blocks), and XW (n×k)."""
        threads = self._threads_for(X)
        rows = self._prepared(X)
        rows = sp.csr_matrix(rows) if isinstance(rows, np.ndarray) else rows
        return rows, matmul(rows, self.feature_factors_, n_threads=threads)

    def _score_rows(self, X: Features) -> np.ndarray:
        return self._scores_of(*self._rows_and_embedding(X))

    def _scores_of(self, rows: sp.csr_matrix | FeatureBlocks, embedded: np.ndarray) -> np.ndarray:
        """All scores (n×L) of rows (n×d) and their XW (n×k)."""
        rows = words_of(rows)
        return scores_of_factors_and_sparse(
            embedded,
            self.label_factors_,
            intercept=self.intercept_,
            rows=rows,
            sparse=self.sparse_weights_,
            n_threads=self._threads_for(rows),
        )

    def _answers_without_blas(self, X: Features) -> bool:
        return X.shape[0] <= _FEW_ROWS and not isinstance(X, FeatureBlocks)

    def _build_prediction_cache(self) -> None:
        self._bounded = BoundedLabels.of(self.label_factors_, self.intercept_)
        self._longest = float(self._bounded.lengths.max())
        self._largest_weight = float(np.abs(self.sparse_weights_.data).max(initial=0))

    def _top_k(self, X: Features, k: int, exclude: sp.csr_matrix | None) -> tuple[np.ndarray, np.ndarray]:
        return self._best_of_rows(*self._rows_and_embedding(X), k, exclude)

    def _best_of_rows(
        self,
        rows: sp.csr_matrix | FeatureBlocks,
        embedded: np.ndarray,
        k: int,
        exclude: sp.csr_matrix | None = None,
        *,
        best_first: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best labels and scores of rows (n×d) and their XW (n×k); or in the order of labels."""
        # Bounds rule out few labels where a dense block says much about all of them.
        few_labels = len(self.label_factors_) < _FEW_LABELS or isinstance(rows, FeatureBlocks)
        rows = words_of(rows)
        most_weights = self._largest_weight * math.sqrt(rows.nnz)
        if not (may_be_added(embedded, self._longest) and may_be_added(rows.data, most_weights)):
            require_finite(
                lambda start, stop: self._scores_of(rows[start:stop], embedded[start:stop]), self._row_blocks(rows)
            )
        H, threads = self.label_factors_, self._threads_for(embedded)
        parts = {"rows": rows, "sparse": self.sparse_weights_, "exclude": exclude}
        if len(embedded) > _FEW_ROWS and few_labels and H.shape[1] > _SHORT_FACTORS:
            return top_k_of_factors_and_sparse(embedded, H, k, intercept=self.intercept_, **parts, n_threads=threads)
        return top_k_within_bounds(embedded, self._bounded, k, **parts, best_first=best_first, n_threads=threads)

    def _check_restored(self) -> None:
        super()._check_restored()
        if self.updatable:
            self._check_kept()
        S = self.sparse_weights_
        require_sparse(sparse_weights_=S)
        if S.shape != (self.n_features_in_, self.n_labels_):
            raise ValueError(f"sparse weights must be CSR of shape {(self.n_features_in_, self.n_labels_)}")
        require_finite_floats(feature_factors_=self.feature_factors_, sparse_weights_=S)
        check_integer(self.rank_, "rank_", minimum=1)
        check_choice(self.sparse_part_, "sparse_part_", ("admm", "support"))


@dataclass
class Rounds(State):
    """An alternation under way, and what it has come to in the end.

    Attributes
    ----------
    factors : Factors
        Without the offset ½ of a model without intercept.
    sparse : CSR or array (d, L)
        S of the last round; before the first one empty.
    value : float
        The objective, an eighth of equation 5.
    first, fall : float
        By how much the first and the last round lowered it; with parts 1 and the largest ``share`` of a part.
    done : int
        Rounds so far.
    unsolved : int
        Labels whose S fell short of its tolerance in the last round.
    converged : bool
        Whether the last round met the stopping rule.
    """

    factors: Factors = nested(Factors)
    sparse: sp.csr_matrix | np.ndarray = matrix("d", "L")
    value: float = real()
    first: float = real(default=0.0)
    fall: float = real(default=0.0)
    done: int = count(1, "max_iter", default=0)
    unsolved: int = count(0, "L", default=0)
    converged: bool = flag(default=False)

    def add(self, step: SparseStep, value: float, tol: float) -> None:
        """One more round, at whose end the objective is ``value``."""
        self.fall = self.value - value
        self.first = self.first or self.fall
        self.sparse, self.value, self.unsolved = step.weights, value, step.unsolved
        self.done += 1
        self.converged = bool(self.fall <= max(tol * self.first, _ROUNDING * abs(value)))

    @property
    def share(self) -> float:
        """By how much the last round lowered the objective, over what the first one did."""
        return self.fall / self.first if self.first else 0.0


def words_of(rows: sp.csr_matrix | FeatureBlocks) -> sp.csr_matrix:
    """The features that have a sparse part (n×d)."""
    return rows.words if isinstance(rows, FeatureBlocks) else rows


def _words(X: FeatureMatrix) -> CSRWithTranspose:
    words = X.words if isinstance(X, BlockFeatures) else X
    assert isinstance(words, CSRWithTranspose)
    return words


def _require_possible_sparse_part(
    S: sp.csr_matrix | np.ndarray, X: CSRWithTranspose, labels: TrainingLabels, support: int | None
) -> None:
    """Raise ValueError for an S of the wrong form (dense if ``support`` is None) or that no fit can have found.

    A label with more features than it can have chosen would have no room for them in its next system.
    """
    if isinstance(S, np.ndarray) != (support is None):
        raise ValueError(f"sparse must be a {'dense array' if support is None else 'CSR matrix'}")
    if isinstance(S, np.ndarray) or support is None:
        return
    entries = np.asarray((X.matrix != 0).sum(axis=1)).ravel()
    in_positives = (labels.positives.T != 0) @ entries
    if (np.bincount(S.indices, minlength=S.shape[1]) > np.minimum(in_positives, support)).any():
        raise ValueError("sparse has more entries in a column than the label can have features")


def _learn_part(
    model: REML, X: CSRWithTranspose, prepared: Prepared, labels: TrainingLabels, ids: np.ndarray, seed: int
) -> Part:
    """Equation 5 for one part of the labels, on one thread; its H is not kept."""
    with single_threaded_blas(), on_this_thread():
        rounds = model._alternate_locally(X, prepared, labels, seed, report=lambda *_, **__: False)
    W, H, b = rounds.factors.W, rounds.factors.H, rounds.factors.b
    return Part(ids, W, H, b, _EQUATION_5 * rounds.value, rounds.converged, rounds.share)


def _penalty(factors: Factors, reg: float) -> float:
    """½λ(‖W‖² + ‖H‖²)."""
    return 0.5 * reg * (dot_all(factors.W, factors.W).item() + dot_all(factors.H, factors.H).item())
