"""Files of records, read one record at a time: JSON lines, CSV, TSV and plain lines; Parquet is in a module of its own.

A record is a dictionary of its fields. A fault is a :class:`ParseError` and ends only its record: the next call
continues after it, unless it is an :class:`UnskippableError`.

CSV and TSV are parsed by Python's csv module. It does not say where a record starts, and at a fault it loses what it
holds: it gets the lines of one record. Lines without quotes are split without it, in a ninth of the time (0.2 µs beside
1.9 µs for a row of 400 bytes).
"""

from __future__ import annotations

import csv
import json
import re
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from typing import TYPE_CHECKING, Any, cast

from tagwise.data.formats import STANDARD_INPUT, FileFormat
from tagwise.data.streams import ByteSource, UnskippableError, longest_line
from tagwise.exceptions import InvalidInputError, ParseError
from tagwise.progress import counted

if TYPE_CHECKING:
    from tagwise.data.columns import Dialect

__all__ = [
    "HALF_PAIR",
    "DelimitedRecords",
    "JsonRecords",
    "LineRecords",
    "NoRowsError",
    "Records",
    "TextRecords",
    "Unreadable",
    "first_repeated",
    "holds_half_pair",
    "kind_of",
    "open_records",
]


class NoRowsError(ParseError):
    """A file without any row: a fault, unless it is one of several parts."""


@dataclass(frozen=True)
class Unreadable:
    """Stands for a value that cannot be read, which is a fault only where it is asked for."""

    what: str


HALF_PAIR = "a string holds half of a surrogate pair, which is not a character"


def holds_half_pair(strings: Iterable[str]) -> bool:
    """Whether UTF-8 cannot hold one of the strings, which JSON can: :data:`HALF_PAIR`."""
    try:
        "".join(strings).encode()
    except UnicodeEncodeError:
        return True
    return False


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

    @abstractmethod
    def fraction_read(self) -> float:
        """The part of the file consumed so far, in [0, 1]; 0 where its size is unknown."""

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
    if not entry.delimiter:
        for name, is_stated in (("quoting", dialect.quoting != "auto"), ("header", not dialect.header)):
            if is_stated:
                raise InvalidInputError(f"{dialect.option(name)} is for CSV and TSV; {path} is read as {entry.name}.")
    records: Records = entry.read(path, dialect, entry, line_by_line)
    return records


class LineRecords(Records):
    """Records of a file that is read line by line."""

    raw: bytes | None  # the last line as it is in the file

    def __init__(self, path: str, dialect: Dialect, entry: FileFormat, line_by_line: bool = False) -> None:
        stream = None
        if path == STANDARD_INPUT:
            if sys.stdin is None:
                raise InvalidInputError("Standard input is closed; name a file, or send rows through a pipe.")
            path, stream = "standard input", cast(BufferedReader, sys.stdin.buffer)
        self.source = ByteSource(path, dialect.encoding, propose=partial(dialect.setting, "encoding"), stream=stream)
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

    def give_back(self, lines: Sequence[bytes]) -> None:
        """Have lines read again, which were the last ones."""
        self._returned.extendleft(reversed(lines))
        self.source.line -= len(lines)

    def next_line(self) -> str | None:
        """The next line, where a record starts."""
        self.raw = self.take()
        self.line = self.source.line
        return None if self.raw is None else self.source.decoded(self.raw)


class TextRecords(LineRecords):
    """One text per line; the only field is ``text``."""

    columns = ["text"]  # noqa: RUF012 - never changed

    def next(self) -> dict[str, Any] | None:
        """The next record, or None at the end."""
        line = self.next_line()
        return None if line is None else {"text": line}


# ---------------------------------------------------------------------- JSON lines


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
        except (ValueError, RecursionError) as error:
            # A repeated field, or a whole number of more digits than the interpreter converts.
            what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise self.source.fault(f"invalid JSON: {what}") from None
        if not isinstance(fields, dict):
            raise self.source.fault(f"every line must hold a JSON object; found {kind_of(fields)}")
        return fields


def kind_of(value: Any) -> str:
    """The kind of a JSON value, in words."""
    if isinstance(value, Unreadable):
        return value.what
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    kinds = {bytes: "bytes", str: "a string", int: "a number", float: "a number", list: "a list"}
    return kinds.get(type(value), "an object")


# ---------------------------------------------------------------------- CSV and TSV

_GUESSED_DELIMITERS = (";", "\t")
# Lines of a TSV that are looked at to tell what its quotes mean.
_AHEAD = 100
_AHEAD_BYTES = 2**20
_URIS = re.compile(r"\s*<[^<>\s]+>(?:\s+<[^<>\s]+>)*\s*")
_ENCLOSED = re.compile('"(?:[^"]|"")*"')


class DelimitedRecords(LineRecords):
    """CSV and TSV, by default with a header; the dialect says what quotes mean."""

    columns: list[str]

    def __init__(self, path: str, dialect: Dialect, entry: FileFormat, line_by_line: bool = False) -> None:
        super().__init__(path, dialect, entry, line_by_line)
        self._dialect, self._delimiter = dialect, dialect.delimiter or entry.delimiter
        self._quoted = dialect.quoting != "none"
        self._looks_ahead = not line_by_line
        self._first: dict[str, Any] | None = None
        self._n_with_quotes = self._first_with_quotes = self._blanks = 0
        csv.field_size_limit(max(csv.field_size_limit(), longest_line()))
        try:
            # Spreadsheets in many countries write semicolons into a .csv file: only its comma may be replaced.
            self._read_header(guess=dialect.delimiter is None and entry.name == "csv")
        except BaseException:
            self.close()
            raise

    def _read_header(self, *, guess: bool) -> None:
        is_tsv, has_header = self._delimiter == "\t", self._dialect.header
        ahead: list[bytes] = []
        size = _AHEAD if is_tsv and self._looks_ahead else 1
        while len(ahead) < size and sum(map(len, ahead)) <= _AHEAD_BYTES and (raw := self.take()) is not None:
            ahead.append(raw)
        self.give_back(ahead)
        try:
            texts = "\n".join(map(self.source.decoded, ahead)).removeprefix("\ufeff").rstrip("\n").split("\n")
        except ParseError:  # to be reported when its turn comes
            texts = []
        if is_tsv and self._dialect.quoting == "auto":
            self._quoted = bool(texts) and self._quotes_enclose(texts)
        header = self.next_line()
        if header is None:
            names = " must name the columns" if has_header else " is the first row"
            raise NoRowsError(self.path, 0, 0, f"the file is empty; the first line{names}")
        if guess and self._delimiter not in header:
            other = next((mark for mark in _GUESSED_DELIMITERS if mark in header), None)
            if other is not None:
                self._delimiter = other
                self.guesses += (f"{other!r} between columns",)
        fields = self._fields(header)
        self.is_corpus = has_header and is_tsv and self._has_subjects(fields, texts[1:])
        if has_header and not self.is_corpus:
            self.columns, self.header_lines = fields, self.source.line
            return
        if self.is_corpus:
            self.columns = ["text", "tags"]
            self.guesses += ("two columns without names, texts and <…> of subjects, as in Annif's corpora",)
        else:
            self.columns = [str(number) for number in range(1, len(fields) + 1)]
        self._first = self._record(fields)

    def _quotes_enclose(self, lines: list[str]) -> bool:
        """Whether quotes enclose fields: the first lines are sound records so, and a quote opens and closes a field.

        Otherwise quotes are text. Where a field starts with a quote, the guess is worth a sentence.
        """
        fields = [line.split("\t") for line in lines]
        opened = [field for record in fields for field in record if field.startswith('"')]
        if not opened:
            return False
        # Lines that are no records by themselves must be parts of some; otherwise a field has to show it.
        alone = len(set(map(len, fields))) == 1
        encloses = _are_records(lines) and (not alone or any(map(_ENCLOSED.fullmatch, opened)))
        proposed = self._dialect.setting("quoting", "none" if encloses else "standard")
        what = "quotes around fields" if encloses else "quotes as a part of the text"
        self.guesses += (f"{what} ({proposed} if not)",)
        return encloses

    def _has_subjects(self, fields: list[str], following: list[str]) -> bool:
        """Whether the first line is a row of one of Annif's corpora: a text, a tab and addresses in ``<…>``.

        It may have no address if it is followed by such rows alone, and one of them has some.
        """
        if len(fields) < 2:
            return False
        if any(map(str.strip, fields[1:])) or self._quoted:
            return _are_subjects(fields[1:])
        rows = [line.split("\t")[1:] for line in following if line.strip()]
        listed = [row for row in rows if any(map(str.strip, row))]
        return bool(listed) and all(rows) and all(map(_are_subjects, listed))

    def _record(self, fields: list[str]) -> dict[str, Any] | None:
        """The fields by their columns; None where there are more or fewer. A corpus may have tabs between subjects."""
        if self.is_corpus and len(fields) > 2:
            fields = [fields[0], " ".join(fields[1:])]
        return dict(zip(self.columns, fields)) if len(fields) == len(self.columns) else None

    def notes(self) -> list[str]:
        """Sentences on quotes that may have been misread."""
        if not self._n_with_quotes:
            return []
        return [
            f"{counted(self._n_with_quotes, 'line')} with a quote that opens a field, the first at line "
            f"{self._first_with_quotes:,}: the quotes were read as text. If they enclose fields, which may then span "
            f"lines, pass {self._dialect.setting('quoting', 'standard')}."
        ]

    def next(self) -> dict[str, Any] | None:
        """The next record, or None at the end."""
        if self._first is not None:
            first, self._first, self.line = self._first, None, 1
            return first
        line = self.next_line()
        if line is None or (not line and self._only_blank_follow()):
            return None
        fields = self._fields(line)
        record = self._record(fields)
        if record is not None:
            return record
        named = "the header names" if self.header_lines else "the first has"
        advice = "put fields that hold the delimiter in quotes"
        if not self._quoted:
            advice = (
                "a field must hold neither tabs nor line breaks, unless it is in quotes and you pass "
                f"{self._dialect.setting('quoting', 'standard')}"
            )
        elif '"' in line:
            advice += f", or pass {self._dialect.setting('quoting', 'none')} if quotes are text"
        reason = f"the record has {len(fields)} fields, but {named} {len(self.columns)}; {advice}"
        raise ParseError(self.path, self.line, 0, reason)

    def _only_blank_follow(self) -> bool:
        """Whether nothing but empty lines follows this one: then they are read, as no rows."""
        if self._blanks:  # of a run of empty lines that was looked at before
            self._blanks -= 1
            return False
        if not self._looks_ahead:
            return False
        start, raw = self.source.line, self.take()
        while raw is not None and not raw.strip(b"\r\n"):
            raw = self.take()
        n_following = self.source.line - start
        if raw is None:
            self.blank_lines, self.line = 1 + n_following, self.source.line
            return True
        self._blanks = n_following - 1
        self.give_back([*[b"\n"] * self._blanks, raw])
        return False

    def _fields(self, line: str) -> list[str]:
        if not line:
            raise self.source.fault(f"the line is empty; remove it{self._dialect.or_skip()}")
        if '"' not in line:
            return line.split(self._delimiter)
        if not self._quoted:
            fields = line.split(self._delimiter)
            opens_only = fields[-1].startswith('"') and fields[-1].count('"') % 2 == 1
            if self._dialect.quoting == "auto" and (opens_only or any(map(_ENCLOSED.fullmatch, fields))):
                self._n_with_quotes += 1
                self._first_with_quotes = self._first_with_quotes or self.source.line
            return fields
        start, ended = self.source.line, False

        def lines() -> Iterator[str]:
            nonlocal ended
            raw, text, n_bytes = self.raw, line, 0
            while raw is not None:
                n_bytes += len(raw)
                self.source.check_length(n_bytes, start)
                # Within quotes the line break belongs to the field, in the form that it has in the file.
                yield text + ("\r\n" if raw.endswith(b"\r\n") else "\n")
                raw = self.take()
                text = "" if raw is None else self.source.decoded(raw)
            ended = True

        try:
            return next(csv.reader(lines(), delimiter=self._delimiter, strict=True))
        except csv.Error as error:
            advice = f"if quotes are text, pass {self._dialect.setting('quoting', 'none')}"
            if ended:  # not to be skipped: all the rest of the file would be lost with the record
                reason = f"a quote opened here is never closed; {advice}"
                raise UnskippableError(self.path, start, 0, reason) from None
            raise self.source.fault(f"the quotes do not enclose fields ({error}); {advice}") from None


def _are_subjects(fields: Sequence[str]) -> bool:
    """Whether fields hold addresses in ``<…>`` and nothing else."""
    return _URIS.fullmatch(" ".join(fields)) is not None


def _are_records(lines: list[str]) -> bool:
    """Whether lines of tabs and quotes are records of as many fields; the last one may be cut."""
    sizes = set()
    try:
        for record in csv.reader([line + "\n" for line in lines], delimiter="\t", strict=True):
            sizes.add(len(record))
    except csv.Error as error:
        return "unexpected end" in str(error) and len(sizes) == 1
    return len(sizes) == 1
