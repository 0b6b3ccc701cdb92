"""Folders of taggers whose digests are right and whose content is not: refused with one error, in little memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from forging import changed, forged_arrays, forgeries

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


@pytest.fixture
def refuse(tmp_path):
    """Checks that a record is refused by one error that names the folder, in little memory."""

    def refused(what, record, words="the content does not fit|does not know"):
        write_model(tmp_path / "m", record)
        tracemalloc.start()
        with pytest.raises(ModelFormatError, match=words) as caught:
            assert not load(tmp_path / "m"), f"loaded: {what}"
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10_000_000, what
        assert str(tmp_path / "m") in str(caught.value), what

    return refused


def test_the_record_itself_loads_also_without_calibration_and_reference(record, tmp_path):
    write_model(tmp_path / "m", record)
    assert load(tmp_path / "m").tags_ == ["drinks", "food", "pets"]
    write_model(tmp_path / "m", replace(record, values={**record.values, "calibration": None, "reference": None}))
    again = load(tmp_path / "m")
    assert again.calibration_ is again.reference_ is None


# Neither decides an answer: notes on the choice and on iterations, whether to show progress. And a byte more is another
# word, which a tagger may well have.
ALLOWED = (".choice.parameters", ".history_", ".verbose", ".features: an entry more", "arrays.words with")


def test_every_value_and_array_is_checked(record, refuse):
    forged = [(what, replace(record, values=values)) for what, values in forgeries(record.values)]
    forged += [(what, replace(record, parameters=values)) for what, values in forgeries(record.parameters)]
    for name, array in record.tensors.items():
        for what, wrong in forged_arrays(array):
            forged.append((f"{name} {what}", replace(record, tensors={**record.tensors, name: wrong})))
    assert len(forged) > 250
    for what, one in forged:
        if not any(allowed in what for allowed in ALLOWED):
            refuse(what, one)


FORGED_VALUES = {
    "model": [None, "BinaryRelevance"],
    "model.class": ["Popen", "Tagger", "KNN"],
    "model.parameters.reg": [-1.0],
    "model.values.n_labels_": [10**15],
    "model.values.n_features_in_": [5],
    "training.rows": [-1, True, 10.5],
    "training.known_pairs": ["all"],
    "training.tag_rows": [np.ones(3), np.ones(4, np.int64), np.array([-1, 1, 1]), np.array([10**9, 1, 1])],
    "calibration": [5],
    "calibration.target": ["best"],
    "calibration.k": [0],
    "reference.rows": [0, 7],
    "reference.empty_rows": [49],
    "reference.unknown_mean": [2.0],
    "features.class": ["Pipeline", "CountVectorizer"],
    "features.parameters.min_df": [0],
    "features.parameters.max_df": [2.0],
    "features.parameters.bigrams": [True],
    "features.parameters.characters": [True, 1],
    "features.parameters.sublinear_tf": [None],
    "tag_type": ["float", "int"],
    "output_format": [5, ["dense", "O"]],
}
FORGED_PARAMETERS = {"model": ["svm", 3], "features": ["letters", 5], "n_jobs": ["many"], "random_state": ["x"]}


def test_values_that_no_tagger_has(record, refuse):
    for place, wrongs in FORGED_VALUES.items():
        for wrong in wrongs:
            refuse(f"{place}={wrong}", replace(record, values=changed(record.values, place.split("."), wrong)))
    for name, wrongs in FORGED_PARAMETERS.items():
        for wrong in wrongs:
            refuse(f"{name}={wrong}", replace(record, parameters={**record.parameters, name: wrong}))
    for names in (None, [], ["drinks", "food"], ["a", "b", "c", "d"], ["a", "a", "b"]):
        refuse(names, replace(record, label_names=names))
    for name in ("surprise", "features", "features.", "other.words", "features.bytes", "model.more"):
        refuse(name, replace(record, tensors={**record.tensors, name: np.ones(3)}))


def test_forged_vocabulary(record, refuse):
    own = record.values["features"]["arrays"]["words"]
    *terms, last = own.tobytes().decode().split("\n")
    texts = ("\n".join(words).encode() for words in (terms, [*terms, last, "more"], [*terms, terms[0]], [*terms, ""]))
    for forged in (
        *(np.frombuffer(text, dtype=np.uint8) for text in texts),
        np.append(own[:-1], np.uint8(255)),
        np.zeros(0, np.uint8),
        sp.csr_matrix(np.ones((1, 3))),
    ):
        refuse(forged, replace(record, values=changed(record.values, ["features", "arrays", "words"], forged)))


def test_a_model_that_calls_itself_a_tagger(record, refuse, tmp_path):
    refuse("a tagger", replace(record, class_name="BinaryRelevance"), "does not fit BinaryRelevance")
    BinaryRelevance().fit(np.eye(4), np.eye(4)).save(tmp_path / "plain")
    refuse("a model", replace(read_model(tmp_path / "plain"), class_name="Tagger"), "does not fit Tagger")
