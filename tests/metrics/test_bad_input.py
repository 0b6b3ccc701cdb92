"""Every input that cannot be scored is one clear error, in all ranking metrics alike."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseError
from tagwise.metrics import (
    average_auc,
    coverage_at_k,
    hamming_loss,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    ranking_report,
    recall_at_k,
    top_k,
)


def _psp(Y, prediction, k=1):
    return psp_at_k(Y, prediction, np.ones(4), k)


def _psndcg(Y, prediction, k=1):
    return psndcg_at_k(Y, prediction, np.ones(4), k)


METRICS = [precision_at_k, recall_at_k, ndcg_at_k, coverage_at_k, _psp, _psndcg, ranking_report]
Y = np.array([[1, 0, 0, 0], [0, 1, 1, 0]])
NAN = np.array([[0.1, np.nan, 0.2, 0.3], [0.1, 0.2, 0.3, 0.4]])
IDS = np.array([[0, 1], [1, 2]])

BAD_PREDICTIONS = {
    "rows of scores": (np.ones((3, 4)), InvalidInputError, "prediction has 3 rows but Y_true has 2"),
    "rows of ids": (np.array([[0, 1]]), InvalidInputError, "prediction has 1 rows but Y_true has 2"),
    "rows of csr": (sp.csr_matrix((3, 4)), InvalidInputError, "prediction has 3 rows but Y_true has 2"),
    "columns of scores": (
        np.ones((2, 3)),
        InvalidInputError,
        "shape 2×3.*each of the 4 labels.*integer array",
    ),
    "columns of csr": (sp.csr_matrix((2, 5)), InvalidInputError, "shape 2×5.*each of the 4 labels"),
    "id too large": (
        np.array([[0, 1], [4, 2]]),
        InvalidInputError,
        r"label 4 in row 1.*4 labels \(ids 0 to 3\)",
    ),
    "id too small": (
        np.array([[0, -2], [1, 2]]),
        InvalidInputError,
        "holds -2 in row 0; label ids start at 0",
    ),
    "id beyond 63 bits": (np.array([[0, 2**64 - 1], [1, 2]], dtype=np.uint64), InvalidInputError, "in row 0"),
    "id twice": (np.array([[0, 1], [2, 2]]), InvalidInputError, "lists label 2 more than once in row 1"),
    "integer scores": (
        np.array([[5, 0, 0, 0]] * 2),
        InvalidInputError,
        "if these are scores, pass them as floats",
    ),
    "0/1 as ids": (
        np.array([[1, 0, 0, 0]] * 2),
        InvalidInputError,
        "if these are scores, pass them as floats",
    ),
    "nan in dense": (NAN, InvalidInputError, "prediction contains NaN"),
    "nan in csr": (sp.csr_matrix(NAN), InvalidInputError, "prediction contains NaN"),
    "nan in pair": ((IDS, np.array([[np.nan, 1.0]] * 2)), InvalidInputError, r"prediction\[1\] contains NaN"),
    "pair of three": ((IDS, IDS, IDS), InvalidInputError, "tuple of 3"),
    "pair of shapes": (
        (IDS, np.ones((2, 3))),
        InvalidInputError,
        "labels of shape 2×2 with scores of shape 2×3",
    ),
    "pair with float ids": (
        (np.ones((2, 2)), np.ones((2, 2))),
        InvalidTypeError,
        r"prediction\[0\] must hold label",
    ),
    "pair with bad id": (
        (np.array([[9, 1], [1, 2]]), np.ones((2, 2))),
        InvalidInputError,
        r"\[0\] holds label 9",
    ),
    "pair as list": ([IDS, IDS], InvalidInputError, "two dimensions; found 3.*tuple"),
    "booleans": (Y.astype(bool), InvalidInputError, "boolean array, which ranks nothing"),
    "one dimension": (np.ones(4), InvalidInputError, "two dimensions; found 1"),
    "ragged": ([[0, 1], [2]], InvalidInputError, "rows of equal length"),
    "text": (np.array([["a"] * 4] * 2), InvalidTypeError, "found entries of type <U1"),
    "objects": (np.array([[None] * 4] * 2), InvalidTypeError, "found entries of type object"),
    "complex": (np.ones((2, 4)) * 1j, InvalidTypeError, "found entries of type complex128"),
    "complex csr": (sp.csr_matrix(np.ones((2, 4)) * 1j), InvalidTypeError, "real scores.*complex128"),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("case", BAD_PREDICTIONS)
def test_bad_prediction(metric, case):
    prediction, error, message = BAD_PREDICTIONS[case]
    with pytest.raises(error, match=message) as caught:
        metric(Y, prediction, 1)
    assert isinstance(caught.value, TagwiseError)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("k", "error", "message"),
    [
        (0, InvalidInputError, "must be at least 1; found 0"),
        (-3, InvalidInputError, "must be at least 1; found -3"),
        ([1, 0], InvalidInputError, "must be at least 1; found 0"),
        ([], InvalidInputError, "is an empty sequence"),
        (2.0, InvalidTypeError, "whole number or a sequence of them; found 2.0"),
        ([1, 2.5], InvalidTypeError, "whole number; found 2.5"),
        ("12", InvalidTypeError, "whole number or a sequence of them; found '12'"),
        (None, InvalidTypeError, "whole number or a sequence of them; found None"),
        (True, InvalidTypeError, "whole number; found True"),
    ],
)
def test_bad_k(metric, k, error, message):
    with pytest.raises(error, match=message):
        metric(Y, np.ones((2, 4)), k)


@pytest.mark.parametrize("metric", METRICS)
def test_too_few_labels_for_k(metric):
    with pytest.raises(InvalidInputError, match="prediction has 2 labels per row but k = 3"):
        metric(Y, IDS, 3)
    with pytest.raises(InvalidInputError, match="prediction has 2 labels per row"):
        metric(Y, (IDS, np.ones((2, 2))), [1, 3])


@pytest.mark.parametrize("metric", [*METRICS, average_auc, hamming_loss])
@pytest.mark.parametrize(
    ("truth", "message"),
    [
        (np.array([[0.5, 0, 0, 0]] * 2), "Y_true must hold only 0 and 1; found 0.5"),
        (np.array([[np.nan, 0, 0, 0]] * 2), "Y_true must hold only 0 and 1; found nan"),
        (np.zeros((0, 4)), "Y_true has no rows"),
        (np.zeros((2, 0)), "Y_true has no label columns"),
        (np.zeros(4), "Y_true must have two dimensions"),
        (None, "Y_true"),
    ],
)
def test_bad_truth(metric, truth, message):
    with pytest.raises(InvalidInputError, match=message):
        metric(truth, np.eye(4)[:2])


def test_top_k_alone():
    with pytest.raises(InvalidInputError, match="k must be at least 1"):
        top_k(IDS, 0)
    with pytest.raises(InvalidTypeError, match="k must be a whole number"):
        top_k(IDS, [1])
    with pytest.raises(InvalidInputError, match="2 labels per row but k = 5"):
        top_k(IDS, 5)
    with pytest.raises(InvalidInputError, match="holds label 2 in row 1"):
        top_k(IDS, 1, n_labels=2)
    with pytest.raises(InvalidInputError, match="n_labels must be at least 1"):
        top_k(IDS, 1, n_labels=0)
    with pytest.raises(InvalidInputError, match="in row 0"):
        top_k(np.array([[2**64 - 1]], dtype=np.uint64), 1)


def test_scores_of_unequal_rows_are_named():
    with pytest.raises(InvalidInputError, match="Y_pred must be a matrix with rows of equal length"):
        hamming_loss(np.eye(2), [[1], [1, 2]], threshold=0.5)
