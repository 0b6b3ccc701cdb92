"""Files of records: JSON lines, CSV and TSV, Parquet, and plain lines, read one record at a time.

A record is a dictionary of its fields. A fault is a :class:`ParseError` and ends only its record: the next call
continues after it, unless it is an :class:`UnskippableError`.
"""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any

from tagwise.data.streams import ByteSource, StandardInput, UnskippableError, suffix_without_compression
from tagwise.exceptions import InvalidInputError, ParseError

__all__ = [
    "DELIMITERS",
    "MATRIX_FORMATS",
    "STANDARD_INPUT",
    "Records",
    "Unreadable",
    "delimited_line",
    "file_format",
    "first_repeated",
    "format_by_name",
    "kind_of",
    "open_records",
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


@dataclass(frozen=True)
class Unreadable:
    """Stands for a value that cannot be read, which is a fault only where it is asked for."""

    what: str


class Records(ABC):
    """The records of one open file."""

    path: str  # for messages
    line: int = 0  # where the last record starts, from 1
    columns: list[str] | None = None  # those of the header; None where each record names its own fields
    guess: str | None = None  # what was guessed about the file itself, for people

    @abstractmethod
    def next(self) -> dict[str, Any] | None:
        """The next record, or None at the end."""

    def fraction_read(self) -> float:
        """The part of the file consumed so far, in [0, 1]; 0 where its size is unknown."""
        return 0.0

    @abstractmethod
    def close(self) -> None:
        """Close the file."""


def open_records(path: str, kind: str, delimiter: str | None = None) -> Records:
    """Open a file of lines of the format ``kind``, which must not be a matrix; ``delimiter`` is for tables.

    Parquet, whose rows are no lines, has :class:`tagwise.data.parquet.ParquetRecords`.
    """
    if kind in DELIMITERS:
        # Spreadsheets in many countries write semicolons into a .csv file, so that only its comma may be replaced.
        return _DelimitedRecords(path, delimiter or DELIMITERS[kind], guess=delimiter is None and kind == "csv")
    if kind == "jsonl":
        return _JsonRecords(path)
    if kind == "text":
        return _TextRecords(path)
    raise InvalidInputError(f"{path} holds a matrix ({kind}), where rows with texts are expected.")


class _LineRecords(Records):
    """What is read line by line."""

    def __init__(self, path: str) -> None:
        self.source = StandardInput() if path == STANDARD_INPUT else ByteSource(path)
        self.path = self.source.path
        self._lines: Iterator[bytes] = self.source.lines()

    def fraction_read(self) -> float:
        return self.source.fraction_read()

    def close(self) -> None:
        self.source.close()

    def _next_line(self) -> str | None:
        """The next line, where a record starts."""
        self._record_bytes, self.line = 0, self.source.line + 1
        line = self._following_line()
        self.line = self.source.line if line is None else self.line
        return line

    def _following_line(self) -> str | None:
        self._raw = next(self._lines, None)
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
    """CSV and TSV with a header.

    A field that starts with ``"`` runs to the closing ``"``, may hold delimiters and line breaks, and writes a quote as
    ``""``; elsewhere a quote is an ordinary character.
    """

    def __init__(self, path: str, delimiter: str, *, guess: bool) -> None:
        super().__init__(path)
        self._delimiter = delimiter
        try:
            self.columns: list[str] = self._header(guess)
        except BaseException:
            self.close()
            raise

    def _header(self, guess: bool) -> list[str]:
        header = self._next_line()
        if header is None:
            raise ParseError(self.path, 0, 0, "the file is empty; the first line must name the columns")
        if guess and self._delimiter not in header:
            other = next((mark for mark in _GUESSED_DELIMITERS if mark in header), None)
            if other is not None:
                self._delimiter, self.guess = other, f"{other!r} between columns"
        return self._fields(header)

    def next(self) -> dict[str, Any] | None:
        line = self._next_line()
        if line is None:
            return None
        fields = self._fields(line)
        if len(fields) != len(self.columns):
            reason = (
                f"the record has {len(fields)} fields, but the header names {len(self.columns)} columns; put fields "
                "that hold the delimiter in quotes"
            )
            raise ParseError(self.path, self.line, 0, reason)
        return dict(zip(self.columns, fields))

    def _fields(self, line: str) -> list[str]:
        if not line:
            raise self.source.fault("the line is empty")
        if '"' not in line:
            return line.split(self._delimiter)
        fields: list[str] = []
        position = 0
        while True:
            if line.startswith('"', position):
                field, line, position = self._quoted_field(line, position)
                fields.append(field)
                if position < len(line) and line[position] != self._delimiter:
                    reason = f"expected {self._delimiter!r} after the closing quote; found {line[position]!r}"
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
                    raise UnskippableError(self.path, opened_line, column, "the quote opened here is never closed")
                line, position = following, 0
            elif line.startswith('"', quote + 1):
                field.write(line[position : quote + 1])
                position = quote + 2
            else:
                field.write(line[position:quote])
                return field.getvalue(), line, quote + 1


def delimited_line(fields: list[str], delimiter: str) -> bytes:
    """A record as a line of CSV or TSV, with quotes where they are needed."""
    special = ('"', "\n", "\r", delimiter)
    texts = [
        '"' + field.replace('"', '""') + '"' if any(letter in field for letter in special) else field
        for field in fields
    ]
    return (delimiter.join(texts) + "\n").encode()
