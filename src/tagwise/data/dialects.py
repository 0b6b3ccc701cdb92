"""How a table of texts and tags is to be read, as its user states it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tagwise.data.streams import checked_encoding
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.validation import check_choice

__all__ = ["QUOTING", "Dialect"]

QUOTING = ("auto", "none", "standard")
"""Whether quotes in CSV and TSV are text or enclose fields."""


@dataclass(frozen=True)
class Dialect:
    """How to read a table. What is None is guessed where it is needed; ``known`` and ``id`` are read only if given.

    Attributes
    ----------
    text : str, sequence of str or None
        Names of the columns of texts; those of several columns are joined, one per line, and some may be empty.
    tags : str, sequence of str or None
        Names of the columns of tags; a row has those of all of them.
    known, id : str or None
        Names of columns: the tags that were looked at, the row's identifier.
    tag_separator : str or None
        Separator of the tags of a cell; ``"JSON"`` for JSON lists, ``"URI"`` for addresses between blanks, which may
        be written in angle brackets.
    tags_wide : bool or None
        Whether each column of ``tags``, or else each that holds only 0 and 1, is a tag. In a table that holds zeros, an
        empty cell means that nobody looked. Where it is True, cells may also be yes and no, or x and nothing.
    group_by : str or None
        The column whose value rows share that belong together, in a table with one row per tag; ``""`` keeps all rows
        apart. None: rows are put together by their texts if most of the first ones stand beside one of the same text,
        each with one tag, another one.
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
        check_choice(self.quoting, "quoting", QUOTING)
        if self.encoding is not None:
            checked_encoding(self.encoding, "--encoding" if self.flags else "encoding")
        for name in ("text", "tags"):
            given = getattr(self, name)
            columns = (given,) if isinstance(given, str) else () if given is None else tuple(given)
            if given is not None and not columns:
                raise InvalidInputError(f"{name} names no column; leave it out to have one guessed.")
            if not all(isinstance(column, str) for column in columns):
                raise InvalidTypeError(f"{name} must be the name of a column, or several; found {given!r:.60}.")
            if len(set(columns)) < len(columns):
                raise InvalidInputError(f"{self.option(name)} names a column twice: {', '.join(columns):.200}.")

    def names(self, what: str) -> tuple[str, ...]:
        """The columns given for ``what``; none where they are to be guessed."""
        given = getattr(self, what)
        return ((given,) if given or what != "group_by" else ()) if isinstance(given, str) else tuple(given or ())

    def option(self, name: str) -> str:
        """A field as messages name it."""
        if self.flags:
            return "--no-header" if name == "header" else "--" + name.replace("_", "-")
        return {"skip_faulty": 'errors="skip"', "header": "header=False"}.get(name, f"{name}=")

    def or_skip(self) -> str:
        """The advice to skip faulty rows, as the end of another; empty where they are skipped."""
        return "" if self.skip_faulty else f", or pass {self.option('skip_faulty')}"

    def setting(self, name: str, value: str) -> str:
        """A field with a value, as messages propose it: ``--quoting none``, ``quoting="none"``."""
        return f"{self.option(name)} {value}" if self.flags else f'{name}="{value}"'
