"""Looking single entries up, and margins by it, against dense twins."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.kernels.lookups import Lookup, place_in_bitmap
from tagwise.kernels.shortlists import shortlist_margins, steps_by_feature


def uneven(rng, n_rows, n_columns):
    """Rows from empty to full, the longest of which have bitmaps."""
    density = rng.permutation(np.linspace(0, 1, n_rows)) ** 3
    return sp.csr_matrix(rng.normal(size=(n_rows, n_columns)) * (rng.random((n_rows, n_columns)) < density[:, None]))


@given(st.integers(0, 2**32 - 1), st.sampled_from([300, 511, 512, 513, 1000]))
def test_bitmaps_say_what_is_stored_and_where(seed, n_columns):
    rng = np.random.default_rng(seed)
    matrix = uneven(rng, 8, n_columns)
    lookup, dense = Lookup.of(matrix), matrix.toarray()
    assert lookup.shape == matrix.shape
    np.testing.assert_array_equal(lookup.bitmap_of >= 0, np.diff(matrix.indptr) > 256)
    for row in np.flatnonzero(lookup.bitmap_of >= 0):
        for column in (0, 63, 64, n_columns - 1, *rng.integers(0, n_columns, 20)):
            before, there = place_in_bitmap(lookup, lookup.bitmap_of[row], column)
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
    lookup = Lookup.of(weights)
    assert 0 < (lookup.bitmap_of >= 0).sum() < 12
    expected = np.take_along_axis(rows @ weights.toarray() + intercept, np.maximum(labels, 0), axis=1)
    for n_threads in (1, 2):
        found = shortlist_margins(rows, labels, lookup, intercept, n_threads=n_threads)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, np.where(labels < 0, 0, expected), atol=1e-5)
    alone = shortlist_margins(rows[600:601], labels[600:601], lookup, intercept)
    np.testing.assert_array_equal(alone[0], found[600])


def test_a_feature_with_very_many_weights_costs_no_more_than_looking_up():
    rows = sp.csr_matrix(np.ones((3, 2)))
    few, many = np.zeros((2, 5000)), np.ones((2, 5000))
    few[:, :10] = 1
    assert steps_by_feature(rows, sp.csr_matrix(few), 50) == 3 * 2 * 10
    assert 3 * 2 * 50 <= steps_by_feature(rows, sp.csr_matrix(many), 50) < 3 * 2 * 5000
