"""REML's third block, H (problem 6c): what no low rank explains, label by label beside a fixed low rank.

H is called S here, beside LEML's W, H and b for the low rank. Labels are independent of each other, so either form of
the step is a map over blocks of labels, from the shared features and the low rank to the columns of S of that block
and its share of the objective, and a sum of these shares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.executor import Block
from tagwise.kernels import BlockFeatures, CSRWithTranspose, FeatureMatrix, gram
from tagwise.losses import get_loss
from tagwise.models.factor_model import FitData
from tagwise.models.leml.steps import Alternation, Factors, Point, whole_shard
from tagwise.objectives.labels import LabelColumns
from tagwise.objectives.squared import with_intercept
from tagwise.parallel import even_chunks, run_chunks
from tagwise.solvers.admm import (
    ADMMResult,
    L1FitRidge,
    WeightedL1FitRidge,
    columns_that_fit,
    factorisation_bytes,
)
from tagwise.solvers.support import SupportFeatures, SupportRidge

__all__ = ["ADMMPart", "SparsePart", "SparseStep", "SupportPart", "admm_fits", "pruned", "words_of"]

# A factorisation of this side takes seconds.
_QUICK_SIDE = 2000
# ADMM within a round: the next round changes its problem, so that a few digits are enough.
_ROUND_TOL, _ROUND_STEPS = 1e-3, 50
# Numbers of a dense S that are looked at together when it is pruned.
_PRUNED_AT_ONCE = 1 << 18

# Of a block of labels: the objective at an S, and ADMM from a split.
_Objective: TypeAlias = Callable[[np.ndarray], np.ndarray]
_Solve: TypeAlias = Callable[[np.ndarray | None], ADMMResult]
_Block: TypeAlias = Callable[[Factors, np.ndarray], tuple[_Objective, _Solve]]


@dataclass(frozen=True)
class SparseStep:
    """The new S (d×L, CSR or dense), the loss with S's own penalties there, and how many labels fell short of it."""

    weights: sp.csr_matrix | np.ndarray
    value: float
    unsolved: int


class SupportPart:
    """S on a few features per label, chosen in the first round and kept: restricted least squares.

    A dense block of features is in the low rank alone. ``keep_gram=False`` is for few labels, which add up what they
    need of XᵀX faster than all of it is.
    """

    def __init__(self, *, reg: float, support: int, memory_limit: float, keep_gram: bool = True) -> None:
        self.reg, self.support, self.memory_limit, self.keep_gram = reg, support, memory_limit, keep_gram
        self._place: str | None = None

    def step(self, steps: Alternation, factors: Factors, last: sp.csr_matrix | np.ndarray | None) -> SparseStep:
        """Exact on the supports, so that the value is known without another look at the data."""
        executor = steps.executor
        if self._place is None:
            self._place = executor.place()
        shared = [executor.share(one) for one in (self, factors.H, factors.b, last)]
        at = steps.at(factors.W)
        weights, gains = zip(*executor.map(support_block, steps.label_blocks, steps.data, at, *shared))
        value = steps.squared_loss(factors) - float(sum(gain.sum() for gain in gains))
        whole = weights[0] if len(weights) == 1 else sp.csr_matrix(sp.hstack(weights, format="csr"))
        return SparseStep(whole, value, unsolved=0)

    def features(self, data: FitData) -> SupportFeatures:
        """Statistics of the features that the supports of all labels share, made once by each process."""
        return data.once(
            ("support", self.keep_gram),
            lambda: SupportFeatures.build(
                words_of(data.features()).matrix,
                support=self.support,
                with_gram=self.keep_gram and data.known is None,
                row_weight=data.row_weight,
                memory_limit=self.memory_limit,
                n_threads=data.n_threads,
                place=self._place,
            ),
            of_features=True,
        )

    def ridge(self, data: FitData, block: Block) -> SupportRidge:
        """The problems of some labels."""
        labels = data.targets_of(block)
        return data.once(
            ("ridge", block),
            lambda: SupportRidge(
                self.features(data),
                labels.positives,
                known=labels.observed,
                reg=self.reg,
                support=self.support,
                positive_weight=labels.positive_weight,
                n_threads=labels.n_threads,
            ),
        )


def support_block(
    block: Block,
    data: FitData,
    at: Point,
    part: SupportPart,
    H: np.ndarray,
    b: np.ndarray,
    last: sp.csr_matrix | None,
) -> tuple[sp.csr_matrix, np.ndarray]:
    """S of some labels beside a low rank, on the supports of the last round; and by how much it lowers the loss."""
    X, W, columns = data.features(), at.W, slice(*block)
    if last is not None and block != (0, last.shape[1]):
        last = sp.csr_matrix(last[:, columns])
    beside = X.dense.matmul(W[-X.dense.shape[1] :]) if isinstance(X, BlockFeatures) else None
    solved = part.ridge(data, block).solve(W, H[columns], b[columns], pattern=last, beside=beside)
    return solved.weights, solved.gain


def words_of(X: FeatureMatrix) -> CSRWithTranspose:
    """The features that have a sparse part, for products."""
    words = X.words if isinstance(X, BlockFeatures) else X
    assert isinstance(words, CSRWithTranspose)
    return words


class ADMMPart:
    """S of the paper: λ1‖S‖² and λ3‖XS‖₁ by ADMM, in blocks of labels that fit ``memory_limit``.

    All labels known and unweighted: XᵀR and ‖R‖² of the residuals R are enough, and the −1s of equation 5 (here the
    zeros of 0/1 labels) enter as rank-one terms. Weights and masks: R itself is made for a block at a time. S is a
    dense d×L array while the fit runs.
    """

    def __init__(self, data: FitData, *, reg: float, sparsity: float, memory_limit: float) -> None:
        self.X, self.labels = words_of(data.features()), data.targets
        self.weighted = any(one is not None for one in (data.known, data.positive_weight, data.row_weight))

        def factorised() -> L1FitRidge:
            # The solver's objective has whole squares, twice the alternation's: ¼λ3 becomes ½λ3.
            parameters = self.X, reg, sparsity / 2
            if self.weighted:
                return WeightedL1FitRidge(*parameters, row_weight=data.row_weight, memory_limit=memory_limit / 2)
            return L1FitRidge(*parameters, memory_limit=memory_limit / 2)

        self.ridge = data.once(("admm", self.weighted), factorised, of_features=True)
        self.columns = LabelColumns(self.labels, get_loss("squared"))
        width = columns_that_fit(
            *self.X.shape, memory_limit / 2, itemsize=data.X.dtype.itemsize, extra_rows=_block_arrays(self.weighted)
        )
        self.blocks = even_chunks(data.n_labels, min(width, data.n_labels))

    def step(self, steps: Alternation, factors: Factors, last: sp.csr_matrix | np.ndarray | None) -> SparseStep:
        """Each label keeps the S of the last round where ADMM has not got below it."""
        A = whole_shard(steps.local).embedded(steps.here(factors.W))
        n_features, n_labels = self.X.shape[1], self.labels.shape[1]
        S = np.zeros((n_features, n_labels), dtype=factors.W.dtype) if last is None else np.array(last)
        problem_of = partial(self._weighted_block, A) if self.weighted else self._plain_block(A, factors)

        def block(start: int, stop: int) -> tuple[float, int]:
            """The columns of S of some labels; their objective, and how many of them are not solved."""
            objective_of, solve = problem_of(factors, np.arange(start, stop))
            before = objective_of(S[:, start:stop])
            split = None if last is None else self.X.matmul(np.ascontiguousarray(S[:, start:stop]))
            found = solve(split)
            better = found.objective < before
            S[:, start:stop][:, better] = found.solution[:, better]
            return float(np.where(better, found.objective, before).sum()), int((~found.converged).sum())

        # One block at a time: a block takes all the memory there is, and its products all threads.
        total, unsolved = 0.0, 0
        for value, short in run_chunks(block, self.blocks, n_threads=1):
            total += value
            unsolved += short
        return SparseStep(S, 0.5 * total, unsolved)

    def _plain_block(self, A: np.ndarray, factors: Factors) -> _Block:
        extended_A = with_intercept(A)
        seen = self.X.rmatmul(extended_A)
        inner = gram(extended_A, n_threads=self.labels.n_threads)
        H = np.column_stack([factors.H, factors.b]).astype(A.dtype)
        ridge = self.ridge

        def block(factors: Factors, ids: np.ndarray) -> tuple[_Objective, _Solve]:
            Y = self.columns.batch(ids, with_start=False).targets
            cross = self.X.rmatmul(Y) - seen @ H[ids].T
            # ‖y − s‖² = Σ y − 2⟨y, s⟩ + ‖s‖² for 0/1 labels.
            squared_norm = Y.sum(axis=0, dtype=np.float64) - 2 * np.einsum("bk,kb->b", H[ids], extended_A.T @ Y)
            squared_norm += np.einsum("bk,kl,bl->b", H[ids], inner, H[ids], optimize=True)
            return (
                lambda S: ridge.objective(np.ascontiguousarray(S), cross, squared_norm),
                lambda start: ridge.solve(cross, squared_norm, start=start, tol=_ROUND_TOL, max_iter=_ROUND_STEPS),
            )

        return block

    def _weighted_block(self, A: np.ndarray, factors: Factors, ids: np.ndarray) -> tuple[_Objective, _Solve]:
        ridge = self.ridge
        assert isinstance(ridge, WeightedL1FitRidge)
        batch = self.columns.batch(ids, with_start=False)
        residual = batch.targets - A @ factors.H[ids].T
        residual -= factors.b[ids].astype(residual.dtype)
        weights = batch.weights
        assert weights is not None
        return (
            lambda S: ridge.weighted_objective(np.ascontiguousarray(S), residual, weights),
            lambda start: ridge.solve_weighted(residual, weights, start=start, tol=_ROUND_TOL, max_iter=_ROUND_STEPS),
        )


SparsePart: TypeAlias = SupportPart | ADMMPart
"""One way of finding S beside fixed W, H and b and the S of the round before, such that the objective does not rise."""


def admm_fits(shape: tuple[int, int], n_labels: int, memory_limit: float, itemsize: int) -> bool:
    """Whether ADMM's factorisation is quick and fits, and all labels fit a block: then ADMM is the natural choice."""
    side = min(shape)
    if side > _QUICK_SIDE or factorisation_bytes(side) > memory_limit / 2:
        return False
    return columns_that_fit(*shape, memory_limit / 2, itemsize, extra_rows=_block_arrays(True)) >= n_labels


def _block_arrays(weighted: bool) -> int:
    """Arrays of n numbers per label that a step holds beside the solver: targets, scores, weights, products."""
    return 9 if weighted else 4


def pruned(S: sp.csr_matrix | np.ndarray, prune: float) -> sp.csr_matrix:
    """A dense S (d×L) as CSR, without the entries that are below ``prune`` times the largest of their label.

    What is sparse already is chosen feature by feature, and stays.
    """
    if not isinstance(S, np.ndarray):
        return S
    kept = []
    for start, stop in even_chunks(S.shape[1], max(1, _PRUNED_AT_ONCE // S.shape[0])):
        sizes = np.abs(S[:, start:stop])
        sizes[sizes < prune * sizes.max(axis=0)] = 0
        kept.append(sp.csc_matrix(np.where(sizes > 0, S[:, start:stop], 0)))
    return sp.csr_matrix(sp.hstack(kept, format="csr"))
