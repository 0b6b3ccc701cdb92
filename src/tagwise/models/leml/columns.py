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
from tagwise.executor import Block, Executor, Threads, current_executor
from tagwise.kernels import gram
from tagwise.kernels.vectors import aligned_copy, axpy, aypx, dot_all
from tagwise.models.factor_model import FitData
from tagwise.models.leml.steps import Alternation, Beside, Factors, Point, whole_shard
from tagwise.objectives.labels import subspace_iteration
from tagwise.objectives.squared import LabelSums, SquaredFeatureProblem, with_intercept
from tagwise.parallel import even_chunks, single_threaded_blas

__all__ = ["alternation"]

# Products of narrower blocks take hardly less time, and those of less work less than Dask takes for a task.
_LEAST_COLUMNS, _LEAST_WORK = 4, 1e8
_TOLERANCE = 1e-3
# Of columns that the inverse of their triangle makes orthonormal.
_MOST_CONDITION = 1e6
# Labels whose factors are solved for together, as in LabelSums.
_LABELS = 256
# Rows whose noise is drawn at a time.
_NOISE_ROWS = 1 << 12

_Steps = tuple[tuple[float, float], ...]
"""Lengths of the steps so far along the directions of conjugate gradients, and what of a direction the next keeps."""


def alternation(data: FitData, reg: float, *, executor: Executor | None = None, **options: Any) -> Alternation:
    """The steps of a round: on a cluster W in columns, if the loss lets it fall into columns, and else in rows."""
    executor = current_executor() if executor is None else executor
    divided = not isinstance(executor, Threads)
    by_columns = divided and data.loss.quadratic and data.known is None and data.positive_weight is None
    return (ByColumns if by_columns else Alternation)(data, reg, executor=executor, **options)


class Product:
    """H (L×k), the first columns of a product of blocks that stay where they were made and a small square matrix."""

    def __init__(self, blocks: list[Any], right: np.ndarray) -> None:
        self.blocks, self.right = blocks, right

    def times(self, right: np.ndarray) -> np.ndarray:
        """H @ right. H has the bits that it has at the client, a few labels at a time."""
        (n_labels, _), dtype = self.blocks[0].shape, self.blocks[0].dtype
        product = np.empty((n_labels, right.shape[1]), dtype)
        for start, stop in even_chunks(n_labels, _LABELS):
            sides = np.hstack([block[start:stop] for block in self.blocks]).astype(np.float64)
            product[start:stop] = (sides @ self.right)[:, : len(right)].astype(dtype) @ right
        return product


class ByColumns(Alternation):
    """The steps of a round for squared loss with all labels known, divided by columns of W and H."""

    _sides: tuple[np.ndarray, Product] | None = None
    """The last H, and how workers have it."""

    def _over_columns(self, rank: int) -> list[Block]:
        by_work = int(self.local.entries_per_row().sum() * rank / _LEAST_WORK)
        n_blocks = max(1, min(self.executor.n_blocks, rank // _LEAST_COLUMNS, by_work))
        return even_chunks(rank, -(-rank // n_blocks))

    def spectral_start(self, b: np.ndarray, rank: int, rng: np.random.Generator) -> np.ndarray:
        """As of :class:`Alternation`; only label sides leave the workers."""
        executor, columns, intercept = self.executor, self._over_columns(rank), self.executor.share(b)
        common = self.data, intercept
        made = executor.keep(label_side_of_noise, columns, *common, rank, rng)

        def product(basis: np.ndarray) -> np.ndarray:
            nonlocal made
            made = executor.keep(label_side_of_labels, columns, *common, executor.share(self._product(basis, made)))
            return self._whole(made)

        try:
            H = subspace_iteration(self._whole(made), product, lambda found: found, self.local.X.dtype)
        finally:
            executor.map(forget_start, columns, self.data)
        self._sides = H, self._product(H, made)
        return H

    def _whole(self, blocks: list[Any]) -> np.ndarray:
        return np.hstack([self.executor.value(block) for block in blocks])

    def _product(self, basis: np.ndarray, made: list[Any]) -> Product:
        """An orthonormal basis of what workers have made, by what they have unless its columns are nearly dependent."""
        triangle = basis.T.astype(np.float64) @ self._whole(made)
        if np.linalg.cond(triangle) > _MOST_CONDITION:
            return Product([self.executor.share(basis)], np.eye(len(triangle)))
        return Product(made, np.linalg.inv(triangle))

    def step_features(self, factors: Factors) -> float:
        """As of :class:`Alternation`: blocks send inner products, and W at the end."""
        H, executor, columns = factors.H, self.executor, self._over_columns(factors.H.shape[1])
        _, rotation = np.linalg.eigh(gram(H, n_threads=self.n_threads))
        rotation = rotation.astype(H.dtype)
        if self._sides is None or self._sides[0] is not H:
            self._sides = H, Product([executor.share(H)], np.eye(len(rotation)))
        at, labels = self.at(factors.W), executor.share((self._sides[1], factors.b, rotation))
        common = self.data, self._beside, at, labels, self.reg
        steps: _Steps = ()
        start = squared = fall = 0.0
        for turn in range(self.inner_iter):
            found = executor.sum(products_of_columns, columns, *common, steps)
            length, curvature, along, squares = found.tolist()
            if turn == 0:
                start = squared = length
            if not np.isfinite(start):
                raise InvalidInputError(OVERFLOW)
            if squared <= _TOLERANCE**2 * start or not curvature > 0:
                break
            step = squared / curvature
            fall += 0.5 * step * squared
            # Of the residual after the step: ‖r − αp‖².
            left = max(squared - 2 * step * along + step**2 * squares, 0.0)
            steps, squared = (*steps, (step, left / squared)), left
            if squared <= _TOLERANCE**2 * start:
                break
        moved = executor.keep(moved_columns, columns, *common, steps)
        here = Point([executor.value(part) for part in moved], rotation)
        with single_threaded_blas():  # as on workers
            factors.W = here.W
        self._at = factors.W, executor.share(Point(moved, rotation)), here, moved
        return fall

    def step_labels(self, factors: Factors) -> float:
        """As of :class:`Alternation`."""
        columns = self._over_columns(factors.W.shape[1])
        rows = even_chunks(self.local.n_rows, -(-self.local.n_rows // len(columns)))
        common = self.data, self._beside, self.at(factors.W)
        sides = self.executor.keep(label_side_of_columns, columns, *common)
        system, intercept, constant = self.executor.sum(label_system, rows, *common, self.fit_intercept)
        found = LabelSums(system, self._whole(sides), intercept.copy())  # b takes the place of the copy
        solved = found.solve(self.reg, constant, n_threads=self.n_threads)
        factors.H, factors.b = solved.H, solved.intercept
        # The system has its penalty by now.
        blocks = [*sides, intercept] if self.fit_intercept else sides
        self._sides = factors.H, Product(blocks, np.linalg.inv(system))
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


def label_side_of_labels(columns: Block, data: FitData, b: np.ndarray, H: Product) -> np.ndarray:
    """DᵀXXᵀDH (L, columns)."""
    sides = whole_shard(data).sides(b)
    return sides.label_side(sides.feature_side(H.times(np.eye(len(H.right), dtype=data.X.dtype)[:, slice(*columns)])))


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
        labels: tuple[Product, np.ndarray, np.ndarray],
        reg: float,
    ) -> None:
        (H, b, rotation), shard = labels, whole_shard(data)
        own = rotation[:, slice(*columns)]
        self.reg, self.n_threads = rotation.dtype.type(reg), data.n_threads
        self.steps: _Steps = ()
        self.solution = at.W @ own
        self.problem = SquaredFeatureProblem(shard.X, shard.terms_beside(beside), H.times(own), b)
        self.problem.move_to(self.solution)
        self.residual = self.problem.gradient()
        self._add(self.residual, self.reg, self.solution)
        np.negative(self.residual, out=self.residual)
        self.direction = aligned_copy(self.residual)
        self.product: np.ndarray | None = None

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
            product = self.problem.hessian_vector(self.direction)
            self._add(product, self.reg, self.direction)
            self.product = product
        return self.product


def _descended(columns: Block, data: FitData, *common: Any) -> _Descent:
    """The descent after some steps: where this process stopped, or from the start where it was not this far."""
    *problem, steps = common
    made: dict[str, Any] = data.once(("descent", columns), dict)
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


def label_side_of_columns(columns: Block, data: FitData, beside: Beside | None, at: Point) -> np.ndarray:
    """TᵀA (L×columns) for some columns of A = XW."""
    shard = whole_shard(data)
    return shard.terms_beside(beside).targets.rmatmul(shard.X.matmul(np.ascontiguousarray(at.W[:, slice(*columns)])))


def label_system(
    rows: Block, data: FitData, beside: Beside | None, at: Point, fit_intercept: bool
) -> tuple[np.ndarray, np.ndarray, float]:
    """[A, 1]ᵀ[A, 1] of some rows; and, with the first of them, Tᵀ1 of all rows and the constant of the loss."""
    terms, first = whole_shard(data).terms_beside(beside), rows[0] == 0
    A, weight = data.features(rows).matmul(at.W), data.row_weight
    A = with_intercept(A) if fit_intercept else A
    weighted = A if weight is None else A * weight[slice(*rows), None].astype(A.dtype)
    intercept = np.zeros((data.n_labels, 1))
    if fit_intercept and first:
        intercept += terms.targets.rmatmul(np.ones((data.n_rows, 1), A.dtype))
    return gram(A, weighted), intercept, terms.constant if first else 0.0
