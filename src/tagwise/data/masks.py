"""Masks of known labels, for experiments with labels that are missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.randomness import RandomState, random_generator
from tagwise.validation import check_labels, check_real

__all__ = ["hide_labels"]

_CHUNK = 1 << 22


def hide_labels(Y: Any, fraction_observed: float, random_state: RandomState = None) -> sp.csr_matrix:
    """Choose at random which entries of Y are known: the mask Ω of LEML's missing-label tables.

    Each of the n·L entries, whether 0 or 1, is known with probability p = ``fraction_observed``, independently of all
    others: their number is binomial with mean p·n·L. Hand the mask to a model as ``observed``; Y stays as it is.

    Parameters
    ----------
    Y : sparse matrix or array of 0 and 1, shape (n, L)
        Labels. Only the shape matters for the result.
    fraction_observed : float
        Probability that an entry is known, above 0 and at most 1.
    random_state : int, numpy.random.Generator or None, default None
        Seed; the same seed, shape and fraction give the same mask.

    Returns
    -------
    csr_matrix of float32, shape (n, L)
        A 1 for each known entry, with sorted indices. It can be empty when p·n·L is small.

    Notes
    -----
    Walks over the n·L entries in row order by the gaps between known ones, which are geometric
    with parameter p. Time and memory are O(n + nnz Ω), whatever n·L is.
    """
    n_rows, n_labels = check_labels(Y).shape
    p = check_real(fraction_observed, "fraction_observed", minimum=0, maximum=1, open_minimum=True)
    rng = random_generator(random_state)
    total = n_rows * n_labels
    columns: list[np.ndarray] = []
    per_row = np.zeros(n_rows, dtype=np.int64)
    last = -1
    while last < total - 1:
        positions = last + np.cumsum(_gaps(rng, p, total, total - 1 - last))
        last = int(positions[-1])
        rows, labels = np.divmod(positions[: np.searchsorted(positions, total)], n_labels)
        columns.append(labels.astype(np.int32 if n_labels <= np.iinfo(np.int32).max else np.int64))
        if len(rows):
            first = int(rows[0])
            counts = np.bincount(rows - first)
            per_row[first : first + len(counts)] += counts
    indices = np.concatenate(columns) if columns else np.zeros(0, dtype=np.int32)
    indptr = np.concatenate([[0], np.cumsum(per_row)])
    return sp.csr_matrix((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(n_rows, n_labels))


def _gaps(rng: np.random.Generator, p: float, total: int, remaining: int) -> np.ndarray:
    """Draw distances to the next known entries, about as many as are still to come and at most a chunk."""
    expected = p * remaining
    wanted = int(expected + 4 * np.sqrt(expected) + 16)
    # A gap beyond the end counts as "one past the end"; with that bound, the chunk's running sum fits 64 bits.
    length = max(1, min(wanted, _CHUNK, (1 << 62) // (total + 1)))
    return np.minimum(rng.geometric(p, size=length), total + 1)
