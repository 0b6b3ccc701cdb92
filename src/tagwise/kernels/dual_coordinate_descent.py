"""Linear support vector machines, label by label: coordinate descent on the dual with shrinking (Hsieh et al. 2008).

The primal of a label is ½(‖w‖² + (b/B)²) + Σ_i C_i·ℓ(y_i(w·x_i + b)) with ℓ(m) = max(0, 1 − m) or its square; the
intercept is the weight of a constant feature B. The dual has one variable per row, 0 ≤ α_i ≤ U_i, w = Σ_i α_i y_i x_i,
and its gradient is y_i(w·x_i + b) − 1 + D_i α_i, with (U, D) = (C, 0) for hinge and (∞, 1/2C) for squared hinge.

:func:`descend_labels` has dense weights and any rows per label; :func:`train_sparse_svms` has few rows per label and
keeps the weights sparse.

Rows are visited in a random order, a new one in each pass, that depends on the seed, the label and each row's number:
one row more or less does not change the order of the others. Nearly equal problems, as those of the same rows on one
machine and on a cluster, thus have nearly equal solutions although the descent stops before it has converged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.feature_blocks import FeatureBlocks
from tagwise.kernels.compiled import FAST, compiled
from tagwise.kernels.products import squared_norms
from tagwise.kernels.random_stream import mixed_bits, next_bits, random_stream
from tagwise.kernels.top_k import sort_names
from tagwise.parallel import run_chunks, work_chunks

__all__ = ["Descent", "FeatureRows", "descend_labels", "feature_rows", "train_sparse_svms"]

# A projected gradient below this is rounding.
_NO_STEP = 1e-12
# One riffle leaves much of the order of the pass before, and descends slower; more than two change little.
_RIFFLES_PER_PASS = 2


class FeatureRows(NamedTuple):
    """X (n×d) as CSR arrays, of each row ‖x_i‖² and its number, and a dense block D (m×q).

    Row i has row ``ids[i]`` of D. Without a dense block q is 0, and ``ids`` is not looked at.
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    norms: np.ndarray
    numbers: np.ndarray
    dense: np.ndarray
    ids: np.ndarray


class Descent(NamedTuple):
    """Settings of the solver: the loss (squared or plain hinge), B (0 for no intercept), when to stop, and the seed.

    A label ends when the projected gradients of its dual spread over at most ``tol``, or after ``max_iter`` passes.
    """

    squared: bool = True
    constant: float = 1.0
    tol: float = 0.1
    max_iter: int = 20
    seed: int = 0


class _LabelRows(NamedTuple):
    """Rows of a label with their signs y, costs C and dual variables α; as many as needed are in use."""

    rows: np.ndarray
    sign: np.ndarray
    cost: np.ndarray
    dual: np.ndarray


def feature_rows(X: sp.csr_matrix | FeatureBlocks, *, n_threads: int = 1) -> FeatureRows:
    """X with its squared norms, in float64, and the numbers of its rows. Time O(nnz)."""
    S, D = X if isinstance(X, FeatureBlocks) else (X, np.empty((0, 0), dtype=X.dtype))
    norms = squared_norms(S, n_threads=n_threads)
    if D.shape[1]:
        norms += squared_norms(D, n_threads=n_threads)
    return FeatureRows(S.indptr, S.indices, S.data, norms, np.arange(len(norms)), D, np.arange(len(D)))


def train_sparse_svms(
    X: sp.csr_matrix | FeatureBlocks,
    positives: sp.csr_matrix,
    negatives: sp.csr_matrix,
    descent: Descent,
    *,
    C: float | np.ndarray,
    prune: float = 0.0,
    first_label: int = 0,
    n_threads: int = 1,
) -> tuple[sp.csr_matrix | FeatureBlocks, np.ndarray, np.ndarray]:
    """A support vector machine with squared hinge loss for each label on its own few rows, kept sparse.

    Parameters
    ----------
    X : CSR (n, d) or FeatureBlocks
    positives, negatives : CSR (L, n)
        By label, the rows that are on and off; the values are not looked at.
    descent : Descent
        The order of the rows has one random stream per label.
    C : float or array (n,)
        What a mistake costs, at any row or at each.
    prune : float
        Weights of sparse features below this in size are dropped.
    first_label : int
        Number of the first label, where these are some of several: it decides about the order of a label's rows.
    n_threads : int

    Returns
    -------
    weights : CSR (L, d) in the type of X, features in rising order; or FeatureBlocks, as X is
    intercept : float64 array (L,)
    objective : float64 array (L,)
        The dual objective reached, a lower bound of the primal.

    Notes
    -----
    Time O(passes × stored entries of the label's rows) per label; memory, per thread, O(n + d) and a copy of the rows
    of one label, and the result. A label without positives or without negatives has no weights and the intercept 0.
    """
    n_labels = positives.shape[0]
    if positives.shape != (n_labels, X.shape[0]) or negatives.shape != positives.shape:
        raise InvalidInputError(
            f"positives {positives.shape} and negatives {negatives.shape} must be L×n for X of shape {X.shape}."
        )
    rows = feature_rows(X, n_threads=n_threads)
    sparse = X.sparse if isinstance(X, FeatureBlocks) else X
    n_features, n_dense = sparse.shape[1], rows.dense.shape[1]
    lengths = np.diff(sparse.indptr)
    entries = _entries(positives, lengths) + _entries(negatives, lengths)
    work = entries
    if n_dense:  # a dense entry takes a fraction of the time of a sparse one
        work = entries + (np.diff(positives.indptr) + np.diff(negatives.indptr)) * (n_dense // 8 + 1)
    counts, intercept, objective = np.zeros(n_labels, dtype=np.int64), np.zeros(n_labels), np.zeros(n_labels)
    on, off = (positives.indptr, positives.indices), (negatives.indptr, negatives.indices)
    labels = on, off, entries
    dense = np.zeros((n_labels, n_dense), dtype=sparse.dtype)
    costs = np.broadcast_to(np.asarray(C, dtype=np.float64), X.shape[:1])
    results = counts, intercept, objective, dense
    problem = labels, np.ascontiguousarray(costs), float(prune), int(first_label)
    found = run_chunks(
        lambda start, stop: _train_sparse(rows, n_features, descent, problem, results, start, stop),
        work_chunks(np.concatenate([[0], np.cumsum(work)])),
        n_threads,
    )
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices = np.concatenate([part for part, _ in found])
    data = np.concatenate([part for _, part in found])
    weights = sp.csr_matrix((data, indices, indptr), shape=(n_labels, n_features))
    return FeatureBlocks([weights, dense]) if isinstance(X, FeatureBlocks) else weights, intercept, objective


def _entries(rows_of_labels: sp.csr_matrix, lengths: np.ndarray) -> np.ndarray:
    """Stored entries of each label's rows, in all."""
    entries, filled = np.zeros(rows_of_labels.shape[0], dtype=np.int64), np.diff(rows_of_labels.indptr) > 0
    if filled.any():
        starts = rows_of_labels.indptr[:-1][filled]
        entries[filled] = np.add.reduceat(lengths[rows_of_labels.indices], starts, dtype=np.int64)
    return entries


@compiled()
def descend_labels(rows, descent, pairs, streams, found, start, stop):
    """Solve the labels ``start`` to ``stop``.

    ``pairs`` = (positives, negatives, other_costs): the first two are (indptr, indices, data) of CSR matrices, by label
    the rows that are on and off with their costs C. Where ``other_costs`` is not empty, every row that is not a
    positive is a negative of its cost there, and ``negatives`` is not looked at. ``streams`` numbers the random stream
    of each label. ``found`` = (weights, intercepts, values, violations, passes) takes the results.
    """
    squared, constant = descent.squared, descent.constant
    n_rows = len(rows.norms)
    weights, intercepts, values, violations, passes = found
    w, v = np.empty(weights.shape[1], dtype=np.float64), np.zeros(0)
    own = _LabelRows(np.empty(n_rows, dtype=np.int64), np.empty(n_rows), np.empty(n_rows), np.empty(n_rows))
    for label in range(start, stop):
        count = _gather(label, pairs, own)
        w[:] = 0
        own.dual[:count] = 0
        stream = random_stream(descent.seed, streams[label])
        b, violation, n_passes = _descend(rows, descent, own, count, stream, w, v)
        value = 0.5 * (b / constant) ** 2 if constant > 0 else 0.0
        for feature in range(len(w)):
            value += 0.5 * w[feature] ** 2
            weights[label, feature] = w[feature]
        for place in range(count):
            row = own.rows[place]
            margin = b
            for position in range(rows.indptr[row], rows.indptr[row + 1]):
                margin += w[rows.indices[position]] * rows.data[position]
            short = max(0.0, 1 - own.sign[place] * margin)
            value += own.cost[place] * (short**2 if squared else short)
        intercepts[label], values[label], violations[label], passes[label] = b, value, violation, n_passes


@compiled(inner=True)
def _gather(label, pairs, own):
    """The label's rows with their signs and costs into ``own``; returns how many."""
    positives, negatives, other_costs = pairs
    indptr, indices, data = positives
    row_of, sign, cost, n_rows = own.rows, own.sign, own.cost, len(own.rows)
    count = 0
    if len(other_costs) > 0:
        for row in range(n_rows):
            row_of[row], sign[row], cost[row] = row, -1.0, other_costs[row]
        for position in range(indptr[label], indptr[label + 1]):
            sign[indices[position]], cost[indices[position]] = 1.0, data[position]
        return n_rows
    for position in range(indptr[label], indptr[label + 1]):
        row_of[count], sign[count], cost[count] = indices[position], 1.0, data[position]
        count += 1
    off_indptr, off_indices, off_data = negatives
    for position in range(off_indptr[label], off_indptr[label + 1]):
        row_of[count], sign[count], cost[count] = off_indices[position], -1.0, off_data[position]
        count += 1
    return count


@compiled(inner=True)
def _descend(rows, descent, own, count, stream, w, v):
    """Descend until the projected gradients of all rows lie within ``tol``; returns b, their spread and the passes.

    ``w`` and ``v`` are the weights of sparse and of dense features, both 0 at first.
    """
    indptr, indices, data, norms, numbers, dense, ids = rows
    row_of, sign, cost, dual = own
    squared, constant, tol, max_iter, _ = descent
    own_bits = next_bits(stream)
    keys = np.empty(count, dtype=np.uint64)
    for place in range(count):
        keys[place] = mixed_bits(np.uint64(numbers[row_of[place]]) ^ own_bits)
    active, aside = np.arange(count), np.empty(count, dtype=np.int64)
    n_active, n_riffles = count, np.int64(0)
    while count >> n_riffles:
        _riffle(active, count, keys, n_riffles, aside)
        n_riffles += 1
    b, spread = 0.0, 0.0
    highest, lowest = np.inf, -np.inf
    for n_passes in range(1, max_iter + 1):
        for _ in range(_RIFFLES_PER_PASS):
            _riffle(active, n_active, keys, n_riffles, aside)
            n_riffles += 1
        new_highest, new_lowest = -np.inf, np.inf
        n_kept, n_aside = 0, 0
        for at in range(n_active):
            place = active[at]
            row = row_of[place]
            diagonal = 0.5 / cost[place] if squared else 0.0
            upper = np.inf if squared else cost[place]
            curvature = norms[row] + constant * constant + diagonal
            score = b
            for position in range(np.uintp(indptr[row]), np.uintp(indptr[row + 1])):
                score += w[np.uintp(indices[position])] * data[position]
            if len(v) > 0:
                score += _dense_dot(dense, ids[row], v)
            slope = sign[place] * score - 1 + diagonal * dual[place]
            projected = slope
            # A variable at a bound whose gradient points far outwards is left out of the next passes.
            shrinks = False
            if dual[place] == 0:
                shrinks = slope > highest
                projected = min(slope, 0.0)
            elif dual[place] == upper:
                shrinks = slope < lowest
                projected = max(slope, 0.0)
            if shrinks:
                aside[n_aside] = place
                n_aside += 1
                continue
            active[n_kept] = place
            n_kept += 1
            if curvature == 0:  # an empty row without a constant feature: no weight depends on it
                dual[place] = upper
                continue
            new_highest, new_lowest = max(new_highest, projected), min(new_lowest, projected)
            if abs(projected) > _NO_STEP:
                before = dual[place]
                dual[place] = min(max(before - slope / curvature, 0.0), upper)
                step = (dual[place] - before) * sign[place]
                for position in range(np.uintp(indptr[row]), np.uintp(indptr[row + 1])):
                    w[np.uintp(indices[position])] += step * data[position]
                if len(v) > 0:
                    _add_dense(dense, ids[row], step, v)
                b += step * constant * constant
        for at in range(n_aside):
            active[n_kept + at] = aside[at]
        n_active = n_kept
        spread = max(0.0, new_highest - new_lowest)
        if spread <= tol:
            if n_active == count:
                return b, spread, n_passes
            # What was left out may have become wrong meanwhile: look at every row again before stopping.
            n_active = count
            highest, lowest = np.inf, -np.inf
            continue
        highest = new_highest if new_highest > 0 else np.inf
        lowest = new_lowest if new_lowest < 0 else -np.inf
    return b, max(spread, tol * (1 + 1e-9)), max_iter


# The order of the sum is the compiler's, and the same for every number of threads.
@compiled(inner=True, fastmath=FAST)
def _dense_dot(dense, row, v):
    """The inner product of a row of the dense block with v, in their type: half the time of float64 for float32."""
    total = v.dtype.type(0)
    for feature in range(len(v)):
        total += v[feature] * dense[row, feature]
    return total


@compiled(inner=True)
def _add_dense(dense, row, step, v):
    """Add ``step`` times a row of the dense block to v."""
    factor = v.dtype.type(step)
    for feature in range(len(v)):
        v[feature] += factor * dense[row, feature]


@compiled(inner=True)
def _riffle(active, count, keys, number, aside):
    """An inverse riffle shuffle of the first ``count`` places: those whose key has that bit go behind the others.

    The order of any two depends on their own keys alone; after some riffles it may be any order.
    """
    bit = np.uint64(number) & np.uint64(63)
    n_kept, n_aside = np.int64(0), np.int64(0)
    for at in range(count):
        place, behind = active[at], np.int64((keys[active[at]] >> bit) & np.uint64(1))
        # No branch, which would be mispredicted half of the time.
        active[n_kept], aside[n_aside] = place, place
        n_kept += 1 - behind
        n_aside += behind
    for at in range(n_aside):
        active[n_kept + at] = aside[at]


@compiled()
def _train_sparse(rows, n_features, descent, problem, results, start, stop):
    """Train the labels ``start`` to ``stop``; returns the features and weights kept, one label after the other."""
    (positives, negatives, entries), cost_of_row, prune, first_label = problem
    on_indptr, on_rows = positives
    off_indptr, off_rows = negatives
    counts, intercepts, objectives, dense_weights = results
    capacity, largest, most = 0, 0, 0
    for label in range(start, stop):
        capacity += min(entries[label], n_features)
        largest = max(largest, entries[label])
        in_label = on_indptr[label + 1] - on_indptr[label] + off_indptr[label + 1] - off_indptr[label]
        most = max(most, in_label)
    features = np.empty(capacity, dtype=np.int32)
    values = np.empty(capacity, dtype=rows.data.dtype)
    # A label's rows are read several times: side by side, with their features numbered anew, they stay in the cache.
    own = _LabelRows(np.empty(most, dtype=np.int64), np.empty(most), np.empty(most), np.empty(most))
    near = FeatureRows(
        np.empty(most + 1, dtype=np.int64),
        np.empty(largest, dtype=np.int32),
        np.empty(largest, dtype=rows.data.dtype),
        np.empty(most),
        np.empty(most, dtype=np.int64),
        rows.dense,
        np.empty(most, dtype=np.int64),
    )
    number = np.full(n_features, -1, dtype=np.int32)
    touched = np.empty(min(largest, n_features), dtype=np.int32)
    w, v = np.empty(len(touched), dtype=np.float64), np.empty(rows.dense.shape[1], dtype=rows.dense.dtype)
    filled = 0
    for label in range(start, stop):
        counts[label] = 0
        n_on = on_indptr[label + 1] - on_indptr[label]
        n_off = off_indptr[label + 1] - off_indptr[label]
        if n_on == 0 or n_off == 0:
            continue
        count = n_on + n_off
        for place in range(count):
            is_on = place < n_on
            row = on_rows[on_indptr[label] + place] if is_on else off_rows[off_indptr[label] + place - n_on]
            own.rows[place], own.sign[place] = row, 1.0 if is_on else -1.0
            own.cost[place], own.dual[place] = cost_of_row[row], 0.0
        n_touched = _copy_rows(rows, own, count, near, number, touched)
        w[:n_touched] = 0
        v[:] = 0
        stream = random_stream(descent.seed, first_label + label)
        b, _, _ = _descend(near, descent, own, count, stream, w, v)
        intercepts[label] = b
        # Σα − ½(‖w‖² + (b/B)²) − Σα²/4C
        value = -0.5 * (b / descent.constant) ** 2 if descent.constant > 0 else 0.0
        for place in range(count):
            value += own.dual[place] - own.dual[place] ** 2 / (4 * own.cost[place])
        for feature in range(len(v)):
            value -= 0.5 * np.float64(v[feature]) ** 2
            dense_weights[label, feature] = v[feature]
        kept = filled
        for i in range(n_touched):
            value -= 0.5 * w[i] ** 2
            if w[i] != 0 and abs(w[i]) >= prune:
                features[kept] = touched[i]
                kept += 1
            else:
                number[touched[i]] = -1
        sort_names(features[filled:kept], number)
        for at in range(filled, kept):
            values[at] = w[number[features[at]]]
            number[features[at]] = -1
        objectives[label] = value
        counts[label], filled = kept - filled, kept
    return features[:filled].copy(), values[:filled].copy()


@compiled(inner=True)
def _copy_rows(rows, own, count, near, number, touched):
    """The label's rows into ``near``, in their order there; ``number`` and ``touched`` map features there and back."""
    n_touched, filled = 0, 0
    near.indptr[0] = 0
    for place in range(count):
        row = own.rows[place]
        own.rows[place], near.ids[place] = place, row
        near.norms[place], near.numbers[place] = rows.norms[row], rows.numbers[row]
        for position in range(np.uintp(rows.indptr[row]), np.uintp(rows.indptr[row + 1])):
            feature = np.uintp(rows.indices[position])
            if number[feature] < 0:
                number[feature] = n_touched
                touched[n_touched] = feature
                n_touched += 1
            near.indices[filled] = number[feature]
            near.data[filled] = rows.data[position]
            filled += 1
        near.indptr[place + 1] = filled
    return n_touched
