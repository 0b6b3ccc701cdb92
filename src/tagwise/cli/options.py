"""Options that verbs share, and the examples of their help. Imports nothing heavy: ``--help`` stays quick."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from tagwise.registry import MODEL_NAMES

__all__ = [
    "FORMATS",
    "FRACTION",
    "RealRange",
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
    "vocabulary_option",
]

Function = TypeVar("Function", bound=Callable[..., Any])

MOST_K = 10_000
"""What ``--k`` takes at most: rankings that are measured take memory in proportion to rows and k."""

FORMATS = ("auto", "jsonl", "csv", "tsv", "parquet", "text", "xmc", "svmlight", "arff", "npz")
"""What ``--format`` takes; ``auto`` goes by the ending of the file's name."""


class RealRange(click.FloatRange):
    """A number within bounds; unlike click's, it refuses NaN, which lies neither within nor without."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a usage error."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class WholeRange(click.IntRange):
    """A whole number within bounds that a model folder can hold; known now, and not when the model is saved."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or a usage error."""
        number: int = super().convert(value, param, ctx)
        if not _fits(number):
            self.fail("must be a number of at most 64 bits.", param, ctx)
        return number


FRACTION = RealRange(0, 1, min_open=True, max_open=True)


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
        "--min-df",
        default=2,
        show_default=True,
        type=WholeRange(min=1),
        help="Leave out words that occur in fewer texts than this.",
    ),
    "max_features": click.option(
        "--max-features",
        type=WholeRange(min=1),
        metavar="N",
        help="Keep only the N most frequent words [default: all].",
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
    help=f"auto picks the model that ranks best as a rule, and says why; or one of {', '.join(MODEL_NAMES)}.",
)
jobs_option = click.option(
    "--jobs",
    default=-1,
    show_default=True,
    callback=lambda context, option, jobs: _jobs(jobs),
    help="Threads; -1 uses all cores.",
)
seed_option = click.option(
    "--seed",
    default=0,
    show_default=True,
    type=WholeRange(min=0),
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
vocabulary_option = click.option(
    "--vocabulary",
    metavar="FILE",
    help="File of tags, one per line, or each with a tab and its name: tags that can be suggested although no row has "
    "them, and what ids are called.",
)
cutoffs_option = click.option(
    "--k",
    "ks",
    multiple=True,
    type=click.IntRange(1, MOST_K),
    callback=lambda context, option, values: tuple(dict.fromkeys(values)) or (1, 3, 5),
    help="Measure the first K tags; repeatable [default: 1, 3, 5].",
)


def parse_settings(settings: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """``NAME=VALUE`` pairs of an option as parameters; values are JSON where they can be, else text."""
    parameters: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"must be NAME=VALUE, such as rank=200; found {setting!r:.60}.", param_hint=option)
        try:
            value = json.loads(text, parse_int=_integer)
        except OverflowError:
            raise click.BadParameter(f"{name} is a number of more than 64 bits.", param_hint=option) from None
        except RecursionError:
            raise click.BadParameter(f"{name} is nested too deep.", param_hint=option) from None
        except ValueError:
            value = text
        if name.strip() in parameters:
            raise click.BadParameter(f"{name.strip()} is given twice.", param_hint=option)
        parameters[name.strip()] = value
    return parameters


def _jobs(jobs: int) -> int:
    if jobs == 0 or not _fits(jobs):
        raise click.BadParameter("must be a number of threads, or -1 for all cores.", param_hint="--jobs")
    return jobs


def _integer(digits: str) -> int:
    """A whole number of JSON, or OverflowError."""
    if len(digits) > 20 or not _fits(int(digits)):  # Python may refuse to read thousands of digits
        raise OverflowError
    return int(digits)


def _fits(number: int) -> bool:
    """Whether a model folder can hold a number."""
    return -(2**63) <= number < 2**64


def examples(*lines: str) -> str:
    """The end of a help text: commands as they are typed, one per line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
