"""Metrics of 0/1 predictions: Hamming loss, the example-based four, micro and macro F1."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.metrics.ranking import check_true_labels
from tagwise.parallel import even_chunks
from tagwise.validation import canonical_csr, check_labels, check_real, checked_csr, shape_text

__all__ = [
    "example_accuracy",
    "example_f1",
    "example_precision",
    "example_recall",
    "hamming_loss",
    "macro_f1",
    "micro_f1",
]

# Dense scores that are cut at a time: the booleans of all of them would be another n×L.
_BLOCK_SCORES = 1 << 20


class _Sizes(NamedTuple):
    """Sizes of the true set, the predicted set and their intersection, per row or per label."""

    true: np.ndarray
    predicted: np.ndarray
    both: np.ndarray


def hamming_loss(Y_true: Any, Y_pred: Any, *, threshold: float | None = None) -> float:
    r"""Share of the n·L entries that are predicted wrongly; 0 is perfect.

    .. math:: \frac{1}{nL} \sum_i \sum_l [\hat y_{il} \ne y_{il}]

    Parameters
    ----------
    Y_true : sparse or dense 0/1 matrix, n×L
        True labels.
    Y_pred : sparse or dense matrix, n×L
        0/1 predictions; or scores, with ``threshold``.
    threshold : float, optional
        Turns scores into predictions: 1 if the score is at least this. 0.5 is the rounding in LEML's definition
        (section 5). An entry that a sparse matrix does not store is 0 whatever the threshold.

    Returns
    -------
    float

    Notes
    -----
    Time and memory O(nnz) for sparse input; dense scores are cut in row blocks.
    """
    truth, predicted = _checked(Y_true, Y_pred, threshold)
    sizes = _by_row(truth, predicted)
    wrong = int(sizes.true.sum()) + int(sizes.predicted.sum()) - 2 * int(sizes.both.sum())
    return wrong / (truth.shape[0] * truth.shape[1])


def example_precision(
    Y_true: Any, Y_pred: Any, *, threshold: float | None = None, both_empty: float | None = 1.0
) -> float:
    r"""Share of a row's predicted labels that are true, averaged over rows (MSE, equation 21).

    .. math:: \frac1n \sum_i \frac{|y_i \cap \hat y_i|}{|\hat y_i|}

    Parameters
    ----------
    Y_true, Y_pred, threshold
        As in :func:`hamming_loss`.
    both_empty : float or None
        The value of a row with neither true nor predicted labels: 1 by default, since the prediction is right; 0 agrees
        with scikit-learn's ``average="samples", zero_division=0``; None leaves such rows out of the average.

    Returns
    -------
    float

    Notes
    -----
    The paper leaves 0/0 open. Here a row with exactly one empty set counts 0 in all four example-based metrics. Time
    and memory O(nnz) for sparse input.
    """
    sizes = _by_row(*_checked(Y_true, Y_pred, threshold))
    return _average(sizes.both, sizes.predicted, sizes, both_empty, "row")


def example_recall(
    Y_true: Any, Y_pred: Any, *, threshold: float | None = None, both_empty: float | None = 1.0
) -> float:
    r"""Share of a row's true labels that are predicted, averaged over rows (MSE, equation 22).

    .. math:: \frac1n \sum_i \frac{|y_i \cap \hat y_i|}{|y_i|}

    Parameters, result and the cases of 0/0 as in :func:`example_precision`.
    """
    sizes = _by_row(*_checked(Y_true, Y_pred, threshold))
    return _average(sizes.both, sizes.true, sizes, both_empty, "row")


def example_f1(Y_true: Any, Y_pred: Any, *, threshold: float | None = None, both_empty: float | None = 1.0) -> float:
    r"""F1 of a row's true and predicted labels, averaged over rows (MSE, equation 23).

    .. math:: \frac1n \sum_i \frac{2\,|y_i \cap \hat y_i|}{|y_i| + |\hat y_i|}

    Parameters, result and the cases of 0/0 as in :func:`example_precision`.
    """
    sizes = _by_row(*_checked(Y_true, Y_pred, threshold))
    return _average(2 * sizes.both, sizes.true + sizes.predicted, sizes, both_empty, "row")


def example_accuracy(
    Y_true: Any, Y_pred: Any, *, threshold: float | None = None, both_empty: float | None = 1.0
) -> float:
    r"""Overlap (Jaccard index) of a row's true and predicted labels, averaged over rows (MSE, equation 24).

    .. math:: \frac1n \sum_i \frac{|y_i \cap \hat y_i|}{|y_i \cup \hat y_i|}

    Parameters, result and the cases of 0/0 as in :func:`example_precision`.
    """
    sizes = _by_row(*_checked(Y_true, Y_pred, threshold))
    return _average(sizes.both, sizes.true + sizes.predicted - sizes.both, sizes, both_empty, "row")


def micro_f1(Y_true: Any, Y_pred: Any, *, threshold: float | None = None, both_empty: float = 0.0) -> float:
    r"""F1 of all n·L entries taken together.

    .. math:: \frac{2 \sum_i |y_i \cap \hat y_i|}{\sum_i |y_i| + |\hat y_i|}

    ``both_empty`` is the value if there is neither a true nor a predicted label at all; 0 agrees with scikit-learn's
    ``zero_division=0``. The other parameters as in :func:`example_precision`.
    """
    sizes = _by_row(*_checked(Y_true, Y_pred, threshold))
    total = int(sizes.true.sum()) + int(sizes.predicted.sum())
    empty = check_real(both_empty, "both_empty", minimum=0.0, maximum=1.0)
    return 2 * int(sizes.both.sum()) / total if total else empty


def macro_f1(Y_true: Any, Y_pred: Any, *, threshold: float | None = None, both_empty: float | None = 0.0) -> float:
    r"""F1 of each label over the rows, averaged over all L labels, rare and frequent alike.

    .. math:: \frac1L \sum_l \frac{2\,|y^l \cap \hat y^l|}{|y^l| + |\hat y^l|}

    ``both_empty`` is the value of a label that is neither true nor predicted in any row: 0 by default, which agrees
    with scikit-learn's ``zero_division=0`` and keeps even a perfect prediction below 1 if such labels exist; 1 agrees
    with ``zero_division=1``; None leaves them out of the average. The other parameters as in :func:`example_precision`.
    """
    sizes = _by_label(*_checked(Y_true, Y_pred, threshold))
    return _average(2 * sizes.both, sizes.true + sizes.predicted, sizes, both_empty, "label")


def _average(parts: np.ndarray, wholes: np.ndarray, sizes: _Sizes, both_empty: float | None, unit: str) -> float:
    values = parts / np.maximum(wholes, 1)
    empty = (sizes.true == 0) & (sizes.predicted == 0)
    if both_empty is None:
        if empty.all():
            raise InvalidInputError(
                f"every {unit} is empty in both Y_true and Y_pred, so both_empty=None leaves nothing to average."
            )
        return float(values[~empty].mean())
    values[empty] = check_real(both_empty, "both_empty", minimum=0.0, maximum=1.0)
    return float(values.mean())


def _by_row(truth: sp.csr_matrix, predicted: sp.csr_matrix) -> _Sizes:
    common = sp.csr_matrix(truth.multiply(predicted))
    return _Sizes(*(np.diff(matrix.indptr).astype(np.int64) for matrix in (truth, predicted, common)))


def _by_label(truth: sp.csr_matrix, predicted: sp.csr_matrix) -> _Sizes:
    common = sp.csr_matrix(truth.multiply(predicted))
    labels = truth.shape[1]
    return _Sizes(*(np.bincount(m.indices, minlength=labels) for m in (truth, predicted, common)))


def _checked(Y_true: Any, Y_pred: Any, threshold: float | None) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    truth = check_true_labels(Y_true)
    predicted = _binary(Y_pred) if threshold is None else _cut(Y_pred, check_real(threshold, "threshold"))
    if predicted.shape != truth.shape:
        raise InvalidInputError(
            f"Y_pred has shape {shape_text(predicted.shape)} but Y_true has {shape_text(truth.shape)}; both "
            "must have one row per example and one column per label."
        )
    return truth, predicted


def _binary(Y_pred: Any) -> sp.csr_matrix:
    """0/1 predictions, checked."""
    if isinstance(Y_pred, tuple):
        raise InvalidInputError(
            "Y_pred is a pair (labels, scores); this metric compares sets of labels, so pass predict's 0/1 matrix."
        )
    values = checked_csr(Y_pred, "Y_pred").data if sp.issparse(Y_pred) and Y_pred.ndim == 2 else Y_pred
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
        wrong = (values != 0) & (values != 1)
        if wrong.any():
            raise InvalidInputError(
                f"Y_pred must hold only 0 and 1; found {values[wrong].flat[0]}. Cut scores into predictions "
                "first, or pass threshold= to do it here."
            )
    return check_labels(Y_pred, name="Y_pred")


def _cut(scores: Any, threshold: float) -> sp.csr_matrix:
    """1 if the score reaches ``threshold``, as canonical CSR of ones."""
    if isinstance(scores, tuple):
        raise InvalidInputError("Y_pred is a pair (labels, scores); threshold= needs an n×L matrix of scores.")
    sparse = sp.issparse(scores)
    try:
        matrix: Any = scores if sparse else np.asarray(scores)
    except ValueError as error:
        raise InvalidInputError(f"Y_pred must be a matrix with rows of equal length: {error!s:.200}") from None
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"Y_pred must be a two-dimensional matrix of numbers; found {matrix.ndim} dimension(s) of type "
            f"{matrix.dtype}."
        )
    matrix = canonical_csr(checked_csr(matrix, "Y_pred")).copy() if sparse else matrix
    values = matrix.data if sparse else matrix
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise InvalidInputError("Y_pred contains NaN, which no threshold can decide; replace or remove it first.")
    if not sparse:
        blocks = even_chunks(matrix.shape[0], max(1, _BLOCK_SCORES // max(1, matrix.shape[1])))
        cut = [sp.csr_matrix(matrix[start:stop] >= threshold, dtype=np.float32) for start, stop in blocks]
        return sp.vstack(cut, format="csr") if cut else sp.csr_matrix(matrix.shape, dtype=np.float32)
    matrix.data = (values >= threshold).astype(np.float32)
    matrix.eliminate_zeros()
    return matrix
