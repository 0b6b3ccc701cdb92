"""Folders that earlier versions wrote load, and answer what they answered then. They are never written again."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import ApproximateIndex, Tagger, load
from tagwise.persistence import read_model
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


# The folder of format version 1.


def test_version_1():
    record = read_model(GOLDEN.parent / "v1")
    assert record.class_name == "LEML"
    weights = record.parameters.pop("positive_weight")
    assert weights.dtype == np.float64
    assert weights.tolist() == [1.0, 2.0, 4.0]
    assert record.parameters == {
        "rank": 3,
        "reg": 0.1,
        "tol": math.inf,
        "ngram_range": (1, 2),
        "loss": "squared",
        "random_state": None,
        "normalize": True,
        "nested": {"low": -math.inf, "list": [1, "zwei", [2**64 - 1]]},
    }
    assert math.isnan(record.values.pop("gap_"))
    assert record.values == {"n_iter_": 7, "objective_": [3.5, 2.25]}
    assert record.label_names == ["red", "grün", "line\nbreak", '"quoted"', "𝛌"]

    tensors = record.tensors
    assert tensors["W"].dtype == np.float32
    assert tensors["W"].tolist() == [[0.0, 0.25, 0.5], [0.75, 1.0, 1.25]]
    assert tensors["scale"].shape == ()
    assert tensors["scale"] == 0.1
    assert tensors["empty"].shape == (0, 3)
    assert isinstance(tensors["S"], sp.csr_matrix)
    assert tensors["S"].toarray().tolist() == [[0, 1.5, 0], [0, 0, 0], [-2.0, 0, 0.25]]
    assert tensors["S64"].indices.dtype == np.int64
    assert tensors["S64"].toarray().tolist() == [[0, 0, 0, 0, 1], [2, 0, 0, 0, 0]]
    narrow = ["float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
    for dtype in narrow:
        assert tensors[dtype].dtype == np.dtype(dtype)
        assert tensors[dtype].tolist() == [0, 1, 1]
    assert set(tensors) == {"W", "scale", "empty", "S", "S64", *narrow}
