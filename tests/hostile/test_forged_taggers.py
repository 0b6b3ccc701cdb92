"""Folders of taggers whose digests are right and whose content is not: refused with one error, in little memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import BinaryRelevance, Tagger, load
from tagwise.exceptions import ModelFormatError
from tagwise.store import read_model, write_model

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


FORGED_VALUES = [
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
    (["calibration", "target"], "best"),
    (["calibration", "k"], 0),
    (["calibration", "surprise"], 0),
    (["reference"], 5),
    (["reference", "rows"], 0),
    (["reference", "rows"], 7),
    (["reference", "empty_rows"], 49),
    (["reference", "unknown_mean"], 2.0),
    (["reference", "unknown_variance"], "many"),
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
]


def test_forged_values(record, tmp_path):
    for path, new in FORGED_VALUES:
        refuse(replace(record, values=changed(record.values, path, new)), tmp_path)


def test_forged_parameters(record, tmp_path):
    for name, new in (
        ("model", "svm"),
        ("model", 3),
        ("features", "letters"),
        ("features", 5),
        ("n_jobs", "many"),
        ("random_state", "x"),
        ("surprise", 1),
        ("features", ...),
    ):
        refuse(replace(record, parameters=changed(record.parameters, [name], new)), tmp_path)


def test_forged_tags(record, tmp_path):
    for names in (None, [], ["drinks", "food"], ["a", "b", "c", "d"], ["a", "a", "b"]):
        refuse(replace(record, label_names=names), tmp_path)


def words(*terms):
    return np.frombuffer("\n".join(terms).encode(), dtype=np.uint8)


def test_forged_vocabulary(record, tmp_path):
    path = ["features", "arrays", "words"]
    own = record.values["features"]["arrays"]["words"]
    terms = own.tobytes().decode().split("\n")
    for forged in (
        words(*terms[:-1]),
        words(*terms, "more"),
        words(*terms[:-1], terms[0]),
        words(*terms[:-1], ""),
        np.append(own[:-1], np.uint8(255)),
        np.zeros(0, np.uint8),
        own.astype(np.int64),
        sp.csr_matrix(np.ones((1, 3))),
    ):
        refuse(replace(record, values=changed(record.values, path, forged)), tmp_path)


def arrays_in(values, path=()):
    """Every array of nested dicts, and its path of keys."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from arrays_in(value, (*path, key))
        elif isinstance(value, np.ndarray):
            yield [*path, key], value


def test_every_array_is_checked(record, tmp_path):
    """Missing, of another shape, type or storage, or not finite: none is believed."""
    found = [*arrays_in(record.values), *(([name], array) for name, array in record.tensors.items())]
    assert len(found) > 15
    for path, array in found:
        others = {
            "missing": ...,
            "scalar": np.ones((), array.dtype),
            "another type": np.nan_to_num(array).astype(np.int16 if array.dtype.kind == "f" else np.float32),
            "sparse": sp.csr_matrix(np.atleast_2d(array).astype(np.float64)),
        }
        if path[-1] != "words":  # a byte more is another word, which a tagger may well have
            others["one dimension more"] = array[None]
            others["one entry more"] = np.concatenate([array, array[:1]])
        if array.dtype.kind == "f" and "reliability" not in path:
            others["not a number"] = np.full(array.shape, np.nan, array.dtype)
        for what, other in others.items():
            if path[0] in record.tensors:
                forged = replace(record, tensors=changed(record.tensors, path, other))
            else:
                forged = replace(record, values=changed(record.values, path, other))
            write_model(tmp_path / "m", forged)
            with pytest.raises(ModelFormatError):
                pytest.fail(f"{path}, {what}: loaded as {load(tmp_path / 'm')}")


def test_tensors_that_belong_nowhere(record, tmp_path):
    for name in ("surprise", "features", "features.", "other.words", "features.bytes", "model.more"):
        refuse(replace(record, tensors={**record.tensors, name: np.ones(3)}), tmp_path)


def test_a_folder_without_calibration_and_reference(record, tmp_path):
    write_model(tmp_path / "m", replace(record, values={**record.values, "calibration": None, "reference": None}))
    again = load(tmp_path / "m")
    assert again.calibration_ is again.reference_ is None


def test_a_model_that_calls_itself_a_tagger(record, tmp_path):
    refuse(replace(record, class_name="BinaryRelevance"), tmp_path, "does not fit BinaryRelevance")
    BinaryRelevance().fit(np.eye(4), np.eye(4)).save(tmp_path / "plain")
    plain = read_model(tmp_path / "plain")
    refuse(replace(plain, class_name="Tagger"), tmp_path, "does not fit Tagger")
