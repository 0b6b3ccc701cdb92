"""What the rows of a label look like on average, kept sparse: a label's prototype."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import unit_rows
from tagwise.parallel import run_chunks, work_chunks

__all__ = ["label_prototypes", "usual_prototype_weight"]

# Twice and four times as many rank held-out rows of five sets no better.
_MOST_WEIGHTS = 50
# Over the root of the mean number of a label's rows: what held-out rows of five sets like best is near it, from 0.2
# where labels have 250 rows to 0.6 where they have 24.
_PROTOTYPE_WEIGHT = 3.0


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
