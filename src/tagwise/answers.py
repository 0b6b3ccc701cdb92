"""Scores and labels of many rows: checks, and the output formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.validation import all_finite

__all__ = [
    "SCORES_OVERFLOW",
    "best_as_csr",
    "finite_scores",
    "format_of",
    "ones_in_format",
    "padded_answers",
    "require_all_found",
    "require_finite",
    "saved_output_format",
]

SCORES_OVERFLOW = (
    "X: the scores of its rows overflow: numbers of X, or of the model, are too large for the model's floating type; "
    "scale X as the rows that the model was fitted on."
)


def finite_scores(scores: np.ndarray) -> np.ndarray:
    """The scores, an array of any shape; raises InvalidInputError where they have overflowed."""
    if not all_finite(scores):
        raise InvalidInputError(SCORES_OVERFLOW)
    return scores


def require_finite(scores_of: Callable[[int, int], np.ndarray], blocks: Iterable[tuple[int, int]]) -> None:
    """Raise where the scores of some blocks of rows overflow; for models that never hold them, where they may."""
    with np.errstate(over="ignore", invalid="ignore"):
        for start, stop in blocks:
            finite_scores(scores_of(start, stop))


def require_all_found(labels: np.ndarray, scores: np.ndarray, hidden: sp.csr_matrix | None) -> None:
    """Raise where a row lacks labels that are not hidden, or has one with an infinite score: the scores overflowed."""
    if hidden is None:
        finite_scores(scores)  # -inf stands where there is no label
        return
    found = labels >= 0
    wanted = np.minimum(labels.shape[1], hidden.shape[1] - np.diff(hidden.indptr))
    if not np.isfinite(scores[found]).all() or (found.sum(axis=1) != wanted).any():
        raise InvalidInputError(SCORES_OVERFLOW)


def padded_answers(labels: np.ndarray, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores (n, width) of k columns: -1 and -inf behind the last label."""
    missing = k - labels.shape[1]
    if missing == 0:
        return labels, scores
    behind = ((0, 0), (0, missing))
    return np.pad(labels, behind, constant_values=-1), np.pad(scores, behind, constant_values=-np.inf)


def best_as_csr(make: type, labels: np.ndarray, values: np.ndarray, n_labels: int) -> Any:
    """Values (n, k) of the labels (n, k, -1 for none) as a CSR matrix or array (n, L)."""
    found = labels >= 0
    rows = np.repeat(np.arange(len(labels)), found.sum(axis=1))
    return make((values[found], (rows, labels[found])), shape=(len(labels), n_labels))


def ones_in_format(columns: np.ndarray, indptr: np.ndarray, shape: tuple[int, int], output: tuple[str, Any]) -> Any:
    """A 0/1 matrix from the columns of its ones, as CSR has them, in a format of :func:`format_of`."""
    kind, dtype = output
    if kind == "dense":  # of any type, also of those that sparse matrices cannot have
        array = np.zeros(shape, dtype=dtype)
        array[np.repeat(np.arange(shape[0]), np.diff(indptr)), columns] = 1
        return array
    make = sp.csr_array if kind == "csr_array" else sp.csr_matrix
    return make((np.ones(len(columns), dtype=dtype), columns, indptr), shape=shape)


def format_of(Y: Any) -> tuple[str, Any]:
    """The format of ``Y``, for ``predict``: the kind of matrix, and its type."""
    if sp.issparse(Y):
        return ("csr_array" if isinstance(Y, sp.sparray) else "csr_matrix"), Y.dtype
    dtype = np.asarray(Y).dtype
    return "dense", np.dtype(np.int64) if dtype.kind == "O" else dtype


def saved_output_format(value: Any) -> tuple[str, np.dtype]:
    """A format of :func:`format_of` from a folder; ValueError if it is invalid."""
    kind, dtype = value
    if kind not in ("csr_matrix", "csr_array", "dense"):
        raise ValueError(f"output_format {kind!r}")
    parsed = np.dtype(str(dtype))
    if parsed.kind not in "biuf" or (parsed == np.float16 and kind != "dense"):
        raise ValueError(f"labels of type {dtype!r} in a {kind}")
    return kind, parsed
