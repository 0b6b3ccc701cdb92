"""Records of CSV and TSV, which Python's csv module parses, one record at a time.

The module does not say where a record starts, and at a fault it loses what it holds: it gets the lines of one record,
and those without quotes are split without it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tagwise.data.dialects import Dialect
from tagwise.data.formats import FileFormat
from tagwise.data.records import LineRecords, NoRowsError
from tagwise.data.streams import UnskippableError, longest_line
from tagwise.exceptions import ParseError
from tagwise.progress import counted

__all__ = ["DelimitedRecords", "delimited_line", "needs_quotes"]

_GUESSED_DELIMITERS = (";", "\t")
# Lines of a TSV that are looked at to tell what its quotes mean.
_AHEAD = 100
_AHEAD_BYTES = 2**20
_URIS = re.compile(r"\s*<[^<>\s]+>(?:\s+<[^<>\s]+>)*\s*")
_ENCLOSED = re.compile('"(?:[^"]|"")*"')


class DelimitedRecords(LineRecords):
    """CSV and TSV, by default with a header; :class:`Dialect` says what quotes mean."""

    columns: list[str]

    def __init__(self, path: str, dialect: Dialect, entry: FileFormat, line_by_line: bool = False) -> None:
        super().__init__(path, dialect)
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
        ahead = self._ahead(_AHEAD if self._delimiter == "\t" and self._looks_ahead else 1)
        if self._delimiter == "\t" and self._dialect.quoting == "auto":
            self._quoted = self._tabs_with_quotes(ahead)
        header = self.next_line()
        if header is None:
            names = " must name the columns" if self._dialect.header else " is the first row"
            raise NoRowsError(self.path, 0, 0, f"the file is empty; the first line{names}")
        if guess and self._delimiter not in header:
            other = next((mark for mark in _GUESSED_DELIMITERS if mark in header), None)
            if other is not None:
                self._delimiter = other
                self.guesses += (f"{other!r} between columns",)
        fields = self._fields(header)
        self.is_corpus = self._dialect.header and self._delimiter == "\t" and self._has_subjects(fields, ahead[1:])
        if self._dialect.header and not self.is_corpus:
            self.columns, self.header_lines = fields, self.source.line
            return
        if self.is_corpus:
            self.columns = ["text", "tags"]
            self.guesses += ("two columns without names, texts and <…> of subjects, as in Annif's corpora",)
        else:
            self.columns = [str(number) for number in range(1, len(fields) + 1)]
        self._first = dict(zip(self.columns, self._of_columns(fields)))

    def _ahead(self, size: int) -> list[bytes]:
        """At most so many of the next lines, which are read again afterwards; fewer where they are long."""
        lines: list[bytes] = []
        while len(lines) < size and sum(map(len, lines)) <= _AHEAD_BYTES and (line := self.take()) is not None:
            lines.append(line)
        self.give_back(lines)
        return lines

    def _tabs_with_quotes(self, ahead: list[bytes]) -> bool:
        """Whether quotes enclose fields: the first lines are sound records so, and a quote opens and closes a field.

        Otherwise quotes are text. Where a field starts with a quote, the guess is worth a sentence.
        """
        try:
            texts = "\n".join(map(self.source.decoded, ahead)).removeprefix("\ufeff").rstrip("\n").split("\n")
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
        fields = self._of_columns(self._fields(line))
        if len(fields) == len(self.columns):
            return dict(zip(self.columns, fields))
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
