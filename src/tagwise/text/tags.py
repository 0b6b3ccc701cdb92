"""Texts and their tags as matrices: labels, masks of the known ones, and the rows to train or validate on.

Tags are names or whole numbers. They are given as one list per text, or as a 0/1 matrix with one column per tag: a
data frame, whose columns are named by their tags, or an array or sparse matrix, whose tags are the numbers 0, 1, ….
"""

from __future__ import annotations

import numbers
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.answers import format_of
from tagwise.data.splits import split_rows
from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseWarning, warn
from tagwise.feature_blocks import FeatureBlocks
from tagwise.progress import counted
from tagwise.store.folder import is_text
from tagwise.text.features import check_texts
from tagwise.validation import check_integer, check_labels

__all__ = [
    "RemoteTexts",
    "TrainingRows",
    "ValidationRows",
    "all_tags",
    "check_name",
    "check_tags",
    "column_of",
    "empty_rows",
    "has_entries",
    "known_matrix",
    "ones_in",
    "require_one_type",
    "respelt_rows",
    "split_texts",
    "tag_key",
    "tag_matrix",
]


class RemoteTexts(ABC):
    """Texts that lie elsewhere, such as in files that the workers of a cluster read; going through them fetches them.

    ``digests`` has one of each text: equal texts have equal ones.
    """

    digests: list[bytes]

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[str]: ...

    @abstractmethod
    def part(self, numbers: Sequence[int]) -> RemoteTexts:
        """Some of the texts, by their numbers and in this order."""

    @abstractmethod
    def fit_features(self, features: Any, also: Iterable[str]) -> tuple[Any, sp.csr_matrix]:
        """``features``, fitted to the texts with the words ``also`` beside theirs, and X (n, d)."""


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Texts (a list, or remote ones), with their tags as matrices: labels Y (n, L), and known pairs, None for all.

    ``tags`` names the columns: all that rows or the vocabulary have, sorted; or, where tags are a matrix, its columns
    and then those of the vocabulary. ``without_rows`` counts names in ``known`` that neither has, and which therefore
    are not labels. ``output_format`` is that of a matrix of tags (:func:`tagwise.answers.format_of`), None for lists.
    """

    texts: Any
    tags: list[Any]
    Y: sp.csr_matrix
    observed: sp.csr_matrix | None
    without_rows: int
    output_format: tuple[str, Any] | None = None

    @classmethod
    def of(
        cls,
        texts: Iterable[str],
        tags: Any,
        known: Any,
        vocabulary: Iterable[str] = (),
        *,
        normalise: bool = False,
        learnt: Sequence[Any] = (),
    ) -> TrainingRows:
        """Check what the user gave, but the ``vocabulary``. Warns where ``known`` names tags that are no labels.

        Tags that are written nearly alike are one with ``normalise``, and otherwise warned of. ``learnt`` are the tags
        of a tagger to update, whose columns come first.
        """
        rows = texts if isinstance(texts, RemoteTexts) else check_texts(texts)
        if not len(rows):
            raise InvalidInputError("texts is empty; at least one text is needed.")
        lists = check_tags(tags, len(rows))
        if not (learnt or any(lists)):
            raise InvalidInputError(f"tags holds no tag in any of the {len(rows):,} rows; there is nothing to learn.")
        looked_at = None if known is None else check_tags(known, len(rows), "known")
        matrix = None if learnt else _as_matrix(tags, "tags")
        columns, output_format = ([], None) if matrix is None else (matrix[1], format_of(tags))
        listed, counts = [*learnt, *vocabulary], Counter(tag for row in lists for tag in row)
        differ = "tags differ in type from those of the fit" if learnt else "tags holds numbers and names"
        require_one_type([counts, columns, listed], differ)
        ways = _spellings(counts, listed, warns=not (normalise or learnt))
        spelling = ways if normalise else None
        first = list(learnt) or _respelt(columns, spelling)
        names = [*first, *sorted({*_respelt(counts, spelling), *listed}.difference(first))]
        lists, position = respelt_rows(lists, spelling), column_of(names)
        Y, _ = tag_matrix(lists, position)
        if looked_at is None:
            return cls(rows, names, Y, None, 0, output_format)
        observed, without = known_matrix(respelt_rows(looked_at, spelling), lists, position)
        if without:
            warn(
                f"known names {counted(len(without), 'tag')} that no row has, such as {min(without)!r}; such a tag "
                "cannot be learnt and is never suggested, unless it is in the vocabulary.",
                TagwiseWarning,
            )
        complete = observed.nnz == Y.shape[0] * Y.shape[1]
        return cls(rows, names, Y, None if complete else observed, len(without), output_format)

    @property
    def has_rows(self) -> np.ndarray:
        """Whether some row has each tag (L)."""
        return np.bincount(self.Y.indices, minlength=len(self.tags)) > 0

    def part(self, numbers: np.ndarray) -> TrainingRows:
        """Some of the rows, by their numbers and in this order."""
        observed = None if self.observed is None else self.observed[numbers]
        if isinstance(self.texts, RemoteTexts):
            texts = list(self.texts.part(numbers.tolist()))
        else:
            texts = [self.texts[row] for row in numbers]
        return TrainingRows(texts, self.tags, self.Y[numbers], observed, self.without_rows)

    def figures(self, X: sp.csr_matrix | FeatureBlocks) -> dict[str, Any]:
        """Plain values for people who look at the fitted tagger: see ``Tagger.training_``."""
        return {
            "rows": X.shape[0],
            "features": X.shape[1],
            "tags": len(self.tags),
            "assignments": int(self.Y.nnz),
            "known_pairs": None if self.observed is None else int(self.observed.nnz),
            "known_without_rows": self.without_rows,
            "rows_without_words": empty_rows(X),
            "rows_without_tags": empty_rows(self.Y),
            "tag_rows": np.bincount(self.Y.indices, minlength=len(self.tags)).astype(np.int64),
        }


@dataclass(frozen=True, eq=False)
class ValidationRows:
    """Texts and tags that a tagger was not fitted on, in the columns of its features X (n, d) and tags Y (n, L).

    ``truth`` (n, L + u) has all tags: after those of Y come the u not seen in training. ``observed`` has the known
    pairs, None where all are known; ``unseen`` counts the rows of each tag not seen in training; ``tags`` are the
    lists of tags, as the tagger writes them.
    """

    X: sp.csr_matrix
    Y: sp.csr_matrix
    truth: sp.csr_matrix
    observed: sp.csr_matrix | None
    unseen: Counter[Any]
    tags: list[list[Any]] = field(default_factory=list)


def column_of(names: Sequence[str]) -> dict[str, int]:
    """The column of each tag."""
    return {name: column for column, name in enumerate(names)}


def split_texts(
    texts: Sequence[str] | RemoteTexts, tags: Sequence[Sequence[str]], fraction: float, random_state: Any
) -> tuple[list[int], list[int]]:
    """Rows to train on and rows to validate on, by number, at random: figures on the latter hold for new rows.

    No validation text is among the training texts: a row that would repeat one is trained on, with a warning.
    """
    train, test = split_rows(sp.csr_matrix((len(texts), 1), dtype=np.float32), fraction, random_state)
    keys: Sequence[Any] = texts.digests if isinstance(texts, RemoteTexts) else texts
    seen = {keys[row] for row in train}
    repeats = np.array([keys[row] in seen for row in test])
    if not any(tags[row] for row in train):
        raise InvalidInputError(
            f"validation {fraction:g} leaves no row with a tag to train on. Give more rows, or leave validation out."
        )
    if repeats.all():
        raise InvalidInputError(
            f"validation {fraction:g} leaves no row to validate on: each text is among the training texts too. Give "
            "more rows, or leave validation out."
        )
    if repeats.any():
        warn(
            f"{counted(int(repeats.sum()), 'row')} picked for validation with a text that training rows have too: "
            "trained on instead.",
            TagwiseWarning,
        )
    return np.sort(np.concatenate([train, test[repeats]])).tolist(), test[~repeats].tolist()


def check_tags(tags: Any, n_rows: int | None = None, name: str = "tags") -> list[Any]:
    """One list of names or numbers for each of ``n_rows`` texts; those that a row has twice count once.

    ``name`` is the argument; a row of ``known`` may be None, for all tags.
    """
    rows = _rows(tags, n_rows, name)
    return [None if row is None and name == "known" else _names(row, number, name) for number, row in enumerate(rows)]


def all_tags(tags: Iterable[Iterable[Any]]) -> list[Any]:
    """The different names, sorted."""
    return sorted({name for row in tags for name in row})


def tag_key(tag: Any) -> str:
    """Key shared by tags that differ only in capitals, in blanks or in the form of their characters (NFKC)."""
    return " ".join(unicodedata.normalize("NFKC", str(tag)).casefold().split())


def _respelt(tags: Iterable[Any], spelling: Mapping[str, Any] | None) -> list[Any]:
    """The tags as ``spelling`` writes those of their keys, and others as they are; each once."""
    if spelling is None:
        return list(tags)
    return list(dict.fromkeys(spelling.get(tag_key(tag), tag) for tag in tags))


def respelt_rows(rows: list[Any], spelling: Mapping[str, Any] | None) -> list[Any]:
    """Lists of tags, or None in place of some, as ``spelling`` writes them."""
    return rows if spelling is None else [None if row is None else _respelt(row, spelling) for row in rows]


def _spellings(counts: Counter[Any], vocabulary: Iterable[Any], *, warns: bool) -> dict[str, Any]:
    """Key → how most rows write the tag; the vocabulary's way comes first. Warns of tags that are written nearly alike.

    ``counts`` has the rows of each tag. Time and memory O(different tags).
    """
    listed = list(vocabulary)
    ways: dict[str, list[Any]] = {}
    for tag in [*listed, *sorted(counts, key=lambda tag: (-counts[tag], tag))]:
        same = ways.setdefault(tag_key(tag), [])
        if tag not in same:
            same.append(tag)
    several = [same for same in ways.values() if len(same) > 1]
    if several and warns:
        shown = max(several, key=lambda same: (counts[same[1]], same))[:2]
        example = " and ".join(f"{tag!r:.40} ({counted(counts[tag], 'row')})" for tag in shown)
        warn(
            f"{counted(len(several), 'tag')} written in more than one way, alike but for capitals or blanks, such as "
            f"{example}: each way is a tag of its own. normalise_tags=True (--normalise-tags) makes them one.",
            TagwiseWarning,
        )
    return {key: same[0] for key, same in ways.items()}


def require_one_type(tags: Iterable[Iterable[Any]], problem: str) -> None:
    """Raise where some tags are numbers and others are names."""
    found = {name for row in tags for name in row}
    whole, named = ([tag for tag in found if isinstance(tag, int) == number] for number in (True, False))
    if whole and named:
        raise InvalidTypeError(f"{problem}: {min(whole)!r} and {min(named)!r:.60}. Write all of them alike.")


def tag_matrix(tags: Sequence[Sequence[str]], position: Mapping[str, int]) -> tuple[sp.csr_matrix, Counter[str]]:
    """0/1 labels (rows × tags, float32) of the tags that have a position, and how often each other one occurs."""
    columns = [{position[name] for name in row if name in position} for row in tags]
    unseen = Counter(name for row in tags for name in set(row) if name not in position)
    return ones_in(columns, len(position)), unseen


def known_matrix(
    known: Sequence[Sequence[str] | None], tags: Sequence[Sequence[str]], position: Mapping[str, int]
) -> tuple[sp.csr_matrix, set[str]]:
    """The mask (rows × tags) of the known pairs, and the names in ``known`` that have no position.

    The tags that a row has are always known. A row of which everything is known has one entry per tag.
    """
    every = list(range(len(position)))
    columns: list[Collection[int]] = []
    without: set[str] = set()
    for names, row in zip(known, tags):
        if names is None:
            columns.append(every)
            continue
        without.update(name for name in names if name not in position)
        columns.append({position[name] for name in (*names, *row) if name in position})
    return ones_in(columns, len(position)), without


def has_entries(matrix: sp.csr_matrix | FeatureBlocks) -> np.ndarray:
    """Whether each row has an entry, or a word beside an embedding: bool (n,)."""
    sparse = matrix.sparse if isinstance(matrix, FeatureBlocks) else matrix
    return np.diff(sparse.indptr) > 0


def empty_rows(matrix: sp.csr_matrix | FeatureBlocks) -> int:
    """Number of rows without an entry."""
    return int(np.count_nonzero(~has_entries(matrix)))


def ones_in(columns: Sequence[Collection[int] | np.ndarray], n_columns: int) -> sp.csr_matrix:
    """A 0/1 matrix (float32) from the different columns of each row's ones."""
    indptr = np.cumsum([0, *map(len, columns)])
    indices = np.fromiter((column for row in columns for column in row), dtype=np.int32, count=int(indptr[-1]))
    matrix = sp.csr_matrix((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(len(columns), n_columns))
    matrix.sort_indices()
    return matrix


def _as_matrix(value: Any, name: str) -> tuple[sp.csr_matrix, list[Any]] | None:
    """A 0/1 matrix as CSR, and the tags of its columns; None for anything else, such as lists.

    A list of lists of numbers is one of lists of tags: it is no matrix.
    """
    columns: list[Any] | None = None
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):  # a data frame of pandas or polars
        columns = [check_name(column, f"columns of {name}", place) for place, column in enumerate(value.columns)]
        if len(set(columns)) < len(columns):
            raise InvalidInputError(f"{name} has two columns of the same name; each must name another tag.")
        value = value.to_numpy()
    elif not sp.issparse(value) and (not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind in "USO"):
        return None
    matrix = check_labels(value, name=name)
    return matrix, list(range(matrix.shape[1])) if columns is None else columns


def _rows(value: Any, n_rows: int | None, name: str) -> list[Any]:
    rows: list[Any]
    found = _as_matrix(value, name)
    if found is not None:
        matrix, columns = found
        rows = [[columns[place] for place in part] for part in np.split(matrix.indices, matrix.indptr[1:-1])]
        rows = rows[: matrix.shape[0]]
    elif isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InvalidTypeError(f"{name} must be a list with one list of tag names per text; found {value!r:.60}.")
    else:
        rows = list(value)
    if n_rows is not None and len(rows) != n_rows:
        raise InvalidInputError(
            f"{name} has {len(rows):,} rows but texts has {n_rows:,}; they must describe the same texts."
        )
    return rows


def _names(row: Any, number: int, name: str) -> list[Any]:
    if isinstance(row, str):
        raise InvalidTypeError(
            f"{name} must hold lists of tag names; found the string {row!r:.60} at position {number}. Split it, or put "
            "it in a list if it is one tag."
        )
    if isinstance(row, (bytes, dict)) or not isinstance(row, Iterable):
        raise InvalidTypeError(f"{name} must hold lists of tag names; found {row!r:.60} at position {number}.")
    return list(dict.fromkeys(check_name(tag, name, number) for tag in row))


def check_name(tag: Any, name: str, number: int) -> Any:
    """The name of a tag: text that is not empty, or a whole number of 64 bits.

    ``name`` is the argument that has it at position ``number``.
    """
    if not isinstance(tag, bool) and isinstance(tag, numbers.Integral):
        return check_integer(tag, f"{name} at position {number}")
    if not isinstance(tag, str):
        raise InvalidTypeError(f"{name} must hold names as text; found {tag!r:.60} at position {number}.")
    if not tag.strip() or not is_text(tag):
        what = "a name that is not Unicode text" if tag.strip() else "an empty name"
        raise InvalidInputError(f"{name} has {what} ({tag!r:.60}) at position {number}; leave it out or name it.")
    return tag
