"""Files of records: JSON lines, CSV and TSV, Parquet, and plain lines, read one record at a time.

A record is a dictionary of its fields. A fault is a :class:`ParseError` and ends only its record: the next call
continues after it, unless it is an :class:`UnskippableError`.
"""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import chain, repeat
from typing import Any

from tagwise.data.dialects import Dialect
from tagwise.data.streams import ByteSource, StandardInput, UnskippableError, suffix_without_compression
from tagwise.exceptions import InvalidInputError, ParseError
from tagwise.progress import counted

__all__ = [
    "DELIMITERS",
    "MATRIX_FORMATS",
    "STANDARD_INPUT",
    "NoRowsError",
    "Records",
    "Unreadable",
    "delimited_line",
    "file_format",
    "first_repeated",
    "format_by_name",
    "kind_of",
    "needs_quotes",
    "open_records",
    "require_table",
]

STANDARD_INPUT = "-"
"""The path that means standard input."""

MATRIX_FORMATS = ("xmc", "svmlight", "arff", "npz")
DELIMITERS = {"csv": ",", "tsv": "\t"}

_FORMAT_OF = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".txt": "text",
    ".xmc": "xmc",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".arff": "arff",
    ".npz": "npz",
}
_GUESSED_DELIMITERS = (";", "\t")
# Lines of a TSV that are looked at to tell what its quotes mean.
_AHEAD = 100
_AHEAD_BYTES = 2**20
_URIS = re.compile(r"\s*<[^<>\s]+>(?:\s+<[^<>\s]+>)*\s*")
_ENCLOSED = re.compile('"(?:[^"]|"")*"')
_ONE_FIELD = '(?:"(?:[^"]|"")*"|[^"\t\n][^\t\n]*|)'
_QUOTED_FIELD = re.compile(f"{_ONE_FIELD}[\t\n]")
_QUOTED_RECORD = re.compile(f"{_ONE_FIELD}(?:\t{_ONE_FIELD})*\n")
_SPREADSHEETS = (".xlsx", ".xls", ".ods")
_XMC_HEADER = re.compile(rb"\s*[0-9]+\s+[0-9]+\s+[0-9]+\s*")


def file_format(path: str, stated: str = "auto", *, option: str = "format=") -> str:
    """The format of a file: as stated, or by the ending of its name.

    A ``.txt`` file is ``text``, one text per line, unless its first line is the header of the extreme-classification
    format. ``option`` names the argument in messages.
    """
    if path != STANDARD_INPUT and os.path.isdir(path):
        raise InvalidInputError(f"{path} is a folder; name a file in it.")
    if stated != "auto":
        return stated
    if path == STANDARD_INPUT:
        return "text"
    found = format_by_name(path, option)
    if found == "text":
        with ByteSource(path) as source:
            return "xmc" if _XMC_HEADER.fullmatch(source.readline(256)) else "text"
    return found


def format_by_name(path: str, option: str) -> str:
    """The format of a file by the ending of its name alone."""
    suffix = suffix_without_compression(path)
    if suffix in _SPREADSHEETS:
        raise InvalidInputError(f"{path} is a spreadsheet, which tagwise does not read; save it as CSV in UTF-8 first.")
    if suffix not in _FORMAT_OF:
        raise InvalidInputError(
            f"{path}: the ending {suffix!r} does not tell what the file holds; name the format with {option}."
        )
    return _FORMAT_OF[suffix]


class NoRowsError(ParseError):
    """A file without any row: a fault, unless it is one of several parts."""


@dataclass(frozen=True)
class Unreadable:
    """Stands for a value that cannot be read, which is a fault only where it is asked for."""

    what: str


class Records(ABC):
    """The records of one open file."""

    path: str  # for messages
    line: int = 0  # where the last record starts, from 1
    header_lines: int = 0  # lines before the first record
    blank_lines: int = 0  # lines without anything behind the last record, once that is known
    columns: list[str] | None = None  # those of the header; None where each record names its own fields
    is_corpus: bool = False  # whether columns were recognised by what they hold: those of one of Annif's corpora
    guesses: tuple[str, ...] = ()  # what was guessed about the file itself, each as it follows the word "guessed"

    @property
    def end(self) -> int:
        """Where the last record ends, from 1."""
        return self.line

    @abstractmethod
    def next(self) -> dict[str, Any] | None:
        """The next record, or None at the end."""

    def fraction_read(self) -> float:
        """The part of the file consumed so far, in [0, 1]; 0 where its size is unknown."""
        return 0.0

    def notes(self) -> list[str]:
        """Sentences on what looks wrong in what was read so far."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Close the file."""


def open_records(path: str, kind: str, dialect: Dialect, *, line_by_line: bool = False) -> Records:
    """Open a file of lines of the format ``kind``, which must not be a matrix.

    With ``line_by_line`` nothing behind the first line is looked at. Parquet, whose rows are no lines, has
    :class:`tagwise.data.parquet.ParquetRecords`.
    """
    if kind in DELIMITERS:
        return _DelimitedRecords(path, kind, dialect, n_ahead=1 if line_by_line else _AHEAD)
    require_table(path, kind, dialect)
    if kind == "jsonl":
        return _JsonRecords(path, dialect)
    if kind == "text":
        return _TextRecords(path, dialect)
    raise InvalidInputError(f"{path} holds a matrix ({kind}), where rows with texts are expected.")


def require_table(path: str, kind: str, dialect: Dialect) -> None:
    """Refuse what is stated about lines of CSV and TSV alone."""
    for name in ("quoting", "header"):
        if getattr(dialect, name) != getattr(Dialect, name):
            raise InvalidInputError(f"{dialect.option(name)} is for CSV and TSV; {path} is read as {kind}.")


class _LineRecords(Records):
    """What is read line by line."""

    def __init__(self, path: str, dialect: Dialect) -> None:
        def propose(encoding: str) -> str:
            return dialect.setting("encoding", encoding)

        self.source: ByteSource = (
            StandardInput(dialect.encoding, propose=propose)
            if path == STANDARD_INPUT
            else ByteSource(path, dialect.encoding, propose=propose)
        )
        self.path = self.source.path
        self._rest: Iterator[bytes] = self.source.lines()
        self._returned: Iterator[bytes] = iter(())

    @property
    def end(self) -> int:
        return self.source.line

    def fraction_read(self) -> float:
        return self.source.fraction_read()

    def close(self) -> None:
        self.source.close()

    def _ahead(self, size: int) -> list[bytes]:
        """At most so many of the next lines, which are read again afterwards; fewer where they are long."""
        lines: list[bytes] = []
        start, n_bytes = self.source.line, 0
        while len(lines) < size and n_bytes <= _AHEAD_BYTES and (line := self._take()) is not None:
            lines.append(line)
            n_bytes += len(line)
        self._give_back(lines, start)
        return lines

    def _take(self) -> bytes | None:
        """The next line as it is in the file; None at the end."""
        line = next(self._returned, None)
        if line is None:
            return next(self._rest, None)
        self.source.line += 1
        return line

    def _give_back(self, lines: Iterable[bytes], start: int) -> None:
        """Have lines read again, of which the first follows line ``start``."""
        self.source.line = start
        self._returned = chain(lines, self._returned)

    def _next_line(self) -> str | None:
        """The next line, where a record starts."""
        self._record_bytes, self.line = 0, self.source.line + 1
        line = self._following_line()
        self.line = self.source.line if line is None else self.line
        return line

    def _following_line(self) -> str | None:
        self._raw = self._take()
        if self._raw is None:
            return None
        self._record_bytes += len(self._raw)
        self.source.check_length(self._record_bytes, self.line)
        return self.source.decoded(self._raw)


class _TextRecords(_LineRecords):
    """One text per line; the only field is ``text``."""

    columns = ["text"]  # noqa: RUF012 - never changed

    def next(self) -> dict[str, Any] | None:
        line = self._next_line()
        return None if line is None else {"text": line}


class _RepeatedFieldError(Exception):
    pass


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _RepeatedFieldError(first_repeated(name for name, _ in pairs))
    return fields


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that occurred before; None where all differ."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


_JSON = json.JSONDecoder(object_pairs_hook=_unique_fields)


class _JsonRecords(_LineRecords):
    """One JSON object per line."""

    def next(self) -> dict[str, Any] | None:
        line = self._next_line()
        if line is None:
            return None
        fault = self.source.fault
        if self.line == 1 and line.lstrip().startswith("["):
            reason = (
                "every line must hold a JSON object, but the file holds one JSON list; write each row on its own line, "
                f"such as with: jq -c '.[]' {self.path} > rows.jsonl"
            )
            raise UnskippableError(self.path, 1, 0, reason)
        try:
            fields = _JSON.decode(line)
        except json.JSONDecodeError as error:
            if not line.strip():
                raise fault("the line is empty; every line must hold a JSON object") from None
            raise fault(f"invalid JSON: {error.msg}", len(line[: error.pos].encode()) + 1) from None
        except _RepeatedFieldError as error:
            raise fault(f"the field {str(error)[:40]!r} occurs twice in one object") from None
        except RecursionError:
            raise fault("invalid JSON: nested too deeply") from None
        except ValueError as error:
            # The interpreter limits how many digits it converts to a whole number.
            raise fault(f"invalid JSON: {error}") from None
        if not isinstance(fields, dict):
            raise fault(f"every line must hold a JSON object; found {kind_of(fields)}")
        return fields


def kind_of(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    if isinstance(value, (Unreadable, bytes)):
        return "bytes" if isinstance(value, bytes) else value.what
    if isinstance(value, bool):
        return "true" if value else "false"
    return {str: "a string", int: "a number", float: "a number", list: "a list"}.get(type(value), "an object")


class _DelimitedRecords(_LineRecords):
    """CSV and TSV, by default with a header; :class:`Dialect` says what quotes mean."""

    def __init__(self, path: str, kind: str, dialect: Dialect, *, n_ahead: int) -> None:
        super().__init__(path, dialect)
        self._dialect, self._delimiter = dialect, dialect.delimiter or DELIMITERS[kind]
        self._quoted = dialect.quoting != "none"
        self._first: dict[str, Any] | None = None
        self._n_enclosed = self._first_enclosed = 0
        self._n_unclosed = self._first_unclosed = self._open_line = 0
        self._looks_ahead, self._blank_until = n_ahead > 1, 0
        try:
            # Spreadsheets in many countries write semicolons into a .csv file: only its comma may be replaced.
            self._read_header(n_ahead, guess=dialect.delimiter is None and kind == "csv")
        except BaseException:
            self.close()
            raise

    def _read_header(self, n_ahead: int, *, guess: bool) -> None:
        ahead = self._ahead(n_ahead if self._delimiter == "\t" else 1)
        if self._delimiter == "\t" and self._dialect.quoting == "auto":
            self._quoted = self._tabs_with_quotes(ahead)
        first = next(iter(ahead), None)
        header = self._next_line()
        if first is None or header is None:
            names = " must name the columns" if self._dialect.header else " is the first row"
            raise NoRowsError(self.path, 0, 0, f"the file is empty; the first line{names}")
        if guess and self._delimiter not in header:
            other = next((mark for mark in _GUESSED_DELIMITERS if mark in header), None)
            if other is not None:
                self._delimiter = other
                self.guesses += (f"{other!r} between columns",)
        fields = self._fields(header)
        is_corpus = self._delimiter == "\t" and self._has_subjects(fields, ahead[1:])
        if self._dialect.header and not is_corpus:
            self.columns: list[str] = fields
            self.header_lines = self.source.line
            return
        if self._dialect.header:
            self.columns, self.is_corpus = ["text", "tags"], True
            self.guesses += ("two columns without names, texts and <…> of subjects, as in Annif's corpora",)
        else:
            self.columns = [str(number) for number in range(1, len(fields) + 1)]
        if self.source.line > 1:
            # The first record has line breaks in quotes: it cannot be read again by its first line.
            self._first = dict(zip(self.columns, self._of_columns(fields)))
            return
        self.line = self._n_enclosed = 0
        self._give_back([first], 0)

    def _has_subjects(self, fields: list[str], following: list[bytes]) -> bool:
        """Whether the first line is a row of one of Annif's corpora: a text, a tab and addresses in ``<…>``.

        It may have no address if it is followed by such rows alone, and one of them has some.
        """
        if len(fields) < 2:
            return False
        if any(map(str.strip, fields[1:])) or self._quoted:
            return _are_subjects(fields[1:])
        try:
            rows = [self.source.decoded(line).split("\t")[1:] for line in following if line.strip()]
        except ParseError:  # to be reported when its turn comes
            return False
        listed = [row for row in rows if any(map(str.strip, row))]
        return bool(listed) and all(rows) and all(map(_are_subjects, listed))

    def _of_columns(self, fields: list[str]) -> list[str]:
        """The fields; of a corpus, there may be tabs between subjects too."""
        return [fields[0], " ".join(fields[1:])] if self.is_corpus and len(fields) > 2 else fields

    def notes(self) -> list[str]:
        sentences, standard = [], self._dialect.setting("quoting", "standard")
        if self._n_enclosed:
            sentences.append(
                f"{counted(self._n_enclosed, 'row')} with a field in quotes, the first at line "
                f"{self._first_enclosed:,}: the quotes were read as text. If they enclose fields, pass {standard}."
            )
        if self._n_unclosed:
            sentences.append(
                f"{counted(self._n_unclosed, 'line')} with a quote that opens a field and is not closed, the first at "
                f"line {self._first_unclosed:,}: if these fields span lines, only parts of them were read; pass "
                f"{standard}."
            )
        return sentences

    def _tabs_with_quotes(self, lines: list[bytes]) -> bool:
        """Whether quotes enclose fields: the first lines are sound records so, and a quote opens and closes a field.

        Otherwise quotes are text. Where a field starts with a quote, the guess is worth a sentence.
        """
        try:
            texts = [self.source.decoded(line).removeprefix("\ufeff") for line in lines]
            texts = texts[: max((place for place, text in enumerate(texts, 1) if text), default=0)]
        except ParseError:  # to be reported when its turn comes
            return False
        fields = [text.split("\t") for text in texts]
        opened = [field for record in fields for field in record if field.startswith('"')]
        if not opened:
            return False
        # Lines that are no records by themselves must be parts of some; otherwise a field has to show it.
        alone = len(set(map(len, fields))) == 1
        encloses = _are_records(texts) and (not alone or any(map(_ENCLOSED.fullmatch, opened)))
        proposed = self._dialect.setting("quoting", "none" if encloses else "standard")
        what = "quotes around fields" if encloses else "quotes as a part of the text"
        self.guesses += (f"{what} ({proposed} if not)",)
        return encloses

    def next(self) -> dict[str, Any] | None:
        if self._first is not None:
            first, self._first, self.line = self._first, None, 1
            return first
        line = self._next_line()
        if line is None or (not line and self._only_blank_follow()):
            return None
        fields = self._of_columns(self._fields(line))
        # What may be the first line of a field in quotes, read as a row of its own.
        opens = not self._quoted and self._dialect.quoting == "auto" and _opens_only(fields[-1])
        opened, self._open_line = self._open_line, 0
        if len(fields) != len(self.columns):
            if opens or (opened and opened == self.line - 1):
                self._n_unclosed += 1
                self._first_unclosed = self._first_unclosed or (self.line if opens else opened)
            named = "the header names" if self.header_lines else "the first has"
            advice = "put fields that hold the delimiter in quotes"
            if not self._quoted:
                advice = (
                    "a field must hold neither tabs nor line breaks, unless it is in quotes and you pass "
                    f"{self._dialect.setting('quoting', 'standard')}"
                )
            elif '"' in line:
                advice += f", or pass {self._dialect.setting('quoting', 'none')} if quotes are text"
            columns = "columns" if self.header_lines else "fields"
            reason = f"the record has {len(fields)} fields, but {named} {len(self.columns)} {columns}; {advice}"
            raise ParseError(self.path, self.line, 0, reason)
        self._open_line = self.line if opens else 0
        return dict(zip(self.columns, fields))

    def _only_blank_follow(self) -> bool:
        """Whether there is nothing but empty lines behind this one: then they are read, as no rows."""
        if not self._looks_ahead or self.source.line <= self._blank_until:
            return False
        start, n_blank = self.source.line, 0
        while (raw := self._take()) is not None:
            if raw.strip(b"\r\n"):
                self._blank_until = start + n_blank
                self._give_back(chain(repeat(b"\n", n_blank), [raw]), start)
                return False
            n_blank += 1
        self.blank_lines = 1 + n_blank
        self.line = self.source.line
        return True

    def _fields(self, line: str) -> list[str]:
        if not line:
            raise self.source.fault(f"the line is empty; remove it{self._dialect.or_skip()}")
        if '"' not in line:
            return line.split(self._delimiter)
        if not self._quoted:
            fields = line.split(self._delimiter)
            if self._dialect.quoting == "auto" and any(map(_ENCLOSED.fullmatch, fields)):
                self._n_enclosed += 1
                self._first_enclosed = self._first_enclosed or self.source.line
            return fields
        fields = []
        position = 0
        while True:
            if line.startswith('"', position):
                field, line, position = self._quoted_field(line, position)
                fields.append(field)
                if position < len(line) and line[position] != self._delimiter:
                    reason = f"expected {self._delimiter!r} after the closing quote; found {line[position]!r}"
                    reason += f"; if quotes are text, pass {self._dialect.setting('quoting', 'none')}"
                    raise self.source.fault(reason, len(line[:position].encode()) + 1)
            else:
                stop = line.find(self._delimiter, position)
                stop = len(line) if stop < 0 else stop
                fields.append(line[position:stop])
                position = stop
            if position >= len(line):
                return fields
            position += 1

    def _quoted_field(self, line: str, position: int) -> tuple[str, str, int]:
        """The field whose quote opens at ``position``, the line where it closes and the position after it."""
        opened_line, before = self.source.line, (line, position)
        field = StringIO(newline="")
        position += 1
        while True:
            quote = line.find('"', position)
            if quote < 0:
                # Inside quotes the line break belongs to the field, in the form that it has in the file.
                field.write(line[position:] + ("\r\n" if (self._raw or b"").endswith(b"\r\n") else "\n"))
                following = self._following_line()
                if following is None:
                    # Not to be skipped: all the rest of the file would be lost with the record.
                    column = len(before[0][: before[1]].encode()) + 1
                    reason = "the quote opened here is never closed; if quotes are text, pass "
                    reason += self._dialect.setting("quoting", "none")
                    raise UnskippableError(self.path, opened_line, column, reason)
                line, position = following, 0
            elif line.startswith('"', quote + 1):
                field.write(line[position : quote + 1])
                position = quote + 2
            else:
                field.write(line[position:quote])
                return field.getvalue(), line, quote + 1


def _are_subjects(fields: Sequence[str]) -> bool:
    """Whether fields hold addresses in ``<…>`` and nothing else."""
    return _URIS.fullmatch(" ".join(fields)) is not None


def _opens_only(field: str) -> bool:
    """Whether a field opens with a quote that it does not close."""
    return field.startswith('"') and field.count('"') % 2 == 1


def _are_records(lines: list[str]) -> bool:
    """Whether lines of tabs and quotes are records of as many fields; the last one may be cut."""
    text = "\n".join(lines) + "\n"
    sizes = []
    position = 0
    while (record := _QUOTED_RECORD.match(text, position)) is not None:
        sizes.append(len(_QUOTED_FIELD.findall(record.group())))
        position = record.end()
    rest = text[position:]
    cut = not rest or re.search('(?:^|\t)"(?:[^"]|"")*$', rest) is not None
    return cut and bool(sizes) and len(set(sizes)) == 1


def needs_quotes(field: str, delimiter: str) -> bool:
    """Whether a field of CSV or TSV must be in quotes."""
    return any(letter in field for letter in ('"', "\n", "\r", delimiter))


def delimited_line(fields: list[str], delimiter: str, *, all_quoted: bool = False) -> bytes:
    """A record as a line of CSV or TSV, with quotes where they are needed.

    The header of a TSV that has quotes anywhere is to be ``all_quoted``, so that readers see what quotes mean in it.
    """
    texts = [
        '"' + field.replace('"', '""') + '"' if all_quoted or needs_quotes(field, delimiter) else field
        for field in fields
    ]
    return (delimiter.join(texts) + "\n").encode()
