"""Slow, obvious twins of the metrics, a random problem, and the folder of real data."""

import math
from types import SimpleNamespace

import numpy as np
import pytest


def _top(scores, k):
    return sorted(range(len(scores)), key=lambda label: (-scores[label], label))[:k]


def _precision(Y, S, k):
    return sum(sum(Y[i, label] for label in _top(S[i], k)) / k for i in range(len(Y))) / len(Y)


def _recall(Y, S, k):
    found = [sum(Y[i, label] for label in _top(S[i], k)) for i in range(len(Y))]
    return sum(f / Y[i].sum() if Y[i].any() else 0.0 for i, f in enumerate(found)) / len(Y)


def _gain(y, ranking, q, k):
    """Discounted gain of one row's ranking, over the discounts of its min(k, true labels) first places."""
    ideal = sum(1 / math.log2(j + 2) for j in range(min(k, int(y.sum()))))
    return sum(q[label] * y[label] / math.log2(j + 2) for j, label in enumerate(ranking[:k])) / ideal if ideal else 0


def _ndcg(Y, S, k):
    return sum(_gain(Y[i], _top(S[i], k), np.ones(Y.shape[1]), k) for i in range(len(Y))) / len(Y)


def _psp(Y, S, q, k):
    gained = sum(q[label] * Y[i, label] for i in range(len(Y)) for label in _top(S[i], k))
    best = sum(sum(sorted((q * Y[i]).tolist(), reverse=True)[:k]) for i in range(len(Y)))
    return gained / best if best else 0.0


def _psndcg(Y, S, q, k):
    gained = sum(_gain(Y[i], _top(S[i], k), q, k) for i in range(len(Y)))
    best = sum(_gain(Y[i], _top(q * Y[i], k), q, k) for i in range(len(Y)))
    return gained / best if best else 0.0


def _coverage(Y, S, k):
    right = {label for i in range(len(Y)) for label in _top(S[i], k) if Y[i, label]}
    return len(right) / Y.any(axis=0).sum() if Y.any() else 0.0


def _auc(Y, S):
    areas = []
    for y, s in zip(Y, S):
        pairs = [(s[p] > s[m]) + (s[p] == s[m]) / 2 for p in np.flatnonzero(y) for m in np.flatnonzero(y == 0)]
        if pairs:
            areas.append(sum(pairs) / len(pairs))
    return sum(areas) / len(areas)


@pytest.fixture(scope="session")
def reference():
    return SimpleNamespace(
        top=_top,
        precision=_precision,
        recall=_recall,
        ndcg=_ndcg,
        psp=_psp,
        psndcg=_psndcg,
        coverage=_coverage,
        auc=_auc,
    )


@pytest.fixture(params=[0, 1], ids=["distinct scores", "tied scores"])
def problem(request):
    """Y (with an empty row, a full row and a label never on), dense scores and inverse propensities."""
    rng = np.random.default_rng(7)
    Y = (rng.random((60, 17)) < 0.2).astype(np.int8)
    Y[:, 5] = 0
    Y[3] = 0
    Y[4] = 1
    S = rng.standard_normal(Y.shape)
    if request.param:
        S = np.round(S)
    return Y, S, rng.uniform(1.0, 9.0, Y.shape[1])
