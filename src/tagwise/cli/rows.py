"""Rows of a file as a stream: identifier, text, tags, and the tags that were looked at."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tagwise.cli.columns import EVERY_TAG, Columns, cell_tags, find_columns, has_stray_separator
from tagwise.cli.options import RowOptions
from tagwise.cli.output import say, warn
from tagwise.cli.records import UNRECOVERABLE, RecordReader, file_format, open_records
from tagwise.exceptions import InvalidInputError, ParseError
from tagwise.progress import ProgressBar, counted

__all__ = ["Row", "RowStream", "TextRows", "read_rows"]

# Records that are looked at to guess columns and separators.
_SAMPLE = 100
_TOLD_EVERY = 2000


@dataclass(frozen=True)
class Row:
    """One row of a file.

    Attributes
    ----------
    line : int
        Where it starts in the file, from 1.
    id : str or None
    text : str
    tags : list of str
        Different names; empty where none are read.
    known : list of str or None
        The tags that were looked at; None where all were.
    fields : dict
        The record as it is in the file.
    """

    line: int
    id: str | None
    text: str
    tags: list[str]
    known: list[str] | None
    fields: dict[str, Any]


class RowStream:
    """The rows of a JSONL, CSV, TSV, Parquet or text file (``-``: standard input), read one by one.

    Memory is that of one record and the first hundred, whatever the size of the file. Use it as a context.

    Parameters
    ----------
    path : str
    options : RowOptions
    with_tags : bool
        Whether tags (and known tags) are read.
    may_be_empty : bool
        Whether a row without text is a row; otherwise it is a fault.
    line_by_line : bool
        Whether whoever writes the file waits for the answer to a row before the next: guess from the first one alone.

    Attributes
    ----------
    columns : Columns
        What is read from where; ``columns.said`` is the sentence for people.
    skipped : int
        Faulty rows that were left out so far, with ``options.skip_faulty``.
    first_fault : ParseError or None
        The first of them.
    repeated_tags : int
        Rows so far that list a tag twice; it counts once.
    stray_separators : int
        Rows so far whose tags have a separator with nothing on one side; it is passed over.

    Raises
    ------
    ParseError
        At a faulty row, unless it is skipped, with file, line and what is wrong; or where there are no rows at all.
    """

    def __init__(
        self,
        path: str,
        options: RowOptions,
        *,
        with_tags: bool = True,
        may_be_empty: bool = False,
        line_by_line: bool = False,
    ) -> None:
        self._options, self._may_be_empty = options, may_be_empty
        self.skipped, self.repeated_tags, self.stray_separators = 0, 0, 0
        self.first_fault: ParseError | None = None
        kind = file_format(path, options.format)
        self._reader: RecordReader = open_records(path, kind)
        self.path = self._reader.path
        try:
            if with_tags and kind == "text":
                raise InvalidInputError(
                    f"{self.path} is read as a text a line, without tags; if it holds more, say what it is with "
                    "--format, such as jsonl or csv."
                )
            # Where lines are texts there is nothing to guess.
            self._sample = self._first_records(1 if kind == "text" or line_by_line else _SAMPLE)
            self.columns = self._found_columns(with_tags)
        except BaseException:
            self._reader.close()
            raise

    def __enter__(self) -> RowStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self._reader.close()

    def fraction_read(self) -> float:
        """The part of the file that was read, in [0, 1]; 0 where its size is unknown."""
        return self._reader.fraction_read()

    def __iter__(self) -> Iterator[Row]:
        while self._sample:
            yield from self._row(*self._sample.pop(0))
        while (record := self._next_record()) is not None:
            yield from self._row(self._reader.line, record)

    # ------------------------------------------------------------------ inside

    def _first_records(self, size: int) -> list[tuple[int, dict[str, Any]]]:
        records: list[tuple[int, dict[str, Any]]] = []
        while len(records) < size and (record := self._next_record()) is not None:
            records.append((self._reader.line, record))
        if not records and not self.skipped:
            raise ParseError(self.path, 0, 0, "the file holds no rows; give a file with at least one")
        return records

    def _found_columns(self, with_tags: bool) -> Columns:
        names = self._reader.columns
        if names is None:
            names = list(dict.fromkeys(name for _, record in self._sample for name in record))
        sample = [record for _, record in self._sample]
        table = self._reader.columns is not None
        return find_columns(
            self.path, names, sample, self._options, with_tags=with_tags, table=table, note=self._reader.note
        )

    def _next_record(self) -> dict[str, Any] | None:
        while True:
            try:
                return self._reader.next()
            except UNRECOVERABLE:
                raise
            except ParseError as error:
                self._fault(error)

    def _fault(self, error: ParseError) -> None:
        if not self._options.skip_faulty:
            raise error
        self.skipped += 1
        self.first_fault = self.first_fault or error

    def _row(self, line: int, record: dict[str, Any]) -> Iterator[Row]:
        """The row of a record; nothing where it is faulty and skipped."""
        try:
            row = self._parsed(line, record)
        except ValueError as error:
            self._fault(ParseError(self.path, line, 0, str(error)))
            return
        yield row

    def _parsed(self, line: int, record: dict[str, Any]) -> Row:
        columns = self.columns
        for name in (columns.text, columns.tags, columns.known, columns.id):
            if name is not None and name not in record:
                found = ", ".join(map(repr, record)) or "none"
                raise ValueError(f"the field {name!r} is missing; fields found: {found:.200}")
        text = self._text(record[columns.text])
        tags: list[str] = []
        if columns.tags is not None:
            listed = cell_tags(record[columns.tags], columns.tags, columns.separator)
            tags = list(dict.fromkeys(listed))
            self.repeated_tags += len(tags) < len(listed)
            self.stray_separators += has_stray_separator(record[columns.tags], columns.separator)
        known: list[str] | None = None
        if columns.known is not None:
            cell = record[columns.known]
            if cell is not None and cell != EVERY_TAG:
                known = list(dict.fromkeys(cell_tags(cell, columns.known, columns.separator)))
        identifier = None
        if columns.id is not None:
            value = record[columns.id]
            if isinstance(value, bool) or not isinstance(value, (str, int)):
                raise ValueError(f"the column {columns.id!r} must hold text or a whole number; found {value!r:.40}")
            identifier = str(value)
        try:
            "".join([text, *tags, *(known or [])]).encode()
        except UnicodeEncodeError:
            raise ValueError("a string holds half of a surrogate pair, which is no character") from None
        return Row(line, identifier, text, tags, known, record)

    def _text(self, value: Any) -> str:
        if self._may_be_empty and value is None:
            return ""
        if isinstance(value, str) and (self._may_be_empty or value.strip()):
            return value
        name = self.columns.text
        if value is None or isinstance(value, str):
            raise ValueError(
                f"the row has no text: the column {name!r} is empty. Fill it in, remove the row, or pass --skip-faulty"
            )
        raise ValueError(f"the column {name!r} must hold text; found {value!r:.40}")


@dataclass(eq=False)
class TextRows:
    """All rows of a file.

    Attributes
    ----------
    texts : list of str
    tags : list of lists of str
    known : list of lists of str (or None), or None
        As ``Tagger.fit`` takes it; None where no column was given.
    ids : list of str or None
    lines : list of int
        Where the rows start in the file.
    repeats : int
        Rows that repeat an earlier one, text and tags alike.
    skipped : int
        Faulty rows that were left out.
    said : list of str
        What was told to the person on the way.
    """

    texts: list[str] = field(default_factory=list)
    tags: list[list[str]] = field(default_factory=list)
    known: list[list[str] | None] | None = None
    ids: list[str] | None = None
    lines: list[int] = field(default_factory=list)
    repeats: int = 0
    skipped: int = 0
    said: list[str] = field(default_factory=list)

    @property
    def tag_counts(self) -> Counter[str]:
        """In how many rows each tag is."""
        return Counter(tag for row in self.tags for tag in row)

    def part(self, rows: Any) -> TextRows:
        """Some of the rows, by their numbers."""
        numbers = [int(row) for row in rows]
        return TextRows(
            [self.texts[row] for row in numbers],
            [self.tags[row] for row in numbers],
            None if self.known is None else [self.known[row] for row in numbers],
            None if self.ids is None else [self.ids[row] for row in numbers],
            [self.lines[row] for row in numbers],
        )


def read_rows(path: str, options: RowOptions, *, quiet: bool = False) -> TextRows:
    """Read all rows with their tags, and say what was guessed, left out or looks wrong (on standard error).

    Raises
    ------
    ParseError
        A row is faulty and not skipped, an identifier comes twice, or no row is left.
    """
    rows = TextRows()
    seen: set[int] = set()
    line_of: dict[str, int] = {}
    bar = ProgressBar(f"reading {os.path.basename(path)}", 1.0, wanted=not quiet)
    with RowStream(path, options) as stream, bar:
        rows.said.append(stream.columns.said)
        if not quiet:
            say(stream.columns.said)
        if stream.columns.known is not None:
            rows.known = []
        if stream.columns.id is not None:
            rows.ids = []
        for row in stream:
            rows.texts.append(row.text)
            rows.tags.append(row.tags)
            rows.lines.append(row.line)
            if rows.known is not None:
                rows.known.append(row.known)
            if rows.ids is not None and row.id is not None:
                earlier = line_of.setdefault(row.id, row.line)
                if earlier != row.line:
                    raise ParseError(
                        stream.path,
                        row.line,
                        0,
                        f"the identifier {row.id[:40]!r} is that of line {earlier} too; identifiers must differ",
                    )
                rows.ids.append(row.id)
            # Hashes alone: the texts need not be kept twice to be told apart.
            same = hash((row.text, *sorted(row.tags)))
            rows.repeats += same in seen
            seen.add(same)
            if len(rows.texts) % _TOLD_EVERY == 0:
                bar.at(stream.fraction_read(), counted(len(rows.texts), "row"))
        rows.skipped = stream.skipped
        if not rows.texts:
            raise ParseError(
                stream.path, 0, 0, f"no row is left; {counted(stream.skipped, 'row')} faulty: {stream.first_fault}"
            )
        rows.said += _notes(stream, rows)
    if not quiet:
        for note in rows.said[1:]:
            warn(note)
    return rows


def _notes(stream: RowStream, rows: TextRows) -> Iterator[str]:
    if stream.skipped:
        yield f"left out: {counted(stream.skipped, 'faulty row')}; the first: {stream.first_fault}."
    if stream.repeated_tags:
        yield f"{counted(stream.repeated_tags, 'row')} with a tag that is listed twice; it counts once."
    if stream.stray_separators:
        stray = counted(stream.stray_separators, "row")
        yield f"{stray} with {stream.columns.separator!r} that no tag stands beside; it is passed over."
    if rows.repeats:
        yield (
            f"of {counted(len(rows.texts), 'row')}, {rows.repeats:,} repeat an earlier row, text and tags alike; each "
            "counts. Remove them unless they are meant."
        )
    counts = rows.tag_counts
    if len(counts) > 1 and max(counts.values()) == 1 and len(rows.texts) > 1:
        yield f"none of the {len(counts):,} tags is in two rows; is {stream.columns.tags!r} the column of the tags?"
