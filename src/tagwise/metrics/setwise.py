"""Metrics of 0/1 predictions: Hamming loss, the example-based four, micro and macro F1."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.metrics.ranking import Metric, check_true_labels
from tagwise.parallel import even_chunks
from tagwise.validation import canonical_csr, check_labels, check_real, checked_csr, shape_text

__all__ = [
    "SETS",
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
    sizes = _sizes(truth, predicted)
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
    sizes = _sizes(*_checked(Y_true, Y_pred, threshold))
    return _average(sizes.both, sizes.predicted, sizes, both_empty, "row")


def example_recall(
    Y_true: Any, Y_pred: Any, *, threshold: float | None = None, both_empty: float | None = 1.0
) -> float:
    r"""Share of a row's true labels that are predicted, averaged over rows (MSE, equation 22).

    .. math:: \frac1n \sum_i \frac{|y_i \cap \hat y_i|}{|y_i|}

    Parameters, result and the cases of 0/0 as in :func:`example_precision`.
    """
    sizes = _sizes(*_checked(Y_true, Y_pred, threshold))
    return _average(sizes.both, sizes.true, sizes, both_empty, "row")


def example_f1(Y_true: Any, Y_pred: Any, *, threshold: float | None = None, both_empty: float | None = 1.0) -> float:
    r"""F1 of a row's true and predicted labels, averaged over rows (MSE, equation 23).

    .. math:: \frac1n \sum_i \frac{2\,|y_i \cap \hat y_i|}{|y_i| + |\hat y_i|}

    Parameters, result and the cases of 0/0 as in :func:`example_precision`.
    """
    sizes = _sizes(*_checked(Y_true, Y_pred, threshold))
    return _average(2 * sizes.both, sizes.true + sizes.predicted, sizes, both_empty, "row")


def example_accuracy(
    Y_true: Any, Y_pred: Any, *, threshold: float | None = None, both_empty: float | None = 1.0
) -> float:
    r"""Overlap (Jaccard index) of a row's true and predicted labels, averaged over rows (MSE, equation 24).

    .. math:: \frac1n \sum_i \frac{|y_i \cap \hat y_i|}{|y_i \cup \hat y_i|}

    Parameters, result and the cases of 0/0 as in :func:`example_precision`.
    """
    sizes = _sizes(*_checked(Y_true, Y_pred, threshold))
    return _average(sizes.both, sizes.true + sizes.predicted - sizes.both, sizes, both_empty, "row")


def micro_f1(Y_true: Any, Y_pred: Any, *, threshold: float | None = None, both_empty: float = 0.0) -> float:
    r"""F1 of all n·L entries taken together.

    .. math:: \frac{2 \sum_i |y_i \cap \hat y_i|}{\sum_i |y_i| + |\hat y_i|}

    ``both_empty`` is the value if there is neither a true nor a predicted label at all; 0 agrees with scikit-learn's
    ``zero_division=0``. The other parameters as in :func:`example_precision`.
    """
    sizes = _sizes(*_checked(Y_true, Y_pred, threshold))
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
    sizes = _sizes(*_checked(Y_true, Y_pred, threshold), axis=0)
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


def _sizes(truth: sp.csr_matrix, predicted: sp.csr_matrix, *, axis: int = 1) -> _Sizes:
    both = sp.csr_matrix(truth.multiply(predicted))
    return _Sizes(*(np.asarray(matrix.getnnz(axis=axis), dtype=np.int64) for matrix in (truth, predicted, both)))


def _checked(Y_true: Any, Y_pred: Any, threshold: float | None) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    truth = check_true_labels(Y_true)
    if isinstance(Y_pred, tuple):
        raise InvalidInputError(
            "Y_pred is a pair (labels, scores); this metric compares sets of labels: pass predict's 0/1 matrix, or an "
            "n×L matrix of scores with threshold=."
        )
    predicted = _binary(Y_pred) if threshold is None else _cut(Y_pred, check_real(threshold, "threshold"))
    if predicted.shape != truth.shape:
        raise InvalidInputError(
            f"Y_pred has shape {shape_text(predicted.shape)} but Y_true has {shape_text(truth.shape)}; both "
            "must have one row per example and one column per label."
        )
    return truth, predicted


def _binary(Y_pred: Any) -> sp.csr_matrix:
    """0/1 predictions, checked."""
    try:
        return check_labels(Y_pred, name="Y_pred")
    except InvalidInputError as error:
        raise InvalidInputError(f"{error} Scores become predictions by threshold=.") from None


def _cut(Y_pred: Any, threshold: float) -> sp.csr_matrix:
    """1 if the score reaches ``threshold``, as canonical CSR of ones."""
    try:
        scores: Any = checked_csr(Y_pred, "Y_pred") if sp.issparse(Y_pred) else np.asarray(Y_pred)
    except ValueError as error:
        raise InvalidInputError(f"Y_pred must be a matrix with rows of equal length: {error!s:.200}") from None
    if scores.ndim != 2 or scores.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"Y_pred must be a two-dimensional matrix of numbers; found {scores.ndim} dimension(s) of type "
            f"{scores.dtype}."
        )
    if np.isnan(scores.data if sp.issparse(scores) else scores).any():
        raise InvalidInputError("Y_pred contains NaN, which no threshold can decide; replace or remove it first.")
    if sp.issparse(scores):
        cut = canonical_csr(scores).copy()
        cut.data = (cut.data >= threshold).astype(np.float32)
        cut.eliminate_zeros()
        return cut
    blocks = even_chunks(scores.shape[0], max(1, _BLOCK_SCORES // max(1, scores.shape[1])))
    parts = [sp.csr_matrix(scores[start:stop] >= threshold, dtype=np.float32) for start, stop in blocks]
    return sp.vstack(parts, format="csr") if parts else sp.csr_matrix(scores.shape, dtype=np.float32)


SETS: tuple[Metric, ...] = (
    Metric("micro-F1", micro_f1, "over all decisions together"),
    Metric("macro-F1", macro_f1, "averaged over tags, rare and frequent ones alike"),
    Metric("example-F1", example_f1, "averaged over rows"),
    Metric("example-precision", example_precision, "share of a row's decided tags that are right", shown=False),
    Metric("example-recall", example_recall, "share of a row's tags that are decided for", shown=False),
    Metric("example-accuracy", example_accuracy, "overlap of a row's tags and decided tags", shown=False),
    Metric(
        "Hamming loss",
        hamming_loss,
        "share of all decisions that are wrong",
        higher_is_better=False,
        shown=False,
    ),
)
"""All metrics of decisions."""
