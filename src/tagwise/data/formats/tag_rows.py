"""Tags by name into a label matrix and back, for the formats that hold texts."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.validation import check_labels

__all__ = ["TagCollector", "TextRow", "checked_strings", "checked_text_rows"]

# Identifier or None, text, tags.
TextRow = tuple[str | None, str, list[str]]


class TagCollector:
    """Collects the tags of row after row; memory is that of the label matrix plus one copy of each name."""

    def __init__(self) -> None:
        self._number_of: dict[str, int] = {}
        self._numbers = array("i")
        self._ends = array("q", [0])

    def add(self, tags: Iterable[str]) -> None:
        """Append a row with these tags, which must be different from each other."""
        numbers = self._number_of
        self._numbers.extend(numbers.setdefault(tag, len(numbers)) for tag in tags)
        self._ends.append(len(self._numbers))

    def finish(self) -> tuple[list[str], sp.csr_matrix]:
        """The sorted names, and the rows × names matrix of ones."""
        names = sorted(self._number_of)
        column_of = np.empty(len(names), dtype=np.int32)
        for column, name in enumerate(names):
            column_of[self._number_of[name]] = column
        numbers = np.array(self._numbers, dtype=np.int32)
        indices = column_of[numbers]
        matrix = sp.csr_matrix(
            (np.ones(len(indices), dtype=np.float32), indices, np.array(self._ends, dtype=np.int64)),
            shape=(len(self._ends) - 1, len(names)),
        )
        matrix.sort_indices()
        return names, matrix


def checked_text_rows(texts: Any, Y: Any, label_names: Any, row_ids: Any) -> Iterator[TextRow]:
    """Check what a writer of texts was given, then yield its rows."""
    text_list = checked_strings(texts, "texts")
    names = checked_strings(label_names, "label_names")
    if len(set(names)) < len(names):
        raise InvalidInputError("label_names lists a name twice; a reader could not tell the two labels apart.")
    if "" in names:
        raise InvalidInputError("label_names holds an empty name; give every label a name.")
    matrix = check_labels(Y, n_labels=len(names))
    if matrix.shape[0] != len(text_list):
        raise InvalidInputError(f"Y has {matrix.shape[0]:,} rows but texts has {len(text_list):,}; they must match.")
    ids: Sequence[str | None] = [None] * len(text_list)
    if row_ids is not None:
        ids = checked_strings(row_ids, "row_ids")
        if len(ids) != len(text_list):
            raise InvalidInputError(f"row_ids has {len(ids):,} entries but texts has {len(text_list):,}.")
    return _rows(text_list, matrix, names, ids)


def _rows(texts: list[str], matrix: sp.csr_matrix, names: list[str], ids: Sequence[str | None]) -> Iterator[TextRow]:
    for row, (row_id, text) in enumerate(zip(ids, texts)):
        labels = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].tolist()
        yield row_id, text, [names[label] for label in labels]


def checked_strings(values: Any, argument: str) -> list[str]:
    """A list of strings that UTF-8 can hold; ``argument`` names it in messages."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidTypeError(f"{argument} must be a list of strings; found {type(values).__name__}.")
    found = list(values)
    for place, value in enumerate(found):
        if not isinstance(value, str):
            raise InvalidTypeError(f"{argument}[{place}] must be a string; found {value!r}.")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError(f"{argument}[{place}] cannot be written as UTF-8: {error.reason}.") from None
    return found
