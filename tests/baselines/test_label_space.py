"""The principal label directions are the right singular vectors of the centered labels; PLST regresses them."""

import numpy as np
import pytest
import scipy.sparse as sp
from linear_labels import linear_labels
from sklearn.linear_model import Ridge

from tagwise import BinaryRelevance
from tagwise.baselines import PLST, label_space
from tagwise.baselines.label_space import principal_label_directions


def labels():
    rng = np.random.default_rng(3)
    Y = (rng.random((50, 12)) < np.linspace(0.1, 0.6, 12)).astype(float)
    Y[:, 2], Y[:, 5] = 0, 1
    return sp.csr_matrix(Y)


@pytest.mark.parametrize("largest_dense", [2000, 0], ids=["dense", "lanczos"])
def test_they_span_what_the_svd_spans(monkeypatch, largest_dense):
    monkeypatch.setattr(label_space, "_LARGEST_DENSE", largest_dense)
    Y = labels()
    V = principal_label_directions(Y, 4, np.random.default_rng(0))
    centered = Y.toarray() - Y.toarray().mean(axis=0)
    _, values, right = np.linalg.svd(centered)
    np.testing.assert_allclose(np.abs(np.sum(V * right[:4].T, axis=0)), 1, atol=1e-8)
    np.testing.assert_allclose(np.linalg.norm(centered @ V, axis=0), values[:4], rtol=1e-8)
    np.testing.assert_allclose(V[[2, 5]], 0)


def test_no_more_directions_than_labels_that_vary():
    assert principal_label_directions(labels(), 12, np.random.default_rng(0)).shape == (12, 10)
    nothing = principal_label_directions(sp.csr_matrix((5, 3)), 2, np.random.default_rng(0))
    np.testing.assert_array_equal(nothing, np.zeros((3, 1)))


def test_plst_is_svd_then_ridge():
    X, Y = linear_labels(60, 9, 8, 0.4)
    model = PLST(rank=3, reg=0.5, normalize=False).fit(X, Y)
    mean = Y.toarray().mean(axis=0)
    centred = Y.toarray() - mean
    V = np.linalg.svd(centred)[2][:3].T
    ridge = Ridge(alpha=0.5, solver="svd").fit(X.toarray(), centred @ V)
    expected = mean + ridge.predict(X.toarray()) @ V.T
    np.testing.assert_allclose(model.decision_function(X), expected - 0.5, atol=1e-8)
    penalty = 0.25 * np.sum(ridge.coef_**2)
    assert model.objective_[0] == pytest.approx(0.5 * np.sum((Y.toarray() - expected) ** 2) + penalty, rel=1e-8)


def test_plst_of_full_rank_is_binary_relevance():
    X, Y = linear_labels(60, 9, 8, 0.4)
    np.testing.assert_allclose(
        PLST(rank=8).fit(X, Y).decision_function(X), BinaryRelevance().fit(X, Y).decision_function(X), atol=1e-8
    )
