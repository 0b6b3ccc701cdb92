"""Which columns hold texts and tags, and what stands between two tags: given, or guessed from the first records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tagwise.cli.options import RowOptions
from tagwise.data.formats.jsonl import kind_of
from tagwise.exceptions import InvalidInputError

__all__ = [
    "EVERY_TAG",
    "JSON_LISTS",
    "TAG_NAMES",
    "TEXT_NAMES",
    "Columns",
    "cell_tags",
    "find_columns",
    "has_stray_separator",
]

TEXT_NAMES = (
    "text",
    "texts",
    "body",
    "content",
    "description",
    "abstract",
    "document",
    "message",
    "question",
    "summary",
    "title",
)
TAG_NAMES = ("tags", "labels", "keywords", "subjects", "topics", "categories", "tag", "label", "keyword", "subject")
"""Names that are guessed, in this order; capitals do not matter."""

JSON_LISTS = "JSON"
"""The separator that stands for cells such as ``["a", "b"]``."""

EVERY_TAG = "*"
"""What a cell of the known tags holds where every tag was looked at."""

_SEPARATORS = (";", "|", ",")


@dataclass(frozen=True)
class Columns:
    """Where things are.

    Attributes
    ----------
    text : str
    tags, known, id : str or None
        None where they are not to be read.
    separator : str or None
        Between two tags of a cell; None where tags are lists, and a cell that is none is a fault.
    said : str
        The sentence that tells a person, with what was guessed.
    """

    text: str
    tags: str | None
    known: str | None
    id: str | None
    separator: str | None
    said: str


def find_columns(
    path: str,
    columns: Sequence[str],
    sample: Sequence[dict[str, Any]],
    options: RowOptions,
    *,
    with_tags: bool,
    table: bool,
    note: str = "",
) -> Columns:
    """Decide on columns, from their names and the first records.

    In a ``table`` a cell of tags is text, and what separates them is guessed; elsewhere tags are lists. ``note`` is
    what else is to be said of the file.

    Raises
    ------
    InvalidInputError
        A column that was named is not there, or none looks like what is needed.
    """
    text, text_note = _column(path, columns, options.text, "--text", "texts", TEXT_NAMES)
    parts = [*([note] if note else []), f"texts from {text!r}{text_note}"]
    tags = known = separator = None
    if with_tags:
        rest = [name for name in columns if name != text]
        tags, note = _column(path, rest if options.tags is None else columns, options.tags, "--tags", "tags", TAG_NAMES)
        separator, separator_note = options.tag_separator, ""
        if separator == "":
            raise InvalidInputError("--tag-separator must not be empty.")
        if separator is None and table:
            separator, separator_note = _guessed_separator([record.get(tags) for record in sample])
        parts.append(f"tags from {tags!r}{note}{separator_note}")
        if options.known is not None:
            known, _ = _column(path, columns, options.known, "--known", "", ())
            parts.append(f"tags that were looked at from {known!r}")
    identifier = None
    if options.id is not None:
        identifier, _ = _column(path, columns, options.id, "--id", "", ())
        parts.append(f"identifiers from {identifier!r}")
    used = [name for name in (text, tags, known, identifier) if name is not None]
    if len(set(used)) < len(used):
        twice = next(name for name in used if used.count(name) > 1)
        raise InvalidInputError(f"{path}: the column {twice!r} is named for two things; name a column for each.")
    return Columns(text, tags, known, identifier, separator, f"{path}: {', '.join(parts)}.")


def _column(
    path: str, columns: Sequence[str], given: str | None, option: str, what: str, names: Sequence[str]
) -> tuple[str, str]:
    found = ", ".join(map(repr, columns)) or "none"
    if given is not None:
        if given not in columns:
            raise InvalidInputError(f"{path}: there is no column {given!r} ({option}); columns found: {found:.300}.")
        return given, ""
    by_name = {name.strip().lower(): name for name in reversed(columns)}
    for name in names:
        if name in by_name:
            return by_name[name], " (guessed)"
    raise InvalidInputError(
        f"{path}: no column looks like one of {what}; name it with {option}. Columns found: {found:.300}."
    )


def _guessed_separator(cells: list[Any]) -> tuple[str | None, str]:
    texts = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
    if any(isinstance(cell, (list, tuple)) for cell in cells):  # Parquet has lists of its own
        return None, ""
    if texts and all(_json_list(cell) is not None for cell in texts):
        return JSON_LISTS, ", as JSON lists (guessed)"
    for separator in _SEPARATORS:
        if any(separator in cell for cell in texts):
            return separator, f", separated by {separator!r} (guessed)"
    return _SEPARATORS[0], f", separated by {_SEPARATORS[0]!r} (guessed; the first rows hold none)"


def _json_list(cell: str) -> list[Any] | None:
    try:
        value = json.loads(cell) if cell.lstrip().startswith("[") else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def cell_tags(value: Any, column: str, separator: str | None) -> list[str]:
    """The tags of a cell: a list, or text that the separator splits; an empty text is no tags.

    Raises
    ------
    ValueError
        With the sentence of what is wrong with the cell.
    """
    if isinstance(value, str) and separator is not None:
        value = _split(value, column, separator)
    if isinstance(value, str):
        raise ValueError(
            f"the column {column!r} must be a list of tags; found the text {value[:40]!r}. If it holds several tags, "
            'say what stands between them with --tag-separator, such as ";"'
        )
    if not isinstance(value, (list, tuple)):
        none = "; write [] where a row has no tags" if value is None else ""
        raise ValueError(f"the column {column!r} must be a list of tags; found {kind_of(value)}{none}")
    for tag in value:
        if not isinstance(tag, str):
            raise ValueError(f"the column {column!r} must hold tags as text, in quotes; found {kind_of(tag)}")
        if not tag.strip():
            raise ValueError(f"the column {column!r} holds an empty tag; name it, or remove it")
    return list(value)


def _split(cell: str, column: str, separator: str) -> list[Any]:
    if not cell.strip():
        return []
    if separator == JSON_LISTS:
        listed = _json_list(cell)
        if listed is None:
            raise ValueError(f"the column {column!r} must hold JSON lists of tags; found {cell[:40]!r}")
        return listed
    return [tag.strip() for tag in cell.split(separator) if tag.strip()]


def has_stray_separator(value: Any, separator: str | None) -> bool:
    """Whether a cell has a separator without a tag on either side, as in ``"a;;b"`` and ``"a;"``."""
    if not isinstance(value, str) or separator is None or separator == JSON_LISTS or separator not in value:
        return False
    return not all(part.strip() for part in value.split(separator))
