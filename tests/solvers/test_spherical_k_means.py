"""k-means on the sphere: planted directions, its own optimality, empty clusters."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.solvers.spherical_k_means import nearest_center, spherical_k_means


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def groups():
    rng = np.random.default_rng(0)
    true = np.repeat(np.arange(3), 50)
    return unit(np.eye(6)[true] + 0.1 * rng.random((150, 6))), true


def test_planted_directions_are_found(groups):
    rows, true = groups
    runs = (spherical_k_means(rows, 3, rng=np.random.default_rng(seed), max_iter=50) for seed in range(10))
    best = max(runs, key=lambda clusters: clusters.mean_cosine)
    for group in range(3):
        assert len(np.unique(best.assignment[true == group])) == 1
    assert len(np.unique(best.assignment)) == 3
    np.testing.assert_allclose(np.linalg.norm(best.centers, axis=1), 1)


def test_no_cluster_is_empty():
    """All rows are one direction, so every row prefers the first center."""
    rows = np.tile([[0.6, 0.8]], (10, 1))
    for max_iter in (1, 20):
        clusters = spherical_k_means(rows, 4, rng=np.random.default_rng(0), max_iter=max_iter)
        assert (np.bincount(clusters.assignment, minlength=4) > 0).all()
    alone = spherical_k_means(rows, 10, rng=np.random.default_rng(0), max_iter=20)
    np.testing.assert_array_equal(np.sort(alone.assignment), np.arange(10))


def test_rows_of_zeros():
    rows = sp.csr_matrix(np.array([[0, 0], [1.0, 0], [0, 1.0], [0, 0]]))
    clusters = spherical_k_means(rows, 2, rng=np.random.default_rng(0), max_iter=20)
    assert np.isfinite(clusters.centers).all()
    assert np.isfinite(clusters.mean_cosine)


def test_sparse_and_dense_rows_and_threads_agree(groups):
    rows = groups[0]
    dense, sparse, threaded = (
        spherical_k_means(form, 5, rng=np.random.default_rng(3), max_iter=7, n_threads=threads)
        for form, threads in ((rows, 1), (sp.csr_matrix(rows), 1), (sp.csr_matrix(rows), 3))
    )
    np.testing.assert_array_equal(dense.assignment, sparse.assignment)
    np.testing.assert_allclose(dense.centers, sparse.centers)
    np.testing.assert_array_equal(threaded.centers, sparse.centers)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_weights_pull_the_centers_and_nothing_else(groups, form):
    rows = groups[0]
    weights = np.random.default_rng(1).uniform(0.1, 5, len(rows))
    found = spherical_k_means(form(rows), 4, rng=np.random.default_rng(1), max_iter=100, weights=weights)
    nearest, cosines = nearest_center(rows, found.centers)
    np.testing.assert_array_equal(nearest, found.assignment)
    np.testing.assert_allclose(cosines.mean(), found.mean_cosine)
    np.testing.assert_allclose(np.linalg.norm(found.centers, axis=1), 1)
    for cluster in range(4):
        members = found.assignment == cluster
        mean = weights[members] @ rows[members]
        np.testing.assert_allclose(found.centers[cluster], mean / np.linalg.norm(mean))
    ones = spherical_k_means(rows, 4, rng=np.random.default_rng(1), max_iter=3, weights=np.ones(len(rows)))
    plain = spherical_k_means(rows, 4, rng=np.random.default_rng(1), max_iter=3)
    np.testing.assert_array_equal(ones.centers, plain.centers)


def test_an_empty_cluster_restarts_at_the_row_that_fits_worst_whatever_its_weight():
    rows = np.array([[1.0, 0], [1, 0], [1, 0], [0.6, 0.8]])
    weights = np.array([1e-3, 1, 1, 1e3])
    for seed in range(8):
        found = spherical_k_means(rows, 2, rng=np.random.default_rng(seed), max_iter=20, weights=weights)
        assert found.assignment[3] not in found.assignment[:3]
