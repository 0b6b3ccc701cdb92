"""Shortlists: margins, scores listed for few labels, and scores of the others."""

import numpy as np
import pytest
import reference_kernels as reference
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from inner import from_python

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import shortlists
from tagwise.kernels.shortlists import (
    Lookup,
    behind_shortlist,
    place_in_bitmap,
    scores_of_listed,
    shortlist_margins,
    steps_by_feature,
    top_k_of_listed,
)

# Scores listed for few labels, the rest by a base score, against the twin that makes them all.


@st.composite
def listings(draw):
    n_rows, n_labels = draw(st.integers(0, 12)), draw(st.integers(1, 15))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    density, dtype = draw(st.sampled_from([0.0, 0.2, 1.0])), draw(st.sampled_from([np.float32, np.float64]))
    listed = sp.csr_matrix((rng.random((n_rows, n_labels)) < density).astype(dtype))
    listed.data = rng.integers(-2, 3, listed.nnz).astype(dtype)
    if draw(st.booleans()):
        for row in range(n_rows):
            stored = slice(listed.indptr[row], listed.indptr[row + 1])
            listed.indices[stored] = listed.indices[stored][::-1].copy()
        listed.has_sorted_indices = False
    base = rng.integers(-2, 3, n_labels).astype(dtype)
    exclude = sp.csr_matrix(rng.random((n_rows, n_labels)) < draw(st.sampled_from([0.2, 1.0])))
    return listed, base, exclude if draw(st.booleans()) else None


@given(listings(), st.sampled_from([1, 2, 5, 20]), st.integers(1, 3))
def test_top_k_equals_the_twin(problem, k, n_threads):
    listed, base, exclude = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shortlists, "_ROWS", 4)
        found = top_k_of_listed(listed, base, k, exclude=exclude, n_threads=n_threads)
    for ours, theirs in zip(found, reference.top_k_of_listed(listed, base, k, exclude)):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


@given(listings())
def test_dense_scores_equal_the_twin(problem):
    listed, base, _ = problem
    found = scores_of_listed(listed, base)
    assert found.dtype == base.dtype
    np.testing.assert_array_equal(found, reference.scores_of_listed(listed, base))


def test_shapes_that_do_not_fit():
    listed, zeros = sp.csr_matrix((2, 3)), np.zeros(3)
    for call, words in [
        (lambda: top_k_of_listed(listed, np.zeros(4), 1), r"base has shape \(4,\)"),
        (lambda: scores_of_listed(listed, np.zeros(4)), r"base has shape \(4,\)"),
        (lambda: top_k_of_listed(listed, zeros, 1, exclude=sp.csr_matrix((3, 3))), "exclude has shape"),
        (lambda: top_k_of_listed(listed, zeros, 0), "k must be at least 1"),
    ]:
        with pytest.raises(InvalidInputError, match=words):
            call()


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=9), st.sampled_from([np.float32, np.float64]))
def test_scores_behind_a_shortlist_keep_their_order_below_it(scores, dtype):
    proposed = np.sort(np.array([scores], dtype=dtype))
    found = behind_shortlist(proposed)
    assert found.dtype == dtype
    assert (found <= -0.5).all()
    assert (np.diff(found) >= 0).all()
    np.testing.assert_allclose(behind_shortlist(np.array([[-2.0, -0.5, 0.0, 1.0]])), [[-3.0, -1.5, -1.0, -0.75]])


# Looking single entries up.


def uneven(rng, n_rows, n_columns):
    """Rows from empty to full, the longest of which have bitmaps."""
    density = rng.permutation(np.linspace(0, 1, n_rows)) ** 3
    return sp.csr_matrix(rng.normal(size=(n_rows, n_columns)) * (rng.random((n_rows, n_columns)) < density[:, None]))


bitmap_place = from_python(place_in_bitmap)


@given(st.integers(0, 2**32 - 1), st.sampled_from([300, 511, 512, 513, 1000]))
def test_bitmaps_say_what_is_stored_and_where(seed, n_columns):
    rng = np.random.default_rng(seed)
    matrix = uneven(rng, 8, n_columns)
    lookup, dense = Lookup.of(matrix), matrix.toarray()
    assert lookup.shape == matrix.shape
    np.testing.assert_array_equal(lookup.bitmap_of >= 0, np.diff(matrix.indptr) > 256)
    for row in np.flatnonzero(lookup.bitmap_of >= 0):
        for column in (0, 63, 64, n_columns - 1, *rng.integers(0, n_columns, 20)):
            before, there = bitmap_place(lookup, lookup.bitmap_of[row], column)
            assert there == (dense[row, column] != 0)
            assert before == np.count_nonzero(dense[row, :column])
            if there:
                assert lookup.values[lookup.starts[row] + before] == dense[row, column]


def test_short_rows_of_very_many_columns_have_no_bitmap():
    matrix = sp.csr_matrix((np.ones(1300), np.arange(1300) * 20, [0, 300, 1300]), shape=(2, 30_000))
    assert Lookup.of(matrix).bitmap_of.tolist() == [-1, 0]


def test_indices_in_any_order_are_found():
    matrix = uneven(np.random.default_rng(0), 6, 700)
    backwards = sp.csr_matrix((matrix.data[::-1], matrix.indices[::-1], matrix.nnz - matrix.indptr[::-1]), matrix.shape)
    ours, expected = Lookup.of(backwards), Lookup.of(matrix[::-1])
    np.testing.assert_array_equal(ours.bits, expected.bits)
    np.testing.assert_array_equal(ours.values, expected.values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_margins_are_those_of_dense_weights(dtype):
    rng = np.random.default_rng(0)
    weights = uneven(rng, 12, 900).astype(dtype)
    rows = sp.random(700, 12, 0.4, "csr", random_state=0, dtype=dtype)
    labels = rng.integers(-1, 900, size=(700, 20))
    labels[:, 7] = labels[:, 3]  # a label that is listed twice
    intercept = rng.normal(size=900).astype(dtype)
    lookup, by_label = Lookup.of(weights), sp.csr_matrix(weights.T)
    assert 0 < (lookup.bitmap_of >= 0).sum() < 12
    expected = np.take_along_axis(rows @ weights.toarray() + intercept, np.maximum(labels, 0), axis=1)
    for n_threads in (1, 2):
        for form in (by_label, lookup):
            found = shortlist_margins(rows, labels, form, intercept, n_threads=n_threads)
            assert found.dtype == dtype
            np.testing.assert_allclose(found, np.where(labels < 0, 0, expected), atol=1e-5)
    alone = shortlist_margins(rows[600:601], labels[600:601], lookup, intercept)
    np.testing.assert_array_equal(alone[0], found[600])
    with pytest.raises(InvalidInputError, match="n×d, n×M and L×d"):
        shortlist_margins(rows, labels[:3], by_label, intercept)
    with pytest.raises(InvalidInputError, match="n×d, n×M and d×L"):
        shortlist_margins(rows, labels, Lookup.of(by_label), intercept)


def test_a_feature_with_very_many_weights_costs_no_more_than_looking_up():
    rows = sp.csr_matrix(np.ones((3, 2)))
    few, many = np.zeros((2, 5000)), np.ones((2, 5000))
    few[:, :10] = 1
    assert steps_by_feature(rows, sp.csr_matrix(few), 50) == 3 * 2 * 10
    assert 3 * 2 * 50 <= steps_by_feature(rows, sp.csr_matrix(many), 50) < 3 * 2 * 5000
