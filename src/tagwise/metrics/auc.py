"""LEML's average AUC: the ROC area over the labels of each row, exact with ties, in row blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.metrics.ranking import check_true_labels
from tagwise.metrics.topk import require_no_nan, require_scores
from tagwise.validation import check_integer

__all__ = ["average_auc"]

# Scores sorted at a time by default: 32 MB of float64.
_BLOCK_ELEMENTS = 1 << 22


def average_auc(Y_true: Any, prediction: Any | Callable[[int, int], Any], *, block_rows: int | None = None) -> float:
    r"""Area under the ROC curve over the labels of each row, averaged over rows.

    .. math::
        AUC_i = \frac{1}{|y_i|\,(L - |y_i|)} \sum_{l \in y_i} \sum_{m \notin y_i}
                \left([f_l > f_m] + \tfrac12 [f_l = f_m]\right)

    This is the measure of LEML's tables (section 5): how often a true label of a row is scored above a false one. The
    average is over the rows that have at least one true and one false label; it is undefined for the others.

    Parameters
    ----------
    Y_true : sparse or dense 0/1 matrix, n×L
        True labels.
    prediction : array, sparse matrix or function
        Scores for every label: floating-point n×L array; sparse n×L matrix, whose unstored entries share one score
        below all stored ones; or a function ``scores(start, stop)`` that returns either of these for the rows ``start``
        to ``stop - 1``, so that no n×L array needs to exist. It is called once per block, in order. Top-k labels are
        not enough and are refused.
    block_rows : int, optional
        Rows per block; by default about four million scores.

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        Also if no row has both a true and a false label.

    Notes
    -----
    The counts are sums of half-integers, so exact. Time O(n L log L) for dense scores and O(nnz log nnz) for sparse
    ones; memory a few times one block.
    """
    truth = check_true_labels(Y_true)
    n_rows, n_labels = truth.shape
    if block_rows is None:
        block_rows = max(1, _BLOCK_ELEMENTS // n_labels)
    else:
        block_rows = check_integer(block_rows, "block_rows", minimum=1)
    scores = prediction if callable(prediction) else require_scores(prediction, n_rows, n_labels)
    positives = np.diff(truth.indptr).astype(np.int64)
    negatives = n_labels - positives
    counted = (positives > 0) & (negatives > 0)
    if not counted.any():
        raise InvalidInputError(
            "Y_true has no row with both a true and a false label; the area under the ROC curve is undefined."
        )
    areas = np.zeros(n_rows)
    for start in range(0, n_rows, block_rows):
        stop = min(start + block_rows, n_rows)
        if callable(scores):
            name = f"scores({start}, {stop})"
            block = require_scores(scores(start, stop), stop - start, n_labels, name=name)
        else:
            name, block = "prediction", scores[start:stop]
        # Among themselves p positives make p²/2 of the counts: each pair 1, each label with itself 1/2.
        areas[start:stop] = _counts_below(truth[start:stop], block, name) - positives[start:stop] ** 2 / 2.0
    return float(np.mean(areas[counted] / (positives * negatives)[counted]))


def _counts_below(truth: sp.csr_matrix, scores: Any, name: str) -> np.ndarray:
    """Per row, Σ over true labels of (labels scored lower + half of those scored equal)."""
    n_rows, n_labels = truth.shape
    rows = np.repeat(np.arange(n_rows), np.diff(truth.indptr))
    if isinstance(scores, sp.csr_matrix):
        halves = _twice_below_sparse(truth, rows, scores)
    else:
        require_no_nan(scores, name)
        ordered = np.sort(scores, axis=1).ravel()
        start = rows * n_labels
        halves = _twice_below(ordered, start, start + n_labels, scores[rows, truth.indices])
    return np.bincount(rows, weights=halves, minlength=n_rows) / 2.0


def _twice_below_sparse(truth: sp.csr_matrix, rows: np.ndarray, scores: sp.csr_matrix) -> np.ndarray:
    n_rows, n_labels = truth.shape
    stored = np.diff(scores.indptr).astype(np.int64)
    score_rows = np.repeat(np.arange(n_rows), stored)
    ordered = scores.data[np.lexsort((scores.data, score_rows))]
    # Positions from 1, so that what scipy answers for an unstored pair becomes -1.
    positions = sp.csr_matrix((np.arange(1, scores.nnz + 1), scores.indices, scores.indptr), shape=scores.shape)
    position = np.asarray(positions[rows, truth.indices]).ravel() - 1
    found = position >= 0
    unstored = (n_labels - stored)[rows]
    # An unstored label ties with all unstored ones; a stored label lies above every one of them.
    halves = unstored.copy()
    which = rows[found]
    start, stop = scores.indptr[which].astype(np.int64), scores.indptr[which + 1].astype(np.int64)
    halves[found] = 2 * unstored[found] + _twice_below(ordered, start, stop, scores.data[position[found]])
    return np.asarray(halves)


def _twice_below(ordered: np.ndarray, start: np.ndarray, stop: np.ndarray, values: np.ndarray) -> np.ndarray:
    """#(entries < value) + #(entries ≤ value) in each value's own sorted segment ``ordered[start:stop]``."""
    counts = np.zeros(len(values), dtype=np.int64)
    for compare in (np.less, np.less_equal):
        # Bisection, in which all searches advance together.
        low, high = start.copy(), stop.copy()
        while (searching := low < high).any():
            middle = np.minimum((low + high) // 2, ordered.size - 1)
            ahead = searching & compare(ordered[middle], values)
            low = np.where(ahead, middle + 1, low)
            high = np.where(searching & ~ahead, middle, high)
        counts += low - start
    return counts
