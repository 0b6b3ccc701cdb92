"""ARFF files as they occur, and malformed ones with the place and reason of each error."""

from __future__ import annotations

import numpy as np
import pytest

from tagwise.data import read_arff
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ParseError

HEADER = (
    b"@relation r\n@attribute a numeric\n@attribute b {x,y,'z z'}\n@attribute c {0,1}\n@attribute l1 {0,1}\n"
    b"@attribute l2 {0,1}\n@data\n"
)


@pytest.fixture
def arff(tmp_path):
    def make(content: bytes | str):
        path = tmp_path / "a.arff"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


def test_sparse_and_dense_rows_and_nominal_values(arff):
    rows = b"{0 1.5, 1 y,4 1}\n{}\n{ }\n{4 1, 0 -2}\n0.5,'z z', 1,1,0\n 1e2 ,x,0 , 0,\"1\"\n"
    rows += b"{1 'z z',3 1}\n{1 \"y\" , 0 3}\n"
    found = read_arff(arff(HEADER + rows), labels=-2)
    assert found.feature_names == ["a", "b", "c"]
    assert found.label_names == ["l1", "l2"]
    assert found.X.toarray().tolist() == [
        [1.5, 1, 0],
        [0, 0, 0],
        [0, 0, 0],
        [-2, 0, 0],
        [0.5, 2, 1],
        [100, 0, 0],
        [0, 2, 0],
        [3, 1, 0],
    ]
    assert found.Y.toarray().tolist() == [[0, 1], [0, 0], [0, 0], [0, 1], [1, 0], [0, 1], [1, 0], [0, 0]]
    assert found.X.dtype == found.Y.dtype == np.float32
    assert found.X.has_canonical_format


def test_comments_case_crlf_bom_and_no_newline_at_the_end(arff):
    text = (
        "\ufeff% a comment\r\n\r\n@RELATION 'it\\'s: -C 1 -split-percentage 67'\r\n"
        "  @Attribute 'l\\tx' {0, 1} % label\r\n"
        '@ATTRIBUTE "f \\"1\\"" REAL\r\n@attribute é{3,4}\r\n@attribute \'\' INTEGER\r\n% c\r\n@DATA % now\r\n\r\n'
        "1,2,3,4\r\n  % comment\r\n0,1,4,0"
    )
    found = read_arff(arff(text))
    assert found.label_names == ["l\tx"]
    assert found.feature_names == ['f "1"', "é", ""]
    assert found.X.toarray().tolist() == [[2, 3, 4], [1, 4, 0]]
    assert found.Y.toarray().tolist() == [[1], [0]]


@pytest.mark.parametrize(
    ("relation", "labels", "expected"),
    [
        ("'r: -C 2'", None, ["a", "b"]),
        ("'r: -C -2'", None, ["c", "d"]),
        ("'r -C 1 -x'", None, ["a"]),
        ("'r: -C 2'", -1, ["d"]),
        ("r", 3, ["a", "b", "c"]),
        ("r", ["c", "a"], ["c", "a"]),
        ("r", ("b",), ["b"]),
    ],
)
def test_where_the_labels_are(arff, relation, labels, expected):
    path = arff(f"@relation {relation}\n" + "".join(f"@attribute {n} {{0,1}}\n" for n in "abcd") + "@data\n1,1,0,1\n")
    found = read_arff(path, labels=labels)
    assert found.label_names == expected
    assert found.feature_names == [name for name in "abcd" if name not in expected]
    assert found.Y.toarray()[0].tolist() == [0 if name == "c" else 1 for name in expected]


def test_mulan_xml_labels_follow_the_attributes(arff, tmp_path):
    path = arff(HEADER + b"{3 1}\n")
    xml = tmp_path / "labels.xml"
    xml.write_text(
        '<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="http://mulan.sourceforge.net/labels">\n'
        '<label name="l2"><label name="l1"/></label></labels>'
    )
    found = read_arff(path, labels=xml)
    assert found.label_names == ["l1", "l2"]
    assert found.Y.toarray().tolist() == [[1, 0]]
    assert read_arff(path, labels=str(xml)).label_names == ["l1", "l2"]


@pytest.mark.parametrize(
    ("xml", "line", "column", "words"),
    [
        (b"", 1, 1, ["not well-formed"]),
        (b"<labels>\n<label name='a'>\n</labels>", 3, 3, ["not well-formed", "mismatched"]),
        (b"<x/>", 1, 1, ["<labels>"]),
        (b"<labels><tag/></labels>", 1, 9, ["<tag>"]),
        (b"<labels><label/></labels>", 1, 9, ["no name"]),
        (b"<labels>\n<label name='a'/><label name='a'/></labels>", 2, 18, ["'a'", "twice"]),
        (b"<labels></labels>", 0, 0, ["no labels"]),
        (b'<!DOCTYPE l [<!ENTITY a "b">]><labels><label name="&a;"/></labels>', 1, 1, ["document type"]),
        (b'<?xml version="1.0" encoding="klingon"?><labels/>', 1, 31, ["encoding"]),
        (b"<labels><label name='\xff'/></labels>", 1, 22, ["not well-formed"]),
    ],
)
def test_bad_xml(arff, tmp_path, assert_parse_error, xml, line, column, words):
    path = tmp_path / "labels.xml"
    path.write_bytes(xml)
    with pytest.raises(ParseError) as caught:
        read_arff(arff(HEADER + b"{3 1}\n"), labels=path)
    error = caught.value
    assert error.path == str(path)
    assert error.line == line, error
    if b"DOCTYPE" not in xml and b"klingon" not in xml:  # expat releases differ in where they report it
        assert error.column == column, error
    for word in words:
        assert word in error.reason


@pytest.mark.parametrize(
    ("header", "line", "column", "words"),
    [
        (b"", 0, 0, ["empty"]),
        (b"% nothing\n", 1, 0, ["before @data", "truncated"]),
        (b"@relation r: -C 1\n@attribute a numeric\n", 2, 0, ["before @data"]),
        (b"@attribute a numeric\n@data\n1\n", 2, 0, ["before any @relation"]),
        (b"@relation 'r: -C 1'\n@data\n1\n", 2, 0, ["before any @attribute"]),
        (b"@relation\n", 1, 10, ["no name"]),
        (b"@relation 'r\n", 1, 11, ["quote", "not closed"]),
        (b"@relation 'r' x\n", 1, 15, ["unexpected 'x'"]),
        (b"@relation r\n@relation s\n", 2, 1, ["second @relation", "line 1"]),
        (b"@relation r\n@attribut a numeric\n", 2, 1, ["@attribut a", "expected"]),
        (b"@relation r\n  hello\n", 2, 3, ["hello"]),
        (b"@relation r\n@attribute\n", 2, 11, ["no name"]),
        (b"@relation r\n@attribute a\n", 2, 13, ["no type"]),
        (b"@relation r\n@attribute 'a numeric\n", 2, 12, ["not closed"]),
        (b"@relation r\n@attribute 'a\\", 2, 12, ["not closed"]),
        (b"@relation r\n@attribute a string\n", 2, 14, ["type string"]),
        (b"@relation r\n@attribute a DATE yyyy\n", 2, 14, ["type date"]),
        (b"@relation r\n@attribute a relational\n", 2, 14, ["type relational"]),
        (b"@relation r\n@attribute a nominal\n", 2, 14, ["'nominal'", "not an attribute type"]),
        (b"@relation r\n@attribute a numeric x\n", 2, 22, ["unexpected"]),
        (b"@relation r\n@attribute \xc3\xa9 {a,b\n", 2, 15, ["not closed by }"]),
        (b"@relation r\n@attribute a {a,,b}\n", 2, 17, ["missing"]),
        (b"@relation r\n@attribute a {}\n", 2, 15, ["missing"]),
        (b"@relation r\n@attribute a {'a'b}\n", 2, 18, ["expected , or }"]),
        (b"@relation r\n@attribute a {a,b,a}\n", 2, 19, ["'a'", "twice"]),
        (b"@relation r\n@attribute a {a} x\n", 2, 18, ["unexpected"]),
        (b"@relation r\n@attribute a\xff numeric\n", 2, 13, ["0xff", "UTF-8"]),
        (b"@relation 'r: -C 1'\n@attribute a numeric\n@attribute a numeric\n@data\n", 3, 0, ["'a'", "twice"]),
        (b"@relation r\n@attribute a numeric\n@data x\n", 3, 7, ["unexpected"]),
        (b"@relation r\n@attribute a numeric\n@data\n1\n", 1, 0, ["-C", "labels="]),
        (b"@relation 'r: -C 2'\n@attribute a numeric\n@data\n1\n", 1, 0, ["2", "1 attributes"]),
        (b"@relation 'r: -C 0'\n@attribute a numeric\n@data\n1\n", 1, 0, ["0"]),
        (b"@relation 'r: -C 1'\n@attribute a {no,yes}\n@data\nyes\n", 2, 0, ["{0,1}", "no, yes"]),
        (b"@relation 'r: -C 1'\n@attribute a {1,0}\n@data\n{}\n", 2, 0, ["left-out", "not 0"]),
        (b"@relation 'r: -C 1'\n@attribute a {0,1}\n@attribute b {-1,1}\n@data\n{}\n", 3, 0, ["left-out"]),
        (b"@relation 'r: -C 1'\n@attribute a {0,1}\n@data\n", 3, 0, ["no rows"]),
    ],
)
@pytest.mark.parametrize("errors", ["strict", "skip"])
def test_bad_header(arff, assert_parse_error, header, line, column, words, errors):
    path = arff(header)
    assert_parse_error(lambda: read_arff(path, errors=errors), path, line, column, *words)


@pytest.mark.parametrize(
    ("row", "column", "words"),
    [
        (b"1,x,0,0", 8, ["4 values", "5 attributes", "truncated"]),
        (b"1,x,0,0,1,{2}", 11, ["6 values", "weights"]),
        (b"1,x,0,0,1,", 11, ["6 values"]),
        (b"?,x,0,0,1", 1, ["'a'", "missing value '?'"]),
        (b"1,?,0,0,1", 3, ["'b'", "missing value"]),
        (b"1,x,0,?,1", 7, ["'l1'", "missing value"]),
        (b"1,'?',0,0,1", 3, ["not a value of attribute 'b'", "x, y, z z"]),
        (b"1,,0,0,1", 3, ["'b' is missing"]),
        (b"q,x,0,0,1", 1, ["'a'", "'q' is not a number"]),
        (b"nan,x,0,0,1", 1, ["not finite"]),
        (b"1e50,x,0,0,1", 1, ["too large"]),
        (b"1,x,2,0,1", 5, ["'2'", "not a value of attribute 'c'"]),
        (b"1,x,0,0,3", 9, ["'3'", "'l2'"]),
        (b"\xc3\xa9,x,0,0,1", 1, ["not a number"]),
        (b"1,\xc3\xa9,q,0,1", 3, ["not a value"]),
        (b"1,'x,0,0,1", 3, ["not closed"]),
        (b"1,'x' 0,0,0,1", 7, ["expected a comma"]),
        (b"1,\xff,0,0,1", 3, ["UTF-8"]),
        (b"{0 1", 4, ["does not end with }", "truncated"]),
        (b"{", 1, ["does not end with }"]),
        (b"{0 1}, {5}", 8, ["'{5'", "weights"]),
        (b"{0 1,}", 6, ["''", "index value"]),
        (b"{0}", 2, ["'0'", "index value"]),
        (b"{0 1 2}", 2, ["'0 1 2'"]),
        (b"{x 1}", 2, ["'x 1'"]),
        (b"{-1 1}", 2, ["'-1 1'"]),
        (b"{5 1}", 2, ["index 5", "out of range", "5 attributes"]),
        (b"{99999999999999999999999 1}", 2, ["out of range"]),
        (b"{0 1, 3 1, 0 2}", 12, ["index 0", "twice"]),
        (b"{0 ?}", 2, ["missing value"]),
        (b"{0 1, 1 'q'}", 7, ["'q'", "not a value"]),
        (b"{0 1, 1 'x", 10, ["does not end with }"]),
        (b"{0 1, 1 'x}", 9, ["not closed"]),
        (b"{0 1, 1 'x' 2}", 13, ["expected a comma"]),
        (b"{'0' 1}", 2, ["'0' 1", "index value"]),
    ],
)
def test_bad_row(arff, assert_parse_error, row, column, words):
    path = arff(HEADER + b"{0 1}\n" + row + b"\n2,x,0,0,1\n")
    error = assert_parse_error(lambda: read_arff(path, labels=-2), path, 9, column)
    for word in words:
        assert word in error.reason, error
    found = read_arff(path, labels=-2, errors="skip")
    assert found.n_skipped == 1
    assert found.X.toarray()[:, 0].tolist() == [1, 2]


def test_numeric_label_must_be_zero_or_one(arff, assert_parse_error):
    path = arff("@relation 'r: -C 1'\n@attribute l numeric\n@attribute f numeric\n@data\n1,5\n0.5,5\n")
    assert_parse_error(lambda: read_arff(path), path, 6, 1, "'l'", "0 or 1", "0.5")
    assert read_arff(path, errors="skip").Y.toarray().tolist() == [[1]]


def test_label_names_that_the_file_lacks(arff, assert_parse_error):
    path = arff(HEADER + b"{0 1}\n")
    assert_parse_error(lambda: read_arff(path, labels=["l1", "l9"]), path, 1, 0, "'l9'")


@pytest.mark.parametrize(
    ("labels", "error", "words"),
    [
        (0, InvalidInputError, "labels is 0"),
        ([], InvalidInputError, "empty list"),
        (["a", "a"], InvalidInputError, "twice"),
        ([1], InvalidTypeError, "attribute names"),
        (1.5, InvalidTypeError, "labels must be a whole number"),
    ],
)
def test_bad_labels_argument(arff, labels, error, words):
    with pytest.raises(error, match=words):
        read_arff(arff(HEADER + b"{0 1}\n"), labels=labels)


def test_truncated_gzip(tmp_path, arff):
    import gzip

    path = tmp_path / "a.arff.gz"
    packed = gzip.compress(HEADER + b"".join(b"{0 %d}\n" % i for i in range(1, 3000)))
    path.write_bytes(packed[:-200])
    for errors in ("strict", "skip"):
        with pytest.raises(ParseError, match="truncated or damaged"):
            read_arff(path, labels=-2, errors=errors)


def test_quotes_keep_blanks_and_commas(tmp_path):
    path = tmp_path / "a.arff"
    head = "@relation 'r: -C 1'\n@attribute l {0,1}\n@attribute n {x,'a\tb','c , d',o'b}\n@attribute m numeric\n@data\n"
    path.write_text(head + "{0 1,1 'a\tb',2 5}\n{1\t'c , d' , 2 6}\n1, 'c , d' ,7\n0,o'b,'8'\n", encoding="utf-8")
    found = read_arff(path)
    assert found.X.toarray().tolist() == [[1, 5], [2, 6], [2, 7], [3, 8]]
    assert found.Y.toarray().tolist() == [[1], [0], [1], [0]]
