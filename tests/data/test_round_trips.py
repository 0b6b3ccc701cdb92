"""What a writer writes, the reader reads back, to the last bit."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tagwise.data import (
    LabelledRows,
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

ENDINGS = ["", ".gz", ".bz2"]
FEW = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@pytest.mark.parametrize("ending", ENDINGS)
@FEW
@given(data=st.data())
def test_xmc(tmp_path, pairs, assert_same_matrix, ending, data):
    X, Y = data.draw(pairs())
    path = tmp_path / f"rows.txt{ending}"
    write_xmc(path, X, Y)
    found = read_xmc(path)
    assert_same_matrix(found.X, X)
    assert_same_matrix(found.Y, Y)
    assert found.n_skipped == 0
    assert found.n_rows == X.shape[0]
    assert (found.feature_names, found.label_names, found.texts, found.row_ids) == (None, None, None, None)


@FEW
@given(data=st.data())
def test_xmc_in_double_precision(tmp_path, pairs, assert_same_matrix, data):
    X, Y = data.draw(pairs(width=64))
    write_xmc(tmp_path / "rows.txt", X, Y)
    assert_same_matrix(read_xmc(tmp_path / "rows.txt", dtype=np.float64).X, X)


@pytest.mark.parametrize("ending", ENDINGS)
@FEW
@given(data=st.data(), zero_based=st.booleans())
def test_svmlight(tmp_path, pairs, assert_same_matrix, ending, data, zero_based):
    X, Y = data.draw(pairs())
    path = tmp_path / f"rows.svm{ending}"
    write_svmlight(path, X, Y, zero_based=zero_based)
    found = read_svmlight(path, n_features=X.shape[1], n_labels=Y.shape[1], zero_based=zero_based)
    assert_same_matrix(found.X, X)
    assert_same_matrix(found.Y, Y)


@pytest.mark.parametrize("ending", ENDINGS)
@FEW
@given(data=st.data(), sparse=st.booleans())
def test_arff(tmp_path, pairs, assert_same_matrix, ending, data, sparse):
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


def _expected_tags(tags):
    return sorted({tag for row in tags for tag in row})


def _tag_matrix(tags, names):
    Y = sp.lil_matrix((len(tags), len(names)), dtype=np.float32)
    for row, row_tags in enumerate(tags):
        for tag in row_tags:
            Y[row, names.index(tag)] = 1
    return sp.csr_matrix(Y)


@pytest.mark.parametrize("ending", ENDINGS)
@FEW
@given(rows=st.lists(st.tuples(TEXTS, TEXTS, st.sets(NAMES.filter(str.strip), max_size=4)), min_size=1, max_size=5))
def test_jsonl(tmp_path, assert_same_matrix, ending, rows):
    ids, texts, tags = map(list, zip(*rows))
    names = [*_expected_tags(tags), "never\tused\n1"]
    Y = _tag_matrix(tags, names)
    path = tmp_path / f"rows.jsonl{ending}"
    write_jsonl(path, texts, Y, names, row_ids=ids)
    found = read_jsonl(path, id="id")
    assert (found.texts, found.row_ids, found.label_names) == (texts, ids, _expected_tags(tags))
    assert_same_matrix(found.Y, Y[:, : len(names) - 1])
    assert found.X is None


@pytest.mark.parametrize("ending", [".csv", ".tsv.gz", ".CSV.bz2"])
@FEW
@given(
    rows=st.lists(
        st.tuples(TEXTS, TEXTS, st.sets(NAMES.filter(lambda n: n == n.strip() and ";" not in n), max_size=4)),
        min_size=1,
        max_size=5,
    )
)
def test_csv(tmp_path, assert_same_matrix, ending, rows):
    ids, texts, tags = map(list, zip(*rows))
    names = [*_expected_tags(tags), "never used"]
    Y = _tag_matrix(tags, names)
    path = tmp_path / f"rows{ending}"
    write_csv(path, texts, Y, names, row_ids=ids)
    found = read_csv(path, id="id")
    assert (found.texts, found.row_ids, found.label_names) == (texts, ids, _expected_tags(tags))
    assert_same_matrix(found.Y, Y[:, : len(names) - 1])


def test_empty_rows_are_kept(tmp_path, example_pair, assert_same_matrix):
    X, Y = example_pair
    write_xmc(tmp_path / "a.txt", X, Y)
    assert (tmp_path / "a.txt").read_text() == "4 3 4\n0,2 0:0.5 2:2\n 1:-1e-07\n1 \n \n"
    write_svmlight(tmp_path / "a.svm", X, Y)
    assert_same_matrix(read_svmlight(tmp_path / "a.svm", n_labels=4).Y, Y)


def test_sparse_arrays_other_formats_and_dense_input(tmp_path, example_pair, assert_same_matrix):
    X, Y = example_pair
    for make in (sp.csr_array, sp.csc_matrix, sp.coo_array, lambda m: m.toarray()):
        write_xmc(tmp_path / "a.txt", make(X), make(Y))
        found = read_xmc(tmp_path / "a.txt")
        assert_same_matrix(found.X, X)
        assert_same_matrix(found.Y, Y)


def test_equal_content_gives_equal_compressed_files(tmp_path, example_pair):
    write_xmc(tmp_path / "a.txt.gz", *example_pair)
    write_xmc(tmp_path / "b.txt.gz", *example_pair)
    assert (tmp_path / "a.txt.gz").read_bytes() == (tmp_path / "b.txt.gz").read_bytes()


def test_written_files_follow_the_umask(tmp_path, example_pair):
    before = os.umask(0o022)
    try:
        write_xmc(tmp_path / "a.txt", *example_pair)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o644


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


def test_frozen(example_pair):
    rows = LabelledRows(X=None, Y=example_pair[1])
    with pytest.raises(AttributeError):
        rows.n_skipped = 1


@pytest.mark.parametrize(
    ("write", "error", "words"),
    [
        (lambda p, X, Y: write_xmc(p, X * np.float32("nan"), Y), InvalidInputError, "X contains NaN"),
        (lambda p, X, Y: write_xmc(p, X, Y * 2), InvalidInputError, "Y must hold only 0 and 1"),
        (lambda p, X, Y: write_xmc(p, X[:2], Y), InvalidInputError, "same rows"),
        (lambda p, X, Y: write_svmlight(p, X[:0], Y[:0]), InvalidInputError, "0 sample"),
        (lambda p, X, Y: write_arff(p, X, Y, feature_names=["a"]), InvalidInputError, "1 names for 3"),
        (lambda p, X, Y: write_arff(p, X, Y, feature_names="abc"), InvalidTypeError, "one string"),
        (lambda p, X, Y: write_arff(p, X, Y, feature_names=["a", 1, "b"]), InvalidTypeError, "strings"),
        (lambda p, X, Y: write_arff(p, X, Y, feature_names=["a", "a", "b"]), InvalidInputError, "twice"),
        (lambda p, X, Y: write_arff(p, X, Y, label_names=list("ab\ud800c")), InvalidInputError, "UTF-8"),
        (
            lambda p, X, Y: write_arff(p, X, Y, label_names=list("ab\x00c"), labels_xml=p.with_name("l.xml")),
            InvalidInputError,
            "XML",
        ),
        (lambda p, X, Y: write_npz(p, p, X, Y), InvalidInputError, "same file"),
        (lambda p, X, Y: write_npz(p, p.with_name("y.npz"), X, Y), InvalidInputError, "end in .npz"),
        (lambda p, X, Y: write_jsonl(p, ["a"], Y, list("abcd")), InvalidInputError, "Y has 4 rows"),
        (lambda p, X, Y: write_jsonl(p, list("wxyz"), Y, list("abc")), InvalidInputError, "4 labels where 3"),
        (lambda p, X, Y: write_jsonl(p, list("wxyz"), Y, list("abca")), InvalidInputError, "twice"),
        (lambda p, X, Y: write_jsonl(p, list("wxyz"), Y, ["", "b", "c", "d"]), InvalidInputError, "empty name"),
        (lambda p, X, Y: write_jsonl(p, list("wxyz"), Y, [" ", "b", "c", "d"]), InvalidInputError, "empty name"),
        (lambda p, X, Y: write_jsonl(p, list("wxyz"), Y, "abcd"), InvalidTypeError, "list of strings"),
        (lambda p, X, Y: write_jsonl(p, [1, 2, 3, 4], Y, list("abcd")), InvalidTypeError, "texts[0]"),
        (lambda p, X, Y: write_jsonl(p, list("wxy\ud800"), Y, list("abcd")), InvalidInputError, "texts[3]"),
        (
            lambda p, X, Y: write_jsonl(p, list("wxyz"), Y, list("abcd"), row_ids=["1"]),
            InvalidInputError,
            "row_ids has 1",
        ),
        (
            lambda p, X, Y: write_jsonl(p, list("wxyz"), Y, list("abcd"), text="tags"),
            InvalidInputError,
            "another argument",
        ),
        (lambda p, X, Y: write_csv(p, list("wxyz"), Y, list("abcd")), InvalidInputError, "neither .csv"),
        (
            lambda p, X, Y: write_csv(p, list("wxyz"), Y, list("abc;"), delimiter=","),
            InvalidInputError,
            "does not separate",
        ),
        (
            lambda p, X, Y: write_csv(p, list("wxyz"), Y, ["a ", *"bcd"], delimiter=","),
            InvalidInputError,
            "blanks",
        ),
        (
            lambda p, X, Y: write_csv(p, list("wxyz"), Y, ["xa", *"bcd"], delimiter=",", tag_separator="aa"),
            InvalidInputError,
            "does not separate",
        ),
        (lambda p, X, Y: write_csv(p, list("wxyz"), Y, list("abcd"), delimiter="\n"), InvalidInputError, "delimiter"),
    ],
)
def test_writers_refuse(tmp_path, example_pair, write, error, words):
    path = tmp_path / "out.dat"
    with pytest.raises(error) as caught:
        write(path, *example_pair)
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []
