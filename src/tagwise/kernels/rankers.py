"""Rankers on shortlists: a support vector machine a label on few rows, kept sparse; and its margins for few labels."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import compiled
from tagwise.kernels.dual_coordinate_descent import _descend, squared_norms
from tagwise.kernels.random_stream import random_stream
from tagwise.parallel import run_chunks, work_chunks

__all__ = ["shortlist_margins", "shortlist_margins_by_feature", "train_rankers"]


def train_rankers(
    X: sp.csr_matrix,
    positives: sp.csr_matrix,
    negatives: sp.csr_matrix,
    *,
    cost: float,
    intercept_scale: float = 1.0,
    prune: float = 0.0,
    tol: float = 0.1,
    max_iter: int = 20,
    seed: int = 0,
    n_threads: int = 1,
) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    r"""An L2-loss support vector machine for each label, on its own few rows.

    .. math:: \min_{w, b}\ \tfrac12 (\|w\|^2 + (b/B)^2) + C \sum_i \max(0, 1 - y_i(w^\top x_i + b))^2

    Parameters
    ----------
    X : CSR (n, d)
    positives, negatives : CSR (L, n)
        By label, the rows that are on and off; the values are not looked at.
    cost : float
        C.
    intercept_scale : float
        B; 0 means no intercept.
    prune : float
        Weights below this in size are dropped.
    tol, max_iter
        A label ends when the projected gradients of its dual spread over at most ``tol``, or after so many passes.
    seed : int
        Of the order of the rows, a stream a label.
    n_threads : int

    Returns
    -------
    weights : CSR (L, d) in the type of X, features in rising order
    intercept : float64 array (L,)
    objective : float64 array (L,)
        The dual objective reached, a lower bound of the objective above.

    Notes
    -----
    Time O(passes × stored entries of the label's rows) a label; memory O(n + d) a thread and the result. A label
    without positives or without negatives has no weights and the intercept 0.
    """
    n_labels, n_features = positives.shape[0], X.shape[1]
    if positives.shape != (n_labels, X.shape[0]) or negatives.shape != positives.shape:
        raise InvalidInputError(
            f"positives {positives.shape} and negatives {negatives.shape} must be L×n for X of shape {X.shape}."
        )
    norms = np.empty(X.shape[0])
    run_chunks(lambda a, b: squared_norms(X.indptr, X.data, norms, a, b), work_chunks(X.indptr), n_threads)
    lengths = np.diff(X.indptr)
    entries = _entries(positives, lengths) + _entries(negatives, lengths)
    counts, intercept, objective = np.zeros(n_labels, dtype=np.int64), np.zeros(n_labels), np.zeros(n_labels)
    on, off = (positives.indptr, positives.indices), (negatives.indptr, negatives.indices)

    def labels(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        return _train(
            (X.indptr, X.indices, X.data), n_features, norms, on, off, float(cost), float(intercept_scale),
            float(prune), float(tol), int(max_iter), int(seed), start, stop, entries, counts, intercept, objective,
        )  # fmt: skip

    found = run_chunks(labels, work_chunks(np.concatenate([[0], np.cumsum(entries)])), n_threads)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices = np.concatenate([part for part, _ in found])
    data = np.concatenate([part for _, part in found])
    return sp.csr_matrix((data, indices, indptr), shape=(n_labels, n_features)), intercept, objective


def shortlist_margins(
    rows: sp.csr_matrix, labels: np.ndarray, weights: sp.csr_matrix, intercept: np.ndarray, *, n_threads: int = 1
) -> np.ndarray:
    """``x_iᵀ w_j + b_j`` for the labels j of a shortlist of each row: (n, M) in the type of ``rows``.

    ``labels`` is int (n, M), −1 for none (margin 0); ``weights`` CSR (L, d). A row is spread over an array of d numbers
    and read at each label's features: time O(Σ weights of the shortlisted labels), memory d numbers a thread.
    """
    if labels.shape[0] != rows.shape[0] or weights.shape[1] != rows.shape[1]:
        raise InvalidInputError(
            f"rows {rows.shape}, labels {labels.shape} and weights {weights.shape} must be n×d, n×M and L×d."
        )
    out = np.zeros(labels.shape, dtype=rows.dtype)
    shift = intercept.astype(rows.dtype, copy=False)

    def part(start: int, stop: int) -> None:
        _margins(
            rows.indptr, rows.indices, rows.data, labels, weights.indptr, weights.indices, weights.data, shift,
            np.zeros(rows.shape[1], dtype=rows.dtype), out, start, stop,
        )  # fmt: skip

    run_chunks(part, work_chunks(np.arange(len(labels) + 1) * max(1, labels.shape[1])), n_threads)
    return out


def shortlist_margins_by_feature(
    rows: sp.csr_matrix, labels: np.ndarray, weights: sp.csr_matrix, intercept: np.ndarray, *, n_threads: int = 1
) -> np.ndarray:
    """What :func:`shortlist_margins` returns, from weights stored by feature: CSR (d, L).

    The lists of the row's features are searched for the labels of its shortlist: time O(L + Σ weights of the row's
    features), memory 5·L bytes a thread. Faster where rows are short and rankers have many weights.
    """
    if labels.shape[0] != rows.shape[0] or weights.shape != (rows.shape[1], len(intercept)):
        raise InvalidInputError(
            f"rows {rows.shape}, labels {labels.shape} and weights {weights.shape} must be n×d, n×M and d×L."
        )
    out = np.zeros(labels.shape, dtype=rows.dtype)
    shift = intercept.astype(rows.dtype, copy=False)

    def part(start: int, stop: int) -> None:
        _margins_by_feature(
            rows.indptr, rows.indices, rows.data, labels, weights.indptr, weights.indices, weights.data, shift,
            np.empty(len(shift), dtype=np.int32), out, start, stop,
        )  # fmt: skip

    run_chunks(part, work_chunks(np.arange(len(labels) + 1) * len(shift)), n_threads)
    return out


def _entries(rows_of_labels: sp.csr_matrix, lengths: np.ndarray) -> np.ndarray:
    """Stored entries of each label's rows, in all."""
    total = np.concatenate([[0], np.cumsum(lengths[rows_of_labels.indices], dtype=np.int64)])
    return np.diff(total[rows_of_labels.indptr])


@compiled()
def _train(
    rows, n_features, norms, positives, negatives, cost_of_a_row, constant, prune, tol, max_iter, seed, start, stop,
    entries, counts, intercepts, objectives,
):  # fmt: skip
    indptr, indices, data = rows
    capacity, largest, most = 0, 0, 0
    for label in range(start, stop):
        capacity += min(entries[label], n_features)
        largest = max(largest, min(entries[label], n_features))
        in_label = positives[0][label + 1] - positives[0][label] + negatives[0][label + 1] - negatives[0][label]
        most = max(most, in_label)
    features = np.empty(capacity, dtype=np.int32)
    values = np.empty(capacity, dtype=data.dtype)
    w = np.zeros(n_features, dtype=np.float64)
    seen = np.zeros(n_features, dtype=np.bool_)
    touched = np.empty(largest, dtype=np.int32)
    row_of = np.empty(most, dtype=np.int64)
    sign, cost, dual = np.empty(most), np.empty(most), np.empty(most)
    filled = 0
    for label in range(start, stop):
        counts[label] = 0
        n_on = positives[0][label + 1] - positives[0][label]
        n_off = negatives[0][label + 1] - negatives[0][label]
        if n_on == 0 or n_off == 0:
            continue
        row_of[:n_on] = positives[1][positives[0][label] : positives[0][label + 1]]
        row_of[n_on : n_on + n_off] = negatives[1][negatives[0][label] : negatives[0][label + 1]]
        count = n_on + n_off
        sign[:n_on], sign[n_on:count] = 1.0, -1.0
        cost[:count], dual[:count] = cost_of_a_row, 0.0
        stream = random_stream(seed, label)
        b, _, _ = _descend(
            indptr, indices, data, norms, row_of, sign, cost, dual, count, True, constant, tol, max_iter, stream, w
        )
        intercepts[label] = b
        # Σα − ½(‖w‖² + (b/B)²) − Σα²/4C; the squares of w are taken off below.
        value = -0.5 * (b / constant) ** 2 if constant > 0 else 0.0
        for place in range(count):
            value += dual[place] - dual[place] ** 2 / (4 * cost_of_a_row)
        n_touched = 0
        for place in range(count):
            row = row_of[place]
            for position in range(np.uintp(indptr[row]), np.uintp(indptr[row + 1])):
                feature = np.uintp(indices[position])
                if not seen[feature]:
                    seen[feature] = True
                    touched[n_touched] = feature
                    n_touched += 1
        ordered = touched[:n_touched]
        ordered.sort()
        for feature in ordered:
            value -= 0.5 * w[feature] ** 2
            if w[feature] != 0 and abs(w[feature]) >= prune:
                features[filled] = feature
                values[filled] = w[feature]
                filled += 1
                counts[label] += 1
            w[feature] = 0
            seen[feature] = False
        objectives[label] = value
    return features[:filled].copy(), values[:filled].copy()


@compiled(fastmath={"contract", "reassoc"})
def _margins(indptr, indices, data, labels, label_indptr, features, weights, intercept, spread, out, start, stop):
    for row in range(start, stop):
        for position in range(indptr[row], indptr[row + 1]):
            spread[indices[position]] = data[position]
        for place in range(labels.shape[1]):
            label = labels[row, place]
            if label < 0:
                continue
            total = intercept[label]
            for position in range(np.uintp(label_indptr[label]), np.uintp(label_indptr[label + 1])):
                total += weights[position] * spread[np.uintp(features[position])]
            out[row, place] = total
        for position in range(indptr[row], indptr[row + 1]):
            spread[indices[position]] = 0


@compiled(fastmath={"contract"})
def _margins_by_feature(
    indptr, indices, data, labels, list_indptr, list_labels, weights, shift, place_of, out, start, stop
):
    # A byte a label says whether it is on the row's shortlist: most lists are read without their weights, and 27,754
    # bytes stay in the nearest cache.
    listed = np.zeros(len(shift), dtype=np.bool_)
    for row in range(start, stop):
        margins = out[row]
        for place in range(labels.shape[1]):
            label = labels[row, place]
            if label >= 0:
                listed[label], place_of[label], margins[place] = True, place, shift[label]
        for entry in range(indptr[row], indptr[row + 1]):
            value = data[entry]
            for at in range(np.uintp(list_indptr[indices[entry]]), np.uintp(list_indptr[indices[entry] + 1])):
                label = np.uintp(list_labels[at])
                if listed[label]:
                    margins[place_of[label]] += value * weights[at]
        for place in range(labels.shape[1]):
            label = labels[row, place]
            if label >= 0:
                # A label that is listed twice has been added up at its last place.
                margins[place] = margins[place_of[label]]
                listed[label] = False
