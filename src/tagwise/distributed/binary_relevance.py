"""Binary relevance on shards of the rows: batches of labels, whose steps are sums over all rows.

A batch of B labels sends and receives (d + 1)×B numbers per step; several batches are under way at once. Coefficients
and the vectors of the solvers are at the client.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tagwise.distributed.cluster import Sent
from tagwise.distributed.leml import ShardedRows, SummedProblem
from tagwise.distributed.parts import Shard, task
from tagwise.losses import Loss
from tagwise.models.binary_relevance import LARGEST_DIRECT, BinaryRelevance, LabelCounts
from tagwise.problems.labels import LabelBatch, LabelColumns
from tagwise.problems.linear_block import ColumnSums, Design, LinearBlock, Scales, curvature_at_start
from tagwise.progress import FitProgress

__all__ = ["fit_binary_relevance_rows"]

# Where a local fit factorises, conjugate gradients come this near.
_NEAR_EXACT = 1e-6


def fit_binary_relevance_rows(
    model: BinaryRelevance, rows: ShardedRows, positives: np.ndarray, progress: FitProgress
) -> None:
    """BinaryRelevance by steps, as its own fit, on rows of its loss with so many ``positives`` of each label (L)."""
    cluster, dtype, loss = rows.cluster, np.dtype(rows.dtype), rows.loss
    size = model._batch_size((max(rows.sizes), rows.n_features), dtype, rows.n_labels, direct=False)
    mean, mean_square = ColumnSums(*cluster.sum(column_sums, rows.shards)).moments(fit_intercept=model.fit_intercept)
    mean = None if mean is None else mean.astype(dtype)
    rates = rows.rates()
    quadratic = loss.name == "squared"
    plain = quadratic and not rows.masked and rows.positive_weight is None
    exact = plain and model.solver == "auto" and min(sum(rows.sizes), rows.n_features) <= LARGEST_DIRECT

    def solve(ids: np.ndarray) -> Any:
        start = loss.constant(rates)[ids] if model.fit_intercept else np.zeros(len(ids))
        curvature = float(cluster.sum(start_curvature, rows.shards, loss, ids, start))
        scales = Scales.of(mean, mean_square, curvature, model.reg, dtype)
        penalty = np.zeros((len(scales.zeros(1)), 1), dtype)
        penalty[: rows.n_features] = scales.penalty
        fixed = [loss, ids, start, Sent((scales.scale, scales.mean)), scales.intercept_scale]
        problem = SummedProblem(cluster, rows.shards, linear_block, fixed, penalty, quadratic=quadratic, axis=0)
        tol = min(model.tol, _NEAR_EXACT) if exact else model.tol
        return model._solved(problem, scales, start, quadratic=quadratic, tol=tol)

    counts = LabelCounts(positives, rates, rows.unknown_labels())
    model._fit_batches(partial(cluster.overlapping, solve), counts, size, rows.n_features, dtype, loss, progress)


@task
def column_sums(shard: Shard) -> ColumnSums:
    """Of a shard's features."""
    return ColumnSums.of(shard.X.matrix)


@task
def start_curvature(shard: Shard, loss: Loss, ids: np.ndarray, start: np.ndarray) -> float:
    """A shard's part of the curvature at constant scores."""
    return curvature_at_start(_batch(shard, loss, ids, start), loss)


def linear_block(
    shard: Shard,
    loss: Loss,
    ids: np.ndarray,
    start: np.ndarray,
    scaled: tuple[np.ndarray, np.ndarray | None],
    intercept_scale: Any,
) -> LinearBlock:
    """The problem of a shard, without its penalty."""
    scale, mean = scaled
    design = Design(shard.X, mean, np.empty(0), shard.labels.n_threads)
    scales = Scales(scale, intercept_scale, np.zeros_like(scale), mean)
    return LinearBlock(design, _batch(shard, loss, ids, start), loss, scales)


def _batch(shard: Shard, loss: Loss, ids: np.ndarray, start: np.ndarray) -> LabelBatch:
    columns = shard.kept(f"columns {loss.name}", lambda: LabelColumns(shard.labels, loss))
    batch = columns.batch(ids, with_start=False)
    return LabelBatch(batch.targets, batch.weights, start)
