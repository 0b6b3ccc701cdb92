r"""Decision thresholds for every label, chosen on validation rows for one of three F1s.

With TP_j(c) true labels among the c best-scored pairs of label j, P_j rows that have it, and a cut c_j for every label:

- macro: :math:`\frac1L\sum_j 2\,TP_j / (c_j + P_j)`; every label is a problem of its own.
- micro: :math:`2\sum_j TP_j / \sum_j (c_j + P_j)`; at the best value F the cuts maximise
  :math:`\sum_j 2\,TP_j(c_j) - F c_j` label by label, so Dinkelbach's iteration finds F exactly in a few rounds.
- example: the mean over rows of :math:`2|y_i \cap \hat y_i| / (|y_i| + |\hat y_i|)`; coordinate ascent over labels,
  each step exact, until a sweep changes nothing.

Such a cut overfits the few validation rows of a rare label, so thresholds are shrunk towards the one shared threshold
that is best for micro-F1: :math:`t_j = (P_j t_j^{\text{own}} + \kappa\,t^{\text{shared}}) / (P_j + \kappa)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tagwise.inspection.validation_pairs import ValidationPairs

__all__ = ["TARGETS", "best_thresholds"]

TARGETS = ("micro", "macro", "example")
_MOST_ROUNDS = 50
_MOST_SWEEPS = 10


def best_thresholds(pairs: ValidationPairs, target: str, shrinkage: float) -> np.ndarray:
    """Thresholds (L,): a label is on if its score is at least its threshold.

    A label's own threshold is half-way between the lowest score that it accepts and the highest that it rejects, or
    just above its highest score if the label is best never on. ``shrinkage`` is κ. Time O(P log P) per round for P
    pairs.
    """
    shared = _shared_threshold(pairs)
    thresholds = np.full(pairs.n_labels, shared)
    ranking = _Ranking.of(pairs)
    if len(ranking.labels) == 0:
        return thresholds
    if target == "macro":
        cuts = ranking.best_cuts(2 * ranking.hits / (ranking.counts + ranking.positives))
    else:
        # Pairs of labels without a positive, all of them wrong, that the shared threshold accepts.
        rest = np.flatnonzero((pairs.label_sizes[pairs.labels] == 0) & (pairs.scores >= shared))
        cuts = _micro_cuts(pairs, ranking, rest)
        if target == "example":
            cuts = _example_cuts(pairs, ranking, cuts, rest)
    weight = pairs.label_sizes[ranking.labels] / (pairs.label_sizes[ranking.labels] + shrinkage)
    thresholds[ranking.labels] = weight * ranking.thresholds(cuts) + (1 - weight) * shared
    return thresholds


@dataclass(frozen=True, eq=False)
class _Ranking:
    """The pairs of labels with a positive, label by label, best first. All but the last three arrays are over pairs."""

    order: np.ndarray
    scores: np.ndarray
    hits: np.ndarray  # true pairs of the label up to this one
    counts: np.ndarray  # pairs of the label up to this one
    positives: np.ndarray  # P_j of the pair's label
    is_cut: np.ndarray  # whether the label's next pair, if any, has a lower score: a cut cannot separate equal scores
    labels: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, pairs: ValidationPairs) -> _Ranking:
        chosen = np.flatnonzero(pairs.label_sizes[pairs.labels] > 0)
        order = chosen[np.lexsort((-pairs.scores[chosen], pairs.labels[chosen]))]
        labels, starts, sizes = np.unique(pairs.labels[order], return_index=True, return_counts=True)
        scores = pairs.scores[order]
        running = np.cumsum(pairs.on[order])
        hits = running - np.repeat(running[starts] - pairs.on[order][starts], sizes) if len(order) else running
        is_cut = np.ones(len(order), dtype=bool)
        is_cut[:-1] = scores[1:] < scores[:-1]
        is_cut[starts[1:] - 1] = True
        counts = np.arange(len(order)) - np.repeat(starts, sizes) + 1
        positives = pairs.label_sizes[pairs.labels[order]]
        return cls(order, scores, hits, counts, positives, is_cut, labels, starts, sizes)

    def best_cuts(self, gain: np.ndarray) -> np.ndarray:
        """Number of pairs of each label to accept for the largest gain; none if no gain is above 0."""
        allowed = np.where(self.is_cut, gain, -np.inf)
        best = np.maximum.reduceat(allowed, self.starts)
        winners = np.flatnonzero(allowed == np.repeat(best, self.sizes))
        owner = np.repeat(np.arange(len(self.labels)), self.sizes)[winners]
        first = winners[np.unique(owner, return_index=True)[1]]
        return np.where(best > 0, self.counts[first], 0)

    def accepted(self, cuts: np.ndarray) -> np.ndarray:
        """Whether the cuts accept each pair, in this order."""
        return self.counts <= np.repeat(cuts, self.sizes)

    def thresholds(self, cuts: np.ndarray) -> np.ndarray:
        last = self.starts + np.maximum(cuts, 1) - 1
        lowest = self.scores[last]
        following = np.minimum(last + 1, len(self.scores) - 1)
        has_next = cuts < self.sizes
        between = np.where(has_next, (lowest + self.scores[following]) / 2, lowest)
        return np.where(cuts > 0, between, np.nextafter(self.scores[self.starts], np.inf))


def _shared_threshold(pairs: ValidationPairs) -> float:
    """The one threshold for all labels with the best micro-F1; above all scores if no pair is on."""
    if len(pairs.scores) == 0:
        return 0.0
    order = np.argsort(-pairs.scores, kind="stable")
    scores = pairs.scores[order]
    f1 = 2 * np.cumsum(pairs.on[order]) / (np.arange(1, len(order) + 1) + pairs.label_sizes.sum())
    f1[:-1][scores[1:] == scores[:-1]] = -1
    best = int(np.argmax(f1))
    if f1[best] <= 0:
        return float(np.nextafter(scores[0], np.inf))
    return float((scores[best] + scores[min(best + 1, len(scores) - 1)]) / 2)


def _micro_cuts(pairs: ValidationPairs, ranking: _Ranking, rest: np.ndarray) -> np.ndarray:
    on = pairs.on[ranking.order]
    value, cuts = 0.0, np.zeros(len(ranking.labels), dtype=np.int64)
    for _ in range(_MOST_ROUNDS):
        proposed = ranking.best_cuts(2 * ranking.hits - value * ranking.counts)
        chosen = ranking.accepted(proposed)
        reached = 2 * int(on[chosen].sum()) / (len(rest) + int(chosen.sum()) + int(pairs.label_sizes.sum()))
        if reached <= value:
            break
        value, cuts = reached, proposed
    return cuts


def _example_cuts(pairs: ValidationPairs, ranking: _Ranking, cuts: np.ndarray, rest: np.ndarray) -> np.ndarray:
    rows, on = pairs.rows[ranking.order], pairs.on[ranking.order].astype(np.float64)
    inside = ranking.accepted(cuts)
    n_rows = len(pairs.true_sizes)
    predicted = np.bincount(pairs.rows[rest], minlength=n_rows) + np.bincount(rows[inside], minlength=n_rows)
    hits = np.bincount(rows[inside], weights=on[inside], minlength=n_rows)
    cuts = cuts.copy()
    by_frequency = np.argsort(-ranking.positives[ranking.starts], kind="stable")
    for _ in range(_MOST_SWEEPS):
        before = cuts.copy()
        for label in by_frequency:
            start, stop = ranking.starts[label], ranking.starts[label] + ranking.sizes[label]
            mine, right = rows[start:stop], on[start:stop]
            # A row lists a label once, so these rows are distinct.
            predicted[mine[: cuts[label]]] -= 1
            hits[mine[: cuts[label]]] -= right[: cuts[label]]
            true = pairs.true_sizes[mine]
            gain = _f1(hits[mine] + right, true + predicted[mine] + 1) - _f1(hits[mine], true + predicted[mine])
            total = np.where(ranking.is_cut[start:stop], np.cumsum(gain), -np.inf)
            best = int(np.argmax(total))
            cuts[label] = best + 1 if total[best] > 0 else 0
            predicted[mine[: cuts[label]]] += 1
            hits[mine[: cuts[label]]] += right[: cuts[label]]
        if np.array_equal(cuts, before):
            break
    return cuts


def _f1(hits: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """2·hits / sizes; a row with neither true nor predicted labels counts 1, as in tagwise.metrics."""
    return np.where(sizes > 0, 2 * hits / np.maximum(sizes, 1), 1.0)
