"""Files of tags and their names."""

import gzip

import pytest

from tagwise.data import read_vocabulary
from tagwise.exceptions import InvalidInputError, ParseError


def test_tags_with_and_without_names(write):
    found = read_vocabulary(write("tags.tsv", "\ufeffp1\tchess game\r\n lone tag \nz\t ü \n"))
    assert list(found.items()) == [("p1", "chess game"), ("lone tag", "lone tag"), ("z", "ü")]
    assert read_vocabulary(write("tags.txt.gz", gzip.compress(b"a\nb"))) == {"a": "a", "b": "b"}


def test_faults_have_a_line(tmp_path):
    for content, line, words in (
        (b"", 0, "the file is empty"),
        (b"a\n\nb\n", 2, "the tag is empty"),
        (b"\tname\n", 1, "the tag is empty"),
        (b"a\t \n", 1, "the name is empty"),
        (b"id\tname\na\tb\tc\n", 2, "the line has 3 fields, but the first names 2 columns"),
        (b"<>\tname\n", 1, "the tag is empty"),
        (b"a\nb\na\tA\n", 3, "the tag 'a' occurred before"),
        (b"a\n\xff\n", 2, "byte 0xff is not valid UTF-8"),
    ):
        (tmp_path / "tags.tsv").write_bytes(content)
        with pytest.raises(ParseError, match=words) as caught:
            read_vocabulary(tmp_path / "tags.tsv")
        assert caught.value.line == line, content


def test_alternative_names(write):
    table = "ID\tPrefLabel\tAlternative names\np1\tcar\tautomobile|motor car\np2\ttree\t\np3\t\t\n"
    lines = (
        '{"id": "p1", "name": "car", "alternatives": ["automobile", "motor car"]}\n{"id": "p2", "label": "tree"}\n'
        '{"id": "p3", "other": 3}\n'
    )
    for name, content in (
        ("tags.tsv", "p1\tcar\tautomobile\tmotor car\t\np2\ttree\np3\n"),
        ("tags.tsv", table),
        ("tags.jsonl", lines),
        ("tags.csv", 'uri,name,synonyms\np1,car,"automobile; motor car"\np2,tree,\np3,,\n'),
    ):
        expected = {"p1": ["car", "automobile", "motor car"], "p2": "tree", "p3": "p3"}
        assert read_vocabulary(write(name, content)) == expected


def test_vocabularies_of_annif(write):
    """<uri>, a tab and the label, maybe with a notation; or a table with labels in several languages."""
    lines = write("yso.tsv", "<http://yso.fi/p1>\tcats\t59.7\n<http://yso.fi/p2>\tdogs\n")
    assert read_vocabulary(lines) == {"http://yso.fi/p1": "cats", "http://yso.fi/p2": "dogs"}
    rows = "<http://yso.fi/p1>,kissat,cats,1\nhttp://yso.fi/p2,koirat,,2\n"
    table = write("yso.csv", "uri,label_fi,label_en,notation\n" + rows)
    assert read_vocabulary(table) == {"http://yso.fi/p1": "cats", "http://yso.fi/p2": "http://yso.fi/p2"}
    assert read_vocabulary(table, language="fi") == {"http://yso.fi/p1": "kissat", "http://yso.fi/p2": "koirat"}
    with pytest.raises(InvalidInputError, match="no names in 'sv'; it has en, fi"):
        read_vocabulary(table, language="sv")
    with pytest.raises(InvalidInputError, match="does not say which languages"):
        read_vocabulary(lines, language="fi")


def test_tables_without_tags_and_values_that_are_no_names(write):
    with pytest.raises(InvalidInputError, match=r"id, name and alternatives\. Columns found: 'a', 'b'"):
        read_vocabulary(write("tags.csv", "a,b\n1,2\n"))
    for record, reason in (
        ('{"id": null}', "the field 'id' must be a string"),
        ('{"id": "a", "name": 3}', "the field 'name' must hold"),
        ('{"id": "a", "aliases": ["b", 3]}', "the field 'aliases' must hold"),
        ('{"id": "\\ud800"}', "half of a surrogate pair"),
    ):
        with pytest.raises(ParseError, match=f"line 2: .*{reason}"):
            read_vocabulary(write("tags.jsonl", '{"id": 7}\n' + record + "\n"))


SKOS = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
<http://a/1> a skos:Concept ; skos:prefLabel "cats"@en, "kissat"@fi ; skos:altLabel "felines"@en, "Katzen"@de .
<http://a/2> a skos:Concept ; skos:prefLabel "dogs"@en .
<http://a/3> a skos:Concept ; skos:prefLabel "gone"@en ; owl:deprecated true .
"""


def test_skos(tmp_path):
    rdflib = pytest.importorskip("rdflib", reason="rdflib, which reads SKOS, is not installed")
    expected = {"http://a/1": ["cats", "felines"], "http://a/2": "dogs"}
    (tmp_path / "a.ttl.gz").write_bytes(gzip.compress(SKOS.encode()))
    assert read_vocabulary(tmp_path / "a.ttl.gz") == expected
    assert read_vocabulary(tmp_path / "a.ttl.gz", language="fi") == {"http://a/1": "kissat", "http://a/2": "http://a/2"}
    graph = rdflib.Graph().parse(data=SKOS, format="turtle")
    graph.serialize(tmp_path / "a.rdf", format="xml")
    assert read_vocabulary(tmp_path / "a.rdf") == expected
    for name, content in (("b.ttl", "nonsense <"), ("b.rdf", "<a>"), ("b.nt", "x")):
        (tmp_path / name).write_text(content)
        with pytest.raises(ParseError, match="not readable as"):
            read_vocabulary(tmp_path / name)
    (tmp_path / "empty.ttl").write_text("")
    with pytest.raises(ParseError, match="the file is empty"):
        read_vocabulary(tmp_path / "empty.ttl")


RDF = """<?xml version="1.0"?><!DOCTYPE rdf:RDF [<!ENTITY skos "http://www.w3.org/2004/02/skos/core#">{entities}]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
<skos:Concept rdf:about="http://a/1"><skos:prefLabel>{label}</skos:prefLabel></skos:Concept></rdf:RDF>"""
LAUGHS = '<!ENTITY a "lol">' + "".join(
    f'<!ENTITY {name} "{10 * f"&{before};"}">' for before, name in zip("abcdefgh", "bcdefghi")
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize(
    ("entities", "label"),
    [
        (LAUGHS, "&i;"),
        (f'<!ENTITY a "{"x" * 300}">', "&a;" * 100),
        ('<!ENTITY a SYSTEM "file:///etc/hostname">', "&a;"),
        ('<!ENTITY % a "x">', "b"),
    ],
)
def test_entities_that_expand_are_refused(entities, label, encoding, tmp_path):
    """A file of a kilobyte that rdflib would expand for hours."""
    pytest.importorskip("rdflib", reason="rdflib, which reads SKOS, is not installed")
    (tmp_path / "a.rdf").write_bytes(RDF.format(entities=entities, label=label).encode(encoding))
    with pytest.raises(ParseError, match="exhaust the memory and are not read"):
        read_vocabulary(tmp_path / "a.rdf")
    (tmp_path / "b.rdf").write_text(RDF.format(entities="", label="good"))
    assert read_vocabulary(tmp_path / "b.rdf") == {"http://a/1": "good"}


def test_skos_without_rdflib_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rdflib", None)
    (tmp_path / "a.ttl").write_text(SKOS)
    with pytest.raises(InvalidInputError, match=r"pip install 'tagwise\[skos\]'"):
        read_vocabulary(tmp_path / "a.ttl")
