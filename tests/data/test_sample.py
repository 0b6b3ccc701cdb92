import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import tagwise.data
from tagwise.data import load_dataset
from tagwise.text.features import TextFeatures

FOLDER = Path(tagwise.data.__file__).parent / "sample"


@pytest.fixture(scope="module")
def sample():
    return load_dataset("debtags-sample")


@pytest.fixture(scope="module")
def rows():
    return {
        side: [json.loads(line) for line in gzip.open(FOLDER / f"text.{side}.jsonl.gz", "rt", encoding="utf-8")]
        for side in ("trn", "tst")
    }


def test_bundled_files_are_small_reproducible_and_tell_their_origin():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 3.2e6
    for side in ("trn", "tst"):
        header = (FOLDER / f"text.{side}.jsonl.gz").read_bytes()[:10]
        assert header[3:8] == bytes(5)  # no file name, no time of writing
    note = (FOLDER / "SOURCE.md").read_text(encoding="utf-8")
    for word in ("scripts/make_debtags_sample.py", "**Origin**", "**Licence**", "SHA-256"):
        assert word in note


def test_the_sample_has_enough_rows_and_every_tag_trains(sample):
    assert (sample.X_train.shape[0], sample.X_test.shape[0], sample.Y_train.shape[1]) == (4875, 1625, 444)
    train, test = (np.asarray(Y.sum(axis=0)).ravel() for Y in (sample.Y_train, sample.Y_test))
    assert train.min() >= 1
    assert (train + test).min() >= 5


def test_texts_are_clean_and_no_package_is_on_both_sides(rows):
    names = {}
    for side, lines in rows.items():
        for row in lines:
            assert set(row) == {"text", "labels"}
            head, _, rest = row["text"].partition("\n")
            name, colon, short = head.partition(": ")
            assert colon
            assert short
            assert len(rest) >= 150
            assert "\n ." not in row["text"]
            assert row["labels"] == sorted(set(row["labels"]))
            assert all("::" in tag and not tag.endswith("TODO") for tag in row["labels"])
            assert names.setdefault(name, side) == side
    assert len(names) == sum(map(len, rows.values()))


def test_matrices_hold_the_tags_of_the_files(sample, rows):
    for side, matrix in (("trn", sample.Y_train), ("tst", sample.Y_test)):
        for number in (0, 7, matrix.shape[0] - 1):
            found = [sample.label_names[label] for label in matrix[number].indices]
            assert found == rows[side][number]["labels"]
        assert matrix.nnz == sum(len(row["labels"]) for row in rows[side])
        assert matrix.has_sorted_indices
    assert sample.texts_train == [row["text"] for row in rows["trn"]]
    assert sample.texts_test == [row["text"] for row in rows["tst"]]


def test_features_are_tfidf_of_the_training_texts(sample):
    features = TextFeatures().fit(sample.texts_train)
    assert sample.feature_names == features.feature_names
    assert abs(features.transform(sample.texts_train) - sample.X_train).max() < 1e-6
    assert abs(features.transform(sample.texts_test) - sample.X_test).max() < 1e-6
    assert sample.X_train.dtype == np.float32
    norms = np.sqrt(sample.X_train.multiply(sample.X_train).sum(axis=1))
    np.testing.assert_allclose(norms, 1, rtol=1e-5)
