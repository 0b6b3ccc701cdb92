"""Texts with tags in JSON lines, CSV and TSV, as :class:`LabelledRows`: the library's readers and writers."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.data.columns import Dialect, join_tags
from tagwise.data.formats import FORMATS
from tagwise.data.labelled_rows import LabelledRows, checked_strings
from tagwise.data.streams import atomic_writer, checked_path, suffix_without_compression
from tagwise.data.tables import TableReader
from tagwise.exceptions import InvalidInputError, InvalidTypeError, warn
from tagwise.progress import counted
from tagwise.validation import check_choice, check_labels

__all__ = ["read_csv", "read_jsonl", "write_csv", "write_jsonl"]


def read_jsonl(
    path: str | os.PathLike[str],
    *,
    text: str | Sequence[str] = "text",
    tags: str | Sequence[str] = "tags",
    id: str | None = None,
    tag_separator: str | None = None,
    encoding: str | None = None,
    errors: str = "strict",
) -> LabelledRows:
    """Read texts with tags from a file with one JSON object per line, plain, ``.gz`` or ``.bz2``.

    A repeated tag counts once and an empty one is ignored, with a warning that says in how many rows.

    Parameters
    ----------
    path : str or path
        The file.
    text, tags : str or sequence of str
        The fields with the text (a string) and the tags (a list of strings). Texts of several fields are joined, one
        per line, and tags of several fields put together.
    id : str or None
        The field with the row's identifier (a string or a whole number); None leaves ``row_ids`` None.
    tag_separator : str or None
        Separator of the tags of a field that is one string; None takes lists only.
    encoding : str or None
        Name of the file's encoding; None is UTF-8.
    errors : {"strict", "skip"}
        Treatment of a faulty row: raise :class:`ParseError`, or leave it out and count it in ``n_skipped``.

    Returns
    -------
    LabelledRows
        ``texts``, ``label_names`` in sorted order, ``Y``, and ``row_ids`` if asked for; ``X`` is None. Other
        fields of the objects are ignored.
    """
    dialect = Dialect(text, tags, id=id, tag_separator=tag_separator, group_by="", format="jsonl", encoding=encoding)
    return _labelled_rows(path, dialect, errors)


def read_csv(
    path: str | os.PathLike[str],
    *,
    text: str | Sequence[str] = "text",
    tags: str | Sequence[str] = "tags",
    tag_separator: str = ";",
    delimiter: str | None = None,
    id: str | None = None,
    quoting: str = "auto",
    header: bool = True,
    encoding: str | None = None,
    errors: str = "strict",
) -> LabelledRows:
    """Read texts with tags from a table, plain, ``.gz`` or ``.bz2``.

    Every record must have as many fields as the first line. A repeated tag counts once and an empty one (``a;;b``) is
    ignored, with a warning that says in how many rows. :func:`~tagwise.data.read_table` reads more kinds of tables, and
    guesses what is not given.

    Parameters
    ----------
    path : str or path
        The file.
    text, tags, id, encoding, errors
        Columns and the rest as of :func:`read_jsonl`. A faulty header, and a quote that is never closed, are always
        errors.
    tag_separator : str
        Separator of tags. Blanks around a tag are removed; an empty field means no tags. ``"JSON"``
        reads JSON lists, ``"URI"`` addresses between blanks.
    delimiter : str or None
        One character; None takes a comma for ``.csv`` and a tab for ``.tsv`` (also ``.csv.gz`` and so on).
    quoting : {"auto", "none", "standard"}
        Meaning of quotes, as of :class:`Dialect`.
    header : bool
        Whether the first line names the columns; otherwise they are ``"1"``, ``"2"`` and so on.

    Returns
    -------
    LabelledRows
        As of :func:`read_jsonl`.
    """
    dialect = Dialect(
        text,
        tags,
        id=id,
        tag_separator=tag_separator,
        format="csv",
        delimiter=_checked_delimiter(path, delimiter),
        quoting=quoting,
        header=header,
        encoding=encoding,
    )
    return _labelled_rows(path, dialect, errors)


def _labelled_rows(path: str | os.PathLike[str], dialect: Dialect, errors: str) -> LabelledRows:
    skip = check_choice(errors, "errors", ("strict", "skip")) == "skip"
    if not all(isinstance(getattr(dialect, name), (str, list, tuple)) for name in ("text", "tags")):
        raise InvalidTypeError("text and tags must be the names of columns; read_table guesses them.")
    texts: list[str] = []
    ids: list[str] = []
    # Tags are numbered as they come, so that memory is that of the matrix plus one copy of each name.
    number_of: dict[str, int] = {}
    numbers, ends = array("i"), array("q", [0])
    with TableReader(checked_path(path), replace(dialect, skip_faulty=skip), empty_texts=True) as reader:
        for row in reader:
            texts.append(row.text)
            numbers.extend([number_of.setdefault(tag, len(number_of)) for tag in row.tags])
            ends.append(len(numbers))
            if row.id is not None:
                ids.append(row.id)
    tally = reader.tally()
    for sentence in tally.changes():
        warn(f"{reader.path}: {sentence}")
    if tally.null_texts:
        warn(f"{reader.path}: {counted(tally.null_texts, 'row')} with null for a text; it is read as an empty one.")
    names = sorted(number_of)
    column_of = np.empty(len(names), dtype=np.int32)
    column_of[[number_of[name] for name in names]] = np.arange(len(names))
    ones = np.ones(len(numbers), dtype=np.float32)
    Y = sp.csr_matrix((ones, column_of[np.asarray(numbers)], np.asarray(ends)), shape=(len(texts), len(names)))
    Y.sort_indices()
    row_ids = None if dialect.id is None else ids
    return LabelledRows(X=None, Y=Y, label_names=names, texts=texts, row_ids=row_ids, n_skipped=tally.skipped)


def _checked_delimiter(path: str | os.PathLike[str], delimiter: str | None) -> str:
    if delimiter is None:
        suffix = suffix_without_compression(checked_path(path))
        for entry in FORMATS.values():
            if entry.delimiter and suffix in entry.endings:
                return entry.delimiter
        raise InvalidInputError(
            f"delimiter is None, but the extension {suffix!r} of {os.fspath(path)!r} is neither .csv nor .tsv; pass "
            "delimiter=."
        )
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise InvalidInputError(f"delimiter must be one character, no quote and no line break; found {delimiter!r}.")
    return delimiter


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
    rows = _checked_rows(texts, Y, label_names, row_ids, (text, tags, id))
    with atomic_writer(path) as stream:
        for *row_id, row_text, row_tags in rows:
            fields = {id: row_id[0]} if row_id else {}
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
    separator = _checked_delimiter(path, delimiter)
    rows = _checked_rows(texts, Y, label_names, row_ids, (text, tags, id))
    if not tag_separator:
        raise InvalidInputError("tag_separator must not be empty.")
    for name in label_names:  # also of labels that no row has
        join_tags([name], tag_separator, "tag_separator")
    lines = [[*fields, join_tags(row_tags, tag_separator, "tag_separator")] for *fields, row_tags in rows]

    def needs_quotes(field: str) -> bool:
        return any(mark in field for mark in ('"', "\n", "\r", separator))

    def line_of(fields: list[str], all_quoted: bool = False) -> bytes:
        # Not csv.writer: until Python 3.13 it leaves a lone carriage return without quotes.
        written = [
            '"' + field.replace('"', '""') + '"' if all_quoted or needs_quotes(field) else field for field in fields
        ]
        return (separator.join(written) + "\n").encode()

    with atomic_writer(path) as stream:
        columns = [text, tags] if row_ids is None else [id, text, tags]
        # Where a TSV has quotes anywhere, its header shows readers what they mean.
        in_quotes = separator == "\t" and any(needs_quotes(field) for fields in lines for field in fields)
        stream.write(line_of(columns, in_quotes))
        stream.writelines(map(line_of, lines))


def _checked_rows(
    texts: Any, Y: Any, label_names: Any, row_ids: Any, columns: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    """Identifier (if there are any), text and tags of each row, checked, as are the names of the columns."""
    if len(set(columns)) < len(columns):
        raise InvalidInputError(f"text, tags and id must name different columns; found {columns}.")
    lists = [] if row_ids is None else [checked_strings(row_ids, "row_ids")]
    lists.append(checked_strings(texts, "texts"))
    names = checked_strings(label_names, "label_names")
    if len(set(names)) < len(names):
        raise InvalidInputError("label_names lists a name twice; a reader could not tell the two labels apart.")
    if any(not name.strip() for name in names):
        raise InvalidInputError("label_names holds an empty name; give every label a name.")
    matrix = check_labels(Y, n_labels=len(names))
    if any(len(listed) != matrix.shape[0] for listed in lists):
        raise InvalidInputError(
            f"Y has {matrix.shape[0]:,} rows, but texts (and row_ids) have {[len(listed) for listed in lists]}."
        )
    ends = matrix.indptr.tolist()
    tags = [[names[label] for label in matrix.indices[start:end].tolist()] for start, end in pairwise(ends)]
    return list(zip(*lists, tags))
