"""LEML's rounds on shards of the rows.

W, H and b live at the client between steps; shards answer with sums, which a tree of workers adds up. With squared loss
and all labels known, a round costs the client W (d×k) and H (L×k) once each way: rotated by the eigenvectors of HᵀH,
the columns of W are independent ridge regressions, so blocks of them have their conjugate gradients on the cluster.
A step of these sends the direction of a block to the shards and adds up as much, d×k over all blocks; the client
receives four numbers per block. With a mask or weights of pairs the columns depend on each other: the solvers' vectors
are at the client, with d×k each way per step of W and L×(k+1) per step of H. Other losses take Newton steps of both,
with the same traffic. The mathematics of a shard are those of a local fit.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from distributed import Future

from tagwise.base import OVERFLOW
from tagwise.distributed.cluster import Cluster, Sent
from tagwise.distributed.parts import Shard, TrainingParts, known_counts, shard_of_part, task
from tagwise.exceptions import InvalidInputError
from tagwise.kernels.products import gram
from tagwise.kernels.vectors import dot_all, dot_rows
from tagwise.losses import Loss
from tagwise.models.leml.steps import (
    DIRECT_RANK,
    FEATURE_STEPS,
    LABEL_STEPS,
    LABEL_TOLERANCE,
    Factors,
)
from tagwise.problems.labels import KnownCounts, SpectralSides, subspace_iteration
from tagwise.problems.pair_losses import FeatureProblem, LabelProblem
from tagwise.problems.squared import LabelSums, SquaredFeatureProblem, SquaredLabelProblem, weighed, with_intercept
from tagwise.solvers.cg import SmoothProblem, quadratic_step
from tagwise.solvers.tron import tron

__all__ = ["ShardedRows"]

# Of a block of columns of W.
_COLUMN_BYTES = 1 << 24
# How near W's conjugate gradients come, as in a local fit.
_FEATURE_TOLERANCE = 1e-3
# Where a local fit solves the systems of labels exactly, conjugate gradients come this near.
_EXACT = 1e-7
# Normal numbers that are drawn and thrown away at a time.
_DRAWN = 1 << 20


class SummedProblem:
    """A sum of problems of shards, and a penalty ½ Σ p·x² (p broadcastable against the point).

    ``build`` makes the problem of a shard, without its penalty, from ``fixed`` arrays. ``axis`` is the one along which
    the variables of one problem lie, None where all belong to one.
    """

    def __init__(
        self,
        cluster: Cluster,
        shards: list[Future],
        build: Callable[..., SmoothProblem],
        fixed: list[Any],
        penalty: Any,
        *,
        quadratic: bool,
        axis: int | None = 1,
    ) -> None:
        self.cluster, self.shards, self.build, self.penalty, self.axis = cluster, shards, build, penalty, axis
        self.fixed = [Sent(one) if isinstance(one, np.ndarray) else one for one in fixed]
        self.quadratic = quadratic

        self._value: Any = None
        self._gradient: Any = None

    def move_to(self, x: np.ndarray) -> None:
        """The point; shards are told with what they are asked for."""
        self._x, self._sent, self._value, self._gradient = x, Sent(x), None, None

    def value(self) -> np.ndarray:
        """The sum, with the gradient on the way: solvers that ask for one ask for the other."""
        if self._value is None:
            found = self.cluster.sum(value_and_gradient, self.shards, self.build, self._sent, *self.fixed)
            self._value, self._gradient = found
        penalty = 0.5 * np.asarray(self.penalty) * self._x.astype(np.float64) ** 2
        return self._value + penalty.sum(axis=self.axis, keepdims=True)

    def gradient(self) -> np.ndarray:
        """The sum, and p·x."""
        if self._gradient is None:
            self._gradient = self.cluster.sum(gradient, self.shards, self.build, self._sent, *self.fixed)
        return self._gradient + np.asarray(self.penalty, dtype=self._x.dtype) * self._x

    def hessian_vector(self, direction: np.ndarray) -> np.ndarray:
        """The sum, and p·direction."""
        point = None if self.quadratic else self._sent
        product = self.cluster.sum(curvature, self.shards, self.build, point, direction, *self.fixed)
        return product + np.asarray(self.penalty, dtype=direction.dtype) * direction


class ColumnState(NamedTuple):
    """Conjugate gradients of a block of columns (d×m): the step so far, what is left of the slope, the direction."""

    step: np.ndarray
    residual: np.ndarray
    direction: np.ndarray


class Columns(NamedTuple):
    """A block of columns of WQ (d×m) and HQ (L×m), both on the cluster, and their eigenvalues λ of HᵀH (m,)."""

    W: Any
    H: Any
    curvature: np.ndarray


def column_steps(
    cluster: Cluster, shards: list[Future], blocks: list[Columns], fixed: list[Any], *, reg: float, max_iter: int
) -> tuple[list[np.ndarray], float]:
    """Conjugate gradients of (λXᵀX + reg)s = −slope for all columns of all blocks: their steps, and the fall.

    Lengths of steps are those of :func:`~tagwise.solvers.cg.conjugate_gradient` of all columns together. The squared
    residual after a step, ‖r − αq‖², follows from sums that are made before it, so the client is waited for only once.
    """

    def summed(function: Callable[..., np.ndarray], *arguments: Any) -> Future:
        return cluster.tree([cluster.submit(function, shard, *arguments) for shard in shards])

    states = [
        cluster.submit(column_start, summed(gradient, squared_features, own.W, own.H, *fixed), own.W, reg)
        for own in blocks
    ]
    fall, start = 0.0, None
    for _ in range(max_iter):
        products = [summed(gram_of_rows_times, cluster.submit(direction_of, state)) for state in states]
        pairs = [
            (state, cluster.submit(curved, product, state, own.curvature, reg))
            for state, product, own in zip(states, products, blocks)
        ]
        sums = cluster.gathered([cluster.submit(column_sums, *pair) for pair in pairs])
        squared, along, across, product_squared = np.sum(sums, axis=0)
        if not np.isfinite(squared):
            raise InvalidInputError(OVERFLOW)
        start = squared if start is None else start
        if not along > 0:
            break
        length = squared / along
        fall += 0.5 * length * squared
        left = max(squared - 2 * length * across + length**2 * product_squared, 0.0)
        states = [cluster.submit(column_move, *pair, length, left / squared) for pair in pairs]
        if left <= _FEATURE_TOLERANCE**2 * start:
            break
    return cluster.gathered([cluster.submit(step_of, state) for state in states]), fall


@task
def column_start(gradient: np.ndarray, W: np.ndarray, reg: float) -> ColumnState:
    """The slope downhill at W."""
    residual = -(gradient + W.dtype.type(reg) * W)
    return ColumnState(np.zeros_like(W), residual, residual)


@task
def direction_of(state: ColumnState) -> np.ndarray:
    """What shards are sent."""
    return state.direction


@task
def step_of(state: ColumnState) -> np.ndarray:
    """What the client is sent."""
    return state.step


@task
def gram_of_rows_times(shard: Shard, direction: np.ndarray) -> np.ndarray:
    """XᵀVX·direction."""
    X, weight = shard.X, shard.labels.row_weight
    return X.rmatmul_blocks(lambda start, stop: weighed(X.matmul_rows(direction, start, stop), weight, start, stop))


@task
def curved(product: np.ndarray, state: ColumnState, curvature: np.ndarray, reg: float) -> np.ndarray:
    """(λXᵀVX + reg)·direction."""
    return product * curvature + product.dtype.type(reg) * state.direction


@task
def column_sums(state: ColumnState, product: np.ndarray) -> tuple[float, ...]:
    """‖r‖², ⟨p, q⟩, ⟨r, q⟩ and ‖q‖²: of the residual, the direction and the product."""
    pairs = (state.residual, state.residual), (state.direction, product), (state.residual, product), (product, product)
    return tuple(dot_all(*pair).item() for pair in pairs)


@task
def column_move(state: ColumnState, product: np.ndarray, length: float, turn: float) -> ColumnState:
    """A step along the direction, and the next direction."""
    of_type = product.dtype.type
    residual = state.residual - of_type(length) * product
    step = state.step + of_type(length) * state.direction
    return ColumnState(step, residual, residual + of_type(turn) * state.direction)


@task
def value_and_gradient(
    shard: Shard, build: Callable[..., SmoothProblem], point: np.ndarray, *fixed: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Of a shard's problem at a point."""
    problem = build(shard, *fixed)
    problem.move_to(point)
    return problem.value(), problem.gradient()


@task
def gradient(shard: Shard, build: Callable[..., SmoothProblem], point: np.ndarray, *fixed: Any) -> np.ndarray:
    """Of a shard's problem at a point."""
    problem = build(shard, *fixed)
    problem.move_to(point)
    return problem.gradient()


@task
def curvature(
    shard: Shard, build: Callable[..., Any], point: np.ndarray | None, direction: np.ndarray, *fixed: Any
) -> np.ndarray:
    """Hessian · direction of a shard's problem; at a point, where that matters."""
    problem = build(shard, *fixed)
    if point is not None:
        problem.move_to(point)
        if hasattr(problem, "pairs"):
            problem.pairs.slope()  # the second derivatives come with the first
    return problem.hessian_vector(direction)


def squared_features(
    shard: Shard, H: np.ndarray, b: np.ndarray, S: sp.csr_matrix | None, offset: float
) -> SquaredFeatureProblem:
    """W for fixed H and b."""
    return SquaredFeatureProblem(shard.X, shard.terms_beside(S, offset), H, b, 0.0)


def squared_labels(
    shard: Shard, W: np.ndarray, fit_intercept: bool, S: sp.csr_matrix | None, offset: float
) -> SquaredLabelProblem:
    """H and b for fixed W, with a mask or weights."""
    return SquaredLabelProblem(shard.terms_beside(S, offset), shard.X.matmul(W), 0.0, fit_intercept=fit_intercept)


def newton_features(shard: Shard, loss: Loss, extended: np.ndarray, rank: int) -> FeatureProblem:
    """W for fixed [H, b]."""
    return FeatureProblem(shard.X, shard.row_side(loss), extended, rank, 0.0)


def newton_labels(shard: Shard, loss: Loss, W: np.ndarray, fit_intercept: bool) -> LabelProblem:
    """[H, b] for fixed W."""
    A = shard.X.matmul(W)
    return LabelProblem(shard.label_side(loss), with_intercept(A) if fit_intercept else A, W.shape[1], 0.0)


@task
def label_sums(shard: Shard, W: np.ndarray, fit_intercept: bool, S: sp.csr_matrix | None, offset: float) -> LabelSums:
    """What H and b follow from, all labels known and unweighted."""
    return shard.terms_beside(S, offset).label_sums(shard.X.matmul(W), fit_intercept=fit_intercept)


@task
def constant_of(shard: Shard) -> float:
    """What the loss of all scores 0 is."""
    return shard.terms.constant


@task
def start_from_noise(
    shard: Shard, rng: np.random.Generator, loss: Loss, intercept: np.ndarray, rank: int, dtype: Any
) -> np.ndarray:
    """Xᵀ·noise of a shard, whose noise ``rng`` is about to draw."""
    return _sides(shard, loss, intercept).of_noise(deepcopy(rng), rank, dtype)


@task
def start_feature_side(shard: Shard, loss: Loss, intercept: np.ndarray, H: np.ndarray) -> np.ndarray:
    """XᵀDH."""
    return _sides(shard, loss, intercept).feature_side(H)


@task
def start_label_side(shard: Shard, loss: Loss, intercept: np.ndarray, W: np.ndarray) -> np.ndarray:
    """DᵀXW."""
    return _sides(shard, loss, intercept).label_side(W)


def _sides(shard: Shard, loss: Loss, intercept: np.ndarray) -> SpectralSides:
    return SpectralSides(shard.X, *shard.labels.slope_at(loss, intercept), shard.labels.row_weight)


class ShardedRows:
    """Rows on a cluster, as :class:`~tagwise.models.leml.steps.TrainingRows`."""

    def __init__(
        self, parts: TrainingParts, loss: Loss, positive_weight: np.ndarray | None, *, normalize: bool, n_jobs: Any
    ) -> None:
        self.cluster, self.loss, self.positive_weight = parts.cluster, loss, positive_weight
        self.n_features, self.n_labels, self.dtype = parts.n_features, parts.n_labels, parts.dtype
        filled = [(part, fact) for part, fact in zip(parts.parts, parts.facts) if fact.n_rows]
        self.sizes = [fact.n_rows for _, fact in filled]
        self.masked = any(fact.n_known is not None for _, fact in filled)
        arguments = (positive_weight, normalize, self.dtype, n_jobs)
        self.shards = parts.cluster.stored(shard_of_part, [part for part, _ in filled], *arguments)
        self.counts: KnownCounts = self.cluster.sum(known_counts, self.shards)

    def rates(self) -> np.ndarray:
        """See :class:`~tagwise.models.leml.steps.TrainingRows`, as for all below."""
        weight = np.ones(self.n_labels) if self.positive_weight is None else self.positive_weight
        return self.counts.rates(weight)

    def unknown_labels(self) -> np.ndarray:
        """See above."""
        return np.flatnonzero(self.counts.known == 0)

    def spectral_start(self, intercept: np.ndarray, rank: int, rng: np.random.Generator) -> np.ndarray:
        """See above; the noise of all rows is drawn here once more, so that each shard can be told where its begins."""
        fixed = (self.loss, Sent(intercept))
        kept = self.cluster.kept(intercept)
        products = [
            self.cluster.submit(start_from_noise, shard, state, self.loss, kept, rank, self.dtype)
            for shard, state in zip(self.shards, _states(rng, self.sizes, rank))
        ]
        noise = self.cluster.gathered([self.cluster.tree(products)])[0]
        return subspace_iteration(
            noise,
            lambda H: self.cluster.sum(start_feature_side, self.shards, *fixed, H),
            lambda W: self.cluster.sum(start_label_side, self.shards, *fixed, W),
            self.dtype,
        )

    def embedded(self, W: np.ndarray) -> np.ndarray:
        """See above: A stays with the shards."""
        return self.zeros(W.shape[1])

    def zeros(self, rank: int) -> np.ndarray:
        """See above."""
        return np.zeros((0, rank), self.dtype)

    def steps(self, reg: float, *, fit_intercept: bool, inner_iter: int) -> SquaredSteps | NewtonSteps:
        """See above."""
        kind = SquaredSteps if self.loss.name == "squared" else NewtonSteps
        return kind(self, reg, fit_intercept=fit_intercept, inner_iter=inner_iter)


def _states(rng: np.random.Generator, sizes: list[int], rank: int) -> list[np.random.Generator]:
    """The generator as it is when the noise of each shard is about to be drawn; at last it has drawn all of it."""
    states = []
    for size in sizes:
        states.append(deepcopy(rng))
        left = size * rank
        while left:
            drawn = min(left, _DRAWN)
            rng.standard_normal(drawn)
            left -= drawn
    return states


class SquaredSteps:
    """As :class:`~tagwise.models.leml.steps.SquaredAlternation`, with the sums made by shards."""

    def __init__(self, rows: ShardedRows, reg: float, *, fit_intercept: bool, inner_iter: int) -> None:
        self.rows, self.reg, self.fit_intercept, self.inner_iter = rows, reg, fit_intercept, inner_iter
        self.constant = float(rows.cluster.sum(constant_of, rows.shards))
        self._fixed: tuple[Sent | None, float] = (None, 0.0)

    def beside(self, S: sp.csr_matrix, offset: float) -> None:
        """From now on, XS + offset is a part of all scores that the steps leave as it is."""
        self._fixed = (Sent(S), offset)

    def step_features(self, factors: Factors) -> float:
        """W by one run of conjugate gradients; by how much the objective fell."""
        rows = self.rows
        if self._columns_are_independent:
            return self._step_columns(factors)
        problem = SummedProblem(
            rows.cluster,
            rows.shards,
            squared_features,
            [factors.H, factors.b, *self._fixed],
            self.reg,
            quadratic=True,
            axis=None,
        )
        problem.move_to(factors.W)
        step = quadratic_step(problem, tol=_FEATURE_TOLERANCE, max_iter=self.inner_iter)
        if step.status == "not_finite":
            raise InvalidInputError(OVERFLOW)
        factors.W = factors.W + step.solution
        return step.fall.item()

    @property
    def _columns_are_independent(self) -> bool:
        return not self.rows.masked and self.rows.positive_weight is None

    def _step_columns(self, factors: Factors) -> float:
        """As above, in blocks of the columns of WQ, where HᵀH = QΛQᵀ."""
        rows, (S, offset), dtype = self.rows, self._fixed, factors.W.dtype
        eigenvalues, vectors = np.linalg.eigh(gram(factors.H).astype(np.float64))
        width = max(1, _COLUMN_BYTES // factors.W[:, :1].nbytes)
        places = [slice(start, start + width) for start in range(0, len(eigenvalues), width)]
        turned = [vectors[:, own].astype(dtype) for own in places]
        curvatures = [np.maximum(eigenvalues[own], 0).astype(dtype) for own in places]
        arguments = [factors.b, S, *(factors.W @ Q for Q in turned), *(factors.H @ Q for Q in turned)]

        def work(sent: list[Any]) -> tuple[list[np.ndarray], float]:
            b, sparse, *sides = sent
            blocks = [Columns(*own) for own in zip(sides[: len(places)], sides[len(places) :], curvatures)]
            fixed = [b, sparse, offset]
            return column_steps(rows.cluster, rows.shards, blocks, fixed, reg=self.reg, max_iter=self.inner_iter)

        steps, fall = rows.cluster.sending(arguments, work)
        factors.W = factors.W + sum(step @ Q.T for step, Q in zip(steps, turned))
        return fall

    def step_labels(self, factors: Factors) -> float:
        """H and b exactly, or for large ranks a few steps; loss + ½λ‖H‖² there."""
        rows, rank = self.rows, factors.W.shape[1]
        if self._columns_are_independent:
            sums = rows.cluster.sum(label_sums, rows.shards, factors.W, self.fit_intercept, *self._fixed)
            solved = LabelSums(*(np.array(part) for part in sums)).solve(self.reg, self.constant)
            factors.H, factors.b = solved.H, solved.intercept
            return solved.value
        start = factors.with_intercept() if self.fit_intercept else factors.H
        penalty = np.zeros((1, start.shape[1]))
        penalty[0, :rank] = self.reg
        problem = SummedProblem(
            rows.cluster,
            rows.shards,
            squared_labels,
            [factors.W, self.fit_intercept, *self._fixed],
            penalty,
            quadratic=True,
        )
        problem.move_to(start)
        before = problem.value().sum()
        exact = rank <= DIRECT_RANK
        step = quadratic_step(
            problem,
            tol=_EXACT if exact else 1e-3,
            max_iter=4 * start.shape[1] if exact else self.inner_iter,
            inner=dot_rows,
        )
        factors.take_labels(start + step.solution, fit_intercept=self.fit_intercept)
        return self.constant + float(before - step.fall.sum())


class NewtonSteps:
    """As :class:`~tagwise.models.leml.steps.NewtonAlternation`, with the sums made by shards."""

    def __init__(self, rows: ShardedRows, reg: float, *, fit_intercept: bool, inner_iter: int) -> None:
        self.rows, self.reg, self.fit_intercept, self.inner_iter = rows, reg, fit_intercept, inner_iter

    def step_features(self, factors: Factors) -> float:
        """W by a few Newton steps."""
        rows, rank = self.rows, factors.H.shape[1]
        extended = factors.with_intercept() if self.fit_intercept else factors.H
        problem = SummedProblem(
            rows.cluster,
            rows.shards,
            newton_features,
            [rows.loss, extended, rank],
            self.reg,
            quadratic=False,
            axis=None,
        )
        result = tron(problem, factors.W, tol=1e-3, max_iter=FEATURE_STEPS, cg_max_iter=self.inner_iter, inner=dot_all)
        if not np.isfinite(result.value).all():
            raise InvalidInputError(OVERFLOW)
        factors.W = result.solution
        return float((result.start_value - result.value).item())

    def step_labels(self, factors: Factors) -> float:
        """H and b by a few Newton steps of all labels together."""
        rows, rank = self.rows, factors.H.shape[1]
        start = factors.with_intercept() if self.fit_intercept else factors.H
        penalty = np.zeros((1, start.shape[1]), dtype=start.dtype)
        penalty[0, :rank] = self.reg
        fixed = [rows.loss, factors.W, self.fit_intercept]
        problem = SummedProblem(rows.cluster, rows.shards, newton_labels, fixed, penalty, quadratic=False)
        result = tron(
            problem, start, tol=LABEL_TOLERANCE, max_iter=LABEL_STEPS, cg_max_iter=self.inner_iter, inner=dot_rows
        )
        factors.take_labels(result.solution, fit_intercept=self.fit_intercept)
        return float(result.value.sum())
