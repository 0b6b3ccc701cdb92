"""Cascade's rows on a cluster: shortlists per shard, rankers and prototypes per block of labels.

A ranker needs the rows of its label and those that the label was wrongly proposed for, from all shards. So rows are
sent once to every block of labels that has a use for them; a block has them in the order of all rows, and learns what a
local fit would. Counts are sums. The known positives, and the validation rows (5,000 at most), come to the client.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.distributed.cluster import Sent
from tagwise.distributed.leml import ShardedRows
from tagwise.distributed.parts import Part, TrainingParts, task
from tagwise.distributed.reml import ShardedSupport, fit_reml_rows
from tagwise.kernels import unit_rows
from tagwise.losses import get_loss
from tagwise.models.cascade.names import rows_with_name
from tagwise.models.cascade.opinions import (
    LocalRows,
    RankerOptions,
    Rankers,
    cooccurrence_counts,
    label_prototypes,
    learn_rankers,
    rows_by_label,
    search_depth,
    wrong_proposals,
)
from tagwise.models.leml.steps import Factors
from tagwise.models.reml import REML
from tagwise.parallel import thread_count
from tagwise.problems.labels import known_positives, per_row
from tagwise.progress import FitProgress

__all__ = ["ShardedCascadeRows"]

# Features of the rows that a block of labels receives, where all rows have more: about as many at most.
_BLOCK_BYTES = 1 << 28


class ShardedCascadeRows:
    """Rows on a cluster, as :class:`~tagwise.models.cascade.opinions.CascadeRows`."""

    def __init__(
        self, parts: TrainingParts, positive_weight: np.ndarray | None, *, normalize: bool, n_jobs: Any
    ) -> None:
        filled = [place for place, fact in enumerate(parts.facts) if fact.n_rows]
        self.data = TrainingParts(
            parts.cluster, [parts.parts[place] for place in filled], [parts.facts[place] for place in filled]
        )
        self.cluster, self.positive_weight = parts.cluster, positive_weight
        self.normalize, self.n_jobs = normalize, n_jobs

    @property
    def n_rows(self) -> int:
        """See :class:`~tagwise.models.cascade.opinions.CascadeRows`, as for all below."""
        return self.data.n_rows

    @cached_property
    def positives(self) -> sp.csr_matrix:
        """See above."""
        return sp.vstack(self.cluster.map(positives_of, self.data.parts), format="csr")

    @cached_property
    def _sharded(self) -> ShardedRows:
        return ShardedRows(
            self.data, get_loss("squared"), self.positive_weight, normalize=self.normalize, n_jobs=self.n_jobs
        )

    def known_per_row(self) -> np.ndarray | None:
        """See above."""
        if all(fact.n_known is None for fact in self.data.facts):
            return None
        return np.concatenate(self.cluster.map(known_per_row, self.data.parts))

    def of(self, rows: np.ndarray) -> LocalRows:
        """See above."""
        part = self.data.of(rows).at_the_client()
        return LocalRows(*part, self.normalize, thread_count(self.n_jobs))

    def without(self, rows: np.ndarray) -> ShardedCascadeRows:
        """See above."""
        return ShardedCascadeRows(
            self.data.without(rows), self.positive_weight, normalize=self.normalize, n_jobs=self.n_jobs
        )

    def head(self, many: int) -> sp.csr_matrix:
        """See above."""
        return self.data.of(np.arange(min(many, self.n_rows))).at_the_client().X

    def feature_counts(self) -> np.ndarray:
        """See above."""
        return self.cluster.sum(feature_counts_of, self.data.parts)

    def fit_proposer(self, proposer: REML, progress: FitProgress) -> None:
        """See above."""
        proposer.n_features_in_ = self.data.n_features
        proposer._output_format = ("csr_matrix", self.data.dtype)
        proposer._take_label_count(self.data.n_labels)
        fit_reml_rows(proposer, self._sharded, progress)
        proposer._complete_fit(progress)

    def relearnt(self, proposer: REML, labels: np.ndarray) -> REML:
        """See above."""
        weight = None if self.positive_weight is None else self.positive_weight[labels]
        parts = self.cluster.stored(labels_of_part, self.data.parts, labels)
        data = TrainingParts(self.cluster, parts, [fact._replace(n_labels=len(labels)) for fact in self.data.facts])
        rows = ShardedRows(data, get_loss("squared"), weight, normalize=self.normalize, n_jobs=self.n_jobs)
        support = ShardedSupport.build(rows, proposer.support, proposer.reg_sparse, proposer.memory_limit)
        model = proposer._of_labels(labels)
        W, H = model.feature_factors_, model.label_factors_
        factors = Factors(W, rows.zeros(W.shape[1]), H, model.intercept_.astype(np.float64) + 0.5)
        return proposer._with_sparse_part(model, support.step(factors, None).weights)

    def learn_rankers(
        self,
        proposer: REML,
        options: RankerOptions,
        labels: np.ndarray | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> Rankers:
        """See above."""
        parts, n_labels = self.data.parts, self.data.n_labels
        if labels is not None:
            parts, n_labels = self.cluster.stored(labels_of_part, parts, labels), len(labels)
        positives = self.positives if labels is None else sp.csr_matrix(self.positives[:, labels])
        depth = search_depth(positives.nnz, self.n_rows, options.hard_negatives)

        def work(sent: list[Any]) -> list[Rankers]:
            wrong = [self.cluster.submit(mistakes, sent[0], part, options.hard_negatives, depth) for part in parts]
            rows = [
                self.cluster.submit(ranker_rows, *of_part, self.normalize, self.n_jobs)
                for of_part in zip(parts, wrong, self._first_rows())
            ]
            counts = self.cluster.gathered([self.cluster.tree([self.cluster.submit(pair_counts, own) for own in rows])])
            return self.cluster.gathered(
                [
                    self.cluster.submit(
                        rankers_of,
                        [self.cluster.submit(block_rows, own, block) for own in rows],
                        block,
                        options,
                        self.n_jobs,
                    )
                    for block in self._blocks(counts[0])
                ]
            )

        note(f"rankers of {n_labels:,} labels")
        found = self.cluster.sending([Sent(proposer)], work)
        return Rankers(
            sp.vstack([one.weights for one in found], format="csr"),
            np.zeros((n_labels, 0), dtype=found[0].weights.dtype),
            np.concatenate([one.intercept for one in found]),
            np.concatenate([one.trained for one in found]),
            float(sum(one.objective for one in found)),
        )

    def _first_rows(self) -> list[int]:
        """The number of each shard's first row."""
        return np.cumsum([0, *(fact.n_rows for fact in self.data.facts[:-1])]).tolist()

    def _blocks(self, pairs: np.ndarray) -> list[tuple[int, int]]:
        """Labels in blocks of about equal work, given how many pairs with rows each has (L).

        There are as many as shards. A block receives all rows at most, and one row per pair; where all rows are too
        much for a worker, there are so many blocks that the pairs of each are few enough.
        """
        n_bytes = sum(fact.n_bytes for fact in self.data.facts)
        many = len(self.data.parts)
        if n_bytes > _BLOCK_BYTES:
            many = max(many, math.ceil(n_bytes / self.n_rows * pairs.sum() / _BLOCK_BYTES))
        work = np.cumsum(pairs + 1)
        borders = np.searchsorted(work, work[-1] * np.arange(1, many) / many)
        return list(pairwise(np.unique(np.concatenate([[0], borders, [len(pairs)]])).tolist()))

    def prototypes(self) -> sp.csr_matrix:
        """See above."""
        rows = self.cluster.stored(unit_rows_of, self.data.parts, self.n_jobs)
        pairs = np.bincount(self.positives.indices, minlength=self.data.n_labels)
        blocks = [
            self.cluster.submit(
                prototypes_of, [self.cluster.submit(block_rows, own, block) for own in rows], self.n_jobs
            )
            for block in self._blocks(pairs)
        ]
        return sp.vstack(self.cluster.gathered(blocks), format="csr")

    def dense_prototypes(self) -> tuple[np.ndarray, np.ndarray]:
        """See above; data of a cluster have no dense block."""
        dtype = self.data.dtype
        return np.zeros(0, dtype=dtype), np.zeros((self.data.n_labels, 0), dtype=dtype)

    def cooccurrence(self) -> sp.csr_matrix:
        """See above."""
        pairs = sp.csr_matrix(self.cluster.sum(cooccurrence_of, self.data.parts))
        pairs.sort_indices()
        return pairs

    def rows_with_name(self, names: sp.csr_matrix) -> np.ndarray:
        """See above."""
        return self.cluster.sum(rows_with_name_of, self.data.parts, names)


# ---------------------------------------------------------------------- what workers run


class RankerRows(NamedTuple):
    """Rows of a shard as rankers read them, the labels that are on and wrongly proposed (L, n), weights and numbers."""

    X: sp.csr_matrix
    on: sp.csr_matrix
    off: sp.csr_matrix
    weight: np.ndarray | None
    numbers: np.ndarray


@task
def positives_of(part: Part) -> sp.csr_matrix:
    """Known positives."""
    return known_positives(part.Y, part.observed)


@task
def known_per_row(part: Part) -> np.ndarray:
    """Stored pairs of the mask."""
    return np.full(part.Y.shape[0], part.Y.shape[1]) if part.observed is None else np.diff(part.observed.indptr)


@task
def feature_counts_of(part: Part) -> np.ndarray:
    """Stored entries of each column."""
    return np.bincount(part.X.indices, minlength=part.X.shape[1])


@task
def cooccurrence_of(part: Part) -> sp.csr_matrix:
    """Counts of pairs of labels."""
    return cooccurrence_counts(known_positives(part.Y, part.observed))


@task
def rows_with_name_of(part: Part, names: sp.csr_matrix) -> np.ndarray:
    """Counts of rows that have each label's whole name."""
    return rows_with_name(names, part.X, part.observed)


@task
def labels_of_part(part: Part, labels: np.ndarray) -> Part:
    """Some of its labels."""
    observed = None if part.observed is None else sp.csr_matrix(part.observed[:, labels])
    return part._replace(Y=sp.csr_matrix(part.Y[:, labels]), observed=observed)


@task
def mistakes(proposer: REML, part: Part, many: int, depth: int) -> sp.csr_matrix:
    """What a proposer wrongly proposes for the rows of a part."""
    positives = known_positives(part.Y, part.observed)
    X = part.X.astype(proposer.feature_factors_.dtype, copy=False)
    return wrong_proposals(proposer, X, positives, part.observed, many, depth=depth)


@task
def ranker_rows(part: Part, wrong: sp.csr_matrix, first: int, normalize: bool, n_jobs: Any) -> RankerRows:
    """All rows of a shard, whose first has the number ``first``."""
    X = sp.csr_matrix(unit_rows(part.X, n_threads=thread_count(n_jobs))) if normalize else part.X
    on, numbers = rows_by_label(known_positives(part.Y, part.observed)), np.arange(first, first + X.shape[0])
    return RankerRows(X, on, rows_by_label(wrong), part.weight, numbers)


@task
def pair_counts(rows: RankerRows) -> np.ndarray:
    """How many rows the ranker of each label learns from (L,)."""
    return np.diff(rows.on.indptr) + np.diff(rows.off.indptr)


@task
def unit_rows_of(part: Part, n_jobs: Any) -> RankerRows:
    """All rows of a shard in unit length, as they weigh, for prototypes."""
    unit = sp.csr_matrix(unit_rows(part.X, n_threads=thread_count(n_jobs)))
    on = rows_by_label(known_positives(part.Y, part.observed))
    none = sp.csr_matrix(on.shape, dtype=np.int8)
    return RankerRows(per_row(unit, part.weight), on, none, None, np.arange(unit.shape[0]))


@task
def block_rows(rows: RankerRows, labels: tuple[int, int]) -> RankerRows:
    """What a block of labels needs of them."""
    on, off = rows.on[slice(*labels)], rows.off[slice(*labels)]
    needed = np.unique(np.concatenate([on.indices, off.indices]))
    weight = None if rows.weight is None else rows.weight[needed]
    return RankerRows(rows.X[needed], _renumbered(on, needed), _renumbered(off, needed), weight, rows.numbers[needed])


def _renumbered(pairs: sp.csr_matrix, rows: np.ndarray) -> sp.csr_matrix:
    """Pairs (L, n) of some rows alone, which are all that they have."""
    places = np.searchsorted(rows, pairs.indices).astype(np.int32)
    return sp.csr_matrix((pairs.data, places, pairs.indptr), shape=(pairs.shape[0], len(rows)))


def _joined(shards: list[RankerRows]) -> RankerRows:
    weight = None if shards[0].weight is None else np.concatenate([shard.weight for shard in shards])
    X = sp.vstack([shard.X for shard in shards], format="csr")
    on, off = (sp.hstack([getattr(shard, name) for shard in shards], format="csr") for name in ("on", "off"))
    return RankerRows(X, on, off, weight, np.concatenate([shard.numbers for shard in shards]))


@task
def rankers_of(shards: list[RankerRows], labels: tuple[int, int], options: RankerOptions, n_jobs: Any) -> Rankers:
    """Rankers of a block of labels."""
    rows = _joined(shards)
    return learn_rankers(
        rows.X,
        rows.on,
        rows.off,
        C=options.C if rows.weight is None else options.C * rows.weight,
        prune=options.prune,
        seed=options.seed,
        numbered=(labels[0], rows.numbers),
        n_threads=thread_count(n_jobs),
    )


@task
def prototypes_of(shards: list[RankerRows], n_jobs: Any) -> sp.csr_matrix:
    """Prototypes of a block of labels."""
    rows = _joined(shards)
    return label_prototypes(rows.X, sp.csr_matrix(rows.on.T), n_threads=thread_count(n_jobs))
