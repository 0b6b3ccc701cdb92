"""Texts and their lists of tags as matrices: labels, masks of the known ones, and the rows to train or validate on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.data.splits import split_rows
from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseWarning, warn
from tagwise.persistence.folder import is_text
from tagwise.progress import counted
from tagwise.text.features import TextFeatures, check_texts

__all__ = [
    "TrainingRows",
    "ValidationRows",
    "all_tags",
    "check_known",
    "check_name",
    "check_tags",
    "column_of",
    "known_matrix",
    "ones_in",
    "split_texts",
    "tag_matrix",
]


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Texts with their tags as matrices: labels Y (n, L), and the known pairs, None where all are known.

    ``tags`` names the columns, sorted: all that rows or the vocabulary have. ``without_rows`` counts names in ``known``
    that neither has, and which therefore are not labels.
    """

    texts: list[str]
    tags: list[str]
    Y: sp.csr_matrix
    observed: sp.csr_matrix | None
    without_rows: int

    @classmethod
    def of(cls, texts: Iterable[str], tags: Any, known: Any, vocabulary: Iterable[str] = ()) -> TrainingRows:
        """Check what the user gave, but the ``vocabulary``. Warns where ``known`` names tags that are no labels."""
        rows = check_texts(texts)
        if not rows:
            raise InvalidInputError("texts is empty; at least one text with a tag is needed to fit a tagger.")
        lists = check_tags(tags, len(rows))
        if not any(lists):
            raise InvalidInputError(f"tags holds no tag in any of the {len(rows):,} rows; there is nothing to learn.")
        names = all_tags([*lists, vocabulary])
        position = column_of(names)
        Y, _ = tag_matrix(lists, position)
        if known is None:
            return cls(rows, names, Y, None, 0)
        observed, without = known_matrix(check_known(known, len(rows)), lists, position)
        if without:
            warn(
                f"known names {counted(len(without), 'tag')} that no row has, such as {min(without)!r}; such a tag "
                "cannot be learnt and is never suggested, unless it is in the vocabulary.",
                TagwiseWarning,
            )
        complete = observed.nnz == Y.shape[0] * Y.shape[1]
        return cls(rows, names, Y, None if complete else observed, len(without))

    def figures(self, X: sp.csr_matrix, n_words: int) -> dict[str, Any]:
        """Plain values for people who look at the fitted tagger: see ``Tagger.training_``."""
        return {
            "rows": len(self.texts),
            "features": X.shape[1],
            "words": n_words,
            "tags": len(self.tags),
            "assignments": int(self.Y.nnz),
            "known_pairs": None if self.observed is None else int(self.observed.nnz),
            "known_without_rows": self.without_rows,
            "rows_without_words": _empty_rows(X),
            "rows_without_tags": _empty_rows(self.Y),
            "tag_rows": np.bincount(self.Y.indices, minlength=len(self.tags)).astype(np.int64),
        }


@dataclass(frozen=True, eq=False)
class ValidationRows:
    """Texts and tags that a tagger was not fitted on, in the columns of its features X (n, d) and tags Y (n, L).

    ``truth`` (n, L + u) has all tags: after those of Y come the u that training never saw. ``observed`` has the known
    pairs, None where all are known; ``unseen`` counts the rows of each tag that training never saw.
    """

    X: sp.csr_matrix
    Y: sp.csr_matrix
    truth: sp.csr_matrix
    observed: sp.csr_matrix | None
    unseen: Counter[str]

    @classmethod
    def of(
        cls, features: TextFeatures, position: Mapping[str, int], texts: Iterable[str], tags: Any, known: Any
    ) -> ValidationRows:
        """Check what the user gave, and lay it out in the columns of ``features`` and ``position``."""
        rows = check_texts(texts)
        if not rows:
            raise InvalidInputError("texts is empty; at least one text is needed.")
        lists = check_tags(tags, len(rows))
        Y, unseen = tag_matrix(lists, position)
        truth, _ = tag_matrix(lists, column_of([*position, *sorted(unseen)]))
        observed = None
        if known is not None:
            observed, _ = known_matrix(check_known(known, len(rows)), lists, position)
        return cls(features.transform(rows), Y, truth, observed, unseen)

    @property
    def without_words(self) -> int:
        """Rows without a word that training saw."""
        return _empty_rows(self.X)

    @property
    def without_tags(self) -> int:
        """Rows without any tag."""
        return _empty_rows(self.truth)


def column_of(names: Sequence[str]) -> dict[str, int]:
    """The column of each tag."""
    return {name: column for column, name in enumerate(names)}


def split_texts(
    texts: Sequence[str], tags: Sequence[Sequence[str]], fraction: float, random_state: Any
) -> tuple[list[int], list[int]]:
    """Rows to train on and rows to validate on, by number; every tag stays in training.

    No validation text is among the training texts: a row that would repeat one is trained on, with a warning.
    """
    Y, _ = tag_matrix(tags, column_of(all_tags(tags)))
    train, test = (rows.tolist() for rows in split_rows(Y, fraction, random_state))
    seen = {texts[row] for row in train}
    repeats = [row for row in test if texts[row] in seen]
    fresh = [row for row in test if texts[row] not in seen]
    if repeats:
        warn(
            f"{counted(len(repeats), 'row')} picked for validation with a text that training rows have too: trained "
            "on instead.",
            TagwiseWarning,
        )
    if not fresh:
        raise InvalidInputError(
            f"validation {fraction:g} leaves no row to validate on: each is the last training row of a tag, or its "
            "text is among the training texts. Give more rows, or leave validation out."
        )
    return sorted([*train, *repeats]), fresh


def check_tags(tags: Any, n_rows: int | None = None) -> list[list[str]]:
    """One list of names for each of ``n_rows`` texts; names that a row has twice count once."""
    return [_names(row, number, "tags") for number, row in enumerate(_rows(tags, n_rows, "tags"))]


def check_known(known: Any, n_rows: int) -> list[list[str] | None]:
    """As :func:`check_tags`, but a row may be None: all its tags are known."""
    rows = _rows(known, n_rows, "known")
    return [None if row is None else _names(row, number, "known") for number, row in enumerate(rows)]


def all_tags(tags: Iterable[Iterable[str]]) -> list[str]:
    """The different names, sorted."""
    return sorted({name for row in tags for name in row})


def tag_matrix(tags: Sequence[Sequence[str]], position: Mapping[str, int]) -> tuple[sp.csr_matrix, Counter[str]]:
    """0/1 labels (rows × tags, float32) of the tags that have a position, and how often each other one occurs."""
    unseen: Counter[str] = Counter()
    columns: list[list[int]] = []
    for row in tags:
        columns.append(sorted({position[name] for name in row if name in position}))
        unseen.update(name for name in set(row) if name not in position)
    return ones_in(columns, len(position)), unseen


def known_matrix(
    known: Sequence[Sequence[str] | None], tags: Sequence[Sequence[str]], position: Mapping[str, int]
) -> tuple[sp.csr_matrix, set[str]]:
    """The mask (rows × tags) of the known pairs, and the names in ``known`` that have no position.

    The tags that a row has are always known. A row of which everything is known has one entry per tag.
    """
    every = list(range(len(position)))
    columns: list[list[int]] = []
    without: set[str] = set()
    for names, row in zip(known, tags):
        if names is None:
            columns.append(every)
            continue
        without.update(name for name in names if name not in position)
        columns.append(sorted({position[name] for name in (*names, *row) if name in position}))
    return ones_in(columns, len(position)), without


def _empty_rows(matrix: sp.csr_matrix) -> int:
    return int(np.count_nonzero(np.diff(matrix.indptr) == 0))


def ones_in(columns: Sequence[Sequence[int] | np.ndarray], n_columns: int) -> sp.csr_matrix:
    """A 0/1 matrix (float32) from the sorted columns of each row's ones."""
    indptr = np.cumsum([0, *map(len, columns)])
    indices = np.fromiter((column for row in columns for column in row), dtype=np.int32, count=int(indptr[-1]))
    return sp.csr_matrix((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(len(columns), n_columns))


def _described(value: Any) -> str:
    return f"a {type(value).__name__}" if sp.issparse(value) else f"{value!r:.60}"


def _rows(value: Any, n_rows: int | None, name: str) -> list[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable) or sp.issparse(value):
        raise InvalidTypeError(f"{name} must be a list with one list of tag names per text; found {_described(value)}.")
    rows = list(value)
    if n_rows is not None and len(rows) != n_rows:
        raise InvalidInputError(
            f"{name} has {len(rows):,} rows but texts has {n_rows:,}; they must describe the same texts."
        )
    return rows


def _names(row: Any, number: int, name: str) -> list[str]:
    if isinstance(row, str):
        raise InvalidTypeError(
            f"{name} must hold lists of tag names; found the string {row!r:.60} at position {number}. Split it, or put "
            "it in a list if it is one tag."
        )
    if isinstance(row, (bytes, dict)) or not isinstance(row, Iterable):
        raise InvalidTypeError(f"{name} must hold lists of tag names; found {row!r:.60} at position {number}.")
    names = list(row)
    for tag in names:
        check_name(tag, name, number)
    return list(dict.fromkeys(names))


def check_name(tag: Any, name: str, number: int) -> str:
    """The name of a tag: text that is not empty. ``name`` is the argument that has it at position ``number``."""
    if not isinstance(tag, str):
        raise InvalidTypeError(f"{name} must hold names as text; found {tag!r:.60} at position {number}.")
    if not tag.strip() or not is_text(tag):
        what = "a name that is not Unicode text" if tag.strip() else "an empty name"
        raise InvalidInputError(f"{name} has {what} ({tag!r:.60}) at position {number}; leave it out or name it.")
    return tag
