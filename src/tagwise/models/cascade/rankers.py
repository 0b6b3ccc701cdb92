"""What a cascade learns after its proposer: which proposals were wrong, and rankers that tell them apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.kernels.dual_coordinate_descent import train_sparse_svms
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.models.reml.reml import REML
from tagwise.parallel import even_chunks, thread_count
from tagwise.persistence.fit_state import State, array, model, real, sparse

__all__ = ["FittedProposer", "Rankers", "hardest", "learn_rankers", "positives_of", "wrong_proposals"]

# Rows whose shortlists are made together.
_BLOCK_ROWS = 1 << 14
# Rankers that are solved further cost a quarter more time and rank held-out rows no better.
_TOL = 0.3


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
    are their places there, from 1. Memory: 6 bytes a pair, and a block of shortlists.
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
