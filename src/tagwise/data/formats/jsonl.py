"""JSON lines: an object with a text and a list of tags per line."""

from __future__ import annotations

import json
import os
from typing import Any

from tagwise.data.formats.labelled_rows import LabelledRows
from tagwise.data.formats.streams import ByteSource, atomic_writer, decode_line
from tagwise.data.formats.tag_rows import TagCollector, TextRow, checked_text_rows
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ParseError
from tagwise.validation import check_choice

__all__ = ["json_object", "kind_of", "read_jsonl", "write_jsonl"]


def read_jsonl(
    path: str | os.PathLike[str],
    *,
    text: str = "text",
    tags: str = "tags",
    id: str | None = None,
    errors: str = "strict",
) -> LabelledRows:
    """Read texts with tags from a file with one JSON object per line, in UTF-8, plain, ``.gz`` or ``.bz2``.

    Parameters
    ----------
    path : str or path
        The file.
    text, tags : str
        The fields with the text (a string) and the tags (a list of different, non-empty strings).
    id : str or None
        The field with the row's identifier (a string or a whole number); None leaves ``row_ids`` None.
    errors : {"strict", "skip"}
        What to do with a faulty row: raise :class:`ParseError`, or leave it out and count it in
        ``n_skipped``.

    Returns
    -------
    LabelledRows
        ``texts``, ``label_names`` in sorted order, ``Y``, and ``row_ids`` if asked for; ``X`` is None. Other
        fields of the objects are left aside.
    """
    skip = check_choice(errors, "errors", ("strict", "skip")) == "skip"
    check_field_names({"text": text, "tags": tags, "id": id})
    collector = TagCollector()
    texts: list[str] = []
    ids: list[str] = []
    n_skipped = 0
    with ByteSource(path) as source:
        for raw in source.lines():
            try:
                row_id, row_text, row_tags = _parse(source, raw, text, tags, id)
            except ParseError:
                if not skip:
                    raise
                n_skipped += 1
                continue
            texts.append(row_text)
            collector.add(row_tags)
            if row_id is not None:
                ids.append(row_id)
        if source.line == 0:
            raise ParseError(source.path, 0, 0, "the file holds no rows")
    names, Y = collector.finish()
    row_ids = None if id is None else ids
    return LabelledRows(X=None, Y=Y, label_names=names, texts=texts, row_ids=row_ids, n_skipped=n_skipped)


class _RepeatedField(Exception):
    pass


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedField(next(name for name in names if names.count(name) > 1))
    return fields


def json_object(path: str, number: int, raw: bytes) -> dict[str, Any]:
    """The object that a line of a file holds; raises ParseError where it holds anything else."""

    def fault(reason: str, column: int = 0) -> ParseError:
        return ParseError(path, number, column, reason)

    line = decode_line(path, number, raw)
    if not line.strip():
        raise fault("the line is empty; every line must hold a JSON object")
    try:
        fields = json.loads(line, object_pairs_hook=_unique_fields)
    except json.JSONDecodeError as error:
        raise fault(f"invalid JSON: {error.msg}", len(line[: error.pos].encode()) + 1) from None
    except _RepeatedField as error:
        raise fault(f"the field {str(error)[:40]!r} occurs twice in one object") from None
    except RecursionError:
        raise fault("invalid JSON: nested too deeply") from None
    except ValueError as error:
        # The interpreter limits how many digits it turns into a whole number.
        raise fault(f"invalid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise fault(f"every line must hold a JSON object; found {kind_of(fields)}")
    return fields


def _parse(source: ByteSource, raw: bytes, text: str, tags: str, id: str | None) -> TextRow:
    def fault(reason: str, column: int = 0) -> ParseError:
        return ParseError(source.path, source.line, column, reason)

    fields = json_object(source.path, source.line, raw)
    wanted = [text, tags] if id is None else [text, tags, id]
    for name in wanted:
        if name not in fields:
            found = ", ".join(map(repr, fields)) or "none"
            raise fault(f"the field {name!r} is missing; fields found: {found[:200]}")
    row_text, row_tags = fields[text], fields[tags]
    if not isinstance(row_text, str):
        raise fault(f"the field {text!r} must be a string; found {kind_of(row_text)}")
    if not isinstance(row_tags, list):
        raise fault(f"the field {tags!r} must be a list of strings; found {kind_of(row_tags)}")
    for tag in row_tags:
        if not isinstance(tag, str):
            raise fault(f"the field {tags!r} must hold strings only; found {kind_of(tag)}")
        if not tag:
            raise fault(f"the field {tags!r} holds an empty tag")
    if len(set(row_tags)) < len(row_tags):
        twice = next(tag for tag in row_tags if row_tags.count(tag) > 1)
        raise fault(f"the tag {twice[:40]!r} is listed twice in this row")
    row_id = None
    if id is not None:
        value = fields[id]
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise fault(f"the field {id!r} must be a string or a whole number; found {kind_of(value)}")
        row_id = _id_text(value, id, fault)
    try:
        "".join([row_text, row_id or "", *row_tags]).encode()
    except UnicodeEncodeError:
        raise fault("a string holds half of a surrogate pair, which is no character") from None
    return row_id, row_text, row_tags


def _id_text(value: str | int, field: str, fault: Any) -> str:
    try:
        return str(value)
    except ValueError:
        raise fault(f"the field {field!r} holds a number with too many digits") from None


def kind_of(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return {str: "a string", int: "a number", float: "a number", list: "a list"}.get(type(value), "an object")


def check_field_names(names: dict[str, str | None]) -> None:
    """Field or column names given by the caller: strings, all different."""
    given: list[str] = []
    for argument, name in names.items():
        if name is None and argument == "id":
            continue
        if not isinstance(name, str):
            raise InvalidTypeError(f"{argument} must be the name of a field; found {name!r}.")
        if name in given:
            raise InvalidInputError(f"{argument} names the field {name!r}, which another argument names too.")
        given.append(name)


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
        One text a row.
    Y : sparse matrix or array of shape (n, L)
        0/1 labels.
    label_names : list of str
        The tag of each column of ``Y``. A label that no row has is not in the file.
    row_ids : list of str or None
        Identifiers, written to the field ``id``; None writes none.
    text, tags, id : str
        Names of the fields.
    """
    check_field_names({"text": text, "tags": tags, "id": id})
    rows = checked_text_rows(texts, Y, label_names, row_ids)
    with atomic_writer(path) as stream:
        for row_id, row_text, row_tags in rows:
            fields: dict[str, Any] = {} if row_id is None else {id: row_id}
            fields |= {text: row_text, tags: row_tags}
            stream.write((json.dumps(fields, ensure_ascii=False) + "\n").encode())
