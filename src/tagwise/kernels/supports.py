"""Restricted least squares, label by label: Gram entries, choice of the support and the exact small systems.

Features are numbered by rising frequency here. XᵀX is kept, as a dense block, only for the most frequent of them. The
entries of a rarer feature are added up anew from the rows in which it occurs, which are few, and in each row only from
what stands after it, so that the walk is about as short as reading stored entries would be.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tagwise.kernels.compiled import compiled
from tagwise.parallel import run_chunks, work_chunks

__all__ = [
    "IndexedCSR",
    "Supports",
    "gram_of_last",
    "solve_known_supports",
    "solve_supports",
    "walk_lengths",
]


# One entry of a label's rare features, in the chain of its row.
_CHAIN = np.dtype([("next", np.int64), ("slot", np.int64), ("value", np.float64)])


class IndexedCSR(NamedTuple):
    """X (n×d) by rows with rising indices, and by features: in which rows a feature occurs and where it is stored."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    feature_indptr: np.ndarray
    feature_rows: np.ndarray
    feature_positions: np.ndarray


class Supports(NamedTuple):
    """Features of each label, rising: those of label j are ``features[indptr[j]:indptr[j+1]]``; both empty for none."""

    indptr: np.ndarray
    features: np.ndarray


def walk_lengths(rows: IndexedCSR) -> np.ndarray:
    """For each feature the stored entries at or after it, over all rows that hold it: int64 (d,). Time O(nnz)."""
    ends = np.asarray(rows.indptr, dtype=np.int64)[1:][rows.feature_rows]
    total = np.concatenate([[0], np.cumsum(ends - rows.feature_positions)])
    return np.diff(total[rows.feature_indptr])


def gram_of_last(rows: IndexedCSR, count: int, *, n_threads: int = 1) -> np.ndarray:
    """XᵀX of the last ``count`` features (count×count), upper triangle only; added up in float64, kept in X's type.

    Time the features' walk lengths, memory the result.
    """
    first = len(rows.feature_indptr) - 1 - count
    block = np.zeros((count, count), dtype=rows.data.dtype)
    work = np.concatenate([[0], np.cumsum(walk_lengths(rows)[first:])])
    run_chunks(lambda start, stop: _gram_of_last(rows, first, block, start, stop), work_chunks(work), n_threads)
    return block


@compiled()
def _gram_of_last(rows, first, block, start, stop):
    total = np.empty(len(block), dtype=np.float64)
    for i in range(start, stop):
        total[i:] = 0
        for place in range(rows.feature_indptr[first + i], rows.feature_indptr[first + i + 1]):
            begin = rows.feature_positions[place]
            value = np.float64(rows.data[begin])
            for position in range(begin, rows.indptr[rows.feature_rows[place] + 1]):
                total[rows.indices[position] - first] += value * rows.data[position]
        for j in range(i, len(block)):
            block[i, j] = total[j]


@compiled()
def solve_supports(
    rows,
    walks,
    block,
    diagonal,
    positives_indptr,
    positives,
    gram_factors,
    feature_factors,
    label_factors,
    intercept,
    column_sums,
    weights,
    reg,
    support,
    given,
    column_step,
    counts,
    gains,
    start,
    stop,
):
    """Choose and solve for labels ``start`` to ``stop``; sets ``counts`` and ``gains``, returns features and values.

    ``walks`` are the :func:`walk_lengths`; ``block`` is XᵀX of the last features (:func:`gram_of_last`); ``diagonal``
    of XᵀX, ``column_sums`` Xᵀ1 and ``gram_factors`` XᵀXU are those of all features; ``positives`` are the rows of each
    label; ``given`` are supports to use in place of a choice, or none. ``column_step`` is what a step along a column
    costs in steps along a row. A gain is bᵀh of a label. The workspace takes 2·support² float64 and O(n + d).
    """
    n_features = len(diagonal)
    first_in_block = n_features - len(block)
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
    right, squares, along = np.zeros(n_features), np.zeros(n_features), np.zeros(n_features)
    touched = np.empty(n_features, dtype=np.int64)
    head = np.full(len(rows.indptr) - 1, -1, dtype=np.int64)
    chain = np.empty(1, dtype=_CHAIN)
    filled = 0
    for label in range(start, stop):
        rows_of_label = positives[positives_indptr[label] : positives_indptr[label + 1]]
        n_candidates = collect_features(rows, rows_of_label, slot, touched, right)
        candidates = touched[:n_candidates]
        candidates.sort()
        extra = weights[label] - 1.0
        for feature in candidates:
            slot[feature] = -1
            right[feature] -= (
                _dot(gram_factors[feature], label_factors[label]) + intercept[label] * column_sums[feature]
            )
        if extra != 0:
            for feature in candidates:
                along[feature] = _dot(feature_factors[feature], label_factors[label])
                squares[feature] = 0
            _weigh_positives(rows, rows_of_label, intercept[label], extra, along, right, squares)
        gain = np.empty(n_candidates, dtype=np.float64)
        for i in range(n_candidates):
            feature = candidates[i]
            gain[i] = right[feature] ** 2 / (diagonal[feature] + squares[feature] + reg)
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
            n_rare = _first_at_least(chosen, first_in_block)
            walk, columns = 0, 0
            for i in range(count):
                columns += rows.feature_indptr[chosen[i] + 1] - rows.feature_indptr[chosen[i]]
                if i < n_rare:
                    walk += walks[chosen[i]]
            if walk > column_step * columns:
                chain = _rare_entries(rows, chosen[:n_rare], head, chain)
                _add_by_columns(rows, chosen, n_rare, head, chain, system)
            else:
                _add_by_rows(rows, chosen[:n_rare], slot, system)
            _copy_block(block, first_in_block, chosen, n_rare, system)
            if extra != 0:
                _add_positives(rows, rows_of_label, extra, slot, system)
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
            squares[feature] = 0
    return features[:filled].copy(), values[:filled].copy()


@compiled()
def collect_features(rows, rows_of_label, slot, touched, right):
    """The features of the label's rows into ``touched``, Xᵀy into ``right``; ``slot`` marks what was seen."""
    count = 0
    for row in rows_of_label:
        for position in range(rows.indptr[row], rows.indptr[row + 1]):
            feature = rows.indices[position]
            if slot[feature] < 0:
                slot[feature] = 0
                touched[count] = feature
                count += 1
            right[feature] += rows.data[position]
    return count


@compiled(fastmath={"contract", "reassoc"})
def _dot(left, right):
    total = left.dtype.type(0)
    for i in range(len(left)):
        total += left[i] * right[i]
    return np.float64(total)


@compiled()
def _weigh_positives(rows, rows_of_label, intercept, extra, along, right, squares):
    """(c − 1)·X_Pᵀ(1 − scores) onto ``right`` and the diagonal of (c − 1)·X_PᵀX_P into ``squares``."""
    for row in rows_of_label:
        residual = 1.0 - intercept
        for position in range(rows.indptr[row], rows.indptr[row + 1]):
            residual -= rows.data[position] * along[rows.indices[position]]
        for position in range(rows.indptr[row], rows.indptr[row + 1]):
            feature, value = rows.indices[position], np.float64(rows.data[position])
            right[feature] += extra * residual * value
            squares[feature] += extra * value * value


@compiled()
def largest_gains(candidates, gain, support):
    """The candidates of the ``support`` largest gains in their own order; equal gains go to the first ones."""
    n_candidates = len(candidates)
    if n_candidates <= support:
        return candidates.copy()
    smallest = np.partition(gain, n_candidates - support)[n_candidates - support]
    equals = support
    for value in gain:
        if value > smallest:
            equals -= 1
    chosen = np.empty(support, dtype=np.int64)
    count = 0
    for i in range(n_candidates):
        if gain[i] > smallest:
            chosen[count] = candidates[i]
            count += 1
        elif gain[i] == smallest and equals > 0:
            chosen[count] = candidates[i]
            count += 1
            equals -= 1
    return chosen[:count]


# Of a label's system only the lower triangle is set: the one that the Cholesky factorisation reads. Both features of an
# entry are in the stored block, or the rarer one is not; then its products are added up in one of two ways.
@compiled()
def _copy_block(block, first_in_block, chosen, n_rare, system):
    for i in range(n_rare, len(chosen)):
        source = block[chosen[i] - first_in_block]
        for j in range(i, len(chosen)):
            system[j, i] = source[chosen[j] - first_in_block]


@compiled()
def _add_by_rows(rows, rare, slot, system):
    """Walk on, from each occurrence of a rare feature, through what is more frequent in that row."""
    for i in range(len(rare)):
        feature = rare[i]
        for place in range(rows.feature_indptr[feature], rows.feature_indptr[feature + 1]):
            begin = rows.feature_positions[place]
            value = np.float64(rows.data[begin])
            for position in range(begin, rows.indptr[rows.feature_rows[place] + 1]):
                j = slot[rows.indices[position]]
                if j >= 0:
                    system[j, i] += value * rows.data[position]


@compiled()
def _rare_entries(rows, rare, head, chain):
    """The rare features' entries as one chain a row, beginning at ``head[row]``; −1 ends it."""
    needed = 0
    for feature in rare:
        needed += rows.feature_indptr[feature + 1] - rows.feature_indptr[feature]
    if needed > len(chain):
        chain = np.empty(2 * needed, dtype=chain.dtype)
    at = 0
    for i in range(len(rare)):
        for place in range(rows.feature_indptr[rare[i]], rows.feature_indptr[rare[i] + 1]):
            row = rows.feature_rows[place]
            chain[at].next = head[row]
            chain[at].slot = i
            chain[at].value = rows.data[rows.feature_positions[place]]
            head[row] = at
            at += 1
    return chain


@compiled()
def _add_by_columns(rows, chosen, n_rare, head, chain, system):
    """Look, at each occurrence of a chosen feature, which rare ones share its row: for long rows of rare features."""
    for j in range(len(chosen)):
        for place in range(rows.feature_indptr[chosen[j]], rows.feature_indptr[chosen[j] + 1]):
            at = head[rows.feature_rows[place]]
            value = np.float64(rows.data[rows.feature_positions[place]])
            while at >= 0:
                i = chain[at].slot
                if i <= j:
                    system[j, i] += value * chain[at].value
                at = chain[at].next
    for feature in chosen[:n_rare]:
        for place in range(rows.feature_indptr[feature], rows.feature_indptr[feature + 1]):
            head[rows.feature_rows[place]] = -1


@compiled()
def _first_at_least(rising, least):
    """How many of the rising numbers are below ``least``."""
    count = 0
    while count < len(rising) and rising[count] < least:
        count += 1
    return count


@compiled()
def _add_positives(rows, rows_of_label, extra, slot, system):
    for row in rows_of_label:
        for a in range(rows.indptr[row], rows.indptr[row + 1]):
            i = slot[rows.indices[a]]
            if i < 0:
                continue
            scaled = extra * rows.data[a]
            # Indices rise within a row, and so do the slots.
            for b in range(rows.indptr[row], a + 1):
                j = slot[rows.indices[b]]
                if j >= 0:
                    system[i, j] += scaled * rows.data[b]


@compiled(fastmath={"contract", "reassoc"})
def solve_lower(lower, solution):
    """Solve L Lᵀ h = b in place, both times along the rows or columns of L that the storage order favours."""
    count = len(solution)
    for i in range(count):
        total = 0.0
        for j in range(i):
            total += lower[i, j] * solution[j]
        solution[i] = (solution[i] - total) / lower[i, i]
    for i in range(count - 1, -1, -1):
        solution[i] /= lower[i, i]
        for j in range(i):
            solution[j] -= lower[i, j] * solution[i]


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
    """As :func:`tagwise.kernels.supports.solve_supports`, with b and A summed over a label's known rows only.

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
