"""Options that verbs share, and the examples of their help. Imports nothing heavy: ``--help`` stays quick."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

__all__ = ["FORMATS", "RowOptions", "examples", "jobs_option", "json_option", "row_options", "seed_option"]

Function = TypeVar("Function", bound=Callable[..., Any])

FORMATS = ("auto", "jsonl", "csv", "tsv", "parquet", "text", "xmc", "svmlight", "arff", "npz")
"""What ``--format`` takes; ``auto`` goes by the ending of the file's name."""


@dataclass(frozen=True)
class RowOptions:
    """How to read the rows of a file: what the options of :func:`row_options` say.

    Attributes
    ----------
    text, tags, known, id : str or None
        Names of columns; None lets them be guessed (``known`` and ``id`` are only read where they are given).
    tag_separator : str or None
        What stands between two tags of a cell; None lets it be guessed.
    format : str
        One of :data:`FORMATS`.
    skip_faulty : bool
        Leave faulty rows out, count them and say so, in the place of stopping at the first.
    labels : str or None
        For matrices: the file of the labels of an ``.npz`` file, or what says which attributes of an ARFF file are
        labels.
    """

    text: str | None = None
    tags: str | None = None
    known: str | None = None
    id: str | None = None
    tag_separator: str | None = None
    format: str = "auto"
    skip_faulty: bool = False
    labels: str | None = None


_OPTIONS = {
    "text": click.option("--text", metavar="COLUMN", help="Column of the texts [default: guessed, and said]."),
    "tags": click.option("--tags", metavar="COLUMN", help="Column of the tags [default: guessed, and said]."),
    "known": click.option(
        "--known",
        metavar="COLUMN",
        help="Column of the tags that were looked at; whether a row has any other tag counts as unknown.",
    ),
    "id": click.option("--id", metavar="COLUMN", help="Column of the rows' identifiers, which must all differ."),
    "tag_separator": click.option(
        "--tag-separator",
        metavar="TEXT",
        help='What stands between two tags of a cell, such as ";" [default: guessed, and said].',
    ),
    "format": click.option(
        "--format",
        type=click.Choice(FORMATS, case_sensitive=False),
        default="auto",
        show_default=True,
        help="What the file is; auto goes by the ending of its name.",
    ),
    "skip_faulty": click.option(
        "--skip-faulty",
        is_flag=True,
        help="Leave faulty rows out and say how many; otherwise the first one is an error.",
    ),
    "labels": click.option(
        "--labels",
        metavar="WHAT",
        help="For matrices: the .npz file of the labels; for ARFF a Mulan XML file, or how many attributes are labels "
        "(the first N, or the last with -N) [default: found beside the file, and said].",
    ),
}


def row_options(*names: str) -> Callable[[Function], Function]:
    """Give a command some of the options of :class:`RowOptions`, as one argument ``rows``; all of them by default.

    A column that is not among them is never read: a verb that needs no tags leaves out ``tags`` and ``known``.
    """
    wanted = names or tuple(_OPTIONS)

    def decorate(function: Function) -> Function:
        @wraps(function)
        def with_rows(*arguments: Any, **options: Any) -> Any:
            rows = RowOptions(**{name: options.pop(name) for name in wanted})
            return function(*arguments, rows=rows, **options)

        decorated: Any = with_rows
        for name in reversed(wanted):
            decorated = _OPTIONS[name](decorated)
        return decorated

    return decorate


def jobs_option(function: Function) -> Function:
    """``--jobs``: threads, all cores by default; the result is the same for every number."""
    return click.option("--jobs", default=-1, show_default=True, help="Threads; -1 uses all cores.")(function)


def seed_option(function: Function) -> Function:
    """``--seed``."""
    return click.option(
        "--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed; the same gives the same result."
    )(function)


def json_option(function: Function) -> Function:
    """``--json``, as the argument ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Write the result as JSON, for programs.")(function)


def examples(*lines: str) -> str:
    """The end of a help text: commands as they are typed, one a line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
