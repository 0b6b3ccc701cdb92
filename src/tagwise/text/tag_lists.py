"""Lists of tag names as label matrices, and masks of the tags that were looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.persistence.values import is_text

__all__ = ["all_tags", "check_known", "check_tags", "known_matrix", "tag_matrix"]


def check_tags(tags: Any, n_rows: int | None = None) -> list[list[str]]:
    """One list of names a row; names that a row has twice count once.

    Raises
    ------
    InvalidTypeError, InvalidInputError
        Not a list of lists of names, or not one list for each of ``n_rows`` texts.
    """
    rows = _rows(tags, n_rows, "tags")
    return [_names(row, number, "tags") for number, row in enumerate(rows)]


def check_known(known: Any, n_rows: int) -> list[list[str] | None]:
    """As :func:`check_tags`, but a row may be None: every tag was looked at."""
    rows = _rows(known, n_rows, "known")
    return [None if row is None else _names(row, number, "known") for number, row in enumerate(rows)]


def all_tags(tags: Sequence[Sequence[str]]) -> list[str]:
    """The different names, sorted."""
    return sorted({name for row in tags for name in row})


def tag_matrix(tags: Sequence[Sequence[str]], position: Mapping[str, int]) -> tuple[sp.csr_matrix, Counter[str]]:
    """0/1 labels (rows × tags, float32) of the tags that have a position, and how often each other one occurs."""
    unseen: Counter[str] = Counter()
    columns: list[list[int]] = []
    for row in tags:
        columns.append(sorted({position[name] for name in row if name in position}))
        unseen.update(name for name in set(row) if name not in position)
    return _csr(columns, len(position)), unseen


def known_matrix(
    known: Sequence[Sequence[str] | None], tags: Sequence[Sequence[str]], position: Mapping[str, int]
) -> tuple[sp.csr_matrix, set[str]]:
    """The mask (rows × tags) of what was looked at, and the names in ``known`` that have no position.

    The tags of a row always count as looked at. Memory is that of the mask: a row of which everything is known takes
    as much as there are tags.
    """
    every = list(range(len(position)))
    columns: list[list[int]] = []
    without: set[str] = set()
    for looked_at, row in zip(known, tags):
        if looked_at is None:
            columns.append(every)
            continue
        without.update(name for name in looked_at if name not in position)
        columns.append(sorted({position[name] for name in (*looked_at, *row) if name in position}))
    return _csr(columns, len(position)), without


def _csr(columns: list[list[int]], n_tags: int) -> sp.csr_matrix:
    indptr = np.cumsum([0, *map(len, columns)])
    indices = np.fromiter((column for row in columns for column in row), dtype=np.int32, count=int(indptr[-1]))
    return sp.csr_matrix((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(len(columns), n_tags))


def _rows(value: Any, n_rows: int | None, name: str) -> list[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InvalidTypeError(f"{name} must be a list with one list of tag names a text; found {value!r:.60}.")
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
        if not isinstance(tag, str):
            raise InvalidTypeError(f"{name} must hold names as text; found {tag!r:.60} at position {number}.")
        if not tag.strip() or not is_text(tag):
            what = "a name that is no Unicode text" if tag.strip() else "an empty name"
            raise InvalidInputError(f"{name} has {what} ({tag!r:.60}) at position {number}; leave it out or name it.")
    return list(dict.fromkeys(names))
