"""The table of file formats: a new format is a line here, and a module with its reader and writer.

Imports nothing heavy: the command line takes its choices from here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from tagwise.exceptions import InvalidInputError

__all__ = ["FORMATS", "STANDARD_INPUT", "FileFormat", "file_format", "format_by_name"]

STANDARD_INPUT = "-"
"""The path that means standard input."""

_SPREADSHEETS = (".xlsx", ".xls", ".ods")
_XMC_HEADER = re.compile(rb"\s*[0-9]+\s+[0-9]+\s+[0-9]+\s*")


@dataclass(frozen=True)
class FileFormat:
    """A format of files."""

    name: str  # as ``--format`` takes it
    holds: Literal["texts", "matrix"]  # rows of texts, or features and labels
    endings: tuple[str, ...]  # of names, in lower case
    # For texts a class of ``tagwise.data.records.Records``, for a matrix a function: "module:name".
    reader: str
    writer: str = ""  # the function that writes texts or a matrix; empty where none does
    arguments: tuple[str, ...] = ()  # of a matrix's reader, among errors, dtype, n_features, n_labels and labels
    delimiter: str = ""  # of columns

    @property
    def read(self) -> Callable[..., Any]:
        """The reader."""
        return _named(self.reader)

    @property
    def find_labels(self) -> Callable[[str], str | None]:
        """For a matrix whose labels may be in another file, the function that finds that by the path of the matrix."""
        found: Callable[[str], str | None] = _named(f"{self.reader.partition(':')[0]}:labels_beside")
        return found

    @property
    def write(self) -> Callable[..., Any]:
        """The writer."""
        return _named(self.writer)


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"tagwise.data.{module}"), name)


_TABLE = (
    FileFormat("jsonl", "texts", (".jsonl", ".ndjson", ".json"), "records:JsonRecords", "text_files:write_jsonl"),
    FileFormat("csv", "texts", (".csv",), "records:DelimitedRecords", "text_files:write_csv", delimiter=","),
    FileFormat("tsv", "texts", (".tsv", ".tab"), "records:DelimitedRecords", "text_files:write_csv", delimiter="\t"),
    FileFormat("parquet", "texts", (".parquet",), "parquet:ParquetRecords"),
    FileFormat("text", "texts", (".txt",), "records:TextRecords"),
    FileFormat("xmc", "matrix", (".xmc",), "sparse_text:read_xmc", "sparse_text:write_xmc", ("errors", "dtype")),
    FileFormat(
        "svmlight",
        "matrix",
        (".svm", ".svmlight", ".libsvm"),
        "sparse_text:read_svmlight",
        "sparse_text:write_svmlight",
        ("errors", "dtype", "n_features", "n_labels"),
    ),
    FileFormat("arff", "matrix", (".arff",), "arff:read_arff", "arff:write_arff", ("errors", "labels")),
    FileFormat("npz", "matrix", (".npz",), "npz:read_npz", "npz:write_npz", ("labels",)),
)
FORMATS = {entry.name: entry for entry in _TABLE}
"""The formats by name."""


def file_format(path: str, stated: str = "auto", *, option: str = "format=") -> FileFormat:
    """The format of a file: as stated, or by the ending of its name.

    A ``.txt`` file is ``text``, one text per line, unless its first line is the header of the extreme-classification
    format. ``option`` names the argument in messages.
    """
    if path != STANDARD_INPUT and os.path.isdir(path):
        raise InvalidInputError(f"{path} is a folder; name a file in it.")
    if stated != "auto":
        return FORMATS[stated]
    if path == STANDARD_INPUT:
        return FORMATS["text"]
    found = format_by_name(path, option)
    if found.name == "text":
        from tagwise.data.streams import ByteSource

        with ByteSource(path) as source:
            return FORMATS["xmc" if _XMC_HEADER.fullmatch(source.readline(256)) else "text"]
    return found


def format_by_name(path: str, option: str) -> FileFormat:
    """The format of a file by the ending of its name alone."""
    from tagwise.data.streams import suffix_without_compression

    suffix = suffix_without_compression(path)
    if suffix in _SPREADSHEETS:
        raise InvalidInputError(f"{path} is a spreadsheet, which tagwise does not read; save it as CSV in UTF-8 first.")
    found = next((entry for entry in _TABLE if suffix in entry.endings), None)
    if found is None:
        raise InvalidInputError(f"{path}: the ending {suffix!r} is not a known format; name the format with {option}.")
    return found
