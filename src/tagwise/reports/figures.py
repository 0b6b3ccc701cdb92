"""Figures on rankings: quality by label frequency, suggestions to accept, labels that are confused, rows to check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.sampled_pairs import contains_pairs

GROUPS = ("head", "middle", "tail")
"""The most frequent labels, those between, and the rarest."""
PRECISIONS = (0.95, 0.9, 0.8)
"""Usual precision targets for suggestions accepted without review."""
# With fewer suggestions above a threshold, their precision is chance.
_FEWEST_ACCEPTED = 20


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


# ---------------------------------------------------------------------- mistakes


@dataclass(frozen=True, eq=False)
class Acceptance:
    """Suggestions from the surest to the least sure: what accepting all down to some confidence brings.

    Arrays have an entry for each different confidence, falling: of the suggestions that are at least as sure, the share
    of all suggestions, the precision, and the share of all true tags that they find.
    """

    confidence: np.ndarray
    accepted: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    count: np.ndarray  # number of accepted suggestions

    def at(self, precision: float) -> int | None:
        """Index that accepts the most suggestions at this precision or more; None if there is none."""
        good = np.flatnonzero((self.precision >= precision) & (self.count >= _FEWEST_ACCEPTED))
        return int(good[-1]) if len(good) else None


def acceptance(labels: np.ndarray, confidence: np.ndarray, truth: sp.csr_matrix) -> Acceptance:
    """From the suggestions of rows (n, k; −1 for none), how sure each is (n, k), and the true tags (n, L)."""
    listed = labels >= 0
    sure, right = confidence[listed], contains_pairs(truth, labels)[listed]
    order = np.argsort(-sure, kind="stable")
    sure, right = sure[order], np.cumsum(right[order])
    # Equally sure suggestions are accepted together.
    ends = np.flatnonzero(np.append(sure[1:] != sure[:-1], True)) if len(sure) else np.empty(0, dtype=np.int64)
    count = ends + 1
    return Acceptance(
        sure[ends], count / max(1, len(sure)), right[ends] / count, right[ends] / max(1, truth.nnz), count
    )


@dataclass(frozen=True)
class Confusion:
    """A tag that rows have and another that they get in its place, as labels or as people call them."""

    tag: Any
    instead: Any
    rows: int  # number that have the first, not among as many suggestions as they have tags, and the second there
    of: int  # number that have the first


def confusions(labels: np.ndarray, truth: sp.csr_matrix, most: int) -> list[Confusion]:
    """The pairs of labels that are taken for each other most, beyond what chance explains.

    A row with m labels should have these as its m best; ``labels`` (n, k) are its best, −1 for none. Each true label
    that is not among them is confused with each wrong one that is. Pairs are ordered by how many rows confuse them
    minus how many would if missed and wrong labels met by chance; one row alone is no confusion.
    """
    n_labels, sizes = truth.shape[1], np.diff(truth.indptr)
    best = np.where(np.arange(labels.shape[1]) < sizes[:, None], labels, -1)
    right = contains_pairs(truth, best)
    wrong = _pairs(best, (best >= 0) & ~right, truth.shape)
    found = _pairs(best, right, truth.shape)
    # Rows with more labels than suggestions miss some for want of room; these are not confused.
    room = (sizes <= labels.shape[1]).astype(np.int64)[:, None]
    missed = sp.csr_matrix((truth.astype(np.int64) - found).multiply(room))
    missed.eliminate_zeros()
    pairs = sp.coo_matrix(missed.T @ wrong)
    total = max(1, int(np.count_nonzero((np.diff(missed.indptr) > 0) & (np.diff(wrong.indptr) > 0))))
    n_missed = np.bincount(missed.indices, minlength=n_labels)
    n_wrong = np.bincount(wrong.indices, minlength=n_labels)
    excess = pairs.data - n_missed[pairs.row] * n_wrong[pairs.col] / total
    order = np.lexsort((pairs.col, pairs.row, -pairs.data, -excess))
    order = order[(pairs.data[order] > 1) & (excess[order] > 0)][:most]
    frequency = np.bincount(truth.indices, minlength=n_labels)
    return [
        Confusion(int(pairs.row[p]), int(pairs.col[p]), int(pairs.data[p]), int(frequency[pairs.row[p]])) for p in order
    ]


def surest_mistakes(
    labels: np.ndarray, confidence: np.ndarray, truth: sp.csr_matrix, most: int
) -> Sequence[tuple[int, int]]:
    """Rows, and the ranks of their surest wrong suggestion, surest first: where a tag is most likely missing."""
    wrong = (labels >= 0) & ~contains_pairs(truth, labels)
    sure = np.where(wrong, confidence, -np.inf)
    ranks = np.argmax(sure, axis=1)
    value = sure[np.arange(len(sure)), ranks]
    rows = np.argsort(-value, kind="stable")[:most]
    return [(int(row), int(ranks[row])) for row in rows if np.isfinite(value[row])]


def _pairs(labels: np.ndarray, chosen: np.ndarray, shape: tuple[int, int]) -> sp.csr_matrix:
    """The chosen of the labels (n, k) of each row as a 0/1 matrix."""
    rows, places = np.nonzero(chosen)
    ones = np.ones(len(rows), dtype=np.int64)
    return sp.csr_matrix((ones, (rows, labels[rows, places])), shape=shape)
