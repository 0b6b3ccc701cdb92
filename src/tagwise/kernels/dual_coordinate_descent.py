"""Linear support vector machines, a label at a time: coordinate descent on the dual with shrinking (Hsieh et al. 2008).

The primal of a label is ½(‖w‖² + (b/B)²) + Σ_i C_i·ℓ(y_i(w·x_i + b)) with ℓ(m) = max(0, 1 − m) or its square; the
intercept is the weight of a constant feature B. The dual has one variable a row, 0 ≤ α_i ≤ U_i, w = Σ_i α_i y_i x_i,
and its gradient is y_i(w·x_i + b) − 1 + D_i α_i, with (U, D) = (C, 0) for hinge and (∞, 1/2C) for squared hinge.
"""

from __future__ import annotations

import numpy as np

from tagwise.kernels.compiled import compiled
from tagwise.kernels.random_stream import random_stream, shuffle

__all__ = ["descend_labels", "squared_norms"]

# A projected gradient below this is rounding.
_NO_STEP = 1e-12


@compiled()
def squared_norms(indptr, data, out, start, stop):
    """‖x_i‖² of the rows ``start`` to ``stop``."""
    for row in range(start, stop):
        total = 0.0
        for position in range(indptr[row], indptr[row + 1]):
            total += np.float64(data[position]) ** 2
        out[row] = total


@compiled()
def descend_labels(
    rows, norms, positives, negatives, other_cost, squared, constant, tol, max_iter, seed, streams, start, stop, found
):
    """Solve the labels ``start`` to ``stop``.

    ``rows``, ``positives`` and ``negatives`` are (indptr, indices, data) of CSR matrices: features by row, and by label
    the rows that are on and off with their costs C. A positive ``other_cost`` makes every row that is not a positive a
    negative of that cost, and ``negatives`` is not looked at. ``found`` = (weights, intercepts, values, violations,
    passes) takes the results.
    """
    indptr, indices, data = rows
    n_rows = len(indptr) - 1
    weights, intercepts, values, violations, passes = found
    w = np.empty(weights.shape[1], dtype=np.float64)
    row_of = np.empty(n_rows, dtype=np.int64)
    sign = np.empty(n_rows, dtype=np.float64)
    cost = np.empty(n_rows, dtype=np.float64)
    dual = np.empty(n_rows, dtype=np.float64)
    for label in range(start, stop):
        count = _gather(label, n_rows, positives, negatives, other_cost, row_of, sign, cost)
        w[:] = 0
        dual[:count] = 0
        stream = random_stream(seed, streams[label])
        b, violation, n_passes = _descend(
            indptr, indices, data, norms, row_of, sign, cost, dual, count, squared, constant, tol, max_iter, stream, w
        )
        value = 0.5 * (b / constant) ** 2 if constant > 0 else 0.0
        for feature in range(len(w)):
            value += 0.5 * w[feature] ** 2
            weights[label, feature] = w[feature]
        for place in range(count):
            row = row_of[place]
            margin = b
            for position in range(indptr[row], indptr[row + 1]):
                margin += w[indices[position]] * data[position]
            short = max(0.0, 1 - sign[place] * margin)
            value += cost[place] * (short**2 if squared else short)
        intercepts[label], values[label], violations[label], passes[label] = b, value, violation, n_passes


@compiled()
def _gather(label, n_rows, positives, negatives, other_cost, row_of, sign, cost):
    """The label's rows with their signs and costs; returns how many."""
    indptr, indices, data = positives
    count = 0
    if other_cost > 0:
        for row in range(n_rows):
            row_of[row], sign[row], cost[row] = row, -1.0, other_cost
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


@compiled()
def _descend(
    indptr, indices, data, norms, row_of, sign, cost, dual, count, squared, constant, tol, max_iter, stream, w
):
    """Descend until the projected gradients of all rows lie within ``tol``; returns b, their spread and the passes."""
    active = np.arange(count)
    n_active = count
    b, spread = 0.0, 0.0
    highest, lowest = np.inf, -np.inf
    for n_passes in range(1, max_iter + 1):
        shuffle(stream, active, n_active)
        new_highest, new_lowest = -np.inf, np.inf
        at = 0
        while at < n_active:
            place = active[at]
            row = row_of[place]
            diagonal = 0.5 / cost[place] if squared else 0.0
            upper = np.inf if squared else cost[place]
            curvature = norms[row] + constant * constant + diagonal
            score = b
            for position in range(np.uintp(indptr[row]), np.uintp(indptr[row + 1])):
                score += w[np.uintp(indices[position])] * data[position]
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
                n_active -= 1
                active[at], active[n_active] = active[n_active], place
                continue
            at += 1
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
                b += step * constant * constant
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
