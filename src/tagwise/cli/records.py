"""Files of records, one after the other: JSON lines, tables, Parquet and plain lines, in memory for one record.

A reader gives a record as a dictionary of its fields. A fault is a ``ParseError`` and ends only the record: the next
call goes on behind it, but for faults behind which nothing can be read.
"""

from __future__ import annotations

import os
import re
import sys
from abc import ABC, abstractmethod
from codecs import BOM_UTF8
from collections.abc import Iterator
from io import BufferedReader
from typing import Any, cast

from tagwise.data.formats.delimited import Records, UnclosedQuoteError
from tagwise.data.formats.jsonl import json_object
from tagwise.data.formats.streams import ByteSource, DamagedStreamError, decode_line, suffix_without_compression
from tagwise.exceptions import InvalidInputError, ParseError

__all__ = [
    "MATRIX_FORMATS",
    "STANDARD_INPUT",
    "UNRECOVERABLE",
    "LineRecords",
    "RecordReader",
    "file_format",
    "format_by_name",
    "open_records",
]

STANDARD_INPUT = "-"
"""The path that means standard input."""

MATRIX_FORMATS = ("xmc", "svmlight", "arff", "npz")
UNRECOVERABLE = (UnclosedQuoteError, DamagedStreamError)
"""Faults that cost more than their record, so that none can be skipped."""

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
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_OTHER_DELIMITERS = (";", "\t")
_SPREADSHEETS = (".xlsx", ".xls", ".ods")
_XMC_HEADER = re.compile(rb"\s*[0-9]+\s+[0-9]+\s+[0-9]+\s*")
_PARQUET_ROWS = 1024


def file_format(path: str, stated: str = "auto") -> str:
    """What a file is, by what is stated or by the ending of its name.

    A ``.txt`` file is ``text``, a text a line, unless its first line is the header of the extreme-classification
    format.
    """
    if path != STANDARD_INPUT and os.path.isdir(path):
        raise InvalidInputError(f"{path} is a folder; name a file in it.")
    if stated != "auto":
        return stated
    if path == STANDARD_INPUT:
        return "text"
    found = format_by_name(path)
    if found == "text":
        with ByteSource(path) as source:
            return "xmc" if _XMC_HEADER.fullmatch(source.readline(256)) else "text"
    return found


def format_by_name(path: str, option: str = "--format") -> str:
    """What a file is by the ending of its name alone."""
    suffix = suffix_without_compression(path)
    if suffix in _SPREADSHEETS:
        raise InvalidInputError(f"{path} is a spreadsheet, which tagwise does not read; save it as CSV in UTF-8 first.")
    if suffix not in _FORMAT_OF:
        raise InvalidInputError(
            f"{path}: the ending {suffix!r} says nothing about what the file holds; say it with {option}."
        )
    return _FORMAT_OF[suffix]


class RecordReader(ABC):
    """Records of one open file; close it when done, or use it as a context.

    Attributes
    ----------
    path : str
        For messages.
    line : int
        Where the last record starts, from 1.
    columns : list of str or None
        The names that all records have; None where each record has its own.
    note : str
        What was guessed about the file itself, for people; usually empty.
    """

    path: str
    line: int = 0
    columns: list[str] | None = None
    note: str = ""

    @abstractmethod
    def next(self) -> dict[str, Any] | None:
        """The next record, or None at the end."""

    def fraction_read(self) -> float:
        """The part of the file consumed so far, in [0, 1]; 0 where its size is unknown."""
        return 0.0

    @abstractmethod
    def close(self) -> None:
        """Close the file."""

    def __enter__(self) -> RecordReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _StandardInput(ByteSource):
    """Standard input in the place of a file."""

    def __init__(self) -> None:
        self.path, self.line = "standard input", 0
        self._raw = self._file = cast(BufferedReader, sys.stdin.buffer)
        self._size = 0

    def __exit__(self, *exception: object) -> None:
        pass  # it is not ours to close


class _Lines(RecordReader):
    """What reads a file line by line."""

    def __init__(self, path: str) -> None:
        self.source = _StandardInput() if path == STANDARD_INPUT else ByteSource(path)
        self.path = self.source.path
        self._lines: Iterator[bytes] = self.source.lines()

    def fraction_read(self) -> float:
        return self.source.fraction_read()

    def close(self) -> None:
        self.source.__exit__(None, None, None)


class LineRecords(_Lines):
    """A text a line; the one field is ``text``."""

    columns = ["text"]  # noqa: RUF012 - never changed

    def next(self) -> dict[str, Any] | None:
        """The next line."""
        raw = next(self._lines, None)
        if raw is None:
            return None
        self.line = self.source.line
        return {"text": decode_line(self.path, self.line, raw)}


class _JsonRecords(_Lines):
    def next(self) -> dict[str, Any] | None:
        raw = next(self._lines, None)
        if raw is None:
            return None
        self.line = self.source.line
        if self.line == 1 and raw.removeprefix(BOM_UTF8).lstrip().startswith(b"["):
            raise InvalidInputError(
                f"{self.path} holds one JSON list, where an object a line is read; write its rows a line each, such as "
                f"with: jq -c '.[]' {self.path} > rows.jsonl"
            )
        return json_object(self.path, self.line, raw)


class _TableRecords(_Lines):
    def __init__(self, path: str, delimiter: str) -> None:
        super().__init__(path)
        guessed = _guessed_delimiter(path) if delimiter == "," else None
        if guessed is not None:
            self.note = f"columns separated by {guessed!r} (guessed)"
        self._records = Records(self.source, guessed or delimiter)
        header = self._records.next_record()
        if header is None:
            raise ParseError(self.path, 0, 0, "the file is empty; the first line must name the columns")
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise ParseError(
                self.path, 1, 0, f"the column {twice[0][:40]!r} occurs twice; give every column its own name"
            )
        self.columns: list[str] = header

    def next(self) -> dict[str, Any] | None:
        record = self._records.next_record()
        if record is None:
            return None
        self.line = self._records.start
        if len(record) != len(self.columns):
            raise ParseError(
                self.path,
                self.line,
                0,
                f"the record has {len(record)} fields, but the header names {len(self.columns)} columns; put fields "
                "that hold the delimiter in quotes",
            )
        return dict(zip(self.columns, record))


def _guessed_delimiter(path: str) -> str | None:
    """What separates the columns of a file whose header has no comma, as spreadsheets write it in many countries."""
    if not os.path.isfile(path):  # a pipe can be read only once
        return None
    with ByteSource(path) as source:
        header = source.readline(1 << 16)
    if b"," in header:
        return None
    return next((delimiter for delimiter in _OTHER_DELIMITERS if delimiter.encode() in header), None)


class _ParquetRecords(RecordReader):
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
            self._file = ParquetFile(os.fspath(path))
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
            raise DamagedStreamError(self.path, self.line + 1, 0, f"not a readable Parquet file: {error}") from None

    def next(self) -> dict[str, Any] | None:
        record = next(self._rows, None)
        self.line += record is not None
        return record

    def fraction_read(self) -> float:
        return self.line / self._total if self._total else 1.0

    def close(self) -> None:
        self._file.close()


def open_records(path: str, kind: str) -> RecordReader:
    """A reader of a file of records; ``kind`` is what :func:`file_format` says, and no matrix."""
    if kind == "jsonl":
        return _JsonRecords(path)
    if kind in _DELIMITERS:
        return _TableRecords(path, _DELIMITERS[kind])
    if kind == "parquet":
        return _ParquetRecords(path)
    if kind == "text":
        return LineRecords(path)
    raise InvalidInputError(f"{path} holds a matrix ({kind}), where rows with texts are expected.")
