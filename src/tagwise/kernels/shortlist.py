"""Shortlists of labels: scores of linear maps for them alone, and which of them a matrix stores."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import compiled
from tagwise.parallel import run_chunks, work_chunks

__all__ = ["pairs_listed", "shortlist_scores"]


def shortlist_scores(
    shortlist: sp.csr_matrix, rows: sp.csr_matrix, coefficients: np.ndarray, *, n_threads: int = 1
) -> np.ndarray:
    """``(rows @ coefficients)[i, j]`` for every stored entry (i, j) of ``shortlist``, in storage order.

    ``shortlist`` is CSR (n, L), ``rows`` CSR (n, d), ``coefficients`` (d, L), whose type the result has; sums are in
    float64. Time O(Σ_i features of row i × shortlist of row i), memory O(nnz of the shortlist).
    """
    if (rows.shape[0], coefficients.shape[1]) != shortlist.shape or rows.shape[1] != coefficients.shape[0]:
        raise InvalidInputError(
            f"rows {rows.shape} and coefficients {coefficients.shape} must be n×d and d×L for a shortlist of shape "
            f"{shortlist.shape}."
        )
    out = np.empty(shortlist.nnz, dtype=coefficients.dtype)

    def part(start: int, stop: int) -> None:
        _shortlist_scores(
            shortlist.indptr, shortlist.indices, rows.indptr, rows.indices, rows.data, coefficients, out, start, stop
        )

    run_chunks(part, work_chunks(shortlist.indptr), n_threads)
    return out


def pairs_listed(labels: np.ndarray, pairs: sp.csr_matrix, *, n_threads: int = 1) -> np.ndarray:
    """Whether each label of each row's shortlist is stored in ``pairs``: bool (n, M).

    ``labels`` is int (n, M), −1 for none (False); ``pairs`` CSR (n, L) with sorted indices. Time O(n·M·log L) at most.
    """
    if labels.shape[0] != pairs.shape[0]:
        raise InvalidInputError(f"labels {labels.shape} and pairs {pairs.shape} must be n×M and n×L.")
    out = np.empty(labels.shape, dtype=np.bool_)
    run_chunks(
        lambda start, stop: _pairs_listed(labels, pairs.indptr, pairs.indices, out, start, stop),
        work_chunks(np.arange(len(labels) + 1) * max(1, labels.shape[1])),
        n_threads,
    )
    return out


@compiled()
def _pairs_listed(labels, indptr, indices, out, start, stop):
    for row in range(start, stop):
        stored = indices[indptr[row] : indptr[row + 1]]
        for place in range(labels.shape[1]):
            at = np.searchsorted(stored, labels[row, place])
            out[row, place] = at < len(stored) and stored[at] == labels[row, place]


@compiled()
def _shortlist_scores(indptr, labels, row_indptr, features, data, coefficients, out, start, stop):
    longest = 0
    for row in range(start, stop):
        longest = max(longest, indptr[row + 1] - indptr[row])
    sums = np.empty(longest)
    for row in range(start, stop):
        begin, count = indptr[row], indptr[row + 1] - indptr[row]
        sums[:count] = 0
        # Feature by feature: a row of coefficients is read while it is in the cache.
        for position in range(row_indptr[row], row_indptr[row + 1]):
            weights, value = coefficients[features[position]], np.float64(data[position])
            for place in range(count):
                sums[place] += value * weights[labels[begin + place]]
        for place in range(count):
            out[begin + place] = sums[place]
