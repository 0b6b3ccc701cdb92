"""Folders of taggers whose digests are right and whose content is not: refused with one error, in little memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import BinaryRelevance, Tagger, load
from tagwise.exceptions import ModelFormatError
from tagwise.persistence import read_model, write_model

TEXTS = ["the dog and the cat", "a dog on a leash", "wine in a bottle", "grape and wine"] * 12
TAGS = [["pets"], ["pets"], ["drinks"], ["drinks", "food"]] * 12


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    path = tmp_path_factory.mktemp("taggers") / "m"
    Tagger(BinaryRelevance()).fit(TEXTS, TAGS).calibrate(TEXTS, TAGS).save(path)
    return read_model(path)


def changed(value, path, new):
    """A copy of nested dicts with the entry at a path of keys replaced, or dropped where ``new`` is Ellipsis."""
    copy = dict(value)
    if len(path) > 1:
        copy[path[0]] = changed(copy[path[0]], path[1:], new)
    elif new is ...:
        del copy[path[0]]
    else:
        copy[path[0]] = new
    return copy


def refuse(record, tmp_path, words="the content does not fit|does not know"):
    write_model(tmp_path / "m", record)
    tracemalloc.start()
    with pytest.raises(ModelFormatError, match=words) as caught:
        load(tmp_path / "m")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
    assert str(tmp_path / "m") in str(caught.value)


def test_the_record_itself_loads(record, tmp_path):
    write_model(tmp_path / "m", record)
    assert load(tmp_path / "m").tags_ == ["drinks", "food", "pets"]


@pytest.mark.parametrize(
    ("path", "new"),
    [
        (["model"], ...),
        (["model"], None),
        (["model"], "BinaryRelevance"),
        (["model", "class"], "Popen"),
        (["model", "class"], "Tagger"),
        (["model", "class"], 3),
        (["model", "class"], "KNN"),
        (["model", "parameters"], {}),
        (["model", "parameters", "reg"], -1.0),
        (["model", "parameters", "surprise"], 1),
        (["model", "values", "n_labels_"], 10**15),
        (["model", "values", "n_features_in_"], 5),
        (["model", "values", "history_"], 5),
        (["model", "surprise"], 1),
        (["choice"], None),
        (["choice", "name"], 3),
        (["choice", "parameters"], []),
        (["choice", "reason"], None),
        (["choice", "reason"], ...),
        (["training"], []),
        (["training", "rows"], -1),
        (["training", "rows"], True),
        (["training", "rows"], 10.5),
        (["training", "known_pairs"], "all"),
        (["training", "seconds"], "1"),
        (["training", "tag_rows"], [1, 2, 3]),
        (["training", "tag_rows"], np.ones(3)),
        (["training", "tag_rows"], np.ones(4, np.int64)),
        (["training", "tag_rows"], np.array([-1, 1, 1])),
        (["training", "tag_rows"], np.array([10**9, 1, 1])),
        (["training", "surprise"], 1),
        (["calibration"], 5),
        (["calibration"], None),
        (["calibration", "target"], "best"),
        (["calibration", "places"], 0),
        (["calibration", "surprise"], 0),
        (["reference"], 5),
        (["reference"], None),
        (["reference", "rows"], 0),
        (["reference", "rows"], 7),
        (["reference", "empty_rows"], 49),
        (["reference", "unknown_words"], [0.5]),
        (["reference", "unknown_words"], [2.0, 0.1]),
        (["reference", "unknown_words"], "many"),
        (["reference", "surprise"], 1),
        (["features"], None),
        (["features", "class"], "Pipeline"),
        (["features", "class"], "CountVectorizer"),
        (["features", "parameters"], {}),
        (["features", "parameters", "min_df"], 0),
        (["features", "parameters", "min_df"], ...),
        (["features", "parameters", "max_df"], 2.0),
        (["features", "parameters", "max_features"], "all"),
        (["features", "parameters", "bigrams"], True),
        (["features", "parameters", "characters"], True),
        (["features", "parameters", "characters"], 1),
        (["features", "parameters", "sublinear_tf"], None),
        (["tag_type"], "float"),
        (["tag_type"], "int"),
        (["output_format"], 5),
        (["output_format"], ["dense", "O"]),
        (["surprise"], 1),
    ],
    ids=str,
)
def test_forged_values(record, tmp_path, path, new):
    refuse(replace(record, values=changed(record.values, path, new)), tmp_path)


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("model", "svm"),
        ("model", 3),
        ("features", "letters"),
        ("features", 5),
        ("n_jobs", "many"),
        ("random_state", "x"),
        ("surprise", 1),
        ("features", ...),
    ],
)
def test_forged_parameters(record, tmp_path, name, new):
    refuse(replace(record, parameters=changed(record.parameters, [name], new)), tmp_path)


@pytest.mark.parametrize("names", [None, [], ["drinks", "food"], ["a", "b", "c", "d"], ["a", "a", "b"]], ids=str)
def test_forged_tags(record, tmp_path, names):
    refuse(replace(record, label_names=names), tmp_path)


def words(*terms):
    return np.frombuffer("\n".join(terms).encode(), dtype=np.uint8)


def test_forged_vocabulary(record, tmp_path):
    terms = record.tensors["features.words"].tobytes().decode().split("\n")
    for forged in (
        words(*terms[:-1]),
        words(*terms, "more"),
        words(*terms[:-1], terms[0]),
        words(*terms[:-1], ""),
        np.append(record.tensors["features.words"][:-1], np.uint8(255)),
        np.zeros(0, np.uint8),
        record.tensors["features.words"].astype(np.int64),
        record.tensors["features.words"].reshape(1, -1),
        sp.csr_matrix(np.ones((1, 3))),
    ):
        refuse(replace(record, tensors={**record.tensors, "features.words": forged}), tmp_path)


def test_every_tensor_is_checked(record, tmp_path):
    """Missing, of another shape, type or storage, or not finite: none is believed."""
    for name, tensor in record.tensors.items():
        others = {
            "missing": None,
            "scalar": np.ones((), tensor.dtype),
            "one dimension more": tensor[None],
            "another type": np.nan_to_num(tensor).astype(np.int16 if tensor.dtype.kind == "f" else np.float32),
            "sparse": sp.csr_matrix(np.atleast_2d(tensor).astype(np.float64)),
        }
        if name != "features.words":  # a byte more is another word, which a tagger may well have
            others["one entry more"] = np.concatenate([tensor, tensor[:1]])
        if tensor.dtype.kind == "f" and not name.startswith("calibration.reliability"):
            others["not a number"] = np.full(tensor.shape, np.nan, tensor.dtype)
        for what, other in others.items():
            tensors = {key: value for key, value in record.tensors.items() if key != name}
            tensors |= {} if other is None else {name: other}
            write_model(tmp_path / "m", replace(record, tensors=tensors))
            with pytest.raises(ModelFormatError):
                pytest.fail(f"{name}, {what}: loaded as {load(tmp_path / 'm')}")


@pytest.mark.parametrize("name", ["surprise", "features", "features.", "other.words", "features.bytes", "model.more"])
def test_tensors_that_belong_nowhere(record, tmp_path, name):
    refuse(replace(record, tensors={**record.tensors, name: np.ones(3)}), tmp_path)


def test_a_calibration_that_is_half_there(record, tmp_path):
    without = {name: array for name, array in record.tensors.items() if not name.startswith("calibration.")}
    refuse(replace(record, tensors=without), tmp_path, "calibration")
    values = {**record.values, "calibration": None}
    refuse(replace(record, values=values), tmp_path, "calibration")
    write_model(tmp_path / "m", replace(record, tensors=without, values=values))
    assert load(tmp_path / "m").calibration_ is None


def test_a_model_that_calls_itself_a_tagger(record, tmp_path):
    refuse(replace(record, class_name="BinaryRelevance"), tmp_path, "does not fit BinaryRelevance")
    BinaryRelevance().fit(np.eye(4), np.eye(4)).save(tmp_path / "plain")
    plain = read_model(tmp_path / "plain")
    refuse(replace(plain, class_name="Tagger"), tmp_path, "does not fit Tagger")
