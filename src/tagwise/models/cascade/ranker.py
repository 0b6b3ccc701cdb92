"""Opinion: the margin of a support vector machine per label, trained on the proposer's mistakes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.answers import finite_scores
from tagwise.estimator import MultiLabelModel
from tagwise.executor import Executor, blocks_of_work
from tagwise.feature_blocks import FeatureBlocks
from tagwise.fields import Fields, csr, dense, value
from tagwise.kernels.compiled import compiled
from tagwise.kernels.dual_coordinate_descent import Descent, train_sparse_svms
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.kernels.shortlists import Lookup, listed_products, shortlist_margins, steps_by_feature
from tagwise.models.cascade.opinion import LabelSide, Opinion, Rows, blocks_of, both_blocks, rows_by_label
from tagwise.models.reml import REML
from tagwise.parallel import even_chunks, thread_count
from tagwise.parameters import random_generator
from tagwise.problem import Problem
from tagwise.validation import Features, check_flag

__all__ = [
    "LEARNT",
    "Ranker",
    "faster_by_feature",
    "hard_negatives",
    "learn_rankers",
    "no_rankers",
    "usual_mistakes",
    "wrong_proposals",
]

# A margin beyond this says no more: float32 margins of separable labels may be any size.
_MOST_MARGIN = 4.0
# Rankers that are solved further cost a quarter more time and rank validation rows no better.
_TOL = 0.3
# Rows whose shortlists are made together.
_BLOCK_ROWS = 1 << 14
# Rows that tell how often a label is a hard negative.
_SAMPLE_ROWS = 256
# Measured: a sum label by label takes this many times as long per addition as one feature by feature.
_EASE_BY_FEATURE = 1.5


class Ranker(Opinion):
    """The margin m, at most 4 in size; 2s, twice the proposer's centred score, where the label has no ranker.

    Rankers are learnt in a stage of their own (:func:`learn_rankers`), since they need the proposer's mistakes.
    """

    name = "ranker"
    fields = Fields(
        ranker_weights_=csr("d", "L", meaning="w of each label's ranker, one column per label."),
        ranker_dense_weights_=dense(
            "L", "q", meaning="w of the rankers for the q features of a dense block; q = 0 without one, as below."
        ),
        ranker_intercept_=dense("L", meaning="β."),
        has_ranker_=dense("L", numbers="bool", meaning="False where the proposer's margin stands in."),
        rankers_by_feature_=value(
            check_flag,
            "Whether margins are summed feature by feature of a row rather than label by label of its "
            "shortlist: whichever took fewer steps on training rows.",
        ),
    )

    def __init__(self, model: MultiLabelModel) -> None:
        W = model.ranker_weights_
        self.weights = Lookup.of(W) if model.rankers_by_feature_ else sp.csr_matrix(W.T)
        self.dense, self.intercept, self.there = model.ranker_dense_weights_, model.ranker_intercept_, model.has_ranker_

    def write(self, rows: Rows, labels: np.ndarray, proposed: np.ndarray, out: np.ndarray) -> None:
        """Margins within limits."""
        margins = shortlist_margins(rows.sparse, labels, self.weights, self.intercept, n_threads=rows.n_threads)
        if rows.dense.shape[1]:
            margins += listed_products(rows.dense, labels, self.dense, n_threads=rows.n_threads)
        _write(finite_scores(margins), labels, proposed, self.there, out)


@compiled()
def _write(margins: np.ndarray, labels: np.ndarray, proposed: np.ndarray, there: np.ndarray, out: np.ndarray) -> None:
    for row in range(out.shape[0]):
        for at in range(out.shape[1]):
            # Twice the centred score is least squares' score of labels −1/+1, the scale of a margin.
            ranked = there[max(labels[row, at], 0)]
            margin = np.float64(margins[row, at]) if ranked else 2 * np.float64(proposed[row, at])
            out[row, at] = min(_MOST_MARGIN, max(margin, -_MOST_MARGIN))


# ---------------------------------------------------------------------- the stage of a fit


LEARNT = Ranker.fields.without("rankers_by_feature_")
"""Fitted attributes of the stage."""


def no_rankers(n_labels: int, n_features: int, n_dense: int, dtype: Any) -> dict[str, Any]:
    """The attributes of a model whose labels have no rankers."""
    return {
        "ranker_weights_": sp.csr_matrix((n_features, n_labels), dtype=dtype),
        "ranker_dense_weights_": np.zeros((n_labels, n_dense), dtype=dtype),
        "ranker_intercept_": np.zeros(n_labels, dtype=dtype),
        "has_ranker_": np.zeros(n_labels, dtype=bool),
    }


class _Options(NamedTuple):
    """Parameters of a block of rankers, and threads, as in joblib."""

    C: float
    prune: float
    seed: int
    n_jobs: int | None


class _Block(NamedTuple):
    """Labels from ``first`` on, with the rows (labels, n) that are on."""

    first: int
    on: sp.csr_matrix


def learn_rankers(side: LabelSide, proposer: REML, many: int) -> tuple[dict[str, Any], float]:
    """The attributes of a ranker for each label of ``side``, and the sum of their objectives.

    The up to ``many`` hard negatives of a row are its proposer's mistakes.
    ``proposer`` knows these labels alone. Rows are divided for the proposals, labels for the rankers; what shards of
    rows have found stays with them until blocks of labels ask for their part.
    """
    model, executor, on = side.model, side.executor, side.by_label
    found = hard_negatives(proposer, side.problem, many, executor)
    seed = int(random_generator(model.random_state).integers(2**31))
    work = np.diff(on.indptr) + sum(executor.value(shard).counts for shard in found)
    bounds = blocks_of_work(work, executor.n_blocks)
    blocks = [_Block(start, rows) for (start, _), rows in zip(bounds, blocks_of(on, bounds))]
    options = _Options(model.C, model.prune, seed, model.n_jobs)
    common = found, executor.share(side.scaled), side.problem.row_weight, options
    weights, dense_weights, intercepts, trained, objectives = zip(*executor.map(_rankers_of_block, blocks, *common))
    by_label = weights[0] if len(weights) == 1 else sp.vstack(weights, format="csr")
    learnt = {
        "ranker_weights_": sp.csr_matrix(by_label.T),
        "ranker_dense_weights_": np.concatenate(dense_weights),
        "ranker_intercept_": np.concatenate(intercepts),
        "has_ranker_": np.concatenate(trained),
    }
    return learnt, math.fsum(objectives)


def _rankers_of_block(
    block: _Block,
    found: list[Mistakes],
    rows: sp.csr_matrix | FeatureBlocks,
    row_weight: np.ndarray | None,
    options: _Options,
) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray, np.ndarray, float]:
    """A ranker for each label that has positive and negative rows: weights, intercepts, which have one, objective."""
    parts = [shard.of_labels(block.first, block.first + block.on.shape[0]) for shard in found]
    off = parts[0] if len(parts) == 1 else sp.csr_matrix(sp.hstack(parts, format="csr"))
    weights, intercept, objective = train_sparse_svms(
        rows,
        block.on,
        off,
        Descent(tol=_TOL, seed=options.seed),
        C=options.C if row_weight is None else options.C * row_weight,
        prune=options.prune,
        first_label=block.first,
        n_threads=thread_count(options.n_jobs),
    )
    trained = (np.diff(block.on.indptr) > 0) & (np.diff(off.indptr) > 0)
    sparse, dense = both_blocks(weights)
    return sparse, dense, intercept.astype(rows.dtype), trained, float(objective.sum())


class Mistakes(NamedTuple):
    """Hard negatives of some rows: how many each label has (L,), and their rows, label by label."""

    n_rows: int
    counts: np.ndarray
    rows: np.ndarray

    def of_labels(self, start: int, stop: int) -> sp.csr_matrix:
        """The rows of labels ``start`` to ``stop``: CSR (labels, rows) of ones."""
        first, ends = int(self.counts[:start].sum()), np.cumsum(self.counts[start:stop], dtype=np.int64)
        rows = self.rows[first : first + int(ends[-1])]
        shape = stop - start, self.n_rows
        return sp.csr_matrix((np.ones(len(rows), dtype=np.int8), rows, np.concatenate([[0], ends])), shape=shape)


def hard_negatives(proposer: REML, problem: Problem, many: int, executor: Executor) -> list[Any]:
    """The up to ``many`` best labels of each row that are known to be off: handles of :class:`Mistakes` of shards.

    They are looked for among ``many`` labels, and as many more as a row has positives on average. Memory: 4 bytes per
    pair, ``many`` pairs per row, and the shortlists of a block of rows.
    """
    depth = min(many + -(-problem.Y.nnz // problem.n_rows), problem.n_labels)
    bounds = even_chunks(problem.n_rows, max(1, -(-problem.n_rows // executor.n_blocks)))
    blocks = list(zip(bounds, blocks_of(problem.Y, bounds), blocks_of(problem.observed, bounds)))
    return executor.keep(mistakes_of_shard, blocks, executor.share(proposer), executor.share(problem.X), many, depth)


def mistakes_of_shard(block: tuple[tuple[int, int], sp.csr_matrix, sp.csr_matrix | None], *common: Any) -> Mistakes:
    """:func:`wrong_proposals`, label by label."""
    by_label = rows_by_label(wrong_proposals(block, *common))
    return Mistakes(by_label.shape[1], np.diff(by_label.indptr).astype(np.int32), by_label.indices)


def wrong_proposals(
    block: tuple[tuple[int, int], sp.csr_matrix, sp.csr_matrix | None],
    proposer: REML,
    X: Features,
    many: int,
    depth: int,
) -> sp.csr_matrix:
    """Hard negatives of rows ``start`` to ``stop``, beside their positives and mask: CSR of ones, best first."""
    (first, last), positives, observed = block
    threads, n_rows = thread_count(proposer.n_jobs), last - first
    indices = np.empty(n_rows * min(many, depth), dtype=np.int32)
    indptr, filled = np.zeros(n_rows + 1, dtype=np.int64), 0
    for start, stop in even_chunks(n_rows, _BLOCK_ROWS):
        labels, _ = proposer.predict_topk(X[first + start : first + stop], depth)
        wrong = (labels >= 0) & ~contains_pairs(positives[start:stop], labels, n_threads=threads)
        if observed is not None:
            wrong &= contains_pairs(observed[start:stop], labels, n_threads=threads)
        wrong &= np.cumsum(wrong, axis=1, dtype=np.int32) <= many
        indptr[start + 1 : stop + 1] = filled + np.cumsum(wrong.sum(axis=1))
        indices[filled : indptr[stop]] = labels[wrong]
        filled = indptr[stop]
    return sp.csr_matrix((np.ones(filled, dtype=np.int8), indices[:filled], indptr), shape=positives.shape)


def usual_mistakes(proposer: REML, problem: Problem, labels: np.ndarray, many: int) -> int:
    """Average number of some labels, those of ``problem``, among the ``many`` hard negatives per row of a fit.

    By some of the rows. Labels with many rows are proposed more often than is their share of all labels, and they are
    what new rows teach most about: by their share they would get too few negatives, and margins too large.
    """
    ids = np.unique(np.linspace(0, problem.n_rows - 1, min(problem.n_rows, _SAMPLE_ROWS)).astype(np.int64))
    some = problem.rows(ids)
    proposed, _ = proposer.predict_topk(some.X, min(many, proposer.n_labels_))
    place = np.full(proposer.n_labels_, -1)
    place[labels] = np.arange(len(labels))
    among = np.where(proposed >= 0, place[proposed], -1)
    wrong = (among >= 0) & ~contains_pairs(some.Y, among)
    if some.observed is not None:
        wrong &= contains_pairs(some.observed, among)
    return max(1, math.ceil(np.count_nonzero(wrong) / len(ids)))


def faster_by_feature(X: Features, weights: sp.csr_matrix, shortlists: np.ndarray) -> bool:
    """The way of summing margins with fewer steps, with weights (d, L), on rows (n, d) and their shortlists."""
    by_label = np.bincount(weights.indices, minlength=weights.shape[1])[shortlists[shortlists >= 0]].sum()
    return steps_by_feature(both_blocks(X)[0], weights, shortlists.shape[1]) <= _EASE_BY_FEATURE * by_label
