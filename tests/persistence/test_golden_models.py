"""Folders of every model that version 0.1.0 wrote load, and answer what they answered then."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import ApproximateIndex, Tagger, load
from tagwise.registry import MODELS

GOLDEN = Path(__file__).parent / "golden" / "0.1.0"
ANSWERS = json.loads((GOLDEN / "answers.json").read_text())


@pytest.mark.parametrize("name", [name for name in ANSWERS if not name.startswith("Tagger")])
def test_models_of_version_0_1_0(name):
    model = load(GOLDEN / name)
    assert type(model).__name__ == name.partition("-")[0]
    labels, scores = model.predict_topk(sp.load_npz(GOLDEN / "X.npz"), k=5)
    expected = np.array(ANSWERS[name]["scores"], dtype=float)
    np.testing.assert_array_equal(labels, ANSWERS[name]["labels"])
    np.testing.assert_allclose(scores, np.nan_to_num(expected, nan=-np.inf), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in ANSWERS if name.startswith("Tagger")])
def test_taggers_of_version_0_1_0(name):
    tagger = load(GOLDEN / name)
    assert isinstance(tagger, Tagger)
    suggested = tagger.suggest(ANSWERS[name]["texts"])
    for row, expected in zip(suggested, ANSWERS[name]["suggestions"], strict=True):
        assert [suggestion.tag for suggestion in row] == [tag for tag, _, _ in expected]
        np.testing.assert_allclose([s.score for s in row], [score for _, score, _ in expected], rtol=1e-6)
        probabilities = [probability for _, _, probability in expected]
        if probabilities[0] is None:
            assert [s.probability for s in row] == probabilities
        else:
            np.testing.assert_allclose([s.probability for s in row], probabilities, atol=1e-6)


def test_an_index_of_version_0_1_0():
    pytest.importorskip("faiss", reason="the approximate index needs faiss")
    model = load(GOLDEN / "ApproximateIndex-model")
    X = sp.load_npz(GOLDEN / "X.npz")
    index = ApproximateIndex.load(GOLDEN / "ApproximateIndex", model)
    labels, scores = index.predict_topk(X, k=3)
    expected = json.loads((GOLDEN / "index-answers.json").read_text())
    np.testing.assert_array_equal(labels, expected["labels"])
    np.testing.assert_allclose(scores, expected["scores"], rtol=1e-9)


def test_every_model_has_a_folder():
    assert {info.class_name for info in MODELS} <= {name.partition("-")[0] for name in ANSWERS}
