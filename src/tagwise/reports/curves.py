"""How well frequent and rare labels are found: head, middle and tail, and finer bins of training frequency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError

__all__ = [
    "GROUPS",
    "FrequencyBins",
    "adds_up",
    "frequency_bins",
    "frequency_groups",
    "group_recall",
    "label_counts",
    "pairs_in",
    "share",
]

GROUPS = ("head", "middle", "tail")
"""The most frequent labels, those between, and the rarest."""


def adds_up(history: list[dict[str, Any]]) -> bool:
    """Whether a fit goes through the labels in batches: its objective is then the sum over those that are done."""
    return any("labels" in info for info in history)


def frequency_groups(label_rows: np.ndarray) -> np.ndarray:
    """Head (0), middle (1) or tail (2) for every label, by how often it occurs in training.

    Labels are put in order, the most frequent first. Those that start within the first third of all assignments (pairs
    of a row and its label) are the head, those that start within the second third the middle, all others the tail: the
    groups weigh about the same in rows, though the tail usually has most of the labels. Labels that are equally
    frequent are always in one group.

    Parameters
    ----------
    label_rows : int array (L,)
        Training rows of each label.
    """
    counts = np.asarray(label_rows, dtype=np.int64)
    groups = np.full(len(counts), 2, dtype=np.int8)
    total = counts.sum()
    if total == 0:
        return groups
    order = np.argsort(-counts, kind="stable")
    sorted_counts = counts[order]
    before = np.cumsum(sorted_counts) - sorted_counts
    # Where the first label of the same frequency starts decides for all of them.
    first = np.searchsorted(-sorted_counts, -sorted_counts, side="left")
    groups[order] = np.minimum(3 * before[first] // total, 2)
    return groups


def group_recall(ranked: np.ndarray, Y: sp.csr_matrix, groups: np.ndarray) -> np.ndarray:
    """The share of each group's true labels that is among the first k, for every k.

    Parameters
    ----------
    ranked : int array (n, K)
        The best labels of each row, −1 for none.
    Y : CSR (n, L)
        True labels.
    groups : int array (L,)
        From :func:`frequency_groups`.

    Returns
    -------
    float64 array (3, K)
        NaN for a group without any true label.
    """
    if ranked.shape[0] != Y.shape[0]:
        raise InvalidInputError(f"ranked has {ranked.shape[0]:,} rows but Y has {Y.shape[0]:,}.")
    hits = pairs_in(ranked, Y)
    found = np.zeros((len(GROUPS), ranked.shape[1]))
    rows, places = np.nonzero(hits)
    np.add.at(found, (groups[ranked[rows, places]], places), 1)
    true = np.bincount(groups[Y.indices], minlength=len(GROUPS))
    shares = np.full(found.shape, np.nan)
    some = true > 0
    shares[some] = np.cumsum(found[some], axis=1) / true[some, None]
    return shares


def label_counts(listed: np.ndarray, Y: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """How often each label is listed, and how often it is so rightly; ``listed`` is int (n, K), −1 for none."""
    hits = pairs_in(listed, Y)
    said = np.bincount(listed[listed >= 0], minlength=Y.shape[1])
    right = np.bincount(listed[hits], minlength=Y.shape[1])
    return said, right


@dataclass(frozen=True, eq=False)
class FrequencyBins:
    """Labels gathered by training frequency into bins that double: 1, 2–3, 4–7, ….

    Attributes
    ----------
    low, high : int64 arrays (B,)
        The frequencies of a bin, both included; a bin for labels without a training row has 0 and 0.
    labels : int64 array (B,)
        How many labels it has.
    precision, recall, f1 : float64 arrays (B,)
        Over all pairs of the bin's labels together; NaN where nothing was listed, or nothing is true.
    true : int64 array (B,)
        How many true pairs they have in the rows that were looked at.
    """

    low: np.ndarray
    high: np.ndarray
    labels: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    true: np.ndarray


def frequency_bins(label_rows: np.ndarray, true: np.ndarray, listed: np.ndarray, right: np.ndarray) -> FrequencyBins:
    """Gather labels by frequency.

    Parameters
    ----------
    label_rows : int array (L,)
        Training rows of each label.
    true, listed, right : int arrays (L,)
        In the rows that were looked at: how often each label is true, is listed, and is both.
    """
    counts = np.asarray(label_rows, dtype=np.int64)
    # frexp is exact where log2 of a power of two might round: 2^(e−1) ≤ count < 2^e.
    place = np.where(counts > 0, np.frexp(counts.astype(np.float64))[1], 0)
    used = np.unique(place)
    position = np.searchsorted(used, place)

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(position, weights=values, minlength=len(used)).astype(np.int64)

    low = np.where(used > 0, 1 << np.maximum(used - 1, 0), 0)
    high = np.where(used > 0, (1 << used) - 1, 0)
    true_sum, listed_sum, right_sum = total(true), total(listed), total(right)
    return FrequencyBins(
        low,
        high,
        np.bincount(position, minlength=len(used)),
        share(right_sum, listed_sum),
        share(right_sum, true_sum),
        share(2 * right_sum, true_sum + listed_sum),
        true_sum,
    )


def share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """``part / whole``, NaN where the whole is 0."""
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)


def pairs_in(listed: np.ndarray, Y: sp.csr_matrix) -> np.ndarray:
    """Which of the labels listed for each row (int (n, K), −1 for none) are stored in that row of Y."""
    # A pair is looked up as one number among the sorted ones.
    n_rows, n_labels = Y.shape
    true = np.repeat(np.arange(n_rows, dtype=np.int64), np.diff(Y.indptr)) * n_labels + Y.indices
    true.sort()
    pairs = np.arange(n_rows, dtype=np.int64)[:, None] * n_labels + listed
    if len(true) == 0:
        return np.zeros(listed.shape, dtype=bool)
    place = np.minimum(np.searchsorted(true, pairs), len(true) - 1)
    return (true[place] == pairs) & (listed >= 0)
