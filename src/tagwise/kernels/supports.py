"""Restricted least squares, label by label: Gram entries, choice of the support and the exact small systems.

Features are numbered by rising frequency here. XᵀX is kept, as a dense triangle, only for the most frequent of them.
The entries of a rarer feature are added up anew from the rows in which it occurs, which are few, and in each row only
from what stands after it, so that the walk is about as short as reading stored entries would be.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.executor import filled_together
from tagwise.kernels.compiled import FAST, compiled
from tagwise.kernels.sampled_pairs import first_from
from tagwise.kernels.top_k import count_above, kth_largest, sort_names
from tagwise.parallel import run_chunks, work_chunks

__all__ = [
    "Choice",
    "GramParts",
    "IndexedCSR",
    "KnownRows",
    "LowRankScores",
    "Positives",
    "Space",
    "Supports",
    "feature_sums",
    "gram_of_last",
    "indexed_csr",
    "solve_known_supports",
    "solve_supports",
]


# One entry of a label's rare features, in the chain of its row.
_CHAIN = np.dtype([("next", np.int64), ("slot", np.int64), ("value", np.float64)])


class IndexedCSR(NamedTuple):
    """X (n×d) by rows with rising indices, and by features: in which rows a feature occurs and where it is stored.

    Where rows have weights v, X is diag(√v)·X and ``root`` √v (n,), else 1: then XᵀX counts each row as it weighs.
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    feature_indptr: np.ndarray
    feature_rows: np.ndarray
    feature_positions: np.ndarray
    root: np.ndarray


class Supports(NamedTuple):
    """Features of each label, rising: those of label j are ``features[indptr[j]:indptr[j+1]]``; both empty for none."""

    indptr: np.ndarray
    features: np.ndarray


class Positives(NamedTuple):
    """The rows of each label, ``rows[indptr[j]:indptr[j+1]]``, and the weight (L,) of each label's positives."""

    indptr: np.ndarray
    rows: np.ndarray
    weights: np.ndarray


class KnownRows(NamedTuple):
    """The known rows of each label, with the residual √v(y − score) and the weight ω of each."""

    indptr: np.ndarray
    rows: np.ndarray
    residuals: np.ndarray
    weights: np.ndarray


class GramParts(NamedTuple):
    """Kept part of XᵀX: the ``triangle`` of the ``kept`` last features (:func:`gram_of_last`) and the ``diagonal``.

    ``column_sums`` are Xᵀ√v, ``walks`` those of :func:`feature_sums`; ``column_step`` is what a step along a column
    costs in steps along a row.
    """

    triangle: np.ndarray
    kept: int
    diagonal: np.ndarray
    column_sums: np.ndarray
    walks: np.ndarray
    column_step: float


class LowRankScores(NamedTuple):
    """Scores (XU + A)Vᵀ + 1bᵀ whose residual is fitted: Xᵀ(XU + A), U (``feature_factors``), V (``label_factors``), b.

    A (n×k) is what other features than those of X add, times the root of the row's weight; 0×k where there are none.
    """

    gram_factors: np.ndarray
    feature_factors: np.ndarray
    label_factors: np.ndarray
    intercept: np.ndarray
    beside: np.ndarray


class Choice(NamedTuple):
    """The penalty, how many features a label may use and which share of the largest gain each must have.

    ``given`` are supports to use in place of a choice, or none.
    """

    reg: float
    support: int
    least_share: float
    given: Supports


class Space(NamedTuple):
    """Workspace of a chunk of labels: arrays over features and over rows, a system, and room for the solutions."""

    slot: np.ndarray
    touched: np.ndarray
    right: np.ndarray
    squares: np.ndarray
    along: np.ndarray
    head: np.ndarray
    system: np.ndarray
    features: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, rows: IndexedCSR, most: np.ndarray) -> Space:
        """For labels of at most so many features each; allocated here, as numba compiles ``np.full`` and its like."""
        n_rows, n_features = len(rows.indptr) - 1, len(rows.feature_indptr) - 1
        largest, total = int(most.max(initial=0)), int(most.sum())
        return cls(
            np.full(n_features, -1, dtype=np.int32),
            np.empty(n_features, dtype=np.int32),
            np.zeros(n_features),
            np.zeros(n_features),
            np.zeros(n_features),
            np.full(n_rows, -1),
            np.empty(largest * largest),
            np.empty(total, dtype=np.int64),
            np.empty(total, dtype=rows.data.dtype),
        )


def indexed_csr(X: sp.csr_matrix, root: np.ndarray) -> IndexedCSR:
    """X (n×d), whose indices need not rise within a row, both ways; a feature is stored at most once per row.

    Time O(nnz): a transpose lists rows rising, and its transpose features.
    """
    rows = sp.csr_matrix(sp.csr_matrix(X.T).T)
    places = sp.csr_matrix((np.arange(X.nnz), rows.indices, rows.indptr), shape=X.shape)
    by_feature = sp.csr_matrix(places.T)
    return IndexedCSR(
        rows.indptr, rows.indices, rows.data, by_feature.indptr, by_feature.indices, by_feature.data, root
    )


class FeatureSums(NamedTuple):
    """Of each feature: stored entries at or after it in the rows that hold it (int64), Σ x² and Σ x√v (float64)."""

    walks: np.ndarray
    squares: np.ndarray
    sums: np.ndarray


def feature_sums(rows: IndexedCSR) -> FeatureSums:
    """Time O(nnz), memory 16 bytes per entry for a moment."""
    lengths, n_features = np.diff(rows.indptr), len(rows.feature_indptr) - 1

    def sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(rows.indices, weights=values, minlength=n_features)

    values = rows.data.astype(np.float64)
    left = np.repeat(rows.indptr[1:], lengths) - np.arange(len(values))
    return FeatureSums(sums(left).astype(np.int64), sums(values**2), sums(values * np.repeat(rows.root, lengths)))


def gram_of_last(
    rows: IndexedCSR, count: int, *, walks: np.ndarray, n_threads: int = 1, place: str | None = None
) -> np.ndarray:
    """The upper triangle of XᵀX of the last ``count`` features, row after row: (count·(count + 1)/2,).

    Added up in float64, kept in X's type. Time the features' ``walks`` (:func:`feature_sums`), memory the result.
    With a ``place``, processes of this machine make it together (:func:`tagwise.executor.filled_together`).
    """
    first, size, dtype = len(rows.feature_indptr) - 1 - count, count * (count + 1) // 2, rows.data.dtype
    chunks = work_chunks(np.concatenate([[0], np.cumsum(walks[first:])]))
    if place is not None and size:
        return filled_together(place, size, dtype, chunks, lambda out, some: _gram_of_last(rows, count, out, *some))
    triangle = np.empty(size, dtype=dtype)
    run_chunks(lambda start, stop: _gram_of_last(rows, count, triangle, start, stop), chunks, n_threads)
    return triangle


@compiled(inner=True)
def _row_of_triangle(triangle, count, i):
    """Row i of an upper triangle of ``count`` rows, from its diagonal on."""
    begin = i * count - i * (i - 1) // 2
    return triangle[begin : begin + count - i]


@compiled()
def _gram_of_last(rows, count, triangle, start, stop):
    first = len(rows.feature_indptr) - 1 - count
    total = np.empty(count, dtype=np.float64)
    for i in range(start, stop):
        total[i:] = 0
        for place in range(rows.feature_indptr[first + i], rows.feature_indptr[first + i + 1]):
            begin = rows.feature_positions[place]
            value = np.float64(rows.data[begin])
            for position in range(begin, rows.indptr[rows.feature_rows[place] + 1]):
                total[rows.indices[position] - first] += value * rows.data[position]
        out = _row_of_triangle(triangle, count, i)
        for j in range(len(out)):
            out[j] = total[i + j]


@compiled()
def solve_supports(rows, gram, low_rank, positives, choice, space, found, start, stop):
    """Choose and solve for labels ``start`` to ``stop``; features and values go to ``space``, one label after another.

    ``found`` = (counts, gains) takes the number of features of each label and its gain bᵀh. Returns the number of all.
    """
    label_factors, intercept = low_rank.label_factors, low_rank.intercept
    n_features = len(gram.diagonal)
    first_kept = n_features - gram.kept
    slot, touched, right, squares, along, head, _, _, _ = space
    chain = np.empty(1, dtype=_CHAIN)
    filled = np.int64(0)
    for label in range(start, stop):
        rows_of_label = positives.rows[positives.indptr[label] : positives.indptr[label + 1]]
        candidates = _candidates(rows, rows_of_label, slot, touched, right)
        extra = positives.weights[label] - 1.0
        extra_weights = np.empty(len(rows_of_label), dtype=np.float64)
        for i in range(len(rows_of_label)):
            extra_weights[i] = extra
        for feature in candidates:
            right[feature] -= (
                _dot(low_rank.gram_factors[feature], label_factors[label])
                + intercept[label] * gram.column_sums[feature]
            )
        if extra != 0:
            for feature in candidates:
                along[feature] = _dot(low_rank.feature_factors[feature], label_factors[label])
            residuals = _residuals(rows, rows_of_label, intercept[label], along)
            for i in range(len(rows_of_label) if len(low_rank.beside) > 0 else 0):
                residuals[i] -= _dot(low_rank.beside[rows_of_label[i]], label_factors[label])
            _slope_and_squares(rows, rows_of_label, residuals, extra_weights, slot, right, squares)
        gain = np.empty(len(candidates), dtype=np.float64)
        for i in range(len(candidates)):
            feature = candidates[i]
            gain[i] = right[feature] ** 2 / (gram.diagonal[feature] + squares[feature] + choice.reg)
            slot[feature] = -1
        chosen = _chosen(label, candidates, gain, choice)
        system = _empty_system(chosen, space)
        if len(chosen) > 0:
            n_rare = first_from(chosen, 0, len(chosen), first_kept)
            walk, columns = 0, 0
            for i in range(len(chosen)):
                columns += rows.feature_indptr[chosen[i] + 1] - rows.feature_indptr[chosen[i]]
                if i < n_rare:
                    walk += gram.walks[chosen[i]]
            if walk > gram.column_step * columns:
                chain = _rare_entries(rows, chosen[:n_rare], head, chain)
                _add_by_columns(rows, chosen, n_rare, head, chain, system)
            else:
                _add_by_rows(rows, chosen[:n_rare], slot, system)
            _copy_kept(gram, first_kept, chosen, n_rare, system)
            if extra != 0:
                _add_outer_products(rows, rows_of_label, extra_weights, slot, system)
        filled = _solve(label, system, chosen, choice.reg, space, found, filled)
        for feature in candidates:
            right[feature] = 0
            squares[feature] = 0
    return filled


@compiled()
def solve_known_supports(rows, known, positives, choice, space, found, start, stop):
    """As :func:`solve_supports`, with b and A summed over a label's known rows only.

    ``positives`` are those of the known rows that are on. Time, per label: the stored entries of its known rows, twice,
    and the square of how many of them a row has in the support.
    """
    slot, touched, right, squares, _, _, _, _, _ = space
    filled = np.int64(0)
    for label in range(start, stop):
        rows_of_label = positives.rows[positives.indptr[label] : positives.indptr[label + 1]]
        candidates = _candidates(rows, rows_of_label, slot, touched, right)
        for feature in candidates:
            right[feature] = 0
            squares[feature] = 0
        first, last = known.indptr[label], known.indptr[label + 1]
        own, weight = known.rows[first:last], known.weights[first:last]
        _slope_and_squares(rows, own, known.residuals[first:last], weight, slot, right, squares)
        gain = np.empty(len(candidates), dtype=np.float64)
        for i in range(len(candidates)):
            feature = candidates[i]
            gain[i] = right[feature] ** 2 / (squares[feature] + choice.reg)
            slot[feature] = -1
        chosen = _chosen(label, candidates, gain, choice)
        system = _empty_system(chosen, space)
        if len(chosen) > 0:
            _add_outer_products(rows, own, weight, slot, system)
        filled = _solve(label, system, chosen, choice.reg, space, found, filled)
        for feature in candidates:
            right[feature] = 0
    return filled


@compiled(inner=True)
def _chosen(label, candidates, gain, choice):
    given = choice.given
    if len(given.indptr) > 0:
        return given.features[given.indptr[label] : given.indptr[label + 1]]
    return _largest_gains(candidates, gain, choice.support, choice.least_share)


@compiled(inner=True)
def _empty_system(chosen, space):
    """A system of zeros for the chosen features, whose places in it ``slot`` gets."""
    count = len(chosen)
    for i in range(count):
        space.slot[chosen[i]] = i
    for i in range(count * count):
        space.system[i] = 0
    return space.system[: count * count].reshape(count, count)


@compiled(inner=True)
def _solve(label, system, chosen, reg, space, found, filled):
    """Solve a label's system and store its solution from ``filled`` on; returns the new end and clears ``slot``."""
    counts, gains = found
    right, features, values = space.right, space.features, space.values
    count = len(chosen)
    counts[label] = count
    gains[label] = 0
    if count == 0:
        return filled
    solution = np.empty(count, dtype=np.float64)
    for i in range(count):
        space.slot[chosen[i]] = -1
        system[i, i] += reg
        solution[i] = right[chosen[i]]
    _solve_lower(np.linalg.cholesky(system), solution)
    for i in range(count):
        gains[label] += right[chosen[i]] * solution[i]
        features[filled + i] = chosen[i]
        values[filled + i] = solution[i]
    return filled + count


@compiled(inner=True)
def _candidates(rows, rows_of_label, slot, touched, right):
    """The features of the label's rows, rising, at the start of ``touched``; XᵀVy in ``right``; ``slot`` marks them."""
    count = 0
    for row in rows_of_label:
        root = rows.root[row]
        for position in range(rows.indptr[row], rows.indptr[row + 1]):
            feature = rows.indices[position]
            if slot[feature] < 0:
                slot[feature] = 0
                touched[count] = feature
                count += 1
            right[feature] += root * rows.data[position]
    candidates = touched[:count]
    sort_names(candidates, slot)
    return candidates


@compiled(inner=True, fastmath=FAST)
def _dot(left, right):
    total = left.dtype.type(0)
    for i in range(len(left)):
        total += left[i] * right[i]
    return np.float64(total)


@compiled(inner=True)
def _residuals(rows, rows_of_label, intercept, along):
    """√v(1 − the low-rank score) of each positive, for the label's factors ``along`` the features."""
    residuals = np.empty(len(rows_of_label))
    for i in range(len(rows_of_label)):
        residuals[i] = rows.root[rows_of_label[i]] * (1.0 - intercept)
        for position in range(rows.indptr[rows_of_label[i]], rows.indptr[rows_of_label[i] + 1]):
            residuals[i] -= rows.data[position] * along[rows.indices[position]]
    return residuals


@compiled(inner=True)
def _largest_gains(candidates, gain, support, least_share):
    """The candidates of the ``support`` largest gains in their own order; equal gains go to the first ones.

    Those below ``least_share`` of the largest are left out.
    """
    n_candidates = len(candidates)
    smallest, equals = 0.0, n_candidates
    if n_candidates > support:
        smallest = kth_largest(gain, support)
        equals = support - count_above(gain, smallest)
    largest = 0.0
    for value in gain:
        largest = max(largest, value)
    chosen = np.empty(min(support, n_candidates), dtype=np.int64)
    count = 0
    for i in range(n_candidates):
        if gain[i] < least_share * largest:
            continue
        if gain[i] > smallest:
            chosen[count] = candidates[i]
            count += 1
        elif gain[i] == smallest and equals > 0:
            chosen[count] = candidates[i]
            count += 1
            equals -= 1
    return chosen[:count]


# Of a label's system only the lower triangle is set: the one that the Cholesky factorisation reads. Both features of an
# entry are in the stored triangle, or the rarer one is not; then its products are added up in one of two ways.
@compiled(inner=True)
def _copy_kept(gram, first_kept, chosen, n_rare, system):
    for i in range(n_rare, len(chosen)):
        source = _row_of_triangle(gram.triangle, gram.kept, chosen[i] - first_kept)
        for j in range(i, len(chosen)):
            system[j, i] = source[chosen[j] - chosen[i]]


@compiled(inner=True)
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


@compiled(inner=True)
def _rare_entries(rows, rare, head, chain):
    """The rare features' entries as one chain per row, starting at ``head[row]``; −1 ends it."""
    needed = 0
    for feature in rare:
        needed += rows.feature_indptr[feature + 1] - rows.feature_indptr[feature]
    if needed > len(chain):
        chain = np.empty(2 * needed, dtype=chain.dtype)
    at = 0
    for i in range(len(rare)):
        for place in range(rows.feature_indptr[rare[i]], rows.feature_indptr[rare[i] + 1]):
            row = rows.feature_rows[place]
            chain[at]["next"] = head[row]
            chain[at]["slot"] = i
            chain[at]["value"] = rows.data[rows.feature_positions[place]]
            head[row] = at
            at += 1
    return chain


@compiled(inner=True)
def _add_by_columns(rows, chosen, n_rare, head, chain, system):
    """Look, at each occurrence of a chosen feature, which rare ones share its row: for long rows of rare features."""
    for j in range(len(chosen)):
        for place in range(rows.feature_indptr[chosen[j]], rows.feature_indptr[chosen[j] + 1]):
            at = head[rows.feature_rows[place]]
            value = np.float64(rows.data[rows.feature_positions[place]])
            while at >= 0:
                i = chain[at]["slot"]
                if i <= j:
                    system[j, i] += value * chain[at]["value"]
                at = chain[at]["next"]
    for feature in chosen[:n_rare]:
        for place in range(rows.feature_indptr[feature], rows.feature_indptr[feature + 1]):
            head[rows.feature_rows[place]] = -1


@compiled(inner=True, fastmath=FAST)
def _solve_lower(lower, solution):
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


@compiled(inner=True)
def _slope_and_squares(rows, known, residuals, weights, slot, right, squares):
    """Xᵀ(ω·residual) onto ``right`` and the diagonal of Xᵀ diag(ω) X onto ``squares``, where ``slot`` is not −1."""
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


@compiled(inner=True)
def _add_outer_products(rows, known, weights, slot, system):
    """Xᵀ diag(ω) X of the support over the known rows onto the lower triangle."""
    slots = np.empty(len(system), dtype=np.int64)
    entries = np.empty(len(system), dtype=np.float64)
    for at in range(len(known)):
        row = known[at]
        count = 0
        for position in range(rows.indptr[row], rows.indptr[row + 1]):
            if slot[rows.indices[position]] >= 0:
                slots[count] = slot[rows.indices[position]]
                entries[count] = rows.data[position]
                count += 1
        # Indices rise within a row, and so do the slots.
        for a in range(count):
            scaled = weights[at] * entries[a]
            target = system[slots[a]]
            for b in range(a + 1):
                target[slots[b]] += scaled * entries[b]
