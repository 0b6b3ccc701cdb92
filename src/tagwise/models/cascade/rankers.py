"""What a cascade learns after its proposer: rankers that know wrong proposals from right ones, and prototypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.kernels.compiled import compiled
from tagwise.kernels.dual_coordinate_descent import Descent, train_sparse_svms
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.models.reml.reml import REML
from tagwise.parallel import even_chunks, run_chunks, thread_count, work_chunks
from tagwise.persistence.fit_state import State, array, model, real, sparse
from tagwise.validation import canonical_csr

__all__ = [
    "FittedProposer",
    "Rankers",
    "label_prototypes",
    "learn_rankers",
    "rows_by_label",
    "with_columns",
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
    """The up to ``many`` best labels of each row of X that are known to be off: (n, L) as CSR of ones, best first.

    They are looked for among the ``many`` best labels and as many more as a row has positives on average. Memory: 5
    bytes per pair, ``many`` pairs per row, and the shortlists of a block of rows.
    """
    threads = thread_count(proposer.n_jobs)
    width = min(_depth(positives, many), positives.shape[1])
    indices = np.empty(X.shape[0] * min(many, width), dtype=np.int32)
    indptr, filled = np.zeros(X.shape[0] + 1, dtype=np.int64), 0
    for start, stop in even_chunks(X.shape[0], _BLOCK_ROWS):
        labels, _ = proposer.predict_topk(X[start:stop], width)
        wrong = (labels >= 0) & ~contains_pairs(positives[start:stop], labels, n_threads=threads)
        if observed is not None:
            wrong &= contains_pairs(observed[start:stop], labels, n_threads=threads)
        wrong &= np.cumsum(wrong, axis=1, dtype=np.int32) <= many
        indptr[start + 1 : stop + 1] = filled + np.cumsum(wrong.sum(axis=1))
        indices[filled : indptr[stop]] = labels[wrong]
        filled = indptr[stop]
    return sp.csr_matrix((np.ones(filled, dtype=np.int8), indices[:filled], indptr), shape=positives.shape)


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
    """A ranker for each label that has positive and negative rows, both by label (L, n)."""
    descent = Descent(tol=_TOL, seed=seed)
    weights, intercept, objective = train_sparse_svms(
        rows, positives, negatives, descent, C=C, prune=prune, n_threads=n_threads
    )
    trained = (np.diff(positives.indptr) > 0) & (np.diff(negatives.indptr) > 0)
    return Rankers(weights, intercept.astype(rows.dtype), trained, float(objective.sum()))


def rows_by_label(pairs: sp.csr_matrix) -> sp.csr_matrix:
    """The rows of each label: of pairs (n, L) the transpose, CSR (L, n) of ones in int8; 5 bytes per pair."""
    n_rows, n_labels = pairs.shape
    counts, rows = np.zeros(n_labels, dtype=np.int64), np.empty(pairs.nnz, dtype=np.int32)
    _count_labels(pairs.indices, counts)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    _sort_by_label(pairs.indptr, pairs.indices, indptr[:-1].copy(), rows)
    return sp.csr_matrix((np.ones(len(rows), dtype=np.int8), rows, indptr), shape=(n_labels, n_rows))


@compiled()
def _count_labels(indices: np.ndarray, counts: np.ndarray) -> None:
    """``numpy.bincount`` without its copy of the indices."""
    for label in indices:
        counts[label] += 1


@compiled()
def _sort_by_label(indptr: np.ndarray, indices: np.ndarray, ends: np.ndarray, rows: np.ndarray) -> None:
    """Put each row behind those that its labels have already; ``ends`` (L,) are where the lists of labels end."""
    for row in range(len(indptr) - 1):
        for label in indices[indptr[row] : indptr[row + 1]]:
            rows[ends[label]] = row
            ends[label] += 1


def with_columns(matrix: sp.csr_matrix, labels: np.ndarray, columns: sp.csr_matrix) -> sp.csr_matrix:
    """The matrix (d, L) with the columns of some labels replaced by others (d, len(labels)); memory three copies."""
    replaced = np.zeros(matrix.shape[1], dtype=bool)
    replaced[labels] = True
    stay = ~replaced[matrix.indices]
    indptr = np.concatenate([[0], np.cumsum(stay)])[matrix.indptr]
    others = sp.csr_matrix((matrix.data[stay], matrix.indices[stay], indptr), shape=matrix.shape)
    new = sp.csr_matrix((columns.data, labels[columns.indices], columns.indptr), shape=matrix.shape)
    return canonical_csr(others + new)


def label_prototypes(
    rows: sp.csr_matrix, positives: sp.csr_matrix, *, most: int = _MOST_WEIGHTS, n_threads: int = 1
) -> sp.csr_matrix:
    r"""The mean of each label's rows, scaled to unit length, of which the ``most`` largest weights are kept.

    .. math:: c_j = \sum_{i \in P_j} x_i \Big/ \Big\lVert\sum_{i \in P_j} x_i\Big\rVert

    From ``rows`` (n, d) of unit length and the known ``positives`` (n, L), CSR (L, d) with sorted indices. Time: one
    addition for every stored entry of every positive row of every label.
    """
    by_label = rows_by_label(positives)
    entries = np.concatenate([[0], np.cumsum(np.diff(rows.indptr)[by_label.indices], dtype=np.int64)])[by_label.indptr]
    features, rows_of_labels = (rows.indptr, rows.indices, rows.data), (by_label.indptr, by_label.indices)
    counts = np.zeros(len(entries) - 1, dtype=np.int64)
    found = run_chunks(
        lambda start, stop: _prototypes(features, rows.shape[1], rows_of_labels, entries, most, counts, start, stop),
        work_chunks(entries),
        n_threads,
    )
    indices, data = (np.concatenate(part) for part in zip(*found))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return sp.csr_matrix((data, indices, indptr), shape=(len(counts), rows.shape[1]))


@compiled()
def _prototypes(
    features: tuple[np.ndarray, np.ndarray, np.ndarray],
    n_features: int,
    rows_of_labels: tuple[np.ndarray, np.ndarray],
    entries: np.ndarray,
    most: int,
    counts: np.ndarray,
    start: int,
    stop: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The prototypes of labels ``start`` to ``stop``: features and weights, one label after the other."""
    indptr, indices, data = features
    label_indptr, label_rows = rows_of_labels
    total, seen = np.zeros(n_features), np.zeros(n_features, dtype=np.bool_)
    touched = np.empty(n_features, dtype=np.int32)
    room = 0
    for label in range(start, stop):
        room += min(most, entries[label + 1] - entries[label])
    chosen, weights = np.empty(room, dtype=np.int32), np.empty(room, dtype=data.dtype)
    filled = 0
    for label in range(start, stop):
        count = 0
        for row in label_rows[label_indptr[label] : label_indptr[label + 1]]:
            for position in range(indptr[row], indptr[row + 1]):
                feature = indices[position]
                if not seen[feature]:
                    seen[feature], touched[count] = True, feature
                    count += 1
                total[feature] += data[position]
        own = touched[:count]
        own.sort()
        sizes = np.abs(total[own])
        # In two steps: squares of sums of the largest or smallest floating numbers are not finite, or nothing.
        largest = sizes.max() if count > 0 else 0.0
        length = largest * np.sqrt(np.sum((sizes / largest) ** 2)) if largest > 0 else 1.0
        least, equal = -1.0, 0
        if count > most:
            least = np.partition(sizes, count - most)[count - most]
            equal = most - np.sum(sizes > least)
        before = filled
        for i in range(count):
            if sizes[i] > least or (sizes[i] == least and equal > 0):
                equal -= sizes[i] == least
                chosen[filled], weights[filled] = own[i], total[own[i]] / length
                filled += 1
            total[own[i]], seen[own[i]] = 0, False
        counts[label] = filled - before
    return chosen[:filled].copy(), weights[:filled].copy()
