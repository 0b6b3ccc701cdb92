import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import roc_auc_score

from tagwise.metrics import auc, average_auc


def test_agrees_with_scikit_learn_row_by_row(problem, reference):
    Y, S, _ = problem
    mixed = Y.any(axis=1) & (Y == 0).any(axis=1)
    areas = [roc_auc_score(y, s) for y, s in zip(Y[mixed], S[mixed])]
    assert average_auc(Y, S) == pytest.approx(np.mean(areas), rel=1e-13)
    assert average_auc(Y, S) == pytest.approx(reference.auc(Y, S), rel=1e-13)


def test_unstored_scores_tie_below_all_stored_ones(problem, reference):
    Y, S, _ = problem
    stored = np.random.default_rng(2).random(S.shape) < 0.4
    stored[:2] = [[False], [True]]
    rows, labels = np.nonzero(stored)
    csr = sp.csr_matrix((S[rows, labels], (rows, labels)), shape=S.shape)
    expected = reference.auc(Y, np.where(stored, S, -1e9))
    assert average_auc(Y, csr) == pytest.approx(expected, rel=1e-13)
    assert average_auc(Y, sp.coo_array(csr), block_rows=7) == average_auc(Y, csr)
    minus_infinity = sp.csr_matrix((np.array([-np.inf]), np.array([1]), np.array([0, 1])), shape=(1, 3))
    assert average_auc([[0, 1, 0]], minus_infinity) == 1.0
    assert average_auc(np.eye(3), sp.csr_matrix((3, 3))) == average_auc(np.eye(3), np.zeros((3, 3))) == 0.5


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


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 6), st.integers(2, 9))
def test_equals_all_pairs_with_any_ties(reference, data, n, L):
    Y = data.draw(hnp.arrays(np.int8, (n, L), elements=st.integers(0, 1)))
    S = data.draw(hnp.arrays(np.float32, (n, L), elements=st.integers(-2, 2)))
    Y[0, :2] = [0, 1]
    dense, sparse = average_auc(Y, S), average_auc(Y, sp.csr_matrix(S + 3))
    assert dense == sparse == pytest.approx(reference.auc(Y, S), abs=1e-12)
