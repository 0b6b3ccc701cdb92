"""Files for the verbs: tables and matrices, and the model that reads them.

Guesses, omissions and suspicious input are reported on standard error.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tagwise import Tagger, data, load
from tagwise.cli.options import ROWS, Given
from tagwise.cli.output import echo_err, warn
from tagwise.data.columns import Dialect
from tagwise.data.feedback import Feedback, read_feedback, with_feedback
from tagwise.data.formats import STANDARD_INPUT, FileFormat, file_format
from tagwise.data.streams import read_name_lines
from tagwise.data.tables import Table, TableReader, Tally, read_table
from tagwise.exceptions import InvalidInputError
from tagwise.progress import ProgressBar, counted
from tagwise.text.suggestion import title_of

# Rows after which a progress bar moves.
_BLOCK_ROWS = 512
# Options of rows that have a meaning for matrices.
_OF_MATRICES = ("format", "skip_faulty", "labels")


# ---------------------------------------------------------------------- tables


def format_of(path: str, given: Given) -> FileFormat:
    """The format of a file, as ``--format`` states it or by the ending of its name."""
    if path != STANDARD_INPUT and not os.path.exists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    found = file_format(path, given.format, option="--format")
    if path == STANDARD_INPUT and (found.holds == "matrix" or found.name == "parquet"):
        raise InvalidInputError(f"--format {found.name} cannot be read from standard input; name a file.")
    return found


def holds_matrix(path: str, given: Given) -> bool:
    """Whether a file holds a matrix, not texts."""
    return format_of(path, given).holds == "matrix"


def dialect_of(given: Given) -> Dialect:
    """The options on rows as the reader of tables takes them; it guesses those that are not stated."""
    if "labels" in given.stated:
        raise InvalidInputError("--labels is for matrices; the column of the tags of texts is named with --tags.")
    stated = {name: getattr(given, name) for name in ROWS if name in given.stated}
    header = not stated.pop("no_header", False)
    return Dialect(**stated, header=header, flags=True)


def open_texts(path: str, given: Given, *, line_by_line: bool = False) -> TableReader:
    """Open a table for reading its texts row by row, as :class:`TableReader` explains, and say what was guessed."""
    reader = TableReader(path, dialect_of(given), with_tags=False, empty_texts=True, line_by_line=line_by_line)
    if reader.guess is not None:
        echo_err(reader.guess)
    return reader


def read_rows(path: str, given: Given, client: Any = None) -> Any:
    """Read all rows with their tags, and report guesses, omissions and suspicious input.

    With the ``client`` of a cluster, its workers read all files of a pattern: a table of ``tagwise.distributed``.
    """
    dialect, told = dialect_of(given), None if given.quiet else echo_err
    if client is not None:
        from tagwise.distributed import read_files

        table: Any = read_files(path, dialect, client=client, on_guess=told, verbose=0 if given.quiet else 1)
    else:
        with ProgressBar(f"reading {os.path.basename(path)}", 1.0, wanted=not given.quiet) as bar:
            table = read_table(
                path,
                dialect,
                on_guess=told,
                on_progress=lambda fraction, rows: bar.at(fraction, counted(rows, "row")),
            )
    for note in table.notes:
        warn(note)
    if not given.quiet:
        echo_err(table.account)
    return table


def read_texts(path: str, given: Given) -> tuple[list[str], list[str | None]]:
    """All texts of a file and their identifiers, without rows that have no text."""
    texts: list[str] = []
    ids: list[str | None] = []
    n_rows = 0
    with (
        open_texts(path, given) as rows,
        ProgressBar(f"reading {os.path.basename(path)}", 1.0) as bar,
    ):
        for n_rows, row in enumerate(rows, 1):
            if row.text.strip():
                texts.append(row.text)
                ids.append(row.given_id)
            if n_rows % _BLOCK_ROWS == 0:
                bar.at(rows.fraction_read(), counted(n_rows, "row"))
        warn_of_rows(rows.tally())
    if len(texts) < n_rows:
        warn(f"left out: {counted(n_rows - len(texts), 'row')} without text.")
    if not texts:
        raise InvalidInputError(f"{path} holds no text.")
    return texts, ids


def warn_of_rows(tally: Tally) -> None:
    """Report rows that were skipped or changed."""
    if tally.skipped:
        warn(f"skipped {counted(tally.skipped, 'faulty row')}; the first: {tally.first_fault}.")
    for change in tally.changes():
        warn(change)


def warn_if_same(file: str, test: str | None) -> None:
    """Warn that figures will be optimistic if ``test`` is the training file."""
    if test is not None and STANDARD_INPUT not in (file, test) and os.path.samefile(file, test):
        warn(f"--test {test} is the file that is trained on: its figures say nothing about other rows.")


def tag_settings(given: Given) -> dict[str, Any]:
    """Parameters of ``Tagger`` on tags; reads the vocabulary."""
    if given.vocabulary is None and given.language is not None:
        raise InvalidInputError("--language is that of the names of a vocabulary; name its file with --vocabulary.")
    vocabulary = None
    if given.vocabulary is not None:
        vocabulary = data.read_vocabulary(given.vocabulary, language=given.language)
    return {"vocabulary": vocabulary, "normalise_tags": given.normalise_tags}


# ---------------------------------------------------------------------- feedback


def read_answers(given: Given) -> Feedback | None:
    """The answers of ``--feedback``; None without it."""
    return None if given.feedback is None else read_feedback(given.feedback, tagger=given.feedback_tagger)


def add_feedback(table: Table, answers: Feedback, given: Given) -> Table:
    """The rows of a table with the answers; reports their number and the lost ones."""
    table = with_feedback(table, answers)
    if not given.quiet:
        echo_err(f"{given.feedback}: {answers.account}")
    if table.counts["feedback_lost"]:
        lost = counted(table.counts["feedback_lost"], "identifier")
        warn(f"{given.feedback}: {lost} that no row of the file has, without a text: left out. Name the ids with --id.")
    return table


def answered_rows(texts: list[str], ids: list[str | None], answers: Feedback) -> Table:
    """Texts of :func:`read_texts` with the answers on them, followed by other texts that have answers.

    All other tags of these texts are unknown.
    """
    known: list[list[str] | None] = [[] for _ in texts]
    names = None if None in ids else [str(one) for one in ids]
    return with_feedback(Table(texts, [[] for _ in texts], known, ids=names), answers)


# ---------------------------------------------------------------------- matrices


def read_matrix(
    path: str, given: Given, *, shape: tuple[int, int] | None = None, exact: bool = False, labelled: bool = True
) -> data.LabelledRows:
    """Read features and labels of an XMC, svmlight, ARFF or npz file.

    ``shape``, (features, labels), is what a model expects and svmlight files do not hold; ``exact`` reads the numbers
    of text formats as 64-bit floats; without ``labelled``, labels in another file are not needed.
    """
    for name in ROWS:
        if name in given.stated and name not in _OF_MATRICES:
            raise InvalidInputError(f"--{name.replace('_', '-')} has no meaning for {path}, which is a matrix.")
    entry = format_of(path, given)
    if entry.holds != "matrix":
        raise InvalidInputError(f"{path} holds texts ({entry.name}), where a matrix is expected.")
    if given.labels is not None and "labels" not in entry.arguments:
        raise InvalidInputError(f"--labels has no meaning for {path}: {entry.name} files hold their labels themselves.")
    labels = given.labels
    if labels is None and "labels" in entry.arguments and labelled:
        labels = entry.find_labels(path)
        if labels is not None:
            echo_err(f"{path}: labels from {labels} (guessed).")
    features, n_labels = shape or (None, None)
    arguments = {
        "errors": "skip" if given.skip_faulty else "strict",
        "dtype": "float64" if exact else "float32",
        "n_features": features,
        "n_labels": n_labels,
        "labels": labels,
    }
    rows: data.LabelledRows = entry.read(path, **{name: arguments[name] for name in entry.arguments})
    if rows.n_skipped:
        warn(f"left out: {counted(rows.n_skipped, 'faulty row')}.")
    return rows


def read_for(model: Any, path: str, given: Given) -> Any:
    """The rows of a file with their labels, as a tagger or a plain model reads them."""
    if isinstance(model, Tagger):
        return read_rows(path, given)
    return read_matrix(path, given, shape=(model.n_features_in_, model.n_labels_))


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


# ---------------------------------------------------------------------- models and clusters


def load_model(path: str, what: str, *, texts: bool, embedding_cache: str | None = None) -> Any:
    """The tagger of a folder, for ``texts``, or else the plain model; ``what`` (a file, a verb) is for messages."""
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


def tags_of(model: Any) -> list[Any]:
    """The tags of a tagger, or the label names (or ids) of a plain model."""
    if isinstance(model, Tagger):
        return model.tags_
    return model.label_names_ or [str(label) for label in range(model.n_labels_)]


def find_tag(wanted: str, tags: Sequence[str], names: Mapping[str, str]) -> str:
    """The tag of ``--tag``, which gives it or its name."""
    if wanted in tags:
        return wanted
    called = [tag for tag in tags if names.get(tag) == wanted]
    if len(called) == 1:
        return called[0]
    titles = [title_of(tag, names.get(tag)) for tag in called or tags]
    alike = [title for title in titles if wanted.lower() in title.lower()]
    hint = f" Did you mean {', '.join(map(repr, alike[:5]))}?" if alike else ""
    raise InvalidInputError(f"--tag {wanted!r:.60} is not one of the {len(tags):,} tags of this model.{hint}")


def open_cluster(address: str) -> Any:
    """The client of a Dask cluster, which is left when the verb ends."""
    try:
        from tagwise.distributed.cluster import open_client
    except ImportError as error:
        raise InvalidInputError(f"--dask: {error}") from error
    return click.get_current_context().with_resource(open_client(address))
