"""Options that verbs share, and the examples of their help. Imports nothing heavy: ``--help`` stays quick."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from tagwise.registry import MODEL_NAMES

__all__ = [
    "FORMATS",
    "FRACTION",
    "RowOptions",
    "cutoffs_option",
    "examples",
    "feature_options",
    "jobs_option",
    "json_option",
    "model_option",
    "parse_settings",
    "quiet_option",
    "report_option",
    "row_options",
    "seed_option",
]

Function = TypeVar("Function", bound=Callable[..., Any])

FORMATS = ("auto", "jsonl", "csv", "tsv", "parquet", "text", "xmc", "svmlight", "arff", "npz")
"""What ``--format`` takes; ``auto`` goes by the ending of the file's name."""

FRACTION = click.FloatRange(0, 1, min_open=True, max_open=True)


@dataclass(frozen=True)
class RowOptions:
    """How to read the rows of a file; the help of each option, below, says what it means.

    ``text``, ``tags`` and ``tag_separator`` are guessed where they are None; ``known`` and ``id`` are not read then.
    """

    text: str | None = None
    tags: str | None = None
    known: str | None = None
    id: str | None = None
    tag_separator: str | None = None
    format: str = "auto"
    skip_faulty: bool = False
    labels: str | None = None


_ROW_OPTIONS = {
    "text": click.option("--text", metavar="COLUMN", help="Column of the texts [default: guessed]."),
    "tags": click.option("--tags", metavar="COLUMN", help="Column of the tags [default: guessed]."),
    "known": click.option(
        "--known",
        metavar="COLUMN",
        help="Column of the tags that were checked; whether a row has any other tag is unknown.",
    ),
    "id": click.option("--id", metavar="COLUMN", help="Column of the rows' identifiers, which must all differ."),
    "tag_separator": click.option(
        "--tag-separator", metavar="TEXT", help='What separates two tags of a cell, such as ";" [default: guessed].'
    ),
    "format": click.option(
        "--format",
        type=click.Choice(FORMATS, case_sensitive=False),
        default="auto",
        show_default=True,
        help="Format of the file; auto goes by the ending of its name.",
    ),
    "skip_faulty": click.option(
        "--skip-faulty", is_flag=True, help="Skip faulty rows and report how many; otherwise the first one is an error."
    ),
    "labels": click.option(
        "--labels",
        metavar="WHAT",
        help="For matrices: the .npz file of the labels; for ARFF a Mulan XML file, or how many attributes are labels "
        "(the first N, or the last with -N) [default: found beside the file].",
    ),
}

_FEATURE_OPTIONS = {
    "characters": click.option("--characters", is_flag=True, help="Count runs of 3 to 5 characters beside words."),
    "min_df": click.option(
        "--min-df", default=2, show_default=True, help="Leave out words that occur in fewer texts than this."
    ),
    "max_features": click.option(
        "--max-features", type=int, metavar="N", help="Keep only the N most frequent words [default: all]."
    ),
}


def _grouped(
    function: Function, options: dict[str, Callable[[Any], Any]], argument: str, build: Callable[..., Any]
) -> Function:
    """Give a command some options, which reach it as one argument that ``build`` makes of them."""

    @wraps(function)
    def with_group(*arguments: Any, **given: Any) -> Any:
        group = build(**{name: given.pop(name) for name in options})
        return function(*arguments, **given, **{argument: group})

    decorated: Any = with_group
    for name in reversed(options):
        decorated = options[name](decorated)
    return decorated


def row_options(*names: str) -> Callable[[Function], Function]:
    """Give a command some of the options of :class:`RowOptions`, as one argument ``rows``; all of them by default.

    A column that is not among them is never read: a verb that needs no tags leaves out ``tags`` and ``known``.
    """
    chosen = {name: _ROW_OPTIONS[name] for name in names or _ROW_OPTIONS}
    return lambda function: _grouped(function, chosen, "rows", RowOptions)


def feature_options(function: Function) -> Function:
    """``--characters``, ``--min-df`` and ``--max-features``, as one argument ``features``: a dict for ``Tagger``."""
    return _grouped(function, _FEATURE_OPTIONS, "features", dict)


model_option = click.option(
    "--model",
    default="auto",
    show_default=True,
    help="auto picks by the size of the problem and by whether tags are unknown, and says why; or one of "
    f"{', '.join(MODEL_NAMES)}.",
)
jobs_option = click.option("--jobs", default=-1, show_default=True, help="Threads; -1 uses all cores.")
seed_option = click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    callback=lambda context, option, seed: _seed(seed),
    help="Seed; the same seed gives the same result.",
)
quiet_option = click.option("--quiet", is_flag=True, help="Show only warnings and the result.")
json_option = click.option("--json", "as_json", is_flag=True, help="Write the result as JSON, for programs.")
report_option = click.option(
    "--report",
    metavar="FILE.html",
    help="Also write a report: one HTML file with curves, a table of all tags, and examples with the words that "
    "speak for each tag. Needs the extra plots.",
)
cutoffs_option = click.option(
    "--k",
    "ks",
    multiple=True,
    type=click.IntRange(min=1),
    callback=lambda context, option, values: tuple(dict.fromkeys(values)) or (1, 3, 5),
    help="Measure the first K tags; repeatable [default: 1, 3, 5].",
)


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """``NAME=VALUE`` pairs as parameters; values are JSON where they can be, else text."""
    parameters: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"must be NAME=VALUE, such as rank=200; found {setting!r}.", param_hint="--set")
        try:
            value = json.loads(text, parse_int=_integer)
        except OverflowError:
            raise click.BadParameter(f"{name} is a number of more than 64 bits.", param_hint="--set") from None
        except RecursionError:
            raise click.BadParameter(f"{name} is nested too deep.", param_hint="--set") from None
        except ValueError:
            value = text
        parameters[name.strip()] = value
    return parameters


def _seed(seed: int) -> int:
    if seed >= 2**64:
        raise click.BadParameter("must be a number of at most 64 bits.", param_hint="--seed")
    return seed


def _integer(digits: str) -> int:
    """A whole number that a model folder can hold; known now, and not when the fitted model is saved."""
    # Longer ones than this may not be numbers to Python.
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**64:
        raise OverflowError
    return int(digits)


def examples(*lines: str) -> str:
    """The end of a help text: commands as they are typed, one per line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
