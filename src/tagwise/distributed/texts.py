"""Text files that are one table, read by the workers of a Dask cluster: from these to a fitted tagger.

A file is read whenever something is to be made of it: once for its tags and faults, once for its words, once for its
features. So nothing but features and labels stays in memory, and all of it can be made again when a worker dies.
"""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.base import MultiLabelModel
from tagwise.data.columns import Columns
from tagwise.data.dialects import Dialect
from tagwise.data.records import MATRIX_FORMATS, STANDARD_INPUT, NoRowsError, file_format
from tagwise.data.splits import split_rows
from tagwise.data.tables import Table, TableReader, Tally, notes_on_rows, read_table
from tagwise.distributed.cluster import Cluster, Sent, connected_client
from tagwise.distributed.fitting import fit, require_not_updatable, way_of
from tagwise.distributed.parts import Part, TrainingParts, facts_of_part, task, without_mask
from tagwise.exceptions import InvalidInputError, ParseError, TagwiseError
from tagwise.models.choice import choose_model, model_class
from tagwise.persistence import Checkpoint
from tagwise.progress import Callback, ProgressBar, counted
from tagwise.text.features import TermCounts, TextFeatures
from tagwise.text.names import check_vocabulary
from tagwise.text.tagger import Tagger
from tagwise.text.tags import (
    Corpus,
    TagNames,
    TrainingRows,
    column_of,
    known_matrix,
    row_figures,
    split_without_repeats,
    tag_matrix,
    warn_of_unlearnable,
)

__all__ = ["ShardedTable", "TextFile", "check_tagger", "fit_tagger", "open_files", "read_files", "write_each"]


@dataclass(frozen=True)
class TextFile:
    """One of the files of a table; ``left_out`` are numbers of rows, rising, that are not to be read."""

    path: str
    name: str  # for messages: as the user wrote it
    dialect: Dialect
    columns: Columns
    left_out: np.ndarray | None = None

    def read(self) -> Table:
        """The rows, of which there may be none; faults are as of :func:`tagwise.data.tables.read_table`."""
        try:
            table = read_table(self.path, self.dialect, columns=self.columns)
        except NoRowsError:
            return Table(known=[] if self.columns.known else None)
        if self.left_out is None or not len(self.left_out):
            return table
        kept = np.ones(len(table.texts), dtype=bool)
        kept[self.left_out] = False
        return table.part(np.flatnonzero(kept))

    def reader(self, **more: Any) -> TableReader:
        """To read the rows one by one; ``more`` as of :class:`TableReader`."""
        return TableReader(self.path, self.dialect, columns=self.columns, **more)

    def told(self, tally: Tally) -> Tally:
        """What became of the lines, with the name of the file where it matters."""
        faulty: Any = None if tally.first_fault is None else self.fault(tally.first_fault)
        return replace(tally, first_fault=faulty, about=tuple(f"{self.name}: {note}" for note in tally.about))

    def fault(self, error: Exception) -> Exception:
        """What went wrong on a worker, as the client's user would have met it."""
        if isinstance(error, ParseError):
            return type(error)(self.name, error.line, error.column, error.reason)
        if isinstance(error, FileNotFoundError) and error.filename == self.path:
            return InvalidInputError(
                f"{self.name}: a worker does not find this file. Put the files where all workers see them under the "
                f"same path, {self.path}."
            )
        if isinstance(error, TagwiseError):
            return type(error)(str(error).replace(self.path, self.name))
        return error


def find_files(patterns: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """The files that names or patterns with ``*``, ``?``, ``[…]`` and ``**`` stand for: those of a pattern sorted."""
    several = [patterns] if isinstance(patterns, (str, os.PathLike)) else list(patterns)
    found: list[str] = []
    for pattern in [os.fspath(one) for one in several]:
        if pattern == STANDARD_INPUT:
            raise InvalidInputError("A cluster reads files, not standard input; name files that all workers see.")
        names = [pattern] if os.path.lexists(pattern) else sorted(glob.glob(pattern, recursive=True))
        found += [name for name in names if name == pattern or not os.path.isdir(name)]
        if not names:
            raise InvalidInputError(f"{pattern}: there is no such file, and none matches it as a pattern.")
    twice = next((name for name, times in Counter(map(os.path.abspath, found)).items() if times > 1), None)
    if twice is not None:
        raise InvalidInputError(f"{twice} is named twice; name each file once.")
    return found


def open_files(
    files: Any, dialect: Dialect, *, with_tags: bool = True, empty_texts: bool = False
) -> tuple[list[TextFile], str | None]:
    """The files of one table, all of one format, with columns as of all of them together; and what was guessed."""
    names = find_files(files)
    kinds = {name: file_format(name, dialect.format, option=dialect.option("format")) for name in names}
    other = next((name for name in names if kinds[name] != kinds[names[0]]), None)
    if other is not None:
        raise InvalidInputError(
            f"{names[0]} is {kinds[names[0]]} and {other} is {kinds[other]}; give files of one format."
        )
    if kinds[names[0]] in MATRIX_FORMATS:
        raise InvalidInputError(
            f"{names[0]} holds a matrix ({kinds[names[0]]}), where rows with texts are expected; "
            "tagwise.distributed.fit and predict_topk take matrices in parts."
        )
    flags: dict[str, Any] = {"with_tags": with_tags, "empty_texts": empty_texts}
    for place, name in enumerate(names, 1):
        with suppress(NoRowsError), TableReader(name, dialect, followed_by=names[place:], **flags) as reader:
            columns, guess = reader.columns, reader.guess
            break
    else:
        raise InvalidInputError(f"{names[0]}: none of {counted(len(names), 'file')} holds a row.")
    if columns.group:
        raise InvalidInputError(
            f"{name}: rows that belong together may be in different files, which workers read apart. Put them together "
            f'first, or keep all rows apart with {dialect.option("group_by")} "".'
        )
    return [TextFile(os.path.abspath(name), name, dialect, columns) for name in names], guess


@dataclass(frozen=True)
class _Survey:
    """What the client must know of files before their words are counted; those of several add up."""

    sizes: list[int]
    tally: Tally | None
    repeats: np.ndarray
    tags: Counter[str]
    known: Counter[str]
    some_known: bool
    fault: Exception | None = None

    def plus(self, *others: _Survey) -> _Survey:
        parts = (self, *others)
        tags: Counter[str] = Counter()
        known: Counter[str] = Counter()
        for part in parts:
            tags.update(part.tags)
            known.update(part.known)
        tallies = [part.tally for part in parts if part.tally is not None]
        return _Survey(
            [size for part in parts for size in part.sizes],
            tallies[0].plus(*tallies[1:]) if tallies else None,
            np.sum([part.repeats for part in parts], axis=0),
            tags,
            known,
            any(part.some_known for part in parts),
            next((part.fault for part in parts if part.fault is not None), None),
        )


@dataclass(frozen=True)
class ShardedTable:
    """Rows of texts and tags in files that workers read, and what the client knows of them.

    Attributes
    ----------
    files : list of TextFile
    sizes : list of int
        The rows of each file.
    tag_counts, known_counts : Counter of str
        In how many rows each tag is, and was looked at where a row says so.
    has_known : bool
        Whether rows say which tags were looked at.
    guess, notes, account, counts
        As those of :class:`tagwise.data.tables.Table`, of all files; rows that repeat others are counted per file.
    """

    cluster: Cluster
    files: list[TextFile]
    sizes: list[int]
    tag_counts: Counter[str]
    known_counts: Counter[str]
    has_known: bool
    guess: str | None
    notes: list[str]
    account: str
    counts: dict[str, int]

    @property
    def n_rows(self) -> int:
        """Rows in all files."""
        return sum(self.sizes)

    def rows_per_file(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Numbers of rows among all, as numbers of rows within each file, in the order that they have."""
        starts = np.concatenate([[0], np.cumsum(self.sizes)])
        return [numbers[(numbers >= start) & (numbers < stop)] - start for start, stop in pairwise(starts)]

    def part(self, numbers: np.ndarray) -> Table:
        """Some of the rows, by their numbers and in this order, at the client."""
        wanted = [(file, own) for file, own in zip(self.files, self.rows_per_file(numbers)) if len(own)]
        found = self.cluster.gathered([self.cluster.submit(rows_of_file, file, own) for file, own in wanted])
        known = [row for table in found for row in table.known or [None] * len(table.texts)]
        whole = Table(
            [text for table in found for text in table.texts],
            [tags for table in found for tags in table.tags],
            known if self.has_known else None,
        )
        # Files come in their own order.
        starts = np.concatenate([[0], np.cumsum(self.sizes)])
        place = np.empty(len(numbers), dtype=np.int64)
        place[np.argsort(np.searchsorted(starts, numbers, side="right"), kind="stable")] = np.arange(len(numbers))
        return whole.part(place)

    def split(self, fraction: float, random_state: Any) -> tuple[ShardedTable, Table]:
        """Rows to train on, and validation rows at the client, as :func:`tagwise.text.tags.split_texts` draws them."""
        train, test = split_rows(sp.csr_matrix((self.n_rows, 1), dtype=np.float32), fraction, random_state)
        held = self.part(test)
        drawn = [replace(file, left_out=own) for file, own in zip(self.files, self.rows_per_file(test))]
        digests = Sent([_digest(text) for text in held.texts])
        times, n_tagged = self.cluster.sum(rows_with_digests, drawn, digests)
        _, fresh = split_without_repeats(train, test, times > 0, n_tagged > 0, fraction)
        chosen = np.array(fresh)
        validation = held.part(np.flatnonzero(times == 0))
        own = self.rows_per_file(chosen)
        table = replace(
            self,
            files=[replace(file, left_out=rows) for file, rows in zip(self.files, own)],
            sizes=[size - len(rows) for size, rows in zip(self.sizes, own)],
            tag_counts=self.tag_counts - validation.tag_counts,
            known_counts=self.known_counts - _known_counts(validation),
        )
        return table, validation


def read_files(
    files: Any,
    dialect: Dialect | None = None,
    *,
    client: Any = None,
    on_guess: Callable[[str], None] | None = None,
    verbose: int = 0,
    **fields: Any,
) -> ShardedTable:
    """Read text files on the workers of a cluster: rows, tags and faults are then known; texts stay in the files.

    Parameters
    ----------
    files : path, pattern or list of them
        All of one format, and with the same columns, which are found in the first rows. Rows are in the order of the
        files, those of a pattern sorted. Every worker must see them under the same paths.
    dialect, on_guess, **fields
        As in :func:`tagwise.data.tables.read_table`.
    client : dask.distributed.Client, optional
        By default that of this process.
    verbose : int
        1 shows progress.

    Raises
    ------
    ParseError
        The first file in order that has a faulty row, as if it were read here.
    """
    stated = replace(dialect or Dialect(), **fields)
    for option in ("group_by", "id"):
        if getattr(stated, option):
            raise InvalidInputError(
                f"{stated.option(option)} compares rows of all files, which workers read apart; leave it out."
            )
    cluster = Cluster(connected_client(client))
    opened, guess = open_files(files, stated)
    if guess is not None and on_guess is not None:
        on_guess(guess)
    with ProgressBar("reading files", len(opened), wanted=bool(verbose), steps=True) as bar:
        leaves = [cluster.submit(survey, file) for file in opened]
        found: _Survey = cluster.watched(cluster.tree(leaves), leaves, bar.at)
        bar.at(len(opened))
    if found.fault is not None:
        raise found.fault
    assert found.tally is not None
    if not sum(found.sizes):
        raise ParseError(opened[0].name, 0, 0, f"no row is left; all are faulty: {found.tally.first_fault}")
    columns = opened[0].columns
    duplicates, other_tags = found.repeats.tolist()
    own = notes_on_rows(sum(found.sizes), (duplicates, other_tags), found.tags, columns, stated)
    return ShardedTable(
        cluster,
        opened,
        found.sizes,
        found.tags,
        found.known,
        columns.known is not None or found.some_known,
        guess,
        found.tally.notes() + own,
        found.tally.account(opened[0].name if len(opened) == 1 else counted(len(opened), "file")),
        found.tally.counts(),
    )


def fit_tagger(
    tagger: Tagger,
    files: Any,
    dialect: Dialect | None = None,
    *,
    client: Any = None,
    callback: Callback | None = None,
    checkpoint: Checkpoint | None = None,
    **fields: Any,
) -> Tagger:
    """Fit a tagger to text files on the workers of a cluster.

    Parameters
    ----------
    tagger : Tagger
        Its features must be :class:`~tagwise.TextFeatures`, and its model one that :func:`fit` takes. It is fitted in
        place, and is afterwards what its own ``fit`` would have made of the rows of all files: tags, words and document
        frequencies are the same, and so is the model up to the rounding of sums.
    files : path, pattern or list of them, or ShardedTable
        See :func:`read_files`.
    dialect, **fields
        How to read them, as in :func:`tagwise.data.tables.read_table`: ``text="body"``.
    client, callback, checkpoint
        As in :func:`fit`.

    Returns
    -------
    tagger

    Notes
    -----
    Every file is read three times: for its tags, for its words, whose numbers are added up as a tree, and for its
    features, which stay on the workers. The client holds the words, the tags and the model.
    """
    check_tagger(tagger)
    table = files
    if not isinstance(files, ShardedTable):
        table = read_files(files, dialect, client=client, verbose=tagger.verbose, **fields)
    names = TagNames.of(
        _counts_with_tags(table), (), check_vocabulary(tagger.vocabulary), normalise=tagger.normalise_tags
    )
    corpus = ShardedCorpus(table, names, verbose=tagger.verbose)
    return tagger.fit_corpus(corpus, known=table.has_known, callback=callback, checkpoint=checkpoint)


def check_tagger(tagger: Tagger) -> None:
    """Refuse a tagger that could not be fitted on a cluster, before any file is read."""
    model, features = tagger.model, tagger.features
    require_not_updatable(tagger)
    usual = choose_model(1, 1, 1, 1, False).name
    way_of(model_class(usual if model.lower() == "auto" else model) if isinstance(model, str) else type(model))
    if not isinstance(features, (str, TextFeatures)):
        raise InvalidInputError(
            f"features: on a cluster words are counted by TextFeatures; found {type(features).__name__}."
        )
    if tagger.embedder is not None:
        raise InvalidInputError("embedder: texts on a cluster are not embedded; leave it out, or fit on one machine.")


def _counts_with_tags(table: ShardedTable) -> Counter[str]:
    if not table.tag_counts:
        raise InvalidInputError(f"tags holds no tag in any of the {table.n_rows:,} rows; there is nothing to learn.")
    return table.tag_counts


def write_each(
    function: Callable[..., Any],
    files: Sequence[tuple[TextFile, str]],
    tagger: Tagger,
    *arguments: Any,
    client: Any = None,
    verbose: int = 0,
) -> list[Any]:
    """``function(tagger, file, target, *arguments)`` on some worker for every file and target, in their order.

    Workers are sent the tagger once. A file that cannot be read or written is told when all others are done: the first
    in order.
    """
    cluster = Cluster(connected_client(client))
    kept = cluster.kept(tagger)
    with ProgressBar("files", len(files), wanted=bool(verbose), steps=True) as bar:
        futures = [cluster.submit(answer_file, function, kept, file, target, *arguments) for file, target in files]
        answers = cluster.gathered(futures, bar.at)
        bar.at(len(files))
    fault = next((answer for answer in answers if isinstance(answer, Exception)), None)
    if fault is not None:
        raise fault
    return answers


class ShardedCorpus(Corpus):
    """What a tagger learns from text files; its X are :class:`~tagwise.distributed.parts.TrainingParts`."""

    def __init__(self, table: ShardedTable, names: TagNames, *, verbose: int = 0) -> None:
        self.table, self.names, self.verbose = table, names, verbose
        self.tags, self.has_rows, self.n_rows = names.tags, names.has_rows, table.n_rows
        self.cluster = table.cluster
        self.without: set[str] = set()

    def part(self, numbers: np.ndarray) -> TrainingRows:
        """Some of the rows, by their numbers and in this order, at the client."""
        rows = self.table.part(numbers)
        Y, observed, _ = _label_matrices(rows, self.names, self.table.has_known)
        return TrainingRows(rows.texts, self.tags, Y, observed, 0)

    def extract(self, features: Any, also: Iterable[str]) -> tuple[Any, TrainingParts]:
        """Count the words of all files as a tree, and make the features of each where it is read."""
        cluster, files = self.cluster, self.table.files
        starts = np.cumsum([0, *self.table.sizes]).tolist()
        with ProgressBar("counting words", 2 * len(files), wanted=bool(self.verbose), steps=True) as bar:
            leaves = [
                cluster.submit(count_words, file, features, first, self.n_rows) for file, first in zip(files, starts)
            ]
            fitted = cluster.submit(chosen_words, cluster.tree(leaves), features, sorted(also))
            found, spacing = cluster.watched(fitted, leaves, bar.at)
            names = cluster.kept(self.names)
            parts = [cluster.submit(read_part, file, fitted, names, self.table.has_known) for file in files]
            facts = cluster.gathered(cluster.stored(facts_of_part, parts, True), lambda done: bar.at(len(files) + done))
            bar.at(2 * len(files))
        whole = TrainingParts(cluster, parts, facts)
        if self.table.has_known:
            self.without = set(self.names.written([self.table.known_counts])[0]).difference(self.tags)
            warn_of_unlearnable(self.without)
            if sum(fact.n_known or 0 for fact in facts) == whole.n_rows * whole.n_labels:
                whole = TrainingParts(
                    cluster, cluster.stored(without_mask, parts), [fact._replace(n_known=None) for fact in facts]
                )
        empty = self.sum(_empty_rows, whole)
        found.warn_of_lost_words(self.n_rows, int(empty), spacing)
        return found, whole

    def sum(self, function: Callable[..., Any], X: TrainingParts, *arguments: Any) -> Any:
        """``function(X, Y, *arguments)``, added up over files."""
        return self.cluster.sum(of_part, X.parts, function, *arguments)

    def figures(self, X: TrainingParts) -> dict[str, Any]:
        """Plain values for people who look at the fitted tagger: see ``Tagger.training_``."""
        names, sizes = ("rows", "assignments", "rows_without_words", "rows_without_tags", "tag_rows"), X.facts[0]
        sums = self.sum(_figures, X, names)
        known = None if sizes.n_known is None else sum(fact.n_known or 0 for fact in X.facts)
        return {
            **dict(zip(names, sums)),
            "features": sizes.n_features,
            "tags": sizes.n_labels,
            "known_pairs": known,
            "known_without_rows": len(self.without),
        }

    def fit(self, model: MultiLabelModel, X: TrainingParts, **more: Any) -> MultiLabelModel:
        """The model, fitted on the cluster."""
        return fit(model, X, None, client=self.cluster.client, **more)


def _label_matrices(
    rows: Table, names: TagNames, has_known: bool
) -> tuple[sp.csr_matrix, sp.csr_matrix | None, set[str]]:
    """Labels and known pairs of rows, None where everything is known of all; and known names that are no labels."""
    lists, position = names.written(rows.tags), column_of(names.tags)
    Y, _ = tag_matrix(lists, position)
    if not has_known:
        return Y, None, set()
    observed, without = known_matrix(names.written(rows.known or [None] * len(lists)), lists, position)
    return Y, observed, without


def _known_counts(table: Table) -> Counter[str]:
    return Counter(tag for row in table.known or () for tag in row or ())


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


def _empty_rows(X: sp.csr_matrix, Y: sp.csr_matrix) -> int:
    return int(np.count_nonzero(np.diff(X.indptr) == 0))


def _figures(X: sp.csr_matrix, Y: sp.csr_matrix, names: Sequence[str]) -> tuple[Any, ...]:
    figures = row_figures(X, Y)
    return tuple(figures[name] for name in names)


# ---------------------------------------------------------------------- what workers run


@task
def survey(file: TextFile) -> _Survey:
    """What a file adds to :class:`_Survey`; a fault is told, not raised, since the first in order counts."""
    none = _Survey([0], None, np.zeros(2, dtype=np.int64), Counter(), Counter(), False)
    try:
        table = file.read()
    except (TagwiseError, OSError) as error:
        return replace(none, fault=file.fault(error))
    if table.tally is None:
        return none
    some_known = any(row is not None for row in table.known or ())
    repeats = np.array([table.duplicates, table.other_tags])
    return _Survey(
        [len(table.texts)], file.told(table.tally), repeats, table.tag_counts, _known_counts(table), some_known
    )


@task
def answer_file(function: Callable[..., Any], tagger: Tagger, file: TextFile, target: str, *arguments: Any) -> Any:
    """What the function returns, or the fault of the file."""
    try:
        return function(tagger, file, target, *arguments)
    except (TagwiseError, OSError) as error:
        return file.fault(error)


@task
def rows_of_file(file: TextFile, numbers: np.ndarray) -> Table:
    """Some of the rows of a file."""
    return file.read().part(numbers)


@task
def rows_with_digests(file: TextFile, digests: list[bytes]) -> tuple[np.ndarray, int]:
    """How many rows of a file have the text of each digest; and how many rows have tags."""
    table = file.read()
    times = Counter(map(_digest, table.texts))
    return np.array([times[digest] for digest in digests]), sum(map(bool, table.tags))


@task
def count_words(file: TextFile, features: TextFeatures, first: int, n_texts: int) -> TermCounts:
    """The words of a file, whose first row is number ``first`` of all."""
    return features.count(file.read().texts, first, n_texts)


@task
def chosen_words(counts: TermCounts, features: TextFeatures, also: list[str]) -> tuple[TextFeatures, np.ndarray]:
    """The features of all texts, and how these are spaced."""
    return features.fit_counts(counts, also), counts.spacing


@task
def read_part(file: TextFile, fitted: tuple[TextFeatures, Any], names: TagNames, has_known: bool) -> Part:
    """Features, labels and known pairs of a file."""
    table = file.read()
    Y, observed, _ = _label_matrices(table, names, has_known)
    return Part(fitted[0].transform(table.texts), Y, observed, None)


@task
def of_part(part: Part, function: Callable[..., Any], *arguments: Any) -> Any:
    """A function of features and labels."""
    return function(part.X, part.Y, *arguments)
