"""Columns of texts and tags, and the separator of tags: as stated, or guessed from the first records."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tagwise.data.records import Records, first_repeated, kind_of
from tagwise.data.streams import checked_encoding
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ParseError
from tagwise.validation import check_choice

__all__ = [
    "EVERY_TAG",
    "NEITHER",
    "TAG_NAMES",
    "TEXT_NAMES",
    "ColumnSearch",
    "Columns",
    "Dialect",
    "join_tags",
    "require_columns",
    "switched",
    "tag_list",
]

_MOST_LISTED = 300  # characters of names of columns in a message

# Names that are guessed, in this order; capitals do not matter.
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

JSON_LISTS = "JSON"
"""The separator that stands for cells such as ``["a", "b"]``."""

URIS = "URI"
"""The separator that stands for cells such as ``<http://a.org/1> <http://a.org/2>``, with or without the brackets."""

EVERY_TAG = "*"
"""Content of a cell of the known tags if every tag was checked."""

NEITHER = "neither"
"""State of a cell of a wide table that holds neither 0 nor 1."""

_ONE_TAG = "\0"  # the separator of cells that are one tag, whatever it holds
_SEPARATORS = (";", "|", ",")
_URI = re.compile(r"<[^<>\s]+>|[a-z][a-z0-9+.-]*://[^<>\s]+", re.IGNORECASE)
_SWITCHES: dict[str, bool | None] = {"": None}
_SWITCHES |= dict.fromkeys(("1", "1.0", "true"), True) | dict.fromkeys(("0", "0.0", "false"), False)
# Where a table is declared to be wide, people's own words for it too.
_WORDS = _SWITCHES | dict.fromkeys(("yes", "y", "x"), True) | dict.fromkeys(("no", "n"), False)
# Columns that count rows, in however few they hold nothing but 0 and 1.
_NUMBERS_OF_ROWS = ("", "id", "index", "row")


@dataclass(frozen=True)
class Dialect:
    """How to read a table. None values are guessed, except ``known`` and ``id``, which are read only if given.

    Attributes
    ----------
    text : str, sequence of str or None
        Names of the columns of texts; those of several columns are joined, one per line, and some may be empty.
    tags : str, sequence of str or None
        Names of the columns of tags; a row has those of all of them.
    known, id : str or None
        Names of columns: the tags that were checked, and the row's identifier.
    tag_separator : str or None
        Separator of the tags of a cell; ``"JSON"`` for JSON lists, ``"URI"`` for addresses between blanks, which may
        be written in angle brackets.
    tags_wide : bool or None
        Whether each column of ``tags``, or else each that holds only 0 and 1, is a tag. In a table that holds zeros, an
        empty cell means "not checked". If True, cells may also be yes and no, or x and nothing.
    group_by : str or None
        In a table with one row per tag, the column whose equal values mark rows to merge; ``""`` merges none. None:
        rows are merged by their texts if most of the first rows have a neighbour with the same text, and each has one
        tag, different from the neighbour's.
    format : str
        ``"jsonl"``, ``"csv"``, ``"tsv"``, ``"parquet"``, ``"text"``, or ``"auto"`` to go by the ending of the name.
    delimiter : str or None
        Separator of the columns of a CSV or TSV file.
    quoting : {"auto", "none", "standard"}
        ``"standard"``: a field that starts with ``"`` runs to the closing ``"``, may hold delimiters and line breaks,
        and writes a quote as ``""``. ``"none"``: quotes are text, and every line is a row. ``"auto"`` is standard for
        CSV, and for TSV only where the first lines hold a quote that opens and closes a field.
    header : bool
        Whether the first line of CSV or TSV names the columns. Otherwise their names are their numbers, from ``"1"``.
    encoding : str or None
        Name of the encoding; None is UTF-8.
    skip_faulty : bool
        Leave faulty rows out and count them, instead of stopping at the first one.
    flags : bool
        Whether messages name flags of the command line (``--text``) instead of Python's arguments (``text=``).
    """

    text: str | Sequence[str] | None = None
    tags: str | Sequence[str] | None = None
    known: str | None = None
    id: str | None = None
    tag_separator: str | None = None
    tags_wide: bool | None = None
    group_by: str | None = None
    format: str = "auto"
    delimiter: str | None = None
    quoting: str = "auto"
    header: bool = True
    encoding: str | None = None
    skip_faulty: bool = False
    flags: bool = False

    def __post_init__(self) -> None:
        check_choice(self.quoting, "quoting", ("auto", "none", "standard"))
        if self.encoding is not None:
            checked_encoding(self.encoding, "--encoding" if self.flags else "encoding")
        for name in ("text", "tags"):
            columns = self.names(name)
            if getattr(self, name) is not None and not columns:
                raise InvalidInputError(f"{name} names no column; leave it out to have one guessed.")
            if not all(isinstance(column, str) for column in columns):
                raise InvalidTypeError(f"{name} must be the name of a column, or several; found {columns!r:.60}.")
            if len(set(columns)) < len(columns):
                raise InvalidInputError(f"{self.option(name)} names a column twice: {', '.join(columns):.200}.")

    def names(self, what: str) -> tuple[str, ...]:
        """The columns given for ``what``; none if they are to be guessed."""
        given = getattr(self, what)
        if what == "group_by" and given == "":
            return ()
        return (given,) if isinstance(given, str) else tuple(given or ())

    def option(self, name: str) -> str:
        """A field as messages name it."""
        if self.flags:
            return "--no-header" if name == "header" else "--" + name.replace("_", "-")
        return {"skip_faulty": 'errors="skip"', "header": "header=False"}.get(name, f"{name}=")

    def or_skip(self) -> str:
        """The advice to skip faulty rows, as the end of a sentence; empty if they are skipped."""
        return "" if self.skip_faulty else f", or pass {self.option('skip_faulty')}"

    def setting(self, name: str, value: str) -> str:
        """A field with a value, as messages propose it: ``--quoting none``, ``quoting="none"``."""
        return f"{self.option(name)} {value}" if self.flags else f'{name}="{value}"'


@dataclass(frozen=True)
class Columns:
    """Names of columns by purpose; empty and None ones are not read."""

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


def require_columns(records: Records, columns: Columns, dialect: Dialect) -> None:
    """Raise if one of several files of a table lacks a column that was found in another."""
    stated = replace(dialect, text=columns.text, tags=columns.tags or None, known=columns.known, id=columns.id)
    for what in ("text", "tags", "known", "id"):
        ColumnSearch(records, (), stated).given(what)


class ColumnSearch:
    """The search for the columns of one file, by their names and its first records."""

    def __init__(self, records: Records, sample: Sequence[dict[str, Any]], dialect: Dialect) -> None:
        self.records, self.sample, self.dialect = records, sample, dialect
        fields = (name for record in sample for name in record)
        self.names = list(dict.fromkeys(fields)) if records.columns is None else records.columns
        self.guesses = list(records.guesses)

    def columns(self, *, with_tags: bool, is_table: bool) -> Columns:
        """All columns.

        In a table a cell of tags is text, and its separator is guessed; elsewhere tags are lists unless one is given.
        """
        dialect, path = self.dialect, self.records.path
        text = self.given("text")
        if not text:
            text = (self._guessed("text", TEXT_NAMES, self.names),)
            if len(self.names) > 1 and not self.records.is_corpus:  # where there is but one column, nothing is guessed
                self.guesses.append(f"column `{text[0]}` for texts")
        known, identifier, group = self.given("known"), self.given("id"), self.given("group_by")
        tags: tuple[str, ...] = ()
        separators: tuple[str | None, ...] = ()
        wide = False
        if with_tags:
            if dialect.tag_separator == "":
                raise InvalidInputError(f"{dialect.option('tag_separator')} must not be empty.")
            taken = {*text, *known, *identifier, *group}
            tags, wide = self._tags([name for name in self.names if name not in taken])
            if not wide and dialect.group_by is None and self._has_row_per_tag(text, tags):
                group = text
                self.guesses.append("one row per tag: rows with the same text are one")
            if not wide:
                cells = ([record.get(name) for record in self.sample] for name in tags)
                separators = tuple(self._separator(column, is_table, bool(group)) for column in cells)
        else:
            known = ()
        if wide and known:
            raise InvalidInputError(
                f"{dialect.option('known')} has no meaning for {path}, which has a column per tag: an empty cell is "
                "unknown there."
            )
        twice = first_repeated([*text, *tags, *known, *identifier])
        if twice is not None:
            raise InvalidInputError(f"{path}: the column {twice!r} is named for two things; name a column for each.")
        if dialect.group_by is not None:
            identifier = identifier or group
        declared = bool(dialect.tags_wide)
        return Columns(
            text,
            tags,
            next(iter(known), None),
            next(iter(identifier), None),
            separators,
            wide,
            wide and any(switched(record.get(name), declared) is False for record in self.sample for name in tags),
            group,
            tuple(dict.fromkeys(self.guesses)),
            tuple(self.names),
        )

    def given(self, what: str) -> tuple[str, ...]:
        """The columns that the dialect names for ``what``, which must be there."""
        given = self.dialect.names(what)
        for name in given:
            if self.records.columns is not None and name not in self.names:
                self._fault(f"is missing ({self.dialect.option(what)})", name)
            self._require_one(name)
        return given

    def _require_one(self, name: str) -> None:
        if self.names.count(name) > 1:
            self._fault(f"occurs {self.names.count(name)} times", name)

    def _fault(self, what: str, name: str) -> None:
        raise ParseError(self.records.path, 1, 0, f"the column {name!r} {what}; columns found: {self._listed()}")

    def _listed(self) -> str:
        listed = ", ".join(map(repr, self.names)) or "none"
        return listed if len(listed) <= _MOST_LISTED else f"{listed[:_MOST_LISTED]} …"

    def _guessed(self, what: str, usual: Sequence[str], names: Sequence[str]) -> str:
        """The one of ``names`` that looks like a column of ``what``."""
        records, option = self.records, self.dialect.option
        by_name = {name.strip().lower(): name for name in reversed(names)}
        name = next((by_name[usual_name] for usual_name in usual if usual_name in by_name), None)
        if name is None and not self.dialect.header and records.columns is not None and len(records.columns) == 2:
            name = by_name.get("1" if what == "text" else "2")  # a text and its tags
        if name is None:
            others = f", or pass {option('tags_wide')} if each tag has a column of 0 and 1" if what == "tags" else ""
            if records.header_lines:
                others += f", or pass {option('header')} if the first line is a row"
            raise InvalidInputError(
                f"{records.path}: no column looks like one of {what if what == 'tags' else 'texts'}; name it with "
                f"{option(what)}{others}. Columns found: {self._listed()}."
            )
        self._require_one(name)
        return name

    def _tags(self, names: Sequence[str]) -> tuple[tuple[str, ...], bool]:
        """The columns of tags among ``names``, which are not taken, and whether each of them is a tag."""
        given, wide = self.given("tags"), bool(self.dialect.tags_wide)
        if given:
            return given, wide
        has_usual = not {name.strip().lower() for name in names}.isdisjoint(TAG_NAMES)
        maybe_wide = wide or not (has_usual or self.dialect.tags_wide is False)
        switches = [name for name in names if self._is_switch(name)] if maybe_wide else []
        if not wide and len(switches) < 2:
            name = self._guessed("tags", TAG_NAMES, names)
            self.guesses += [] if self.records.is_corpus else [f"column `{name}` for tags"]
            return (name,), False
        if not switches:
            raise InvalidInputError(
                f"{self.records.path}: no column holds only 0 and 1 in the first {len(self.sample):,} rows; name the "
                f"columns of the tags with {self.dialect.option('tags')}. Columns found: {self._listed()}."
            )
        twice = first_repeated(switches)
        if twice is not None:
            self._require_one(twice)
        several = f"`{switches[0]}`" + (f" to `{switches[-1]}`" if len(switches) > 1 else "")
        columns = "column" if len(switches) == 1 else "columns"
        self.guesses.append(f"{len(switches):,} {columns} of 0 and 1 for tags, {several}")
        return tuple(switches), True

    def _is_switch(self, name: str) -> bool:
        """Whether a column holds only 0 and 1 in the first records, and is not always empty."""
        if name.strip().lower() in _NUMBERS_OF_ROWS:
            return False
        is_empty = True
        for record in self.sample:
            state = switched(record.get(name), bool(self.dialect.tags_wide))
            if state == NEITHER:
                return False
            is_empty = is_empty and state is None
        return not is_empty

    def _has_row_per_tag(self, text: tuple[str, ...], tags: tuple[str, ...]) -> bool:
        """Whether most of the first rows have a neighbour with the same text, each with one, different tag."""
        if len(self.sample) < 4 or len(tags) != 1 or self.dialect.tag_separator is not None:
            return False
        rows = [(*(record.get(name) for name in text), record.get(tags[0])) for record in self.sample]
        marks = (*_SEPARATORS, "[")
        one_tag = all(isinstance(row[-1], str) and not any(mark in row[-1] for mark in marks) for row in rows)
        if not one_tag or not any(row[-1] for row in rows):
            return False
        beside = [first[:-1] == second[:-1] and first[-1] != second[-1] for first, second in pairwise(rows)]
        paired = sum(before or after for before, after in zip([False, *beside], [*beside, False]))
        return 2 * paired > len(rows)

    def _separator(self, cells: list[Any], is_table: bool, row_per_tag: bool) -> str | None:
        """The separator of a column of tags; None where its cells are lists."""
        if self.dialect.tag_separator is not None:
            return self.dialect.tag_separator
        has_lists = any(isinstance(cell, (list, tuple)) for cell in cells)  # Parquet has lists of its own
        if row_per_tag and not has_lists:
            return _ONE_TAG
        if not is_table or has_lists:
            return None
        texts = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
        if texts and all(_json_list(cell) is not None for cell in texts):
            separator, guess = JSON_LISTS, "JSON lists of tags"
        elif texts and all(_URI.fullmatch(part) for cell in texts for part in cell.split()):
            separator, guess = URIS, "blanks between tags, which are addresses"
        else:
            found = [mark for mark in _SEPARATORS if any(mark in cell for cell in texts)]
            separator = found[0] if found else _SEPARATORS[0]
            guess = f"{separator!r} between tags{'' if found else ' (none in the first rows)'}"
        self.guesses.append(guess)
        return separator


def switched(value: Any, declared: bool) -> bool | str | None:
    """Whether a cell of a wide table is on; None where it is empty, :data:`NEITHER` where it holds something else.

    If a table is ``declared`` to be wide, yes, no and x are equivalent to 1, 0 and 1.
    """
    word = "" if value is None else str(value).strip().lower() if isinstance(value, (str, int, float)) else "?"
    return (_WORDS if declared else _SWITCHES).get(word, NEITHER)


def _json_list(cell: str) -> list[Any] | None:
    try:
        value = json.loads(cell) if cell.lstrip().startswith("[") else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def tag_list(value: Any, column: str | None, separator: str | None, option: str) -> Sequence[str]:
    """The tags of a cell: a list of strings, or a text that the separator splits.

    Some may be repeated or empty; an empty cell has no tags, not an empty one. A ValueError names the fault.
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
