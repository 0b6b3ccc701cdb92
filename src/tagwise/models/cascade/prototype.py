"""Opinion: the cosine of a row with the label's prototype, the mean of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.answers import finite_scores
from tagwise.estimator import MultiLabelModel
from tagwise.executor import blocks_of_work
from tagwise.fields import Fields, csr
from tagwise.kernels import unit_rows
from tagwise.kernels.compiled import compiled
from tagwise.kernels.shortlists import shortlist_margins
from tagwise.kernels.top_k import count_above, kth_largest, sort_names
from tagwise.models.cascade.opinion import LabelSide, Opinion, Rows, blocks_of, both_blocks, write_logarithms
from tagwise.objectives.labels import per_row
from tagwise.parallel import run_chunks, thread_count, work_chunks

__all__ = ["Prototype", "label_prototypes"]

# Twice and four times as many rank validation rows of five sets no better.
_MOST_WEIGHTS = 50
# Cosines near 0 are not told apart, so that a label of few rows is not out for want of a common word.
_LEAST_COSINE = 0.1


class Prototype(Opinion):
    """log of (c + 0.1)/1.1 for the cosine c of the row with the label's prototype."""

    name = "prototype"
    fields = Fields(
        prototypes_=csr("L", "d", meaning="The mean of each label's rows, of unit length; its 50 largest weights.")
    )

    @classmethod
    def fit(cls, side: LabelSide) -> dict[str, Any]:
        """Means of the rows of blocks of labels."""
        unit, threads = both_blocks(side.scaled)[0], thread_count(side.model.n_jobs)
        if not side.model.normalize:
            unit = sp.csr_matrix(unit_rows(unit, n_threads=threads))
        rows = per_row(unit, side.problem.row_weight)
        bounds = blocks_of_work(np.diff(side.by_label.indptr), side.executor.n_blocks)
        common = side.executor.share(rows), _MOST_WEIGHTS, side.model.n_jobs
        parts = side.executor.map(label_prototypes, blocks_of(side.by_label, bounds), *common)
        return {"prototypes_": sp.csr_matrix(sp.vstack(parts, format="csr")) if len(parts) > 1 else parts[0]}

    def __init__(self, model: MultiLabelModel) -> None:
        self.prototypes, self.no_shift = model.prototypes_, np.zeros(model.n_labels_, model.prototypes_.dtype)

    def write(self, rows: Rows, labels: np.ndarray, proposed: np.ndarray, out: np.ndarray) -> None:
        """Logarithms of cosines."""
        cosines = shortlist_margins(rows.unit, labels, self.prototypes, self.no_shift, n_threads=rows.n_threads)
        least = _LEAST_COSINE
        write_logarithms(finite_scores(cosines), least, least, 1 + least, 1.2 - np.log(1 + least), out)


def label_prototypes(by_label: sp.csr_matrix, rows: sp.csr_matrix, most: int, n_jobs: int | None) -> sp.csr_matrix:
    r"""The mean of each label's rows, scaled to unit length, of which the ``most`` largest weights are kept.

    .. math:: c_j = \sum_{i \in P_j} x_i \Big/ \Big\lVert\sum_{i \in P_j} x_i\Big\rVert

    From ``rows`` (n, d) of unit length and the positive rows of each label (L, n), CSR (L, d) with sorted indices.
    Time: one addition for every stored entry of every positive row of every label.
    """
    entries = np.concatenate([[0], np.cumsum(np.diff(rows.indptr)[by_label.indices], dtype=np.int64)])[by_label.indptr]
    features, rows_of_labels = (rows.indptr, rows.indices, rows.data), (by_label.indptr, by_label.indices)
    counts = np.zeros(len(entries) - 1, dtype=np.int64)
    found = run_chunks(
        lambda start, stop: _prototypes(features, rows.shape[1], rows_of_labels, entries, most, counts, start, stop),
        work_chunks(entries),
        thread_count(n_jobs),
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
    total, seen = np.zeros(n_features), np.empty(n_features, dtype=np.int32)
    seen[:] = -1
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
                if seen[feature] < 0:
                    seen[feature], touched[count] = 0, feature
                    count += 1
                total[feature] += data[position]
        own = touched[:count]
        sort_names(own, seen)
        sizes, largest, squared = np.empty(count), 0.0, 0.0
        for i in range(count):
            sizes[i] = abs(total[own[i]])
            largest = max(largest, sizes[i])
        # In two steps: squares of sums of the largest or smallest floating numbers are not finite, or nothing.
        for i in range(count if largest > 0 else 0):
            squared += (sizes[i] / largest) ** 2
        length = largest * np.sqrt(squared) if largest > 0 else 1.0
        least, equal = -1.0, 0
        if count > most:
            least = kth_largest(sizes, most)
            equal = most - count_above(sizes, least)
        before = filled
        for i in range(count):
            if sizes[i] > least or (sizes[i] == least and equal > 0):
                equal -= sizes[i] == least
                chosen[filled], weights[filled] = own[i], total[own[i]] / length
                filled += 1
            total[own[i]], seen[own[i]] = 0, -1
        counts[label] = filled - before
    return chosen[:filled].copy(), weights[:filled].copy()
