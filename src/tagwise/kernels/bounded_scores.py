"""The best labels of low rank plus sparse for few rows, without most of the low-rank products: bounds rule labels out.

|aᵀh_j| ≤ ‖a‖‖h_j‖. With the sparse part and the intercept added up exactly, most labels cannot reach the k best so far
whatever their low-rank part is, since rare labels have short rows h_j. A product of many rows by BLAS reads H once for
all of them; for a single row, reading all of H is what takes the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tagwise.compiled import compiled
from tagwise.exceptions import InvalidInputError
from tagwise.kernels.top_k import check_exclude, nothing_found

__all__ = ["FactorBounds", "top_k_within_bounds"]

# A bound is raised by this share, far above what rounding can do to a sum of products.
_SLACK = 1e-5


@dataclass(frozen=True, eq=False)
class FactorBounds:
    """Labels by falling length of their factors, ``order`` int32 (L,), and these ``lengths``, rounded up (L,)."""

    order: np.ndarray
    lengths: np.ndarray

    @staticmethod
    def of(label_factors: np.ndarray) -> FactorBounds:
        """Of H (L×r); time O(L·r + L·log L)."""
        squares = np.einsum("lr,lr->l", label_factors, label_factors, dtype=np.float64)
        order = np.argsort(-squares, kind="stable").astype(np.int32)
        return FactorBounds(order, (np.sqrt(squares[order]) * (1 + _SLACK)).astype(label_factors.dtype))


def top_k_within_bounds(
    left: np.ndarray,
    right: np.ndarray,
    bounds: FactorBounds,
    k: int,
    *,
    intercept: np.ndarray,
    rows: sp.csr_matrix,
    sparse: sp.csr_matrix,
    exclude: sp.csr_matrix | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """What :func:`~tagwise.kernels.top_k_of_factors_and_sparse` returns, on one thread.

    Arguments are as there, and the ``bounds`` of ``right``. Time a row: L additions and comparisons, one addition for
    every weight that its features have in ``sparse``, and a product of length r for each label that the bounds leave
    (a tenth of 27,754 subject headings). Memory L numbers and the result.
    """
    n_rows, (n_labels, rank) = len(left), right.shape
    if rows.shape[0] != n_rows or sparse.shape != (rows.shape[1], n_labels) or left.shape[1] != rank:
        raise InvalidInputError(
            f"left {left.shape}, right {right.shape}, rows {rows.shape} and sparse {sparse.shape} must be n×r, L×r, "
            "n×d and d×L."
        )
    check_exclude(exclude, (n_rows, n_labels))
    labels, scores = nothing_found(n_rows, k, left.dtype)
    hidden = exclude if exclude is not None else sp.csr_matrix((n_rows, n_labels), dtype=left.dtype)
    _search(
        np.ascontiguousarray(left), np.ascontiguousarray(right), bounds.order, bounds.lengths,
        intercept.astype(left.dtype, copy=False), rows.indptr, rows.indices, rows.data, sparse.indptr, sparse.indices,
        sparse.data, hidden.indptr, hidden.indices, np.empty(n_labels, dtype=left.dtype), scores, labels,
    )  # fmt: skip
    return labels, scores


@compiled(fastmath={"contract", "reassoc", "nnan", "nsz"})
def _search(
    left, right, order, lengths, shift, indptr, indices, data, list_indptr, list_labels, list_weights, hidden_indptr,
    hidden_indices, sums, best_scores, best_labels,
):  # fmt: skip
    n_labels, rank = right.shape
    last = best_scores.shape[1] - 1
    for row in range(len(left)):
        sums[:] = shift
        for entry in range(indptr[row], indptr[row + 1]):
            begin, end = list_indptr[indices[entry]], list_indptr[indices[entry] + 1]
            value = sums.dtype.type(data[entry])
            for place in range(begin, end):
                sums[np.uintp(list_labels[place])] += value * sums.dtype.type(list_weights[place])
        for place in range(hidden_indptr[row], hidden_indptr[row + 1]):
            sums[hidden_indices[place]] = -np.inf
        embedded, best, names = left[row], best_scores[row], best_labels[row]
        square = 0.0
        for i in range(rank):
            square += np.float64(embedded[i]) * np.float64(embedded[i])
        length = sums.dtype.type(np.sqrt(square))
        worst = best[last]
        for at in range(n_labels):
            label = order[at]
            if sums[label] + length * lengths[at] < worst:
                continue
            score = sums[label]
            for i in range(rank):
                score += embedded[i] * right[label, i]
            if score < worst or score == -np.inf or (score == worst and label > names[last]):
                continue
            place = last
            while place > 0 and (best[place - 1] < score or (best[place - 1] == score and names[place - 1] > label)):
                best[place], names[place] = best[place - 1], names[place - 1]
                place -= 1
            best[place], names[place] = score, label
            worst = best[last]
