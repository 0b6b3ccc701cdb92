"""The one reader of tables of texts and tags: JSON lines, CSV, TSV, Parquet and plain lines, as a stream or as a whole.

One rule for tags everywhere: a repeated tag counts once and an empty one is ignored, and both are reported.
"""

from __future__ import annotations

import json
import os
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.data.columns import EVERY_TAG, Columns, Dialect, TagCell, find_columns, join_tags
from tagwise.data.labelled_rows import LabelledRows
from tagwise.data.parquet import ParquetRecords
from tagwise.data.records import Records, delimited_line, file_format, kind_of, open_records
from tagwise.data.streams import UnskippableError, atomic_writer, checked_path, suffix_without_compression
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ParseError, warn
from tagwise.progress import counted
from tagwise.validation import check_choice, check_labels

__all__ = ["Row", "Table", "TableReader", "read_csv", "read_jsonl", "read_table", "write_csv", "write_jsonl"]

# Records that are looked at to guess columns and separators.
_SAMPLE = 100
_ROWS_PER_REPORT = 2000


@dataclass(slots=True)
class Row:
    """One row of a table."""

    line: int  # where it starts in the file, from 1
    id: str | None
    text: str
    tags: list[str]  # all different; empty where none are read
    known: list[str] | None  # the tags that were looked at; None where all were
    fields: dict[str, Any]  # the record as it is in the file


class TableReader:
    """The rows of a file (``-``: standard input), read one by one. Use it as a context.

    Memory is that of one record and the first hundred, whatever the size of the file.

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

    Attributes
    ----------
    columns : Columns
        What is read from where.
    skipped : int
        Faulty rows left out so far, with ``dialect.skip_faulty``.
    first_fault : ParseError or None
        The first of them.
    repeated_tags, empty_tags : int
        Rows so far that repeat a tag, which counts once, and that hold an empty tag, which is ignored.
    null_texts : int
        Rows so far with null for a text, which is an empty text if ``empty_texts`` are allowed.

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
    ) -> None:
        self._dialect, self._empty_texts = dialect, empty_texts
        self._separator_option = dialect.option("tag_separator")
        self.skipped, self.repeated_tags, self.empty_tags, self.null_texts = 0, 0, 0, 0
        self.first_fault: ParseError | None = None
        kind = file_format(path, dialect.format, option=dialect.option("format"))
        self.records: Records = (
            ParquetRecords(path) if kind == "parquet" else open_records(path, kind, dialect.delimiter)
        )
        self.path = self.records.path
        try:
            if with_tags and kind == "text":
                raise InvalidInputError(
                    f"{self.path} is read as one text per line, without tags; if it holds more, name its format with "
                    f"{dialect.option('format')}, such as jsonl or csv."
                )
            is_table = kind not in ("jsonl", "text")
            separator_given = not is_table or dialect.tag_separator is not None
            given = dialect.text is not None and (not with_tags or (dialect.tags is not None and separator_given))
            self._sample = self._first_records(1 if given or line_by_line or kind == "text" else _SAMPLE)
            sample = [record for _, record in self._sample]
            self.columns: Columns = find_columns(self.records, sample, dialect, with_tags=with_tags, is_table=is_table)
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
        """The sentence that tells a person what was guessed; None where nothing was."""
        return f"{self.path}: guessed {', '.join(self.columns.guesses)}." if self.columns.guesses else None

    def notes(self) -> list[str]:
        """Sentences on what was left out or changed so far."""
        left_out = f"left out: {counted(self.skipped, 'faulty row')}; the first: {self.first_fault}."
        return ([left_out] if self.skipped else []) + self.changes()

    def changes(self) -> list[str]:
        """Sentences on what was read so far differently from how it is in the file."""
        sentences = []
        if self.repeated_tags:
            sentences.append(f"{counted(self.repeated_tags, 'row')} with a repeated tag; it counts once.")
        if self.empty_tags:
            sentences.append(f"{counted(self.empty_tags, 'row')} with an empty tag, as in 'a;;b'; it is ignored.")
        return sentences

    def __iter__(self) -> Iterator[Row]:
        while (found := self._sample.pop(0) if self._sample else self._next_record()) is not None:
            line, record = found
            try:
                row = self._parsed(line, record)
            except ValueError as error:
                self.fault(ParseError(self.path, line, 0, str(error)))
            else:
                yield row

    def _first_records(self, size: int) -> list[tuple[int, dict[str, Any]]]:
        first: list[tuple[int, dict[str, Any]]] = []
        while len(first) < size and (found := self._next_record()) is not None:
            first.append(found)
        if not first and not self.skipped:
            raise ParseError(self.path, self.records.line, 0, "the file holds no rows; give a file with at least one")
        return first

    def _next_record(self) -> tuple[int, dict[str, Any]] | None:
        """The line and the fields of the next record; None at the end."""
        while True:
            try:
                record = self.records.next()
                return None if record is None else (self.records.line, record)
            except UnskippableError:
                raise
            except ParseError as error:
                self.fault(error)

    def fault(self, error: ParseError) -> None:
        """Raise the error of a row, or with ``dialect.skip_faulty`` count the row as one that is left out."""
        if not self._dialect.skip_faulty:
            raise error
        self.skipped += 1
        self.first_fault = self.first_fault or error

    def _parsed(self, line: int, record: dict[str, Any]) -> Row:
        """The row of a record; a ValueError says what is wrong with it."""
        columns = self.columns
        known, identifier = None, None
        try:
            text = self._text(record[columns.text])
            tags = self._tags([] if columns.tags is None else record[columns.tags], columns.tags)
            if columns.known is not None and record[columns.known] not in (None, EVERY_TAG):
                known = self._tags(record[columns.known], columns.known)
            if columns.id is not None:
                identifier = self._identifier(record[columns.id])
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
        return Row(line, identifier, text, tags.tags, None if known is None else known.tags, record)

    def _missing(self, name: str, record: dict[str, Any]) -> str:
        what = next(what for what in ("text", "tags", "known", "id") if getattr(self.columns, what) == name)
        found = ", ".join(map(repr, record)) or "none"
        return f"the column {name!r} is missing ({self._dialect.option(what)}); columns found: {found:.200}"

    def _tags(self, value: Any, column: str | None) -> TagCell:
        return TagCell.parse(value, column, self.columns.separator, self._separator_option)

    def _identifier(self, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            name = self.columns.id
            raise ValueError(f"the column {name!r} must be a string or a whole number; found {kind_of(value)}")
        return str(value)

    def _text(self, value: Any) -> str:
        if isinstance(value, str) and (self._empty_texts or value.strip()):
            return value
        name = self.columns.text
        if value is None and self._empty_texts:
            self.null_texts += 1
            return ""
        if value is None or isinstance(value, str):
            raise ValueError(
                f"the row has no text: the column {name!r} is empty. Fill it in, remove the row, or pass "
                f"{self._dialect.option('skip_faulty')}"
            )
        raise ValueError(f"the column {name!r} must be a string; found {kind_of(value)}")


@dataclass(eq=False)
class Table:
    """All rows of a file; ``known`` is as ``Tagger.fit`` takes it, and None (as ``ids``) where no column was given."""

    texts: list[str] = field(default_factory=list)
    tags: list[list[str]] = field(default_factory=list)
    known: list[list[str] | None] | None = None
    ids: list[str] | None = None
    duplicates: int = 0  # rows that repeat an earlier one, text and tags alike
    skipped: int = 0  # faulty rows that were left out
    guess: str | None = None  # the sentence on what was guessed
    notes: list[str] = field(default_factory=list)  # sentences on what was left out, changed or looks wrong

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
    path: str,
    dialect: Dialect,
    *,
    on_guess: Callable[[str], None] | None = None,
    on_progress: Callable[[float, int], None] | None = None,
) -> Table:
    """Read all rows with their tags; an identifier that occurs twice, or no row left, is a :class:`ParseError`.

    ``on_guess`` is called with the sentence on what was guessed, before the rows are read; ``on_progress`` now and then
    with the fraction of the file and the number of rows read.
    """
    table = Table()
    # Hashes alone: the texts need not be kept twice to be told apart.
    hashes = array("q")
    line_of: dict[str, int] = {}
    one_of: dict[str, str] = {}  # one object for all occurrences of a tag
    with TableReader(path, dialect) as reader:
        table.guess = reader.guess
        if table.guess is not None and on_guess is not None:
            on_guess(table.guess)
        if reader.columns.known is not None:
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
            if on_progress is not None and len(table.texts) % _ROWS_PER_REPORT == 0:
                on_progress(reader.fraction_read(), len(table.texts))
        table.duplicates = len(hashes) - len(np.unique(hashes))
        table.skipped = reader.skipped
        if not table.texts:
            faulty = counted(reader.skipped, "row")
            raise ParseError(reader.path, 0, 0, f"no row is left; {faulty} faulty: {reader.first_fault}")
        table.notes = _notes(reader, table)
    return table


def _notes(reader: TableReader, table: Table) -> list[str]:
    notes = reader.notes()
    if table.duplicates:
        notes.append(
            f"{table.duplicates:,} of {counted(len(table.texts), 'row')} repeat an earlier row, text and tags alike; "
            "each counts. Remove them unless they are meant."
        )
    counts = table.tag_counts
    if len(counts) > 1 and max(counts.values()) == 1 and len(table.texts) > 1:
        notes.append(
            f"none of the {len(counts):,} tags is in two rows; is {reader.columns.tags!r} the column of the tags?"
        )
    return notes


# ---------------------------------------------------------------------- the public readers


def read_jsonl(
    path: str | os.PathLike[str],
    *,
    text: str = "text",
    tags: str = "tags",
    id: str | None = None,
    tag_separator: str | None = None,
    errors: str = "strict",
) -> LabelledRows:
    """Read texts with tags from a file with one JSON object per line, in UTF-8, plain, ``.gz`` or ``.bz2``.

    A repeated tag counts once and an empty one is ignored, with a warning that says in how many rows.

    Parameters
    ----------
    path : str or path
        The file.
    text, tags : str
        The fields with the text (a string) and the tags (a list of strings).
    id : str or None
        The field with the row's identifier (a string or a whole number); None leaves ``row_ids`` None.
    tag_separator : str or None
        What separates the tags of a field that is one string; None takes lists only.
    errors : {"strict", "skip"}
        What to do with a faulty row: raise :class:`ParseError`, or leave it out and count it in ``n_skipped``.

    Returns
    -------
    LabelledRows
        ``texts``, ``label_names`` in sorted order, ``Y``, and ``row_ids`` if asked for; ``X`` is None. Other
        fields of the objects are ignored.
    """
    if tag_separator is not None:
        _check_tag_separator(tag_separator)
    return _labelled_rows(path, Dialect(text, tags, id=id, tag_separator=tag_separator, format="jsonl"), errors)


def read_csv(
    path: str | os.PathLike[str],
    *,
    text: str = "text",
    tags: str = "tags",
    tag_separator: str = ";",
    delimiter: str | None = None,
    id: str | None = None,
    errors: str = "strict",
) -> LabelledRows:
    """Read texts with tags from a table in UTF-8 with named columns, plain, ``.gz`` or ``.bz2``.

    A field that starts with ``"`` runs to the closing ``"``, may hold delimiters and line breaks, and writes a quote as
    ``""``; elsewhere a quote is an ordinary character. Every record must have as many fields as the header. A repeated
    tag counts once and an empty one (``a;;b``) is ignored, with a warning that says in how many rows.

    Parameters
    ----------
    path : str or path
        The file.
    text, tags : str
        The columns with the text and the tags.
    tag_separator : str
        What separates two tags. Blanks around a tag are removed; an empty field means no tags. ``"JSON"``
        reads JSON lists.
    delimiter : str or None
        One character; None takes a comma for ``.csv`` and a tab for ``.tsv`` (also ``.csv.gz`` and so on).
    id : str or None
        The column with the row's identifier; None leaves ``row_ids`` None.
    errors : {"strict", "skip"}
        What to do with a faulty record: raise :class:`ParseError`, or leave it out, count it in ``n_skipped`` and
        continue with the next line. A faulty header, and a quote that is never closed, are always errors.

    Returns
    -------
    LabelledRows
        ``texts``, ``label_names`` in sorted order, ``Y``, and ``row_ids`` if asked for; ``X`` is None. Other
        columns are ignored.
    """
    separator = _checked_delimiter(path, delimiter)
    _check_tag_separator(tag_separator)
    dialect = Dialect(text, tags, id=id, tag_separator=tag_separator, format="csv", delimiter=separator)
    return _labelled_rows(path, dialect, errors)


def _labelled_rows(path: str | os.PathLike[str], dialect: Dialect, errors: str) -> LabelledRows:
    skip = check_choice(errors, "errors", ("strict", "skip")) == "skip"
    _check_column_names({"text": dialect.text, "tags": dialect.tags, "id": dialect.id})
    texts: list[str] = []
    ids: list[str] | None = None if dialect.id is None else []
    # Tags are numbered as they come, so that memory is that of the matrix plus one copy of each name.
    number_of: defaultdict[str, int] = defaultdict()
    number_of.default_factory = number_of.__len__
    numbers, ends = array("i"), array("q", [0])
    with TableReader(checked_path(path), replace(dialect, skip_faulty=skip), empty_texts=True) as reader:
        for row in reader:
            texts.append(row.text)
            numbers.extend([number_of[tag] for tag in row.tags])
            ends.append(len(numbers))
            if ids is not None and row.id is not None:
                ids.append(row.id)
    changes = reader.changes()
    if reader.null_texts:
        changes.append(f"{counted(reader.null_texts, 'row')} with null for a text; it is read as an empty one.")
    for sentence in changes:
        warn(f"{reader.path}: {sentence}")
    names = sorted(number_of)
    column_of = np.empty(len(names), dtype=np.int32)
    column_of[[number_of[name] for name in names]] = np.arange(len(names))
    ones = np.ones(len(numbers), dtype=np.float32)
    Y = sp.csr_matrix((ones, column_of[np.asarray(numbers)], np.asarray(ends)), shape=(len(texts), len(names)))
    Y.sort_indices()
    return LabelledRows(X=None, Y=Y, label_names=names, texts=texts, row_ids=ids, n_skipped=reader.skipped)


def _check_column_names(names: dict[str, str | None]) -> None:
    """Column names given by the caller: strings, all different."""
    given: list[str] = []
    for argument, name in names.items():
        if name is None and argument == "id":
            continue
        if not isinstance(name, str):
            raise InvalidTypeError(f"{argument} must be the name of a column; found {name!r}.")
        if name in given:
            raise InvalidInputError(f"{argument} names the column {name!r}, which another argument names too.")
        given.append(name)


def _checked_delimiter(path: str | os.PathLike[str], delimiter: str | None) -> str:
    if delimiter is None:
        suffix = suffix_without_compression(checked_path(path))
        if suffix not in (".csv", ".tsv"):
            raise InvalidInputError(
                f"delimiter is None, but the extension {suffix!r} of {os.fspath(path)!r} is neither .csv nor "
                ".tsv; pass delimiter=."
            )
        return "," if suffix == ".csv" else "\t"
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise InvalidInputError(f"delimiter must be one character, no quote and no line break; found {delimiter!r}.")
    return delimiter


def _check_tag_separator(tag_separator: str) -> None:
    if not isinstance(tag_separator, str) or not tag_separator:
        raise InvalidInputError(f"tag_separator must be a non-empty string; found {tag_separator!r}.")


# ---------------------------------------------------------------------- the public writers


def write_jsonl(
    path: str | os.PathLike[str],
    texts: Any,
    Y: Any,
    label_names: Any,
    *,
    row_ids: Any = None,
    text: str = "text",
    tags: str = "tags",
    id: str = "id",
) -> None:
    """Write texts with their tags as JSON lines in UTF-8, atomically.

    Parameters
    ----------
    path : str or path
        The file; compressed if it ends in ``.gz`` or ``.bz2``.
    texts : list of str
        One text per row.
    Y : sparse matrix or array of shape (n, L)
        0/1 labels.
    label_names : list of str
        The tag of each column of ``Y``. A label that no row has is not in the file.
    row_ids : list of str or None
        Identifiers, written to the field ``id``; None writes none.
    text, tags, id : str
        Names of the fields.
    """
    _check_column_names({"text": text, "tags": tags, "id": id})
    rows = _checked_rows(texts, Y, label_names, row_ids)
    with atomic_writer(path) as stream:
        for row_id, row_text, row_tags in rows:
            fields: dict[str, Any] = {} if row_id is None else {id: row_id}
            fields |= {text: row_text, tags: row_tags}
            stream.write((json.dumps(fields, ensure_ascii=False) + "\n").encode())


def write_csv(
    path: str | os.PathLike[str],
    texts: Any,
    Y: Any,
    label_names: Any,
    *,
    row_ids: Any = None,
    text: str = "text",
    tags: str = "tags",
    tag_separator: str = ";",
    delimiter: str | None = None,
    id: str = "id",
) -> None:
    """Write texts with their tags as CSV or TSV in UTF-8, atomically.

    Parameters
    ----------
    path, texts, Y, row_ids, text, tags, id
        As in :func:`write_jsonl`.
    label_names : list of str
        The tag of each column of ``Y``: without ``tag_separator`` and without blanks at the ends, which
        would not read back. A label that no row has is not in the file.
    tag_separator, delimiter : str
        As in :func:`read_csv`.
    """
    _check_column_names({"text": text, "tags": tags, "id": id})
    separator = _checked_delimiter(path, delimiter)
    _check_tag_separator(tag_separator)
    names = _checked_strings(label_names, "label_names")
    rows = _checked_rows(texts, Y, names, row_ids)
    for name in names:  # also of labels that no row has
        join_tags([name], tag_separator, "tag_separator")
    with atomic_writer(path) as stream:
        columns = [text, tags] if row_ids is None else [id, text, tags]
        stream.write(delimited_line(columns, separator))
        for row_id, row_text, row_tags in rows:
            joined = join_tags(row_tags, tag_separator, "tag_separator")
            fields = [row_text, joined] if row_id is None else [row_id, row_text, joined]
            stream.write(delimited_line(fields, separator))


def _checked_rows(texts: Any, Y: Any, label_names: Any, row_ids: Any) -> Iterator[tuple[str | None, str, list[str]]]:
    """Check what a writer was given, then yield identifier, text and tags of each row."""
    text_list = _checked_strings(texts, "texts")
    names = _checked_strings(label_names, "label_names")
    if len(set(names)) < len(names):
        raise InvalidInputError("label_names lists a name twice; a reader could not tell the two labels apart.")
    if any(not name.strip() for name in names):
        raise InvalidInputError("label_names holds an empty name; give every label a name.")
    matrix = check_labels(Y, n_labels=len(names))
    if matrix.shape[0] != len(text_list):
        raise InvalidInputError(f"Y has {matrix.shape[0]:,} rows but texts has {len(text_list):,}; they must match.")
    ids: Sequence[str | None] = [None] * len(text_list)
    if row_ids is not None:
        ids = _checked_strings(row_ids, "row_ids")
        if len(ids) != len(text_list):
            raise InvalidInputError(f"row_ids has {len(ids):,} entries but texts has {len(text_list):,}.")

    def rows() -> Iterator[tuple[str | None, str, list[str]]]:
        for row, (row_id, text) in enumerate(zip(ids, text_list)):
            labels = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].tolist()
            yield row_id, text, [names[label] for label in labels]

    return rows()


def _checked_strings(values: Any, argument: str) -> list[str]:
    """A list of strings that UTF-8 can hold; ``argument`` names it in messages."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidTypeError(f"{argument} must be a list of strings; found {type(values).__name__}.")
    found = list(values)
    for place, value in enumerate(found):
        if not isinstance(value, str):
            raise InvalidTypeError(f"{argument}[{place}] must be a string; found {value!r}.")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError(f"{argument}[{place}] cannot be written as UTF-8: {error.reason}.") from None
    return found
