"""The header of an ARFF file: @relation, @attribute … @data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from tagwise.data.number_text import parse_number
from tagwise.data.streams import ByteSource, decode_line
from tagwise.exceptions import ParseError

__all__ = [
    "ArffHeader",
    "Attribute",
    "WordError",
    "byte_column",
    "quoted",
    "read_header",
    "read_word",
    "skip_blanks",
]

_MEKA_LABELS = re.compile(r"(?:^|[\s:])-C\s+(-?[0-9]{1,9})(?=\s|$)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_QUOTING = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_NUMERIC_TYPES = ("numeric", "real", "integer")
_UNUSABLE_TYPES = ("string", "date", "relational")


@dataclass(frozen=True)
class Attribute:
    """One column; ``values`` maps each nominal value to its number and is None for a numeric column."""

    name: str
    line: int
    values: dict[str, float] | None


@dataclass
class ArffHeader:
    """What stands before ``@data``; ``meka_labels`` is the number of MEKA's ``-C`` option."""

    relation: str = ""
    relation_line: int = 0
    meka_labels: int | None = None
    attributes: list[Attribute] = field(default_factory=list)


class WordError(ValueError):
    """A word that cannot be read, at a position in the line."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


def byte_column(line: str, position: int) -> int:
    """The 1-based byte column of a character position."""
    return len(line[:position].encode("utf-8", "surrogatepass")) + 1


def quoted(name: str) -> str:
    """``name`` in single quotes, with escapes where needed."""
    return "'" + name.translate(_QUOTING) + "'"


def read_word(line: str, position: int, stops: str) -> tuple[str, int, bool]:
    """A quoted word, or one up to a character of ``stops``: (word, position behind it, was quoted)."""
    if position < len(line) and line[position] in "'\"":
        quote, start = line[position], position
        position += 1
        letters: list[str] = []
        while position < len(line):
            letter = line[position]
            if letter == quote:
                return "".join(letters), position + 1, True
            if letter == "\\":
                position += 1
                if position == len(line):
                    break
                letter = _ESCAPES.get(line[position], line[position])
            letters.append(letter)
            position += 1
        raise WordError(start, f"the quote {quote} is not closed on its line")
    start = position
    while position < len(line) and line[position] not in stops:
        position += 1
    return line[start:position], position, False


def read_header(source: ByteSource) -> ArffHeader:
    """Consume the lines up to and including ``@data``."""
    header = ArffHeader()
    for raw in source.lines():
        line = decode_line(source.path, source.line, raw)
        body = line.strip()
        if not body or body.startswith("%"):
            continue
        start = line.index(body[0])
        keyword = body.split(maxsplit=1)[0].lower()
        try:
            if keyword == "@data":
                _expect_end(line, start + len(keyword))
                return _checked(source, header)
            if keyword == "@relation":
                _read_relation(header, line, start + len(keyword), source.line)
            elif keyword == "@attribute":
                header.attributes.append(_read_attribute(line, start + len(keyword), source.line))
            else:
                raise WordError(start, f"expected @relation, @attribute or @data; found {body[:40]!r}")
        except WordError as error:
            column = byte_column(line, error.position)
            raise ParseError(source.path, source.line, column, str(error)) from None
    if source.line == 0:
        raise ParseError(source.path, 0, 0, "the file is empty")
    raise ParseError(source.path, source.line, 0, "the file ends before @data (is it truncated?)")


def _checked(source: ByteSource, header: ArffHeader) -> ArffHeader:
    if not header.relation_line:
        raise ParseError(source.path, source.line, 0, "@data comes before any @relation")
    if not header.attributes:
        raise ParseError(source.path, source.line, 0, "@data comes before any @attribute")
    names: set[str] = set()
    for attribute in header.attributes:
        if attribute.name in names:
            raise ParseError(source.path, attribute.line, 0, f"the attribute {attribute.name!r} is declared twice")
        names.add(attribute.name)
    return header


def _read_relation(header: ArffHeader, line: str, position: int, number: int) -> None:
    if header.relation_line:
        raise WordError(0, f"a second @relation; the first is on line {header.relation_line}")
    rest = line[position:].strip()
    if rest[:1] in ("'", '"'):
        word, end, _ = read_word(line, line.index(rest[0], position), "")
        _expect_end(line, end)
        rest = word
    if not rest:
        raise WordError(position, "@relation has no name")
    header.relation, header.relation_line = rest, number
    option = _MEKA_LABELS.search(rest)
    if option:
        header.meka_labels = int(option.group(1))


def _read_attribute(line: str, position: int, number: int) -> Attribute:
    position = skip_blanks(line, position)
    name, position, was_quoted = read_word(line, position, " \t{")
    if not name and not was_quoted:
        raise WordError(position, "@attribute has no name")
    position = skip_blanks(line, position)
    if position == len(line):
        raise WordError(position, f"attribute {name[:40]!r} has no type")
    if line[position] == "{":
        values, end = _read_nominal(line, position)
        _expect_end(line, end)
        return Attribute(name, number, values)
    kind, end, _ = read_word(line, position, " \t")
    if kind.lower() in _UNUSABLE_TYPES:
        raise WordError(
            position,
            f"attribute {name[:40]!r} has type {kind.lower()}, which is no feature; remove it or number it",
        )
    if kind.lower() not in _NUMERIC_TYPES:
        raise WordError(position, f"{kind[:40]!r} is no attribute type; expected numeric or {{value, value}}")
    _expect_end(line, end)
    return Attribute(name, number, None)


def _read_nominal(line: str, position: int) -> tuple[dict[str, float], int]:
    opening = position
    words: list[str] = []
    while True:
        position = skip_blanks(line, position + 1)
        start = position
        word, position, was_quoted = read_word(line, position, ",}")
        if not was_quoted:
            word = word.rstrip()
        position = skip_blanks(line, position)
        if position == len(line):
            raise WordError(opening, "the list of nominal values is not closed by } on its line")
        if line[position] not in ",}":
            raise WordError(position, f"expected , or }} in the list of nominal values; found {line[position]!r}")
        if not word and not was_quoted:
            raise WordError(start, "a nominal value is missing")
        if word in words:
            raise WordError(start, f"the nominal value {word[:40]!r} is listed twice")
        words.append(word)
        if line[position] == "}":
            return _numbered(words), position + 1


def _numbered(words: list[str]) -> dict[str, float]:
    """Nominal values that are all numbers stand for themselves, others for their place in the list."""
    try:
        numbers = {word: parse_number(word, np.dtype(np.float32)) for word in words}
    except ValueError:
        numbers = {}
    return numbers or {word: float(place) for place, word in enumerate(words)}


def skip_blanks(line: str, position: int) -> int:
    """The first position from ``position`` on that holds no blank."""
    while position < len(line) and line[position] in " \t":
        position += 1
    return position


def _expect_end(line: str, position: int) -> None:
    position = skip_blanks(line, position)
    if position < len(line) and line[position] != "%":
        raise WordError(position, f"unexpected {line[position : position + 40]!r} at the end of the line")
