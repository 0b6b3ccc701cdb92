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
    """Per row, Σ over true labels of (labels scored lower + half of those scored equal).

    For one label that is its rank among all, ties at their mean, less a half.
    """
    n_rows, n_labels = truth.shape
    if not isinstance(scores, sp.csr_matrix):
        require_no_nan(scores, name)
        # scipy.stats.rankdata would do, in 25 times the time.
        halves = np.zeros(n_rows, dtype=np.int64)
        for row, ordered in enumerate(np.sort(scores, axis=1)):
            own = scores[row, truth.indices[truth.indptr[row] : truth.indptr[row + 1]]]
            halves[row] = np.searchsorted(ordered, own, "left").sum() + np.searchsorted(ordered, own, "right").sum()
        return halves / 2
    stored = np.diff(scores.indptr)
    score_rows = np.repeat(np.arange(n_rows), stored)
    order = np.lexsort((scores.data, score_rows))
    starts_tie = np.ones(len(order), dtype=bool)
    starts_tie[1:] = (np.diff(score_rows[order]) > 0) | (scores.data[order][1:] != scores.data[order][:-1])
    first = np.append(np.flatnonzero(starts_tie), len(order))
    # Every stored label lies above all that are not stored, which tie with each other.
    counts = np.empty(len(order))
    counts[order] = ((first[:-1] + first[1:]) / 2)[np.cumsum(starts_tie) - 1]
    counts += (n_labels - stored - scores.indptr[:-1])[score_rows]
    right = sp.csr_matrix((counts, scores.indices, scores.indptr), shape=scores.shape).multiply(truth).tocsr()
    n_unstored = np.diff(truth.indptr) - np.diff(right.indptr)
    return np.asarray(right.sum(axis=1)).ravel() + n_unstored * (n_labels - stored) / 2
