"""PLST: principal components of the labels, then ridge regression."""

import numpy as np
import pytest
from linear_labels import linear_labels
from sklearn.linear_model import Ridge

from tagwise import BinaryRelevance
from tagwise.baselines import PLST

N, D, L = 60, 9, 8


def data(seed=0):
    return linear_labels(N, D, L, 0.4, seed)


def test_it_is_svd_then_ridge():
    X, Y = data()
    model = PLST(rank=3, reg=0.5, normalize=False).fit(X, Y)
    mean = Y.toarray().mean(axis=0)
    centred = Y.toarray() - mean
    V = np.linalg.svd(centred)[2][:3].T
    ridge = Ridge(alpha=0.5, solver="svd").fit(X.toarray(), centred @ V)
    expected = mean + ridge.predict(X.toarray()) @ V.T
    np.testing.assert_allclose(model.decision_function(X), expected - 0.5, atol=1e-8)
    penalty = 0.25 * np.sum(ridge.coef_**2)
    assert model.objective_[0] == pytest.approx(0.5 * np.sum((Y.toarray() - expected) ** 2) + penalty, rel=1e-8)


def test_full_rank_is_binary_relevance():
    X, Y = data()
    np.testing.assert_allclose(
        PLST(rank=L).fit(X, Y).decision_function(X), BinaryRelevance().fit(X, Y).decision_function(X), atol=1e-8
    )
