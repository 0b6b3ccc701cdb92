import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import label_ranking_loss, roc_auc_score

from tagwise.exceptions import InvalidInputError
from tagwise.metrics import auc, average_auc


def _mixed_rows(Y):
    return Y.any(axis=1) & (Y == 0).any(axis=1)


def test_agrees_with_scikit_learn_row_by_row(problem, reference):
    Y, S, _ = problem
    mixed = _mixed_rows(Y)
    areas = [roc_auc_score(y, s) for y, s in zip(Y[mixed], S[mixed])]
    assert average_auc(Y, S) == pytest.approx(np.mean(areas), rel=1e-13)
    assert average_auc(Y, S) == pytest.approx(reference.auc(Y, S), rel=1e-13)


def test_is_one_minus_label_ranking_loss_without_ties():
    rng = np.random.default_rng(0)
    Y, S = rng.random((50, 12)) < 0.3, rng.random((50, 12))
    mixed = _mixed_rows(Y)
    assert average_auc(Y, S) == pytest.approx(1 - label_ranking_loss(Y[mixed], S[mixed]), rel=1e-13)


def test_unstored_scores_tie_below_all_stored_ones(problem, reference):
    Y, S, _ = problem
    stored = np.random.default_rng(2).random(S.shape) < 0.4
    stored[:2] = [[False], [True]]
    rows, labels = np.nonzero(stored)
    csr = sp.csr_matrix((S[rows, labels], (rows, labels)), shape=S.shape)
    expected = reference.auc(Y, np.where(stored, S, -1e9))
    assert average_auc(Y, csr) == pytest.approx(expected, rel=1e-13)
    assert average_auc(Y, sp.coo_array(csr), block_rows=7) == average_auc(Y, csr)


def test_stored_minus_infinity_is_above_unstored():
    csr = sp.csr_matrix((np.array([-np.inf]), np.array([1]), np.array([0, 1])), shape=(1, 3))
    assert average_auc([[0, 1, 0]], csr) == 1.0


def test_nothing_stored_is_one_large_tie():
    assert average_auc(np.eye(3), sp.csr_matrix((3, 3))) == 0.5
    assert average_auc(np.eye(3), np.zeros((3, 3))) == 0.5


@pytest.mark.parametrize("rows", [1, 3, 60, 1000])
def test_blocks_and_functions_give_the_same_value(problem, rows):
    Y, S, _ = problem
    calls = []

    def scores(start, stop):
        calls.append((start, stop))
        return S[start:stop] if start % 2 else sp.csr_array(S - 100)[start:stop]

    expected = average_auc(Y, S)
    assert average_auc(Y, S, block_rows=rows) == expected
    assert average_auc(sp.csr_matrix(Y), scores, block_rows=rows) == expected
    assert calls == [(start, min(start + rows, 60)) for start in range(0, 60, rows)]


def test_default_blocks_hold_a_bounded_number_of_scores(problem, monkeypatch):
    Y, S, _ = problem
    monkeypatch.setattr(auc, "_BLOCK_ELEMENTS", 4 * 17)
    sizes = []
    value = average_auc(Y, lambda start, stop: sizes.append(stop - start) or S[start:stop])
    assert value == average_auc(Y, S)
    assert max(sizes) == 4


def test_rows_of_one_kind_are_left_out():
    Y, S = np.array([[1, 0], [0, 0], [1, 1]]), np.array([[0.2, 0.1], [0.1, 0.2], [0.3, 0.4]])
    assert average_auc(Y, S) == 1.0


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 6), st.integers(2, 9))
def test_equals_all_pairs_with_any_ties(reference, data, n, L):
    Y = data.draw(hnp.arrays(np.int8, (n, L), elements=st.integers(0, 1)))
    S = data.draw(hnp.arrays(np.float32, (n, L), elements=st.integers(-2, 2)))
    Y[0, :2] = [0, 1]
    dense, sparse = average_auc(Y, S), average_auc(Y, sp.csr_matrix(S + 3))
    assert dense == sparse == pytest.approx(reference.auc(Y, S), abs=1e-12)


@pytest.mark.parametrize(
    "prediction", [np.array([[0, 1, 2]] * 3), (np.array([[0, 1, 2]] * 3), np.ones((3, 3))), [[0, 1, 2]] * 3]
)
def test_top_k_is_refused(prediction):
    with pytest.raises(InvalidInputError, match="prediction holds top-k label ids, but a score for every label"):
        average_auc(np.eye(3), prediction)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (np.ones((2, 3)), r"scores\(0, 3\) has 2 rows but Y_true has 3"),
        (np.ones((3, 2)), r"scores\(0, 3\) has shape 3×2"),
        (np.full((3, 3), np.nan), r"scores\(0, 3\) contains NaN"),
        (sp.csr_matrix(np.full((3, 3), np.nan)), r"scores\(0, 3\) contains NaN"),
        (np.ones((3, 3), dtype=int), r"scores\(0, 3\) holds top-k label ids"),
    ],
)
def test_bad_blocks(block, message):
    truth = np.eye(3)
    with pytest.raises(InvalidInputError, match=message):
        average_auc(truth, lambda start, stop: block)


@pytest.mark.parametrize("Y", [np.zeros((2, 3)), np.ones((2, 3))])
def test_undefined_without_a_mixed_row(Y):
    with pytest.raises(InvalidInputError, match="no row with both a true and a false label"):
        average_auc(Y, np.ones((2, 3)))


def test_dense_nan_and_bad_blocks_size():
    with pytest.raises(InvalidInputError, match="prediction contains NaN"):
        average_auc(np.eye(2), np.array([[np.nan, 1.0], [0.0, 1.0]]))
    with pytest.raises(InvalidInputError, match="block_rows must be at least 1"):
        average_auc(np.eye(2), np.eye(2), block_rows=0)
