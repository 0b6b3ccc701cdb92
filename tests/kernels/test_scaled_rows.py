"""Rows of a matrix added to a dense block."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.kernels.products import add_scaled_rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_it_adds_what_dense_arithmetic_adds(dtype, n_threads):
    rng = np.random.default_rng(0)
    matrix = sp.random(50, 20, 0.3, format="csr", dtype=dtype, random_state=0)
    rows = rng.integers(0, 50, 700)
    scale, target = rng.standard_normal(700), rng.standard_normal((700, 20)).astype(dtype)
    expected = target + scale[:, None] * matrix.toarray()[rows]
    from_dense = target.copy()
    add_scaled_rows(target, matrix, rows, scale, n_threads=n_threads)
    add_scaled_rows(from_dense, matrix.toarray(), rows, scale, n_threads=n_threads)
    np.testing.assert_array_equal(from_dense, target)
    assert target.dtype == dtype
    np.testing.assert_allclose(target, expected, atol=1e-5 if dtype == np.float32 else 1e-12)


def test_duplicates_and_empty_rows():
    matrix = sp.csr_matrix((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2, 2])), shape=(2, 3))
    target = np.ones((2, 3))
    add_scaled_rows(target, matrix, np.array([0, 1]), np.array([2.0, 5.0]))
    np.testing.assert_array_equal(target, [[1, 7, 1], [1, 1, 1]])
