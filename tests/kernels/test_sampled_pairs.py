"""Entries of products on a pattern, against the whole product; and which pairs a matrix stores."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.sampled_pairs import contains_pairs, sampled_csr_product, sampled_sparse_product


@given(st.integers(0, 999), st.integers(0, 30), st.integers(1, 9), st.integers(1, 12), st.integers(1, 3))
def test_equals_the_whole_product_where_asked(seed, n, d, n_labels, n_threads):
    for dtype, error in ((np.float32, 1e-5), (np.float64, 1e-12)):
        left = sp.random(n, d, 0.4, "csr", random_state=seed, dtype=dtype)
        right = sp.random(d, n_labels, 0.4, "csr", random_state=seed + 1, dtype=dtype)
        pattern = sp.random(n, n_labels, 0.5, "csr", random_state=seed + 2)
        expected = (left @ right).toarray()[np.repeat(np.arange(n), np.diff(pattern.indptr)), pattern.indices]
        found = sampled_sparse_product(pattern, left, right, n_threads=n_threads)
        from_dense = sampled_csr_product(pattern, left, right.toarray(), n_threads=n_threads)
        for one in (found, from_dense):
            assert one.dtype == dtype
            np.testing.assert_allclose(one, expected, atol=error)


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(InvalidInputError, match="must be n×d and d×L"):
        sampled_sparse_product(sp.csr_matrix((3, 4)), sp.csr_matrix((3, 2)), sp.csr_matrix((3, 4)))
    with pytest.raises(InvalidInputError, match="must be n×d and d×L for a pattern"):
        sampled_csr_product(sp.csr_matrix((3, 4)), sp.csr_matrix((3, 2)), np.ones((2, 3)))


def rows_and_labels(n=200, n_labels=30, width=8):
    rng = np.random.default_rng(0)
    Y = rng.random((n, n_labels)) < 0.3
    Y[7] = False
    labels = np.array([rng.permutation(n_labels)[:width] for _ in range(n)])
    labels[rng.random(labels.shape) < 0.1] = -1
    return Y, labels


@pytest.mark.parametrize("n_threads", [1, 3])
def test_each_label_is_looked_up_in_its_row(n_threads):
    Y, labels = rows_and_labels()
    found = contains_pairs(sp.csr_matrix(Y.astype(np.float32)), labels, n_threads=n_threads)
    expected = [[bool(label >= 0 and Y[row, label]) for label in listed] for row, listed in enumerate(labels)]
    np.testing.assert_array_equal(found, expected)
    assert found.any()
    assert not found[7].any()


def test_pairs_are_found_in_unsorted_rows_and_nowhere_in_empty_ones():
    labels = np.array([[0, 1, 2], [0, 1, -1], [1, -1, 0]])
    pairs = sp.csr_matrix((np.ones(3), [2, 0, 1], [0, 2, 2, 3]), shape=(3, 3))
    expected = [[True, False, True], [False, False, False], [True, False, False]]
    np.testing.assert_array_equal(contains_pairs(pairs, labels), expected)
    assert list(pairs.indices) == [2, 0, 1]
    assert not contains_pairs(sp.csr_matrix((3, 3)), labels).any()
