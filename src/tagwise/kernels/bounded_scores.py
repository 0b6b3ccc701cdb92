"""The best labels of low rank plus sparse for few rows, without most of the low-rank products: bounds rule labels out.

|aᵀh_j| ≤ ‖a‖‖h_j‖. With the sparse part and the intercept added up exactly, most labels cannot reach the k best
whatever their low-rank part is, since rare labels have short rows h_j. A product of many rows by BLAS reads H once for
all of them; for a single row, reading all of H is what takes the time.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import compiled
from tagwise.kernels.norm_pruned import length_of, product
from tagwise.kernels.top_k import _merge, check_exclude, nothing_found

__all__ = ["top_k_within_bounds"]

# Groups of labels, of which the best of each is found in one pass.
_GROUPS = 512
# Marks of one byte that are looked at together.
_WORD = 8
_NONE_HIDDEN = np.zeros(0, dtype=np.int32)


def top_k_within_bounds(
    left: np.ndarray,
    right: np.ndarray,
    lengths: np.ndarray,
    k: int,
    *,
    intercept: np.ndarray,
    rows: sp.csr_matrix,
    sparse: sp.csr_matrix,
    exclude: sp.csr_matrix | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """What :func:`~tagwise.kernels.top_k_of_factors_and_sparse` returns, on one thread.

    Arguments are as there, and the ``lengths`` (L,) of the rows of ``right`` by
    :func:`~tagwise.kernels.norm_pruned.norm_bounds`.

    Steps: add up intercept and sparse part of all labels; the k labels that are best by these have k scores, of which
    the least is a floor; of the labels whose bound reaches the floor, take the k best scores.

    Time a row: two passes over L numbers, one addition for every weight that its features have in ``sparse``, and a
    product of length r for each label that the bounds leave (1 in 70 of 27,754 subject headings for k = 50). Memory
    3·L numbers and the result.
    """
    n_rows, (n_labels, rank) = len(left), right.shape
    if rows.shape[0] != n_rows or sparse.shape != (rows.shape[1], n_labels) or left.shape[1] != rank:
        raise InvalidInputError(
            f"left {left.shape}, right {right.shape}, rows {rows.shape} and sparse {sparse.shape} must be n×r, L×r, "
            "n×d and d×L."
        )
    if lengths.shape != (n_labels,):
        raise InvalidInputError(f"lengths has shape {lengths.shape} where {(n_labels,)} is expected.")
    check_exclude(exclude, (n_rows, n_labels))
    labels, scores = nothing_found(n_rows, k, left.dtype)
    hidden = (_NONE_HIDDEN, _NONE_HIDDEN) if exclude is None else (exclude.indptr, exclude.indices)
    _search(
        np.ascontiguousarray(left), np.ascontiguousarray(right), lengths, intercept.astype(left.dtype, copy=False),
        (rows.indptr, rows.indices, rows.data), (sparse.indptr, sparse.indices, sparse.data), hidden, scores, labels,
    )  # fmt: skip
    return labels, scores


@compiled(fastmath={"contract"})
def _add_up(row, features, lists, shift, sums):
    """``sums`` (L) = ``shift`` plus the listed weights of the row's features times their values."""
    indptr, indices, data = features
    list_indptr, list_labels, list_weights = lists
    sums[:] = shift
    for entry in range(indptr[row], indptr[row + 1]):
        value = sums.dtype.type(data[entry])
        for place in range(list_indptr[indices[entry]], list_indptr[indices[entry] + 1]):
            sums[np.uintp(list_labels[place])] += value * sums.dtype.type(list_weights[place])


# Without "reassoc" and "contract": a score is its sum plus its product, rounded once, and so is its bound, which is
# then never below it.
@compiled()
def _search(left, right, lengths, shift, features, lists, hidden, best_scores, best_labels):
    n_labels, (n_rows, k) = len(right), best_scores.shape
    sums, scores = np.empty(n_labels, dtype=left.dtype), np.empty((1, n_labels), dtype=left.dtype)
    reaching = np.zeros((n_labels + _WORD - 1) // _WORD * _WORD, dtype=np.uint8)
    candidates = np.empty(n_labels + 1, dtype=np.int32)
    for row in range(n_rows):
        embedded = left[row]
        _add_up(row, features, lists, shift, sums)
        # A finite number first: -inf would spoil the maxima of the groups, which are sums of products.
        _hide(row, hidden, np.finfo(sums.dtype).min, sums)
        floor = _floor(embedded, right, sums, k)
        _hide(row, hidden, -np.inf, sums)
        length = left.dtype.type(length_of(embedded))
        for label in range(n_labels):
            reaching[label] = np.uint8(sums[label] + length * lengths[label] >= floor)
        count = _listed(reaching, candidates)
        for at in range(count):
            scores[0, at] = sums[candidates[at]] + product(embedded, right, candidates[at])
        names = best_labels[row : row + 1]
        _merge(scores[:, :count], 0, best_scores[row : row + 1], names)
        for place in range(k):
            if names[0, place] >= 0:
                names[0, place] = candidates[names[0, place]]


@compiled()
def _hide(row, hidden, value, sums):
    """Give the labels that are hidden in a row a sum of ``value``."""
    if len(hidden[0]) > 0:
        for place in range(hidden[0][row], hidden[0][row + 1]):
            sums[hidden[1][place]] = value


@compiled()
def _floor(embedded, right, sums, k):
    """The least score of k labels with high ``sums``: a score that the k best reach at least; -inf if there are fewer.

    The labels are the best of k of 512 groups, those with the highest best: nearly as good as the k best of all, which
    take longer to find.
    """
    n_labels, lowest = len(sums), np.finfo(sums.dtype).min
    if 4 * k > _GROUPS:
        return sums.dtype.type(-np.inf)
    highest = np.full((1, _GROUPS), lowest, dtype=sums.dtype)
    whole = n_labels // _GROUPS * _GROUPS
    for begin in range(0, whole, _GROUPS):
        _raise_to(highest[0], sums[begin : begin + _GROUPS])
    for label in range(whole, n_labels):
        highest[0, label - whole] = max(highest[0, label - whole], sums[label])
    best, groups = np.full((1, k), -np.inf, dtype=sums.dtype), np.full((1, k), -1, dtype=np.int64)
    _merge(highest, 0, best, groups)
    floor = sums.dtype.type(np.inf)
    for place in range(k):
        if best[0, place] == lowest:  # a group without labels, or with hidden ones only
            return sums.dtype.type(-np.inf)
        label = groups[0, place]
        while sums[label] != best[0, place]:
            label += _GROUPS
        floor = min(floor, sums[label] + product(embedded, right, label))
    return floor


@compiled()
def _raise_to(highest, values):
    """The larger of two numbers at each place; as a sum of products, which the compiler does for 8 at once."""
    for place in range(_GROUPS):
        value, known = values[place], highest[place]
        highest[place] = value * (value > known) + known * (value <= known)


@compiled()
def _listed(marks, positions):
    """Fill in the positions of the marks that are 1, in rising order; returns how many there are."""
    count = 0
    for at, word in enumerate(marks.view(np.uint64)):
        if word != 0:
            for position in range(at * _WORD, (at + 1) * _WORD):
                positions[count] = position
                count += marks[position]
    return count
