"""The k best labels of low-rank scores without most of the products: norms of label factors rule labels out.

|aᵀh| ≤ ‖a‖‖h‖, and rare labels have short factors h. :func:`norm_pruned_topk` looks at labels by falling ‖h‖; once the
k-th best score of a row is above what any label still to come could reach, the row is done, after a tenth or a fifth of
the labels of a fitted model. :func:`top_k_within_bounds` has a sparse part beside the factors, which it adds up exactly
first; then most labels cannot reach the k best whatever their low-rank part is. Both are exact: they find the labels
that the functions of :mod:`tagwise.kernels.top_k` find.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import FAST, compiled
from tagwise.kernels.gather_sum import fetch
from tagwise.kernels.sampled_pairs import contains_pair
from tagwise.kernels.top_k import (
    SCAN_WIDTH,
    check_parts,
    count_from,
    hidden_pairs,
    hide,
    keep,
    keep_from,
    kth_largest,
    lowest_finite,
    nothing_found,
    row_blocks,
    sort_best,
)
from tagwise.kernels.vectors import scratch
from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas

__all__ = ["FEW_ROWS", "BoundedLabels", "NormSorted", "norm_bounds", "norm_pruned_topk", "top_k_within_bounds"]

FEW_ROWS = 8
"""Up to here rows are answered one at a time and without BLAS, which reads label factors once for many rows."""
# Labels that are scored before the rows that are done are left out; with as many rows, 1 MB of float32.
_TILE_WIDTH = 512
# Rows that are answered together by one thread.
_BOUNDED_ROWS = 256
# Groups of labels, of which the best of each is found in one pass: as many at least, and so many for each of the k best
# labels. Where groups would have fewer labels than this, bounds would leave most.
_GROUPS, _GROUPS_PER_PLACE, _LABELS_PER_GROUP = 512, 4, 2
# Where the floor leaves so many candidates for each of the k best, some of their scores make a higher one.
_MANY = 8
# Marks of one byte that are looked at together.
_WORD = 8


def norm_bounds(factors: np.ndarray) -> np.ndarray:
    """Euclidean lengths of rows (L×r), in their type, and above what rounding can make of a product with them.

    A product of r terms in floating numbers is off by at most about r·eps times the lengths of both, and lengths
    themselves by eps; the bound is raised by twice that.
    """
    squares = np.einsum("lr,lr->l", factors, factors, dtype=np.float64)
    slack = 2 * (factors.shape[1] + 4) * np.finfo(factors.dtype).eps
    with np.errstate(over="ignore"):  # infinity is a bound, too
        return (np.sqrt(squares) * (1 + slack)).astype(factors.dtype)


def _check_labels(factors: np.ndarray, intercept: np.ndarray) -> None:
    if factors.ndim != 2 or intercept.shape != (len(factors),):
        raise InvalidInputError(
            f"factors and intercept must be L×r and L; found shapes {factors.shape} and {intercept.shape}."
        )


@dataclass(frozen=True, eq=False)
class NormSorted:
    """The labels of a low-rank model in the order in which they are looked at.

    ``factors`` H (L×r) and ``intercept`` (L) are the model's own; ``order`` int32 (L,) the labels by falling length of
    their factors, ``lengths`` (L,) these lengths, ``shift`` (L,) their intercepts, and ``highest`` (L,) the largest
    intercept from there on, all in that order and in the type of H.
    """

    factors: np.ndarray
    intercept: np.ndarray
    order: np.ndarray
    lengths: np.ndarray
    shift: np.ndarray
    highest: np.ndarray

    @property
    def rule_out_others(self) -> bool:
        """Whether long labels can be expected to: three quarters are at most half as long as the longest."""
        return bool(self.lengths[len(self.lengths) // 4] <= self.lengths[0] / 2)

    @staticmethod
    def of(factors: np.ndarray, intercept: np.ndarray) -> NormSorted:
        """Time O(L·r + L·log L), memory 16 bytes per label."""
        _check_labels(factors, intercept)
        lengths = norm_bounds(factors)
        order = np.argsort(-lengths, kind="stable").astype(np.int32)
        shift = intercept[order].astype(factors.dtype, copy=False)
        highest = np.maximum.accumulate(shift[::-1])[::-1].copy()
        return NormSorted(factors, intercept, order, lengths[order], shift, highest)


def norm_pruned_topk(
    left: np.ndarray, labels_by_norm: NormSorted, k: int, *, exclude: sp.csr_matrix | None = None, n_threads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest entries of each row of ``left @ Hᵀ + intercept``, as :mod:`tagwise.kernels.top_k` says.

    ``left`` (n, r) is in the type of H; the other arguments are those of :func:`~tagwise.kernels.top_k_of_factors`.

    Time O(r) for each pair of a row and a label that is not ruled out: all of them where label factors are equally
    long, which costs a few percent more than :func:`~tagwise.kernels.top_k_of_factors`. Memory O(n·k) and, per thread,
    one tile of about a megabyte and a copy of the factors of a tile's labels.
    """
    known = labels_by_norm
    n_labels, rank = known.factors.shape
    if left.ndim != 2 or left.shape[1] != rank or left.dtype != known.factors.dtype:
        raise InvalidInputError(
            f"left must be n×{rank} of type {known.factors.dtype}; found shape {left.shape} of type {left.dtype}."
        )
    hidden = hidden_pairs(exclude, (len(left), n_labels))
    left = np.ascontiguousarray(left)
    labels, scores = nothing_found(len(left), k, left.dtype)
    arrays = (known.order, known.lengths, known.shift, known.highest)

    def one_by_one(block: np.ndarray, rows: np.ndarray, first: int) -> None:
        _search(block, rows, np.ascontiguousarray(known.factors), first, arrays, hidden, scores, labels)

    def many(start: int, stop: int) -> None:
        block, rows = left[start:stop], np.arange(start, stop)
        lengths = np.sqrt(np.einsum("nr,nr->n", block, block, dtype=np.float64))
        width = min(_TILE_WIDTH, n_labels)
        tiles, factors = np.empty((stop - start) * width, dtype=left.dtype), np.empty((width, rank), dtype=left.dtype)
        for first, last in even_chunks(n_labels, width):
            remaining = known.highest[first] + lengths * known.lengths[first] >= scores[rows, -1]
            if not remaining.all():
                block, rows, lengths = block[remaining], rows[remaining], lengths[remaining]
            if len(rows) <= FEW_ROWS:
                one_by_one(block, rows, first)
                return
            tile = tiles[: len(rows) * (last - first)].reshape(len(rows), last - first)
            # "clip" lets numpy write into the given array directly; the order is a permutation.
            panel = np.take(known.factors, known.order[first:last], axis=0, out=factors[: last - first], mode="clip")
            np.matmul(block, panel.T, out=tile)
            _merge_named(tile, known.order[first:last], known.shift[first:last], rows, hidden, scores, labels)

    if len(left) <= FEW_ROWS:
        one_by_one(left, np.arange(len(left)), 0)
        return labels, scores
    with single_threaded_blas():
        run_chunks(many, row_blocks(len(left)), n_threads)
    return labels, scores


class BoundedLabels(NamedTuple):
    """Labels of a low-rank model: factors H (L×r), their lengths (L) by :func:`norm_bounds`, and intercepts (L)."""

    factors: np.ndarray
    lengths: np.ndarray
    intercept: np.ndarray

    @classmethod
    def of(cls, factors: np.ndarray, intercept: np.ndarray) -> BoundedLabels:
        """Time O(L·r), memory a number per label."""
        _check_labels(factors, intercept)
        return cls(factors, norm_bounds(factors), intercept)


def top_k_within_bounds(
    left: np.ndarray,
    labels: BoundedLabels,
    k: int,
    *,
    rows: sp.csr_matrix,
    sparse: sp.csr_matrix,
    exclude: sp.csr_matrix | None = None,
    best_first: bool = True,
    n_threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Best labels of :func:`~tagwise.kernels.top_k_of_factors_and_sparse`, from factors and intercepts of ``labels``.

    The other arguments are as there. Without ``best_first``, the k best of a row come in rising order of their labels.

    Steps: add up intercept and sparse part of all labels; a number that at least k of these sums reach is the floor;
    score the labels whose bound reaches the floor (where these are many, scores of the best sums raise it first). If k
    scores reach the floor, the k best are among them; otherwise the k-th best of them is the floor of a second search.
    A row has the same bits alone and among others.

    Time per row: three passes over L numbers, one addition for every weight that its features have in ``sparse``, and a
    product of length r for each label that the bounds leave; for all labels where there are few of them, or few for
    each of the k best. Memory O(n·k) and 13·L bytes per thread (for float32), which the thread keeps.
    """
    right, lengths, intercept = labels
    n_rows, n_labels = len(left), len(right)
    sparse = check_parts(left, right, rows, sparse)
    if lengths.shape != (n_labels,) or intercept.shape != (n_labels,):
        raise InvalidInputError(
            f"lengths and intercept have shapes {lengths.shape} and {intercept.shape} where {(n_labels,)} is expected."
        )
    hidden = hidden_pairs(exclude, (n_rows, n_labels))
    best = nothing_found(n_rows, k, left.dtype)
    factors = np.ascontiguousarray(left), np.ascontiguousarray(right), lengths, intercept.astype(left.dtype, copy=False)
    parts = (rows.indptr, rows.indices, rows.data), (sparse.indptr, sparse.indices, sparse.data)

    def chunk(start: int, stop: int) -> None:
        sums, scores = scratch("sums", n_labels, left.dtype), scratch("scores", n_labels, left.dtype)
        marks = scratch("marks", -(-n_labels // _WORD) * _WORD, np.uint8)
        space = sums.reshape(1, -1), scores, marks, scratch("candidates", n_labels + 1, np.int32)
        _search_within_bounds(factors, parts, hidden, space, best, best_first, start, stop)

    run_chunks(chunk, even_chunks(n_rows, _BOUNDED_ROWS), n_threads)
    return best


@compiled(inner=True, fastmath=FAST)
def product(left, right, row):
    """``left`` · ``right[row]``."""
    total = left.dtype.type(0)
    for i in range(len(left)):
        total += left[i] * right[row, i]
    return total


@compiled(inner=True, fastmath=FAST)
def norm(row):
    """The Euclidean length of an array, in float64."""
    square = 0.0
    for i in range(len(row)):
        square += np.float64(row[i]) * np.float64(row[i])
    return np.sqrt(square)


@compiled(fastmath=FAST)
def _merge_named(tile, names_of_columns, shift, rows, hidden, best_scores, best_labels):
    n_rows, width = tile.shape
    last = best_scores.shape[1] - 1
    for at in range(n_rows):
        row, scores = rows[at], tile[at]
        best, names = best_scores[row], best_labels[row]
        for begin in range(0, width, SCAN_WIDTH):
            end = begin + SCAN_WIDTH
            worst = best[last]
            if end > width:
                end = width
            else:
                reaching = np.int32(0)
                for column in range(begin, begin + SCAN_WIDTH):
                    reaching += np.int32(scores[column] + shift[column] >= worst)
                if reaching == 0:
                    continue
            for column in range(begin, end):
                score = scores[column] + shift[column]
                if score >= best[last] and not contains_pair(hidden, row, names_of_columns[column]):
                    keep(best, names, score, names_of_columns[column])


# Without "reassoc", so that a score is its product plus its shift, rounded once: then it cannot pass a bound that is
# larger than the product plus the shift, rounded once.
@compiled()
def _search(left, rows, factors, first, by_length, hidden, best_scores, best_labels):
    order, lengths, shift, highest = by_length
    n_labels = len(order)
    last = best_scores.shape[1] - 1
    scores = np.empty(SCAN_WIDTH, dtype=left.dtype)
    for at in range(len(left)):
        embedded, best, names = left[at], best_scores[rows[at]], best_labels[rows[at]]
        length = norm(embedded)
        for begin in range(first, n_labels, SCAN_WIDTH):
            if highest[begin] + length * lengths[begin] < best[last]:
                break
            end = min(begin + SCAN_WIDTH, n_labels)
            # All products of a scan before any comparison: the factors of the next label are fetched meanwhile.
            for place in range(begin, end):
                scores[place - begin] = product(embedded, factors, order[place])
            for place in range(begin, end):
                score, label = scores[place - begin] + shift[place], order[place]
                if score >= best[last] and not contains_pair(hidden, rows[at], label):
                    keep(best, names, score, label)


@compiled(inner=True, fastmath={"contract"})
def _add_up(row, features, lists, shift, sums):
    """``sums`` (L) = ``shift`` plus the listed weights of the row's features times their values."""
    indptr, indices, data = features
    list_indptr, list_labels, list_weights = lists
    for label in range(len(shift)):  # four times as fast as an assignment of arrays
        sums[label] = shift[label]
    end = indptr[row + 1]
    for entry in range(indptr[row], end):
        value, following = sums.dtype.type(data[entry]), indices[min(entry + 1, end - 1)]
        fetch(list_labels, list_weights, list_indptr[following], list_indptr[following + 1])
        for at in range(np.uintp(list_indptr[indices[entry]]), np.uintp(list_indptr[indices[entry] + 1])):
            sums[np.uintp(list_labels[at])] += value * sums.dtype.type(list_weights[at])


# Without "reassoc" and "contract": a score is its sum plus its product, rounded once, and so is its bound, which is
# then never below it.
@compiled()
def _search_within_bounds(factors, parts, hidden, space, best, best_first, start, stop):
    left, right, lengths, shift = factors
    features, lists = parts
    tile, scores, reaching, candidates = space
    best_labels, best_scores = best
    n_labels, k = len(right), best_labels.shape[1]
    sums, lowest = tile[0], lowest_finite(left)
    reaching[n_labels:] = 0
    for row in range(start, stop):
        embedded = left[row]
        _add_up(row, features, lists, shift, sums)
        hide(tile, hidden, row, 0, -np.inf)
        length = left.dtype.type(norm(embedded))
        floor = _first_floor(sums, k)
        while True:
            for label in range(n_labels):
                reaching[label] = np.uint8(sums[label] + length * lengths[label] >= floor)
            count = _listed(reaching, candidates)
            if count > _MANY * k and floor > lowest:
                higher = _least_score(candidates[:count], floor, sums, embedded, right)
                if higher > floor:
                    floor = higher
                    count = _still_reaching(candidates[:count], floor, sums, length, lengths)
            for at in range(count):
                scores[at] = sums[candidates[at]] + product(embedded, right, candidates[at])
            least = kth_largest(scores[:count], k) if count >= k else lowest
            if floor == lowest or count_from(scores[:count], floor) >= k:
                break
            floor = least  # a score that k labels reach
        keep_from(least, scores[:count], candidates, best_scores[row], best_labels[row])
        if best_first:
            sort_best(best_scores[row], best_labels[row], min(k, count))


@compiled(inner=True)
def _first_floor(sums, k):
    """A number that ``sums`` of at least k labels reach, and of not many more; seldom above the k-th best score.

    It is the k-th best of the best of each group of labels, which takes less time than the k-th best of all. The lowest
    finite number where there are too few labels for groups, or most are hidden.
    """
    n_groups, lowest = _group_count(len(sums), k), lowest_finite(sums)
    if n_groups == 0:
        return lowest
    highest = sums[:n_groups].copy()
    for begin in range(n_groups, len(sums), n_groups):
        _raise_to(highest, sums[begin : begin + n_groups])
    return max(lowest, kth_largest(highest, k))


@compiled(inner=True)
def _least_score(candidates, floor, sums, embedded, right):
    """The least score of the labels whose ``sums`` reach the floor: where there are k of them, k labels reach it."""
    least = sums.dtype.type(np.inf)
    for label in candidates:
        if sums[label] >= floor:
            least = min(least, sums[label] + product(embedded, right, label))
    return least


@compiled(inner=True)
def _still_reaching(candidates, floor, sums, length, lengths):
    """Keep the candidates whose bound reaches a higher floor; returns how many there are."""
    count = 0
    for label in candidates:
        candidates[count] = label
        count += sums[label] + length * lengths[label] >= floor
    return count


@compiled(inner=True)
def _group_count(n_labels, k):
    """Number of groups of labels: some hundred, and several for each of the k best; 0 for few labels."""
    n_groups = max(_GROUPS, _GROUPS_PER_PLACE * k)
    return n_groups if n_labels >= _LABELS_PER_GROUP * n_groups else 0


@compiled(inner=True, fastmath=FAST)
def _raise_to(highest, values):
    """The larger of two numbers at each place; there may be fewer ``values``."""
    for place in range(len(values)):
        highest[place] = values[place] if values[place] > highest[place] else highest[place]


@compiled(inner=True)
def _listed(marks, positions):
    """Fill in the positions of the marks that are 1, in rising order; returns how many there are."""
    count = 0
    for at, word in enumerate(marks.view(np.uint64)):
        if word != 0:
            for position in range(at * _WORD, (at + 1) * _WORD):
                positions[count] = position
                count += marks[position]
    return count
