"""Slow twins of a cascade's fusion: the formulas of its docstring, one label at a time, on dense arrays."""

import numpy as np
import scipy.sparse as sp
from scipy.special import expit


def own_numbers(facts, label, proposed, margin, cosine, name=None, meaning=None):
    margin = margin if facts.has_ranker[label] else 2 * proposed
    numbers = [
        np.clip(margin, -4, 4),
        np.log(np.clip(proposed + 0.5, 1e-3, 1)) + 1.5,
        np.log((np.clip(cosine, 0, 1) + 0.1) / 1.1) + 1.2,
        0.5 * np.log((facts.frequency[label] + 0.5) / 30),
    ]
    return [*numbers, *([] if name is None else [name]), *([] if meaning is None else [3 * meaning])]


def own_terms(numbers):
    products = [a * b for i, a in enumerate(numbers) for b in numbers[i:]]
    return np.array([*numbers, *products, 1.0])


def counts(facts):
    """c (L, L), symmetric."""
    n_labels = len(facts.frequency)
    stored = facts.pairs.values, facts.pairs.columns, facts.pairs.starts
    return sp.csr_matrix(stored, shape=(n_labels, n_labels)).toarray()


def context_terms(facts, labels, odds):
    """The terms of each label of a row with the log odds ``odds``, by their own opinions; −∞ where there are none."""
    together, f = counts(facts), facts.frequency
    base = (f + 0.5) / (facts.n_rows + 1)
    order = sorted((at for at in range(len(labels)) if odds[at] > -np.inf), key=lambda at: (-odds[at], at))
    sources = [at for at in order[:8] if expit(odds[at]) >= 0.05]
    terms = np.zeros((len(labels), 8))
    for at in order:
        label = labels[at]
        others = [source for source in sources if source != at]
        weights = np.array([expit(odds[source]) for source in others])
        lifts = [
            np.log((together[label, labels[s]] + 5 * base[label]) / (f[labels[s]] + 5) / base[label]) for s in others
        ]
        lift = weights @ np.array(lifts) / max(weights.sum(), 0.3) if others else 0.0
        z, often, first = odds[at], 0.5 * np.log((f[label] + 0.5) / 30), odds[at] == max(odds)
        evidence = np.zeros(4) if first else lift * np.array([1, z, often, lift])
        terms[at] = [z, z * z / 5, often, often * z, *evidence]
    return terms


def level_terms(odds, scores):
    """The terms of each label of a row with the log odds ``odds`` and the ordering ``scores``."""
    terms = np.zeros((len(odds), 6))
    for at in np.flatnonzero(odds > -np.inf):
        x, rank = scores[at], sum(odds > odds[at])
        terms[at] = [x, x * x / 5, rank == 0, (rank == 0) * x, np.log(1 + rank), 1.0]
    return terms


def fused_scores(fusion, opinions, facts):
    """p − ½ (n, M) of shortlists without gaps."""
    n_rows, width = opinions.margins.shape
    out = np.empty((n_rows, width))
    for row in range(n_rows):
        labels = opinions.labels[row, :width]
        named = opinions.names[row] if opinions.names.shape[1] else [None] * width
        meant = opinions.meanings[row] if opinions.meanings.shape[1] else [None] * width
        numbers = zip(labels, opinions.proposed[row], opinions.margins[row], opinions.cosines[row], named, meant)
        odds = np.array([own_terms(own_numbers(facts, *each)) @ fusion.own for each in numbers])
        unseen = [facts.frequency[label] == 0 and name is not None and name > 0 for label, name in zip(labels, named)]
        odds[unseen] = -np.inf
        if width:
            final = level_terms(odds, context_terms(facts, labels, odds) @ fusion.context) @ fusion.level
            for at in np.flatnonzero(unseen):
                whole = named[at] >= 0.999 * facts.whole_name[labels[at]]
                final[at] = fusion.unseen @ [named[at], whole, whole * facts.log_named[labels[at]], 1]
            out[row] = expit(final) - 0.5
    return out
