"""Scores that are listed for a few columns of each row, while every other column has a base score of its own.

Methods that look at neighbours score this way: a label that no neighbour has gets the same score in every row. The k
best of a row are found among its listed columns and the head of the columns sorted by base score; n×L never exists.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import compiled
from tagwise.kernels.top_k import check_exclude, nothing_found
from tagwise.parallel import even_chunks, run_chunks
from tagwise.validation import shape_text

__all__ = ["scores_of_listed", "top_k_of_listed"]

_ROWS = 512


def scores_of_listed(listed: sp.csr_matrix, base: np.ndarray) -> np.ndarray:
    """The scores as a dense array (n, L) in the type of ``base``; memory is the result."""
    _check_base(listed, base)
    out = np.tile(base, (listed.shape[0], 1))
    rows = np.repeat(np.arange(listed.shape[0]), np.diff(listed.indptr))
    out[rows, listed.indices] = listed.data
    return out


def top_k_of_listed(
    listed: sp.csr_matrix, base: np.ndarray, k: int, *, exclude: sp.csr_matrix | None = None, n_threads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest scores of each row.

    Parameters
    ----------
    listed : CSR (n, L) without duplicates
        A stored entry is the score of its column, a stored 0 too.
    base : array (L,)
        The score of each column in the rows that do not list it.
    k : int
        How many per row; may exceed L.
    exclude : CSR (n, L), optional
        Stored pairs are never returned.
    n_threads : int

    Returns
    -------
    labels : int64 array (n, k), best first; equal scores in the order of their ids; -1 where a row has no more columns.
    scores : array (n, k) in the type of ``base``; -inf where the label is -1.

    Notes
    -----
    Time O(L log L) once, then O(l·k) for a row of l listed and excluded columns. Memory O(n·k) and L numbers a thread.
    """
    _check_base(listed, base)
    check_exclude(exclude, listed.shape)
    labels, scores = nothing_found(listed.shape[0], k, base.dtype)
    by_base = np.argsort(-base, kind="stable")
    values = listed.data.astype(base.dtype, copy=False)
    hidden = exclude if exclude is not None else sp.csr_matrix(listed.shape)

    def rows(start: int, stop: int) -> None:
        _merge_listed(listed.indptr, listed.indices, values, base, by_base, hidden.indptr, hidden.indices, start, stop,
                      scores, labels)  # fmt: skip

    run_chunks(rows, even_chunks(listed.shape[0], _ROWS), n_threads)
    return labels, scores


def _check_base(listed: sp.csr_matrix, base: np.ndarray) -> None:
    if base.shape != (listed.shape[1],):
        raise InvalidInputError(
            f"base has shape {base.shape} where {shape_text(listed.shape)} listed scores need ({listed.shape[1]},)."
        )


@compiled()
def _insert(best, names, last, score, name):
    """Put a column at its place among the k best; returns whether it has one."""
    if names[last] >= 0 and (score < best[last] or (score == best[last] and name > names[last])):
        return False
    place = last
    while place > 0 and (
        names[place - 1] < 0 or best[place - 1] < score or (best[place - 1] == score and names[place - 1] > name)
    ):
        best[place] = best[place - 1]
        names[place] = names[place - 1]
        place -= 1
    best[place] = score
    names[place] = name
    return True


@compiled()
def _merge_listed(indptr, indices, values, base, by_base, hidden_indptr, hidden_indices, start, stop, scores, labels):
    last = scores.shape[1] - 1
    # The last row, counted from 1, in which a column was settled: hidden columns first, so that listing cannot bring
    # them back; what is settled takes no base score.
    settled = np.zeros(len(base), dtype=np.int64)
    for row in range(start, stop):
        best, names = scores[row], labels[row]
        for position in range(hidden_indptr[row], hidden_indptr[row + 1]):
            settled[hidden_indices[position]] = row + 1
        for position in range(indptr[row], indptr[row + 1]):
            column = indices[position]
            if settled[column] != row + 1:
                settled[column] = row + 1
                _insert(best, names, last, values[position], column)
        for column in by_base:
            if settled[column] != row + 1 and not _insert(best, names, last, base[column], column):
                break
