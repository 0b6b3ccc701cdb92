import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tagwise.metrics import top_k, topk


@pytest.mark.parametrize("k", [1, 2, 5, 17])
def test_csr_equals_reference_on_stored_entries(problem, reference, k):
    _, S, _ = problem
    stored = np.random.default_rng(1).random(S.shape) < 0.4
    stored[0] = False
    rows, labels = np.nonzero(stored)
    csr = sp.csr_matrix((S[rows, labels], (rows, labels)), shape=S.shape)
    expected = []
    for row, keep in zip(S, stored):
        ranked = [label for label in reference.top(np.where(keep, row, -np.inf), k) if keep[label]]
        expected.append(ranked + [-1] * (k - len(ranked)))
    assert top_k(csr, k).tolist() == expected


def test_infinite_scores_rank_at_the_ends():
    S = np.array([[-np.inf, np.inf, 0.0]])
    assert top_k(S, 3).tolist() == [[1, 2, 0]]


def test_pair_is_ranked_by_its_scores_and_ids_keep_their_order():
    labels = np.array([[4, 2, 9, -1]])
    scores = np.array([[0.5, 0.5, 0.7, np.nan]])
    assert top_k((labels, scores), 4).tolist() == [[9, 2, 4, -1]]
    assert top_k(labels, 4).tolist() == [[4, 2, 9, -1]]


def test_pair_with_minus_infinity_stays_before_empty_places():
    labels, scores = np.array([[-1, 3, 1]]), np.array([[np.inf, -np.inf, -np.inf]])
    assert top_k((labels, scores), 3).tolist() == [[1, 3, -1]]


def test_hole_in_an_id_array_keeps_its_place():
    assert top_k(np.array([[-1, 3]]), 2).tolist() == [[-1, 3]]
    assert top_k(np.array([[1, 0]]), 4, n_labels=2).tolist() == [[1, 0, -1, -1]]


def test_types_and_formats():
    for dtype in (np.float16, np.float32, np.float64):
        assert top_k(np.array([[1, 3, 2], [3, 3, 1]], dtype=dtype), 2).tolist() == [[1, 2], [0, 1]]
    for dtype in (np.int8, np.uint16, np.int32, np.uint64):
        labels = top_k(np.array([[3, 1]], dtype=dtype), 2)
        assert (labels.dtype, labels.tolist()) == (np.int64, [[3, 1]])
    S = np.array([[0.0, 0.3, 0.4], [0.9, 0.0, 0.0]])
    for form in (sp.csr_matrix, sp.csr_array, sp.coo_matrix, sp.csc_array, sp.lil_matrix):
        assert top_k(form(S), 2).tolist() == [[2, 1], [0, -1]]


def test_unsorted_int64_csr_is_ranked_and_left_alone():
    csr = sp.csr_matrix((1, 6))
    csr.data = np.array([1.0, 1.0, 2.0])
    csr.indices = np.array([5, 0, 3], dtype=np.int64)
    csr.indptr = np.array([0, 3], dtype=np.int64)
    csr.has_sorted_indices = False
    assert top_k(csr, 3).tolist() == [[3, 0, 5]]
    assert csr.indices.tolist() == [5, 0, 3]


def test_read_only_input_is_enough(problem):
    _, S, _ = problem
    S = S + 100.0
    S.flags.writeable = False
    csr = sp.csr_matrix(S)
    for array in (csr.data, csr.indices, csr.indptr):
        array.flags.writeable = False
    assert np.array_equal(top_k(S, 3), top_k(csr, 3))


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_blocks_do_not_matter(problem, monkeypatch, rows):
    _, S, _ = problem
    csr = sp.csr_matrix(np.where(np.abs(S) > 0.5, S, 0.0))
    whole = top_k(S, 4), top_k(csr, 4)
    monkeypatch.setattr(topk, "_BLOCK_ELEMENTS", rows * S.shape[1])
    monkeypatch.setattr(topk, "_BLOCK_ROWS", rows)
    assert np.array_equal(top_k(S, 4), whole[0])
    assert np.array_equal(top_k(csr, 4), whole[1])


def test_a_row_longer_than_a_block(monkeypatch):
    monkeypatch.setattr(topk, "_BLOCK_ELEMENTS", 2)
    csr = sp.csr_matrix(np.array([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0], [4.0, 3.0, 2.0, 1.0]]))
    assert top_k(csr, 2).tolist() == [[3, 2], [-1, -1], [0, 1]]


def test_more_rows_than_a_block_holds():
    n = (1 << 16) + 5
    rows = np.arange(n)
    csr = sp.csr_matrix((np.ones(n), (rows, rows % 7)), shape=(n, 7))
    assert np.array_equal(top_k(csr, 1)[:, 0], rows % 7)


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.float32, st.tuples(st.integers(0, 6), st.integers(1, 9)), elements=st.integers(-3, 3)),
    st.integers(1, 11),
)
def test_forms_agree_whatever_the_ties(reference, S, k):
    csr = sp.csr_matrix(np.ones_like(S))
    csr.data = S.ravel()
    expected = [ranked + [-1] * (k - len(ranked)) for ranked in (reference.top(row, k) for row in S)]
    dense = top_k(S, k)
    assert dense.tolist() == expected
    assert np.array_equal(top_k(csr, k), dense)
    filled = dense != -1
    scores = np.where(filled, np.take_along_axis(S, np.maximum(dense, 0), axis=1), np.nan)
    assert np.array_equal(top_k((dense, scores), k), dense)
    assert np.array_equal(top_k(dense, k), dense)
