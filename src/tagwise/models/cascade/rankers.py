"""What a cascade learns after its proposer: rankers that know wrong proposals from right ones, and prototypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import unit_rows
from tagwise.kernels.dual_coordinate_descent import train_sparse_svms
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.models.reml.reml import REML
from tagwise.parallel import even_chunks, run_chunks, thread_count, work_chunks
from tagwise.persistence.fit_state import State, array, model, real, sparse

__all__ = [
    "FittedProposer",
    "Rankers",
    "hardest",
    "label_prototypes",
    "learn_rankers",
    "positives_of",
    "usual_prototype_weight",
    "wrong_proposals",
]

# Rows whose shortlists are made together.
_BLOCK_ROWS = 1 << 14
# Rankers that are solved further cost a quarter more time and rank held-out rows no better.
_TOL = 0.3
# Twice and four times as many rank held-out rows of five sets no better.
_MOST_WEIGHTS = 50
# Over the root of the mean number of a label's rows: what held-out rows of five sets like best is near it, from 0.2
# where labels have 250 rows to 0.6 where they have 24.
_PROTOTYPE_WEIGHT = 3.0


@dataclass(frozen=True, eq=False)
class FittedProposer(State):
    """The finished first stage of a cascade's fit."""

    model: REML = model()


@dataclass(frozen=True, eq=False)
class Rankers(State):
    """Margins xᵀw_j + β_j: ``weights`` CSR (L, d), ``intercept`` (L,), and which labels are ``trained`` (L,)."""

    weights: sp.csr_matrix = sparse("L", "d")
    intercept: np.ndarray = array("L")
    trained: np.ndarray = array("L", dtype=np.bool_)
    objective: float = real()

    @staticmethod
    def none(n_labels: int, n_features: int, dtype: Any) -> Rankers:
        """No ranker for any label."""
        empty = sp.csr_matrix((n_labels, n_features), dtype=dtype)
        return Rankers(empty, np.zeros(n_labels, dtype=dtype), np.zeros(n_labels, dtype=bool), 0.0)


def positives_of(Y: sp.csr_matrix, observed: sp.csr_matrix | None) -> sp.csr_matrix:
    """The pairs (n, L) that are known to be on, as CSR with sorted indices."""
    known = Y if observed is None else sp.csr_matrix(Y.multiply(observed != 0))
    if not known.has_sorted_indices:
        known = known.sorted_indices()
    return known


def wrong_proposals(
    proposer: REML, X: sp.csr_matrix, positives: sp.csr_matrix, observed: sp.csr_matrix | None, many: int
) -> sp.csr_matrix:
    """The up to ``many`` best labels of each row of X that are known to be off: (n, L) as CSR, best first.

    They are looked for among the ``many`` best labels and as many more as a row has positives on average; the values
    are their ranks there, from 1. Shards of rows are independent of each other: what they find is only concatenated.
    Memory: 6 bytes per pair, and a shard's shortlists.
    """
    threads = thread_count(proposer.n_jobs)
    width = min(_places(positives, many), positives.shape[1])
    found, places, sizes = [], [], [np.zeros(1, dtype=np.int64)]
    for start, stop in even_chunks(X.shape[0], _BLOCK_ROWS):
        labels, _ = proposer.predict_topk(X[start:stop], width)
        wrong = ~contains_pairs(positives[start:stop], labels, n_threads=threads)
        if observed is not None:
            wrong &= contains_pairs(observed[start:stop], labels, n_threads=threads)
        wrong &= np.cumsum(wrong, axis=1, dtype=np.int32) <= many
        found.append(labels[wrong].astype(np.int32))
        places.append((np.nonzero(wrong)[1] + 1).astype(np.min_scalar_type(width)))
        sizes.append(wrong.sum(axis=1))
    indices, indptr = np.concatenate(found), np.cumsum(np.concatenate(sizes))
    return sp.csr_matrix((np.concatenate(places), indices, indptr), shape=positives.shape)


def hardest(wrong: sp.csr_matrix, positives: sp.csr_matrix, many: int) -> sp.csr_matrix:
    """What :func:`wrong_proposals` finds for ``many``, from what it found for more."""
    sizes = np.diff(wrong.indptr)
    keep = np.arange(wrong.nnz) - np.repeat(wrong.indptr[:-1], sizes) < many
    keep &= wrong.data <= _places(positives, many)
    indptr = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])[wrong.indptr]
    return sp.csr_matrix((wrong.data[keep], wrong.indices[keep], indptr), shape=wrong.shape)


def _places(positives: sp.csr_matrix, many: int) -> int:
    """Among how many of a row's best labels ``many`` wrong ones are looked for."""
    return many + -(-positives.nnz // positives.shape[0])


def learn_rankers(
    rows: sp.csr_matrix,
    positives: sp.csr_matrix,
    negatives: sp.csr_matrix,
    *,
    C: float,
    prune: float,
    seed: int,
    n_threads: int,
) -> Rankers:
    """A ranker for each label that has positive and negative rows, both (n, L)."""
    on, off = _by_label(positives), _by_label(negatives)
    weights, intercept, objective = train_sparse_svms(
        rows, on, off, cost=C, prune=prune, tol=_TOL, seed=seed, n_threads=n_threads
    )
    trained = (np.diff(on.indptr) > 0) & (np.diff(off.indptr) > 0)
    return Rankers(weights, intercept.astype(rows.dtype), trained, float(objective.sum()))


def _by_label(pairs: sp.csr_matrix) -> sp.csr_matrix:
    """Rows and labels exchanged; the values, which nobody looks at, as small as can be."""
    ones = np.ones(pairs.nnz, dtype=np.int8)
    return sp.csr_matrix(sp.csr_matrix((ones, pairs.indices, pairs.indptr), shape=pairs.shape).T)


def label_prototypes(
    rows: sp.csr_matrix, positives: sp.csr_matrix, *, most: int = _MOST_WEIGHTS, n_threads: int = 1
) -> sp.csr_matrix:
    r"""The mean of each label's rows, scaled to unit length, of which the ``most`` largest weights are kept.

    .. math:: c_j = \sum_{i \in P_j} x_i \Big/ \Big\lVert\sum_{i \in P_j} x_i\Big\rVert

    so that :math:`x^\top c_j` is the cosine of a row of unit length with the prototype, but for what was dropped.

    Parameters
    ----------
    rows : CSR (n, d)
        Of unit length.
    positives : CSR (n, L)
        The pairs that are known to be on; the values are not looked at.
    most : int
        Weights to keep of a label. Of equal ones, those of lower features stay.
    n_threads : int
        The result has the same bits for every number.

    Returns
    -------
    CSR (L, d) in the type of ``rows``, features in rising order. The row of a label without positives is empty.

    Notes
    -----
    Time: one addition for every stored entry of every positive row of every label. Memory: the result, and what the
    labels of a chunk have before weights are dropped, a few hundredths of that sum a thread.
    """
    ones = np.ones(positives.nnz, dtype=rows.dtype)
    by_label = sp.csr_matrix(sp.csr_matrix((ones, positives.indices, positives.indptr), shape=positives.shape).T)
    entries = np.concatenate([[0], np.cumsum(np.diff(rows.indptr)[by_label.indices], dtype=np.int64)])
    parts = run_chunks(
        lambda start, stop: _largest(_unit_sums(by_label[start:stop], rows), most),
        work_chunks(entries[by_label.indptr]),
        n_threads,
    )
    return sp.csr_matrix(sp.vstack(parts, format="csr"))


def usual_prototype_weight(positives: sp.csr_matrix) -> float:
    """How much prototypes should count: 3/√m, at most 1, for m positives (n, L) a label that has any, on average."""
    rows_of_label = np.bincount(positives.indices)
    rows_of_label = rows_of_label[rows_of_label > 0]
    return min(1.0, _PROTOTYPE_WEIGHT / float(np.sqrt(rows_of_label.mean()))) if len(rows_of_label) else 1.0


def _unit_sums(by_label: sp.csr_matrix, rows: sp.csr_matrix) -> sp.csr_matrix:
    sums = sp.csr_matrix(by_label @ rows)
    sums.sort_indices()
    return sp.csr_matrix(unit_rows(sums))


def _largest(weights: sp.csr_matrix, most: int) -> sp.csr_matrix:
    """The ``most`` entries of each row that are largest in size; indices are sorted, and stay so."""
    sizes = np.diff(weights.indptr)
    row_of = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((-np.abs(weights.data), row_of))
    place = np.arange(weights.nnz) - np.repeat(weights.indptr[:-1], sizes)
    kept = np.zeros(weights.nnz, dtype=bool)
    kept[order[place < most]] = True
    indptr = np.concatenate([[0], np.cumsum(np.minimum(sizes, most))])
    return sp.csr_matrix((weights.data[kept], weights.indices[kept], indptr), shape=weights.shape)
