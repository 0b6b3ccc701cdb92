"""The one reader of tables of texts and tags: JSON lines, CSV, TSV, Parquet and plain lines, as a stream or as a whole.

One rule for tags everywhere: a repeated tag counts once and an empty one is ignored, and both are reported.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tagwise.data.columns import EVERY_TAG, Columns, TagCell, find_columns, require_columns, switched
from tagwise.data.dialects import Dialect
from tagwise.data.parquet import ParquetRecords
from tagwise.data.records import NoRowsError, Records, file_format, kind_of, open_records, require_table
from tagwise.data.streams import UnskippableError, checked_path
from tagwise.exceptions import InvalidInputError, ParseError
from tagwise.progress import counted

__all__ = ["Row", "Table", "TableReader", "Tally", "notes_on_rows", "read_table"]

# Records that are looked at to guess columns and separators.
_SAMPLE = 100
_ROWS_PER_REPORT = 2000
_NO_TAGS = TagCell([], False, False)
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
    fields: dict[str, Any]  # the record as it is in the file, but with lists of tags (see TableReader.tag_fields)

    @property
    def given_id(self) -> str | None:
        """``id``, or else what a column of that name holds, where it is text or a whole number."""
        found = self.fields.get("id") if self.id is None else self.id
        return str(found) if isinstance(found, (str, int)) and not isinstance(found, bool) and found != "" else None


@dataclass(frozen=True)
class Tally:
    """What became of the lines of a file, or of several: those of parts of a table add up (:meth:`plus`).

    Attributes are those of :class:`TableReader`; ``spanning`` has the rows with a field that spans lines, their further
    lines and where the first is, ``lines`` how many lines were read (None of Parquet), and ``about`` the notes of the
    records themselves.
    """

    n_records: int
    skipped: int
    first_fault: ParseError | None
    repeated_tags: int
    empty_tags: int
    unknown_cells: int
    changed: frozenset[str]
    header_lines: int
    blank_lines: int
    spanning: tuple[int, int, int]
    lines: int | None
    about: tuple[str, ...]
    n_files: int = 1

    def plus(self, *others: Tally) -> Tally:
        """What became of the lines of all."""
        parts = (self, *others)
        rows, further = (sum(part.spanning[place] for part in parts) for place in (0, 1))
        return Tally(
            sum(part.n_records for part in parts),
            sum(part.skipped for part in parts),
            next((part.first_fault for part in parts if part.first_fault is not None), None),
            sum(part.repeated_tags for part in parts),
            sum(part.empty_tags for part in parts),
            sum(part.unknown_cells for part in parts),
            frozenset().union(*(part.changed for part in parts)),
            sum(part.header_lines for part in parts),
            sum(part.blank_lines for part in parts),
            (rows, further, 0),
            None if self.lines is None else sum(part.lines or 0 for part in parts),
            tuple(dict.fromkeys(note for part in parts for note in part.about)),
            sum(part.n_files for part in parts),
        )

    def account(self, name: str) -> str:
        """The sentence on where every line went: they add up."""
        parts = [f"{counted(self.n_records, 'row')} read", f"{self.skipped:,} refused"]
        if self.lines is None:
            return f"{name}: {', '.join(parts)}."
        if self.header_lines and self.n_files > 1:
            parts.append(f"{counted(self.header_lines, 'line')} of headers")
        elif self.header_lines:
            parts.append("1 header" if self.header_lines == 1 else f"a header of {self.header_lines:,}")
        rows, further, first = self.spanning
        if further:
            where = f", the first at line {first:,}" if first else ""
            parts.append(
                f"{counted(further, 'further line')} of {counted(rows, 'row')} with a field that spans lines{where}"
            )
        if self.blank_lines:
            parts.append(f"{counted(self.blank_lines, 'blank line')} at the end")
        return f"{name}: {', '.join(parts)}: {counted(self.lines, 'line')}."

    def counts(self) -> dict[str, int]:
        """The figures of :meth:`account`; ``lines`` is the sum of those before it, but for Parquet, which has none."""
        found = {"rows": self.n_records, "refused": self.skipped}
        if self.lines is not None:
            found |= {"header_lines": self.header_lines, "further_lines": self.spanning[1]}
            found |= {"blank_lines": self.blank_lines, "lines": self.lines}
        return found

    def notes(self) -> list[str]:
        """Sentences on what was left out or changed."""
        left_out = f"left out: {counted(self.skipped, 'faulty row')}; the first: {self.first_fault}."
        return ([left_out] if self.skipped else []) + self.changes()

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
    (``dialect.group_by``), that of all rows.

    Parameters
    ----------
    path : str
    dialect : Dialect
    with_tags : bool
        Whether tags (and known tags) are read.
    empty_texts : bool
        Whether a row may have no text; otherwise it is a fault.
    line_by_line : bool
        Whether the writer of the file waits for an answer before the next row: guess from the first row alone.
    columns : Columns, optional
        Those of another part of the same table: nothing is guessed, and the file may hold no rows.
    followed_by : sequence of str
        Further parts of the same table, to guess from where this file is short.

    Attributes
    ----------
    columns : Columns
        What is read from where.
    tag_fields, known_field : tuple of str, str or None
        Which fields of a :class:`Row` are lists of tags and of known tags.
    n_records : int
        Sound records read so far.
    skipped : int
        Faulty rows left out so far, with ``dialect.skip_faulty``.
    first_fault : ParseError or None
        The first of them.
    repeated_tags, empty_tags : int
        Rows so far that repeat a tag, which counts once, and that hold an empty tag, which is ignored.
    null_texts : int
        Rows so far with null for a text, which is an empty text if ``empty_texts`` are allowed.
    n_spanning : int
        Records so far with a field that spans lines.

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
        self.n_records, self.skipped, self.repeated_tags, self.empty_tags, self.null_texts = 0, 0, 0, 0, 0
        self._n_rows = self._unknown_cells = self.n_spanning = self._first_spanning = self._further_lines = 0
        self._changed: set[str] = set()  # columns of which only the first record of a group is kept
        self.first_fault: ParseError | None = None
        kind = file_format(path, dialect.format, option=dialect.option("format"))
        self.records: Records = _opened(path, kind, dialect, line_by_line)
        self.path = self.records.path
        self._has_lines = kind != "parquet"
        try:
            if with_tags and kind == "text":
                raise InvalidInputError(
                    f"{self.path} is read as one text per line, without tags; if it holds more, name its format with "
                    f"{dialect.option('format')}, such as jsonl or csv."
                )
            if columns is not None:
                require_columns(self.records, columns, dialect)
                self._sample, self.columns = [], columns
                self._set_fields()
                return
            is_table = kind not in ("jsonl", "text")
            tags_given = dialect.names("tags") and dialect.tag_separator is not None and not dialect.tags_wide
            given = dialect.names("text") and (not with_tags or tags_given)
            size = 1 if given or line_by_line or kind == "text" else _SAMPLE
            self._sample = self._first_records(size)
            sample = [record for _, record in self._sample]
            for further in followed_by:
                if len(sample) >= size:
                    break
                sample += _first_sound(further, kind, dialect, size - len(sample))
            self.columns = find_columns(self.records, sample, dialect, with_tags=with_tags, is_table=is_table)
            self._set_fields()
        except BaseException:
            self.records.close()
            raise

    def _set_fields(self) -> None:
        self.tag_fields, self.known_field = self.columns.tags, self.columns.known
        if self.columns.wide:
            self._known_fields = set(self.columns.fields)
            kept = self._known_fields.difference(self.columns.tags)
            self._wide_columns = frozenset(self.columns.tags)
            self.tag_fields = (_free("tags", kept),)
            self.known_field = _free("known", kept) if self.columns.empty_is_unknown else None

    def __enter__(self) -> TableReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.records.close()

    def fraction_read(self) -> float:
        """The part of the file read so far, in [0, 1]; 0 where its size is unknown."""
        return self.records.fraction_read()

    @property
    def guess(self) -> str | None:
        """The sentence that tells a person what was guessed; None where nothing was."""
        return f"{self.path}: guessed {', '.join(self.columns.guesses)}." if self.columns.guesses else None

    def account(self) -> str:
        """The sentence on where every line that was read so far went: they add up."""
        found = self.tally().account(self.path)
        if self.columns.group:
            found += f" Put together, they are {counted(self._n_rows, 'row')} of different {self._group_text()}."
        return found

    def counts(self) -> dict[str, int]:
        """The figures of :meth:`account`."""
        return self.tally().counts()

    def notes(self) -> list[str]:
        """Sentences on what was left out or changed so far."""
        return self.tally().notes()

    def changes(self) -> list[str]:
        """Sentences on what was read so far differently from how it is in the file."""
        return self.tally().changes()

    def tally(self) -> Tally:
        """What became of the lines so far."""
        return Tally(
            self.n_records,
            self.skipped,
            self.first_fault,
            self.repeated_tags,
            self.empty_tags,
            self._unknown_cells,
            frozenset(self._changed),
            self.records.header_lines,
            self.records.blank_lines,
            (self.n_spanning, self._further_lines, self._first_spanning),
            self.records.end if self._has_lines else None,
            tuple(self.records.notes()),
        )

    def __iter__(self) -> Iterator[Row]:
        for row in self._grouped() if self.columns.group else self._single():
            self._n_rows += 1
            yield row

    def _single(self) -> Iterator[Row]:
        while (found := self._sample.pop(0) if self._sample else self._next_record()) is not None:
            line, record = found
            try:
                row = self._parsed(line, record)
            except ValueError as error:
                self.fault(ParseError(self.path, line, 0, str(error)))
            else:
                self.n_records += 1
                yield row

    def _grouped(self) -> Iterator[Row]:
        """Rows that belong together as one, in the order of their first records."""
        first_of: dict[Any, Row] = {}
        by_text = self.columns.group == self.columns.text
        for row in self._single():
            key = row.text if by_text else row.fields[self.columns.group[0]]
            first = first_of.setdefault(key if isinstance(key, (str, int)) else repr(key), row)
            if first is row:
                continue
            if row.text.strip() and row.text != first.text and first.text.strip():
                self.n_records -= 1
                reason = (
                    f"the text is not that of line {first.line:,}, which has the same {self._group_text()}; make them "
                    "alike, or leave the later one empty"
                )
                self.fault(ParseError(self.path, row.line, 0, reason))
                continue
            first.text = first.text if first.text.strip() else row.text
            self._merge(first, row)
        return iter(first_of.values())

    def _merge(self, first: Row, row: Row) -> None:
        first.tags = list(dict.fromkeys([*first.tags, *row.tags]))
        if first.known is not None:
            first.known = None if row.known is None else list(dict.fromkeys([*first.known, *row.known]))
        for name, value in row.fields.items():
            if name in self.tag_fields:
                first.fields[name] = list(dict.fromkeys([*first.fields[name], *value]))
            elif name == self.known_field:
                first.fields[name] = first.known
            elif name in self.columns.text and not first.fields.get(name):
                first.fields[name] = value
            elif value != first.fields.get(name) and name not in self.columns.text:
                self._changed.add(name)

    def _group_text(self) -> str:
        return "text" if self.columns.group == self.columns.text else repr(self.columns.group[0])

    def _first_records(self, size: int) -> list[tuple[int, dict[str, Any]]]:
        first: list[tuple[int, dict[str, Any]]] = []
        while len(first) < size and (found := self._next_record()) is not None:
            first.append(found)
        if not first and not self.skipped:
            raise NoRowsError(self.path, self.records.line, 0, "the file holds no rows; give a file with at least one")
        return first

    def _next_record(self) -> tuple[int, dict[str, Any]] | None:
        """The line and the fields of the next record; None at the end."""
        while True:
            try:
                record = self.records.next()
                if record is None:
                    return None
                line = self.records.line
                if self.records.end > line:
                    self._count_lines()
                return line, record
            except UnskippableError:
                raise
            except ParseError as error:
                self._count_lines()
                self.fault(error)

    def _count_lines(self) -> None:
        """Count the lines of a record behind its first one."""
        further = self.records.end - self.records.line
        if further > 0:
            self.n_spanning += 1
            self._further_lines += further
            self._first_spanning = self._first_spanning or self.records.line

    def fault(self, error: ParseError) -> None:
        """Raise the error of a row, or with ``dialect.skip_faulty`` count the row as one that is left out."""
        if not self._dialect.skip_faulty:
            raise error
        self.skipped += 1
        self.first_fault = self.first_fault or error

    def _parsed(self, line: int, record: dict[str, Any]) -> Row:
        """The row of a record; a ValueError says what is wrong with it."""
        columns = self.columns
        identifier, known, fields = None, None, record
        try:
            texts = [record[name] for name in columns.text]
            text = texts[0] if len(texts) == 1 and texts[0] and type(texts[0]) is str else None
            if text is None or not text.strip():
                text = self._joined_text(texts)
            if columns.wide:
                tags, known = self._wide_tags(record)
                fields = {name: value for name, value in record.items() if name not in self._wide_columns}
                fields[self.tag_fields[0]] = tags.tags
            else:
                tags = _NO_TAGS
                cells = []
                for name, separator in zip(columns.tags, columns.separators):
                    cells.append(TagCell.parse(record[name], name, separator, self._separator_option))
                    tags = tags.merged(cells[-1]) if len(cells) > 1 else cells[-1]
                if columns.known is not None and record[columns.known] not in (None, EVERY_TAG):
                    value, separator = record[columns.known], next(iter(columns.separators), None)
                    known = TagCell.parse(value, columns.known, separator, self._separator_option)
                for name, cell in zip(columns.tags, cells):
                    record[name] = cell.tags
            if self.known_field is not None:
                fields[self.known_field] = None if known is None else known.tags
            if columns.id is not None:
                identifier = self._identifier(record[columns.id])
            for name in columns.group:
                record[name]
        except KeyError as error:
            raise ValueError(self._missing(error.args[0], record)) from None
        strings = [text, *tags.tags]
        if known is not None:
            strings += known.tags
        if identifier is not None:
            strings.append(identifier)
        try:
            "".join(strings).encode()
        except UnicodeEncodeError:
            raise ValueError("a string holds half of a surrogate pair, which is not a character") from None
        self.repeated_tags += tags.has_repeats or (known is not None and known.has_repeats)
        self.empty_tags += tags.has_empty or (known is not None and known.has_empty)
        return Row(line, identifier, text, tags.tags, None if known is None else known.tags, fields)

    def _wide_tags(self, record: dict[str, Any]) -> tuple[TagCell, TagCell | None]:
        """The tags whose columns are on, and those whose columns are not empty if one is."""
        on, looked_at = [], []
        for name in self.columns.tags:
            value = record.get(name)
            try:
                state = switched(value, declared=bool(self._dialect.tags_wide))
            except ValueError:
                found = repr(value)[:40] if isinstance(value, (str, int, float)) else kind_of(value)
                option = self._dialect.option("tags")
                advice = f"name the columns that are tags with {option}"
                if self._dialect.names("tags"):
                    advice = f"correct the cell, or leave the column out of {option}{self._dialect.or_skip()}"
                raise ValueError(
                    f"the column {name!r} holds {found}, where 0 or 1 says whether the row has this tag; {advice}"
                ) from None
            if state is not None:
                looked_at.append(name.strip())
            if state:
                on.append(name.strip())
        if self.records.columns is None:
            self._refuse_new_switches(record)
        tags = list(dict.fromkeys(filter(None, on)))
        n_empty = len(self.columns.tags) - len(looked_at)
        if not n_empty or not self.columns.empty_is_unknown:
            return TagCell(tags, False, False), None
        self._unknown_cells += n_empty
        return TagCell(tags, False, False), TagCell(list(dict.fromkeys(filter(None, looked_at))), False, False)

    def _refuse_new_switches(self, record: dict[str, Any]) -> None:
        """Records that name their own fields may have tags that the first ones do not: they must not be lost."""
        for name, value in record.items():
            if name not in self._known_fields and isinstance(value, (bool, int)) and value in (0, 1):
                raise ValueError(
                    f"the field {name!r:.60} is {int(value)}, but is in none of the first rows, where the columns of "
                    f"the tags were found; name all of them with {self._dialect.option('tags')}, or write every field "
                    "in the first row"
                )

    def _missing(self, name: str, record: dict[str, Any]) -> str:
        columns = self.columns
        places = {"text": columns.text, "tags": columns.tags, "known": (columns.known,), "id": (columns.id,)}
        what = next((what for what, names in places.items() if name in names), "group_by")
        found = ", ".join(map(repr, record)) or "none"
        return f"the column {name!r} is missing ({self._dialect.option(what)}); columns found: {found:.200}"

    def _identifier(self, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            name = self.columns.id
            raise ValueError(f"the column {name!r} must be a string or a whole number; found {kind_of(value)}")
        return str(value)

    def _joined_text(self, values: list[Any]) -> str:
        """The texts of a row as one; of several, some may be empty."""
        for name, value in zip(self.columns.text, values):
            if value is not None and not isinstance(value, str):
                raise ValueError(f"the column {name!r} must be a string; found {kind_of(value)}")
        text = values[0] if len(values) == 1 else "\n".join(value for value in values if value and value.strip())
        # In a table with a row per tag, only the first row of a text need have it.
        later = bool(self.columns.group) and self.columns.group != self.columns.text
        if text is None and self._empty_texts:
            self.null_texts += 1
        if text is None or not text.strip():
            if not self._empty_texts and not later:
                names = ", ".join(map(repr, self.columns.text))
                what = f"the column {names} is empty" if len(values) == 1 else f"the columns {names} are empty"
                raise ValueError(f"the row has no text: {what}. Fill it in or remove the row{self._dialect.or_skip()}")
            text = text or ""
        return text


def _free(name: str, taken: set[str]) -> str:
    """The name, or one like it that no other column has."""
    return name if name not in taken else _free(f"{name}_", taken)


def _first_sound(path: str, kind: str, dialect: Dialect, size: int) -> list[dict[str, Any]]:
    """The first records of a file, without those that are faulty: their turn comes."""
    found: list[dict[str, Any]] = []
    with suppress(ParseError), closing(_opened(path, kind, dialect, False)) as records:
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


def _opened(path: str, kind: str, dialect: Dialect, line_by_line: bool) -> Records:
    if kind != "parquet":
        return open_records(path, kind, dialect, line_by_line=line_by_line)
    require_table(path, kind, dialect)
    if dialect.encoding is not None:
        raise InvalidInputError(f"{dialect.option('encoding')} is for lines of text; {path} is read as parquet.")
    return ParquetRecords(path)


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
        The sentence on what was guessed.
    notes : list of str
        Sentences on what was left out, changed or looks wrong.
    account : str
        The sentence on where every line of the file went.
    counts : dict of str to int
        The figures of that sentence.
    tally : Tally
        What both are made of.
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
        """How many there are."""
        return len(self.texts)

    @property
    def tag_counts(self) -> Counter[str]:
        """In how many rows each tag is."""
        return Counter(tag for row in self.tags for tag in row)

    def part(self, rows: Iterable[Any]) -> Table:
        """Some of the rows, by their numbers."""
        numbers = [int(row) for row in rows]
        columns: tuple[Sequence[Any] | None, ...] = (self.texts, self.tags, self.known, self.ids)
        parts: list[Any] = [None if column is None else [column[row] for row in numbers] for column in columns]
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
        Called with the sentence on what was guessed, before the rows are read.
    on_progress : callable, optional
        Called now and then with the fraction of the file and the number of rows read.
    columns : Columns, optional
        Those of another part of the same table (:attr:`TableReader.columns`): nothing is guessed, and the file may hold
        no rows.
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
        table.skipped = reader.skipped
        table.account, table.counts, table.tally = reader.account(), reader.counts(), reader.tally()
        if not table.texts and columns is None:
            faulty = counted(reader.skipped, "row")
            raise ParseError(reader.path, 0, 0, f"no row is left; {faulty} faulty: {reader.first_fault}")
        if (
            columns is None
            and reader.columns.wide
            and table.known is not None
            and all(row is None for row in table.known)
        ):
            table.known = None
        table.other_tags = len(np.unique(hashes)) - len(np.unique(texts))
        repeats = table.duplicates, table.other_tags
        own = notes_on_rows(len(table.texts), repeats, table.tag_counts, reader.columns, dialect)
        table.notes = reader.notes() + own
    return table


def notes_on_rows(
    n_rows: int, repeats: tuple[int, int], tags: Counter[str], columns: Columns, dialect: Dialect
) -> list[str]:
    """Sentences on rows and tags that look wrong.

    ``repeats``: how many rows repeat an earlier one, and how many its text with other tags; ``tags`` has the rows of
    each tag.
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
