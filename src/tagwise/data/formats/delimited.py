"""CSV and TSV: a table with a text column and a tags column."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from tagwise.data.formats.jsonl import check_field_names
from tagwise.data.formats.labelled_rows import LabelledRows
from tagwise.data.formats.streams import (
    ByteSource,
    DamagedStreamError,
    atomic_writer,
    decode_line,
    suffix_without_compression,
)
from tagwise.data.formats.tag_rows import TagCollector, checked_strings, checked_text_rows
from tagwise.exceptions import InvalidInputError, ParseError
from tagwise.validation import check_choice

__all__ = ["Records", "UnclosedQuoteError", "read_csv", "record_text", "write_csv"]

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


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

    A field that starts with ``"`` runs to the closing ``"``, may hold delimiters and line breaks, and writes
    a quote as ``""``; elsewhere a quote is an ordinary character. Every record must have as many fields as
    the header.

    Parameters
    ----------
    path : str or path
        The file.
    text, tags : str
        The columns with the text and the tags.
    tag_separator : str
        What stands between two tags. Blanks around a tag are removed; an empty field means no tags.
    delimiter : str or None
        One character; None takes a comma for ``.csv`` and a tab for ``.tsv`` (also ``.csv.gz`` and so on).
    id : str or None
        The column with the row's identifier; None leaves ``row_ids`` None.
    errors : {"strict", "skip"}
        What to do with a faulty record: raise :class:`ParseError`, or leave it out, count it in
        ``n_skipped`` and go on with the next line. A faulty header, and a quote that is never closed, are
        always errors.

    Returns
    -------
    LabelledRows
        ``texts``, ``label_names`` in sorted order, ``Y``, and ``row_ids`` if asked for; ``X`` is None. Other
        columns are left aside.
    """
    skip = check_choice(errors, "errors", ("strict", "skip")) == "skip"
    check_field_names({"text": text, "tags": tags, "id": id})
    separator = _check_separators(path, delimiter, tag_separator)
    collector = TagCollector()
    texts: list[str] = []
    ids: list[str] = []
    n_skipped = 0
    with ByteSource(path) as source:
        records = Records(source, separator)
        header = records.next_record()
        if header is None:
            raise ParseError(source.path, 0, 0, "the file is empty; the first line must name the columns")
        text_place, tags_place = _place(source, header, text), _place(source, header, tags)
        id_place = None if id is None else _place(source, header, id)
        while True:
            try:
                record = records.next_record()
                if record is None:
                    break
                row_tags = _check_record(source, records.start, record, len(header), tags_place, tag_separator)
            except (UnclosedQuoteError, DamagedStreamError):
                raise
            except ParseError:
                if not skip:
                    raise
                n_skipped += 1
                continue
            texts.append(record[text_place])
            collector.add(row_tags)
            if id_place is not None:
                ids.append(record[id_place])
        if not texts and not n_skipped:
            raise ParseError(source.path, source.line, 0, "the file holds no rows behind the header")
    names, Y = collector.finish()
    row_ids = None if id is None else ids
    return LabelledRows(X=None, Y=Y, label_names=names, texts=texts, row_ids=row_ids, n_skipped=n_skipped)


class UnclosedQuoteError(ParseError):
    """Raised even when skipping: all the rest of the file would be lost with the record."""


class Records:
    """Splits lines into records; ``start`` is the first line of the last record."""

    def __init__(self, source: ByteSource, delimiter: str) -> None:
        self.source = source
        self.delimiter = delimiter
        self.start = 0
        self._lines: Iterator[bytes] = source.lines()

    def next_record(self) -> list[str] | None:
        """The fields of the next record; None at the end of the file."""
        raw = next(self._lines, None)
        if raw is None:
            return None
        self.start = self.source.line
        line = decode_line(self.source.path, self.source.line, raw)
        if not line:
            raise ParseError(self.source.path, self.start, 0, "the line is empty")
        if '"' not in line:
            return line.split(self.delimiter)
        return self._quoted_record(line, raw)

    def _quoted_record(self, line: str, raw: bytes) -> list[str]:
        fields: list[str] = []
        position = 0
        while True:
            if line.startswith('"', position):
                field, line, raw, position = self._quoted_field(line, raw, position)
                fields.append(field)
                if position < len(line) and line[position] != self.delimiter:
                    raise ParseError(
                        self.source.path,
                        self.source.line,
                        len(line[:position].encode()) + 1,
                        f"expected {self.delimiter!r} behind the closing quote; found {line[position]!r}",
                    )
            else:
                stop = line.find(self.delimiter, position)
                stop = len(line) if stop < 0 else stop
                fields.append(line[position:stop])
                position = stop
            if position >= len(line):
                return fields
            position += 1

    def _quoted_field(self, line: str, raw: bytes, position: int) -> tuple[str, str, bytes, int]:
        """The field whose quote opens at ``position``, the line where it closes and the place behind it."""
        opened_line, opened_column = self.source.line, len(line[:position].encode()) + 1
        parts: list[str] = []
        position += 1
        while True:
            quote = line.find('"', position)
            if quote < 0:
                # Inside quotes the line break belongs to the field, in the form that it has in the file.
                parts.append(line[position:] + ("\r\n" if raw.endswith(b"\r\n") else "\n"))
                following = next(self._lines, None)
                if following is None:
                    raise UnclosedQuoteError(
                        self.source.path, opened_line, opened_column, "the quote opened here is never closed"
                    )
                raw, position = following, 0
                line = decode_line(self.source.path, self.source.line, raw)
            elif line.startswith('"', quote + 1):
                parts.append(line[position : quote + 1])
                position = quote + 2
            else:
                parts.append(line[position:quote])
                return "".join(parts), line, raw, quote + 1


def _check_separators(path: str | os.PathLike[str], delimiter: str | None, tag_separator: str) -> str:
    if delimiter is None:
        suffix = suffix_without_compression(path)
        if suffix not in _DELIMITERS:
            raise InvalidInputError(
                f"delimiter is None, but the extension {suffix!r} of {os.fspath(path)!r} is neither .csv nor "
                ".tsv; pass delimiter=."
            )
        delimiter = _DELIMITERS[suffix]
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise InvalidInputError(f"delimiter must be one character, no quote and no line break; found {delimiter!r}.")
    if not isinstance(tag_separator, str) or not tag_separator:
        raise InvalidInputError(f"tag_separator must be a non-empty string; found {tag_separator!r}.")
    return delimiter


def _place(source: ByteSource, header: list[str], column: str) -> int:
    count = header.count(column)
    if count == 1:
        return header.index(column)
    found = ", ".join(map(repr, header))
    problem = "is missing" if count == 0 else f"occurs {count} times"
    raise ParseError(source.path, 1, 0, f"the column {column!r} {problem}; columns found: {found[:300]}")


def _check_record(
    source: ByteSource, line: int, record: list[str], n_columns: int, tags_place: int, tag_separator: str
) -> list[str]:
    if len(record) != n_columns:
        raise ParseError(
            source.path,
            line,
            0,
            f"the record has {len(record)} fields, but the header names {n_columns} columns",
        )
    field = record[tags_place]
    if not field.strip():
        return []
    tags = [tag.strip() for tag in field.split(tag_separator)]
    if "" in tags:
        raise ParseError(source.path, line, 0, f"the tags {field[:60]!r} hold an empty tag")
    if len(set(tags)) < len(tags):
        twice = next(tag for tag in tags if tags.count(tag) > 1)
        raise ParseError(source.path, line, 0, f"the tag {twice[:40]!r} is listed twice in this row")
    return tags


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
    path : str or path
        The file; compressed if it ends in ``.gz`` or ``.bz2``.
    texts : list of str
        One text a row.
    Y : sparse matrix or array of shape (n, L)
        0/1 labels.
    label_names : list of str
        The tag of each column of ``Y``: without ``tag_separator`` and without blanks at the ends, which
        would not read back. A label that no row has is not in the file.
    row_ids : list of str or None
        Identifiers, written to the column ``id``; None writes none.
    text, tags, id : str
        Names of the columns.
    tag_separator, delimiter : str
        As in :func:`read_csv`.
    """
    check_field_names({"text": text, "tags": tags, "id": id})
    separator = _check_separators(path, delimiter, tag_separator)
    names = checked_strings(label_names, "label_names")
    rows = checked_text_rows(texts, Y, names, row_ids)
    for name in names:
        if tag_separator in name or name != name.strip():
            raise InvalidInputError(
                f"label_names holds {name!r}, which holds the tag separator {tag_separator!r} or has "
                "blanks at its ends; pass another tag_separator or rename the label."
            )
    with atomic_writer(path) as stream:
        columns = [text, tags] if row_ids is None else [id, text, tags]
        stream.write(record_text(columns, separator).encode())
        for row_id, row_text, row_tags in rows:
            joined = tag_separator.join(row_tags)
            if row_tags and joined.split(tag_separator) != row_tags:
                # The end of a tag and the start of a longer separator can look like the separator.
                raise InvalidInputError(
                    f"tag_separator {tag_separator!r} does not separate {row_tags!r}; pass another one."
                )
            fields = [row_text, joined] if row_id is None else [row_id, row_text, joined]
            stream.write(record_text(fields, separator).encode())


def record_text(fields: list[str], delimiter: str) -> str:
    """A record as a line, with quotes where they are needed."""
    special = ('"', "\n", "\r", delimiter)
    texts = [
        '"' + field.replace('"', '""') + '"' if any(letter in field for letter in special) else field
        for field in fields
    ]
    return delimiter.join(texts) + "\n"
