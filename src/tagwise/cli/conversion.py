"""The three kinds of conversion: texts to texts, texts to a matrix, a matrix to a matrix."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import scipy.sparse as sp

from tagwise import data
from tagwise.cli.options import RowOptions
from tagwise.cli.output import echo_err, warn
from tagwise.cli.rows import dialect_of, load_model, open_rows, read_matrix, read_names, read_rows
from tagwise.data.columns import EVERY_TAG, join_tags
from tagwise.data.parquet import ParquetRows, column_kind
from tagwise.data.records import DELIMITERS, STANDARD_INPUT, delimited_line, first_repeated, kind_of, needs_quotes
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
        if self.after == "parquet" and Path(self.target).suffix.lower() in (".gz", ".bz2"):
            raise InvalidInputError(f"OUT: Parquet is compressed itself; call the file {Path(self.target).stem}.")
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
    columns, in_quotes = ({}, False) if job.after == "jsonl" else _all_columns(job, options)
    count = 0
    with open_rows(job.source, options, empty_texts=True) as reader:
        twice = first_repeated(reader.records.columns or [])
        if twice is not None:
            raise InvalidInputError(f"{reader.path}: the column {twice!r} occurs twice; give each its own name.")
        written = _Written(job, reader, columns)
        with atomic_writer(job.target) as output, ExitStack() as opened:
            try:
                write = written.opened(output, opened, all_quoted=in_quotes)
            except UnicodeEncodeError:
                raise InvalidInputError(f"{reader.path}: the name of a column {_HALF}; rename it.") from None
            for row in reader:
                try:
                    write(row.fields)
                except UnicodeEncodeError:
                    reader.fault(ParseError(reader.path, row.line, 0, f"a string {_HALF}"))
                except _UnwritableError as error:
                    reader.fault(ParseError(reader.path, row.line, 0, str(error)))
                else:
                    count += 1
        for note in reader.notes() + written.notes():
            warn(note)
        echo_err(reader.account())
    return count


class _UnwritableError(Exception):
    """A value that no text stands for."""


class _Written:
    """Rows as lines of JSON, of a table, or as rows of Parquet; remembers which columns were not kept as they are.

    ``columns`` says what each holds (:func:`~tagwise.data.parquet.column_kind`); JSON needs none.
    """

    def __init__(self, job: Conversion, reader: TableReader, columns: dict[str, str | None]) -> None:
        self._job, self._columns = job, columns
        self._separator, self._tags, self._known = job.out_separator, reader.tag_fields, reader.known_field
        self._as_json: set[str] = set()
        self._without_number: set[str] = set()

    def opened(self, output: IO[bytes], opened: ExitStack, *, all_quoted: bool) -> Callable[[dict[str, Any]], object]:
        """What writes a row; a table has its first line then."""
        delimiter = DELIMITERS.get(self._job.after)
        if delimiter is not None:
            output.write(delimited_line(list(self._columns), delimiter, all_quoted=all_quoted and delimiter == "\t"))
            return lambda fields: output.write(delimited_line(self._cells(fields), delimiter))
        if self._job.after == "parquet":
            rows = opened.enter_context(ParquetRows(self._job.target, output, self._columns))
            return lambda fields: rows.write(self._values(fields))
        return lambda fields: output.write(self.json_line(fields))

    def notes(self) -> list[str]:
        """Sentences on what was changed."""
        sentences = []
        if self._as_json:
            names = ", ".join(map(repr, sorted(self._as_json)))
            sentences.append(
                f"a table holds text only: values of {names} that are not text were written as JSON, null as nothing."
                if self._job.after in DELIMITERS
                else f"a column of Parquet holds one type: values of {names} were written as JSON."
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

    def _values(self, fields: dict[str, Any]) -> dict[str, Any]:
        """A row of Parquet."""
        row = {}
        for name, value in fields.items():
            row[name] = value
            if self._columns[name] == "json" and value is not None:
                self._as_json.add(name)
                row[name] = json.dumps(self._plain(value, name), ensure_ascii=False)
        return row

    def _cells(self, fields: dict[str, Any]) -> list[str]:
        """A row of a table."""
        return [self._cell(fields.get(name), name) for name in self._columns]

    def _cell(self, value: Any, name: str) -> str:
        if name == self._known and value is None:
            return EVERY_TAG
        if name in self._tags or name == self._known:
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


def _all_columns(job: Conversion, options: RowOptions) -> tuple[dict[str, str | None], bool]:
    """What columns there are and hold, which must be known before the first row, and whether fields need quotes."""
    if job.source == STANDARD_INPUT:
        raise InvalidInputError("a table needs the columns of all rows first; convert a file instead of -.")
    columns: dict[str, str | None] = {}
    delimiter = DELIMITERS.get(job.after)
    in_quotes = False
    with TableReader(job.source, dialect_of(options), empty_texts=True) as reader:
        for row in reader:
            for name, value in row.fields.items():
                columns[name] = column_kind(columns.get(name), value)
            if delimiter is None or in_quotes:
                continue
            in_quotes = any(
                needs_quotes(value if isinstance(value, str) else repr(value).replace("'", '"'), delimiter)
                for name, value in row.fields.items()
                if name not in reader.tag_fields
            ) or any(needs_quotes(tag, delimiter) for tag in row.tags)
    return columns, in_quotes


# ---------------------------------------------------------------------- to matrices


def texts_to_matrix(job: Conversion, options: RowOptions, *, settings: dict[str, Any], model: str | None) -> int:
    """TF-IDF features and labels; with a tagger's words and tags where one is given."""
    for name in ("known", "id"):
        if getattr(options, name) is not None:
            raise InvalidInputError(f"--{name}: a matrix in {job.after} has no place for it; leave it out.")
    rows = read_rows(job.source, options)
    if model is not None:
        tagger = load_model(model, "convert --model", texts=True)
        X, features, labels = tagger.transform(rows.texts), tagger.features_.feature_names, tagger.tags_
        Y, unseen = tagger.label_matrix(rows.tags)
        if unseen:
            several = ", ".join(f"{tag!r} ({rows:,})" for tag, rows in unseen.most_common(5))
            more = ", …" if len(unseen) > 5 else ""
            warn(
                f"not in {job.target}, which has no column for it: {counted(len(unseen), 'tag')} that {model} never "
                f"saw: {several}{more}."
            )
    else:
        extractor = TextFeatures(**settings)
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
