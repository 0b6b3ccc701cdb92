"""Mulan's and MEKA's ARFF files, sparse and dense, and the XML file that lists Mulan's labels."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any
from xml.parsers import expat

import numpy as np
import scipy.sparse as sp

from tagwise.data.labelled_rows import LabelledRows, checked_pair
from tagwise.data.number_text import parse_number, shortest_texts
from tagwise.data.streams import ByteSource, UnskippableError, atomic_writer
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ParseError
from tagwise.validation import check_choice, check_integer

__all__ = ["read_arff", "write_arff"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BLOCK_BYTES = 1 << 16
_NAMESPACE = "http://mulan.sourceforge.net/labels"
_MEKA_LABELS = re.compile(r"(?:^|[\s:])-C\s+(-?[0-9]{1,9})(?=\s|$)")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_QUOTING = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_NUMERIC_TYPES = ("numeric", "real", "integer")
_UNUSABLE_TYPES = ("string", "date", "relational")
_FLOAT32 = np.dtype(np.float32)
_CACHED_NUMBERS = 1 << 16
# Place of the attribute, text of the value, whether it was quoted, position in the line.
_Entry = tuple[int, str, bool, int]


def read_arff(
    path: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | int | Sequence[str] | None = None,
    errors: str = "strict",
) -> LabelledRows:
    """Read a multi-label ARFF file, sparse (``{i v, i v}``) or dense, plain, ``.gz`` or ``.bz2``.

    Numeric attributes keep their value. A nominal attribute whose values are all numbers, such as ``{0,1}``,
    stands for these numbers; any other becomes the position of the value in its declaration, from 0. A left-out
    entry of a sparse row is 0, and zeros are not stored. String, date and relational attributes, missing
    values (``?``) and instance weights are faults. ``%`` starts a comment line, keywords are
    case-insensitive, and names and values may be quoted with backslash escapes.

    Parameters
    ----------
    path : str or path
        The file.
    labels : path of a Mulan XML file, int, list of str, or None
        Which attributes are labels. An int n means the first n attributes, a negative one the last ``|n|``. None takes
        MEKA's ``-C n`` option in the ``@relation``, which has the same signs. A list (not a single string, which is a
        path) gives names. Columns of ``Y`` follow the order of the attributes, or of the list if there is one.
    errors : {"strict", "skip"}
        What to do with a faulty row: raise :class:`ParseError`, or leave it out and count it in
        ``n_skipped``. A fault in the header is always an error.

    Returns
    -------
    LabelledRows
        ``X`` n×d float32 and ``Y`` n×L with ``feature_names`` and ``label_names``.

    Notes
    -----
    Rows are parsed in Python, about 1-2 million entries per second (dense files count every entry); memory is that of
    the matrices, one row and the header. Lines and expansions are limited (see docs/data-formats.md).
    """
    skip = check_choice(errors, "errors", ("strict", "skip")) == "skip"
    wanted = _check_labels_argument(labels)
    with ByteSource(path) as source:
        header = _read_header(source)
        label_places = _find_labels(source.path, header, wanted)
        return _RowReader(source, header, label_places).read(skip)


def _check_labels_argument(labels: Any) -> int | list[str] | tuple[str, ...] | None:
    """The argument, with a path replaced by the tuple of names in it; a list stays a list, in its order."""
    if isinstance(labels, (str, os.PathLike)):
        return tuple(_read_mulan_xml(labels))
    if isinstance(labels, Sequence):
        names = list(labels)
        for name in names:
            if not isinstance(name, str):
                raise InvalidTypeError(f"labels must list attribute names; found {name!r}.")
        if not names:
            raise InvalidInputError("labels is an empty list; name at least one label attribute.")
        if len(set(names)) < len(names):
            raise InvalidInputError("labels lists a name twice; name each label attribute once.")
        return names
    if labels is not None and check_integer(labels, "labels") == 0:
        raise InvalidInputError("labels is 0; pass how many of the first (positive) or last (negative) attributes.")
    return None if labels is None else int(labels)


def _find_labels(path: str, header: _Header, wanted: int | list[str] | tuple[str, ...] | None) -> list[int]:
    """Places of the label attributes, in the order of the columns of Y."""
    total = len(header.attributes)
    fault = partial(ParseError, path, header.relation_line, 0)
    if wanted is None:
        if header.meka_labels is None:
            raise fault(
                "the @relation has no option -C that says which attributes are labels; pass labels= (an XML "
                "file, a number, or names)"
            )
        wanted = header.meka_labels
    if isinstance(wanted, int):
        if not 0 < abs(wanted) <= total:
            raise fault(f"labels= or the option -C asks for {wanted} labels, but the file has {total} attributes")
        places = list(range(wanted)) if wanted > 0 else list(range(total + wanted, total))
    else:
        place_of = {attribute.name: place for place, attribute in enumerate(header.attributes)}
        for name in wanted:
            if name not in place_of:
                raise fault(f"no attribute has the name of the label {name!r}")
        places = [place_of[name] for name in wanted]
        if isinstance(wanted, tuple):
            places.sort()
    for place in places:
        attribute = header.attributes[place]
        if attribute.values is not None and not set(attribute.values) <= {"0", "1"}:
            found = ", ".join(attribute.values)[:60]
            reason = f"the label {attribute.name!r} must have the values {{0,1}}; found {found}"
            raise ParseError(path, attribute.line, 0, reason)
    return places


# ---------------------------------------------------------------------- the header


@dataclass(frozen=True)
class _Attribute:
    """One column; ``values`` maps each nominal value to its number and is None for a numeric column."""

    name: str
    line: int
    values: dict[str, float] | None


@dataclass
class _Header:
    """What stands before ``@data``; ``meka_labels`` is the number of MEKA's ``-C`` option."""

    relation_line: int = 0
    meka_labels: int | None = None
    attributes: list[_Attribute] = field(default_factory=list)


class _WordError(ValueError):
    """A word that cannot be read, at a position in the line."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


def _byte_column(line: str, position: int) -> int:
    """The 1-based byte column of a character position."""
    return len(line[:position].encode("utf-8", "surrogatepass")) + 1


def _quoted(name: str) -> str:
    """``name`` in single quotes, with escapes where needed."""
    return "'" + name.translate(_QUOTING) + "'"


def _read_word(line: str, position: int, stops: str) -> tuple[str, int, bool]:
    """A quoted word, or one up to a character of ``stops``: (word, position after it, was quoted)."""
    if line.startswith(("'", '"'), position):
        end = _closing_quote(line, position)
        word = line[position + 1 : end]
        if "\\" in word:
            word = _ESCAPED.sub(lambda letter: _ESCAPES.get(letter[1], letter[1]), word)
        return word, end + 1, True
    start = position
    while position < len(line) and line[position] not in stops:
        position += 1
    return line[start:position], position, False


def _closing_quote(line: str, opening: int) -> int:
    """Where the quote is closed that opens at ``opening``: at the next one without an odd number of backslashes."""
    # Not one regular expression for the whole word: it would remember every character on its way.
    position = opening + 1
    while (quote := line.find(line[opening], position)) >= 0:
        backslashes = quote
        while backslashes > position and line[backslashes - 1] == "\\":
            backslashes -= 1
        if (quote - backslashes) % 2 == 0:
            return quote
        position = quote + 1
    raise _WordError(opening, f"the quote {line[opening]} is not closed on its line")


def _read_header(source: ByteSource) -> _Header:
    """Consume the lines up to and including ``@data``."""
    header = _Header()
    names: set[str] = set()
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
                if not header.relation_line or not header.attributes:
                    missing = "@attribute" if header.relation_line else "@relation"
                    raise source.fault(f"@data comes before any {missing}")
                return header
            if keyword == "@relation":
                _read_relation(header, line, start + len(keyword), source.line)
            elif keyword == "@attribute":
                attribute = _read_attribute(line, start + len(keyword), source.line)
                if attribute.name in names:
                    raise source.fault(f"the attribute {attribute.name!r} is declared twice")
                names.add(attribute.name)
                header.attributes.append(attribute)
            else:
                raise _WordError(start, f"expected @relation, @attribute or @data; found {body[:40]!r}")
        except _WordError as error:
            raise source.fault(str(error), _byte_column(line, error.position)) from None
    raise source.fault("the file ends before @data (is it truncated?)" if source.line else "the file is empty")


def _read_relation(header: _Header, line: str, position: int, number: int) -> None:
    if header.relation_line:
        raise _WordError(0, f"a second @relation; the first is on line {header.relation_line}")
    rest = line[position:].strip()
    if rest[:1] in ("'", '"'):
        word, end, _ = _read_word(line, line.index(rest[0], position), "")
        _expect_end(line, end)
        rest = word
    if not rest:
        raise _WordError(position, "@relation has no name")
    header.relation_line = number
    option = _MEKA_LABELS.search(rest)
    if option:
        header.meka_labels = int(option.group(1))


def _read_attribute(line: str, position: int, number: int) -> _Attribute:
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
        return _Attribute(name, number, values)
    kind, end, _ = _read_word(line, position, " \t")
    if kind.lower() in _UNUSABLE_TYPES:
        raise _WordError(
            position, f"attribute {name[:40]!r} has type {kind.lower()}, which cannot be a feature; remove or encode it"
        )
    if kind.lower() not in _NUMERIC_TYPES:
        raise _WordError(position, f"{kind[:40]!r} is not an attribute type; expected numeric or {{value, value}}")
    _expect_end(line, end)
    return _Attribute(name, number, None)


def _read_nominal(line: str, position: int) -> tuple[dict[str, float], int]:
    opening = position
    words: dict[str, None] = {}  # in their order
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
        words[word] = None
        if line[position] == "}":
            return _numbered(words), position + 1


def _numbered(words: Iterable[str]) -> dict[str, float]:
    """Nominal values that are all numbers stand for themselves, others for their place in the list."""
    try:
        return {word: parse_number(word, _FLOAT32) for word in words}
    except ValueError:
        return {word: float(place) for place, word in enumerate(words)}


def _skip_blanks(line: str, position: int) -> int:
    while line[position : position + 1] in (" ", "\t"):
        position += 1
    return position


def _expect_end(line: str, position: int) -> None:
    position = _skip_blanks(line, position)
    if position < len(line) and line[position] != "%":
        raise _WordError(position, f"unexpected {line[position : position + 40]!r} at the end of the line")


# ---------------------------------------------------------------------- rows


class _RowReader:
    """Parses data lines into CSR arrays, one row at a time."""

    def __init__(self, source: ByteSource, header: _Header, label_places: list[int]) -> None:
        self.source = source
        self.header = header
        self.label_places = label_places
        self.feature_places = sorted(set(range(len(header.attributes))).difference(label_places))
        # A feature's column as it is, a label's column c as -1 - c.
        self.column = [0] * len(header.attributes)
        for column, place in enumerate(self.feature_places):
            self.column[place] = column
        for column, place in enumerate(label_places):
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
                body = line.strip()
                if not body or body[0] == "%":
                    continue
                columns, values, labels = self._row(line)
            except UnskippableError:
                raise
            except (ParseError, _WordError) as error:
                if not skip and isinstance(error, _WordError):
                    raise self.source.fault(str(error), _byte_column(line, error.position)) from None
                if not skip:
                    raise
                n_skipped += 1
                continue
            x_data.extend(values)
            x_indices.extend(columns)
            x_ends.append(len(x_indices))
            y_indices.extend(labels)
            y_ends.append(len(y_indices))
        if len(y_ends) == 1 and not n_skipped:
            raise self.source.fault("the file holds no rows after @data")
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
        total = len(self.values)
        rest = _fields(line, 0, len(line))
        fields = list(islice(rest, total + 1))
        if len(fields) != total:
            found = len(fields) + sum(1 for _ in rest)  # counted, not kept: there may be millions
            position = fields[total][1] if found > total else len(line)
            advice = "(is the line truncated?)" if found < total else "(instance weights are not supported)"
            raise _WordError(position, f"the row has {found} values, but there are {total} attributes {advice}")
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
                reason = (
                    "in sparse rows a left-out entry means the first value of an attribute, which for "
                    f"{attribute.name!r} is not 0; declare 0 first or write dense rows"
                )
                raise UnskippableError(self.source.path, attribute.line, 0, reason)
        self.sparse_checked = True


def _fields(line: str, start: int, stop: int) -> Iterator[tuple[str, int]]:
    """The fields of ``line[start:stop]`` between commas outside quotes, stripped, each with its position."""
    position = start
    if "'" not in line and '"' not in line:
        for text in line[start:stop].split(","):
            stripped = text.strip()
            yield stripped, position + text.find(stripped[:1])
            position += len(text) + 1
        return
    while position <= stop:
        at = end = _skip_blanks(line, position)
        while end < stop and line[end] != ",":
            # A quote opens a word where a word starts: that of a dense field, or the value of a sparse entry.
            opens = line[end] in "'\"" and (end == at or line[end - 1] in " \t")
            end = _read_word(line, end, "")[1] if opens else end + 1
        yield line[at:end].rstrip(), at
        position = end + 1


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
    matrix.sort_indices()
    matrix.has_canonical_format = True
    return matrix


# ---------------------------------------------------------------------- writing


def write_arff(
    path: str | os.PathLike[str],
    X: Any,
    Y: Any,
    *,
    feature_names: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    relation: str = "tagwise",
    sparse: bool = True,
    labels_xml: str | os.PathLike[str] | None = None,
) -> None:
    """Write features and labels as an ARFF file, atomically: numeric features, then ``{0,1}`` labels.

    The ``@relation`` carries MEKA's ``-C -L``, so that :func:`read_arff` and MEKA find the labels;
    ``labels_xml`` writes the list that Mulan needs as well. Explicit zeros are not written.

    Parameters
    ----------
    path : str or path
        The file; compressed if it ends in ``.gz`` or ``.bz2``.
    X : sparse matrix or array of shape (n, d)
        Finite features, written as the shortest text that reads back as the same float.
    Y : sparse matrix or array of shape (n, L)
        0/1 labels.
    feature_names, label_names : list of str or None
        All different from each other; None makes ``feature_0 …`` and ``label_0 …``.
    relation : str
        The name of the relation.
    sparse : bool
        Whether to write sparse rows or dense ones.
    labels_xml : str, path or None
        Where to write Mulan's XML file; None writes none.
    """
    features, labels = checked_pair(X, Y)
    d, L = features.shape[1], labels.shape[1]
    x_names = _check_names(feature_names, "feature_names", d, "feature")
    y_names = _check_names(label_names, "label_names", L, "label")
    if len(set(x_names) | set(y_names)) < d + L:
        raise InvalidInputError("feature_names and label_names must all differ; a name occurs twice.")
    try:
        header = f"@relation {_quoted(f'{relation}: -C {-L}')}\n\n"
        header += "".join(f"@attribute {_quoted(name)} numeric\n" for name in x_names)
        header += "".join(f"@attribute {_quoted(name)} {{0,1}}\n" for name in y_names)
        encoded = (header + "\n@data\n").encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"a name cannot be written as UTF-8: {error}.") from None
    if labels_xml is not None:
        for name in y_names:
            if _NOT_XML.search(name):
                raise InvalidInputError(f"the label name {name!r} holds a character that XML cannot hold; rename it.")
    with atomic_writer(path) as stream:
        stream.write(encoded)
        for row in range(features.shape[0]):
            stream.write(_row_text(features, labels, row, sparse).encode())
    if labels_xml is not None:
        _write_mulan_xml(labels_xml, y_names)


def _row_text(X: sp.csr_matrix, Y: sp.csr_matrix, row: int, sparse: bool) -> str:
    d = X.shape[1]
    low, high = X.indptr[row], X.indptr[row + 1]
    texts = shortest_texts(X.data[low:high])
    places = X.indices[low:high].tolist()
    label_places = [d + label for label in Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()]
    if sparse:
        entries = [f"{place} {text}" for place, text in zip(places, texts) if text not in ("0", "-0")]
        return "{" + ",".join(entries + [f"{place} 1" for place in label_places]) + "}\n"
    dense = ["0"] * (d + Y.shape[1])
    for place, text in zip(places, texts):
        dense[place] = text
    for place in label_places:
        dense[place] = "1"
    return ",".join(dense) + "\n"


def _check_names(names: Sequence[str] | None, argument: str, size: int, word: str) -> list[str]:
    if names is None:
        return [f"{word}_{place}" for place in range(size)]
    if isinstance(names, str):
        raise InvalidTypeError(f"{argument} must be a list of names; found one string.")
    listed = list(names)
    if len(listed) != size:
        raise InvalidInputError(f"{argument} has {len(listed)} names for {size} columns.")
    for name in listed:
        if not isinstance(name, str):
            raise InvalidTypeError(f"{argument} must hold strings; found {name!r}.")
    return listed


# ---------------------------------------------------------------------- Mulan's XML file of label names


def _read_mulan_xml(path: str | os.PathLike[str]) -> list[str]:
    """The names of ``<labels><label name="…"/></labels>``, in the order of the file; nested labels count too.

    A document type declaration is refused, since with it come entities that can grow without bound.
    """
    names: dict[str, None] = {}
    depth = 0
    parser = expat.ParserCreate()

    def fault(reason: str) -> ParseError:
        return ParseError(path, parser.CurrentLineNumber, parser.CurrentColumnNumber + 1, reason)

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        local = tag.rpartition(":")[2]
        if depth == 1 and local != "labels":
            raise fault(f"the outer element must be <labels>; found <{tag}>")
        if depth == 1:
            return
        if local != "label":
            raise fault(f"only <label> elements may stand inside <labels>; found <{tag}>")
        if "name" not in attributes:
            raise fault("a <label> has no name attribute")
        if attributes["name"] in names:
            raise fault(f"label {attributes['name']!r} is listed twice")
        names[attributes["name"]] = None

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1

    def doctype(*arguments: object) -> None:
        raise fault("a document type declaration is not allowed")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = doctype
    with ByteSource(path) as source:
        try:
            # All at once: given piece by piece, older versions of expat scan a long name again for every piece.
            parser.Parse(b"".join(iter(partial(source.read, _BLOCK_BYTES), b"")), True)
        except expat.ExpatError as error:
            raise ParseError(path, error.lineno, error.offset + 1, f"not well-formed XML: {error}") from None
        except ParseError:
            raise
        except (LookupError, ValueError) as error:
            raise ParseError(path, 1, 0, f"the XML file's encoding cannot be read: {error}") from None
    if not names:
        raise ParseError(path, 0, 0, "the XML file lists no labels")
    return list(names)


def _write_mulan_xml(path: str | os.PathLike[str], names: list[str]) -> None:
    # Control characters as references, because a parser turns them into spaces inside an attribute.
    escapes = {"&": "&amp;", "<": "&lt;", '"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
    table = str.maketrans(escapes)
    lines = "".join(f'<label name="{name.translate(table)}"></label>\n' for name in names)
    head = f'<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="{_NAMESPACE}">\n'
    with atomic_writer(path) as stream:
        stream.write(f"{head}{lines}</labels>\n".encode())
