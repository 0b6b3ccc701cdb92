"""Files of tags and their names: plain lines, tables, JSON lines, and SKOS."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias
from xml.parsers import expat

from tagwise.data.columns import Dialect
from tagwise.data.formats import FORMATS, FileFormat
from tagwise.data.records import HALF_PAIR, holds_half_pair, kind_of, open_records
from tagwise.data.streams import ByteSource, checked_path, suffix_without_compression
from tagwise.exceptions import InvalidInputError, ParseError, TagwiseError

__all__ = ["read_vocabulary"]

Vocabulary: TypeAlias = dict[str, "str | list[str]"]

_RDF_OF = {".ttl": "turtle", ".turtle": "turtle", ".rdf": "xml", ".skos": "xml", ".nt": "nt", ".n3": "n3"}
_IDS = ("id", "uri", "tag", "code", "key", "identifier", "concept")
_NAMES = ("name", "label", "preflabel", "title", "term")
_ALTERNATIVES = ("alternativenames", "alternatives", "alternative", "altlabels", "altlabel", "synonyms", "aliases")
_LANGUAGE = re.compile(r"(?P<name>.*?)(?:[_@.](?P<language>[A-Za-z]{2,3}(?:-[A-Za-z0-9]+)?))?")
_SEPARATORS = ("|", ";")
_USUAL_LANGUAGE = "en"
_SKOS = "http://www.w3.org/2004/02/skos/core#"
# An entity takes at least 3 bytes where it is used: no file expands more than 66 times by them.
_LONGEST_ENTITY = 200
_DEPRECATED = "http://www.w3.org/2002/07/owl#deprecated"


def read_vocabulary(path: str | os.PathLike[str], *, language: str | None = None) -> Vocabulary:
    """Tags, their names and alternative names.

    Parameters
    ----------
    path : path
        The file, in UTF-8; also ``.gz`` and ``.bz2``. By the ending of its name it is

        - lines (``.tsv``, ``.txt`` and whatever is not below): a tag, or a tag, its name and alternative names with
          tabs between them. If the tag is an address in angle brackets, as in Annif's vocabularies, the third field is
          a notation and ignored. A first line such as ``id``, ``name``, ``alternatives`` names the columns;
        - ``.csv`` and ``.jsonl``: columns, or fields, such as ``id`` or ``uri``, ``name`` or ``label`` (or one per
          language, ``label_en``, ``label_fi``), and ``alternatives`` or ``altLabel``: a list, or names with ``|`` or
          ``;`` between them. Others are ignored;
        - ``.ttl``, ``.rdf``, ``.nt``, ``.n3``: SKOS, read by rdflib, an extra: the preferred and alternative labels of
          concepts that are not deprecated.
    language : str or None
        Language of the names to take where there are several, such as ``"fi"``. None takes those without a language,
        else English ones, else those of the language that most tags have names in.

    Returns
    -------
    dict from str to str or list of str
        Tag → name, or name and alternative names, in the order of the file, for ``Tagger(vocabulary=…)``. A tag without
        a name is its own name. Spaces around tags and names, and brackets around addresses, are left out.

    Raises
    ------
    ParseError
        A line has no tag, or an empty name behind a tab, a tag occurs twice, or there are no tags; with file and
        line.
    InvalidInputError
        Columns cannot be identified, no name is in ``language``, or rdflib is needed and missing.
    """
    file = checked_path(path)
    suffix = suffix_without_compression(file)
    if suffix in _RDF_OF:
        return _read_skos(file, _RDF_OF[suffix], language)
    entry = next((FORMATS[name] for name in ("csv", "jsonl") if suffix in FORMATS[name].endings), None)
    if entry is not None:
        return _read_records(file, entry, language)
    return _read_lines(file, language)


class _Entries:
    """The vocabulary while it is built; all entries get the same checks."""

    def __init__(self, path: str) -> None:
        self.path, self.found = path, dict[str, "str | list[str]"]()

    def add(self, line: int, tag: str, names: Iterable[str]) -> None:
        """A tag with its name and alternative names, of which any may be empty."""
        tag = tag.strip()
        if tag.startswith("<") and tag.endswith(">"):
            tag = tag[1:-1].strip()
        if not tag:
            raise ParseError(self.path, line, 0, "the tag is empty; every line must hold one, and may hold its names")
        if tag in self.found:
            reason = f"the tag {tag[:60]!r} occurred before; remove one of its lines"
            raise ParseError(self.path, line, 0, reason)
        known = list(dict.fromkeys(filter(None, map(str.strip, names)))) or [tag]
        if holds_half_pair([tag, *known]):
            raise ParseError(self.path, line, 0, HALF_PAIR)
        self.found[tag] = known[0] if len(known) == 1 else known

    def done(self) -> Vocabulary:
        """The vocabulary, which must not be empty."""
        if not self.found:
            raise ParseError(self.path, 0, 0, "the file is empty; write one tag per line, or a tag, a tab and its name")
        return self.found


# ---------------------------------------------------------------------- lines and records


@dataclass(frozen=True)
class _Fields:
    """Columns of tags and of their names."""

    id: str
    name: str | None
    alternatives: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str], language: str | None) -> _Fields | None:
        """Columns by their names; None if none holds tags."""
        parts = {name: _LANGUAGE.fullmatch(name.strip()) for name in names}
        plain = {name: re.sub(r"[\s_-]", "", part["name"]).lower() for name, part in parts.items() if part}
        spoken = {name: (part["language"] or "").lower() for name, part in parts.items() if part}
        plain |= {name: name.strip().lower() for name in names if spoken.get(name) and name.strip().lower() in _IDS}
        tags = [name for usual in _IDS for name in names if plain.get(name) == usual]
        if not tags:
            return None
        labels = [name for usual in _NAMES for name in names if plain.get(name) == usual]
        chosen = _chosen_language([spoken[name] for name in labels], language)
        others = [name for name in names if plain.get(name) in _ALTERNATIVES and spoken[name] in ("", chosen or "")]
        return cls(tags[0], next((name for name in labels if spoken[name] == chosen), None), tuple(others))

    def entry(self, record: Mapping[str, Any]) -> tuple[str, list[str]]:
        """The tag of a record, its name and alternatives; a ValueError names the fault."""
        tag = record.get(self.id)
        if isinstance(tag, int) and not isinstance(tag, bool):
            tag = str(tag)
        if not isinstance(tag, str):
            raise ValueError(f"the field {self.id!r} must be a string or a whole number; found {kind_of(tag)}")
        called = [] if self.name is None else [(self.name, record.get(self.name))]
        for field in self.alternatives:
            value = record.get(field)
            if isinstance(value, str):
                separator = next((mark for mark in _SEPARATORS if mark in value), None)
                value = value.split(separator) if separator else [value]
            called += [(field, name) for name in (value if isinstance(value, (list, tuple)) else [value])]
        for field, name in called:
            if not isinstance(name, (str, type(None))):
                raise ValueError(f"the field {field!r} must hold names as text; found {kind_of(name)}")
        return tag, [name or "" for _, name in called]


def _chosen_language(languages: Iterable[str], wanted: str | None) -> str | None:
    """The language of the names to take: as wanted, none, English, or the most frequent; None if there are no names."""
    found = Counter(languages)
    if wanted is not None:
        if wanted.lower() not in found:
            listed = ", ".join(sorted(filter(None, found))) or "none"
            raise InvalidInputError(
                f"language (--language): the vocabulary has no names in {wanted!r:.20}; it has {listed:.200}."
            )
        return wanted.lower()
    usual = [language for language in ("", _USUAL_LANGUAGE) if language in found]
    return usual[0] if usual else max(found, key=lambda language: found[language], default=None)


def _read_lines(path: str, language: str | None) -> Vocabulary:
    entries = _Entries(path)
    with ByteSource(path) as source:
        fields: _Fields | None = None
        columns: list[str] = []
        for raw in source.lines():
            cells = source.decoded(raw).split("\t")
            if source.line == 1 and len(cells) > 1 and (fields := _Fields.of(cells, language)) and fields.name:
                columns = cells
            elif columns and fields is not None:
                if len(cells) > len(columns):
                    raise source.fault(f"the line has {len(cells)} fields, but the first names {len(columns)} columns")
                entries.add(source.line, *fields.entry(dict(zip(columns, cells))))
            else:
                tag, *names = cells
                if names and not names[0].strip():
                    reason = "the name is empty; every line must hold a tag, or a tag, a tab and its names"
                    raise source.fault(reason if tag.strip() else reason.replace("name is", "tag is"))
                is_address = tag.strip().startswith("<") and tag.strip().endswith(">")
                entries.add(source.line, tag, names[:1] if is_address else names)
    if language is not None and not columns:
        raise InvalidInputError(
            f"language (--language): {path} does not say which languages its names are in; leave it out."
        )
    return entries.done()


def _read_records(path: str, entry: FileFormat, language: str | None) -> Vocabulary:
    entries = _Entries(path)
    fields_of: dict[tuple[str, ...], _Fields] = {}  # records of JSON lines may have different ones
    with closing(open_records(path, entry, Dialect())) as records:
        while (record := records.next()) is not None:
            names = tuple(record)
            fields = fields_of.get(names) or _Fields.of(names, language)
            if fields is None:
                found = ", ".join(map(repr, names))
                raise InvalidInputError(
                    f"{path}: no column looks like one of tags; name the columns id, name and alternatives. Columns "
                    f"found: {found:.300}."
                )
            fields_of[names] = fields
            try:
                tag, called = fields.entry(record)
            except ValueError as error:
                raise ParseError(path, records.line, 0, str(error)) from None
            entries.add(records.line, tag, called)
    return entries.done()


# ---------------------------------------------------------------------- SKOS


def _read_skos(path: str, syntax: str, language: str | None) -> Vocabulary:
    try:
        import rdflib
    except ImportError:
        raise InvalidInputError(
            f"{path} is a vocabulary in RDF, which rdflib reads; install it: pip install 'tagwise[skos]'"
        ) from None
    with ByteSource(path) as source:
        content = source.content()
    if syntax == "xml":
        _refuse_expanding_entities(path, content)
    graph = rdflib.Graph()
    try:
        graph.parse(data=content, format=syntax)
    except TagwiseError:
        raise
    except Exception as error:  # every parser of rdflib has exceptions of its own
        what = " ".join(str(error).split())[:300] or type(error).__name__
        line = getattr(error, "lines", 0)
        raise ParseError(path, line if isinstance(line, int) else 0, 0, f"not readable as {syntax}: {what}") from None
    labels = {kind: list(_labels(graph, rdflib.URIRef(_SKOS + kind))) for kind in ("prefLabel", "altLabel")}
    deprecated = {
        subject
        for subject, value in graph.subject_objects(rdflib.URIRef(_DEPRECATED))
        if isinstance(value, rdflib.Literal) and value.toPython()
    }
    chosen = _chosen_language([spoken for _, spoken, _ in labels["prefLabel"]], language)
    names: dict[Any, list[str]] = {}
    for kind in ("prefLabel", "altLabel"):
        for concept, spoken, name in sorted(labels[kind]):
            if spoken == chosen and concept not in deprecated:
                names.setdefault(concept, []).append(name)
    entries = _Entries(path)
    for concept in sorted({concept for concept, _, _ in labels["prefLabel"]} - deprecated):
        entries.add(0, str(concept), names.get(concept, ()))
    return entries.done()


def _refuse_expanding_entities(path: str, content: bytes) -> None:
    """Entities of an XML file may abbreviate addresses; of others, or in other files, they could exhaust the memory.

    expat limits what they expand to, but rdflib copies a text for each of its pieces: it takes hours below that limit.
    """
    parser = expat.ParserCreate()

    def declared(name: str, is_parameter: int, value: str | None, *more: Any) -> None:
        if is_parameter or value is None or "&" in value or len(value) > _LONGEST_ENTITY:
            reason = (
                f"the entity {name[:40]!r} is long, made of others or in another file: such entities may be made to "
                "exhaust the memory and are not read. Write them out, or convert the file to Turtle"
            )
            raise ParseError(path, parser.CurrentLineNumber, 0, reason)

    def reached(*element: Any) -> None:
        raise StopIteration

    parser.EntityDeclHandler, parser.StartElementHandler = declared, reached
    with suppress(StopIteration, expat.ExpatError):  # what is wrong with the file is for its reader to say
        parser.Parse(content, True)


def _labels(graph: Any, predicate: Any) -> Iterator[tuple[Any, str, str]]:
    for concept, label in graph.subject_objects(predicate):
        yield concept, (getattr(label, "language", None) or "").lower(), str(label)
