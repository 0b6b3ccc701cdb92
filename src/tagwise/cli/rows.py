"""Files for the verbs: tables and matrices, and the model that reads them.

What was guessed, left out or looks wrong goes to standard error.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tagwise import Tagger, data, load
from tagwise.cli.options import RowOptions, TagOptions
from tagwise.cli.output import echo_err, warn
from tagwise.data.dialects import Dialect
from tagwise.data.feedback import Feedback, with_feedback
from tagwise.data.records import MATRIX_FORMATS, STANDARD_INPUT, file_format
from tagwise.data.streams import read_name_lines
from tagwise.data.tables import Table, TableReader, read_table
from tagwise.exceptions import InvalidInputError
from tagwise.progress import ProgressBar, counted
from tagwise.text.suggestion import title_of

__all__ = [
    "answered_rows",
    "dialect_of",
    "find_tag",
    "format_of",
    "holds_matrix",
    "load_model",
    "open_cluster",
    "open_rows",
    "read_matrix",
    "read_names",
    "read_rows",
    "read_shards",
    "read_texts",
    "tag_settings",
]

# Rows after which a progress bar is told how far a file is read.
_BLOCK_ROWS = 512


def format_of(path: str, options: RowOptions) -> str:
    """The format of a file, as ``--format`` states it or by the ending of its name."""
    if path != STANDARD_INPUT and not os.path.exists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    found = file_format(path, options.format, option="--format")
    if path == STANDARD_INPUT and found in (*MATRIX_FORMATS, "parquet"):
        raise InvalidInputError(f"--format {found} cannot be read from standard input; name a file.")
    return found


def holds_matrix(path: str, options: RowOptions) -> bool:
    """Whether a file holds a matrix, not texts."""
    return format_of(path, options) in MATRIX_FORMATS


def dialect_of(options: RowOptions) -> Dialect:
    """The options as the reader of tables takes them."""
    values = asdict(options)
    if values.pop("labels") is not None:
        raise InvalidInputError("--labels is for matrices; the column of the tags of texts is named with --tags.")
    header = not values.pop("no_header")
    # What is not given is for the reader to find out.
    values |= {name: values[name] or None for name in ("text", "tags", "tags_wide")}
    return Dialect(**values, header=header, flags=True)


def open_rows(
    path: str, options: RowOptions, *, with_tags: bool = True, empty_texts: bool = False, line_by_line: bool = False
) -> TableReader:
    """Open a table for reading row by row, as :class:`TableReader` explains, and say what was guessed."""
    reader = TableReader(
        path, dialect_of(options), with_tags=with_tags, empty_texts=empty_texts, line_by_line=line_by_line
    )
    if reader.guess is not None:
        echo_err(reader.guess)
    return reader


def read_rows(path: str, options: RowOptions, *, quiet: bool = False) -> Table:
    """Read all rows with their tags, and say what was guessed (unless ``quiet``), left out or looks wrong."""
    with ProgressBar(f"reading {os.path.basename(path)}", 1.0, wanted=not quiet) as bar:
        table = read_table(
            path,
            dialect_of(options),
            on_guess=None if quiet else echo_err,
            on_progress=lambda fraction, rows: bar.at(fraction, counted(rows, "row")),
        )
    for note in table.notes:
        warn(note)
    if not quiet:
        echo_err(table.account)
    return table


def read_texts(path: str, options: RowOptions) -> tuple[list[str], list[str | None]]:
    """All texts of a file and their identifiers; says what was guessed, and that rows without text were left out."""
    texts: list[str] = []
    ids: list[str | None] = []
    empty = 0
    with (
        open_rows(path, options, with_tags=False, empty_texts=True) as rows,
        ProgressBar(f"reading {os.path.basename(path)}", 1.0) as bar,
    ):
        for row in rows:
            if row.text.strip():
                texts.append(row.text)
                ids.append(row.given_id)
            else:
                empty += 1
            if len(texts) % _BLOCK_ROWS == 0:
                bar.at(rows.fraction_read(), counted(len(texts), "row"))
        tally = rows.tally()
    if tally.skipped:
        warn(f"skipped {counted(tally.skipped, 'faulty row')}; the first: {tally.first_fault}.")
    if empty:
        warn(f"left out: {counted(empty, 'row')} without text.")
    if not texts:
        raise InvalidInputError(f"{path} holds no text.")
    return texts, ids


def answered_rows(texts: list[str], ids: list[str | None], answers: Feedback) -> Table:
    """Texts of :func:`read_texts` with what people answered on them, and behind them other texts that have answers.

    Nothing else is known of any of them.
    """
    known: list[list[str] | None] = [[] for _ in texts]
    names = None if None in ids else [str(one) for one in ids]
    return with_feedback(Table(texts, [[] for _ in texts], known, ids=names), answers)


def open_cluster(address: str) -> Any:
    """The client of a Dask cluster, which is left when the verb ends."""
    try:
        from tagwise.distributed.cluster import open_client
    except ImportError as error:
        raise InvalidInputError(f"--dask: {error}") from error
    return click.get_current_context().with_resource(open_client(address))


def read_shards(pattern: str, options: RowOptions, client: Any, *, quiet: bool = False) -> Any:
    """As :func:`read_rows`, of files that the workers of a cluster read: a ``tagwise.distributed`` table."""
    from tagwise.distributed import read_files

    told = None if quiet else echo_err
    table = read_files(pattern, dialect_of(options), client=client, on_guess=told, verbose=0 if quiet else 1)
    for note in table.notes:
        warn(note)
    if not quiet:
        echo_err(table.account)
    return table


def tag_settings(options: TagOptions) -> dict[str, Any]:
    """What ``Tagger`` is to know about tags; reads the vocabulary."""
    if options.vocabulary is None and options.language is not None:
        raise InvalidInputError("--language is that of the names of a vocabulary; name its file with --vocabulary.")
    vocabulary = None
    if options.vocabulary is not None:
        vocabulary = data.read_vocabulary(options.vocabulary, language=options.language)
    return {"vocabulary": vocabulary, "normalise_tags": options.normalise_tags}


def read_matrix(
    path: str,
    options: RowOptions,
    *,
    shape: tuple[int, int] | None = None,
    exact: bool = False,
    labelled: bool = True,
) -> data.LabelledRows:
    """Read features and labels of an XMC, svmlight, ARFF or npz file; says what was found beside it.

    Options of columns are refused. ``shape``, (features, labels), is what a model expects and svmlight files do
    not hold; ``exact`` reads the numbers of text formats as 64-bit floats; without ``labelled``, labels in another file
    are not needed.
    """
    for name, usual in asdict(RowOptions()).items():
        if name not in ("format", "skip_faulty", "labels") and getattr(options, name) != usual:
            raise InvalidInputError(f"--{name.replace('_', '-')} has no meaning for {path}, which is a matrix.")
    kind = format_of(path, options)
    errors = "skip" if options.skip_faulty else "strict"
    if kind in ("xmc", "svmlight") and options.labels is not None:
        raise InvalidInputError(f"--labels has no meaning for {path}: {kind} files hold their labels themselves.")
    dtype = "float64" if exact else "float32"
    if kind == "xmc":
        rows = data.read_xmc(path, errors=errors, dtype=dtype)
    elif kind == "svmlight":
        features, labels = shape or (None, None)
        rows = data.read_svmlight(path, errors=errors, n_features=features, n_labels=labels, dtype=dtype)
    elif kind == "arff":
        rows = data.read_arff(path, labels=_arff_labels(path, options.labels), errors=errors)
    elif kind == "npz":
        rows = data.read_npz(path, options.labels or (_npz_labels(path) if labelled else None))
    else:
        raise InvalidInputError(f"{path} holds texts ({kind}), where a matrix is expected.")
    if rows.n_skipped:
        warn(f"left out: {counted(rows.n_skipped, 'faulty row')}.")
    return rows


def _npz_labels(path: str) -> str:
    name = Path(path).name
    beside = Path(path).with_name("Y" + name[1:])
    if not name.startswith("X") or not beside.is_file():
        raise InvalidInputError(f"{path} holds features only; name the .npz file of the labels with --labels.")
    echo_err(f"{path}: labels from {beside} (guessed).")
    return str(beside)


def _arff_labels(path: str, given: str | None) -> str | int | None:
    if given is not None:
        try:
            return int(given)
        except ValueError:
            return given
    stem = Path(path).with_suffix("") if Path(path).suffix.lower() in (".gz", ".bz2") else Path(path)
    beside = stem.with_suffix(".xml")
    if beside.is_file():
        echo_err(f"{path}: labels are those that {beside} names (guessed).")
        return str(beside)
    return None


def read_names(path: str, what: str, expected: int) -> list[str] | None:
    """Names of ``features`` or ``labels`` beside a matrix, where there are any: one per line, as convert writes them.

    Those of a data set folder, ``features.txt`` and ``labels.txt``, are found too, where there are as many of them.
    """
    own = Path(f"{path}.{what}.txt")
    for beside in (own, Path(path).with_name(f"{what}.txt")):
        if not beside.is_file():
            continue
        names = read_name_lines(beside)
        if len(names) == expected:
            echo_err(f"{path}: names of {what} from {beside}.")
            return names
        if beside == own:
            raise InvalidInputError(f"{beside} holds {len(names):,} names for {expected:,} {what}.")
    return None


def find_tag(given: str, tags: Sequence[str], names: Mapping[str, str]) -> str:
    """The tag that ``--tag`` means: a tag, or what exactly one is called."""
    if given in tags:
        return given
    called = [tag for tag in tags if names.get(tag) == given]
    if len(called) == 1:
        return called[0]
    alike = [
        title_of(tag, names.get(tag)) for tag in called or tags if given.lower() in f"{tag} {names.get(tag)}".lower()
    ]
    hint = f" Did you mean {', '.join(map(repr, alike[:5]))}?" if alike else ""
    raise InvalidInputError(f"--tag {given!r:.60} is not one of the {len(tags):,} tags of this model.{hint}")


def load_model(path: str, what: str, *, texts: bool, embedding_cache: str | None = None) -> Any:
    """The tagger of a folder, for ``texts``, or else the plain model; ``what`` (a file, a verb) is why it is needed.

    A folder that holds the other kind is an :class:`InvalidInputError`. ``embedding_cache`` is for taggers that embed.
    """
    model = load(path)
    if texts and not isinstance(model, Tagger):
        raise InvalidInputError(
            f"{path} holds a {type(model).__name__} that was trained on a matrix and knows no words; {what} needs a "
            "tagger, trained on texts."
        )
    if not texts and isinstance(model, Tagger):
        raise InvalidInputError(f"{path} holds a tagger, which reads texts; {what} holds a matrix.")
    if embedding_cache is not None and texts:
        model.set_params(embedding_cache=embedding_cache)
    return model
