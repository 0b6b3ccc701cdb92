"""What a cascade learns after its proposer: rankers that know wrong proposals from right ones, and prototypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import unit_rows
from tagwise.kernels.dual_coordinate_descent import Descent, train_sparse_svms
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.models.reml.reml import REML
from tagwise.parallel import even_chunks, run_chunks, thread_count, work_chunks
from tagwise.persistence.fit_state import State, array, model, real, sparse

__all__ = [
    "FittedProposer",
    "Rankers",
    "label_prototypes",
    "learn_rankers",
    "wrong_proposals",
]

# Rows whose shortlists are made together.
_BLOCK_ROWS = 1 << 14
# Rankers that are solved further cost a quarter more time and rank validation rows no better.
_TOL = 0.3
# Twice and four times as many rank validation rows of five sets no better.
_MOST_WEIGHTS = 50


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


def wrong_proposals(
    proposer: REML, X: sp.csr_matrix, positives: sp.csr_matrix, observed: sp.csr_matrix | None, many: int
) -> sp.csr_matrix:
    """The up to ``many`` best labels of each row of X that are known to be off: (n, L) as CSR, best first.

    They are looked for among the ``many`` best labels and as many more as a row has positives on average; the values
    are their ranks there, from 1. Memory: 6 bytes per pair, and the shortlists of a block of rows.
    """
    threads = thread_count(proposer.n_jobs)
    width = min(_depth(positives, many), positives.shape[1])
    found, ranks, sizes = [], [], [np.zeros(1, dtype=np.int64)]
    for start, stop in even_chunks(X.shape[0], _BLOCK_ROWS):
        labels, _ = proposer.predict_topk(X[start:stop], width)
        wrong = (labels >= 0) & ~contains_pairs(positives[start:stop], labels, n_threads=threads)
        if observed is not None:
            wrong &= contains_pairs(observed[start:stop], labels, n_threads=threads)
        wrong &= np.cumsum(wrong, axis=1, dtype=np.int32) <= many
        found.append(labels[wrong].astype(np.int32))
        ranks.append((np.nonzero(wrong)[1] + 1).astype(np.min_scalar_type(width)))
        sizes.append(wrong.sum(axis=1))
    indices, indptr = np.concatenate(found), np.cumsum(np.concatenate(sizes))
    return sp.csr_matrix((np.concatenate(ranks), indices, indptr), shape=positives.shape)


def _depth(positives: sp.csr_matrix, many: int) -> int:
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
    on, off = _by_label(positives, np.int8), _by_label(negatives, np.int8)
    descent = Descent(tol=_TOL, seed=seed)
    weights, intercept, objective = train_sparse_svms(rows, on, off, descent, C=C, prune=prune, n_threads=n_threads)
    trained = (np.diff(on.indptr) > 0) & (np.diff(off.indptr) > 0)
    return Rankers(weights, intercept.astype(rows.dtype), trained, float(objective.sum()))


def _by_label(pairs: sp.csr_matrix, dtype: Any) -> sp.csr_matrix:
    """The transpose, with ones for values."""
    ones = np.ones(pairs.nnz, dtype=dtype)
    return sp.csr_matrix(sp.csr_matrix((ones, pairs.indices, pairs.indptr), shape=pairs.shape).T)


def label_prototypes(
    rows: sp.csr_matrix, positives: sp.csr_matrix, *, most: int = _MOST_WEIGHTS, n_threads: int = 1
) -> sp.csr_matrix:
    r"""The mean of each label's rows, scaled to unit length, of which the ``most`` largest weights are kept.

    .. math:: c_j = \sum_{i \in P_j} x_i \Big/ \Big\lVert\sum_{i \in P_j} x_i\Big\rVert

    From ``rows`` (n, d) of unit length and the known ``positives`` (n, L), CSR (L, d) with sorted indices. Time: one
    addition for every stored entry of every positive row of every label.
    """
    by_label = _by_label(positives, rows.dtype)
    entries = np.concatenate([[0], np.cumsum(np.diff(rows.indptr)[by_label.indices], dtype=np.int64)])

    def of_labels(start: int, stop: int) -> sp.csr_matrix:
        sums = sp.csr_matrix(by_label[start:stop] @ rows)
        sums.sort_indices()
        return _largest(sp.csr_matrix(unit_rows(sums)), most)

    parts = run_chunks(of_labels, work_chunks(entries[by_label.indptr]), n_threads)
    return sp.csr_matrix(sp.vstack(parts, format="csr"))


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
