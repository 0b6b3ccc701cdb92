"""Features and labels as readers return them and writers take them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.validation import check_features, check_labels

__all__ = [
    "GrowingRows",
    "LabelledRows",
    "checked_pair",
    "checked_strings",
    "narrowed",
    "shortest_texts",
]


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows of a data file with their labels.

    Attributes
    ----------
    X : scipy.sparse.csr_matrix of shape (n, d) or None
        Features, canonical (sorted, no duplicates); None when the file holds raw text.
    Y : scipy.sparse.csr_matrix of shape (n, L)
        Labels: float32 ones where a row has the label, canonical.
    feature_names, label_names : list of str or None
        Names of the columns of ``X`` and ``Y``, where the format has them.
    texts : list of str or None
        The raw text of each row, where the format has it.
    row_ids : list of str or None
        The identifier of each row, where it was asked for.
    n_skipped : int
        Number of faulty rows that ``errors="skip"`` left out; always 0 with ``errors="strict"``.
    """

    X: sp.csr_matrix | None
    Y: sp.csr_matrix
    feature_names: list[str] | None = None
    label_names: list[str] | None = None
    texts: list[str] | None = None
    row_ids: list[str] | None = None
    n_skipped: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows that were read."""
        return int(self.Y.shape[0])


class GrowingRows:
    """A CSR matrix whose rows are appended. Arrays of the array module grow in place and lend their memory."""

    def __init__(self, dtype: np.dtype[Any] | type = np.float32) -> None:
        self.dtype = np.dtype(dtype)
        self.values: array[float] = array(self.dtype.char)
        self.indices, self.ends = array("i"), array("q", [0])

    def append(self, indices: list[int], values: list[float]) -> None:
        """Add a row."""
        self.indices.extend(indices)
        self.values.extend(values)
        self.ends.append(len(self.indices))

    def extend(self, rows: sp.csr_matrix) -> None:
        """Add the rows of a matrix."""
        self.ends.frombytes((rows.indptr[1:].astype(np.int64) + len(self.indices)).tobytes())
        self.indices.frombytes(rows.indices.astype(np.int32, copy=False).tobytes())
        self.values.frombytes(rows.data.astype(self.dtype, copy=False).tobytes())

    def matrix(self, n_columns: int | None = None) -> sp.csr_matrix:
        """The rows so far, sorted; without ``n_columns``, the largest index is that of the last column."""
        indices = np.frombuffer(self.indices, dtype=np.int32)
        ends = np.frombuffer(self.ends, dtype=np.int64)
        if n_columns is None:
            n_columns = int(indices.max()) + 1 if len(indices) else 0
        index_type = np.int64 if len(indices) > np.iinfo(np.int32).max else np.int32
        parts = (
            np.frombuffer(self.values, dtype=self.dtype),
            indices.astype(index_type, copy=False),
            ends.astype(index_type, copy=False),
        )
        matrix = sp.csr_matrix(parts, shape=(len(ends) - 1, n_columns), copy=False)
        matrix.sort_indices()
        return matrix


def checked_pair(X: Any, Y: Any) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Features and labels for a writer: canonical CSR, finite, with equal numbers of rows."""
    features = check_features(X)
    rows = features if sp.issparse(features) else sp.csr_matrix(features)
    return rows, check_labels(Y, n_rows=rows.shape[0])


def shortest_texts(values: np.ndarray) -> list[str]:
    """The shortest decimal text of each float32 or float64 that reads back as exactly that value."""
    return [str(value).removesuffix(".0") for value in values]


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


def narrowed(values: np.ndarray, dtype: np.dtype[Any] | type) -> np.ndarray:
    """Values of a file as another floating type; a ValueError where they do not fit it."""
    with np.errstate(over="ignore", under="ignore"):
        found = values.astype(dtype, copy=False)
    if not np.isfinite(found).all():
        raise ValueError(f"a value is NaN, infinite or too large for {found.dtype}")
    if ((found == 0) & (values != 0)).any():
        raise ValueError(f"a value is not zero but so small that {found.dtype} would make it 0")
    return found
