"""Which columns hold texts and tags, and what separates two tags: given, or guessed from the first records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tagwise.data.records import Records, kind_of
from tagwise.exceptions import InvalidInputError, ParseError

__all__ = [
    "EVERY_TAG",
    "JSON_LISTS",
    "TAG_NAMES",
    "TEXT_NAMES",
    "Columns",
    "Dialect",
    "TagCell",
    "find_columns",
    "join_tags",
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
class Dialect:
    """How to read a table. What is None is guessed where it is needed; ``known`` and ``id`` are read only if given.

    Attributes
    ----------
    text, tags, known, id : str or None
        Names of columns: the text, its tags, the tags that were looked at, the row's identifier.
    tag_separator : str or None
        What separates two tags of a cell; ``"JSON"`` for JSON lists.
    format : str
        ``"jsonl"``, ``"csv"``, ``"tsv"``, ``"parquet"``, ``"text"``, or ``"auto"`` to go by the ending of the name.
    delimiter : str or None
        What separates the columns of a CSV or TSV file.
    skip_faulty : bool
        Leave faulty rows out and count them, instead of stopping at the first one.
    flags : bool
        Whether messages name flags of the command line (``--text``) instead of Python's arguments (``text=``).
    """

    text: str | None = None
    tags: str | None = None
    known: str | None = None
    id: str | None = None
    tag_separator: str | None = None
    format: str = "auto"
    delimiter: str | None = None
    skip_faulty: bool = False
    flags: bool = False

    def option(self, name: str) -> str:
        """A field as messages name it."""
        if self.flags:
            return "--" + name.replace("_", "-")
        return 'errors="skip"' if name == "skip_faulty" else f"{name}="


@dataclass(frozen=True)
class Columns:
    """Where things are; None is not to be read."""

    text: str
    tags: str | None = None
    known: str | None = None
    id: str | None = None
    separator: str | None = None  # of two tags of a cell; None where tags must be lists
    guesses: tuple[str, ...] = ()  # each as it follows the word "guessed"


def find_columns(
    records: Records, sample: Sequence[dict[str, Any]], dialect: Dialect, *, with_tags: bool, is_table: bool
) -> Columns:
    """Decide on columns, from their names and the first records.

    In a table a cell of tags is text, and its separator is guessed; elsewhere tags are lists unless one is given.
    """
    names = records.columns
    if names is None:
        names = list(dict.fromkeys(name for record in sample for name in record))
    guesses = [] if records.guess is None else [records.guess]
    text, guessed = _column(records, names, dialect, "text", TEXT_NAMES)
    if guessed and len(names) > 1:  # where there is but one column, nothing is guessed
        guesses.append(f"column `{text}` for texts")
    tags = known = identifier = separator = None
    if with_tags:
        rest = [name for name in names if name != text or dialect.tags is not None]
        tags, guessed = _column(records, rest, dialect, "tags", TAG_NAMES)
        if guessed:
            guesses.append(f"column `{tags}` for tags")
        separator = dialect.tag_separator
        if separator == "":
            raise InvalidInputError(f"{dialect.option('tag_separator')} must not be empty.")
        if separator is None and is_table:
            separator, guess = _guessed_separator([record.get(tags) for record in sample])
            guesses += [guess] if guess else []
        if dialect.known is not None:
            known, _ = _column(records, names, dialect, "known", ())
    if dialect.id is not None:
        identifier, _ = _column(records, names, dialect, "id", ())
    used = [name for name in (text, tags, known, identifier) if name is not None]
    if len(set(used)) < len(used):
        twice = next(name for name in used if used.count(name) > 1)
        raise InvalidInputError(
            f"{records.path}: the column {twice!r} is named for two things; name a column for each."
        )
    return Columns(text, tags, known, identifier, separator, tuple(guesses))


def _column(
    records: Records, names: Sequence[str], dialect: Dialect, what: str, usual: Sequence[str]
) -> tuple[str, bool]:
    """The column of ``what``, and whether it was guessed."""
    found = ", ".join(map(repr, names)) or "none"
    option = dialect.option(what)
    name = getattr(dialect, what)
    if name is None:
        by_name = {name.strip().lower(): name for name in reversed(names)}
        name = next((by_name[usual_name] for usual_name in usual if usual_name in by_name), None)
        if name is None:
            raise InvalidInputError(
                f"{records.path}: no column looks like one of {what if what == 'tags' else 'texts'}; name it with "
                f"{option}. Columns found: {found:.300}."
            )
    elif records.columns is not None and name not in names:
        raise ParseError(records.path, 1, 0, f"the column {name!r} is missing ({option}); columns found: {found:.300}")
    if names.count(name) > 1:
        raise ParseError(
            records.path, 1, 0, f"the column {name!r} occurs {names.count(name)} times; columns found: {found:.300}"
        )
    return name, getattr(dialect, what) is None


def _guessed_separator(cells: list[Any]) -> tuple[str | None, str]:
    texts = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
    if any(isinstance(cell, (list, tuple)) for cell in cells):  # Parquet has lists of its own
        return None, ""
    if texts and all(_json_list(cell) is not None for cell in texts):
        return JSON_LISTS, "JSON lists of tags"
    for separator in _SEPARATORS:
        if any(separator in cell for cell in texts):
            return separator, f"{separator!r} between tags"
    return _SEPARATORS[0], f"{_SEPARATORS[0]!r} between tags (none in the first rows)"


def _json_list(cell: str) -> list[Any] | None:
    try:
        value = json.loads(cell) if cell.lstrip().startswith("[") else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


class TagCell(NamedTuple):
    """The tags of one cell: different ones, none of them empty."""

    tags: list[str]
    has_repeats: bool  # a tag is listed twice; it counts once
    has_empty: bool  # as in ``a;;b`` and ``a;``; it is ignored. An empty cell has no tags, not an empty one

    @classmethod
    def parse(cls, value: Any, column: str | None, separator: str | None, option: str) -> TagCell:
        """Read a cell: a list of strings, or a text that the separator splits; a ValueError says what is wrong."""
        if not isinstance(value, str) or separator is None or separator == JSON_LISTS:
            listed = _checked_list(value, column, separator, option)
        else:
            listed = list(map(str.strip, value.split(separator))) if value.strip() else []
        filled = list(filter(str.strip, listed))
        tags = list(dict.fromkeys(filled))
        return cls(tags, len(tags) < len(filled), len(filled) < len(listed))


def _checked_list(value: Any, column: str | None, separator: str | None, option: str) -> Sequence[str]:
    """The strings of a list, which a text holds as JSON where the separator says so."""
    if isinstance(value, str) and separator == JSON_LISTS:
        cell = value
        value = _json_list(cell) if cell.strip() else []
        if value is None:
            raise ValueError(f"the column {column!r} must hold JSON lists of tags; found {cell[:40]!r}")
    if isinstance(value, str):
        raise ValueError(
            f"the column {column!r} must be a list of strings; found a string, {value[:40]!r}. If it holds several "
            f'tags, name what separates them with {option}, such as ";"'
        )
    if not isinstance(value, (list, tuple)):
        none = "; write [] where a row has no tags" if value is None else ""
        raise ValueError(f"the column {column!r} must be a list of strings; found {kind_of(value)}{none}")
    for tag in value:
        if not isinstance(tag, str):
            raise ValueError(f"the column {column!r} must hold strings only, in quotes; found {kind_of(tag)}")
    return value


def join_tags(tags: list[str], separator: str, option: str) -> str:
    """The cell that :meth:`TagCell.parse` reads as these tags; ``option`` names the separator in messages."""
    if separator == JSON_LISTS:
        return json.dumps(tags, ensure_ascii=False)
    joined = separator.join(tags)
    # The end of a tag and the start of a longer separator can look like the separator.
    if tags and [tag.strip() for tag in joined.split(separator)] != tags:
        raise InvalidInputError(
            f"{option} {separator!r} does not separate {tags!r:.200}: a tag holds it, or has blanks at its ends. Pass "
            "another one, or JSON."
        )
    return joined
