"""Columns of texts and tags, and the separator of tags: given, or guessed from the first records."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tagwise.data.dialects import Dialect
from tagwise.data.records import Records, first_repeated, kind_of
from tagwise.exceptions import InvalidInputError, ParseError

__all__ = [
    "EVERY_TAG",
    "JSON_LISTS",
    "TAG_NAMES",
    "TEXT_NAMES",
    "URIS",
    "Columns",
    "find_columns",
    "join_tags",
    "require_columns",
    "switched",
    "tag_list",
]

_MOST_LISTED = 300  # characters of names of columns in a message

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
TAG_NAMES = (
    "tags",
    "labels",
    "keywords",
    "subjects",
    "topics",
    "categories",
    "tag",
    "label",
    "keyword",
    "subject",
    "subject_uris",
)
"""Names that are guessed, in this order; capitals do not matter."""

JSON_LISTS = "JSON"
"""The separator that stands for cells such as ``["a", "b"]``."""

URIS = "URI"
"""The separator that stands for cells such as ``<http://a.org/1> <http://a.org/2>``, with or without the brackets."""

EVERY_TAG = "*"
"""Content of a cell of the known tags where every tag was looked at."""

_ONE_TAG = "\0"  # the separator of cells that are one tag, whatever it holds
_SEPARATORS = (";", "|", ",")
_URI = re.compile(r"<[^<>\s]+>|[a-z][a-z0-9+.-]*://[^<>\s]+", re.IGNORECASE)
_SWITCHES: dict[str, bool | None] = {
    "": None,
    "1": True,
    "1.0": True,
    "true": True,
    "0": False,
    "0.0": False,
    "false": False,
}
# Where a table is declared to be wide, people's own words for it too.
_WORDS: dict[str, bool | None] = {"yes": True, "y": True, "x": True, "no": False, "n": False}
# Columns that count rows, in however few they hold nothing but 0 and 1.
_NUMBERS_OF_ROWS = ("", "id", "index", "row")


@dataclass(frozen=True)
class Columns:
    """Names of columns by their purpose; what is empty or None is not to be read."""

    text: tuple[str, ...]
    tags: tuple[str, ...] = ()
    known: str | None = None
    id: str | None = None
    separators: tuple[str | None, ...] = ()  # of each column of tags; None where tags must be lists
    wide: bool = False  # whether each column of tags is a tag, on or off in a row
    empty_is_unknown: bool = False  # of a wide table: whether an empty cell is unknown, not off
    group: tuple[str, ...] = ()  # rows that are equal here are one
    guesses: tuple[str, ...] = ()  # each as it follows the word "guessed"
    fields: tuple[str, ...] = ()  # all columns of the header, or of the first records


def find_columns(
    records: Records, sample: Sequence[dict[str, Any]], dialect: Dialect, *, with_tags: bool, is_table: bool
) -> Columns:
    """Decide on columns, from their names and the first records.

    In a table a cell of tags is text, and its separator is guessed; elsewhere tags are lists unless one is given.
    """
    names = records.columns
    if names is None:
        names = list(dict.fromkeys(name for record in sample for name in record))
    guesses = list(records.guesses)
    text = _given(records, names, dialect, "text")
    if not text:
        text = (_guessed_column(records, names, dialect, "text", TEXT_NAMES),)
        if len(names) > 1 and not records.is_corpus:  # where there is but one column, nothing is guessed
            guesses.append(f"column `{text[0]}` for texts")
    single = {what: _given(records, names, dialect, what) for what in ("known", "id", "group_by")}
    group = single.pop("group_by")
    tags: tuple[str, ...] = ()
    separators: tuple[str | None, ...] = ()
    wide = False
    if with_tags:
        if dialect.tag_separator == "":
            raise InvalidInputError(f"{dialect.option('tag_separator')} must not be empty.")
        taken = {*text, *(name for found in single.values() for name in found), *group}
        rest = [name for name in names if name not in taken]
        tags, wide = _tag_columns(records, names, rest, sample, dialect, guesses)
        if not wide and dialect.group_by is None and _has_row_per_tag(sample, text, tags, dialect):
            group = text
            guesses.append("one row per tag: rows with the same text are one")
        cells = [[record.get(name) for record in sample] for name in tags]
        if not wide:
            separators = tuple(_separator(column, dialect, is_table, bool(group), guesses) for column in cells)
    else:
        single["known"] = ()
    if wide and single["known"]:
        raise InvalidInputError(
            f"{dialect.option('known')} has no meaning for {records.path}, which has a column per tag: an empty cell "
            "is unknown there."
        )
    identifier = single["id"] or (group if dialect.group_by is not None else ())
    used = [*text, *tags, *single["known"], *single["id"]]
    if len(set(used)) < len(used):
        twice = next(name for name in used if used.count(name) > 1)
        raise InvalidInputError(
            f"{records.path}: the column {twice!r} is named for two things; name a column for each."
        )
    return Columns(
        text,
        tags,
        next(iter(single["known"]), None),
        next(iter(identifier), None),
        separators,
        wide,
        wide and any(_is_off(record.get(name), bool(dialect.tags_wide)) for record in sample for name in tags),
        group,
        tuple(dict.fromkeys(guesses)),
        tuple(names),
    )


def require_columns(records: Records, columns: Columns, dialect: Dialect) -> None:
    """Raise where a file, one of several that are read alike, lacks one of the columns that were found in another."""
    stated = replace(
        dialect, text=columns.text, tags=columns.tags or None, known=columns.known, id=columns.id, group_by=None
    )
    for what in ("text", "tags", "known", "id"):
        _given(records, records.columns or [], stated, what)


def _given(records: Records, names: Sequence[str], dialect: Dialect, what: str) -> tuple[str, ...]:
    """The columns that the dialect names for ``what``, which must be there."""
    given = dialect.names(what)
    for name in given:
        if records.columns is not None and name not in names:
            found = _listed(names)
            reason = f"the column {name!r} is missing ({dialect.option(what)}); columns found: {found}"
            raise ParseError(records.path, 1, 0, reason)
        _require_one(records, names, name)
    return given


def _require_one(records: Records, names: Sequence[str], name: str) -> None:
    if names.count(name) > 1:
        reason = f"the column {name!r} occurs {names.count(name)} times; columns found: {_listed(names)}"
        raise ParseError(records.path, 1, 0, reason)


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(map(repr, names)) or "none"
    return listed if len(listed) <= _MOST_LISTED else f"{listed[:_MOST_LISTED]} …"


def _guessed_column(
    records: Records,
    names: Sequence[str],
    dialect: Dialect,
    what: str,
    usual: Sequence[str],
    every: Sequence[str] | None = None,
) -> str:
    """One of ``names`` that looks like a column of ``what``; ``every`` has those that are taken, too."""
    by_name = {name.strip().lower(): name for name in reversed(names)}
    name = next((by_name[usual_name] for usual_name in usual if usual_name in by_name), None)
    if name is None and not dialect.header and records.columns is not None and len(records.columns) == 2:
        name = "1" if what == "text" else "2"  # a text and its tags
        name = name if name in names else None
    if name is None:
        others = ""
        if what == "tags":
            others += f", or pass {dialect.option('tags_wide')} if each tag has a column of 0 and 1"
        if records.header_lines:
            others += f", or pass {dialect.option('header')} if the first line is a row"
        raise InvalidInputError(
            f"{records.path}: no column looks like one of {what if what == 'tags' else 'texts'}; name it with "
            f"{dialect.option(what)}{others}. Columns found: {_listed(every or names)}."
        )
    _require_one(records, names, name)
    return name


def _tag_columns(
    records: Records,
    every: Sequence[str],
    names: Sequence[str],
    sample: Sequence[dict[str, Any]],
    dialect: Dialect,
    guesses: list[str],
) -> tuple[tuple[str, ...], bool]:
    """The columns of tags among ``names``, those of ``every`` that are not taken, and whether each of them is a tag."""
    given = _given(records, records.columns or names, dialect, "tags")
    wide = bool(dialect.tags_wide)
    if given:
        return given, wide
    has_usual = not {name.strip().lower() for name in names}.isdisjoint(TAG_NAMES)
    switches = () if not wide and (has_usual or dialect.tags_wide is False) else _switch_columns(names, sample, wide)
    if not wide and len(switches) < 2:
        name = _guessed_column(records, names, dialect, "tags", TAG_NAMES, every)
        guesses += [] if records.is_corpus else [f"column `{name}` for tags"]
        return (name,), False
    if not switches:
        raise InvalidInputError(
            f"{records.path}: no column holds only 0 and 1 in the first {len(sample):,} rows; name the columns of the "
            f"tags with {dialect.option('tags')}. Columns found: {_listed(every)}."
        )
    twice = first_repeated(switches)
    if twice is not None:
        _require_one(records, names, twice)
    several = f"`{switches[0]}`" + (f" to `{switches[-1]}`" if len(switches) > 1 else "")
    columns = "column" if len(switches) == 1 else "columns"
    guesses.append(f"{len(switches):,} {columns} of 0 and 1 for tags, {several}")
    return switches, True


def _switch_columns(names: Sequence[str], sample: Sequence[dict[str, Any]], declared: bool) -> tuple[str, ...]:
    """The columns that hold nothing but 0 and 1 in the first records, and are not always empty."""
    found = []
    for name in names:
        if name.strip().lower() in _NUMBERS_OF_ROWS:
            continue
        try:
            values = {switched(record.get(name), declared=declared) for record in sample}
        except ValueError:
            continue
        if values != {None}:
            found.append(name)
    return tuple(found)


def switched(value: Any, *, declared: bool) -> bool | None:
    """Whether a cell of a wide table is on; None where it is empty. A ValueError says that it is neither.

    Where a table is ``declared`` to be wide, yes, no and x are as good as 0 and 1.
    """
    word = "" if value is None else str(value).strip().lower() if isinstance(value, (str, int, float)) else "?"
    if word in _SWITCHES:
        return _SWITCHES[word]
    if declared and word in _WORDS:
        return _WORDS[word]
    raise ValueError("neither 0 nor 1")


def _is_off(value: Any, declared: bool) -> bool:
    try:
        return switched(value, declared=declared) is False
    except ValueError:
        return False


def _has_row_per_tag(
    sample: Sequence[dict[str, Any]], text: tuple[str, ...], tags: tuple[str, ...], dialect: Dialect
) -> bool:
    """Whether most of the first rows stand beside one of the same text, and each has one tag, another one."""
    if len(sample) < 4 or len(tags) != 1 or dialect.tag_separator is not None:
        return False
    rows = [(*(record.get(name) for name in text), record.get(tags[0])) for record in sample]
    one_tag = all(isinstance(row[-1], str) and not any(mark in row[-1] for mark in (*_SEPARATORS, "[")) for row in rows)
    if not one_tag or not any(row[-1] for row in rows):
        return False
    beside = [first[:-1] == second[:-1] and first[-1] != second[-1] for first, second in pairwise(rows)]
    paired = sum(before or after for before, after in zip([False, *beside], [*beside, False]))
    return 2 * paired > len(rows)


def _separator(cells: list[Any], dialect: Dialect, is_table: bool, row_per_tag: bool, guesses: list[str]) -> str | None:
    if dialect.tag_separator is not None:
        return dialect.tag_separator
    if row_per_tag and not any(isinstance(cell, (list, tuple)) for cell in cells):
        return _ONE_TAG
    if not is_table:
        return None
    separator, guess = _guessed_separator(cells)
    guesses += [guess] if guess else []
    return separator


def _guessed_separator(cells: list[Any]) -> tuple[str | None, str]:
    texts = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
    if any(isinstance(cell, (list, tuple)) for cell in cells):  # Parquet has lists of its own
        return None, ""
    if texts and all(_json_list(cell) is not None for cell in texts):
        return JSON_LISTS, "JSON lists of tags"
    if texts and all(_URI.fullmatch(part) for cell in texts for part in cell.split()):
        return URIS, "blanks between tags, which are addresses"
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


def tag_list(value: Any, column: str | None, separator: str | None, option: str) -> Sequence[str]:
    """The tags of a cell: a list of strings, or a text that the separator splits.

    Some may be repeated or empty; an empty cell has no tags, not an empty one. A ValueError says what is wrong.
    """
    if isinstance(value, str) and separator is not None and separator != JSON_LISTS:
        if separator == URIS:
            return [part[1:-1] if part[:1] + part[-1:] == "<>" else part for part in value.split()]
        if not value.strip():
            return []
        return [value.strip()] if separator == _ONE_TAG else list(map(str.strip, value.split(separator)))
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
    """The cell that :func:`tag_list` reads as these tags; ``option`` names the separator in messages."""
    if separator == JSON_LISTS:
        return json.dumps(tags, ensure_ascii=False)
    if separator == URIS:
        if any(not tag or set(tag) & set("<> \t\r\n") or tag.split() != [tag] for tag in tags):
            raise InvalidInputError(f"{option} URI is for addresses without blanks; found {tags!r:.200}.")
        return " ".join(f"<{tag}>" for tag in tags)
    joined = separator.join(tags)
    # The end of a tag and the start of a longer separator can look like the separator.
    if tags and [tag.strip() for tag in joined.split(separator)] != tags:
        raise InvalidInputError(
            f"{option} {separator!r} does not separate {tags!r:.200}: a tag holds it, or has blanks at its ends. Pass "
            "another one, or JSON."
        )
    return joined
