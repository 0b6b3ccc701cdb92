"""Quality by label frequency: head, middle and tail, and finer bins of training frequency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.sampled_pairs import contains_pairs

__all__ = [
    "GROUPS",
    "FrequencyBins",
    "frequency_bins",
    "frequency_groups",
    "group_recall",
    "objective_curve",
    "share",
]

GROUPS = ("head", "middle", "tail")
"""The most frequent labels, those between, and the rarest."""


def objective_curve(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The iterations of a fit whose objectives can be compared; none where there are fewer than two.

    A fit of one step has no curve; nor has one that solves labels in batches, whose objective adds up over them, or one
    of stages with objectives of their own (Cascade).
    """
    comparable = len(history) > 1 and not any("labels" in info or info.get("stage") for info in history)
    return history if comparable else []


def frequency_groups(label_rows: np.ndarray) -> np.ndarray:
    """Head (0), middle (1) or tail (2) for every label, given its number of training rows (L).

    Labels are sorted by falling frequency. Those that start within the first third of all assignments (pairs of a row
    and its label) are the head, those that start within the second third the middle, all others the tail. So the groups
    have about as many assignments each, though the tail usually has most of the labels. Equally frequent labels are
    always in the same group.
    """
    counts = np.asarray(label_rows, dtype=np.int64)
    groups = np.full(len(counts), 2, dtype=np.int8)
    total = counts.sum()
    if total == 0:
        return groups
    order = np.argsort(-counts, kind="stable")
    sorted_counts = counts[order]
    before = np.cumsum(sorted_counts) - sorted_counts
    # The first label of a frequency decides for all of them.
    first = np.searchsorted(-sorted_counts, -sorted_counts, side="left")
    groups[order] = np.minimum(3 * before[first] // total, 2)
    return groups


def group_recall(ranked: np.ndarray, Y: sp.csr_matrix, groups: np.ndarray) -> np.ndarray:
    """Recall at k of each group's true labels, for every k (3×K); NaN for a group without any true label.

    ``ranked`` holds the best K labels of each row, −1 for none.
    """
    if ranked.shape[0] != Y.shape[0]:
        raise InvalidInputError(f"ranked has {ranked.shape[0]:,} rows but Y has {Y.shape[0]:,}.")
    hits = contains_pairs(Y, ranked)
    found = np.zeros((len(GROUPS), ranked.shape[1]))
    rows, ranks = np.nonzero(hits)
    np.add.at(found, (groups[ranked[rows, ranks]], ranks), 1)
    true = np.bincount(groups[Y.indices], minlength=len(GROUPS))
    return share(np.cumsum(found, axis=1), true[:, None])


@dataclass(frozen=True, eq=False)
class FrequencyBins:
    """Labels binned by training frequency into bins that double: 1, 2–3, 4–7, …; arrays with an entry per bin.

    Precision, recall and F1 are over all pairs of the bin's labels; NaN if nothing is listed, or nothing is true.
    """

    low: np.ndarray  # first frequency of a bin; 0 for labels without a training row
    high: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray


def frequency_bins(label_rows: np.ndarray, true: np.ndarray, listed: np.ndarray, right: np.ndarray) -> FrequencyBins:
    """Bin labels by their training rows, given how often each is true, is listed, and is both (L each)."""
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
        precision=share(right_sum, listed_sum),
        recall=share(right_sum, true_sum),
        f1=share(2 * right_sum, true_sum + listed_sum),
    )


def share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """``part / whole``; NaN if the whole is 0."""
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)
