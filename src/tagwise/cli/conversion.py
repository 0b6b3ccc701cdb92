"""The three kinds of conversion: texts to texts, texts to a matrix, a matrix to a matrix."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from tagwise import data
from tagwise.cli.options import RowOptions
from tagwise.cli.output import echo_err, warn
from tagwise.cli.rows import dialect_of, load_model, open_rows, read_matrix, read_names, read_rows
from tagwise.data.columns import EVERY_TAG, Columns, join_tags
from tagwise.data.records import DELIMITERS, STANDARD_INPUT, delimited_line, first_repeated, kind_of
from tagwise.data.streams import atomic_writer
from tagwise.data.tables import TableReader
from tagwise.exceptions import InvalidInputError, ParseError
from tagwise.progress import counted
from tagwise.text.features import TextFeatures
from tagwise.text.tags import all_tags, tag_matrix

__all__ = ["Conversion", "convert_matrix", "convert_texts", "texts_to_matrix"]

_HALF = "holds half of a surrogate pair, which is not a character"


@dataclass(frozen=True)
class Conversion:
    """What is to be converted to what; ``before`` and ``after`` are formats."""

    source: str
    target: str
    before: str
    after: str
    overwrite: bool
    out_separator: str
    out_labels: str | None

    @property
    def labels_target(self) -> str:
        """Where the labels of an npz pair go."""
        if self.out_labels is not None:
            return self.out_labels
        name = Path(self.target).name
        if not name.startswith("X"):
            raise InvalidInputError(
                f"OUT: {self.target} is for the features; name the file of the labels with --out-labels, or let OUT "
                "start with X, such as X.npz, which puts the labels into Y.npz."
            )
        return str(Path(self.target).with_name("Y" + name[1:]))

    def names_target(self, what: str) -> str:
        """Where names of ``features`` or ``labels`` go that the format has no place for."""
        return f"{self.target}.{what}.txt"

    def check_target(self) -> None:
        """Refuse what must not be overwritten, before anything is read."""
        if self.out_labels is not None and self.after != "npz":
            raise InvalidInputError(f"--out-labels is for npz; {self.after} files hold their labels themselves.")
        if not self.out_separator:
            raise InvalidInputError("--out-separator must not be empty.")
        targets = [self.target]
        if self.after == "npz":
            targets.append(self.labels_target)
        if self.after in ("xmc", "svmlight", "npz"):
            targets += [self.names_target("features"), self.names_target("labels")]
        for target in targets:
            if os.path.isdir(target):
                raise InvalidInputError(f"OUT: {target} is a folder; name a file.")
            if self.source != STANDARD_INPUT and os.path.exists(target) and os.path.samefile(self.source, target):
                raise InvalidInputError(f"OUT: {target} is IN itself; name another file.")
            if os.path.lexists(target) and not self.overwrite:
                raise InvalidInputError(f"OUT: {target} exists; name another file, or pass --overwrite to replace it.")


# ---------------------------------------------------------------------- texts to texts


def convert_texts(job: Conversion, options: RowOptions) -> int:
    """Row by row, every column kept; returns how many rows there are."""
    delimiter = DELIMITERS.get(job.after)
    columns = [] if delimiter is None else _all_columns(job.source, options)
    written = _Written(job)
    count = 0
    with open_rows(job.source, options, empty_texts=True) as reader:
        twice = first_repeated(reader.records.columns or [])
        if twice is not None:
            raise InvalidInputError(f"{reader.path}: the column {twice!r} occurs twice; give each its own name.")
        with atomic_writer(job.target) as output:
            if delimiter is not None:
                try:
                    output.write(delimited_line(columns, delimiter))
                except UnicodeEncodeError:
                    raise InvalidInputError(f"{reader.path}: the name of a column {_HALF}; rename it.") from None
            for row in reader:
                fields = dict(row.fields)
                if reader.columns.tags is not None:
                    fields[reader.columns.tags] = row.tags
                if reader.columns.known is not None:
                    fields[reader.columns.known] = row.known
                try:
                    if delimiter is not None:
                        cells = [written.cell(fields.get(name), name, reader.columns) for name in columns]
                        line = delimited_line(cells, delimiter)
                    else:
                        line = written.json_line(fields)
                except UnicodeEncodeError:
                    reader.fault(ParseError(reader.path, row.line, 0, f"a string {_HALF}"))
                except _UnwritableError as error:
                    reader.fault(ParseError(reader.path, row.line, 0, str(error)))
                else:
                    output.write(line)
                    count += 1
        for note in reader.notes() + written.notes():
            warn(note)
    return count


class _UnwritableError(Exception):
    """A value that no text stands for."""


class _Written:
    """Values as JSON and as cells of a table; remembers which columns could not be kept as they are."""

    def __init__(self, job: Conversion) -> None:
        self._separator = job.out_separator
        self._as_json: set[str] = set()
        self._without_number: set[str] = set()

    def notes(self) -> list[str]:
        """Sentences on what was changed."""
        sentences = []
        if self._as_json:
            names = ", ".join(map(repr, sorted(self._as_json)))
            sentences.append(
                f"a table holds text only: values of {names} that are not text were written as JSON, null as nothing."
            )
        if self._without_number:
            names = ", ".join(map(repr, sorted(self._without_number)))
            sentences.append(f"JSON has neither NaN nor infinity: those of {names} were written as null.")
        return sentences

    def json_line(self, fields: dict[str, Any]) -> bytes:
        """A record as a line of JSON."""
        try:
            text = json.dumps(fields, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError):
            text = json.dumps({name: self._plain(value, name) for name, value in fields.items()}, ensure_ascii=False)
        return (text + "\n").encode()

    def cell(self, value: Any, name: str, columns: Columns) -> str:
        """A value as a cell of a table."""
        if name == columns.known and value is None:
            return EVERY_TAG
        if name in (columns.tags, columns.known):
            return join_tags(value, self._separator, "--out-separator")
        if isinstance(value, str):
            return value
        self._as_json.add(name)
        plain = self._plain(value, name)
        return "" if plain is None else json.dumps(plain, ensure_ascii=False)

    def _plain(self, value: Any, name: str) -> Any:
        """The value in objects that JSON has."""
        if value is None or isinstance(value, (str, int)):
            return value
        if isinstance(value, float):
            if math.isfinite(value):
                return value
            self._without_number.add(name)
            return None
        if isinstance(value, (list, tuple)):
            return [self._plain(item, name) for item in value]
        if isinstance(value, dict):
            return {str(key): self._plain(item, name) for key, item in value.items()}
        if isinstance(value, (date, time, timedelta, Decimal)):
            return str(value)
        raise _UnwritableError(
            f"the column {name!r} holds {kind_of(value)}, which cannot be written; remove the column"
        )


def _all_columns(source: str, options: RowOptions) -> list[str]:
    """The names that any record has: a table needs them before its first row."""
    if source == STANDARD_INPUT:
        raise InvalidInputError("a table needs the columns of all rows first; convert a file instead of -.")
    names: dict[str, None] = {}
    with TableReader(source, dialect_of(options), empty_texts=True) as reader:
        for row in reader:
            names.update(dict.fromkeys(row.fields))
    return list(names)


# ---------------------------------------------------------------------- to matrices


def texts_to_matrix(job: Conversion, options: RowOptions, *, min_df: int, characters: bool, model: str | None) -> int:
    """TF-IDF features and labels; with a tagger's words and tags where one is given."""
    for name in ("known", "id"):
        if getattr(options, name) is not None:
            raise InvalidInputError(f"--{name}: a matrix in {job.after} has no place for it; leave it out.")
    rows = read_rows(job.source, options)
    if model is not None:
        tagger = load_model(model, "convert --model", texts=True)
        X, features, labels = tagger.features(rows.texts), tagger.features_.feature_names, tagger.tags_
        Y, unseen = tagger.label_matrix(rows.tags)
        if unseen:
            several = ", ".join(f"{tag!r} ({rows:,})" for tag, rows in unseen.most_common(5))
            more = ", …" if len(unseen) > 5 else ""
            warn(
                f"not in {job.target}, which has no column for it: {counted(len(unseen), 'tag')} that {model} never "
                f"saw: {several}{more}."
            )
    else:
        extractor = TextFeatures(min_df=min_df, characters=characters)
        X = extractor.fit_transform(rows.texts)
        features, labels = extractor.feature_names, all_tags(rows.tags)
        Y, _ = tag_matrix(rows.tags, {name: place for place, name in enumerate(labels)})
    echo_err(
        f"Texts became {X.shape[1]:,} TF-IDF features; the texts themselves and other columns are not in {job.target}."
    )
    _write(job, X, Y, features, labels)
    return int(X.shape[0])


def convert_matrix(job: Conversion, options: RowOptions) -> int:
    """Numbers as they are."""
    rows = read_matrix(job.source, options, exact=True)
    X = rows.X
    assert X is not None
    if X.dtype.itemsize == 4 and job.before in ("arff", "npz"):
        echo_err(f"{job.source}: values were read as 32-bit floats.")
    features = rows.feature_names or read_names(job.source, "features", X.shape[1])
    labels = rows.label_names or read_names(job.source, "labels", rows.Y.shape[1])
    _write(job, X, rows.Y, features, labels)
    return int(X.shape[0])


def _write(
    job: Conversion, X: sp.csr_matrix, Y: sp.csr_matrix, features: list[str] | None, labels: list[str] | None
) -> None:
    if job.after == "arff":
        if (X.data == 0).any():
            warn(
                f"{int((X.data == 0).sum()):,} zeros that {job.source} stores are left out: ARFF does not tell them "
                "apart."
            )
        features, labels = _different(features, labels)
        data.write_arff(job.target, X, Y, feature_names=features, label_names=labels)
        return
    if job.after == "xmc":
        data.write_xmc(job.target, X, Y)
    elif job.after == "svmlight":
        data.write_svmlight(job.target, X, Y)
        echo_err(
            f"svmlight does not store how many columns there are: {X.shape[1]:,} features and {Y.shape[1]:,} labels. "
            "Columns without entries at the end are lost, unless the reader is told."
        )
    else:
        data.write_npz(job.target, job.labels_target, X, Y)
        echo_err(f"Labels are in {job.labels_target}.")
    for what, names in (("features", features), ("labels", labels)):
        if names is not None:
            with atomic_writer(job.names_target(what)) as output:
                output.writelines(_name_lines(names, what))
            echo_err(f"Names of {what} are in {job.names_target(what)}.")


def _different(features: list[str] | None, labels: list[str] | None) -> tuple[list[str] | None, list[str] | None]:
    """ARFF needs all names to differ: a word that is a tag as well is marked."""
    if features is None or labels is None or not set(features) & set(labels):
        return features, labels
    echo_err('Words and tags share names; words are written as "word:…" and tags as "tag:…".')
    return [f"word:{name}" for name in features], [f"tag:{name}" for name in labels]


def _name_lines(names: list[str], what: str) -> Iterator[bytes]:
    for name in names:
        if "\n" in name or "\r" in name:
            raise InvalidInputError(f"the name {name!r:.60} among the {what} holds a line break; rename it first.")
        yield f"{name}\n".encode()
