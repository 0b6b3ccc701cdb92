"""Every input that cannot be scored is one clear error, in all metrics alike."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseError
from tagwise.metrics import RANKINGS, SETS, average_auc, hamming_loss, inverse_propensity, ranking_report, top_k

Y = np.array([[1, 0, 0, 0], [0, 1, 1, 0]])
NAN = np.array([[0.1, np.nan, 0.2, 0.3], [0.1, 0.2, 0.3, 0.4]])
IDS = np.array([[0, 1], [1, 2]])


def rankings():
    """Every ranking metric, called with the truth, a prediction and k."""
    for metric in RANKINGS:
        weights = {"inverse_propensity": np.ones(4)} if metric.weighted else {}
        yield lambda Y, P, k, of=metric.function, weights=weights: of(Y, P, k=k, **weights)
    yield ranking_report


def refused(error, message, function, *arguments, **options):
    with pytest.raises(error, match=message) as caught:
        pytest.fail(f"{message}: {function(*arguments, **options)}")
    assert isinstance(caught.value, TagwiseError)


def test_bad_predictions():
    as_floats = "if these are scores, pass them as floats"
    for prediction, error, message in (
        (np.ones((3, 4)), InvalidInputError, "prediction has 3 rows but Y_true has 2"),
        (np.array([[0, 1]]), InvalidInputError, "prediction has 1 rows but Y_true has 2"),
        (sp.csr_matrix((3, 4)), InvalidInputError, "prediction has 3 rows but Y_true has 2"),
        (np.ones((2, 3)), InvalidInputError, "shape 2×3.*each of the 4 labels.*integer array"),
        (sp.csr_matrix((2, 5)), InvalidInputError, "shape 2×5.*each of the 4 labels"),
        (np.array([[0, 1], [4, 2]]), InvalidInputError, r"label 4 in row 1; ids are from 0 to 3"),
        (np.array([[0, -2], [1, 2]]), InvalidInputError, "holds label -2 in row 0; ids are from 0 to"),
        (np.array([[0, 2**64 - 1], [1, 2]], dtype=np.uint64), InvalidInputError, "in row 0"),
        (np.array([[0, 1], [2, 2]]), InvalidInputError, "lists label 2 more than once in row 1"),
        (np.array([[5, 0, 0, 0]] * 2), InvalidInputError, as_floats),
        (np.array([[1, 0, 0, 0]] * 2), InvalidInputError, as_floats),
        (NAN, InvalidInputError, "prediction contains NaN"),
        (sp.csr_matrix(NAN), InvalidInputError, "prediction contains NaN"),
        ((IDS, np.array([[np.nan, 1.0]] * 2)), InvalidInputError, r"prediction\[1\] contains NaN"),
        ((IDS, IDS, IDS), InvalidInputError, "tuple of 3"),
        ((IDS, np.ones((2, 3))), InvalidInputError, "labels of shape 2×2 with scores of shape 2×3"),
        ((np.ones((2, 2)), np.ones((2, 2))), InvalidTypeError, r"prediction\[0\] must hold label"),
        ((np.array([[9, 1], [1, 2]]), np.ones((2, 2))), InvalidInputError, r"\[0\] holds label 9"),
        ([IDS, IDS], InvalidInputError, "two dimensions; found 3.*tuple"),
        (Y.astype(bool), InvalidInputError, "boolean array, which ranks nothing"),
        (np.ones(4), InvalidInputError, "two dimensions; found 1"),
        ([[0, 1], [2]], InvalidInputError, "rows of equal length"),
        (np.array([["a"] * 4] * 2), InvalidTypeError, "found entries of type <U1"),
        (np.array([[None] * 4] * 2), InvalidTypeError, "found entries of type object"),
        (np.ones((2, 4)) * 1j, InvalidTypeError, "found entries of type complex128"),
        (sp.csr_matrix(np.ones((2, 4)) * 1j), InvalidTypeError, "real scores.*complex128"),
    ):
        for metric in rankings():
            refused(error, message, metric, Y, prediction, 1)


def test_bad_k():
    for k, error, message in (
        (0, InvalidInputError, "must be at least 1; found 0"),
        (-3, InvalidInputError, "must be at least 1; found -3"),
        ([1, 0], InvalidInputError, "must be at least 1; found 0"),
        ([], InvalidInputError, "is an empty sequence"),
        (2.0, InvalidTypeError, "whole number or a sequence of them; found 2.0"),
        ([1, 2.5], InvalidTypeError, "whole number; found 2.5"),
        ("12", InvalidTypeError, "whole number or a sequence of them; found '12'"),
        (None, InvalidTypeError, "whole number or a sequence of them; found None"),
        (True, InvalidTypeError, "whole number; found True"),
    ):
        for metric in rankings():
            refused(error, message, metric, Y, np.ones((2, 4)), k)
    for metric in rankings():
        refused(InvalidInputError, "prediction has 2 labels per row but k = 3", metric, Y, IDS, 3)
        refused(InvalidInputError, "prediction has 2 labels per row", metric, Y, (IDS, np.ones((2, 2))), [1, 3])


def test_bad_truth():
    scores = np.eye(4)[:2]
    others = [average_auc, *(metric.function for metric in SETS)]
    metrics = [*(lambda Y, P, of=of: of(Y, P, 1) for of in rankings()), *others]
    for truth, message in (
        (np.array([[0.5, 0, 0, 0]] * 2), "Y_true must hold only 0 and 1; found 0.5"),
        (np.array([[np.nan, 0, 0, 0]] * 2), "Y_true must hold only 0 and 1; found nan"),
        (np.zeros((0, 4)), "Y_true has no rows"),
        (np.zeros((2, 0)), "Y_true has no label columns"),
        (np.zeros(4), "Y_true must have two dimensions"),
        (None, "Y_true"),
    ):
        for metric in metrics:
            refused(InvalidInputError, message, metric, truth, scores)


def test_bad_weights():
    for weights, error, message in (
        (np.ones(2), InvalidInputError, r"shape \(2,\) but Y_true has 3 labels"),
        (np.ones((3, 1)), InvalidInputError, r"shape \(3, 1\)"),
        ([1, 0, 1], InvalidInputError, "above 0; found 0.0 for label 1"),
        ([1, 1, -2], InvalidInputError, "above 0; found -2.0 for label 2"),
        ([np.nan, 1, 1], InvalidInputError, "finite and above 0; found nan for label 0"),
        ([1, np.inf, 1], InvalidInputError, "finite and above 0; found inf for label 1"),
        (["a", "b", "c"], InvalidTypeError, "one number per label"),
        (inverse_propensity, InvalidTypeError, r"pass inverse_propensity\(Y_train\)"),
        (sp.csr_matrix(np.ones((1, 3))), InvalidTypeError, "one number per label"),
    ):
        for metric in RANKINGS:
            if metric.weighted:
                refused(error, message, metric.function, np.eye(3), np.eye(3), weights)


def test_top_k_alone():
    huge = np.array([[2**64 - 1]], dtype=np.uint64)
    for error, message, *arguments in (
        (InvalidInputError, "k must be at least 1", IDS, 0),
        (InvalidTypeError, "k must be a whole number", IDS, [1]),
        (InvalidInputError, "2 labels per row but k = 5", IDS, 5),
        (InvalidInputError, "in row 0", huge, 1),
    ):
        refused(error, message, top_k, *arguments)
    refused(InvalidInputError, "holds label 2 in row 1", top_k, IDS, 1, n_labels=2)
    refused(InvalidInputError, "n_labels must be at least 1", top_k, IDS, 1, n_labels=0)


def test_bad_sets():
    for prediction, message in (
        (np.array([[0.3, 0.0], [1.0, 0.0]]), "only 0 and 1; found 0.3.*threshold="),
        (sp.csr_matrix([[0, 2], [0, 0]]), "only 0 and 1; found 2.*threshold="),
        (np.array([[np.nan, 0.0], [1.0, 0.0]]), "only 0 and 1; found nan"),
        ([[0, 3], [0, 1]], "Y_pred must hold only 0 and 1; found 3"),
        (np.eye(3), "Y_pred has shape 3×3 but Y_true has 2×2"),
        (sp.csr_matrix((2, 3)), "Y_pred has shape 2×3"),
        ((np.array([[0], [1]]), np.ones((2, 1))), "pair"),
        (np.array([1, 0]), "two dimensions"),
    ):
        for metric in SETS:
            refused(InvalidInputError, message, metric.function, np.eye(2), prediction)
    for scores, message in (
        (np.array([[np.nan, 0.0], [1.0, 0.0]]), "contains NaN"),
        (sp.csr_matrix([[np.nan, 0.0], [1.0, 0.0]]), "contains NaN"),
        (np.array([0.1, 0.2]), r"two-dimensional.*1 dimension"),
        (np.array([["a", "b"], ["c", "d"]]), "matrix of numbers"),
        (sp.csr_matrix(np.eye(2) * 1j), "matrix of numbers"),
        ((np.eye(2), np.eye(2)), "pair"),
        (np.ones((0, 2)), "shape 0×2"),
        ([[1], [1, 2]], "Y_pred must be a matrix with rows of equal length"),
    ):
        refused(InvalidInputError, message, hamming_loss, np.eye(2), scores, threshold=0.5)
    both_empty = {metric.name: metric.function for metric in SETS}
    refused(InvalidInputError, "finite at least 0", both_empty["example-F1"], np.eye(2), np.eye(2), both_empty=2.0)
    refused(InvalidInputError, "both_empty", both_empty["micro-F1"], np.eye(2), np.eye(2), both_empty=-1.0)
    refused(InvalidTypeError, "both_empty", both_empty["micro-F1"], np.eye(2), np.eye(2), both_empty=None)
    refused(InvalidInputError, "threshold", hamming_loss, np.eye(2), np.eye(2), threshold=np.nan)


def test_bad_scores_for_the_area():
    def area(block):
        return average_auc(np.eye(3), lambda start, stop: block)

    for prediction in (np.array([[0, 1, 2]] * 3), (np.array([[0, 1, 2]] * 3), np.ones((3, 3))), [[0, 1, 2]] * 3):
        refused(InvalidInputError, "prediction holds top-k label ids, but a score", average_auc, np.eye(3), prediction)
    for block, message in (
        (np.ones((2, 3)), r"scores\(0, 3\) has 2 rows but Y_true has 3"),
        (np.ones((3, 2)), r"scores\(0, 3\) has shape 3×2"),
        (np.full((3, 3), np.nan), r"scores\(0, 3\) contains NaN"),
        (sp.csr_matrix(np.full((3, 3), np.nan)), r"scores\(0, 3\) contains NaN"),
        (np.ones((3, 3), dtype=int), r"scores\(0, 3\) holds top-k label ids"),
    ):
        refused(InvalidInputError, message, area, block)
    for undefined in (np.zeros((2, 3)), np.ones((2, 3))):
        refused(InvalidInputError, "no row with both a true and a false", average_auc, undefined, np.ones((2, 3)))
    refused(InvalidInputError, "prediction contains NaN", average_auc, np.eye(2), np.array([[np.nan, 1], [0, 1]]))
    refused(InvalidInputError, "block_rows must be at least 1", average_auc, np.eye(2), np.eye(2), block_rows=0)
