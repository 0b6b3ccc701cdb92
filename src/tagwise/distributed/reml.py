"""REML's rounds on shards of the rows: the low rank as LEML's, the sparse part in blocks of labels.

The systems of a label are sums over all rows, so shards answer with their shares of them, in three passes: which
features occur in positive rows of the block's labels, what each would gain, and, once the supports are chosen, the
lower triangles of the systems. These are the largest messages: up to m(m + 1)/2 numbers per label and shard for a
support of m features, in blocks of some megabytes that are added up as a tree and solved where they end up.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from distributed import Future
from sklearn.base import clone

from tagwise.distributed.cluster import Cluster, Sent
from tagwise.distributed.leml import ShardedRows
from tagwise.distributed.parts import Shard, task
from tagwise.kernels.supports import Supports
from tagwise.models.factor_model import usable_rank
from tagwise.models.leml.steps import Factors
from tagwise.models.reml.reml import REML, Rounds
from tagwise.models.reml.sparse_part import SparseStep
from tagwise.progress import FitProgress
from tagwise.randomness import random_generator
from tagwise.solvers.support import (
    SupportFeatures,
    SupportRidge,
    chosen_supports,
    order_of_features,
    solved_supports,
)
from tagwise.validation import canonical_csr

__all__ = ["ShardedSupport", "fit_reml_rows"]

# Numbers in the systems of a block of labels, at most, but for a single label.
_BLOCK_NUMBERS = 1 << 22


def fit_reml_rows(model: REML, rows: ShardedRows, progress: FitProgress) -> None:
    """REML with supports, as its own fit, on rows of squared loss."""
    sizes = rows.n_features, rows.n_labels
    rank = usable_rank(model.rank, min(sizes), f"{sizes[0]} features and {sizes[1]} labels allow")
    fitted, model = model, clone(model).set_params(rank=rank)
    support = ShardedSupport.build(rows, model.support, model.reg_sparse, model.memory_limit)
    low_rank = rows.steps(model.reg_low_rank / 2, fit_intercept=model.fit_intercept, inner_iter=model.inner_iter)
    rounds = progress.resume(
        Rounds,
        d=rows.n_features,
        L=rows.n_labels,
        k=model.rank,
        dtype=rows.dtype,
        max_iter=model.max_iter,
    )
    if rounds is None:
        rounds = model._start(rows, support.loss, random_generator(model.random_state))
    else:
        rounds.factors.A = rows.zeros(model.rank)
    rounds = model._alternate(low_rank, support, rounds, progress.step)
    fitted.sparse_part_ = "support"
    fitted._keep(rounds, rows.unknown_labels(), rows.dtype, progress)


class ShardedSupport:
    """The sparse part on a few features per label, as :class:`~tagwise.models.reml.sparse_part.SupportPart`."""

    def __init__(
        self,
        cluster: Cluster,
        shards: list[Future],
        ridges: list[Future],
        order: np.ndarray,
        blocks: list[tuple[int, int]],
        *,
        masked: bool,
        reg: float,
        support: int,
    ) -> None:
        self.cluster, self.shards, self.ridges, self.order, self.blocks = cluster, shards, ridges, order, blocks
        self.masked, self.reg, self.support = masked, reg, support
        self.sums = None if masked else tuple(map(Sent, cluster.sum(feature_sums, ridges)))

    @classmethod
    def build(cls, rows: ShardedRows, support: int, reg: float, memory_limit: float) -> ShardedSupport:
        """Features in the order of their frequency among all rows, and what each shard needs of its own."""
        cluster = rows.cluster
        order = order_of_features(cluster.sum(feature_counts, rows.shards))
        ridges = cluster.stored(support_ridge, rows.shards, order, reg, support, memory_limit, rows.masked)
        blocks = _blocks(cluster.sum(candidate_counts, ridges), support)
        return cls(cluster, rows.shards, ridges, order, blocks, masked=rows.masked, reg=float(reg), support=support)

    def loss(self, factors: Factors) -> float:
        """Of the low rank alone."""
        arrays = (factors.W, factors.H, factors.b)
        return float(self.cluster.sum(loss_of, self.shards, *arrays))

    def step(self, factors: Factors, last: sp.csr_matrix | None) -> SparseStep:
        """Exact on the supports, which stay those of the last round."""
        U, V, b = np.ascontiguousarray(factors.W[self.order]), factors.H, factors.b
        given = None
        if last is not None:
            given = sp.csr_matrix(last[self.order].T)
            given.sort_indices()
        sums: list[Any] = [] if self.sums is None else [Sent(self.cluster.sum(gram_times, self.ridges, U)), *self.sums]
        solved = self.cluster.collected(
            [U, *sums],
            lambda sent: [
                self._block(
                    sent,
                    block,
                    self.cluster.kept((V[slice(*block)], b[slice(*block)])),
                    None if given is None else self.cluster.kept(given[slice(*block)]),
                )
                for block in self.blocks
            ],
        )
        features, values, counts, gains = (np.concatenate(part) for part in zip(*solved))
        indptr = np.concatenate([[0], np.cumsum(counts)])
        shape = (len(self.order), len(counts))
        columns = sp.csc_matrix((values.astype(U.dtype), self.order[features], indptr), shape=shape)
        value = self.loss(factors) - 0.5 * float(gains.sum())
        return SparseStep(canonical_csr(sp.csr_matrix(columns)), value, unsolved=0)

    def _block(
        self,
        sent: list[Any],
        labels: tuple[int, int],
        factors: Future,
        given: Future | None,
    ) -> Future:
        """The solution of a block of labels, still to come."""
        cluster, (U, *sums) = self.cluster, sent
        pattern = given
        if given is None:
            pattern = cluster.tree([cluster.submit(candidates_of, ridge, labels) for ridge in self.ridges])
        shares = [cluster.submit(slopes_of, ridge, labels, pattern, U, factors) for ridge in self.ridges]
        limit = self.support if given is None else None
        chosen = cluster.submit(supports_of, pattern, cluster.tree(shares), factors, self.reg, limit, *sums)
        systems = cluster.tree([cluster.submit(systems_of, ridge, labels, chosen) for ridge in self.ridges])
        return cluster.submit(solution_of, chosen, systems, self.reg)


def _blocks(candidates: np.ndarray, support: int) -> list[tuple[int, int]]:
    """Labels in blocks whose systems are small enough, given the most features that each can find (L)."""
    sides = np.minimum(support, candidates)
    numbers = np.cumsum(sides * (sides + 1) // 2)
    borders = np.searchsorted(numbers, np.arange(_BLOCK_NUMBERS, numbers[-1], _BLOCK_NUMBERS), side="right")
    return list(pairwise(np.unique(np.concatenate([[0], borders, [len(candidates)]])).tolist()))


# ---------------------------------------------------------------------- what workers run


@task
def feature_counts(shard: Shard) -> np.ndarray:
    """In how many rows each feature occurs (d)."""
    matrix = shard.X.matrix
    return np.bincount(matrix.indices[matrix.data != 0], minlength=matrix.shape[1])


@task
def support_ridge(
    shard: Shard, order: np.ndarray, reg: float, support: int, memory_limit: float, masked: bool
) -> SupportRidge:
    """What a shard's shares are made from."""
    labels = shard.labels
    features = SupportFeatures.build(
        shard.X.matrix,
        support=support,
        with_gram=not masked,
        row_weight=labels.row_weight,
        order=order,
        memory_limit=memory_limit,
        n_threads=labels.n_threads,
    )
    return SupportRidge(
        features,
        labels.positives,
        known=labels.observed,
        reg=reg,
        support=support,
        positive_weight=labels.positive_weight,
        n_threads=labels.n_threads,
    )


@task
def candidate_counts(ridge: SupportRidge) -> np.ndarray:
    """How many features each label may find in this shard, at most (L)."""
    return ridge.candidate_entries()


@task
def feature_sums(ridge: SupportRidge) -> tuple[np.ndarray, np.ndarray]:
    """XᵀV1 and the diagonal of XᵀVX, in the shared order."""
    return ridge.X.column_sums, ridge.X.diagonal


@task
def gram_times(ridge: SupportRidge, U: np.ndarray) -> np.ndarray:
    """XᵀVXU."""
    return ridge.X.gram_times(U, n_threads=ridge.n_threads)


@task
def loss_of(shard: Shard, W: np.ndarray, H: np.ndarray, b: np.ndarray) -> float:
    """Of scores XWHᵀ + b."""
    return shard.terms.value(shard.X.matmul(W), H, b)


@task
def candidates_of(ridge: SupportRidge, labels: tuple[int, int]) -> sp.csr_matrix:
    """Features that occur in positive rows of a block of labels."""
    return ridge.candidates(slice(*labels))


@task
def slopes_of(
    ridge: SupportRidge,
    labels: tuple[int, int],
    pattern: sp.csr_matrix,
    U: np.ndarray,
    factors: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """A shard's share of what these features would gain."""
    return ridge.slopes(slice(*labels), _supports(pattern), U, *factors)


@task
def supports_of(
    pattern: sp.csr_matrix,
    shares: tuple[np.ndarray, np.ndarray],
    factors: tuple[np.ndarray, np.ndarray],
    reg: float,
    support: int | None,
    gram_factors: np.ndarray | None = None,
    column_sums: np.ndarray | None = None,
    diagonal: np.ndarray | None = None,
) -> tuple[Supports, np.ndarray]:
    """The features that labels use, and their slopes; those of the pattern where ``support`` is None."""
    given, (slopes, curvatures), (V, b) = _supports(pattern), shares, factors
    if gram_factors is not None and column_sums is not None and diagonal is not None:
        row = np.repeat(np.arange(len(V)), np.diff(given.indptr))
        explained = np.einsum("ij,ij->i", gram_factors[given.features], V[row], dtype=np.float64)
        slopes = slopes - explained - b[row] * column_sums[given.features]
        curvatures = curvatures + diagonal[given.features]
    if support is None:
        return given, slopes
    return chosen_supports(given, slopes, curvatures, reg=reg, support=support)


@task
def systems_of(ridge: SupportRidge, labels: tuple[int, int], chosen: tuple[Supports, np.ndarray]) -> np.ndarray:
    """A shard's share of the systems of a block."""
    return ridge.systems(slice(*labels), chosen[0])


@task
def solution_of(
    chosen: tuple[Supports, np.ndarray], systems: np.ndarray, reg: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features, weights, how many of them each label has, and bᵀs of each."""
    supports, slopes = chosen
    values, gains = solved_supports(supports, slopes, systems, reg)
    return supports.features, values, np.diff(supports.indptr), gains


def _supports(pattern: sp.csr_matrix) -> Supports:
    return Supports(pattern.indptr.astype(np.int64), pattern.indices.astype(np.int64))
