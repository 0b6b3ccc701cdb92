"""The text and ARFF forms of real data sets against their npz form."""

from __future__ import annotations

import pytest

from tagwise.data import read_arff, read_npz, read_xmc, write_xmc


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
