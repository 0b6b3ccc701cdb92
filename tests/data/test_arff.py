"""ARFF files as they occur, and malformed ones: each one clear error with its line."""

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
    sparse, dense = [[1.5, 1, 0], [0, 0, 0], [0, 0, 0], [-2, 0, 0]], [[0.5, 2, 1], [100, 0, 0]]
    assert found.X.toarray().tolist() == [*sparse, *dense, [0, 2, 0], [3, 1, 0]]
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


def test_where_the_labels_are(arff):
    for relation, labels, expected in (
        ("'r: -C 2'", None, ["a", "b"]),
        ("'r: -C -2'", None, ["c", "d"]),
        ("'r -C 1 -x'", None, ["a"]),
        ("'r: -C 2'", -1, ["d"]),
        ("r", 3, ["a", "b", "c"]),
        ("r", "3", ["a", "b", "c"]),
        ("r", ["c", "a"], ["c", "a"]),
        ("r", ("b",), ["b"]),
    ):
        attributes = "".join(f"@attribute {name} {{0,1}}\n" for name in "abcd")
        found = read_arff(arff(f"@relation {relation}\n{attributes}@data\n1,1,0,1\n"), labels=labels)
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


BAD_XML = (
    b"|<labels><label name='a'></labels>|<x/>|<labels><tag/></labels>|<labels><label/></labels>|<labels></labels>|"
    b"<labels><label name='a'/><label name='a'/></labels>|<labels><label name='\xff'/></labels>|"
    b'<!DOCTYPE l [<!ENTITY a "b">]><labels><label name="&a;"/></labels>|'
    b'<?xml version="1.0" encoding="klingon"?><labels/>'
).split(b"|")


def test_bad_xml(arff, tmp_path):
    path, rows = tmp_path / "labels.xml", arff(HEADER + b"{3 1}\n")
    for xml in BAD_XML:
        path.write_bytes(xml)
        with pytest.raises(ParseError) as caught:
            read_arff(rows, labels=path)
        assert caught.value.path == str(path), xml


# After "@relation 'r: -C 1'", all with a fault in the line that follows it.
BAD_LINES = (
    b"@attribute a numeric|@data\n1|@relation s|@attribut a numeric|  hello|@attribute|@attribute a|"
    b"@attribute 'a numeric|@attribute 'a\\|@attribute a string|@attribute a DATE yyyy|@attribute a numeric x|"
    b"@attribute a {a,b|@attribute a {a,,b}|@attribute a {}|@attribute a {'a'b}|@attribute a {a,b,a}|"
    b"@attribute a {a} x|@attribute a\xff numeric"
).split(b"|")
# Content after the same line, and the line that is named.
BAD_HEADERS = [
    *((content, 2) for content in BAD_LINES),
    (b"", 1),
    (b"@attribute a numeric\n@attribute a numeric\n@data", 3),
    (b"@attribute a {0,1}\n@data {0 1}\n{0 1}\n", 3),
    (b"@attribute a {no,yes}\n@data\nyes", 0),
    (b"@attribute a {1,0}\n@data\n{}", 4),
    (b"@attribute a {0,1}\n@attribute b {-1,1}\n@data\n{}", 5),
    (b"@attribute a {0,1}\n@data\n", 3),
]


def test_bad_headers(arff):
    whole = [(b"@relation 'r: -C 1'\n" + lines, line) for lines, line in BAD_HEADERS]
    whole += [(b"", 0), (b"@relation 'r\n", 1)]
    options = (b"r", b"'r: -C 2'", b"'r: -C 0'")
    whole += [(b"@relation " + option + b"\n@attribute a numeric\n@data\n1\n", 0) for option in options]
    for content, line in whole:
        path = arff(content)
        for errors in ("strict", "skip"):
            with pytest.raises(ParseError) as caught:
                read_arff(path, errors=errors)
            assert (caught.value.path, caught.value.line) == (str(path), line), content


BAD_ROWS = (
    b"1,x,0,0|1,x,0,0,1,{2}|1,x,0,0,1,|?,x,0,0,1|1,?,0,0,1|1,x,0,?,1|1,'?',0,0,1|1,,0,0,1|q,x,0,0,1|nan,x,0,0,1|"
    b"1e50,x,0,0,1|1e-60,x,0,0,1|1_0,x,0,0,1|1,x,2,0,1|1,x,0,0,3|\xc3\xa9,x,0,0,1|1,\xc3\xa9,q,0,1|1,'x,0,0,1|"
    b"1,'x' 0,0,0,1|1,\xff,0,0,1|{0 1|{|{0 1}, {5}|{0 1,}|{0}|{0 1 2}|{x 1}|{-1 1}|{5 1}|{99999999999999999999999 1}|"
    b"{0 1, 3 1, 0 2}|{0 ?}|{0 1, 1 'q'}|{0 1, 1 'x|{0 1, 1 'x}|{0 1, 1 'x' 2}|{'0' 1}"
).split(b"|")


def test_bad_rows(arff):
    for row in BAD_ROWS:
        path = arff(HEADER + b"{0 1}\n" + row + b"\n2,x,0,0,1\n")
        with pytest.raises(ParseError) as caught:
            read_arff(path, labels=-2)
        assert (caught.value.path, caught.value.line) == (str(path), 9), row
        found = read_arff(path, labels=-2, errors="skip")
        assert found.n_skipped == 1, row
        assert found.X.toarray()[:, 0].tolist() == [1, 2]


def test_numeric_label_must_be_zero_or_one(arff):
    path = arff("@relation 'r: -C 1'\n@attribute l numeric\n@attribute f numeric\n@data\n1,5\n0.5,5\n")
    with pytest.raises(ParseError, match="line 6: a label must be 0 or 1"):
        read_arff(path)
    assert read_arff(path, errors="skip").Y.toarray().tolist() == [[1]]


def test_bad_labels_arguments(arff):
    path = arff(HEADER + b"{0 1}\n")
    for labels, error, words in (
        (["l1", "l9"], ParseError, "no attribute has the name of the label 'l9'"),
        (0, InvalidInputError, "labels is 0"),
        ([], InvalidInputError, "empty list"),
        (["a", "a"], InvalidInputError, "twice"),
        ([1], InvalidTypeError, "attribute names"),
        (1.5, InvalidTypeError, "labels must be a whole number"),
    ):
        with pytest.raises(error, match=words):
            read_arff(path, labels=labels)


def test_quotes_keep_blanks_and_commas(tmp_path):
    path = tmp_path / "a.arff"
    head = "@relation 'r: -C 1'\n@attribute l {0,1}\n@attribute n {x,'a\tb','c , d',o'b}\n@attribute m numeric\n@data\n"
    path.write_text(head + "{0 1,1 'a\tb',2 5}\n{1\t'c , d' , 2 6}\n1, 'c , d' ,7\n0,o'b,'8'\n", encoding="utf-8")
    found = read_arff(path)
    assert found.X.toarray().tolist() == [[1, 5], [2, 6], [2, 7], [3, 8]]
    assert found.Y.toarray().tolist() == [[1], [0], [1], [0]]
