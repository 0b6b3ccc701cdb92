"""REML's third block, H (problem 6c): what no low rank explains, label by label beside a fixed low rank.

H is called S here, beside LEML's W, H and b for the low rank. Labels are independent of each other, so either form of
the step is a map over blocks of labels, from the shared features and the low rank to the columns of S of that block
and its share of the objective, and a sum of these shares.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.executor import Block, blocks_of_work
from tagwise.kernels import BlockFeatures, gram
from tagwise.models.factor_model import FitData
from tagwise.models.leml.steps import Alternation, Factors, words_of
from tagwise.objectives.squared import with_intercept
from tagwise.parallel import even_chunks
from tagwise.solvers.admm import (
    ADMMResult,
    L1FitRidge,
    WeightedL1FitRidge,
    columns_that_fit,
    factorisation_bytes,
)
from tagwise.solvers.support import SupportFeatures, SupportRidge

__all__ = ["ADMMPart", "SparsePart", "SparseStep", "SupportPart", "admm_fits", "pruned"]

# A factorisation of this side takes seconds.
_QUICK_SIDE = 2000
# ADMM within a round: the next round changes its problem, so that a few digits are enough.
_ROUND_TOL, _ROUND_STEPS = 1e-3, 50
# Numbers of a dense S that are looked at together when it is pruned.
_PRUNED_AT_ONCE = 1 << 18

_Targets: TypeAlias = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class SparseStep(NamedTuple):
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
        executor = steps.fit_executor
        if self._place is None:
            self._place = executor.place()
        blocks = blocks_of_work(steps.local.label_counts, executor.n_blocks)
        shared = [executor.share(one) for one in (self, factors.W, factors.H, factors.b, last)]
        weights, gains = zip(*executor.map(support_block, blocks, steps.fit_data, *shared))
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
    part: SupportPart,
    W: np.ndarray,
    H: np.ndarray,
    b: np.ndarray,
    last: sp.csr_matrix | None,
) -> tuple[sp.csr_matrix, np.ndarray]:
    """S of some labels beside a low rank, on the supports of the last round; and by how much it lowers the loss."""
    X, columns = data.features(), slice(*block)
    if last is not None and block != (0, last.shape[1]):
        last = sp.csr_matrix(last[:, columns])
    beside = X.dense.matmul(W[-X.dense.shape[1] :]) if isinstance(X, BlockFeatures) else None
    solved = part.ridge(data, block).solve(W, H[columns], b[columns], pattern=last, beside=beside)
    return solved.weights, solved.gain


class ADMMPart:
    """S of the paper: λ1‖S‖² and λ3‖XS‖₁ by ADMM, in blocks of labels that fit ``memory_limit``.

    All labels known and unweighted: XᵀR and ‖R‖² of the residuals R are enough, and the −1s of equation 5 (here the
    zeros of 0/1 labels) enter as rank-one terms. Weights and masks: R itself is made for a block at a time. S is a
    dense d×L array while the fit runs.
    """

    def __init__(self, data: FitData, *, reg: float, sparsity: float, memory_limit: float) -> None:
        self.X, self.labels, self.loss = words_of(data.features()), data.targets, data.loss
        self.weighted = any(one is not None for one in (data.known, data.positive_weight, data.row_weight))

        def factorised() -> L1FitRidge:
            # The solver's objective has whole squares, twice the alternation's: ¼λ3 becomes ½λ3.
            parameters = self.X, reg, sparsity / 2
            if self.weighted:
                return WeightedL1FitRidge(*parameters, row_weight=data.row_weight, memory_limit=memory_limit / 2)
            return L1FitRidge(*parameters, memory_limit=memory_limit / 2)

        self.ridge = data.once(("admm", self.weighted), factorised, of_features=True)
        width = columns_that_fit(
            *self.X.shape, memory_limit / 2, itemsize=data.X.dtype.itemsize, extra_rows=_block_arrays(self.weighted)
        )
        self.blocks = even_chunks(data.n_labels, min(width, data.n_labels))

    def step(self, steps: Alternation, factors: Factors, last: sp.csr_matrix | np.ndarray | None) -> SparseStep:
        """Each label keeps the S of the last round where ADMM has not got below it."""
        A = self.X.matmul(factors.W)
        n_features, n_labels = self.X.shape[1], self.labels.shape[1]
        S = np.zeros((n_features, n_labels), dtype=factors.W.dtype) if last is None else np.array(last)
        objective: Callable[..., np.ndarray] = self.ridge.objective
        solve: Callable[..., ADMMResult] = self.ridge.solve
        if isinstance(self.ridge, WeightedL1FitRidge):
            objective, solve = self.ridge.weighted_objective, self.ridge.solve_weighted
        targets_of = partial(self._weighted_targets, A, factors) if self.weighted else self._plain_targets(A, factors)
        total, unsolved = 0.0, 0
        # One block at a time: a block takes all the memory there is, and its products all threads.
        for start, stop in self.blocks:
            targets, own = targets_of(np.arange(start, stop)), S[:, start:stop]
            before = objective(np.ascontiguousarray(own), *targets)
            split = None if last is None else self.X.matmul(np.ascontiguousarray(own))
            found = solve(*targets, start=split, tol=_ROUND_TOL, max_iter=_ROUND_STEPS)
            better = found.objective < before
            own[:, better] = found.solution[:, better]
            total += float(np.where(better, found.objective, before).sum())
            unsolved += int((~found.converged).sum())
        return SparseStep(S, 0.5 * total, unsolved)

    def _plain_targets(self, A: np.ndarray, factors: Factors) -> _Targets:
        """XᵀR and ‖R‖² of the residuals of some labels."""
        extended_A = with_intercept(A)
        seen = self.X.rmatmul(extended_A)
        inner = gram(extended_A, n_threads=self.labels.n_threads)
        H = np.column_stack([factors.H, factors.b]).astype(A.dtype)

        def targets(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            Y = self.labels.batch(ids, self.loss, with_start=False).targets
            cross = self.X.rmatmul(Y) - seen @ H[ids].T
            # ‖y − s‖² = Σ y − 2⟨y, s⟩ + ‖s‖² for 0/1 labels.
            squared_norm = Y.sum(axis=0, dtype=np.float64) - 2 * np.einsum("bk,kb->b", H[ids], extended_A.T @ Y)
            squared_norm += np.einsum("bk,kl,bl->b", H[ids], inner, H[ids], optimize=True)
            return cross, squared_norm

        return targets

    def _weighted_targets(self, A: np.ndarray, factors: Factors, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """R of some labels, and the weights of its entries."""
        batch = self.labels.batch(ids, self.loss, with_start=False)
        assert batch.weights is not None
        residual = batch.targets - A @ factors.H[ids].T
        residual -= factors.b[ids].astype(residual.dtype)
        return residual, batch.weights


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
