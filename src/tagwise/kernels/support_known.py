"""Restricted least squares where each label has its own known rows, so that no Gram matrix serves all of them."""

from __future__ import annotations

import numpy as np

from tagwise.kernels.compiled import compiled
from tagwise.kernels.support import collect_features, largest_gains, solve_lower

__all__ = ["solve_known_supports"]


@compiled()
def solve_known_supports(
    rows,
    known_indptr,
    known_rows,
    residuals,
    weights,
    positives_indptr,
    positives,
    reg,
    support,
    given,
    counts,
    gains,
    start,
    stop,
):
    """As :func:`tagwise.kernels.support.solve_supports`, with b and A summed over a label's known rows only.

    ``known_rows`` of each label come with ``residuals`` y − score and ``weights`` ω; ``positives`` are those of them
    that are on. Time, per label: the stored entries of its known rows, twice, and the square of how many of them a row
    has in the support. The workspace takes 2·support² float64 and O(d).
    """
    n_features = len(rows.feature_indptr) - 1
    capacity = 0
    for label in range(start, stop):
        stored = 0
        for place in range(positives_indptr[label], positives_indptr[label + 1]):
            stored += rows.indptr[positives[place] + 1] - rows.indptr[positives[place]]
        capacity += min(support, n_features, stored)
    features = np.empty(capacity, dtype=np.int64)
    values = np.empty(capacity, dtype=rows.data.dtype)
    largest = min(support, n_features, capacity)
    workspace = np.empty(largest * largest, dtype=np.float64)
    slot = np.full(n_features, -1, dtype=np.int32)
    right, squares = np.zeros(n_features), np.zeros(n_features)
    touched = np.empty(n_features, dtype=np.int64)
    filled = 0
    for label in range(start, stop):
        n_candidates = collect_features(
            rows, positives[positives_indptr[label] : positives_indptr[label + 1]], slot, touched, right
        )
        candidates = touched[:n_candidates]
        candidates.sort()
        for feature in candidates:
            right[feature] = 0
            squares[feature] = 0
        first, last = known_indptr[label], known_indptr[label + 1]
        known, weight = known_rows[first:last], weights[first:last]
        _slope_and_squares(rows, known, residuals[first:last], weight, slot, right, squares)
        gain = np.empty(n_candidates, dtype=np.float64)
        for i in range(n_candidates):
            feature = candidates[i]
            gain[i] = right[feature] ** 2 / (squares[feature] + reg)
            slot[feature] = -1
        if len(given.indptr) > 0:
            chosen = given.features[given.indptr[label] : given.indptr[label + 1]]
        else:
            chosen = largest_gains(candidates, gain, support)
        count = len(chosen)
        counts[label] = count
        gains[label] = 0
        if count > 0:
            system = workspace[: count * count].reshape(count, count)
            system[:] = 0
            for i in range(count):
                slot[chosen[i]] = i
            _add_outer_products(rows, known, weight, slot, system)
            solution = np.empty(count, dtype=np.float64)
            for i in range(count):
                slot[chosen[i]] = -1
                system[i, i] += reg
                solution[i] = right[chosen[i]]
            solve_lower(np.linalg.cholesky(system), solution)
            for i in range(count):
                gains[label] += right[chosen[i]] * solution[i]
                features[filled + i] = chosen[i]
                values[filled + i] = solution[i]
            filled += count
        for feature in candidates:
            right[feature] = 0
    return features[:filled].copy(), values[:filled].copy()


@compiled()
def _slope_and_squares(rows, known, residuals, weights, slot, right, squares):
    """Xᵀ(ω·residual) and the diagonal of Xᵀ diag(ω) X over the known rows, where ``slot`` marks a candidate."""
    for place in range(len(known)):
        row = known[place]
        weight = np.float64(weights[place])
        pull = weight * residuals[place]
        for position in range(rows.indptr[row], rows.indptr[row + 1]):
            feature = rows.indices[position]
            if slot[feature] >= 0:
                value = np.float64(rows.data[position])
                right[feature] += pull * value
                squares[feature] += weight * value * value


@compiled()
def _add_outer_products(rows, known, weights, slot, system):
    """Xᵀ diag(ω) X of the support into the lower triangle, the one that the Cholesky factorisation reads."""
    places = np.empty(len(system), dtype=np.int64)
    entries = np.empty(len(system), dtype=np.float64)
    for k in range(len(known)):
        row = known[k]
        count = 0
        for position in range(rows.indptr[row], rows.indptr[row + 1]):
            place = slot[rows.indices[position]]
            if place >= 0:
                places[count] = place
                entries[count] = rows.data[position]
                count += 1
        # Indices rise within a row, and so do the slots.
        for a in range(count):
            scaled = weights[k] * entries[a]
            target = system[places[a]]
            for b in range(a + 1):
                target[places[b]] += scaled * entries[b]
