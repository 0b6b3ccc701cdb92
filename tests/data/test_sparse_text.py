"""XMC and svmlight files against a slow, obvious twin; their faults; their memory."""

from __future__ import annotations

import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tagwise.data import read_svmlight, read_xmc, sparse_text
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ParseError

NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def reference_row(line: str, d: int, L: int):
    """One line by the definition of the format: ({label}, {feature: float32}), or None if it breaks the format."""
    words = [word for word in re.split("[ \t]", line) if word]
    labels: list[int] = []
    if words and line[0] not in " \t" and not re.match("[0-9]+:", words[0]):
        label_word = words.pop(0)
        if not re.fullmatch("[0-9]+(?:,[0-9]+)*", label_word):
            return None
        labels = [int(label) for label in label_word.split(",")]
    features: dict[int, np.float32] = {}
    for word in words:
        index, colon, value = word.partition(":")
        if not re.fullmatch("[0-9]+", index) or not colon or not NUMBER.fullmatch(value) or int(index) in features:
            return None
        with np.errstate(over="ignore", under="ignore"):
            features[int(index)] = np.float32(float(value))
        if not np.isfinite(features[int(index)]) or (features[int(index)] == 0 and float(value)):
            return None
    if len(set(labels)) < len(labels) or any(i >= L for i in labels) or any(i >= d for i in features):
        return None
    return set(labels), features


IDS = st.one_of(st.integers(0, 12).map(str), st.sampled_from(["-1", "007", "", "x", "1e1", "99999999999999999999"]))
VALUES = st.one_of(
    st.floats(width=32).map(lambda value: str(np.float32(value))),
    st.floats().map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.from_regex(r"[+-]?[0-9]{0,25}\.?[0-9]{0,30}([eE][+-]?[0-9]{1,4})?", fullmatch=True),
    st.text("0123456789.eE+-_xn ", max_size=8),
)
GOOD_VALUES = st.floats(-1e6, 1e6, width=32).map(lambda value: str(np.float32(value)))
BLANKS = st.sampled_from([" ", " ", " ", "  ", "\t"])


@st.composite
def lines(draw: st.DrawFn) -> str:
    tame = draw(st.booleans())
    ids, values = (st.integers(0, 9).map(str), GOOD_VALUES) if tame else (IDS, VALUES)
    text = ",".join(draw(st.lists(ids, max_size=4, unique=True)))
    for index in draw(st.lists(ids, max_size=5, unique=True)):
        text += draw(BLANKS) + index + ":" + draw(values)
    return text + draw(st.sampled_from(["", "", " "]))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(lines(), min_size=1, max_size=4), block=st.sampled_from([1, 30, 10**6]))
def test_agrees_with_the_reference_twin(tmp_path, rows, block):
    path = tmp_path / "rows.txt"
    path.write_bytes(f"{len(rows)} 10 10\n".encode() + "".join(row + "\n" for row in rows).encode())
    expected = [reference_row(row, 10, 10) for row in rows]
    good = [row for row in expected if row is not None]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sparse_text, "BLOCK_BYTES", block)
        if None in expected:
            with pytest.raises(ParseError) as caught:
                read_xmc(path)
            assert caught.value.line == 2 + expected.index(None)
        found = read_xmc(path, errors="skip" if None in expected else "strict")
    assert (found.n_skipped, found.n_rows) == (len(expected) - len(good), len(good))
    for row, (labels, features) in enumerate(good):
        part = slice(found.X.indptr[row], found.X.indptr[row + 1])
        assert found.X.indices[part].tolist() == sorted(features)
        assert found.X.data[part].tobytes() == b"".join(features[i].tobytes() for i in sorted(features))
        assert found.Y.indices[found.Y.indptr[row] : found.Y.indptr[row + 1]].tolist() == sorted(labels)


def test_a_long_unsorted_row(tmp_path):
    random = np.random.default_rng(1)
    features, labels = random.permutation(50_000), random.permutation(20_000)
    path = tmp_path / "rows.txt"
    pairs = " ".join(f"{feature}:{feature + 1}" for feature in features)
    path.write_text(f"1 50000 20000\n{','.join(map(str, labels))} {pairs}\n")
    found = read_xmc(path)
    assert np.array_equal(found.X.toarray()[0], np.arange(1, 50_001))
    assert np.array_equal(found.Y.indices, np.arange(20_000))


BAD_ROWS = (
    b"x 1:1|0,x 1:1|0,,1 1:1|,1 1:1|0, 1:1|0,|1.5 1:1|-1 1:1|0,-1 1:1|- 1:1|3 1:1|0,99999999999999999999999 1:1|"
    b"4294967296 1:1|1,0,1 1:1|1,1|1,4:1| 1 2:1|0 x:1|0 :1|0 1|0 1:1 2|0 1 :1|0 -1:1|0 5:1|0 1.0:1|0 4294967297:1|"
    b"0 9223372036854775809:1|0 1:1 3:2 1:1| 2:1 2:1|2:1 2:1|0 1:|0 1: 2:1|0 1:a|0 1:1a|0 1:1_000|0 1:0x10|0 1:1,5|"
    b"0 1:1.2.3|0 1:1e|0 1:1e+|0 1:.|0 1:--1|0 1:1-2|0 1:1:2|0 1:nan|0 1:-Inf|0 1:infinity|0 1:1e39|0 1:1e999|"
    b"0 1:1e-60|0 1:1\x00|\xff 1:1|0 1:\xd9\xa1|qid:3 1:1|0 1:1\x0b|0\r 1|0:1\r1:1"
).split(b"|")


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""], ids=["lf", "crlf", "eof"])
def test_bad_rows(tmp_path, end):
    xmc, svm, newline = tmp_path / "a.txt", tmp_path / "a.svm", end or b"\n"
    for row in BAD_ROWS:
        xmc.write_bytes(b"2 5 3" + newline + b"0,1 0:1" + newline + row + end)
        svm.write_bytes(b"# comment" + newline + b"0,1 0:1 # more" + newline + row + b"# x" + end)
        for path, read in ((xmc, read_xmc), (svm, lambda path: read_svmlight(path, n_features=5, n_labels=3))):
            with pytest.raises(ParseError, match="is not a row 'label,label id:value': ") as caught:
                read(path)
            assert (caught.value.path, caught.value.line) == (str(path), 3), row
        xmc.write_bytes(b"3 5 3" + newline + b"0,1 0:1" + newline + row + newline + b"2 4:1" + end)
        skipped = read_xmc(xmc, errors="skip")
        assert skipped.n_skipped == 1, row
        assert skipped.X.toarray().tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
        assert skipped.Y.toarray().tolist() == [[1, 1, 0], [0, 0, 1]]


def test_bad_headers_and_numbers_of_rows(tmp_path, assert_parse_error):
    path = tmp_path / "a.txt"
    header = ["first line must be three whole numbers"]
    no_headers = b"|2 5|2 5 3 4|2 x 3|-2 5 3|2 5 3.0|0,1 0:1|99999999999999999999 5 3|\xef\xbb\xbf2 5 3".split(b"|")
    for content, line, words in (
        (b"", 1, header),
        *((bad + b"\n", 1, header) for bad in no_headers),
        (b"1 2147483648 3\n", 1, ["2,147,483,647"]),
        (b"2 5 3\n0 1:1\n", 2, ["announces 2 rows, but the file holds 1"]),
        (b"1000000000000 5 3\n0 1:1\n", 2, ["announces 1,000,000,000,000 rows"]),
        (b"2 5 3\n0 1:1\n0 1:1\n0 1:1\n", 4, ["announces 2 rows, but the file holds 3"]),
        (b"2 5 3\n0 1:1\n0 1:1\n\n", 4, ["holds 3"]),
        (b"1 0 3\n0 0:1\n", 2, ["no features"]),
        (b"1 5 0\n0 0:1\n", 2, ["no labels"]),
    ):
        path.write_bytes(content)
        assert_parse_error(lambda: read_xmc(path), path, line, 0, *words)
    path.write_bytes(b"0 5 3")
    assert read_xmc(path).X.shape == (0, 5)


def test_skipped_lines_explain_a_difference_in_rows(tmp_path, assert_parse_error):
    path = tmp_path / "a.txt"
    for content in (b"2 5 3\n0 1:1\nbroken off\nby a newline\n1 2:2\n", b"2 5 3\n0 1:1\n1 2:2\nbroken\n"):
        path.write_bytes(content)
        assert read_xmc(path, errors="skip").X.shape == (2, 5)
    path.write_bytes(b"4 5 3\n0 1:1\nbroken\n1 2:2\n")
    assert_parse_error(lambda: read_xmc(path, errors="skip"), path, 4, 0, "holds 2 and 1 that were skipped")


def test_svmlight_blank_lines_comments_and_empty_files(tmp_path, assert_parse_error):
    path = tmp_path / "a.svm"
    path.write_bytes(b"0 1:1\n\n1 2:1\n")
    assert_parse_error(lambda: read_svmlight(path), path, 2, 0, "empty", "single space")
    assert read_svmlight(path, errors="skip").n_skipped == 1
    for nothing in (b"", b"# only\n#comments"):
        path.write_bytes(nothing)
        assert_parse_error(lambda: read_svmlight(path), path, 0, 0, "no rows")
    path.write_bytes(b"#c\n0#c\n1 2:1#c\n #c\n2 1:1 # 2:2")
    found = read_svmlight(path)
    assert found.X.toarray().tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert found.Y.indices.tolist() == [0, 1, 2]


def test_svmlight_one_based_and_large_ids(tmp_path, assert_parse_error):
    path = tmp_path / "a.svm"
    path.write_bytes(b"0 1:1 5:2\n1 1:1\n")
    assert read_svmlight(path, zero_based=False).X.toarray().tolist() == [[1, 0, 0, 0, 2], [1, 0, 0, 0, 0]]
    assert_parse_error(lambda: read_svmlight(path, n_features=4, zero_based=False), path, 1, 0)
    for row in (b"0 0:1\n", b"1 3000000000:1 7:2\n", b"2147483647 1:1\n"):
        path.write_bytes(row)
        assert_parse_error(lambda: read_svmlight(path, zero_based=False), path, 1, 0)
    path.write_bytes(b"2147483646 2147483646:1\n")
    found = read_svmlight(path)
    assert found.X.shape == found.Y.shape == (1, 2**31 - 1)
    assert found.X.indices.dtype == np.int32


def test_arguments(tmp_path):
    path = tmp_path / "a.svm"
    path.write_bytes(b"0 1:1\n")
    for read, error, words in (
        (lambda: read_xmc(path, errors="ignore"), InvalidInputError, "errors must be one of"),
        (lambda: read_xmc(path, dtype=np.int32), InvalidInputError, "dtype must be"),
        (lambda: read_svmlight(path, dtype="no type"), InvalidInputError, "dtype must be"),
        (lambda: read_svmlight(path, n_features=0), InvalidInputError, "n_features must be at least 1"),
        (lambda: read_svmlight(path, n_labels=2**31), InvalidInputError, "n_labels"),
        (lambda: read_svmlight(path, n_labels=2.0), InvalidTypeError, "n_labels"),
        (lambda: read_xmc(tmp_path / "none.txt"), FileNotFoundError, "none.txt"),
    ):
        with pytest.raises(error, match=words):
            read()


def test_memory_is_little_more_than_that_of_the_matrices(tmp_path):
    features = [" ".join(f"{50 * i + row}:0.25" for i in range(85)) for row in range(50)]
    rows = [f"{row},{500 + row} {features[row % 50]}" for row in range(300)]
    path = tmp_path / "rows.txt"
    path.write_text("12000 5000 5000\n" + "\n".join(rows * 40) + "\n")
    tracemalloc.start()
    found = read_xmc(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    final = sum(a.nbytes for m in (found.X, found.Y) for a in (m.data, m.indices, m.indptr))
    assert final > 8e6
    assert peak < 1.25 * final + 6e6
