"""Files of records: JSON lines, CSV and TSV, Parquet, and plain lines, read one record at a time.

A record is a dictionary of its fields. A fault is a :class:`ParseError` and ends only its record: the next call
continues after it, unless it is an :class:`UnskippableError`.
"""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from tagwise.data.streams import ByteSource, StandardInput, UnskippableError, suffix_without_compression
from tagwise.exceptions import InvalidInputError, ParseError

__all__ = [
    "DELIMITERS",
    "MATRIX_FORMATS",
    "STANDARD_INPUT",
    "Records",
    "delimited_line",
    "file_format",
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
_PARQUET_ROWS = 1024


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
    """Open a file of the format ``kind``, which must not be a matrix; ``delimiter`` is for tables."""
    if kind in DELIMITERS:
        # Spreadsheets in many countries write semicolons into a .csv file, so that only its comma may be replaced.
        return _DelimitedRecords(path, delimiter or DELIMITERS[kind], guess=delimiter is None and kind == "csv")
    if kind == "jsonl":
        return _JsonRecords(path)
    if kind == "parquet":
        return _ParquetRecords(path)
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
        line = self._following_line()
        self.line = self.source.line
        return line

    def _following_line(self) -> str | None:
        self._raw = next(self._lines, None)
        return None if self._raw is None else self.source.decoded(self._raw)


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
        names = [name for name, _ in pairs]
        raise _RepeatedFieldError(next(name for name in names if names.count(name) > 1))
    return fields


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
        opened_line, opened_column = self.source.line, len(line[:position].encode()) + 1
        parts: list[str] = []
        position += 1
        while True:
            quote = line.find('"', position)
            if quote < 0:
                # Inside quotes the line break belongs to the field, in the form that it has in the file.
                parts.append(line[position:] + ("\r\n" if (self._raw or b"").endswith(b"\r\n") else "\n"))
                following = self._following_line()
                if following is None:
                    # Not to be skipped: all the rest of the file would be lost with the record.
                    reason = "the quote opened here is never closed"
                    raise UnskippableError(self.path, opened_line, opened_column, reason)
                line, position = following, 0
            elif line.startswith('"', quote + 1):
                parts.append(line[position : quote + 1])
                position = quote + 2
            else:
                parts.append(line[position:quote])
                return "".join(parts), line, quote + 1


def delimited_line(fields: list[str], delimiter: str) -> bytes:
    """A record as a line of CSV or TSV, with quotes where they are needed."""
    special = ('"', "\n", "\r", delimiter)
    texts = [
        '"' + field.replace('"', '""') + '"' if any(letter in field for letter in special) else field
        for field in fields
    ]
    return (delimiter.join(texts) + "\n").encode()


class _ParquetRecords(Records):
    def __init__(self, path: str) -> None:
        try:
            from pyarrow import ArrowException
            from pyarrow.parquet import ParquetFile
        except ImportError:
            raise InvalidInputError(
                f"{path} is a Parquet file, which pyarrow reads; install it: pip install 'tagwise[parquet]'"
            ) from None
        self.path = path
        self._fault = ArrowException
        try:
            self._file = ParquetFile(path)
        except ArrowException as error:
            raise ParseError(path, 0, 0, f"not a readable Parquet file: {error}") from None
        self._total = self._file.metadata.num_rows
        self.columns = list(self._file.schema_arrow.names)
        self._rows = self._all()

    def _all(self) -> Iterator[dict[str, Any]]:
        try:
            for batch in self._file.iter_batches(batch_size=_PARQUET_ROWS):
                yield from batch.to_pylist()
        except self._fault as error:
            raise UnskippableError(self.path, self.line + 1, 0, f"not a readable Parquet file: {error}") from None

    def next(self) -> dict[str, Any] | None:
        record = next(self._rows, None)
        self.line += record is not None
        return record

    def fraction_read(self) -> float:
        return self.line / self._total if self._total else 1.0

    def close(self) -> None:
        self._file.close()
