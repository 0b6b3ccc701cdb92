"""The parser of ARFF files: @relation, @attribute … @data, then sparse or dense rows into CSR arrays."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from tagwise.data.labelled_rows import LabelledRows
from tagwise.data.number_text import parse_number
from tagwise.data.streams import ByteSource
from tagwise.exceptions import ParseError

__all__ = ["ArffHeader", "ArffRowReader", "quoted", "read_header"]

_MEKA_LABELS = re.compile(r"(?:^|[\s:])-C\s+(-?[0-9]{1,9})(?=\s|$)")
_QUOTED_WORD = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_QUOTING = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_NUMERIC_TYPES = ("numeric", "real", "integer")
_UNUSABLE_TYPES = ("string", "date", "relational")
_FLOAT32 = np.dtype(np.float32)
_CACHED_NUMBERS = 1 << 16
# Place of the attribute, text of the value, whether it was quoted, position in the line.
_Entry = tuple[int, str, bool, int]


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


class _WordError(ValueError):
    """A word that cannot be read, at a position in the line."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


def _byte_column(line: str, position: int) -> int:
    """The 1-based byte column of a character position."""
    return len(line[:position].encode("utf-8", "surrogatepass")) + 1


def quoted(name: str) -> str:
    """``name`` in single quotes, with escapes where needed."""
    return "'" + name.translate(_QUOTING) + "'"


def _read_word(line: str, position: int, stops: str) -> tuple[str, int, bool]:
    """A quoted word, or one up to a character of ``stops``: (word, position after it, was quoted)."""
    if line.startswith(("'", '"'), position):
        found = _QUOTED_WORD.match(line, position)
        if found is None:
            raise _WordError(position, f"the quote {line[position]} is not closed on its line")
        return _ESCAPED.sub(lambda letter: _ESCAPES.get(letter[1], letter[1]), found[0][1:-1]), found.end(), True
    start = position
    while position < len(line) and line[position] not in stops:
        position += 1
    return line[start:position], position, False


def read_header(source: ByteSource) -> ArffHeader:
    """Consume the lines up to and including ``@data``."""
    header = ArffHeader()
    for raw in source.lines():
        line = source.decoded(raw)
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
                raise _WordError(start, f"expected @relation, @attribute or @data; found {body[:40]!r}")
        except _WordError as error:
            column = _byte_column(line, error.position)
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
        raise _WordError(0, f"a second @relation; the first is on line {header.relation_line}")
    rest = line[position:].strip()
    if rest[:1] in ("'", '"'):
        word, end, _ = _read_word(line, line.index(rest[0], position), "")
        _expect_end(line, end)
        rest = word
    if not rest:
        raise _WordError(position, "@relation has no name")
    header.relation, header.relation_line = rest, number
    option = _MEKA_LABELS.search(rest)
    if option:
        header.meka_labels = int(option.group(1))


def _read_attribute(line: str, position: int, number: int) -> Attribute:
    position = _skip_blanks(line, position)
    name, position, was_quoted = _read_word(line, position, " \t{")
    if not name and not was_quoted:
        raise _WordError(position, "@attribute has no name")
    position = _skip_blanks(line, position)
    if position == len(line):
        raise _WordError(position, f"attribute {name[:40]!r} has no type")
    if line[position] == "{":
        values, end = _read_nominal(line, position)
        _expect_end(line, end)
        return Attribute(name, number, values)
    kind, end, _ = _read_word(line, position, " \t")
    if kind.lower() in _UNUSABLE_TYPES:
        raise _WordError(
            position, f"attribute {name[:40]!r} has type {kind.lower()}, which cannot be a feature; remove or encode it"
        )
    if kind.lower() not in _NUMERIC_TYPES:
        raise _WordError(position, f"{kind[:40]!r} is not an attribute type; expected numeric or {{value, value}}")
    _expect_end(line, end)
    return Attribute(name, number, None)


def _read_nominal(line: str, position: int) -> tuple[dict[str, float], int]:
    opening = position
    words: list[str] = []
    while True:
        position = _skip_blanks(line, position + 1)
        start = position
        word, position, was_quoted = _read_word(line, position, ",}")
        if not was_quoted:
            word = word.rstrip()
        position = _skip_blanks(line, position)
        if position == len(line):
            raise _WordError(opening, "the list of nominal values is not closed by } on its line")
        if line[position] not in ",}":
            raise _WordError(position, f"expected , or }} in the list of nominal values; found {line[position]!r}")
        if not word and not was_quoted:
            raise _WordError(start, "a nominal value is missing")
        if word in words:
            raise _WordError(start, f"the nominal value {word[:40]!r} is listed twice")
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


def _skip_blanks(line: str, position: int) -> int:
    """The first position from ``position`` on that holds no blank."""
    while position < len(line) and line[position] in " \t":
        position += 1
    return position


def _expect_end(line: str, position: int) -> None:
    position = _skip_blanks(line, position)
    if position < len(line) and line[position] != "%":
        raise _WordError(position, f"unexpected {line[position : position + 40]!r} at the end of the line")


# ---------------------------------------------------------------------- rows


class ArffRowReader:
    """Parses data lines into CSR arrays, one row at a time."""

    def __init__(self, source: ByteSource, header: ArffHeader, label_places: list[int]) -> None:
        self.source = source
        self.header = header
        self.label_places = label_places
        column_of_label = {place: column for column, place in enumerate(label_places)}
        self.feature_places = [p for p in range(len(header.attributes)) if p not in column_of_label]
        # A feature's column as it is, a label's column c as -1 - c.
        self.column = [0] * len(header.attributes)
        for column, place in enumerate(self.feature_places):
            self.column[place] = column
        for place, column in column_of_label.items():
            self.column[place] = -1 - column
        self.values = [attribute.values for attribute in header.attributes]
        self.number_cache: dict[str, float] = {}
        self.sparse_checked = False

    def read(self, skip: bool) -> LabelledRows:
        """All rows; with ``skip`` those without a fault."""
        x_data, x_indices, x_ends = array("f"), array("i"), array("q", [0])
        y_indices, y_ends = array("i"), array("q", [0])
        n_skipped = 0
        for raw in self.source.lines():
            try:
                line = self.source.decoded(raw)
            except ParseError:
                if not skip:
                    raise
                n_skipped += 1
                continue
            body = line.strip()
            if not body or body[0] == "%":
                continue
            try:
                columns, values, labels = self._row(line)
            except _WordError as error:
                if not skip:
                    column = _byte_column(line, error.position)
                    raise ParseError(self.source.path, self.source.line, column, str(error)) from None
                n_skipped += 1
                continue
            x_data.extend(values)
            x_indices.extend(columns)
            x_ends.append(len(x_indices))
            y_indices.extend(labels)
            y_ends.append(len(y_indices))
        if len(y_ends) == 1 and not n_skipped:
            raise ParseError(self.source.path, self.source.line, 0, "the file holds no rows after @data")
        ones = array("f", [1.0]) * len(y_indices)
        attributes = self.header.attributes
        return LabelledRows(
            X=_csr(x_data, x_indices, x_ends, len(self.feature_places)),
            Y=_csr(ones, y_indices, y_ends, len(self.label_places)),
            feature_names=[attributes[place].name for place in self.feature_places],
            label_names=[attributes[place].name for place in self.label_places],
            n_skipped=n_skipped,
        )

    def _row(self, line: str) -> tuple[list[int], list[float], list[int]]:
        start = len(line) - len(line.lstrip())
        entries = self._sparse_entries(line, start) if line[start] == "{" else self._dense_entries(line)
        columns: list[int] = []
        numbers: list[float] = []
        labels: list[int] = []
        for place, text, was_quoted, position in entries:
            number = self._number(place, text, was_quoted, position)
            if number == 0:
                continue
            column = self.column[place]
            if column >= 0:
                columns.append(column)
                numbers.append(number)
            elif number == 1:
                labels.append(-1 - column)
            else:
                name = self.header.attributes[place].name
                raise _WordError(position, f"the label {name!r} must be 0 or 1; found {text!r}")
        if any(left > right for left, right in pairwise(columns)):
            order = sorted(range(len(columns)), key=columns.__getitem__)
            columns, numbers = [columns[i] for i in order], [numbers[i] for i in order]
        labels.sort()
        return columns, numbers, labels

    def _number(self, place: int, text: str, was_quoted: bool, position: int) -> float:
        table = self.values[place]
        number = self.number_cache.get(text) if table is None else table.get(text)
        if number is not None:
            return number
        name = self.header.attributes[place].name
        if text == "?" and not was_quoted:
            raise _WordError(position, f"attribute {name!r} has a missing value '?'; fill in or remove missing values")
        if not text:
            raise _WordError(position, f"the value of attribute {name!r} is missing (is the line truncated?)")
        if table is not None:
            known = ", ".join(table)[:60]
            raise _WordError(position, f"{text[:40]!r} is not a value of attribute {name!r}, which has {{{known}}}")
        try:
            number = parse_number(text, _FLOAT32)
        except ValueError as error:
            raise _WordError(position, f"attribute {name!r}: {error}") from None
        if len(self.number_cache) < _CACHED_NUMBERS:
            self.number_cache[text] = number
        return number

    def _dense_entries(self, line: str) -> list[_Entry]:
        fields = _fields(line, 0, len(line))
        total = len(self.values)
        if len(fields) != total:
            position = fields[total][1] if len(fields) > total else len(line)
            advice = "(is the line truncated?)" if len(fields) < total else "(instance weights are not supported)"
            raise _WordError(position, f"the row has {len(fields)} values, but there are {total} attributes {advice}")
        if "'" not in line and '"' not in line:
            return [(place, text, False, at) for place, (text, at) in enumerate(fields)]
        return [(place, *_value(text, at), at) for place, (text, at) in enumerate(fields)]

    def _sparse_entries(self, line: str, start: int) -> list[_Entry]:
        self._check_sparse_allowed()
        stop = len(line.rstrip()) - 1
        if line[stop] != "}" or stop == start:
            raise _WordError(stop, "the sparse row does not end with } (is the line truncated?)")
        if not line[start + 1 : stop].strip():
            return []
        entries: list[_Entry] = []
        seen: set[int] = set()
        total = len(self.values)
        for entry, at in _fields(line, start + 1, stop):
            words = entry.split(None, 1)
            index, rest = words if len(words) == 2 else ("", "")
            value, was_quoted = _value(rest, at + len(entry) - len(rest))
            if not (index.isascii() and index.isdigit()) or not (was_quoted or len(value.split()) == 1):
                advice = "; instance weights are not supported" if entry.startswith("{") else ""
                raise _WordError(at, f"{entry[:40]!r} is not an entry 'index value' of a sparse row{advice}")
            place = int(index) if len(index) < 19 else total
            if place >= total:
                raise _WordError(at, f"attribute index {index[:40]} is out of range; there are {total} attributes")
            if place in seen:
                raise _WordError(at, f"attribute index {place} is listed twice in this row")
            seen.add(place)
            entries.append((place, value, was_quoted, at))
        return entries

    def _check_sparse_allowed(self) -> None:
        """Left-out nominal entries mean the first declared value; that must be 0 for a sparse matrix."""
        if self.sparse_checked:
            return
        for attribute in self.header.attributes:
            if attribute.values and next(iter(attribute.values.values())) != 0:
                raise ParseError(
                    self.source.path,
                    attribute.line,
                    0,
                    "in sparse rows a left-out entry means the first value of an attribute, which for "
                    f"{attribute.name!r} is not 0; declare 0 first or write dense rows",
                )
        self.sparse_checked = True


def _fields(line: str, start: int, stop: int) -> list[tuple[str, int]]:
    """The fields of ``line[start:stop]`` between commas outside quotes, stripped, each with its position."""
    fields: list[tuple[str, int]] = []
    position = start
    if "'" not in line and '"' not in line:
        for text in line[start:stop].split(","):
            stripped = text.strip()
            fields.append((stripped, position + text.find(stripped[:1])))
            position += len(text) + 1
        return fields
    while position <= stop:
        at = end = _skip_blanks(line, position)
        while end < stop and line[end] != ",":
            # A quote opens a word where a word starts: that of a dense field, or the value of a sparse entry.
            opens = line[end] in "'\"" and (end == at or line[end - 1] in " \t")
            end = _read_word(line, end, "")[1] if opens else end + 1
        fields.append((line[at:end].rstrip(), at))
        position = end + 1
    return fields


def _value(text: str, position: int) -> tuple[str, bool]:
    """A field without its quotes, and whether it had some."""
    if not text.startswith(("'", '"')):
        return text, False
    word, end, _ = _read_word(text, 0, "")
    rest = text[end:].lstrip()
    if rest:
        raise _WordError(
            position + len(text) - len(rest), f"expected a comma after the quoted value; found {rest[0]!r}"
        )
    return word, True


def _csr(data: array[float], indices: array[int], ends: array[int], size: int) -> sp.csr_matrix:
    # Arrays of the array module grow in place and lend their memory without a copy.
    index_type = np.int32 if len(indices) < 2**31 else np.int64
    matrix = sp.csr_matrix(
        (
            np.frombuffer(data, dtype=np.float32),
            np.frombuffer(indices, dtype=np.int32).astype(index_type, copy=False),
            np.frombuffer(ends, dtype=np.int64).astype(index_type),
        ),
        shape=(len(ends) - 1, size),
    )
    matrix.has_canonical_format = True
    return matrix
