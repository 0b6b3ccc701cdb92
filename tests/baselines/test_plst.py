"""PLST: principal components of the labels, then ridge regression."""

import numpy as np
import pytest
from linear_labels import linear_labels
from sklearn.linear_model import Ridge

from tagwise import BinaryRelevance
from tagwise.baselines import PLST
from tagwise.data import load_dataset
from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseWarning
from tagwise.metrics import precision_at_k

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


def test_too_large_a_rank_is_clipped_with_a_warning():
    X, Y = data()
    with pytest.warns(TagwiseWarning, match=r"rank=20 is more than there are labels \(8\); using 8") as caught:
        PLST(rank=20).fit(X, Y)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("parameters", "error", "words"),
    [
        ({"rank": 0}, InvalidInputError, "rank must be at least 1"),
        ({"rank": 2.5}, InvalidTypeError, "rank must be a whole number"),
        ({"reg": 0}, InvalidInputError, "reg must be finite above 0"),
        ({"random_state": "x"}, InvalidTypeError, "random_state"),
        ({"random_state": -1}, InvalidInputError, "random_state"),
    ],
)
def test_bad_parameters(parameters, error, words):
    with pytest.raises(error, match=words):
        PLST(**parameters).fit(*data())


def test_bibtex(data_folder):
    bibtex = load_dataset("bibtex")
    model = PLST(rank=100).fit(bibtex.X_train, bibtex.Y_train)
    assert precision_at_k(bibtex.Y_test, model.predict_topk(bibtex.X_test, 1)[0], 1) > 0.61
