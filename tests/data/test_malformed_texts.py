"""Malformed JSONL, CSV and npz files: exception, place and reason of each."""

from __future__ import annotations

import bz2
import gzip
import io
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.data import read_csv, read_jsonl, read_npz
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ParseError

GOOD_JSON = b'{"text": "one", "tags": ["b", "a"], "id": 7}\n'


@pytest.mark.parametrize(
    ("row", "column", "words"),
    [
        (b"", 0, ["line is empty"]),
        (b"  ", 0, ["line is empty"]),
        (b"{", 2, ["invalid JSON"]),
        (b'{"text": "\xc3\xa9", "tags": [}', 25, ["invalid JSON", "Expecting value"]),
        (b'{"text": "a", "tags": [], "id": 1} x', 36, ["invalid JSON", "Extra data"]),
        (b"\xff", 1, ["0xff", "UTF-8"]),
        (b"[1]", 0, ["JSON object", "a list"]),
        (b"null", 0, ["null"]),
        (b'{"text": "a", "id": 1, "labels": []}', 0, ["'tags' is missing", "'text', 'id', 'labels'"]),
        (b"{}", 0, ["missing", "none"]),
        (b'{"text": 1, "tags": [], "id": 1}', 0, ["'text' must be a string", "a number"]),
        (b'{"text": "a", "tags": "b", "id": 1}', 0, ["'tags' must be a list of strings", "a string"]),
        (b'{"text": "a", "tags": {}, "id": 1}', 0, ["an object"]),
        (b'{"text": "a", "tags": [1], "id": 1}', 0, ["strings only", "a number"]),
        (b'{"text": "a", "tags": [true], "id": 1}', 0, ["strings only", "true"]),
        (b'{"text": "a", "text": "b", "tags": [], "id": 1}', 0, ["'text'", "twice in one object"]),
        (b'{"text": "a", "tags": []}', 0, ["'id' is missing"]),
        (b'{"text": "a", "tags": [], "id": 1.5}', 0, ["'id' must be a string or a whole number"]),
        (b'{"text": "a", "tags": [], "id": false}', 0, ["'id'", "false"]),
        (b'{"text": "\\ud800", "tags": [], "id": 1}', 0, ["surrogate"]),
        (b'{"text": "a", "tags": ["\\udc00"], "id": 1}', 0, ["surrogate"]),
        (b'{"text": "a", "tags": [], "id": ' + b"1" * 5000 + b"}", 0, ["digits"]),
        (b"[" * 200_000, 0, ["nested too deeply"]),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_bad_json_row(tmp_path, assert_parse_error, row, column, words):
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD_JSON + row + b"\r\n" + GOOD_JSON)
    assert_parse_error(lambda: read_jsonl(path, id="id"), path, 2, column, *words)
    found = read_jsonl(path, id="id", errors="skip")
    assert (found.n_skipped, found.texts, found.row_ids) == (1, ["one", "one"], ["7", "7"])
    assert found.Y.toarray().tolist() == [[1, 1], [1, 1]]


def test_jsonl_bom_crlf_no_newline_and_other_fields(tmp_path, assert_parse_error):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"body": "x", "topics": [], "more": 1}\r\n{"body": "", "topics": ["t"]}')
    found = read_jsonl(path, text="body", tags="topics")
    assert (found.texts, found.label_names, found.row_ids) == (["x", ""], ["t"], None)
    path.write_bytes(b"")
    assert_parse_error(lambda: read_jsonl(path), path, 0, 0, "no rows")
    with pytest.raises(InvalidInputError, match="another argument"):
        read_jsonl(path, text="tags")
    with pytest.raises(InvalidTypeError, match="text must be the name"):
        read_jsonl(path, text=None)


GOOD_CSV = b"id,text,tags\n1,one,b;a\n"


@pytest.mark.parametrize(
    ("row", "line", "column", "words"),
    [
        (b"", 3, 0, ["line is empty"]),
        (b"2,two", 3, 0, ["2 fields", "3 columns"]),
        (b"2,two,a,b", 3, 0, ["4 fields", "3 columns"]),
        (b'2,"tw"o,a', 3, 7, ["after the closing quote", "'o'"]),
        (b'2,"\xc3\xa9\n"x,a', 4, 2, ["after the closing quote"]),
        (b"2,\xff,a", 3, 3, ["UTF-8"]),
    ],
)
def test_bad_csv_row(tmp_path, assert_parse_error, row, line, column, words):
    path = tmp_path / "a.csv"
    path.write_bytes(GOOD_CSV + row + b"\n3,three,c\n")
    assert_parse_error(lambda: read_csv(path), path, line, column, *words)
    found = read_csv(path, id="id", errors="skip")
    assert (found.n_skipped, found.texts, found.row_ids) == (1, ["one", "three"], ["1", "3"])
    assert found.Y.toarray().tolist() == [[1, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("content", "line", "column", "words"),
    [
        (b"", 0, 0, ["empty", "name the columns"]),
        (b"text,labels\na,b\n", 1, 0, ["'tags' is missing", "'text', 'labels'"]),
        (b"text;tags\na;b\n", 1, 0, ["'text' is missing", "'text;tags'"]),
        (b"text,tags,text\na,b,c\n", 1, 0, ["'text' occurs 2 times"]),
        (b"text,tags\n", 1, 0, ["no rows"]),
        (b'text,tags\na,b\n"c,d\ne,f\n', 3, 1, ["never closed"]),
        (b'text,tags\na,b\nc,"d""', 3, 3, ["never closed"]),
    ],
)
@pytest.mark.parametrize("errors", ["strict", "skip"])
def test_bad_csv_file(tmp_path, assert_parse_error, content, line, column, words, errors):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    assert_parse_error(lambda: read_csv(path, errors=errors), path, line, column, *words)


def test_csv_dialect(tmp_path):
    path = tmp_path / "a.csv"
    long_text = "x" * 200_000
    path.write_bytes(
        b'\xef\xbb\xbftags,"te""xt",n\r\n"a; b",say "hi",1\r\n"","two\r\nlines, ""quoted""\n",2\r\n  ,'
        + long_text.encode()
        + b",\r\nb,,3"
    )
    found = read_csv(path, text='te"xt')
    assert found.texts == ['say "hi"', 'two\r\nlines, "quoted"\n', long_text, ""]
    assert found.label_names == ["a", "b"]
    assert found.Y.toarray().tolist() == [[1, 1], [0, 0], [0, 0], [0, 1]]
    path = tmp_path / "a.txt"
    path.write_text("text|tags\na,b|x y\n")
    assert read_csv(path, delimiter="|", tag_separator=" ").label_names == ["x", "y"]
    with pytest.raises(InvalidInputError, match=r"neither \.csv nor"):
        read_csv(path)
    with pytest.raises(InvalidInputError, match="tag_separator must be"):
        read_csv(path, delimiter="|", tag_separator="")
    with pytest.raises(InvalidInputError, match="delimiter must be one"):
        read_csv(path, delimiter="ab")


@pytest.mark.parametrize("errors", ["strict", "skip"])
@pytest.mark.parametrize(("name", "pack"), [("a.csv.gz", gzip.compress), ("a.csv.bz2", bz2.compress)])
def test_truncated_compressed_csv(tmp_path, errors, name, pack):
    path = tmp_path / name
    random = np.random.default_rng(0)
    rows = b"".join(b'%d,"text %d",a;b\n' % (i, random.integers(2**40)) for i in range(2000))
    packed = pack(GOOD_CSV + rows)
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(ParseError, match="truncated or damaged"):
        read_csv(path, errors=errors)


def _save(path, **members):
    members = {"format": b"csr", "shape": (2, 3)} | members
    np.savez(path, **{name: np.asarray(value) for name, value in members.items() if value is not None})


GOOD_CSR = {"data": np.ones(2, np.float32), "indices": [0, 2], "indptr": [0, 1, 2]}


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"format": None}, ["'format' is missing"]),
        ({"format": 3}, ["single string"]),
        ({"format": b"bsr"}, ["'bsr'", "csr, csc or coo"]),
        ({"shape": (2, 3, 4)}, ["shape"]),
        ({"shape": (-2, 3)}, ["shape"]),
        ({"shape": (2.0, 3.0)}, ["shape"]),
        ({"data": None}, ["'data' is missing"]),
        ({"data": [1j, 1]}, ["real numbers"]),
        ({"data": [["a"]]}, ["real numbers"]),
        ({"data": [1.0, np.nan]}, ["NaN"]),
        ({"data": [1.0, 1e50]}, ["too large for float32"]),
        ({"data": [1.0, 1e-60]}, ["make it 0"]),
        ({"data": [1.0]}, ["1 values but 2 indices"]),
        ({"indices": [0, 3]}, ["out of range", "0 to 2"]),
        ({"indices": [0, -1]}, ["out of range"]),
        ({"indices": [0.0, 1.0]}, ["whole numbers"]),
        ({"indices": np.array([0, 2**63], dtype=np.uint64)}, ["too large"]),
        ({"indptr": [0, 2]}, ["row pointer"]),
        ({"indptr": [0, 3, 2]}, ["row pointer"]),
        ({"indptr": [1, 1, 2]}, ["row pointer"]),
        ({"indptr": [0, 1, 3]}, ["row pointer"]),
        ({"indptr": [0, 2, 2], "indices": [1, 1]}, ["stored twice"]),
        ({"format": b"coo", "row": [0, 5], "col": [0, 1]}, ["out of range"]),
        ({"format": b"coo", "shape": (10**12, 3), "row": [0, 5], "col": [0, 1]}, ["expands to more than"]),
    ],
)
def test_bad_npz_members(tmp_path, assert_parse_error, members, words):
    x, y = tmp_path / "X.npz", tmp_path / "Y.npz"
    _save(x, **(GOOD_CSR | members))
    _save(y, **GOOD_CSR)
    assert_parse_error(lambda: read_npz(x, y), x, 0, 0, *words)


def test_npz_labels_and_rows(tmp_path, assert_parse_error):
    x, y = tmp_path / "X.npz", tmp_path / "Y.npz"
    _save(x, **GOOD_CSR)
    _save(y, **(GOOD_CSR | {"data": [1, 2]}))
    assert_parse_error(lambda: read_npz(x, y), y, 0, 0, "0 and 1")
    _save(y, **(GOOD_CSR | {"shape": (1, 3), "indptr": [0, 2]}))
    assert_parse_error(lambda: read_npz(x, y), y, 0, 0, "1 rows", "have 2")
    _save(y, **(GOOD_CSR | {"data": [1, 0]}))
    assert read_npz(x, y).Y.toarray().tolist() == [[1, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix, sp.coo_matrix])
@pytest.mark.parametrize("dtype", [np.float64, np.int8, bool, np.float32])
def test_npz_kinds(tmp_path, make, dtype):
    matrix = make(np.array([[0, 1, 0], [1, 0, 1]], dtype=dtype))
    for name in ("X.npz", "Y.npz"):
        sp.save_npz(tmp_path / name, matrix)
    found = read_npz(tmp_path / "X.npz", tmp_path / "Y.npz")
    assert isinstance(found.X, sp.csr_matrix)
    assert found.X.dtype == found.Y.dtype == np.float32
    assert found.X.toarray().tolist() == found.Y.toarray().tolist() == [[0, 1, 0], [1, 0, 1]]


def test_npz_odd_types_and_unsorted_rows(tmp_path):
    x, y = tmp_path / "X.npz", tmp_path / "Y.npz"
    _save(y, **GOOD_CSR)
    for dtype in (">f4", ">f8", np.float16, np.longdouble, ">i4", np.uint64):
        members = {"data": np.array([1, 2, 3], dtype), "indices": np.array([2, 0, 1], ">i4"), "indptr": [0, 2, 3]}
        _save(x, **members)
        assert read_npz(x, y).X.toarray().tolist() == [[2, 0, 1], [0, 3, 0]]


def test_pickles_are_never_loaded(tmp_path, assert_parse_error):
    x, y = tmp_path / "X.npz", tmp_path / "Y.npz"
    _save(y, **GOOD_CSR)
    _save(x, **(GOOD_CSR | {"data": np.array([1.0, "x"], dtype=object)}))
    assert_parse_error(lambda: read_npz(x, y), x, 0, 0, "pickled objects", "never loaded")


def test_hostile_sizes_are_refused_before_allocation(tmp_path, assert_parse_error):
    x, y = tmp_path / "X.npz", tmp_path / "Y.npz"
    _save(y, **GOOD_CSR)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**11,)})
    with zipfile.ZipFile(y) as source, zipfile.ZipFile(x, "w") as target:
        for name in source.namelist():
            target.writestr(name, header.getvalue() if name == "data.npy" else source.read(name))
    assert_parse_error(lambda: read_npz(x, y), x, 0, 0, "'data' announces 800,000,000,000 bytes")


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip file at all", b"PK\x05\x06" + b"\x00" * 18])
def test_not_a_zip_file(tmp_path, assert_parse_error, content):
    x = tmp_path / "X.npz"
    x.write_bytes(content)
    assert_parse_error(lambda: read_npz(x, x), x, 0, 0, "not a readable scipy .npz file")
    with pytest.raises(FileNotFoundError):
        read_npz(tmp_path / "none.npz", x)
