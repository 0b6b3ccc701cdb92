import contextlib
import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.data import available_datasets, load_dataset, read_jsonl
from tagwise.data.datasets import dataset_folders, read_folder
from tagwise.exceptions import DatasetNotFoundError, InvalidInputError, InvalidTypeError, ParseError


def test_folder_gives_what_was_written(data_home, write_folder):
    folder = write_folder(data_home / "toy")
    dataset = load_dataset("toy")
    for matrix, name in zip(dataset, ("X.trn", "Y.trn", "X.tst", "Y.tst"), strict=True):
        assert type(matrix) is sp.csr_matrix
        assert matrix.dtype == np.float32
        assert abs(matrix - sp.load_npz(folder / f"{name}.npz")).sum() == 0
    assert dataset.label_names == ["red", "grün", "blue"]
    assert dataset.feature_names == [f"word{j}" for j in range(5)]
    assert dataset.texts_train == [f"trn {row}" for row in range(6)]
    assert dataset.texts_test == [f"tst {row}" for row in range(4)]
    assert dataset.texts_test is dataset.texts_test
    assert repr(dataset) == "Dataset('toy': 6 training and 4 test rows, 5 features, 3 labels)"
    dataset = read_folder(folder, "amazon-toy")
    assert (dataset.propensity_a, dataset.propensity_b) == (0.6, 2.6)


def test_texts_are_read_only_on_use(data_home, write_folder):
    folder = write_folder(data_home / "toy")
    dataset = load_dataset("toy")
    (folder / "text.trn.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(ParseError, match=r"text\.trn\.jsonl\.gz"):
        _ = dataset.texts_train
    assert len(dataset.texts_test) == 4


def test_names_and_texts_are_optional_and_names_are_lines(data_home, write_folder):
    folder = write_folder(data_home / "toy")
    (folder / "labels.txt").write_bytes("red\r\na\u2028b\r\nblue".encode())
    assert load_dataset("toy").label_names == ["red", "a\u2028b", "blue"]
    for name in ("features.txt", "labels.txt", "text.trn.jsonl.gz", "text.tst.jsonl.gz"):
        (folder / name).unlink()
    dataset = load_dataset("toy")
    assert dataset.feature_names is dataset.label_names is dataset.texts_train is dataset.texts_test is None


def test_data_folder_comes_before_cache(data_home, write_folder):
    cache = dataset_folders()[1]
    (data_home / "toy").mkdir()  # incomplete, which hides nothing
    write_folder(cache / "toy", **{"X.tst": sp.csr_array(np.ones((4, 5)))})
    assert load_dataset("toy").X_test.nnz == 20
    assert load_dataset("toy").X_test.dtype == np.float32
    (data_home / "toy").rmdir()
    write_folder(data_home / "toy")
    assert load_dataset("toy").X_test.nnz == 10


def test_available_lists_complete_folders_only(data_home, write_folder):
    write_folder(data_home / "zebra")
    write_folder(dataset_folders()[1] / "ant")
    (write_folder(data_home / "broken") / "X.trn.npz").unlink()
    write_folder(data_home / ".hidden")
    (data_home / "README.md").write_text("no data set", encoding="utf-8")
    assert available_datasets() == ["ant", "debtags-sample", "zebra"]


def test_sample_is_available_without_any_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("TAGWISE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "nowhere"))
    assert available_datasets() == ["debtags-sample"]
    with pytest.raises(DatasetNotFoundError, match="TAGWISE_DATA is not set"):
        load_dataset("bibtex")


def test_unknown_name_says_where_it_looked_and_what_there_is(data_home, write_folder):
    folder = write_folder(data_home / "toy")
    with pytest.raises(DatasetNotFoundError) as caught:
        load_dataset("tyo")
    message = str(caught.value)
    assert "'tyo'" in message
    assert f"{data_home} (toy)" in message
    assert f"{dataset_folders()[1]} (no such folder)" in message
    assert "debtags-sample" in message
    (folder / "X.trn.npz").unlink()
    with pytest.raises(DatasetNotFoundError, match=r"toy is there but lacks X\.trn\.npz\."):
        load_dataset("toy")


def test_names_that_are_paths_are_refused(data_home):
    for name in ("", ".", "..", "../toy", "a/b", "a\\b", "/etc", "C:toy", ".hidden", "a..b", "nul\0", "x" * 5000):
        with pytest.raises(InvalidInputError, match="plain data set name"):
            load_dataset(name)
    with pytest.raises(InvalidTypeError, match="name must be a string"):
        load_dataset(3)


def test_cache_folder_follows_the_platform(monkeypatch):
    for platform, environment, expected in (
        ("linux", {"XDG_CACHE_HOME": "/cache"}, "/cache"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/me/.cache"),
        ("linux", {}, "/home/me/.cache"),
        ("darwin", {}, "/home/me/Library/Caches"),
        ("darwin", {"XDG_CACHE_HOME": "/cache"}, "/cache"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local"),
        ("win32", {}, "/home/me/AppData/Local"),
    ):
        with monkeypatch.context() as patched:
            for name in ("TAGWISE_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
                patched.delenv(name, raising=False)
            for name, value in {"HOME": "/home/me", "USERPROFILE": "/home/me", **environment}.items():
                patched.setenv(name, value)
            patched.setattr(sys, "platform", platform)
            assert dataset_folders() == [Path(expected) / "tagwise" / "datasets"]


def test_matrices_must_belong_together_and_be_usable(data_home, write_folder):
    out_of_range = sp.csr_matrix(np.ones((6, 5), dtype=np.float32))
    out_of_range.indices[3] = 77
    for number, (file, matrix, complaint) in enumerate(
        (
            ("X.tst", np.ones((4, 6)), r"X\.tst\.npz: has 6 columns, but X\.trn\.npz has 5"),
            ("Y.tst", np.ones((4, 2)), r"Y\.tst\.npz: has 2 columns, but Y\.trn\.npz has 3"),
            ("Y.trn", np.ones((5, 3)), r"Y\.trn\.npz: the labels have 5 rows, but the features have 6"),
            ("Y.tst", np.ones((3, 3)), r"Y\.tst\.npz: the labels have 3 rows, but the features have 4"),
            ("X.trn", np.full((6, 5), np.nan), r"X\.trn\.npz: .*NaN"),
            ("X.trn", out_of_range, "not a readable"),
            ("X.tst", np.zeros((4, 0)), "no rows or no features"),
            ("Y.trn", np.full((6, 3), 2.0), "only 0 and 1"),
            ("Y.tst", np.zeros((4, 0)), "no label columns"),
        )
    ):
        write_folder(data_home / f"toy{number}", **{file: sp.csr_matrix(matrix)})
        with pytest.raises(ParseError, match=complaint):
            load_dataset(f"toy{number}")


def test_any_damage_gives_a_parse_error_or_a_valid_matrix(tmp_path, write_folder):
    folder = write_folder(tmp_path / "toy")
    path = folder / "X.trn.npz"
    original = path.read_bytes()

    @given(st.integers(0, len(original) - 1), st.integers(0, 255), st.booleans())
    def damage(position, byte, cut):
        changed = original[:position] if cut else original[:position] + bytes([byte]) + original[position + 1 :]
        path.write_bytes(changed)
        with contextlib.suppress(ParseError):
            assert read_folder(folder, "toy").X_train.shape[1] == 5

    damage()


def test_damaged_names(data_home, write_folder):
    for number, (file, content, complaint) in enumerate(
        (
            ("labels.txt", b"red\nblue\n", "holds 2 names but the matrices have 3 labels"),
            ("labels.txt", b"", "holds 0 names but the matrices have 3 labels"),
            ("features.txt", b"a\nb\nc\nd\ne\n\n", "holds 6 names but the matrices have 5 features"),
            ("labels.txt", b"red\ngr\xfcn\nblue\n", "line 2, column 3: byte 0xfc is not valid UTF-8"),
        )
    ):
        (write_folder(data_home / f"toy{number}") / file).write_bytes(content)
        with pytest.raises(ParseError, match=complaint):
            load_dataset(f"toy{number}")


def test_damaged_texts(data_home, write_folder):
    path = write_folder(data_home / "toy") / "text.trn.jsonl.gz"
    good = b'{"text": "a", "labels": []}\n'
    for content, complaint in (
        (gzip.compress(good * 5), "holds 5 texts but the matrices have 6 rows"),
        (gzip.compress(good + b"{]\n"), "line 2"),
        (path.read_bytes()[:-12], r"text\.trn\.jsonl\.gz"),
    ):
        path.write_bytes(content)
        with pytest.raises(ParseError, match=complaint):
            _ = load_dataset("toy").texts_train


def test_real_texts_carry_the_labels_of_the_matrix(data_folder):
    dataset = load_dataset("cooking-stackexchange")
    rows = read_jsonl(data_folder / "cooking-stackexchange" / "text.tst.jsonl.gz", tags="labels")
    assert dataset.texts_test == rows.texts
    assert len(dataset.texts_train) == dataset.X_train.shape[0]
    for row in (0, 1, 2999):
        assert {dataset.label_names[label] for label in dataset.Y_test[row].indices} == {
            rows.label_names[label] for label in rows.Y[row].indices
        }
