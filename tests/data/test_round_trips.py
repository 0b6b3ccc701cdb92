"""Readers read back, to the last bit, what writers write."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tagwise.data import (
    read_arff,
    read_csv,
    read_jsonl,
    read_npz,
    read_svmlight,
    read_xmc,
    write_arff,
    write_csv,
    write_jsonl,
    write_npz,
    write_svmlight,
    write_xmc,
)
from tagwise.exceptions import InvalidInputError, InvalidTypeError

ENDINGS = st.sampled_from(["", ".gz", ".bz2"])
FEW = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@FEW
@given(data=st.data(), ending=ENDINGS, width=st.sampled_from([32, 64]), zero_based=st.booleans())
def test_xmc_and_svmlight(tmp_path, pairs, assert_same_matrix, data, ending, width, zero_based):
    X, Y = data.draw(pairs(width=width))
    path = tmp_path / f"rows{ending}"
    write_xmc(path, X, Y)
    found = [read_xmc(path, dtype=X.dtype)]
    write_svmlight(path, X, Y, zero_based=zero_based)
    sizes = {"n_features": X.shape[1], "n_labels": Y.shape[1]}
    found.append(read_svmlight(path, **sizes, zero_based=zero_based, dtype=X.dtype))
    for rows in found:
        assert_same_matrix(rows.X, X)
        assert_same_matrix(rows.Y, Y)
        assert (rows.n_skipped, rows.n_rows) == (0, X.shape[0])
        assert (rows.feature_names, rows.label_names, rows.texts, rows.row_ids) == (None, None, None, None)


@FEW
@given(data=st.data(), ending=ENDINGS, sparse=st.booleans())
def test_arff(tmp_path, pairs, assert_same_matrix, data, ending, sparse):
    X, Y = data.draw(pairs().filter(lambda pair: pair[0].shape[1] <= 40 and pair[1].shape[1] <= 4))
    names = data.draw(st.lists(NAMES, min_size=X.shape[1] + Y.shape[1], max_size=X.shape[1] + Y.shape[1], unique=True))
    feature_names, label_names = names[: X.shape[1]], names[X.shape[1] :]
    path = tmp_path / f"rows.arff{ending}"
    write_arff(path, X, Y, feature_names=feature_names, label_names=label_names, sparse=sparse)
    found = read_arff(path)
    expected = X.copy()
    expected.eliminate_zeros()
    assert_same_matrix(found.X, expected)
    assert_same_matrix(found.Y, Y)
    assert (found.feature_names, found.label_names) == (feature_names, label_names)
    by_name = read_arff(path, labels=label_names[::-1])
    assert_same_matrix(by_name.Y, sp.csr_matrix(Y[:, ::-1]).sorted_indices())


@FEW
@given(data=st.data())
def test_npz(tmp_path, pairs, assert_same_matrix, data):
    X, Y = data.draw(pairs())
    write_npz(tmp_path / "X.npz", tmp_path / "Y.npz", X, Y)
    found = read_npz(tmp_path / "X.npz", tmp_path / "Y.npz")
    assert_same_matrix(found.X, X)
    assert_same_matrix(found.Y, Y)


def some_rows(names):
    return st.lists(st.tuples(TEXTS, TEXTS, st.sets(names, max_size=4)), min_size=1, max_size=5)


@FEW
@given(rows=some_rows(NAMES.filter(str.strip)), ending=ENDINGS)
def test_jsonl(tmp_path, assert_same_matrix, rows, ending):
    read_back(tmp_path / f"rows.jsonl{ending}", write_jsonl, read_jsonl, rows, assert_same_matrix)


@FEW
@given(
    rows=some_rows(NAMES.filter(lambda name: name == name.strip() and ";" not in name)),
    ending=st.sampled_from([".csv", ".tsv.gz", ".CSV.bz2"]),
)
def test_csv(tmp_path, assert_same_matrix, rows, ending):
    read_back(tmp_path / f"rows{ending}", write_csv, read_csv, rows, assert_same_matrix)


def read_back(path, write, read, rows, assert_same_matrix):
    ids, texts, tags = map(list, zip(*rows))
    names = sorted({tag for row in tags for tag in row})
    Y = sp.csr_matrix([[float(name in row) for name in [*names, "never used"]] for row in tags], dtype=np.float32)
    write(path, texts, Y, [*names, "never used"], row_ids=ids)
    found = read(path, id="id")
    assert (found.X, found.texts, found.row_ids, found.label_names) == (None, texts, ids, names)
    assert_same_matrix(found.Y, Y[:, :-1])


def test_forms_of_matrices_and_what_is_written(tmp_path, example_pair, assert_same_matrix):
    X, Y = example_pair
    for make in (sp.csr_array, sp.csc_matrix, sp.coo_array, lambda m: m.toarray()):
        write_xmc(tmp_path / "a.txt", make(X), make(Y))
        # Rows without labels, and with nothing at all, are kept.
        assert (tmp_path / "a.txt").read_text() == "4 3 4\n0,2 0:0.5 2:2\n 1:-1e-07\n1 \n \n"
        write_svmlight(tmp_path / "a.svm", make(X), make(Y))
        assert_same_matrix(read_svmlight(tmp_path / "a.svm", n_labels=4).Y, Y)


def test_equal_content_gives_equal_compressed_files(tmp_path, example_pair):
    write_xmc(tmp_path / "a.txt.gz", *example_pair)
    write_xmc(tmp_path / "b.txt.gz", *example_pair)
    assert (tmp_path / "a.txt.gz").read_bytes() == (tmp_path / "b.txt.gz").read_bytes()


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, example_pair, monkeypatch):
    X, Y = example_pair
    path = tmp_path / "a.txt"
    write_xmc(path, X, Y)
    old = path.read_bytes()

    def fail(*arguments, **options):
        raise OSError(28, "no space left")

    monkeypatch.setattr("tagwise.data.sparse_text._write_lines", fail)
    with pytest.raises(OSError, match="no space"):
        write_xmc(path, X[:1], Y[:1])
    assert path.read_bytes() == old
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_arff_with_mulan_xml(tmp_path, example_pair, assert_same_matrix):
    X, Y = example_pair
    names = ["a & b", 'say "x"', "<é>", "tab\there"]
    write_arff(tmp_path / "a.arff", X, Y, label_names=names, labels_xml=tmp_path / "a.xml")
    found = read_arff(tmp_path / "a.arff", labels=tmp_path / "a.xml")
    assert found.label_names == names
    assert_same_matrix(found.Y, Y)


def test_writers_refuse(tmp_path, example_pair):
    X, Y = example_pair
    path, rows, names = tmp_path / "out.dat", (list("wxyz"), Y), list("abcd")
    arff, jsonl, csv = (partial(write, path) for write in (write_arff, write_jsonl, write_csv))
    commas = partial(csv, delimiter=",")
    not_in_xml = partial(arff, label_names=list("ab\x00c"), labels_xml=path.with_name("l.xml"))
    for words, error, write, *arguments in (
        ("X contains NaN", InvalidInputError, write_xmc, path, X * np.float32("nan"), Y),
        ("Y must hold only 0 and 1", InvalidInputError, write_xmc, path, X, Y * 2),
        ("same rows", InvalidInputError, write_xmc, path, X[:2], Y),
        ("0 sample", InvalidInputError, write_svmlight, path, X[:0], Y[:0]),
        ("same file", InvalidInputError, write_npz, path, path, X, Y),
        ("end in .npz", InvalidInputError, write_npz, path, path.with_name("y.npz"), X, Y),
        ("1 names for 3", InvalidInputError, partial(arff, feature_names=["a"]), X, Y),
        ("a list of strings", InvalidTypeError, partial(arff, feature_names="abc"), X, Y),
        ("must be a string", InvalidTypeError, partial(arff, feature_names=["a", 1, "b"]), X, Y),
        ("twice", InvalidInputError, partial(arff, feature_names=["a", "a", "b"]), X, Y),
        ("UTF-8", InvalidInputError, partial(arff, label_names=list("ab\ud800c")), X, Y),
        ("XML", InvalidInputError, not_in_xml, X, Y),
        ("Y has 4 rows", InvalidInputError, jsonl, ["a"], Y, names),
        ("4 labels where 3", InvalidInputError, jsonl, *rows, list("abc")),
        ("twice", InvalidInputError, jsonl, *rows, list("abca")),
        ("empty name", InvalidInputError, jsonl, *rows, ["", "b", "c", "d"]),
        ("empty name", InvalidInputError, jsonl, *rows, [" ", "b", "c", "d"]),
        ("list of strings", InvalidTypeError, jsonl, *rows, "abcd"),
        ("texts[0]", InvalidTypeError, jsonl, [1, 2, 3, 4], Y, names),
        ("texts[3]", InvalidInputError, jsonl, list("wxy\ud800"), Y, names),
        ("(and row_ids) have [1, 4]", InvalidInputError, partial(jsonl, row_ids=["1"]), *rows, names),
        ("different columns", InvalidInputError, partial(jsonl, text="tags"), *rows, names),
        ("neither .csv", InvalidInputError, csv, *rows, names),
        ("does not separate", InvalidInputError, commas, *rows, list("abc;")),
        ("blanks", InvalidInputError, commas, *rows, ["a ", *"bcd"]),
        ("does not separate", InvalidInputError, partial(commas, tag_separator="aa"), *rows, ["xa", *"bcd"]),
        ("delimiter", InvalidInputError, partial(csv, delimiter="\n"), *rows, names),
    ):
        with pytest.raises(error) as caught:
            write(*arguments)
        assert words in str(caught.value), words
        assert list(tmp_path.iterdir()) == []


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
