"""Entries of a product of two sparse matrices, against the whole product."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import sampled_sparse_product


@given(st.integers(0, 999), st.integers(0, 30), st.integers(1, 9), st.integers(1, 12), st.integers(1, 3))
def test_equals_the_whole_product_where_asked(seed, n, d, n_labels, n_threads):
    left = sp.random(n, d, 0.4, "csr", random_state=seed)
    right = sp.random(d, n_labels, 0.4, "csr", random_state=seed + 1)
    pattern = sp.random(n, n_labels, 0.5, "csr", random_state=seed + 2)
    found = sampled_sparse_product(pattern, left, right, n_threads=n_threads)
    rows = np.repeat(np.arange(n), np.diff(pattern.indptr))
    np.testing.assert_allclose(found, (left @ right).toarray()[rows, pattern.indices], atol=1e-12)


def test_bit_identical_for_every_number_of_threads_and_in_the_type_of_x():
    left = sp.random(5000, 40, 0.3, "csr", random_state=0, dtype=np.float32)
    right = sp.random(40, 60, 0.3, "csr", random_state=1, dtype=np.float32)
    pattern = sp.random(5000, 60, 0.2, "csr", random_state=2)
    one = sampled_sparse_product(pattern, left, right)
    assert one.dtype == np.float32
    for n_threads in (2, 3):
        np.testing.assert_array_equal(sampled_sparse_product(pattern, left, right, n_threads=n_threads), one)


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(InvalidInputError, match="must be n×d and d×L"):
        sampled_sparse_product(sp.csr_matrix((3, 4)), sp.csr_matrix((3, 2)), sp.csr_matrix((3, 4)))
