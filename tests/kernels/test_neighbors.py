"""Nearest rows against the twin that compares all pairs."""

import numpy as np
import pytest
import reference_kernels as reference
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.neighbors import half_squared_norms, inverted_index, nearest_dense_rows, nearest_sparse_rows

FLOATS = [np.float32, np.float64]


@st.composite
def pairs_of_rows(draw):
    """Queries and rows of small whole numbers: sums are exact and ties common."""
    n_queries, n_rows, width = draw(st.integers(1, 40)), draw(st.integers(1, 60)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    density, dtype = draw(st.sampled_from([0.0, 0.3, 1.0])), draw(st.sampled_from(FLOATS))
    queries, rows = (
        (rng.integers(-2, 3, (size, width)) * (rng.random((size, width)) < density)).astype(dtype)
        for size in (n_queries, n_rows)
    )
    exclude = sp.csr_matrix(rng.random((n_queries, n_rows)) < 0.3) if draw(st.booleans()) else None
    return queries, rows, exclude


@given(pairs_of_rows(), st.sampled_from([1, 3, 70]), st.booleans(), st.integers(1, 3))
def test_both_kernels_equal_the_twin(problem, k, by_distance, n_threads):
    queries, rows, exclude = problem
    expected = reference.nearest_rows(queries, rows, k, by_distance=by_distance, exclude=exclude)
    index = inverted_index(sp.csr_matrix(rows))
    for nearest, asked, stored in (
        (nearest_sparse_rows, sp.csr_matrix(queries), index),
        (nearest_dense_rows, queries, rows),
    ):
        squares = half_squared_norms(stored) if by_distance else None
        ids, measures = nearest(asked, stored, k, half_squares=squares, exclude=exclude, n_threads=n_threads)
        np.testing.assert_array_equal(ids, expected[0])
        np.testing.assert_array_equal(measures, expected[1])
        assert measures.dtype == np.float64


def test_float32_rows_are_summed_in_float64():
    """In float32 the thousand small products would vanish beside the large one, and row 1 would lose."""
    row = np.full((1, 1001), 1e-4, dtype=np.float32)
    row[0, 0] = 1e4
    other = row.copy()
    other[0, 0] = np.nextafter(np.float32(1e4), np.float32(0))
    other[0, 1:] = 1.0
    query = np.ones((1, 1001), dtype=np.float32)
    index = inverted_index(sp.csr_matrix(np.concatenate([row, other])))
    ids, measures = nearest_sparse_rows(sp.csr_matrix(query), index, 2)
    np.testing.assert_array_equal(ids, [[1, 0]])
    np.testing.assert_allclose(measures[0, 1], row.astype(np.float64).sum(), rtol=1e-12)


def test_norms_of_rows_whose_squares_overflow_are_infinite_without_a_warning(recwarn):
    rows = np.array([[1e200, 0], [3, 4]])
    np.testing.assert_array_equal(half_squared_norms(rows), [np.inf, 12.5])
    np.testing.assert_array_equal(half_squared_norms(inverted_index(sp.csr_matrix(rows))), [np.inf, 12.5])
    assert not recwarn.list


def test_shapes_and_types_that_do_not_fit():
    rows = np.ones((3, 4))
    with pytest.raises(InvalidInputError, match="queries of 5 features do not fit an index of shape 4×3"):
        nearest_sparse_rows(sp.csr_matrix((2, 5)), inverted_index(sp.csr_matrix(rows)), 1)
    with pytest.raises(InvalidInputError, match="as many columns; found 2×5 and 3×4"):
        nearest_dense_rows(np.ones((2, 5)), rows, 1)
    with pytest.raises(InvalidInputError, match="k must be at least 1"):
        nearest_dense_rows(rows, rows, 0)


@pytest.mark.parametrize("by_distance", [True, False])
@pytest.mark.parametrize("dtype", FLOATS)
def test_equal_dense_rows_are_equally_near_in_any_company(by_distance, dtype):
    """20 distinct rows 30 times: the nearest 7 are the first 7 copies, for a query alone and in every block."""
    rng = np.random.default_rng(0)
    distinct = rng.standard_normal((20, 101)).astype(dtype)
    copy_of = rng.permutation(np.repeat(np.arange(20), 30))
    rows = distinct[copy_of]
    squares = half_squared_norms(rows) if by_distance else None
    assert squares is None or len(np.unique(squares)) == 20
    expected = np.array([np.flatnonzero(copy_of == row)[:7] for row in range(20)])
    together, _ = nearest_dense_rows(distinct, rows, 7, half_squares=squares)
    np.testing.assert_array_equal(together, expected)
    for row in range(20):
        alone, _ = nearest_dense_rows(distinct[row : row + 1], rows, 7, half_squares=squares)
        np.testing.assert_array_equal(alone[0], expected[row])
