"""Labels by the direction of their weights."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import LEML, BinaryRelevance
from tagwise.baselines import KNN
from tagwise.exceptions import ExplanationError, InvalidInputError
from tagwise.inspection import nearest_labels


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = sp.random(60, 20, density=0.3, random_state=1, format="csr")
    Y = (rng.random((60, 7)) < 0.3).astype(np.float32)
    return X, Y


@pytest.mark.parametrize("model", [BinaryRelevance(), LEML(rank=4)])
def test_cosines_of_all_weights(model, fitted, monkeypatch):
    model.fit(*fitted)
    weights = model.label_weights(np.arange(7))
    unit = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    cosines = unit @ unit.T
    monkeypatch.setattr("tagwise.inspection.explanations._BLOCK_WEIGHTS", 40)  # blocks of two labels
    labels, found = nearest_labels(model, 2, top=10)
    expected = [label for label in np.argsort(-cosines[2], kind="stable") if label != 2]
    assert labels.tolist() == expected
    np.testing.assert_allclose(found, cosines[2, expected], atol=1e-5)
    assert nearest_labels(model, 2, top=3)[0].tolist() == expected[:3]


def test_a_label_without_weights_is_like_none(fitted):
    X, Y = fitted
    constant = np.hstack([Y, np.ones((60, 1), dtype=np.float32)])
    model = BinaryRelevance().fit(X, constant)
    assert 7 not in nearest_labels(model, 0)[0]
    assert len(nearest_labels(model, 7)[0]) == 0


def test_bad_calls(fitted):
    model = BinaryRelevance().fit(*fitted)
    with pytest.raises(InvalidInputError, match="label must be below 7"):
        nearest_labels(model, 7)
    with pytest.raises(InvalidInputError, match="top must be at least 1"):
        nearest_labels(model, 0, top=0)
    with pytest.raises(ExplanationError):
        nearest_labels(KNN().fit(*fitted), 0)
