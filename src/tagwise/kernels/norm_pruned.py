"""The k best columns of each row of a product, longest label factors first: most labels are ruled out by their length.

|aᵀh| ≤ ‖a‖‖h‖. Labels are looked at by falling ‖h‖; once the k-th best score of a row is above what any label still to
come could reach, the row is done. Rare labels have short factors, so that a row of a fitted model ends after a tenth or
a fifth of the labels. The answer is exact: the same labels as :func:`~tagwise.kernels.top_k_of_factors` finds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import compiled
from tagwise.kernels.top_k import SCAN_WIDTH, check_exclude, keep, nothing_found, row_blocks
from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas

__all__ = ["FEW_ROWS", "NormSorted", "norm_bounds", "norm_pruned_topk"]

FEW_ROWS = 8
"""Up to here rows are answered one at a time and without BLAS, which reads label factors once for many rows."""
# Labels that are scored before the rows that are done are left out; with as many rows, 1 MB of float32.
_TILE_WIDTH = 512


def norm_bounds(factors: np.ndarray) -> np.ndarray:
    """Euclidean lengths of rows (L×r), in their type, and above what rounding can make of a product with them.

    A product of r terms in floating numbers is off by at most about r·eps times the lengths of both, and lengths
    themselves by eps; the bound is raised by twice that.
    """
    squares = np.einsum("lr,lr->l", factors, factors, dtype=np.float64)
    slack = 2 * (factors.shape[1] + 4) * np.finfo(factors.dtype).eps
    return (np.sqrt(squares) * (1 + slack)).astype(factors.dtype)


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
        return bool(2 * self.lengths[len(self.lengths) // 4] <= self.lengths[0])

    @staticmethod
    def of(factors: np.ndarray, intercept: np.ndarray) -> NormSorted:
        """Time O(L·r + L·log L), memory 16 bytes a label."""
        if factors.ndim != 2 or intercept.shape != (len(factors),):
            raise InvalidInputError(
                f"factors and intercept must be L×r and L; found shapes {factors.shape} and {intercept.shape}."
            )
        lengths = norm_bounds(factors)
        order = np.argsort(-lengths, kind="stable").astype(np.int32)
        shift = intercept[order].astype(factors.dtype, copy=False)
        highest = np.maximum.accumulate(shift[::-1])[::-1].copy()
        return NormSorted(factors, intercept, order, lengths[order], shift, highest)


def norm_pruned_topk(
    left: np.ndarray,
    labels_by_length: NormSorted,
    k: int,
    *,
    exclude: sp.csr_matrix | None = None,
    n_threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest entries of each row of ``left @ Hᵀ + intercept``.

    Parameters
    ----------
    left : array (n, r)
        In the type of H.
    labels_by_length : NormSorted
        H and the intercept.
    k : int
        How many per row; may exceed L.
    exclude : CSR (n, L) with sorted indices, optional
        Stored pairs are never returned.
    n_threads : int
        Row blocks are spread over this many threads; the result has the same bits for any number of them.

    Returns
    -------
    labels : int64 array (n, k), best first; equal scores in the order of their ids; -1 where a row has no more labels.
    scores : array (n, k) in the type of ``left``; -inf where the label is -1.

    Notes
    -----
    Time O(r) for each pair of a row and a label that is not ruled out: all of them where label factors are equally
    long, which costs a few percent more than :func:`~tagwise.kernels.top_k_of_factors`. Memory O(n·k) and, per thread,
    one tile of about a megabyte and a copy of the factors of a tile's labels.
    """
    known = labels_by_length
    n_labels, rank = known.factors.shape
    if left.ndim != 2 or left.shape[1] != rank or left.dtype != known.factors.dtype:
        raise InvalidInputError(
            f"left must be n×{rank} of type {known.factors.dtype}; found shape {left.shape} of type {left.dtype}."
        )
    check_exclude(exclude, (len(left), n_labels))
    left = np.ascontiguousarray(left)
    labels, scores = nothing_found(len(left), k, left.dtype)
    hidden = (_NONE_HIDDEN, _NONE_HIDDEN) if exclude is None else (exclude.indptr, exclude.indices)
    arrays = (known.order, known.lengths, known.shift, known.highest)

    def one_by_one(block: np.ndarray, rows: np.ndarray, first: int) -> None:
        _search(block, rows, np.ascontiguousarray(known.factors), first, arrays, hidden, scores, labels)

    def many(start: int, stop: int) -> None:
        block, rows = left[start:stop], np.arange(start, stop)
        lengths = np.sqrt(np.einsum("nr,nr->n", block, block, dtype=np.float64))
        width = min(_TILE_WIDTH, n_labels)
        tiles, factors = np.empty((stop - start) * width, dtype=left.dtype), np.empty((width, rank), dtype=left.dtype)
        for first, last in even_chunks(n_labels, width):
            going_on = known.highest[first] + lengths * known.lengths[first] >= scores[rows, -1]
            if not going_on.all():
                block, rows, lengths = block[going_on], rows[going_on], lengths[going_on]
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


_NONE_HIDDEN = np.zeros(0, dtype=np.int32)


@compiled()
def is_hidden(row, label, hidden):
    """Whether a CSR matrix (indptr, sorted indices) stores a pair; an empty indptr stands for a matrix without any."""
    indptr, indices = hidden
    if len(indptr) == 0:
        return False
    stored = indices[indptr[row] : indptr[row + 1]]
    at = np.searchsorted(stored, label)
    return at < len(stored) and stored[at] == label


@compiled(fastmath={"contract", "reassoc", "nnan", "nsz"})
def product(left, right, row):
    """Sum of products of an array and a row of another."""
    total = left.dtype.type(0)
    for place in range(len(left)):
        total += left[place] * right[row, place]
    return total


@compiled(fastmath={"contract", "reassoc", "nnan", "nsz"})
def length_of(row):
    """The Euclidean length of an array, in float64."""
    square = 0.0
    for place in range(len(row)):
        square += np.float64(row[place]) * np.float64(row[place])
    return np.sqrt(square)


@compiled(fastmath={"nnan", "nsz"})
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
                if score >= best[last] and not is_hidden(row, names_of_columns[column], hidden):
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
        length = length_of(embedded)
        for begin in range(first, n_labels, SCAN_WIDTH):
            if highest[begin] + length * lengths[begin] < best[last]:
                break
            end = min(begin + SCAN_WIDTH, n_labels)
            # All products of a stretch before any comparison: the factors of the next label are fetched meanwhile.
            for place in range(begin, end):
                scores[place - begin] = product(embedded, factors, order[place])
            for place in range(begin, end):
                score, label = scores[place - begin] + shift[place], order[place]
                if score >= best[last] and not is_hidden(rows[at], label, hidden):
                    keep(best, names, score, label)
