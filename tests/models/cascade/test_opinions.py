"""Prototypes of labels against sums of dense rows, and weights of their names."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.kernels import unit_rows
from tagwise.models.cascade.opinions import label_prototypes, rows_by_label
from tagwise.models.updating import with_columns


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X = sp.random(300, 40, density=0.2, format="csr", dtype=np.float32, random_state=1)
    X.data -= 0.3
    Y = (rng.random((300, 25)) < 0.1).astype(np.float32)
    Y[:, 7] = 0
    return unit_rows(X), sp.csr_matrix(Y)


@pytest.mark.parametrize("most", [1, 5, 100])
def test_against_dense_sums(problem, most):
    rows, Y = problem
    found = label_prototypes(rows, Y, most=most)
    sums = Y.toarray().T.astype(np.float64) @ rows.toarray()
    expected = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-300)
    for label in range(25):
        expected[label, np.argsort(-np.abs(expected[label]), kind="stable")[most:]] = 0
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-6)
    assert found.dtype == np.float32
    assert found.has_sorted_indices
    assert np.diff(found.indptr).max() <= most
    assert found[7].nnz == 0


def test_equal_weights_stay_by_feature():
    rows = unit_rows(sp.csr_matrix(np.ones((1, 6), dtype=np.float32)))
    found = label_prototypes(rows, sp.csr_matrix(np.ones((1, 1))), most=2)
    np.testing.assert_array_equal(found.indices, [0, 1])
    np.testing.assert_allclose(found.data, 6**-0.5, rtol=1e-6)


def test_the_same_for_any_number_of_threads_and_stored_values(problem):
    rows, Y = problem
    wide = sp.csr_matrix(sp.hstack([Y] * 40))  # several chunks
    first = label_prototypes(rows, wide)
    second = label_prototypes(rows, sp.csr_matrix(3 * wide), n_threads=2)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_rows_by_label_are_the_transpose_in_rising_order(problem):
    _, Y = problem
    found = rows_by_label(Y)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found.toarray(), Y.toarray().T)
    assert all((np.diff(found[label].indices) > 0).all() for label in range(25))


def test_columns_are_replaced():
    matrix = sp.random(20, 12, 0.3, format="csr", dtype=np.float32, random_state=0)
    labels, columns = np.array([1, 4, 11]), sp.random(20, 3, 0.3, format="csr", dtype=np.float32, random_state=1)
    expected = matrix.toarray()
    expected[:, labels] = columns.toarray()
    found = with_columns(matrix, labels, columns)
    np.testing.assert_array_equal(found.toarray(), expected)
    assert found.has_canonical_format
    assert found.dtype == np.float32
