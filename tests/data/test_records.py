"""JSON lines and CSV as the library's readers take them: forms that occur, and faults with their lines."""

from __future__ import annotations

import pytest

from tagwise.data import read_csv, read_jsonl
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ParseError

GOOD_JSON = b'{"text": "one", "tags": ["b", "a"], "id": 7}\n'
BAD_JSON = [
    (b"", "line is empty"),
    (b"  ", "line is empty"),
    (b"{", "invalid JSON"),
    (b'{"text": "\xc3\xa9", "tags": [}', "column 25: invalid JSON: Expecting value"),
    (b'{"text": "a", "tags": [], "id": 1} x', "invalid JSON: Extra data"),
    (b"\xff", "byte 0xff is not valid UTF-8"),
    (b"[1]", "JSON object; found a list"),
    (b"null", "found null"),
    (b'{"text": "a", "id": 1, "labels": []}', "'tags' is missing .* found: 'text', 'id', 'labels'"),
    (b"{}", "missing .* none"),
    (b'{"text": 1, "tags": [], "id": 1}', "'text' must be a string; found a number"),
    (b'{"text": "a", "tags": "b", "id": 1}', "'tags' must be a list of strings; found a string"),
    (b'{"text": "a", "tags": {}, "id": 1}', "found an object"),
    (b'{"text": "a", "tags": [1], "id": 1}', "strings only, in quotes; found a number"),
    (b'{"text": "a", "text": "b", "tags": [], "id": 1}', "'text' occurs twice in one object"),
    (b'{"text": "a", "tags": []}', "'id' is missing"),
    (b'{"text": "a", "tags": [], "id": 1.5}', "'id' must be a string or a whole number"),
    (b'{"text": "a", "tags": [], "id": false}', "'id' .* found false"),
    (b'{"text": "\\ud800", "tags": [], "id": 1}', "surrogate"),
    (b'{"text": "a", "tags": ["\\udc00"], "id": 1}', "surrogate"),
    (b'{"text": "a", "tags": [], "id": ' + b"1" * 5000 + b"}", "digits"),
    (b"[" * 200_000, "nested too deeply"),
]


def test_bad_json_rows(tmp_path):
    path = tmp_path / "a.jsonl"
    for row, words in BAD_JSON:
        path.write_bytes(GOOD_JSON + row + b"\r\n" + GOOD_JSON)
        with pytest.raises(ParseError, match=f"a.jsonl, line 2.*{words}"):
            read_jsonl(path, id="id")
        found = read_jsonl(path, id="id", errors="skip")
        assert (found.n_skipped, found.texts, found.row_ids) == (1, ["one", "one"], ["7", "7"])
        assert found.Y.toarray().tolist() == [[1, 1], [1, 1]]


def test_jsonl_bom_crlf_no_newline_and_other_fields(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"body": "x", "topics": [], "more": 1}\r\n{"body": "", "topics": ["t"]}')
    found = read_jsonl(path, text="body", tags="topics")
    assert (found.texts, found.label_names, found.row_ids) == (["x", ""], ["t"], None)
    path.write_bytes(b"")
    with pytest.raises(ParseError, match="no rows"):
        read_jsonl(path)
    path.write_bytes(GOOD_JSON)
    with pytest.raises(InvalidInputError, match="named for two things"):
        read_jsonl(path, text="tags")
    with pytest.raises(InvalidTypeError, match="must be the names of columns"):
        read_jsonl(path, text=None)


GOOD_CSV = b"id,text,tags\n1,one,b;a\n"


def test_bad_csv_rows(tmp_path):
    path = tmp_path / "a.csv"
    for row, words in (
        (b"", "line 3: the line is empty"),
        (b"2,two", "line 3: the record has 2 fields, but the header names 3"),
        (b"2,two,a,b", "line 3: the record has 4 fields"),
        (b'2,"tw"o,a', "line 3: the quotes do not enclose fields"),
        (b'2,"\xc3\xa9\n"x,a', "line 4: the quotes do not enclose fields"),
        (b"2,\xff,a", "line 3, column 3: byte 0xff is not valid UTF-8"),
    ):
        path.write_bytes(GOOD_CSV + row + b"\n3,three,c\n")
        with pytest.raises(ParseError, match=words):
            read_csv(path)
        found = read_csv(path, id="id", errors="skip")
        assert (found.n_skipped, found.texts, found.row_ids) == (1, ["one", "three"], ["1", "3"])
        assert found.Y.toarray().tolist() == [[1, 1, 0], [0, 0, 1]]


def test_bad_csv_files(tmp_path):
    path = tmp_path / "a.csv"
    for content, words in (
        (b"", "the file is empty; the first line must name the columns"),
        (b"text,labels\na,b\n", "line 1: the column 'tags' is missing .* 'text', 'labels'"),
        (b"text;tags\na;b\n", "line 1: the column 'text' is missing .* 'text;tags'"),
        (b"text,tags,text\na,b,c\n", "line 1: the column 'text' occurs 2 times"),
        (b"text,tags\n", "line 1: the file holds no rows"),
        (b'text,tags\na,b\n"c,d\ne,f\n', "line 3: a quote opened here is never closed"),
        (b'text,tags\na,b\nc,"d""', "line 3: a quote opened here is never closed"),
    ):
        path.write_bytes(content)
        for errors in ("strict", "skip"):
            with pytest.raises(ParseError, match=words):
                read_csv(path, errors=errors)


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
    for wrong, words in (
        ({}, r"neither \.csv nor"),
        ({"delimiter": "|", "tag_separator": ""}, "tag_separator= must not be empty"),
        ({"delimiter": "ab"}, "delimiter must be one"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            read_csv(path, **wrong)
