"""The k best labels of each row, from any form of prediction; ties go to the lower label id."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.parallel import even_chunks
from tagwise.validation import canonical_csr, check_integer, check_k, checked_csr, shape_text

__all__ = ["NO_LABEL", "ranked_labels", "require_no_nan", "require_scores", "top_k", "top_k_of_csr"]

NO_LABEL = -1

# Elements per block: large enough to amortise numpy's calls, small enough to stay near the caches.
_BLOCK_ELEMENTS = 1 << 20
# The kernel takes a quarter of the time of sorting for a few labels, and more than that for many.
_SHORT = 64
# Row numbers inside a block fit 16 bits, for which numpy's stable sort is a linear-time radix sort.
_BLOCK_ROWS = 1 << 16


def top_k(prediction: Any, k: int = 5, *, n_labels: int | None = None) -> np.ndarray:
    """The k best labels of each row.

    Parameters
    ----------
    prediction : array, sparse matrix or pair
        Integer array n×w of label ids (best first, -1 = no label), a pair ``(labels, scores)`` of n×w arrays, a sparse
        n×L matrix of scores (stored entries are the candidates) or a floating-point n×L array of scores.
    k : int
        May exceed the number of labels, by up to 1,000.
    n_labels : int, optional
        L. Needed only to reject label ids out of range, and to tell an id array that is too narrow for k (an error)
        from one that holds all L labels.

    Returns
    -------
    array of int64, n×k
        Label ids, best first, ties by the lower id; -1 if a row has no further candidate. Pairs are sorted by score; id
        arrays keep their order.

    Notes
    -----
    Time O(n·L + n·k log k) for dense scores, O(nnz log nnz) for sparse ones. Works in row blocks, so further memory is
    bounded by a constant plus the longest row.
    """
    k = check_integer(k, "k", minimum=1)
    if n_labels is not None:
        n_labels = check_integer(n_labels, "n_labels", minimum=1)
    return ranked_labels(prediction, k, n_rows=None, n_labels=n_labels)


def ranked_labels(prediction: Any, k: int, *, n_rows: int | None, n_labels: int | None) -> np.ndarray:
    """:func:`top_k` with the shape known: also checks ``prediction`` against ``n_rows`` and ``n_labels``."""
    if isinstance(prediction, tuple):
        return _first_k(_ranked_pair(prediction, n_rows, n_labels), k, n_labels)
    if not sp.issparse(prediction) and (array := _as_array(prediction, "prediction")).dtype.kind in "iu":
        return _first_k(_checked_labels(array, "prediction", n_rows, n_labels), k, n_labels)
    scores = _checked_scores(prediction, n_rows, n_labels, "prediction")
    return top_k_of_csr(scores, k) if sp.issparse(scores) else _top_k_of_dense(scores, k)


def require_scores(prediction: Any, n_rows: int, n_labels: int, *, name: str = "prediction") -> Any:
    """Canonical CSR or float array of n×L scores; anything that ranks only some labels is refused."""
    if isinstance(prediction, tuple) or (
        not sp.issparse(prediction) and _as_array(prediction, name).dtype.kind in "iu"
    ):
        raise InvalidInputError(
            f"{name} holds top-k label ids, but a score for every label is needed: pass decision_function's "
            "scores, a sparse score matrix or a function scores(start, stop); integer scores as floats."
        )
    return _checked_scores(prediction, n_rows, n_labels, name)


def _as_array(prediction: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(prediction)
    except ValueError as error:
        raise InvalidInputError(f"{name} must have rows of equal length: {error}.") from None
    if array.dtype.kind == "b":
        raise InvalidInputError(
            f"{name} is a boolean array, which ranks nothing: pass scores, or label ids as integers "
            "(to rank by 0/1 anyway, convert it to float)."
        )
    if array.dtype.kind not in "iuf":
        raise InvalidTypeError(
            f"{name} must be an integer array of label ids, a pair (labels, scores), or sparse or "
            f"floating-point scores; found entries of type {array.dtype}."
        )
    if array.ndim != 2:
        advice = " (the pair of predict_topk is a tuple, not a list)" if array.ndim == 3 and len(array) == 2 else ""
        raise InvalidInputError(f"{name} must have two dimensions; found {array.ndim}{advice}.")
    return array


def _require_rows(found: int, n_rows: int | None, name: str) -> None:
    if n_rows is not None and found != n_rows:
        raise InvalidInputError(
            f"{name} has {found:,} rows but Y_true has {n_rows:,}; they must describe the same rows."
        )


def _checked_scores(prediction: Any, n_rows: int | None, n_labels: int | None, name: str) -> Any:
    """Canonical CSR without NaN, or an array, in which NaN is looked for block by block."""
    scores = checked_csr(prediction, name) if sp.issparse(prediction) else _as_array(prediction, name)
    if scores.dtype.kind not in "fiub":
        raise InvalidTypeError(f"{name} must hold real scores; found entries of type {scores.dtype}.")
    _require_rows(scores.shape[0], n_rows, name)
    if n_labels is not None and scores.shape[1] != n_labels:
        raise InvalidInputError(
            f"{name} has shape {shape_text(scores.shape)}, but scores need one column for each of the "
            f"{n_labels:,} labels (label ids must be an integer array)."
        )
    if sp.issparse(scores):
        scores = canonical_csr(scores if scores.dtype.kind == "f" else scores.astype(np.float64))
        require_no_nan(scores.data, name)
    return scores


def require_no_nan(scores: np.ndarray, name: str) -> None:
    """Refuse NaN, which cannot be ordered."""
    if np.isnan(scores).any():
        raise InvalidInputError(f"{name} contains NaN among its scores, which cannot be ranked; remove them first.")


def _checked_labels(labels: np.ndarray, name: str, n_rows: int | None, n_labels: int | None) -> np.ndarray:
    _require_rows(labels.shape[0], n_rows, name)
    if labels.size == 0:
        return labels.astype(np.int64)
    hint = "; if these are scores, pass them as floats" if labels.shape[1] == n_labels else ""
    limit = np.iinfo(np.int64).max if n_labels is None else n_labels
    if labels.min() < NO_LABEL or labels.max() >= limit:
        row, column = np.argwhere((labels < NO_LABEL) | (labels >= limit))[0]
        raise InvalidInputError(
            f"{name} holds label {labels[row, column]} in row {row}; ids are from 0 to {limit - 1:,}, and -1 means no "
            f"label{hint}."
        )
    labels = labels.astype(np.int64)
    ordered = np.sort(labels, axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NO_LABEL)
    if repeated.any():
        row, column = np.argwhere(repeated)[0]
        raise InvalidInputError(
            f"{name} lists label {ordered[row, column]} more than once in row {row}; labels of a row "
            f"must be distinct{hint}."
        )
    return labels


def _ranked_pair(pair: tuple[Any, ...], n_rows: int | None, n_labels: int | None) -> np.ndarray:
    if len(pair) != 2:
        raise InvalidInputError(f"prediction is a tuple of {len(pair)}; a pair (labels, scores) is expected.")
    labels, scores = _as_array(pair[0], "prediction[0]"), _as_array(pair[1], "prediction[1]")
    if labels.dtype.kind not in "iu":
        raise InvalidTypeError(f"prediction[0] must hold label ids as integers; found entries of type {labels.dtype}.")
    if labels.shape != scores.shape:
        raise InvalidInputError(
            f"prediction pairs labels of shape {shape_text(labels.shape)} with scores of shape "
            f"{shape_text(scores.shape)}; both must have the same shape."
        )
    labels = _checked_labels(labels, "prediction[0]", n_rows, n_labels)
    filled = labels != NO_LABEL
    require_no_nan(scores[filled], "prediction[1]")
    # Entries without a label may carry any filler score, even NaN: they go last.
    costs = np.where(filled, -scores.astype(np.float64), np.inf)
    order = np.lexsort((labels, costs, ~filled), axis=1)
    return np.take_along_axis(labels, order, axis=1)


def _first_k(labels: np.ndarray, k: int, n_labels: int | None) -> np.ndarray:
    width = labels.shape[1]
    if width >= k:
        return labels[:, :k]
    if n_labels is None or width < n_labels:
        raise InvalidInputError(f"prediction has {width} labels per row but k = {k}; predict at least k labels.")
    return np.pad(labels, ((0, 0), (0, check_k(k, n_labels) - width)), constant_values=NO_LABEL)


def top_k_of_csr(scores: sp.csr_matrix, k: int) -> np.ndarray:
    """Top-k labels (n×k, -1 after a row's last entry) of canonical CSR scores without NaN."""
    n_rows = scores.shape[0]
    labels = np.full((n_rows, check_k(k, scores.shape[1])), NO_LABEL, dtype=np.int64)
    indptr = scores.indptr
    start = 0
    while start < n_rows:
        first = int(indptr[start])
        stop = int(np.searchsorted(indptr, first + _BLOCK_ELEMENTS, side="right")) - 1
        stop = min(max(stop, start + 1), start + _BLOCK_ROWS, n_rows)
        last = int(indptr[stop])
        rows = np.repeat(np.arange(stop - start, dtype=np.uint16), np.diff(indptr[start : stop + 1]))
        # Two stable sorts, the outer key last; entries start in label order, so ties keep it.
        order = np.argsort(-scores.data[first:last], kind="stable")
        order = order[np.argsort(rows[order], kind="stable")]
        ranks = np.arange(last - first) - (indptr[start:stop] - first)[rows]
        kept = ranks < k
        labels[start + rows[kept].astype(np.int64), ranks[kept]] = scores.indices[first:last][order[kept]]
        start = stop
    return labels


def _top_k_of_dense(scores: np.ndarray, k: int) -> np.ndarray:
    from tagwise.kernels import top_k_of_scores  # here, since importing metrics imports no numba

    n_rows, n_labels = scores.shape
    labels = np.full((n_rows, check_k(k, n_labels)), NO_LABEL, dtype=np.int64)
    width = min(k, n_labels)
    numbers: Any = np.float32 if scores.dtype.itemsize <= 4 else np.float64
    for start, stop in even_chunks(n_rows, max(1, _BLOCK_ELEMENTS // max(1, n_labels))) if width else ():
        block = scores[start:stop]
        require_no_nan(block, "prediction")
        # Labels of a score of -inf are last, but labels.
        block = np.maximum(block, np.finfo(numbers).min, dtype=numbers)
        if width <= _SHORT:
            labels[start:stop, :width] = top_k_of_scores(block, width)[0]
        else:
            labels[start:stop, :width] = np.argsort(-block, axis=1, kind="stable")[:, :width]
    return labels
