"""The two steps of a round of LEML: W by sums over shards of rows, the labels by sums or in blocks of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.estimator import OVERFLOW
from tagwise.exceptions import InvalidInputError
from tagwise.executor import Block, Executor, Threads, blocks_of_work, current_executor
from tagwise.fields import Fields, dense
from tagwise.kernels import BlockFeatures, CSRWithTranspose, FeatureMatrix
from tagwise.kernels.vectors import axpy, dot_all, dot_rows
from tagwise.losses import Loss
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
from tagwise.solvers.cg import quadratic_step
from tagwise.solvers.tron import tron

__all__ = ["FACTORS", "Alternation", "Factors", "solve_labels", "words_of"]

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

# Rows are divided into shards of at least so many entries per feature: sums of fewer cost more to send than to make.
_LEAST_ENTRIES = 256

_At: TypeAlias = tuple[np.ndarray]
"""A point W, in a tuple: what was computed there is known by its identity, also where W itself was moved in place."""
_Labels: TypeAlias = tuple[np.ndarray, np.ndarray | None]
"""H and b while W moves; None without an intercept."""


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


class Alternation:
    """The steps of a round, each of which lowers the objective.

    Squared loss: W by a few conjugate-gradient steps on the normal equations, H and b exactly. Other losses:
    trust-region Newton for W as one problem, and for the labels as L problems solved together. On a cluster each step
    of W is a sum over shards of rows, unless all rows are one: then this process is faster.
    """

    def __init__(
        self, data: FitData, reg: float, *, fit_intercept: bool, inner_iter: int, executor: Executor | None = None
    ) -> None:
        self.reg, self.fit_intercept, self.inner_iter = reg, fit_intercept, inner_iter
        self.fit_executor = executor = current_executor() if executor is None else executor
        work = data.entries_per_row() + (0 if data.known is None else np.diff(data.known.pairs.indptr))
        n_shards = min(executor.n_blocks, int(work.sum() / (_LEAST_ENTRIES * data.X.shape[1])))
        self.executor = executor if n_shards > 1 else Threads()
        self.local, self.fit_data = data, executor.share(data)
        self.data = self.fit_data if n_shards > 1 else data
        self.shards = blocks_of_work(work, n_shards)
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
            self._at = W, self.executor.share((W,))
        return self._at[1]

    def spectral_start(self, b: np.ndarray, rank: int, rng: np.random.Generator) -> np.ndarray:
        r"""Orthonormal H (L×k) spanning about the top right singular vectors of Xᵀ D, D = ∂loss/∂S at W = 0."""
        intercept, share = self.executor.share(b), self.executor.share
        return subspace_iteration(
            self.over_rows("spectral", intercept, "of_noise", rng, rank),
            lambda H: self.over_rows("spectral", intercept, "feature_side", share(H)),
            lambda W: self.over_rows("spectral", intercept, "label_side", share(W)),
            self.local.X.dtype,
        )

    def step_features(self, factors: Factors) -> float:
        """Improve W for fixed H and b; by how much the objective fell."""
        quadratic = self.local.loss.quadratic
        problem = _OverRows(self, (factors.H, factors.b if self.fit_intercept or quadratic else None))
        if quadratic:
            problem.move_to(factors.W)
            step = quadratic_step(
                problem, tol=1e-3, max_iter=self.inner_iter, add_to=factors.W, n_threads=self.n_threads
            )
            finite, fall = step.status != "not_finite", step.fall
        else:
            inner = partial(dot_all, n_threads=self.n_threads)
            result = tron(
                problem, factors.W, tol=1e-3, max_iter=_FEATURE_STEPS, cg_max_iter=self.inner_iter, inner=inner
            )
            finite, fall = np.isfinite(result.value).all(), result.start_value - result.value
            factors.W = result.solution
        self._at = None
        if not finite:
            raise InvalidInputError(OVERFLOW)
        return float(fall.item())

    def step_labels(self, factors: Factors) -> float:
        """Minimise over H and b for fixed W, or improve them; loss + ½λ‖H‖² there."""
        data, at = self.local, self.at(factors.W)
        if data.loss.quadratic and data.known is None and data.positive_weight is None:
            sums = LabelSums(*self.over_rows("label_sums", self._beside, at, self.fit_intercept))
            factors.H, factors.b, value = sums.solve(self.reg, n_threads=self.n_threads)
            return value
        start = factors.H
        if self.fit_intercept:
            start = np.column_stack([factors.H, factors.b]).astype(factors.H.dtype)
        how = {"reg": self.reg, "fit_intercept": self.fit_intercept, "inner_iter": self.inner_iter}
        found = self.executor.map(
            solved_block, self.label_blocks, self.data, self._beside, at, self.executor.share(start), how
        )
        H, b, values = zip(*found)
        factors.H, factors.b = (some[0] if len(some) == 1 else np.concatenate(some) for some in (H, b))
        return float(sum(values))

    def squared_loss(self, factors: Factors) -> float:
        """Σ ½ω(Y − S)² of these factors alone."""
        H, b = self.executor.share(factors.H), self.executor.share(factors.b)
        loss: float = self.over_rows("squared_loss", self.at(factors.W), H, b)
        return loss


class _OverRows:
    """The problem in W for fixed labels: loss, as a sum over shards of rows, + ½λ‖W‖²."""

    def __init__(self, steps: Alternation, labels: _Labels) -> None:
        self.steps, self.labels = steps, steps.executor.share(labels)

    def move_to(self, W: np.ndarray) -> None:
        self._W, self._at = W, self.steps.at(W)

    def value(self) -> np.ndarray:
        return self._loss("value") + 0.5 * self.steps.reg * dot_all(self._W, self._W)

    def gradient(self) -> np.ndarray:
        return self._penalised(self._loss("gradient"), self._W)

    def hessian_vector(self, direction: np.ndarray) -> np.ndarray:
        return self._penalised(self._loss("hessian_vector", self.steps.executor.share(direction)), direction)

    def _loss(self, derivative: str, *direction: Any) -> np.ndarray:
        steps = self.steps
        loss: np.ndarray = steps.over_rows("loss_at", self._at, self.labels, steps._beside, derivative, *direction)
        return loss

    def _penalised(self, product: np.ndarray, variable: np.ndarray) -> np.ndarray:
        axpy(product, product.dtype.type(self.steps.reg), variable, n_threads=self.steps.n_threads)
        return product


# ---------------------------------------------------------------------- sums over rows


class Beside(NamedTuple):
    """A fixed part XS + offset of all scores."""

    S: sp.csr_matrix | np.ndarray
    offset: float

    def scores(self, X: FeatureMatrix, n_threads: int) -> LinearScores:
        """Of rows, dense features of which have no part in S."""
        return LinearScores(words_of(X), self.S, offset=self.offset, n_threads=n_threads)


def words_of(X: FeatureMatrix) -> CSRWithTranspose:
    """The features that have a sparse part, for products."""
    words = X.words if isinstance(X, BlockFeatures) else X
    assert isinstance(words, CSRWithTranspose)
    return words


def on_shard(block: Block, data: FitData, method: str, *arguments: Any) -> Any:
    """A method of the shard of rows ``start`` to ``stop``."""
    return getattr(_shard(data, block), method)(*arguments)


def _shard(data: FitData, block: Block) -> Shard:
    return data.once(("shard", block), lambda: Shard(data, block))


class Shard:
    """Rows of a fit. Methods are what a round needs of them: sums over rows, so that those of shards add up."""

    def __init__(self, data: FitData, block: Block) -> None:
        self.first_row, self.X, self.loss = block[0], data.features(block), data.loss
        self.labels = data.shard(block).targets
        self._last: dict[str, tuple[tuple[Any, ...], Any]] = {}

    def last(self, name: str, make: Callable[[], Any], *of: Any) -> Any:
        """The result of the last ``make`` of this name, if it was made of the very same objects."""
        if name not in self._last or any(one is not other for one, other in zip(self._last[name][0], of)):
            self._last.pop(name, None)  # its memory may serve the next
            self._last[name] = of, make()
        return self._last[name][1]

    def terms(self, beside: Beside | None) -> SquaredTerms:
        """Terms of squared loss beside a fixed part of the scores."""
        terms: SquaredTerms = self.last("terms", lambda: SquaredTerms.build(self.labels))
        if beside is None:
            return terms
        fixed = beside.scores(self.X, self.labels.n_threads)
        around: SquaredTerms = self.last("terms beside", lambda: terms.around(fixed), beside)
        return around

    def embedded(self, at: _At) -> np.ndarray:
        """A = XW."""
        A: np.ndarray = self.last("A", lambda: self.X.matmul(at[0]), at)
        return A

    def spectral(self, b: np.ndarray, side: str, *arguments: Any) -> np.ndarray:
        """A product of the spectral start."""

        def sides() -> SpectralSides:
            slope, row = self.labels.slope_at(self.loss, b)
            return SpectralSides(self.X, slope, row, self.labels.full_weight, self.first_row)

        product: np.ndarray = getattr(self.last("sides", sides, b), side)(*arguments)
        return product

    def loss_at(self, at: _At, labels: _Labels, beside: Beside | None, derivative: str, *direction: np.ndarray) -> Any:
        """The loss at W for fixed labels, its gradient, or its Hessian times a direction (d×k)."""

        def problem() -> SquaredFeatureProblem | FeatureProblem:
            self._last.pop("sides", None)  # of the start alone
            H, b = labels
            if self.loss.quadratic:
                assert b is not None
                return SquaredFeatureProblem(self.X, self.terms(beside), H, b)
            pairs = self.last("pairs", lambda: row_side(self.labels, self.loss))
            extended = H if b is None else np.column_stack([H, b]).astype(H.dtype)
            return FeatureProblem(self.X, pairs, extended, H.shape[1])

        def moved() -> SquaredFeatureProblem | FeatureProblem:
            made = self.last("problem", problem, labels, beside)
            (known, *_), A = self._last.pop("A", ((None,), None))  # given up: steps can use its memory
            made.move_to(at[0], A if known is at else None)
            return made

        return getattr(self.last("moved", moved, at, labels, beside), derivative)(*direction)

    def label_sums(self, beside: Beside | None, at: _At, fit_intercept: bool) -> LabelSums:
        """Sums that determine H and b."""
        return self.terms(beside).label_sums(self.embedded(at), fit_intercept=fit_intercept)

    def squared_loss(self, at: _At, H: np.ndarray, b: np.ndarray) -> float:
        """The squared loss, whatever is beside."""
        return self.terms(None).value(self.embedded(at), H, b)


# ---------------------------------------------------------------------- labels in blocks


def solved_block(
    block: Block, data: FitData, beside: Beside | None, at: _At, start: np.ndarray, how: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray, float]:
    """H and b of some labels for fixed W, from their last ones, and loss + ½λ‖H‖² there."""
    shard, labels, columns = _shard(data, (0, data.n_rows)), data.targets_of(block), slice(*block)
    terms = None
    if labels is data.targets and data.loss.quadratic:
        terms = shard.terms(beside)
    elif data.loss.quadratic:
        terms = data.once(("terms", block), lambda: SquaredTerms.build(labels))
        if beside is not None:
            some = Beside(beside.S[:, columns], beside.offset)
            terms = terms.around(some.scores(shard.X, data.n_threads))
    return solve_labels(labels, shard.embedded(at), data.loss, start=start[columns], terms=terms, **how)


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
            return terms.solve_labels(A, reg, fit_intercept=fit_intercept)
        squared = SquaredLabelProblem(terms, A, reg, fit_intercept=fit_intercept)
        squared.move_to(start)
        step = quadratic_step(squared, tol=1e-3, max_iter=inner_iter, inner=dot_rows)
        solution, value = start + step.solution, terms.constant + float(squared.value().sum() - step.fall.sum())
    else:
        extended = with_intercept(A) if fit_intercept else A
        problem, limits = LabelProblem(label_side(labels, loss), extended, rank, reg), dict[str, Any]()
        if start is None:
            start = np.zeros((labels.shape[1], extended.shape[1]), dtype=A.dtype)
            if fit_intercept:
                start[:, rank] = loss.constant(labels.rates())
            limits = {"tol": _SOLVED_TOLERANCE, "max_iter": _SOLVED_STEPS}
        else:
            limits = {"tol": _LABEL_TOLERANCE, "max_iter": _LABEL_STEPS, "cg_max_iter": inner_iter}
        result = tron(problem, start, **limits, inner=dot_rows)
        solution, value = result.solution, float(result.value.sum())
    b = solution[:, rank].astype(np.float64) if fit_intercept else np.zeros(len(solution))
    return np.ascontiguousarray(solution[:, :rank]), b, value
