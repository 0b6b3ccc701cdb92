"""The text and ARFF forms of real data sets against their npz form."""

from __future__ import annotations

import pytest

from tagwise.data import read_arff, read_jsonl, read_npz, read_xmc, write_xmc


@pytest.mark.parametrize(("name", "n_labels"), [("bibtex", 159), ("delicious", 983)])
@pytest.mark.parametrize(("word", "part"), [("train", "trn"), ("test", "tst")])
def test_one_content_in_every_format(data_folder, tmp_path, assert_same_matrix, name, n_labels, word, part):
    folder = data_folder / name
    expected = read_npz(folder / f"X.{part}.npz", folder / f"Y.{part}.npz")
    text = read_xmc(folder / f"{name}_{word}.txt.gz")
    arff = read_arff(folder / f"{name}-{word}.arff.gz", labels=-n_labels)
    for found in (text, arff):
        assert_same_matrix(found.X, expected.X)
        assert_same_matrix(found.Y, expected.Y)
    assert arff.label_names == (folder / "labels.txt").read_text(encoding="utf-8").split("\n")[:n_labels]
    assert (
        arff.feature_names == (folder / "features.txt").read_text(encoding="utf-8").split("\n")[: expected.X.shape[1]]
    )
    write_xmc(tmp_path / "again.txt.bz2", text.X, text.Y)
    again = read_xmc(tmp_path / "again.txt.bz2")
    assert_same_matrix(again.X, expected.X)
    assert_same_matrix(again.Y, expected.Y)


def test_dense_floats(data_folder, tmp_path, assert_same_matrix):
    expected = read_npz(data_folder / "scene" / "X.trn.npz", data_folder / "scene" / "Y.trn.npz")
    write_xmc(tmp_path / "scene.txt", expected.X, expected.Y)
    assert_same_matrix(read_xmc(tmp_path / "scene.txt").X, expected.X)


def test_texts(data_folder):
    folder = data_folder / "cooking-stackexchange"
    texts = read_jsonl(folder / "text.trn.jsonl.gz", tags="labels")
    matrices = read_npz(folder / "X.trn.npz", folder / "Y.trn.npz")
    names = (folder / "labels.txt").read_text(encoding="utf-8").splitlines()
    assert len(texts.texts) == matrices.n_rows
    assert set(texts.label_names) <= set(names)
    for row in range(0, matrices.n_rows, 997):
        found = {texts.label_names[label] for label in texts.Y[row].indices}
        assert {names[label] for label in matrices.Y[row].indices} <= found
