"""Files of records, read one record at a time: the base of all, JSON lines and plain lines.

A record is a dictionary of its fields. A fault is a :class:`ParseError` and ends only its record: the next call
continues after it, unless it is an :class:`UnskippableError`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tagwise.data.dialects import Dialect
from tagwise.data.formats import STANDARD_INPUT, FileFormat
from tagwise.data.streams import ByteSource, StandardInput, UnskippableError
from tagwise.exceptions import InvalidInputError, ParseError

__all__ = [
    "JsonRecords",
    "LineRecords",
    "NoRowsError",
    "Records",
    "TextRecords",
    "Unreadable",
    "first_repeated",
    "kind_of",
    "open_records",
    "require_table",
]


class NoRowsError(ParseError):
    """A file without any row: a fault, unless it is one of several parts."""


@dataclass(frozen=True)
class Unreadable:
    """Stands for a value that cannot be read, which is a fault only where it is asked for."""

    what: str


class Records(ABC):
    """The records of one open file."""

    path: str  # for messages
    has_lines = True
    line: int = 0  # where the last record starts, from 1
    header_lines: int = 0  # lines before the first record
    blank_lines: int = 0  # lines without anything behind the last record, once that is known
    columns: list[str] | None = None  # those of the header; None where each record names its own fields
    is_corpus: bool = False  # whether columns were recognised by what they hold: those of one of Annif's corpora
    guesses: tuple[str, ...] = ()  # what was guessed about the file itself, each as it follows the word "guessed"

    @property
    def end(self) -> int:
        """Line where the last record ends, from 1."""
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


def open_records(path: str, entry: FileFormat, dialect: Dialect, *, line_by_line: bool = False) -> Records:
    """Open a file of texts. With ``line_by_line`` nothing behind the first line is looked at."""
    if entry.holds == "matrix":
        raise InvalidInputError(f"{path} holds a matrix ({entry.name}), where rows with texts are expected.")
    records: Records = entry.read(path, dialect, entry, line_by_line)
    return records


def require_table(path: str, entry: FileFormat, dialect: Dialect) -> None:
    """Refuse what is stated about lines of CSV and TSV alone."""
    for name in ("quoting", "header"):
        if getattr(dialect, name) != getattr(Dialect, name):
            raise InvalidInputError(f"{dialect.option(name)} is for CSV and TSV; {path} is read as {entry.name}.")


class LineRecords(Records):
    """Records of a file that is read line by line."""

    raw: bytes | None  # the last line as it is in the file

    def __init__(self, path: str, dialect: Dialect) -> None:
        kind = StandardInput if path == STANDARD_INPUT else ByteSource
        self.source = kind(path, dialect.encoding, propose=lambda encoding: dialect.setting("encoding", encoding))
        self.path = self.source.path
        self._rest: Iterator[bytes] = self.source.lines()
        self._returned: deque[bytes] = deque()

    @property
    def end(self) -> int:
        """Line where the last record ends, from 1."""
        return self.source.line

    def fraction_read(self) -> float:
        """The part of the file consumed so far, in [0, 1]."""
        return self.source.fraction_read()

    def close(self) -> None:
        """Close the file."""
        self.source.close()

    def take(self) -> bytes | None:
        """The next line as it is in the file; None at the end."""
        if not self._returned:
            return next(self._rest, None)
        self.source.line += 1
        return self._returned.popleft()

    def give_back(self, lines: Iterable[bytes]) -> None:
        """Have lines read again, which were the last ones."""
        returned = list(lines)
        self._returned.extendleft(reversed(returned))
        self.source.line -= len(returned)

    def next_line(self) -> str | None:
        """The next line, where a record starts."""
        self.raw = self.take()
        self.line = self.source.line
        return None if self.raw is None else self.source.decoded(self.raw)


class TextRecords(LineRecords):
    """One text per line; the only field is ``text``."""

    columns = ["text"]  # noqa: RUF012 - never changed

    def __init__(self, path: str, dialect: Dialect, entry: FileFormat, line_by_line: bool = False) -> None:
        require_table(path, entry, dialect)
        super().__init__(path, dialect)

    def next(self) -> dict[str, Any] | None:
        """The next record, or None at the end."""
        line = self.next_line()
        return None if line is None else {"text": line}


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(f"the field {first_repeated(name for name, _ in pairs)!r:.40} occurs twice in one object")
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


class JsonRecords(LineRecords):
    """One JSON object per line."""

    def __init__(self, path: str, dialect: Dialect, entry: FileFormat, line_by_line: bool = False) -> None:
        require_table(path, entry, dialect)
        super().__init__(path, dialect)

    def next(self) -> dict[str, Any] | None:
        """The next record, or None at the end."""
        line = self.next_line()
        if line is None:
            return None
        if self.line == 1 and line.lstrip().startswith("["):
            reason = (
                "every line must hold a JSON object, but the file holds one JSON list; write each row on its own line, "
                f"such as with: jq -c '.[]' {self.path} > rows.jsonl"
            )
            raise UnskippableError(self.path, 1, 0, reason)
        try:
            fields = _JSON.decode(line)
        except json.JSONDecodeError as error:
            what = error.msg if line.strip() else "the line is empty"
            raise self.source.fault(f"invalid JSON: {what}", len(line[: error.pos].encode()) + 1) from None
        except RecursionError:
            raise self.source.fault("invalid JSON: nested too deeply") from None
        except ValueError as error:
            # A repeated field, or a whole number of more digits than the interpreter converts.
            raise self.source.fault(f"invalid JSON: {error}") from None
        if not isinstance(fields, dict):
            raise self.source.fault(f"every line must hold a JSON object; found {kind_of(fields)}")
        return fields


def kind_of(value: Any) -> str:
    """The kind of a JSON value, in words."""
    if value is None:
        return "null"
    if isinstance(value, (Unreadable, bytes)):
        return "bytes" if isinstance(value, bytes) else value.what
    if isinstance(value, bool):
        return "true" if value else "false"
    return {str: "a string", int: "a number", float: "a number", list: "a list"}.get(type(value), "an object")
