"""Slow twins of a cascade's opinions and their fusion: the formulas of the docstrings, one label at a time."""

from typing import NamedTuple

import numpy as np
from scipy.special import expit


class Counts(NamedTuple):
    """Frequencies of labels: f (L,), alone; c (L, L), symmetric, together; in n rows."""

    frequency: np.ndarray
    together: np.ndarray
    n_rows: int


def often(frequency):
    return 0.5 * np.log((frequency + 0.5) / 30)


def opinions(model, labels, proposed, margins, cosines, shares):
    """The numbers (K, n, M) of a cascade of words on labels (n, M), from dense sums."""
    found = {
        "ranker": np.clip(np.where(model.has_ranker_[labels], margins, 2 * proposed), -4, 4),
        "proposer": np.log(np.clip(proposed + 0.5, 1e-3, 1)) + 1.5,
        "prototype": np.log((np.clip(cosines, 0, 1) + 0.1) / 1.1) + 1.2,
        "frequency": often(model.label_frequency_)[labels],
        "name": shares**2,
    }
    return np.array([found[name] for name in model.opinions_])


def own_terms(numbers):
    products = [a * b for i, a in enumerate(numbers) for b in numbers[i:]]
    return np.array([*numbers, *products, 1.0])


def context_terms(counts, labels, odds):
    """The terms of each label of a row with the log odds ``odds``, by their own opinions; −∞ where there are none."""
    f = counts.frequency
    base = (f + 0.5) / (counts.n_rows + 1)
    order = sorted((at for at in range(len(labels)) if odds[at] > -np.inf), key=lambda at: (-odds[at], at))
    sources = [at for at in order[:8] if expit(odds[at]) >= 0.05]
    terms = np.zeros((len(labels), 8))
    for at in order:
        label = labels[at]
        others = [source for source in sources if source != at]
        weights = np.array([expit(odds[source]) for source in others])
        lifts = [
            np.log((counts.together[label, labels[s]] + 5 * base[label]) / (f[labels[s]] + 5) / base[label])
            for s in others
        ]
        lift = weights @ np.array(lifts) / max(weights.sum(), 0.3) if others else 0.0
        z, frequent, first = odds[at], often(f[label]), odds[at] == max(odds)
        evidence = np.zeros(4) if first else lift * np.array([1, z, frequent, lift])
        terms[at] = [z, z * z / 5, frequent, frequent * z, *evidence]
    return terms


def level_terms(odds, scores):
    """The terms of each label of a row with the log odds ``odds`` and the ordering ``scores``."""
    terms = np.zeros((len(odds), 6))
    for at in np.flatnonzero(odds > -np.inf):
        x, rank = scores[at], sum(odds > odds[at])
        terms[at] = [x, x * x / 5, rank == 0, (rank == 0) * x, np.log(1 + rank), 1.0]
    return terms


def fused_scores(fusion, candidates, counts):
    """p − ½ (n, M) of shortlists without gaps."""
    _, n_rows, width = candidates.opinions.shape
    out = np.empty((n_rows, width))
    for row in range(n_rows):
        labels = candidates.labels[row, :width]
        odds = np.array([own_terms(candidates.opinions[:, row, at]) @ fusion.own for at in range(width)])
        unseen = ~np.isnan(candidates.by_name[row]) if len(candidates.by_name) else np.zeros(width, dtype=bool)
        odds[unseen] = -np.inf
        final = level_terms(odds, context_terms(counts, labels, odds) @ fusion.context) @ fusion.level
        final[unseen] = candidates.by_name[row][unseen] if unseen.any() else 0
        out[row] = expit(final) - 0.5
    return out
