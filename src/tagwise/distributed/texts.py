"""Text files that are one table, read by the workers of a Dask cluster: from these to a fitted tagger.

Each file is read once for its tags and faults, once for its words, and once for its features. So texts stay in the
files, and all results can be recomputed when a worker dies.
"""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from hashlib import blake2b
from typing import Any

import numpy as np
import scipy.sparse as sp
from distributed import Client

from tagwise.data.columns import Columns, Dialect
from tagwise.data.formats import STANDARD_INPUT, file_format
from tagwise.data.records import NoRowsError
from tagwise.data.tables import Table, TableReader, Tally, notes_on_rows, read_table
from tagwise.distributed.cluster import connected_client
from tagwise.distributed.executor import DaskExecutor
from tagwise.distributed.fitting import require_learns_on_cluster
from tagwise.exceptions import InvalidInputError, ParseError, TagwiseError
from tagwise.executor import running_on
from tagwise.models.choice import model_class
from tagwise.progress import Callback, ProgressBar, counted
from tagwise.store import Checkpoint
from tagwise.text.features import TermCounts, TextFeatures
from tagwise.text.tagger import Tagger
from tagwise.text.tags import RemoteTexts

__all__ = ["FileTexts", "TextFile", "check_tagger", "fit_tagger", "open_files", "read_files", "write_each"]


@dataclass(frozen=True)
class TextFile:
    """One of the files of a table: its path, and its name as the user wrote it."""

    path: str
    name: str
    dialect: Dialect
    columns: Columns

    def read(self) -> Table:
        """The rows, of which there may be none; errors are those of :func:`tagwise.data.tables.read_table`."""
        try:
            return read_table(self.path, self.dialect, columns=self.columns)
        except NoRowsError:
            return Table(known=[] if self.columns.known else None)

    def texts(self, rows: np.ndarray) -> list[str]:
        """The texts of some rows."""
        found = self.read().texts
        return [found[row] for row in rows]

    def reader(self, **more: Any) -> TableReader:
        """To read the rows one by one; ``more`` as of :class:`TableReader`."""
        return TableReader(self.path, self.dialect, columns=self.columns, **more)

    def named(self, tally: Tally) -> Tally:
        """A tally that names the file where it matters."""
        fault: Any = None if tally.first_fault is None else self.fault(tally.first_fault)
        return replace(tally, first_fault=fault, about=tuple(f"{self.name}: {note}" for note in tally.about))

    def fault(self, error: Exception) -> Exception:
        """An error on a worker, as the client's user would have met it."""
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
            f"{names[0]} is {kinds[names[0]].name} and {other} is {kinds[other].name}; give files of one format."
        )
    if kinds[names[0]].holds == "matrix":
        raise InvalidInputError(
            f"{names[0]} holds a matrix ({kinds[names[0]].name}), where rows with texts are expected; "
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
class FileTexts(RemoteTexts):
    """Texts of rows in files, which the workers of a cluster read.

    Attributes
    ----------
    client : dask.distributed.Client
    files : list of TextFile
    starts : int array
        Number of the first row of each file, and the number of all rows.
    rows : int array
        Numbers of the rows, in their order.
    digests : list of bytes
        A digest of each text: equal texts have equal ones.
    verbose : int
        1 shows progress.
    """

    client: Client
    files: list[TextFile]
    starts: np.ndarray
    rows: np.ndarray
    digests: list[bytes]
    verbose: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[str]:
        with DaskExecutor(self.client) as executor:
            found = [text for texts in executor.map(texts_of_file, self._shards()) for text in texts]
        return iter([found[place] for place in self._places()])

    def part(self, numbers: Sequence[int]) -> FileTexts:
        """Some of the texts, by their numbers and in this order."""
        return replace(self, rows=self.rows[np.asarray(numbers)], digests=[self.digests[row] for row in numbers])

    def fit_features(self, features: TextFeatures, also: Iterable[str]) -> tuple[TextFeatures, sp.csr_matrix]:
        """Features fitted to the texts and the words ``also``, and X (n, d): files are counted, then transformed."""
        shards = self._shards()
        sizes = np.cumsum([0, *(len(rows) for _, rows in shards)]).tolist()
        with DaskExecutor(self.client) as executor:
            counts = executor.stream(count_words, list(zip(shards, sizes)), features, len(self))
            whole = reduce(TermCounts.plus, _shown(counts, "counting words", len(shards), self.verbose))
            fitted = features.fit_counts(whole, sorted(also))
            parts = executor.stream(features_of_file, shards, executor.share(fitted))
            X = sp.vstack(list(_shown(parts, "making features", len(shards), self.verbose)), format="csr")
        fitted.warn_of_lost_words(len(self), int(np.count_nonzero(np.diff(X.indptr) == 0)), whole.spacing)
        return fitted, X if (np.diff(self.rows) > 0).all() else X[self._places()]

    def _shards(self) -> list[tuple[TextFile, np.ndarray]]:
        """Each file with its rows in rising order, without files of which there are none."""
        parts = np.split(np.sort(self.rows), np.searchsorted(np.sort(self.rows), self.starts[1:-1]))
        return [(file, rows - start) for file, rows, start in zip(self.files, parts, self.starts) if len(rows)]

    def _places(self) -> np.ndarray:
        """Place of each text among those of all shards."""
        return np.argsort(np.argsort(self.rows, kind="stable"), kind="stable")


def read_files(
    files: Any,
    dialect: Dialect | None = None,
    *,
    client: Any = None,
    on_guess: Callable[[str], None] | None = None,
    verbose: int = 0,
    **fields: Any,
) -> Table:
    """Read text files on the workers of a cluster: tags and faults are then known; texts stay in the files.

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

    Returns
    -------
    Table
        As of :func:`tagwise.data.tables.read_table`, but for ``texts``, which are :class:`FileTexts`: going through
        them reads the files again. The client holds tags, and 16 bytes per row.

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
    connected = connected_client(client)
    opened, guess = open_files(files, stated)
    if guess is not None and on_guess is not None:
        on_guess(guess)
    with DaskExecutor(connected) as executor:
        tables = list(_shown(executor.stream(tags_of_file, opened), "reading files", len(opened), verbose))
    fault = next((table for table in tables if isinstance(table, Exception)), None)
    if fault is not None:
        raise fault
    digests = [digest for table in tables for digest in table.texts]
    tallies = [table.tally for table in tables if table.tally is not None]
    tally = tallies[0].plus(*tallies[1:])
    if not digests:
        raise ParseError(opened[0].name, 0, 0, f"no row is left; all are faulty: {tally.first_fault}")
    starts = np.cumsum([0, *(len(table.texts) for table in tables)])
    one_of: dict[str, str] = {}  # one object for all occurrences of a tag
    tags = [[one_of.setdefault(tag, tag) for tag in row] for table in tables for row in table.tags]
    known = [row for table in tables for row in table.known or [None] * len(table.texts)]
    columns = opened[0].columns
    different = {(digest, *sorted(row)) for digest, row in zip(digests, tags)}
    whole = Table(
        FileTexts(connected, opened, starts, np.arange(len(digests)), digests, verbose),  # type: ignore[arg-type]
        tags,
        known if columns.known is not None or any(row is not None for row in known) else None,
        duplicates=len(digests) - len(different),
        other_tags=len(different) - len(set(digests)),
        skipped=tally.skipped,
        guess=guess,
        account=tally.account(opened[0].name if len(opened) == 1 else counted(len(opened), "file")),
        counts=tally.counts(),
        tally=tally,
    )
    repeats = whole.duplicates, whole.other_tags
    whole.notes = tally.notes() + notes_on_rows(len(digests), repeats, whole.tag_counts, columns, stated)
    return whole


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
        place, with the same result as its own ``fit`` to the rows of all files: tags, words and document
        frequencies are the same, and so is the model up to the rounding of sums.
    files : path, pattern or list of them, or Table
        See :func:`read_files`, which also makes the table.
    dialect, **fields
        How to read them, as in :func:`tagwise.data.tables.read_table`: ``text="body"``.
    client, callback, checkpoint
        As in :func:`fit`.

    Returns
    -------
    tagger

    Notes
    -----
    Every file is read three times by a worker: for its tags, for its words, and for its features. The client adds the
    words up, and holds features, tags and the model; workers map these into memory while the model is fitted.
    """
    check_tagger(tagger)
    table = files
    if not isinstance(files, Table):
        table = read_files(files, dialect, client=client, verbose=tagger.verbose, **fields)
    with DaskExecutor(table.texts.client) as executor, running_on(executor):
        return tagger.fit(table.texts, table.tags, table.known, callback=callback, checkpoint=checkpoint)


def check_tagger(tagger: Tagger) -> None:
    """Refuse a tagger that could not be fitted on a cluster, before any file is read."""
    model, features = tagger.model, tagger.features
    if not isinstance(model, str):
        require_learns_on_cluster(type(model))
    elif model.lower() != "auto":  # which is Cascade
        require_learns_on_cluster(model_class(model))
    if not isinstance(features, (str, TextFeatures)):
        raise InvalidInputError(
            f"features: on a cluster words are counted by TextFeatures; found {type(features).__name__}."
        )
    if tagger.embedder is not None:
        raise InvalidInputError("embedder: texts on a cluster are not embedded; leave it out, or fit on one machine.")


def write_each(
    function: Callable[..., Any],
    files: Sequence[tuple[TextFile, str]],
    tagger: Tagger,
    *arguments: Any,
    client: Any = None,
    verbose: int = 0,
) -> list[Any]:
    """``function(tagger, file, target, *arguments)`` on some worker for every file and target, in their order.

    Workers are sent the tagger once. A file that cannot be read or written is reported when all others are done: the
    first in order.
    """
    with DaskExecutor(client) as executor:
        answers = executor.stream(answer_file, files, function, executor.share(tagger), *arguments)
        found = list(_shown(answers, "files", len(files), verbose))
    fault = next((answer for answer in found if isinstance(answer, Exception)), None)
    if fault is not None:
        raise fault
    return found


def _shown(results: Iterable[Any], what: str, total: int, verbose: int) -> Iterator[Any]:
    """The results as they come, with a progress bar."""
    with ProgressBar(what, total, wanted=bool(verbose), steps=True) as bar:
        for done, result in enumerate(results, 1):
            bar.at(done)
            yield result


# ---------------------------------------------------------------------- what workers run


def tags_of_file(file: TextFile) -> Table | Exception:
    """The rows of a file with digests for texts; or its fault, since only the first in order counts."""
    try:
        table = file.read()
    except (TagwiseError, OSError) as error:
        return file.fault(error)
    digests: Any = [blake2b(text.encode(), digest_size=16).digest() for text in table.texts]
    return replace(table, texts=digests, tally=None if table.tally is None else file.named(table.tally))


def texts_of_file(shard: tuple[TextFile, np.ndarray]) -> list[str]:
    """The texts of some rows of a file."""
    file, rows = shard
    return file.texts(rows)


def count_words(task: tuple[tuple[TextFile, np.ndarray], int], features: TextFeatures, n_texts: int) -> TermCounts:
    """The words of some rows of a file, the first of which has this number among all."""
    (file, rows), first = task
    return features.count(file.texts(rows), first, n_texts)


def features_of_file(shard: tuple[TextFile, np.ndarray], features: TextFeatures) -> sp.csr_matrix:
    """The features of some rows of a file."""
    file, rows = shard
    return features.transform(file.texts(rows))


def answer_file(task: tuple[TextFile, str], function: Callable[..., Any], tagger: Tagger, *arguments: Any) -> Any:
    """The function's answer for a file and its target, or the fault of the file."""
    file, target = task
    try:
        return function(tagger, file, target, *arguments)
    except (TagwiseError, OSError) as error:
        return file.fault(error)
