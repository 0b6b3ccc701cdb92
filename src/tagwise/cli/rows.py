"""Files for the verbs: tables and matrices, and the model that reads them.

What was guessed, left out or looks wrong goes to standard error.
"""

from __future__ import annotations

import errno
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tagwise import Tagger, data, load
from tagwise.cli.options import RowOptions
from tagwise.cli.output import echo_err, warn
from tagwise.data.columns import Dialect
from tagwise.data.records import MATRIX_FORMATS, STANDARD_INPUT, file_format
from tagwise.data.streams import read_name_lines
from tagwise.data.tables import Table, TableReader, read_table
from tagwise.exceptions import InvalidInputError
from tagwise.progress import ProgressBar, counted

__all__ = ["format_of", "holds_matrix", "load_model", "open_rows", "read_matrix", "read_names", "read_rows"]


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
    return Dialect(**values, flags=True)


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
    return table


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
    for name in ("text", "tags", "known", "id", "tag_separator"):
        if getattr(options, name) is not None:
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


def load_model(path: str, what: str, *, texts: bool) -> Any:
    """The tagger of a folder, for ``texts``, or else the plain model; ``what`` (a file, a verb) is why it is needed.

    A folder that holds the other kind is an :class:`InvalidInputError`.
    """
    model = load(path)
    if texts and not isinstance(model, Tagger):
        raise InvalidInputError(
            f"{path} holds a {type(model).__name__} that was trained on a matrix and knows no words; {what} needs a "
            "tagger, trained on texts."
        )
    if not texts and isinstance(model, Tagger):
        raise InvalidInputError(f"{path} holds a tagger, which reads texts; {what} holds a matrix.")
    return model
