"""The reader of tables of texts and tags: JSON lines, CSV, TSV, Parquet and plain lines, as a stream or as a whole.

One rule for tags everywhere: a repeated tag counts once and an empty one is ignored, and both are reported.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

import numpy as np

from tagwise.data.columns import (
    EVERY_TAG,
    NEITHER,
    Columns,
    ColumnSearch,
    Dialect,
    require_columns,
    switched,
    tag_list,
)
from tagwise.data.formats import FileFormat, file_format
from tagwise.data.records import HALF_PAIR, NoRowsError, Records, holds_half_pair, kind_of, open_records
from tagwise.data.streams import UnskippableError, checked_path
from tagwise.exceptions import InvalidInputError, ParseError
from tagwise.progress import counted

__all__ = ["Row", "Table", "TableReader", "Tally", "notes_on_rows", "read_table"]

# Records that are looked at to guess columns and separators.
_SAMPLE = 100
_ROWS_PER_REPORT = 2000
# Where more of the rows than this repeat the text of another with other tags, the table may have a row per tag.
_REPEATED_TEXTS = 0.1


@dataclass(slots=True)
class Row:
    """One row of a table."""

    line: int  # where it starts in the file, from 1
    id: str | None
    text: str
    tags: list[str]  # all different; empty where none are read
    known: list[str] | None  # the tags that were looked at; None where all were
    fields: dict[str, Any]  # the record as it is in the file

    @property
    def given_id(self) -> str | None:
        """``id``, or else what a column of that name holds, where it is text or a whole number."""
        found = self.fields.get("id") if self.id is None else self.id
        return str(found) if isinstance(found, (str, int)) and not isinstance(found, bool) and found != "" else None


@dataclass(frozen=True)
class Tally:
    """Numbers of rows and lines of a file, or of several: those of parts of a table add up (:meth:`plus`)."""

    n_records: int = 0  # sound records
    skipped: int = 0  # faulty ones that were left out
    repeated_tags: int = 0  # rows that repeat a tag, which counts once
    empty_tags: int = 0  # rows that hold an empty tag, which is ignored
    null_texts: int = 0  # rows with null for a text
    unknown_cells: int = 0  # empty cells of a wide table
    header_lines: int = 0
    blank_lines: int = 0  # at the end
    spanning: int = 0  # rows with a field that spans lines
    further_lines: int = 0  # their further lines
    lines: int | None = 0  # that were read; None of Parquet
    first_spanning: int = 0  # line of the first row that spans lines; 0 for none
    first_fault: ParseError | None = None
    changed: frozenset[str] = frozenset()  # columns in which rows that were put together differ
    about: tuple[str, ...] = ()  # sentences of the records themselves
    n_files: int = 1

    def plus(self, *others: Tally) -> Tally:
        """The numbers of all."""
        parts = (self, *others)
        numbers = {name for name, value in vars(self).items() if isinstance(value, int)} - {"first_spanning", "lines"}
        return Tally(
            **{name: sum(getattr(part, name) for part in parts) for name in numbers},
            lines=None if self.lines is None else sum(part.lines or 0 for part in parts),
            first_fault=next((part.first_fault for part in parts if part.first_fault is not None), None),
            changed=frozenset().union(*(part.changed for part in parts)),
            about=tuple(dict.fromkeys(note for part in parts for note in part.about)),
        )

    def account(self, name: str) -> str:
        """Message that accounts for every line."""
        parts = [f"{counted(self.n_records, 'row')} read", f"{self.skipped:,} refused"]
        if self.lines is None:
            return f"{name}: {', '.join(parts)}."
        if self.header_lines:
            of_one = "1 header" if self.header_lines == 1 else f"a header of {self.header_lines:,}"
            parts.append(of_one if self.n_files == 1 else f"{counted(self.header_lines, 'line')} of headers")
        if self.further_lines:
            where = f", the first at line {self.first_spanning:,}" if self.first_spanning else ""
            further, rows = counted(self.further_lines, "further line"), counted(self.spanning, "row")
            parts.append(f"{further} of {rows} with a field that spans lines{where}")
        if self.blank_lines:
            parts.append(f"{counted(self.blank_lines, 'blank line')} at the end")
        return f"{name}: {', '.join(parts)}: {counted(self.lines, 'line')}."

    def counts(self) -> dict[str, int]:
        """The figures of :meth:`account`; ``lines`` is the sum of those before it, but for Parquet, which has none."""
        found = {"rows": self.n_records, "refused": self.skipped}
        if self.lines is not None:
            found |= {"header_lines": self.header_lines, "further_lines": self.further_lines}
            found |= {"blank_lines": self.blank_lines, "lines": self.lines}
        return found

    def notes(self) -> list[str]:
        """Sentences on what was left out or changed."""
        if not self.skipped:
            return self.changes()
        return [f"left out: {counted(self.skipped, 'faulty row')}; the first: {self.first_fault}.", *self.changes()]

    def changes(self) -> list[str]:
        """Sentences on what was read differently from how it is in the file."""
        sentences = list(self.about)
        if self.repeated_tags:
            sentences.append(f"{counted(self.repeated_tags, 'row')} with a repeated tag; it counts once.")
        if self.empty_tags:
            sentences.append(f"{counted(self.empty_tags, 'row')} with an empty tag, as in 'a;;b'; it is ignored.")
        if self.unknown_cells:
            cells = counted(self.unknown_cells, "empty cell")
            sentences.append(f"{cells} in the columns of the tags: whether these rows have these tags is unknown.")
        if self.changed:
            names = ", ".join(map(repr, sorted(self.changed)))
            sentences.append(f"rows that were put together differ in {names:.200}; the first of each is kept.")
        return sentences


class TableReader:
    """The rows of a file (``-``: standard input), read one by one. Use it as a context.

    Memory is that of one record and the first hundred, whatever the size of the file; where records are put together
    (``dialect.group_by``), that of all rows. ``columns`` are those that were found.

    Parameters
    ----------
    path, dialect
        The file, and how to read it.
    with_tags : bool
        Whether tags (and known tags) are read.
    empty_texts : bool
        Whether a row may have no text; otherwise it is a fault.
    line_by_line : bool
        Whether the writer waits for an answer before the next row: guess from the first row alone.
    columns : Columns, optional
        Columns of another part of the same table: nothing is guessed, and the file may hold no rows.
    followed_by : sequence of str
        Further parts of the same table, to guess from if this file is short.

    Raises
    ------
    ParseError
        At a faulty row, unless it is skipped, with file, line and what is wrong; or if there are no rows at all.
    InvalidInputError
        If the format or a column cannot be guessed.
    """

    def __init__(
        self,
        path: str,
        dialect: Dialect,
        *,
        with_tags: bool = True,
        empty_texts: bool = False,
        line_by_line: bool = False,
        columns: Columns | None = None,
        followed_by: Sequence[str] = (),
    ) -> None:
        self._dialect, self._empty_texts = dialect, empty_texts
        self._separator_option = dialect.option("tag_separator")
        self._counts: Counter[str] = Counter()  # of a Tally, by name
        self._found: Iterator[tuple[int, dict[str, Any]]]
        self._n_rows = self._first_spanning = 0
        self._changed: set[str] = set()
        self._first_fault: ParseError | None = None
        entry = file_format(path, dialect.format, option=dialect.option("format"))
        self.records: Records = open_records(path, entry, dialect, line_by_line=line_by_line)
        self.path = self.records.path
        try:
            if with_tags and entry.name == "text":
                raise InvalidInputError(
                    f"{self.path} is read as one text per line, without tags; if it holds more, name its format with "
                    f"{dialect.option('format')}, such as jsonl or csv."
                )
            self._found = self._records()
            if columns is not None:
                require_columns(self.records, columns, dialect)
                self.columns = columns
                return
            tags_given = dialect.names("tags") and dialect.tag_separator is not None and not dialect.tags_wide
            given = dialect.names("text") and (not with_tags or tags_given)
            size = 1 if given or line_by_line or entry.name == "text" else _SAMPLE
            first = list(islice(self._found, size))
            if not first and not self._counts["skipped"]:
                line = self.records.line
                raise NoRowsError(self.path, line, 0, "the file holds no rows; give a file with at least one")
            self._found = chain(first, self._found)
            sample = [record for _, record in first]
            for further in followed_by:
                if len(sample) >= size:
                    break
                sample += _first_sound(further, entry, dialect, size - len(sample))
            is_table = entry.name not in ("jsonl", "text")
            self.columns = ColumnSearch(self.records, sample, dialect).columns(with_tags=with_tags, is_table=is_table)
        except BaseException:
            self.records.close()
            raise

    def __enter__(self) -> TableReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.records.close()

    def fraction_read(self) -> float:
        """The part of the file read so far, in [0, 1]; 0 where its size is unknown."""
        return self.records.fraction_read()

    @property
    def guess(self) -> str | None:
        """Message on guesses; None if nothing was guessed."""
        return f"{self.path}: guessed {', '.join(self.columns.guesses)}." if self.columns.guesses else None

    def account(self) -> str:
        """Message that accounts for every line read so far."""
        found = self.tally().account(self.path)
        if self.columns.group:
            found += f" Put together, they are {counted(self._n_rows, 'row')} of different {self._group_text()}."
        return found

    def tally(self) -> Tally:
        """Numbers of rows and lines so far."""
        return Tally(
            **self._counts,
            header_lines=self.records.header_lines,
            blank_lines=self.records.blank_lines,
            lines=self.records.end if self.records.has_lines else None,
            first_spanning=self._first_spanning,
            first_fault=self._first_fault,
            changed=frozenset(self._changed),
            about=tuple(self.records.notes()),
        )

    def __iter__(self) -> Iterator[Row]:
        for row in self._grouped() if self.columns.group else self._single():
            self._n_rows += 1
            yield row

    def _single(self) -> Iterator[Row]:
        for line, record in self._found:
            before = dict(self._counts)
            try:
                row = self._parsed(line, record)
            except ValueError as error:
                self._counts = Counter(before)  # nothing of a row that is left out was changed
                self._fault(ParseError(self.path, line, 0, str(error)))
            else:
                self._counts["n_records"] += 1
                yield row

    def _grouped(self) -> Iterator[Row]:
        """Merged rows, in the order of their first records."""
        first_of: dict[Any, Row] = {}
        columns = self.columns
        used = {*columns.text, *columns.tags, columns.known}
        for row in self._single():
            key = row.text if columns.group == columns.text else row.fields[columns.group[0]]
            first = first_of.setdefault(key if isinstance(key, (str, int)) else repr(key), row)
            if first is row:
                continue
            if row.text.strip() and row.text != first.text and first.text.strip():
                self._counts["n_records"] -= 1
                reason = (
                    f"the text is not that of line {first.line:,}, which has the same {self._group_text()}; make them "
                    "alike, or leave the later one empty"
                )
                self._fault(ParseError(self.path, row.line, 0, reason))
                continue
            first.text = first.text if first.text.strip() else row.text
            first.tags = list(dict.fromkeys([*first.tags, *row.tags]))
            if first.known is not None:
                first.known = None if row.known is None else list(dict.fromkeys([*first.known, *row.known]))
            others = row.fields.keys() - used
            self._changed.update(name for name in others if row.fields[name] != first.fields.get(name))
        return iter(first_of.values())

    def _group_text(self) -> str:
        return "text" if self.columns.group == self.columns.text else repr(self.columns.group[0])

    def _records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Line and fields of each sound record."""
        record: dict[str, Any] | None = {}
        while record is not None:
            fault = None
            try:
                record = self.records.next()
            except UnskippableError:
                raise
            except ParseError as error:
                fault = error
            further = self.records.end - self.records.line
            if further > 0 and (record is not None or fault is not None):
                self._counts["spanning"] += 1
                self._counts["further_lines"] += further
                self._first_spanning = self._first_spanning or self.records.line
            if fault is not None:
                self._fault(fault)
            elif record is not None:
                yield self.records.line, record

    def _fault(self, error: ParseError) -> None:
        """Raise the error of a row, or with ``dialect.skip_faulty`` count the row as one that is left out."""
        if not self._dialect.skip_faulty:
            raise error
        self._counts["skipped"] += 1
        self._first_fault = self._first_fault or error

    def _parsed(self, line: int, record: dict[str, Any]) -> Row:
        """The row of a record; a ValueError says what is wrong with it."""
        columns = self.columns
        try:
            text = self._text([record[name] for name in columns.text])
            tags, known = self._wide_tags(record) if columns.wide else self._listed_tags(record)
            identifier = None if columns.id is None else record[columns.id]
            for name in columns.group:
                record[name]
        except KeyError as error:
            raise ValueError(self._missing(error.args[0], record)) from None
        if columns.id is not None:
            if isinstance(identifier, bool) or not isinstance(identifier, (str, int)):
                found = kind_of(identifier)
                raise ValueError(f"the column {columns.id!r} must be a string or a whole number; found {found}")
            identifier = str(identifier)
        if holds_half_pair([text, *tags, *(known or ()), identifier or ""]):
            raise ValueError(HALF_PAIR)
        return Row(line, identifier, text, tags, known, record)

    def _listed_tags(self, record: dict[str, Any]) -> tuple[list[str], list[str] | None]:
        columns, known = self.columns, None
        cells = [
            tag_list(record[name], name, separator, self._separator_option)
            for name, separator in zip(columns.tags, columns.separators)
        ]
        if columns.known is not None and record[columns.known] not in (None, EVERY_TAG):
            separator = next(iter(columns.separators), None)
            known = tag_list(record[columns.known], columns.known, separator, self._separator_option)
            cells.append(known)
        filled = [list(filter(str.strip, cell)) for cell in cells]
        distinct = [list(dict.fromkeys(cell)) for cell in filled]
        self._counts["repeated_tags"] += any(len(few) < len(many) for few, many in zip(distinct, filled))
        self._counts["empty_tags"] += any(len(few) < len(many) for few, many in zip(filled, cells))
        found = None if known is None else distinct.pop()
        return distinct[0] if len(distinct) == 1 else list(dict.fromkeys(chain(*distinct))), found

    def _wide_tags(self, record: dict[str, Any]) -> tuple[list[str], list[str] | None]:
        """The tags whose columns are on, and those whose columns are not empty if one is."""
        states = {}
        for name in self.columns.tags:
            states[name] = switched(record.get(name), bool(self._dialect.tags_wide))
            if states[name] == NEITHER:
                value, option = record.get(name), self._dialect.option("tags")
                found = repr(value)[:40] if isinstance(value, (str, int, float)) else kind_of(value)
                advice = f"name the columns that are tags with {option}"
                if self._dialect.names("tags"):
                    advice = f"correct the cell, or leave the column out of {option}{self._dialect.or_skip()}"
                raise ValueError(
                    f"the column {name!r} holds {found}, where 0 or 1 says whether the row has this tag; {advice}"
                )
        if self.records.columns is None:
            # Records that name their own fields may have tags that the first ones do not: they must not be lost.
            for name in record.keys() - set(self.columns.fields):
                if isinstance(record[name], (bool, int)) and record[name] in (0, 1):
                    raise ValueError(
                        f"the field {name!r:.60} is {int(record[name])}, but is in none of the first rows, where the "
                        f"columns of the tags were found; name all of them with {self._dialect.option('tags')}, or "
                        "write every field in the first row"
                    )
        tags = list(dict.fromkeys(name.strip() for name, state in states.items() if state and name.strip()))
        looked_at = [name.strip() for name, state in states.items() if state is not None]
        n_empty = len(states) - len(looked_at)
        if not n_empty or not self.columns.empty_is_unknown:
            return tags, None
        self._counts["unknown_cells"] += n_empty
        return tags, list(dict.fromkeys(filter(None, looked_at)))

    def _missing(self, name: str, record: dict[str, Any]) -> str:
        columns = self.columns
        places = {"text": columns.text, "tags": columns.tags, "known": (columns.known,), "id": (columns.id,)}
        what = next((what for what, names in places.items() if name in names), "group_by")
        found = ", ".join(map(repr, record)) or "none"
        return f"the column {name!r} is missing ({self._dialect.option(what)}); columns found: {found:.200}"

    def _text(self, values: list[Any]) -> str:
        """The texts of a row as one; of several, some may be empty."""
        names = self.columns.text
        for name, value in zip(names, values):
            if value is not None and not isinstance(value, str):
                raise ValueError(f"the column {name!r} must be a string; found {kind_of(value)}")
        text = values[0] if len(values) == 1 else "\n".join(value for value in values if value and value.strip())
        if text is not None and text.strip():
            return str(text)
        # In a table with a row per tag, only the first row of a text need have it.
        if not self._empty_texts and (not self.columns.group or self.columns.group == names):
            listed = ", ".join(map(repr, names))
            what = f"the column {listed} is empty" if len(values) == 1 else f"the columns {listed} are empty"
            raise ValueError(f"the row has no text: {what}. Fill it in or remove the row{self._dialect.or_skip()}")
        self._counts["null_texts"] += text is None
        return text or ""


def _first_sound(path: str, entry: FileFormat, dialect: Dialect, size: int) -> list[dict[str, Any]]:
    """The first sound records of a file; faulty ones are reported later."""
    found: list[dict[str, Any]] = []
    with suppress(ParseError), closing(open_records(path, entry, dialect)) as records:
        while len(found) < size:
            try:
                record = records.next()
            except UnskippableError:
                break
            except ParseError:
                continue
            if record is None:
                break
            found.append(record)
    return found


@dataclass(eq=False)
class Table:
    """All rows of a file; ``known`` is as ``Tagger.fit`` takes it, and None (as ``ids``) where no column was given.

    Attributes
    ----------
    texts : list of str
    tags : list of lists of str
    known : list of lists of str (or None), or None
        Of a wide table with empty cells: the tags whose cells are not empty.
    ids : list of str or None
    duplicates, other_tags : int
        Rows that repeat an earlier one, text and tags alike; and those that repeat its text with other tags.
    skipped : int
        Faulty rows that were left out.
    guess : str or None
        Message on guesses.
    notes : list of str
        Messages on omissions, changes and suspicious rows.
    account : str
        Message that accounts for every line of the file.
    counts : dict of str to int
        Numbers in that message.
    tally : Tally
        Numbers that both are made of.
    """

    texts: list[str] = field(default_factory=list)
    tags: list[list[str]] = field(default_factory=list)
    known: list[list[str] | None] | None = None
    ids: list[str] | None = None
    duplicates: int = 0
    other_tags: int = 0
    skipped: int = 0
    guess: str | None = None
    notes: list[str] = field(default_factory=list)
    account: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    tally: Tally | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.texts)

    @property
    def tag_counts(self) -> Counter[str]:
        """Number of rows of each tag."""
        return Counter(tag for row in self.tags for tag in row)

    def part(self, rows: Iterable[Any]) -> Table:
        """Some of the rows, by their numbers."""
        numbers = [int(row) for row in rows]
        columns: tuple[Any, ...] = (self.texts, self.tags, self.known, self.ids)
        parts: list[Any] = [
            # Texts that lie elsewhere stay there.
            column.part(numbers) if hasattr(column, "part") else column and [column[row] for row in numbers]
            for column in columns
        ]
        return Table(*parts)


def read_table(
    path: str | os.PathLike[str],
    dialect: Dialect | None = None,
    *,
    on_guess: Callable[[str], None] | None = None,
    on_progress: Callable[[float, int], None] | None = None,
    columns: Columns | None = None,
    **fields: Any,
) -> Table:
    """Read all rows of texts with their tags, as the command line does: JSON lines, CSV, TSV or Parquet.

    Parameters
    ----------
    path : path
        The file; ``"-"`` is standard input.
    dialect : Dialect, optional
        How to read it.
    on_guess : callable, optional
        Called with a message on guesses, before the rows are read.
    on_progress : callable, optional
        Called now and then with the fraction of the file and the number of rows read.
    columns : Columns, optional
        Columns of another part of the same table: nothing is guessed, and the file may hold no rows.
    **fields
        Fields of :class:`Dialect` in place of those of ``dialect``: ``text=["title", "abstract"]``.

    Returns
    -------
    Table
        ``texts``, ``tags`` and ``known`` are what ``Tagger.fit`` takes.

    Raises
    ------
    ParseError
        A row is faulty and not to be skipped, an identifier occurs twice, or no row is left.
    InvalidInputError
        The format or a column cannot be guessed.

    Notes
    -----
    Memory is that of the texts, 8 bytes per tag and about 150 per row.
    """
    dialect = replace(dialect or Dialect(), **fields)
    table = Table()
    # Hashes alone: the texts need not be kept twice to be told apart.
    hashes, texts = array("q"), array("q")
    line_of: dict[str, int] = {}
    one_of: dict[str, str] = {}  # one object for all occurrences of a tag
    with TableReader(checked_path(path), dialect, columns=columns) as reader:
        table.guess = reader.guess
        if table.guess is not None and on_guess is not None:
            on_guess(table.guess)
        if reader.columns.known is not None or reader.columns.empty_is_unknown:
            table.known = []
        if reader.columns.id is not None:
            table.ids = []
        for row in reader:
            table.texts.append(row.text)
            table.tags.append([one_of.setdefault(tag, tag) for tag in row.tags])
            if table.known is not None:
                table.known.append(None if row.known is None else [one_of.setdefault(tag, tag) for tag in row.known])
            if table.ids is not None and row.id is not None:
                earlier = line_of.setdefault(row.id, row.line)
                if earlier != row.line:
                    reason = f"the identifier {row.id[:40]!r} is also that of line {earlier}; identifiers must differ"
                    raise ParseError(reader.path, row.line, 0, reason)
                table.ids.append(row.id)
            hashes.append(hash((row.text, *sorted(row.tags))))
            texts.append(hash(row.text))
            if on_progress is not None and len(table.texts) % _ROWS_PER_REPORT == 0:
                on_progress(reader.fraction_read(), len(table.texts))
        table.duplicates = len(hashes) - len(np.unique(hashes))
        tally = reader.tally()
        table.skipped, table.tally, table.account, table.counts = tally.skipped, tally, reader.account(), tally.counts()
        if not table.texts and columns is None:
            faulty = counted(tally.skipped, "row")
            raise ParseError(reader.path, 0, 0, f"no row is left; {faulty} faulty: {tally.first_fault}")
        if columns is None and reader.columns.wide and not any(row is not None for row in table.known or ()):
            table.known = None
        table.other_tags = len(np.unique(hashes)) - len(np.unique(texts))
        repeats = table.duplicates, table.other_tags
        own = notes_on_rows(len(table.texts), repeats, table.tag_counts, reader.columns, dialect)
        table.notes = tally.notes() + own
    return table


def notes_on_rows(
    n_rows: int, repeats: tuple[int, int], tags: Counter[str], columns: Columns, dialect: Dialect
) -> list[str]:
    """Messages on suspicious rows and tags.

    ``repeats``: numbers of rows that repeat an earlier one, and that repeat its text with other tags; ``tags`` has the
    rows of each tag.
    """
    notes = []
    duplicates, other_tags = repeats
    if duplicates:
        notes.append(
            f"{duplicates:,} of {counted(n_rows, 'row')} repeat an earlier row, text and tags alike; each counts. "
            "Remove them unless they are meant."
        )
    if other_tags > _REPEATED_TEXTS * n_rows and not columns.group:
        notes.append(
            f"{other_tags:,} of {counted(n_rows, 'row')} repeat the text of an earlier row with other tags. If the "
            f"table has one row per tag, name the column that they share with {dialect.option('group_by')}."
        )
    if len(tags) > 1 and max(tags.values()) == 1 and n_rows > 1:
        names = ", ".join(map(repr, columns.tags))
        plural = "the column" if len(columns.tags) == 1 else "the columns"
        notes.append(f"none of the {len(tags):,} tags is in two rows; is {names:.200} {plural} of the tags?")
    return notes
