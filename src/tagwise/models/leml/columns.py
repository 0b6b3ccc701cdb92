"""The steps of a round of LEML on several machines: W in columns, of which each block is a problem almost of its own.

Squared loss with all labels known meets H in HᵀH alone. In coordinates in which that is diagonal, HᵀH = QΛQᵀ, the
columns of WQ share no term of the objective. Conjugate gradients are the same in any orthonormal coordinates, so that
blocks of columns take the steps of a local fit when they agree on two inner products. W itself moves once in a round.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from tagwise.estimator import OVERFLOW
from tagwise.exceptions import InvalidInputError
from tagwise.executor import Block, Executor, current_executor
from tagwise.kernels import gram
from tagwise.kernels.vectors import aligned_copy, axpy, aypx, dot_all
from tagwise.models.factor_model import FitData
from tagwise.models.leml.steps import Alternation, Beside, Factors, Point, whole_shard
from tagwise.objectives.labels import subspace_iteration
from tagwise.objectives.squared import LabelSums, SquaredFeatureProblem, with_intercept
from tagwise.parallel import even_chunks

__all__ = ["alternation"]

# Narrower blocks of columns are read from memory no faster.
_LEAST_COLUMNS = 8
_TOLERANCE = 1e-3
# Rows whose noise is drawn at a time.
_NOISE_ROWS = 1 << 12

_Steps = tuple[tuple[float, float], ...]
"""Lengths of the steps so far along the directions of conjugate gradients, and what of a direction the next keeps."""


def alternation(data: FitData, reg: float, *, executor: Executor | None = None, **options: Any) -> Alternation:
    """The steps of a round: W in columns where they are divided, if it falls into columns, and else in rows."""
    executor = current_executor() if executor is None else executor
    by_columns = executor.n_blocks > 1 and data.loss.quadratic and data.known is None and data.positive_weight is None
    return (ByColumns if by_columns else Alternation)(data, reg, executor=executor, **options)


class ByColumns(Alternation):
    """The steps of a round for squared loss with all labels known, divided by columns of W and H."""

    def _over_columns(self, rank: int) -> list[Block]:
        n_blocks = max(1, min(self.executor.n_blocks, rank // _LEAST_COLUMNS))
        return even_chunks(rank, -(-rank // n_blocks))

    def spectral_start(self, b: np.ndarray, rank: int, rng: np.random.Generator) -> np.ndarray:
        """As of :class:`Alternation`; only label sides leave the workers."""
        executor, columns, intercept = self.executor, self._over_columns(rank), self.executor.share(b)
        noise = np.hstack(executor.map(label_side_of_noise, columns, self.data, intercept, rank, rng))
        try:
            return subspace_iteration(
                noise,
                lambda H: np.hstack(
                    executor.map(label_side_of_labels, columns, self.data, intercept, executor.share(H))
                ),
                lambda found: found,
                self.local.X.dtype,
            )
        finally:
            executor.map(forget_start, columns, self.data)

    def step_features(self, factors: Factors) -> float:
        """As of :class:`Alternation`: blocks send inner products, and W at the end."""
        H, executor, columns = factors.H, self.executor, self._over_columns(factors.H.shape[1])
        _, rotation = np.linalg.eigh(gram(H, n_threads=self.n_threads))
        rotation = rotation.astype(H.dtype)
        at, labels = self.at(factors.W), executor.share((H, factors.b))
        common = self.data, self._beside, at, labels, rotation, self.reg
        steps: _Steps = ()
        start = squared = fall = 0.0
        for turn in range(self.inner_iter):
            found = executor.sum(products_of_columns, columns, *common, steps)
            length, curvature, along, product = found.tolist()
            if turn == 0:
                start = squared = length
            if not np.isfinite(start):
                raise InvalidInputError(OVERFLOW)
            if squared <= _TOLERANCE**2 * start or not curvature > 0:
                break
            step = squared / curvature
            fall += 0.5 * step * squared
            # Of the residual after the step: ‖r − αp‖².
            left = max(squared - 2 * step * along + step**2 * product, 0.0)
            steps, squared = (*steps, (step, left / squared)), left
            if squared <= _TOLERANCE**2 * start:
                break
        moved = executor.keep(moved_columns, columns, *common, steps)
        here = Point([executor.value(part) for part in moved], rotation)
        factors.W = here.W
        self._at = factors.W, executor.share(Point(moved, rotation)), here, moved
        return fall

    def step_labels(self, factors: Factors) -> float:
        """As of :class:`Alternation`."""
        columns = self._over_columns(factors.W.shape[1])
        rows = even_chunks(self.local.n_rows, -(-self.local.n_rows // len(columns)))
        blocks = list(zip(columns, [*rows, *[(0, 0)] * (len(columns) - len(rows))]))
        sums = self.executor.map(
            label_sums_of_columns, blocks, self.data, self._beside, self.at(factors.W), self.fit_intercept
        )
        systems, sides, intercepts, constants = zip(*sums)
        found = LabelSums(sum(systems), np.hstack(sides), intercepts[0])
        solved = found.solve(self.reg, constants[0], n_threads=self.n_threads)
        factors.H, factors.b = solved.H, solved.intercept
        return solved.value


# ---------------------------------------------------------------------- what workers run


def label_side_of_noise(
    columns: Block, data: FitData, b: np.ndarray, rank: int, rng: np.random.Generator
) -> np.ndarray:
    """Of noise on the rows, DᵀXXᵀ·noise: (L, columns)."""
    sides, noise = whole_shard(data).sides(b), np.empty((data.n_rows, columns[1] - columns[0]), data.X.dtype)
    rng = deepcopy(rng)  # all blocks draw the same
    for start, stop in even_chunks(len(noise), _NOISE_ROWS):
        noise[start:stop] = rng.standard_normal((stop - start, rank))[:, slice(*columns)]
    return sides.label_side(sides.X.rmatmul(noise))


def label_side_of_labels(columns: Block, data: FitData, b: np.ndarray, H: np.ndarray) -> np.ndarray:
    """DᵀXXᵀDH (L, columns)."""
    sides = whole_shard(data).sides(b)
    return sides.label_side(sides.feature_side(np.ascontiguousarray(H[:, slice(*columns)])))


def forget_start(columns: Block, data: FitData) -> None:
    """Free what the spectral start alone needs."""
    whole_shard(data).forget_start()


class _Descent:
    """Conjugate gradients for some columns of WQ, from the W of a round; the steps' lengths are given."""

    def __init__(
        self,
        columns: Block,
        data: FitData,
        beside: Beside | None,
        at: Point,
        labels: tuple[np.ndarray, np.ndarray],
        rotation: np.ndarray,
        reg: float,
    ) -> None:
        (H, b), shard = labels, whole_shard(data)
        own = rotation[:, slice(*columns)]
        self.reg, self.n_threads, self.steps = H.dtype.type(reg), data.n_threads, ()
        self.solution = at.W @ own
        self.problem = SquaredFeatureProblem(shard.X, shard.terms_beside(beside), H @ own, b)
        self.problem.move_to(self.solution)
        self.residual = self.problem.gradient()
        self._add(self.residual, self.reg, self.solution)
        np.negative(self.residual, out=self.residual)
        self.direction, self.product = aligned_copy(self.residual), None

    def _add(self, to: np.ndarray, factor: np.floating[Any], array: np.ndarray) -> None:
        axpy(to, factor, array, n_threads=self.n_threads)

    def advance(self, steps: _Steps) -> None:
        """Take those of the steps that are not taken yet."""
        for length, kept in steps[len(self.steps) :]:
            product, kind = self.multiplied(), self.residual.dtype.type
            self._add(self.solution, kind(length), self.direction)
            self._add(self.residual, kind(-length), product)
            aypx(self.direction, np.array(kept, dtype=kind), self.residual, n_threads=self.n_threads)
            self.product = None
        self.steps = steps

    def multiplied(self) -> np.ndarray:
        """The Hessian times the direction."""
        if self.product is None:
            self.product = self.problem.hessian_vector(self.direction)
            self._add(self.product, self.reg, self.direction)
        return self.product


def _descended(columns: Block, data: FitData, *common: Any) -> _Descent:
    """The descent after some steps: where this process stopped, or from the start where it was not this far."""
    *problem, steps = common
    made = data.once(("descent", columns), dict)
    at = problem[1]  # another one in each round
    descent = made.get("descent")
    if descent is None or made["round"] is not at or descent.steps != steps[: len(descent.steps)]:
        made.clear()
        made["round"], made["descent"] = at, _Descent(columns, data, *problem)
    made["descent"].advance(steps)
    return made["descent"]


def products_of_columns(columns: Block, data: FitData, *common: Any) -> np.ndarray:
    """‖r‖², ⟨d, p⟩, ⟨r, p⟩ and ‖p‖² of the residual, the direction and its product, after some steps."""
    here = _descended(columns, data, *common)
    residual, direction, product = here.residual, here.direction, here.multiplied()
    pairs = (residual, residual), (direction, product), (residual, product), (product, product)
    return np.array([dot_all(*pair, n_threads=here.n_threads).item() for pair in pairs])


def moved_columns(columns: Block, data: FitData, *common: Any) -> np.ndarray:
    """Some columns of WQ after the last step."""
    found = _descended(columns, data, *common).solution
    data.once(("descent", columns), dict).clear()
    return found


def label_sums_of_columns(
    block: tuple[Block, Block], data: FitData, beside: Beside | None, at: Point, fit_intercept: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """TᵀA for some columns of A = XW, some rows' part of AᵀA, Tᵀ1, and the constant of the loss."""
    columns, rows = block
    shard = whole_shard(data)
    terms = shard.terms_beside(beside)
    A = data.features(rows).matmul(at.W)
    A, weight = with_intercept(A) if fit_intercept else A, data.row_weight
    weighted = A if weight is None else A * weight[slice(*rows), None].astype(A.dtype)
    side = terms.targets.rmatmul(shard.X.matmul(np.ascontiguousarray(at.W[:, slice(*columns)])))
    intercept = np.zeros((len(side), 1))
    if fit_intercept and columns[0] == 0:
        intercept[:] = terms.targets.rmatmul(np.ones((data.n_rows, 1), A.dtype))
    return gram(A, weighted), side, intercept, terms.constant
