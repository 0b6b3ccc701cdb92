import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.metrics as sk

from tagwise.exceptions import InvalidInputError
from tagwise.metrics import (
    SETS,
    example_accuracy,
    example_f1,
    example_precision,
    example_recall,
    hamming_loss,
    macro_f1,
    micro_f1,
)

EXAMPLE_BASED = {
    example_precision: sk.precision_score,
    example_recall: sk.recall_score,
    example_f1: sk.f1_score,
    example_accuracy: sk.jaccard_score,
}
ALL = [metric.function for metric in SETS]


@pytest.fixture
def sets():
    """Truth and prediction with rows and labels that are empty in one, the other, or both."""
    rng = np.random.default_rng(5)
    Y, P = (rng.random((50, 13)) < 0.2).astype(int), (rng.random((50, 13)) < 0.25).astype(int)
    Y[:4] = P[2:6] = 0
    Y[:, 1] = P[:, 1] = P[:, 2] = Y[:, 3] = 0
    return Y, P


def test_metrics_agree_with_scikit_learn(sets):
    Y, P = sets
    for metric, theirs in EXAMPLE_BASED.items():
        assert metric(Y, P, both_empty=0.0) == pytest.approx(
            theirs(Y, P, average="samples", zero_division=0), rel=1e-13
        )
    for both_empty, zero_division in ((0.0, 0), (1.0, 1), (None, np.nan)):
        theirs = sk.f1_score(Y, P, average="macro", zero_division=zero_division)
        assert macro_f1(Y, P, both_empty=both_empty) == pytest.approx(theirs, rel=1e-13)
    assert micro_f1(Y, P) == pytest.approx(sk.f1_score(Y, P, average="micro", zero_division=0), rel=1e-14)
    assert hamming_loss(Y, P) == pytest.approx(sk.hamming_loss(Y, P), rel=1e-14)
    assert (hamming_loss(Y, Y), hamming_loss(Y, 1 - Y)) == (0.0, 1.0)
    nothing = np.zeros((2, 2))
    assert (micro_f1(nothing, nothing), micro_f1(nothing, nothing, both_empty=1.0)) == (0.0, 1.0)


@pytest.mark.parametrize("metric", EXAMPLE_BASED)
def test_empty_rows(metric):
    nothing, one = np.array([[0, 0]]), np.array([[1, 0]])
    assert metric(nothing, nothing) == 1.0
    assert metric(nothing, nothing, both_empty=0.25) == 0.25
    assert metric(nothing, one) == metric(one, nothing) == 0.0
    mixed_truth, mixed = np.array([[0, 0], [1, 0]]), np.array([[0, 0], [0, 1]])
    assert metric(mixed_truth, mixed) == 0.5
    assert metric(mixed_truth, mixed, both_empty=None) == 0.0
    with pytest.raises(InvalidInputError, match="every row is empty in both Y_true and Y_pred"):
        metric(nothing, nothing, both_empty=None)


def test_equations_of_the_paper_by_hand():
    Y, P = np.array([[1, 1, 0, 0], [0, 0, 1, 0]]), np.array([[1, 0, 1, 1], [0, 0, 1, 0]])
    assert example_precision(Y, P) == pytest.approx((1 / 3 + 1) / 2)
    assert example_recall(Y, P) == pytest.approx((1 / 2 + 1) / 2)
    assert example_f1(Y, P) == pytest.approx((2 / 5 + 1) / 2)
    assert example_accuracy(Y, P) == pytest.approx((1 / 4 + 1) / 2)
    assert hamming_loss(Y, P) == 3 / 8


def test_macro_f1_of_a_perfect_prediction_and_absent_labels(sets):
    Y, _ = sets
    assert macro_f1(Y, Y) == pytest.approx(11 / 13)
    assert macro_f1(Y, Y, both_empty=1.0) == macro_f1(Y, Y, both_empty=None) == 1.0
    with pytest.raises(InvalidInputError, match="every label is empty in both"):
        macro_f1(np.zeros((2, 2)), np.zeros((2, 2)), both_empty=None)


@pytest.mark.parametrize("metric", ALL)
def test_forms_agree(sets, metric):
    Y, P = sets
    expected = metric(Y, P)
    assert isinstance(expected, float)
    with_zeros = sp.csr_matrix(np.ones_like(P))
    with_zeros.data = P.ravel()
    for prediction in (
        sp.csr_matrix(P),
        sp.csc_array(P),
        sp.dok_matrix(P),
        P.astype(bool),
        P.tolist(),
        with_zeros,
    ):
        assert metric(sp.csr_array(Y), prediction) == expected


@pytest.mark.parametrize("metric", ALL)
def test_threshold_cuts_scores(sets, metric):
    Y, _ = sets
    S = np.random.default_rng(0).choice([-0.5, 0.25, 0.5, 0.75], Y.shape)
    expected = metric(Y, S >= 0.5)
    for scores in (S, S.tolist(), S.astype(np.float32), sp.csr_matrix(S), sp.coo_array(S)):
        assert metric(Y, scores, threshold=0.5) == expected
    below_zero = metric(Y, sp.csr_matrix(np.where(S > 0, S, 0.0)), threshold=-1.0)
    assert below_zero == metric(Y, S > 0)


def test_nothing_warns_on_empty_sets():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for metric in ALL:
            metric(np.zeros((3, 2)), np.zeros((3, 2)))
