"""Exact scores of a few candidates of each row, and the k best of them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import compiled
from tagwise.kernels.norm_pruned import is_hidden, product
from tagwise.kernels.top_k import check_exclude, keep, nothing_found
from tagwise.parallel import run_chunks, work_chunks

__all__ = ["top_k_of_candidates"]


def top_k_of_candidates(
    left: np.ndarray,
    right: np.ndarray,
    candidates: np.ndarray,
    k: int,
    *,
    intercept: np.ndarray,
    exclude: sp.csr_matrix | None = None,
    n_threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest of some entries of each row of ``left @ rightᵀ + intercept``.

    Parameters
    ----------
    left, right : array (n, r), array (L, r)
        Both of one floating type.
    candidates : int array (n, m)
        Different labels a row; −1 for none.
    k : int
    intercept : array (L,)
    exclude : CSR (n, L) with sorted indices, optional
        Stored pairs are never returned.
    n_threads : int

    Returns
    -------
    labels : int64 array (n, k), best first; equal scores in the order of their ids; −1 where a row has no more.
    scores : array (n, k) in the type of ``left``; −inf where the label is −1.

    Notes
    -----
    Time O(n·m·r), memory the result.
    """
    shapes = (left.shape, right.shape, candidates.shape, intercept.shape)
    fits = candidates.ndim == 2 and len(candidates) == len(left) and intercept.shape == (len(right),)
    if not fits or left.shape[1:] != right.shape[1:]:
        raise InvalidInputError(f"left, right, candidates and intercept must be n×r, L×r, n×m and L; found {shapes}.")
    if candidates.size and candidates.max() >= len(right):
        raise InvalidInputError(f"candidates holds label {candidates.max()}; there are {len(right)}.")
    check_exclude(exclude, (len(left), len(right)))
    labels, scores = nothing_found(len(left), k, left.dtype)
    hidden = (np.zeros(0, dtype=np.int32),) * 2 if exclude is None else (exclude.indptr, exclude.indices)
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    shift = intercept.astype(left.dtype, copy=False)

    def rows(start: int, stop: int) -> None:
        _score(left, right, candidates, shift, hidden, scores, labels, start, stop)

    work = np.arange(len(left) + 1) * max(1, candidates.shape[1] * right.shape[1])
    run_chunks(rows, work_chunks(work), n_threads)
    return labels, scores


# Without "reassoc", so that a score has the bits of a row's score in tagwise.kernels.norm_pruned.
@compiled()
def _score(left, right, candidates, shift, hidden, best_scores, best_labels, start, stop):
    for row in range(start, stop):
        for place in range(candidates.shape[1]):
            label = candidates[row, place]
            if label >= 0 and not is_hidden(row, label, hidden):
                keep(best_scores[row], best_labels[row], product(left[row], right, label) + shift[label], label)
