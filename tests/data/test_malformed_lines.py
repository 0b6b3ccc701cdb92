"""Malformed extreme-classification and svmlight files: exception, line, column and reason of each."""

from __future__ import annotations

import bz2
import gzip
import pickle

import numpy as np
import pytest

from tagwise.data import read_svmlight, read_xmc
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ParseError

# Behind a header "2 5 3" and a good first row: (second row, column, words).
BAD_ROWS = [
    (b"x 1:1", 1, ["'x'", "label id"]),
    (b"0,x 1:1", 3, ["'x'", "label id"]),
    (b"0,,1 1:1", 3, ["missing", "',1'"]),
    (b",1 1:1", 1, ["missing"]),
    (b"0, 1:1", 3, ["missing after the comma"]),
    (b"0,", 3, ["missing after the comma", "truncated"]),
    (b"1.5 1:1", 1, ["'1.5'", "label id"]),
    (b"-1 1:1", 1, ["negative", "start at 0"]),
    (b"0,-1 1:1", 3, ["negative"]),
    (b"- 1:1", 1, ["'-'", "label id"]),
    (b"3 1:1", 1, ["out of range", "0 to 2"]),
    (b"0,99999999999999999999999 1:1", 3, ["out of range"]),
    (b"4294967296 1:1", 1, ["out of range"]),
    (b"1,0,1 1:1", 5, ["label 1", "twice"]),
    (b"1,1", 3, ["label 1", "twice"]),
    (b"1,4:1", 3, ["'4:1'", "label id"]),
    (b"0 x:1", 3, ["'x:1'", "feature id must be a whole number"]),
    (b"0 :1", 3, ["':1'", "feature id"]),
    (b"0 1", 3, ["'1'", "colon is missing", "truncated"]),
    (b"0 1:1 2", 7, ["colon is missing"]),
    (b"0 1 :1", 3, ["colon is missing"]),
    (b"0 -1:1", 3, ["negative"]),
    (b"0 5:1", 3, ["'5:1'", "out of range", "0 to 4"]),
    (b"0 1:1 4294967297:1", 7, ["out of range"]),
    (b"0 1:1 9223372036854775809:1", 7, ["out of range"]),
    (b"0 1:1 3:2 1:1", 11, ["feature 1", "twice"]),
    (b"0 1:1 1:1", 7, ["feature 1", "twice"]),
    (b" 2:1 2:1", 6, ["feature 2", "twice"]),
    (b"2:1 2:1", 5, ["feature 2", "twice"]),
    (b"0 1:1e999 1:1", 5, ["too large"]),
    (b"0 1:12345678901234567890 1:1", 26, ["feature 1", "twice"]),
    (b"0 1:", 5, ["missing", "truncated"]),
    (b"0 1: 2:1", 5, ["missing"]),
    (b"0 1:a", 5, ["'a' is not a number"]),
    (b"0 1:1a", 5, ["'1a' is not a number"]),
    (b"0 1:1_000", 5, ["'1_000' is not a number"]),
    (b"0 1:0x10", 5, ["not a number"]),
    (b"0 1:1,5", 5, ["not a number"]),
    (b"0 1:1.2.3", 5, ["not a number"]),
    (b"0 1:1e", 5, ["not a number"]),
    (b"0 1:1e+", 5, ["not a number"]),
    (b"0 1:.", 5, ["not a number"]),
    (b"0 1:+", 5, ["not a number"]),
    (b"0 1:--1", 5, ["not a number"]),
    (b"0 1:1:2", 5, ["not a number"]),
    (b"0 1:nan", 5, ["'nan' is not finite"]),
    (b"0 1:-Inf", 5, ["'-Inf' is not finite"]),
    (b"0 1:infinity", 5, ["not finite"]),
    (b"0 1:1e39", 5, ["too large for float32"]),
    (b"0 1:1" + b"0" * 400, 5, ["too large for float32"]),
    (b"0 1:1e-60", 5, ["would make it 0"]),
    (b"0 1:-1e-400", 5, ["would make it 0"]),
    (b"0 1:1\r 2:1", 5, ["not a number"]),
    (b"0\r 1:1", 1, ["label id"]),
    (b"0 1:1\x00", 5, ["not a number"]),
    (b"\xff 1:1", 1, ["\\xff", "label id"]),
    ("0 1:\u0661".encode(), 5, ["not a number"]),
    (b"qid:3 1:1", 1, ["qid:3"]),
]


@pytest.mark.parametrize(("row", "column", "words"), BAD_ROWS, ids=lambda value: repr(value)[:30])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""], ids=["lf", "crlf", "eof"])
def test_bad_row(tmp_path, assert_parse_error, row, column, words, end):
    xmc, svm = tmp_path / "a.txt", tmp_path / "a.svm"
    newline = end or b"\n"
    xmc.write_bytes(b"2 5 3" + newline + b"0,1 0:1" + newline + row + end)
    assert_parse_error(lambda: read_xmc(xmc), xmc, 3, column, *words)
    svm.write_bytes(b"# comment" + newline + b"0,1 0:1 # more" + newline + row + b"# x" + end)
    assert_parse_error(lambda: read_svmlight(svm, n_features=5, n_labels=3), svm, 3, column, *words)
    xmc.write_bytes(b"3 5 3" + newline + b"0,1 0:1" + newline + row + newline + b"2 4:1" + end)
    skipped = read_xmc(xmc, errors="skip")
    assert skipped.n_skipped == 1
    assert skipped.X.toarray().tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
    assert skipped.Y.toarray().tolist() == [[1, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("content", "line", "column", "words"),
    [
        (b"", 0, 0, ["empty"]),
        (b"\n", 1, 0, ["three whole numbers", "found only 0"]),
        (b"2 5\n", 1, 0, ["found only 2"]),
        (b"2 5 3 4\n", 1, 7, ["more than three"]),
        (b"2 x 3\n", 1, 3, ["'x'", "number of features"]),
        (b"-2 5 3\n", 1, 1, ["'-2'", "number of rows"]),
        (b"2 5 3.0\n", 1, 5, ["'3.0'", "number of labels"]),
        (b"0,1 0:1\n", 1, 1, ["three whole numbers", "read_svmlight"]),
        (b"99999999999999999999 5 3\n", 1, 1, ["number of rows"]),
        (b"\xef\xbb\xbf2 5 3\n", 1, 1, ["number of rows"]),
        (b"2 5 3" + b" " * 5000 + b"\n", 1, 0, ["longer than"]),
        (b"2 5 3\n0 1:1\n", 3, 0, ["ends after 1 rows", "announces 2", "truncated"]),
        (b"2 5 3\n", 2, 0, ["ends after 0 rows"]),
        (b"1000000000000 5 3\n0 1:1\n", 3, 0, ["ends after 1 rows", "1,000,000,000,000"]),
        (b"2 5 3\n0 1:1\n0 1:1\n0 1:1\n", 4, 0, ["more rows than the header", "(2)"]),
        (b"2 5 3\n0 1:1\n0 1:1\n\n", 4, 0, ["more rows"]),
        (b"0 5 3\n0 1:12345678901234567890\n", 2, 0, ["more rows"]),
    ],
)
@pytest.mark.parametrize("errors", ["strict", "skip"])
def test_bad_header_or_row_count(tmp_path, assert_parse_error, content, line, column, words, errors):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    assert_parse_error(lambda: read_xmc(path, errors=errors), path, line, column, *words)


def test_headers_without_rows_features_or_labels(tmp_path, assert_parse_error):
    path = tmp_path / "a.txt"
    path.write_bytes(b"0 5 3")
    assert read_xmc(path).X.shape == (0, 5)
    path.write_bytes(b"1 0 3\n0 0:1\n")
    assert_parse_error(lambda: read_xmc(path), path, 2, 3, "no features")
    path.write_bytes(b"1 5 0\n0 0:1\n")
    assert_parse_error(lambda: read_xmc(path), path, 2, 1, "no labels")


def test_skipped_lines_explain_a_difference_in_rows(tmp_path, assert_parse_error):
    path = tmp_path / "a.txt"
    path.write_bytes(b"2 5 3\n0 1:1\nbroken off\nby a newline\n1 2:2\n")
    found = read_xmc(path, errors="skip")
    assert (found.n_skipped, found.X.shape) == (2, (2, 5))
    path.write_bytes(b"2 5 3\n0 1:1\n1 2:2\nbroken\n")
    assert read_xmc(path, errors="skip").n_skipped == 1
    path.write_bytes(b"4 5 3\n0 1:1\nbroken\n1 2:2\n")
    assert_parse_error(lambda: read_xmc(path, errors="skip"), path, 5, 0, "2 rows", "1 were skipped", "announces 4")


def test_svmlight_blank_lines_comments_and_empty_files(tmp_path, assert_parse_error):
    path = tmp_path / "a.svm"
    path.write_bytes(b"0 1:1\n\n1 2:1\n")
    assert_parse_error(lambda: read_svmlight(path), path, 2, 0, "empty", "single space")
    assert read_svmlight(path, errors="skip").n_skipped == 1
    path.write_bytes(b"")
    assert_parse_error(lambda: read_svmlight(path), path, 0, 0, "no rows")
    path.write_bytes(b"# only\n#comments")
    assert_parse_error(lambda: read_svmlight(path), path, 0, 0, "no rows")
    path.write_bytes(b"#c\n0#c\n1 2:1#c\n #c\n2 1:1 # 2:2")
    found = read_svmlight(path)
    assert found.X.toarray().tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert found.Y.indices.tolist() == [0, 1, 2]


def test_svmlight_one_based(tmp_path, assert_parse_error):
    path = tmp_path / "a.svm"
    path.write_bytes(b"0 1:1 5:2\n1 0:1\n")
    assert_parse_error(
        lambda: read_svmlight(path, n_features=5, zero_based=False), path, 2, 3, "out of range", "1 to 5"
    )
    assert_parse_error(lambda: read_svmlight(path, n_features=4, zero_based=False), path, 1, 7, "1 to 4")
    path.write_bytes(b"0 1:1 2:1 2:1\n")
    assert_parse_error(lambda: read_svmlight(path, zero_based=False), path, 1, 11, "feature 2", "twice")


def test_large_ids(tmp_path, assert_parse_error):
    path = tmp_path / "a.svm"
    path.write_bytes(b"1 3000000000:1 7:2\n")
    assert_parse_error(lambda: read_svmlight(path), path, 1, 3, "2,147,483,646")
    for size in ({"n_features": 2**31}, {"n_labels": 2**40}):
        with pytest.raises(InvalidInputError, match="at most 2,147,483,647"):
            read_svmlight(path, **size)
    path.write_bytes(b"2147483647 1:1\n")
    assert_parse_error(lambda: read_svmlight(path), path, 1, 1, "2,147,483,646")
    path.write_bytes(b"2147483646 2147483646:1\n")
    found = read_svmlight(path)
    assert found.X.shape == found.Y.shape == (1, 2**31 - 1)
    assert found.X.indices.dtype == np.int32
    path.write_bytes(b"1 2147483647 2147483647\n2147483646 2147483646:1\n")
    found = read_xmc(path)
    assert found.X.shape == found.Y.shape == (1, 2**31 - 1)


@pytest.mark.parametrize("ending", [".gz", ".bz2"])
def test_damaged_compression(tmp_path, ending):
    path = tmp_path / f"a.txt{ending}"
    plain = b"3000 50 30\n" + b"".join(b"%d %d:1 %d:0.%d\n" % (i % 30, i % 25, 25 + i % 25, i) for i in range(3000))
    packed = (gzip.compress if ending == ".gz" else bz2.compress)(plain)
    path.write_bytes(packed)
    assert read_xmc(path).X.shape == (3000, 50)
    for errors in ("strict", "skip"):
        for cut in (1, 5, len(packed) // 2, len(packed) - 1):
            path.write_bytes(packed[:cut])
            with pytest.raises(ParseError, match="truncated or damaged"):
                read_xmc(path, errors=errors)
        path.write_bytes(plain)
        with pytest.raises(ParseError, match="truncated or damaged") as caught:
            read_xmc(path, errors=errors)
        assert caught.value.line == 1


def test_missing_file_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_xmc(tmp_path / "none.txt")


def test_arguments(tmp_path):
    path = tmp_path / "a.svm"
    path.write_bytes(b"0 1:1\n")
    with pytest.raises(InvalidInputError, match="errors must be one of"):
        read_xmc(path, errors="ignore")
    with pytest.raises(InvalidInputError, match="dtype must be"):
        read_xmc(path, dtype=np.int32)
    with pytest.raises(InvalidInputError, match="dtype must be"):
        read_svmlight(path, dtype="no type")
    with pytest.raises(InvalidInputError, match="n_features must be at least 1"):
        read_svmlight(path, n_features=0)
    with pytest.raises(InvalidTypeError, match="n_labels"):
        read_svmlight(path, n_labels=2.0)


def test_errors_survive_pickling_between_processes(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(b"no gzip")
    with pytest.raises(ParseError) as caught:
        read_xmc(path)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.path, copy.line, str(copy)) == (str(path), 1, str(caught.value))
