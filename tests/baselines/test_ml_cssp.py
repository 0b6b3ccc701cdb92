"""ML-CSSP: labels drawn by leverage, the rest reconstructed from them."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from linear_labels import linear_labels
from sklearn.linear_model import Ridge

from tagwise import BinaryRelevance
from tagwise.baselines import MLCSSP
from tagwise.baselines.ml_cssp import drawn_by_leverage

N, D, L = 60, 9, 8
data = partial(linear_labels, N, D, L, 0.4)


def test_the_rest_is_reconstructed_from_the_drawn_labels():
    X, Y = data()
    model = MLCSSP(rank=3, reg=0.5, normalize=False).fit(X, Y)
    chosen, mean = model.selected_labels_, Y.toarray().mean(axis=0)
    assert len(set(chosen.tolist())) == 3
    centred = Y.toarray() - mean
    ridge = Ridge(alpha=0.5, solver="svd").fit(X.toarray(), centred[:, chosen])
    weights = np.linalg.pinv(centred[:, chosen]) @ centred
    expected = mean + ridge.predict(X.toarray()) @ weights
    np.testing.assert_allclose(model.decision_function(X), expected - 0.5, atol=1e-8)
    left_out = 0.5 * np.sum((centred - centred[:, chosen] @ weights) ** 2)
    regression = 0.5 * np.sum((centred[:, chosen] - ridge.predict(X.toarray())) ** 2) + 0.25 * np.sum(ridge.coef_**2)
    assert model.objective_[0] == pytest.approx(left_out + regression, rel=1e-8)


def test_drawn_labels_are_scored_by_their_own_regression():
    X, Y = data()
    model = MLCSSP(rank=3).fit(X, Y)
    alone = BinaryRelevance().fit(X, Y).decision_function(X)
    chosen = model.selected_labels_
    np.testing.assert_allclose(model.decision_function(X)[:, chosen], alone[:, chosen], atol=1e-8)


def test_labels_that_come_together_share_the_weight():
    X, Y = data()
    twice = sp.csr_matrix(sp.hstack([Y, Y]))
    model = MLCSSP(rank=2 * L).fit(X, twice)
    expected = BinaryRelevance().fit(X, twice).decision_function(X)
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-6)


def test_draws_follow_the_leverage_scores():
    directions = np.sqrt(np.array([[0.7], [0.0], [0.2], [0.1]]))
    rng = np.random.default_rng(0)
    drawn = np.concatenate([drawn_by_leverage(directions, rng) for _ in range(4000)])
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 4000, [0.7, 0, 0.2, 0.1], atol=0.03)


def test_draws_are_distinct_and_never_of_zero_leverage():
    rng = np.random.default_rng(0)
    directions = np.zeros((10, 4))
    directions[:3] = rng.standard_normal((3, 4))
    np.testing.assert_array_equal(drawn_by_leverage(directions, rng), [0, 1, 2])
    np.testing.assert_array_equal(drawn_by_leverage(np.zeros((4, 2)), rng), [0])
