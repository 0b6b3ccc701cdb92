"""The two steps of a round of LEML: W as sums over shards of rows, the labels as sums or in blocks of their own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.data.splits import split_rows
from tagwise.estimator import OVERFLOW
from tagwise.exceptions import InvalidInputError
from tagwise.executor import Block, Executor, blocks_of_work, current_executor
from tagwise.fields import Fields, dense
from tagwise.kernels import (
    BlockFeatures,
    CSRWithTranspose,
    FeatureMatrix,
    sampled_product,
    top_k_of_factors,
)
from tagwise.kernels.vectors import axpy, dot_all, dot_rows
from tagwise.losses import Loss
from tagwise.metrics import ndcg_at_k
from tagwise.models.factor_model import FitData
from tagwise.objectives.labels import SpectralSides, TrainingLabels, subspace_iteration
from tagwise.objectives.pair_losses import FeatureProblem, LabelProblem, label_side, row_side
from tagwise.objectives.squared import (
    LabelSums,
    LinearScores,
    SquaredFeatureProblem,
    SquaredLabelProblem,
    SquaredTerms,
    with_intercept,
)
from tagwise.problem import Problem
from tagwise.solvers.cg import quadratic_step
from tagwise.solvers.tron import tron

__all__ = [
    "Alternation",
    "Beside",
    "Factors",
    "Point",
    "ValidationRows",
    "solve_labels",
    "whole_shard",
]

# The k of the nDCG that validation rows are judged by.
_K = 5
# Newton steps of W, and of the labels to a relative gradient, per round: few, as the other half is about to change.
_FEATURE_STEPS = 2
_LABEL_STEPS = 3
_LABEL_TOLERANCE = 0.03
# … and where W stays, so that the labels are to be solved.
_SOLVED_STEPS = 100
_SOLVED_TOLERANCE = 1e-4
# Squared loss with a mask: up to this rank a k×k system per label is solved; above it, a few steps of conjugate
# gradients on that system are faster and end at the same objective.
_DIRECT_RANK = 64
# Rows whose noise is drawn at a time.
_NOISE_ROWS = 1 << 12


class Point:
    """A point W of an alternation, or blocks of columns of WQ and Q.

    A step of W makes a new one, so that what was computed at a point is known by it.
    """

    def __init__(self, blocks: list[Any], rotation: np.ndarray | None = None) -> None:
        self.blocks, self.rotation = blocks, rotation

    def __reduce__(self) -> tuple[Any, ...]:
        if self.rotation is None and not self.W.any():  # where alternations start
            return Point.zeros, (self.W.shape, self.W.dtype)
        return Point, (self.blocks, self.rotation)

    @classmethod
    def zeros(cls, shape: tuple[int, int], dtype: np.dtype) -> Point:
        """W = 0."""
        return cls([np.zeros(shape, dtype)])

    @cached_property
    def W(self) -> np.ndarray:
        """W (d×k)."""
        return self.blocks[0] if self.rotation is None else np.hstack(self.blocks) @ self.rotation.T


FACTORS = Fields(
    W=dense("d", "k", meaning="Factors of features."),
    H=dense("L", "k", meaning="Factors of labels."),
    b=dense("L", numbers="float64", meaning="Intercepts."),
)
"""The variables of an alternation as a checkpoint holds them."""


@dataclass
class Factors:
    """The variables of the alternation: W (d×k), H (L×k), b (L).

    LEML's names: what REML's paper calls U and Vᵀ are W and H here, and its H is the sparse part S.
    """

    W: np.ndarray
    H: np.ndarray
    b: np.ndarray

    def shifted(self, offset: float) -> Factors:
        """The same factors with ``offset`` added to b; arrays are shared."""
        return Factors(self.W, self.H, self.b + offset)


class Beside(NamedTuple):
    """A fixed part XS + offset of all scores."""

    S: sp.csr_matrix | np.ndarray
    offset: float

    def scores(self, X: FeatureMatrix, n_threads: int) -> LinearScores:
        """Of rows, dense features of which have no part in S."""
        words = X.words if isinstance(X, BlockFeatures) else X
        assert isinstance(words, CSRWithTranspose)
        return LinearScores(words, self.S, offset=self.offset, n_threads=n_threads)


class _Fixed(NamedTuple):
    """Labels while W moves: H, b (None without an intercept), and what else is in the scores."""

    H: np.ndarray
    b: np.ndarray | None
    beside: Beside | None


class Shard:
    """Rows of a fit. Methods are what a round needs of them: sums over rows, so that those of shards add up."""

    def __init__(self, data: FitData, block: Block) -> None:
        self.start, self.X, self.loss = block[0], data.features(block), data.loss
        self.labels = data.shard(block).targets
        self._embedded: tuple[Point, np.ndarray] | None = None
        self._beside: tuple[Beside, SquaredTerms] | None = None
        self._problem: tuple[Any, Any, SquaredFeatureProblem | FeatureProblem] | None = None
        self._slope: Any = None

    @cached_property
    def terms(self) -> SquaredTerms:
        """Those of squared loss."""
        return SquaredTerms.build(self.labels)

    def terms_beside(self, beside: Beside | None) -> SquaredTerms:
        """Those of squared loss beside a fixed part of the scores."""
        if beside is None:
            return self.terms
        if self._beside is None or self._beside[0] is not beside:
            self._beside = beside, self.terms.around(beside.scores(self.X, self.labels.n_threads))
        return self._beside[1]

    def embedded(self, at: Point) -> np.ndarray:
        """A = XW."""
        if self._embedded is None or self._embedded[0] is not at:
            self._embedded = None
            self._embedded = at, self.X.matmul(at.W)
        return self._embedded[1]

    # ------------------------------------------------------------------ W

    def value(self, fixed: _Fixed, at: Point) -> np.ndarray:
        """The loss at W."""
        return self._problem_at(fixed, at).value()

    def gradient(self, fixed: _Fixed, at: Point) -> np.ndarray:
        """The gradient of the loss in W (d×k)."""
        return self._problem_at(fixed, at).gradient()

    def curvature(self, fixed: _Fixed, at: Point, direction: np.ndarray) -> np.ndarray:
        """The Hessian of the loss in W times a direction (d×k)."""
        return self._problem_at(fixed, at).hessian_vector(direction)

    def _problem_at(self, fixed: _Fixed, at: Point) -> SquaredFeatureProblem | FeatureProblem:
        """The problem in W for fixed labels, without its penalty, moved to a point."""
        if self._problem is not None and self._problem[0] is fixed and self._problem[1] is at:
            return self._problem[2]
        problem: SquaredFeatureProblem | FeatureProblem
        if self.loss.quadratic:
            assert fixed.b is not None
            problem = SquaredFeatureProblem(self.X, self.terms_beside(fixed.beside), fixed.H, fixed.b)
            # n×k that the steps can use: the gradient is the last that needs A.
            A, self._embedded = self._embedded, None
            problem.move_to(at.W, A[1] if A is not None and A[0] is at else None)
        elif self._problem is not None and self._problem[0] is fixed:
            problem = self._problem[2]
            problem.move_to(at.W)
        else:
            H = fixed.H if fixed.b is None else np.column_stack([fixed.H, fixed.b]).astype(fixed.H.dtype)
            problem = FeatureProblem(self.X, self._pairs, H, fixed.H.shape[1])
            problem.move_to(at.W)
        self._problem = fixed, at, problem
        return problem

    @cached_property
    def _pairs(self) -> Any:
        return row_side(self.labels, self.loss)

    # ------------------------------------------------------------------ labels that share one system

    def label_sums(self, beside: Beside | None, at: Point, fit_intercept: bool) -> Any:
        """Sums that determine H and b, and the constant of the loss."""
        terms = self.terms_beside(beside)
        return *terms.label_sums(self.embedded(at), fit_intercept=fit_intercept), terms.constant

    def squared_loss(self, at: Point, H: np.ndarray, b: np.ndarray) -> float:
        """The squared loss, whatever is beside."""
        return self.terms.value(self.embedded(at), H, b)

    # ------------------------------------------------------------------ the spectral start

    def spectral_noise(self, b: np.ndarray, rank: int, rng: np.random.Generator) -> np.ndarray:
        """Xᵀ·noise (d×k), from a copy of the generator: the noise of a row does not depend on how rows are divided."""
        state = np.random.Generator(type(rng.bit_generator)())
        state.bit_generator.state = rng.bit_generator.state
        for first in range(0, self.start, _NOISE_ROWS):
            state.standard_normal((min(_NOISE_ROWS, self.start - first), rank))
        return self.sides(b).of_noise(state, rank, self.labels.positives.dtype)

    def spectral_features(self, b: np.ndarray, H: np.ndarray) -> np.ndarray:
        """XᵀDH (d×k)."""
        return self.sides(b).feature_side(H)

    def spectral_labels(self, b: np.ndarray, W: np.ndarray) -> np.ndarray:
        """DᵀXW (L×k)."""
        return self.sides(b).label_side(W)

    def sides(self, b: np.ndarray) -> SpectralSides:
        """Products of a spectral start."""
        if self._slope is None:
            self._slope = self.labels.slope_at(self.loss, b)
        slope, row = self._slope
        return SpectralSides(self.X, slope, row, self.labels.full_weight)

    def forget_start(self) -> None:
        """Free what the spectral start alone needs."""
        self._slope = None


def on_shard(block: Block, data: FitData, method: str, *arguments: Any) -> Any:
    """A method of the shard of rows ``start`` to ``stop``."""
    return getattr(_shard(data, block), method)(*arguments)


def _shard(data: FitData, block: Block) -> Shard:
    return data.once(("shard", block), lambda: Shard(data, block))


def whole_shard(data: FitData) -> Shard:
    """All rows as one shard."""
    return _shard(data, (0, data.n_rows))


# ---------------------------------------------------------------------- labels in blocks


def solved_block(
    block: Block,
    data: FitData,
    beside: Beside | None,
    at: Point,
    start: np.ndarray,
    reg: float,
    fit_intercept: bool,
    inner_iter: int,
) -> tuple[np.ndarray, np.ndarray, float]:
    """H and b of some labels for fixed W, from their last ones, and loss + ½λ‖H‖² there."""
    shard, labels = whole_shard(data), data.targets_of(block)
    columns = slice(*block)
    terms = None
    if labels is data.targets and data.loss.quadratic:
        terms = shard.terms_beside(beside)
    elif data.loss.quadratic:
        terms = data.once(("terms", block), lambda: SquaredTerms.build(labels))
        if beside is not None:
            some = Beside(beside.S[:, columns], beside.offset)
            terms = terms.around(some.scores(shard.X, data.n_threads))
    return solve_labels(
        labels,
        shard.embedded(at),
        data.loss,
        reg,
        fit_intercept=fit_intercept,
        start=start[columns],
        inner_iter=inner_iter,
        terms=terms,
    )


def solve_labels(
    labels: TrainingLabels,
    A: np.ndarray,
    loss: Loss,
    reg: float,
    *,
    fit_intercept: bool,
    start: np.ndarray | None = None,
    inner_iter: int = 5,
    terms: SquaredTerms | None = None,
) -> tuple[np.ndarray, np.ndarray, float]:
    """The label side: H (L×k) and b (L) for fixed A = XW, and loss + ½λ‖H‖² there.

    Without a ``start`` each label is solved: exactly for squared loss, else by Newton's method. From a ``start``,
    [H, b] or H, some steps towards the minimum are enough for a round, as W is about to change.
    """
    rank = A.shape[1]
    if loss.quadratic:
        terms = SquaredTerms.build(labels) if terms is None else terms
        if start is None or terms.curvature is None or rank <= _DIRECT_RANK:
            solved = terms.solve_labels(A, reg, fit_intercept=fit_intercept)
            return solved.H, solved.intercept, solved.value
        squared = SquaredLabelProblem(terms, A, reg, fit_intercept=fit_intercept)
        squared.move_to(start)
        step = quadratic_step(squared, tol=1e-3, max_iter=inner_iter, inner=dot_rows)
        return *_halves(start + step.solution, rank), terms.constant + float(squared.value().sum() - step.fall.sum())
    extended = with_intercept(A) if fit_intercept else A
    problem = LabelProblem(label_side(labels, loss), extended, rank, reg)
    if start is not None:
        result = tron(
            problem, start, tol=_LABEL_TOLERANCE, max_iter=_LABEL_STEPS, cg_max_iter=inner_iter, inner=dot_rows
        )
    else:
        zeros = np.zeros((labels.shape[1], extended.shape[1]), dtype=A.dtype)
        if fit_intercept:
            zeros[:, rank] = loss.constant(labels.rates())
        result = tron(problem, zeros, tol=_SOLVED_TOLERANCE, max_iter=_SOLVED_STEPS, inner=dot_rows)
    return *_halves(result.solution, rank), float(result.value.sum())


def _halves(solution: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """H, and b or zeros, from [H, b] or H."""
    b = solution[:, rank].astype(np.float64) if solution.shape[1] > rank else np.zeros(len(solution))
    return np.ascontiguousarray(solution[:, :rank]), b


# ---------------------------------------------------------------------- a round


class _OverRows:
    """The problem in W: loss, as a sum over shards of rows, + ½λ‖W‖²."""

    def __init__(self, steps: Alternation, fixed: _Fixed) -> None:
        self.steps, self.fixed = steps, steps.executor.share(fixed)

    def move_to(self, W: np.ndarray, at: Any = None) -> None:
        self._W, self._at = W, self.steps.executor.share(Point([W])) if at is None else at

    def value(self) -> np.ndarray:
        loss: np.ndarray = self.steps.over_rows("value", self.fixed, self._at)
        return loss + 0.5 * self.steps.reg * dot_all(self._W, self._W)

    def gradient(self) -> np.ndarray:
        return self._penalised(self.steps.over_rows("gradient", self.fixed, self._at), self._W)

    def hessian_vector(self, direction: np.ndarray) -> np.ndarray:
        shared = self.steps.executor.share(direction)
        return self._penalised(self.steps.over_rows("curvature", self.fixed, self._at, shared), direction)

    def _penalised(self, product: np.ndarray, variable: np.ndarray) -> np.ndarray:
        axpy(product, product.dtype.type(self.steps.reg), variable, n_threads=self.steps.n_threads)
        return product


class Alternation:
    """The steps of a round, each of which lowers the objective.

    Squared loss: W by a few conjugate-gradient steps on the normal equations, H and b exactly. Other losses:
    trust-region Newton for W as one problem, and for the labels as L problems solved together.
    """

    def __init__(
        self, data: FitData, reg: float, *, fit_intercept: bool, inner_iter: int, executor: Executor | None = None
    ) -> None:
        self.reg, self.fit_intercept, self.inner_iter = reg, fit_intercept, inner_iter
        self.executor = current_executor() if executor is None else executor
        self.local, self.data = data, self.executor.share(data)
        self.shards = blocks_of_work(data.entries_per_row(), self.executor.n_blocks)
        self.label_blocks = blocks_of_work(data.label_counts, self.executor.n_blocks)
        self.n_threads = data.n_threads
        self._beside: Any = None
        self._at: Any = None

    def over_rows(self, method: str, *shared: Any) -> Any:
        """The sum of a method of all shards."""
        return self.executor.sum(on_shard, self.shards, self.data, method, *shared)

    def beside(self, S: sp.csr_matrix | np.ndarray, offset: float) -> None:
        """From now on, XS + offset is a part of all scores that the steps leave as it is."""
        self._beside = self.executor.share(Beside(S, offset))

    def at(self, W: np.ndarray) -> Any:
        """The point W; what steps have computed there is used again."""
        if self._at is None or self._at[0] is not W:
            point = Point([W])
            self._at = W, self.executor.share(point), point
        return self._at[1]

    def here(self, W: np.ndarray) -> Point:
        """The point W for what this process computes by itself."""
        self.at(W)
        assert self._at is not None
        return self._at[2]

    def spectral_start(self, b: np.ndarray, rank: int, rng: np.random.Generator) -> np.ndarray:
        r"""Orthonormal H (L×k) spanning about the top right singular vectors of Xᵀ D, D = ∂loss/∂S at W = 0."""
        intercept, share = self.executor.share(b), self.executor.share
        try:
            return subspace_iteration(
                self.over_rows("spectral_noise", intercept, rank, rng),
                lambda H: self.over_rows("spectral_features", intercept, share(H)),
                lambda W: self.over_rows("spectral_labels", intercept, share(W)),
                self.local.X.dtype,
            )
        finally:
            self.executor.map(on_shard, self.shards, self.data, "forget_start")

    def step_features(self, factors: Factors) -> float:
        """Improve W for fixed H and b; by how much the objective fell."""
        at = self.at(factors.W)
        self._at = None
        keep_b = self.fit_intercept or self.local.loss.quadratic
        problem = _OverRows(self, _Fixed(factors.H, factors.b if keep_b else None, self._beside))
        if self.local.loss.quadratic:
            problem.move_to(factors.W, at)
            step = quadratic_step(
                problem, tol=1e-3, max_iter=self.inner_iter, add_to=factors.W, n_threads=self.n_threads
            )
            if step.status == "not_finite":
                raise InvalidInputError(OVERFLOW)
            return float(step.fall.item())
        result = tron(
            problem,
            factors.W,
            tol=1e-3,
            max_iter=_FEATURE_STEPS,
            cg_max_iter=self.inner_iter,
            inner=partial(dot_all, n_threads=self.n_threads),
        )
        if not np.isfinite(result.value).all():
            raise InvalidInputError(OVERFLOW)
        factors.W = result.solution
        return float((result.start_value - result.value).item())

    def step_labels(self, factors: Factors) -> float:
        """Minimise over H and b for fixed W, or improve them; loss + ½λ‖H‖² there."""
        data, at = self.local, self.at(factors.W)
        if data.loss.quadratic and data.known is None and data.positive_weight is None:
            *sums, constant = self.over_rows("label_sums", self._beside, at, self.fit_intercept)
            solved = LabelSums(*sums).solve(self.reg, constant, n_threads=self.n_threads)
            factors.H, factors.b = solved.H, solved.intercept
            return solved.value
        start = factors.H
        if self.fit_intercept:
            start = np.column_stack([factors.H, factors.b]).astype(factors.H.dtype)
        found = self.executor.map(
            solved_block,
            self.label_blocks,
            self.data,
            self._beside,
            at,
            self.executor.share(start),
            self.reg,
            self.fit_intercept,
            self.inner_iter,
        )
        H, b, values = zip(*found)
        factors.H, factors.b = (some[0] if len(some) == 1 else np.concatenate(some) for some in (H, b))
        return float(sum(values))

    def squared_loss(self, factors: Factors) -> float:
        """Σ ½ω(Y − S)² of these factors alone."""
        H, b = self.executor.share(factors.H), self.executor.share(factors.b)
        loss: float = self.over_rows("squared_loss", self.at(factors.W), H, b)
        return loss


class ValidationRows:
    """Rows by which nDCG@5 judges a round; with a mask, only the known pairs of a row are ranked."""

    def __init__(self, problem: Problem, X: FeatureMatrix, *, n_threads: int) -> None:
        self.X, self.n_threads = X, n_threads
        self.positives, self.observed = problem.Y, problem.observed
        if self.observed is not None and self.observed.nnz == 0:
            raise InvalidInputError("none of the validation rows has a known label; switch early_stopping off.")

    @staticmethod
    def split(problem: Problem, fraction: float, random_state: Any) -> tuple[Problem, Problem]:
        """Rows to train on and rows to validate on, by known labels alone. Rare labels stay in training."""
        train, chosen = split_rows(problem.Y, fraction, random_state, keep_labels=True)
        if len(chosen) == 0:
            raise InvalidInputError(
                f"validation_fraction={fraction} of {problem.n_rows} rows holds no row out (every row is needed to "
                "keep its labels in training); raise it or switch early_stopping off."
            )
        return problem.rows(train), problem.rows(chosen)

    def score(self, factors: Factors) -> float:
        """nDCG@5 of these factors."""
        A, b = self.X.matmul(factors.W), factors.b.astype(factors.H.dtype)
        if self.observed is None:
            ranking, _ = top_k_of_factors(A, factors.H, _K, intercept=b, n_threads=self.n_threads)
        else:
            known = self.observed
            scores = sampled_product(known, A, factors.H, n_threads=self.n_threads) + b[known.indices]
            ranking = sp.csr_matrix((scores, known.indices, known.indptr), shape=known.shape)
        return float(ndcg_at_k(self.positives, ranking, k=_K))
