"""Texts with tags in JSON lines, CSV and TSV, as :class:`LabelledRows`: the library's readers and writers."""

from __future__ import annotations

import json
import os
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.data.columns import JSON_LISTS, join_tags
from tagwise.data.dialects import Dialect
from tagwise.data.labelled_rows import LabelledRows
from tagwise.data.records import delimited_line, needs_quotes
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
        What separates the tags of a field that is one string; None takes lists only.
    encoding : str or None
        Name of the file's encoding; None is UTF-8.
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
    _check_columns(text, tags, id)
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
    text, tags : str or sequence of str
        The columns with the text and the tags. Texts of several columns are joined, one per line, and tags of several
        columns put together.
    tag_separator : str
        What separates two tags. Blanks around a tag are removed; an empty field means no tags. ``"JSON"``
        reads JSON lists, ``"URI"`` addresses between blanks.
    delimiter : str or None
        One character; None takes a comma for ``.csv`` and a tab for ``.tsv`` (also ``.csv.gz`` and so on).
    id : str or None
        The column with the row's identifier; None leaves ``row_ids`` None.
    quoting : {"auto", "none", "standard"}
        ``"standard"``: a field that starts with ``"`` runs to the closing ``"``, may hold delimiters and line breaks,
        and writes a quote as ``""``; elsewhere a quote is an ordinary character. ``"none"``: quotes are text, and every
        line is a row. ``"auto"`` is standard, but for tabs as delimiters only where the first lines hold a quote that
        opens and closes a field.
    header : bool
        Whether the first line names the columns; otherwise they are ``"1"``, ``"2"`` and so on.
    encoding : str or None
        Name of the file's encoding; None is UTF-8.
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
    _check_columns(text, tags, id)
    table: dict[str, Any] = {"delimiter": separator, "quoting": quoting, "header": header, "encoding": encoding}
    dialect = Dialect(text, tags, id=id, tag_separator=tag_separator, format="csv", **table)
    return _labelled_rows(path, dialect, errors)


def _labelled_rows(path: str | os.PathLike[str], dialect: Dialect, errors: str) -> LabelledRows:
    skip = check_choice(errors, "errors", ("strict", "skip")) == "skip"
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


def _check_columns(text: Any, tags: Any, id: Any) -> None:
    """Columns to be read, of which text and tags may be several."""
    for argument, names in (("text", text), ("tags", tags)):
        if isinstance(names, (list, tuple)):
            _check_column_names({f"{argument}[{place}]": name for place, name in enumerate(names)})
    both = {"text": text, "tags": tags, "id": id}
    _check_column_names({name: value for name, value in both.items() if not isinstance(value, (list, tuple))})


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
    strings = _checked_strings(texts, "texts")
    ids = None if row_ids is None else _checked_strings(row_ids, "row_ids")
    rows = _checked_rows(strings, Y, names, ids)
    for name in names:  # also of labels that no row has
        join_tags([name], tag_separator, "tag_separator")
    with atomic_writer(path) as stream:
        columns = [text, tags] if row_ids is None else [id, text, tags]
        in_quotes = separator == "\t" and (
            tag_separator == JSON_LISTS
            or any(needs_quotes(field, separator) for field in [*names, *strings, *(ids or ())])
        )
        stream.write(delimited_line(columns, separator, all_quoted=in_quotes))
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
