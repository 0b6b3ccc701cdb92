"""A tagger is one folder with one manifest: what is saved comes back, and what is there is never lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from safetensors.numpy import load_file

from tagwise import LEML, REML, BinaryRelevance, Tagger, TextFeatures, load
from tagwise.baselines import KNN
from tagwise.exceptions import InvalidInputError, ModelFormatError, TagwiseWarning
from tagwise.store import write_model

TEXTS = ["the dog and the cat", "a dog on a leash", "wine in a bottle", "grape and wine", "löwe 数据", "the löwe"] * 6
TAGS = [["pets"], ["pets"], ["drinks"], ["drinks", "food"], ["wild animals"], ["wild animals", "naïve"]] * 6
ESTIMATORS = {
    "LEML": LEML(rank=2, max_iter=2, tol=1.0),
    "REML": REML(rank=2, tol=1.0, positive_weight=[1.0, 2.0, 1.0, 1.0, 3.0]),
    "BinaryRelevance": BinaryRelevance(),
    "KNN": KNN(n_neighbors=3),
}


@pytest.fixture
def saved(tmp_path):
    tagger = Tagger(BinaryRelevance(), features=TextFeatures(characters=True)).fit(TEXTS, TAGS)
    tagger.save(tmp_path / "m")
    return tagger


@pytest.mark.parametrize("model", ESTIMATORS.values(), ids=ESTIMATORS.keys())
def test_what_is_saved_comes_back(model, tmp_path):
    for characters, calibrated in ((False, True), (True, False)):
        features = TextFeatures(characters=characters, min_df=1, max_features=40)
        tagger = Tagger(model, features=features).fit(TEXTS, TAGS)
        if calibrated:
            tagger.calibrate(TEXTS, TAGS, target="macro")
        tagger.save(tmp_path / "m")
        again = load(tmp_path / "m")
        assert type(again) is Tagger
        questions = [*TEXTS, "löwe", "数据 wein", "", "something else"]
        assert again.suggest(questions, top=9) == tagger.suggest(questions, top=9)
        assert again.predict(questions) == tagger.predict(questions)
        assert (again.transform(questions) != tagger.transform(questions)).nnz == 0
        assert again.tags_ == tagger.tags_ == again.model_.label_names_
        assert again.choice_ == tagger.choice_
        assert again.model_.history_ == tagger.model_.history_
        assert repr(again.training_) == repr(tagger.training_)
        assert (again.calibration_ is None) == (again.reference_ is None) == (not calibrated)
        if calibrated:
            for name, value in vars(tagger.reference_).items():
                np.testing.assert_array_equal(getattr(again.reference_, name), value)
            assert len(again.drift(TEXTS).moved_labels()) == 0


def test_parameters_come_back(tmp_path):
    tagger = Tagger(
        "binary-relevance",
        features=TextFeatures(min_df=1, max_features=30),
        n_jobs=2,
        random_state=7,
        verbose=0,
    )
    tagger.fit(TEXTS, TAGS).save(tmp_path / "m")
    found, given = load(tmp_path / "m").get_params(), tagger.get_params()
    assert found.pop("features").get_params() == given.pop("features").get_params()
    assert found == given
    Tagger(LEML(rank=2, tol=1.0)).fit(TEXTS, TAGS).save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.model.get_params() == LEML(rank=2, tol=1.0).get_params()
    assert not hasattr(again.model, "n_iter_")


def test_a_vocabulary_comes_back_and_a_forged_one_is_refused(saved, tmp_path):
    for vocabulary in (["$100", "red", "apple"], {"$100": "apple pie", "red": "red"}, []):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TagwiseWarning)
            tagger = Tagger("binary-relevance", vocabulary=vocabulary, features=TextFeatures(min_df=1)).fit(TEXTS, TAGS)
        tagger.save(tmp_path / "m")
        again = load(tmp_path / "m")
        assert again.vocabulary == vocabulary
        assert again.tags_ == tagger.tags_
        assert again.suggest(TEXTS, top=9) == tagger.suggest(TEXTS, top=9)
    for forged in (
        {"tags": ["a"]},
        {"tags": "ab", "names": None},
        {"tags": ["a", "a"], "names": None},
        {"tags": ["a", 5], "names": None},
        {"tags": ["a"], "names": ["A", "B"]},
        {"tags": ["a"], "names": [[""]]},
        {"tags": ["a"], "names": [["A", None]]},
        {"tags": ["a"], "names": [["A"], ["B"]]},
        {"tags": ["a"], "names": ["A"], "other": 1},
        ["a"],
    ):
        record = saved.to_parts()
        record.parameters["vocabulary"] = forged
        write_model(tmp_path / "m", record)
        with pytest.raises(ModelFormatError):
            load(tmp_path / "m")


def test_a_loaded_tagger_learns_and_saves_again(saved, tmp_path):
    again = load(tmp_path / "m").fit(TEXTS, TAGS)
    assert again.suggest(TEXTS, explain=3) == saved.suggest(TEXTS, explain=3)
    load(tmp_path / "m").save(tmp_path / "copy")
    assert load(tmp_path / "copy").suggest(TEXTS) == saved.suggest(TEXTS)
    saved.model_.save(tmp_path / "inner")
    assert load(tmp_path / "inner").label_names_ == saved.tags_


def test_the_folder_is_as_documented(saved, tmp_path):
    saved.calibrate(TEXTS, TAGS).save(tmp_path / "m")
    assert len(os.listdir(tmp_path / "m")) == 2
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_bytes())
    assert (manifest["class"], manifest["format_version"]) == ("Tagger", 1)
    assert manifest["label_names"] == ["drinks", "food", "naïve", "pets", "wild animals"]
    assert manifest["values"]["model"]["class"] == "BinaryRelevance"
    calibration = manifest["values"]["calibration"]
    assert [calibration[name] for name in ("target", "k", "rows")] == ["micro", 5, 36]
    (file,) = (tmp_path / "m").glob("*.safetensors")
    arrays = load_file(file)
    words = arrays["values.features.arrays.words"].tobytes().decode().split("\n")
    grams = arrays["values.features.arrays.characters"].tobytes().decode().split("\n")
    assert words + [f"char:{gram}" for gram in grams] == saved.features_.feature_names
    idf = np.concatenate([arrays["values.features.arrays.words_idf"], arrays["values.features.arrays.characters_idf"]])
    np.testing.assert_array_equal(idf, saved.features_.idf_)
    np.testing.assert_array_equal(arrays["model.feature_weights_"], saved.model_.feature_weights_)
    np.testing.assert_array_equal(arrays["values.calibration.thresholds"], saved.calibration_.thresholds)


def test_what_no_folder_can_hold_is_refused(saved, tmp_path):
    saved.random_state = np.random.RandomState(0)
    with pytest.raises(InvalidInputError, match="random_state is a RandomState"):
        saved.save(tmp_path / "m")
    kernel = Tagger(LEML(rank=2, tol=1.0, kernel=lambda a, b: (a @ b.T).toarray())).fit(TEXTS, TAGS)
    with pytest.raises(InvalidInputError, match="kernel is a function"):
        kernel.save(tmp_path / "m")
    load(tmp_path / "m")


def test_a_fresh_process_answers_the_same(saved, tmp_path):
    code = """
import json, sys
import tagwise
tagger = tagwise.load(sys.argv[1])
print(json.dumps([[s.tag, s.score] for s in tagger.suggest([sys.argv[2]])[0]]))
"""
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m"), "the dog"], check=True, capture_output=True, text=True
    )
    assert json.loads(run.stdout) == [[s.tag, s.score] for s in saved.suggest(["the dog"])[0]]
