"""Singular value projection: closed forms, planted matrices and degenerate input."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.solvers.singular_value_projection import singular_value_projection


def solve(known, rank, **options):
    settings = {"rng": np.random.default_rng(0), "tol": 1e-12, "max_iter": 500, **options}
    return singular_value_projection(sp.csr_matrix(known), rank, **settings)


def everywhere(matrix):
    """Every pair known, zeros too."""
    n = len(matrix)
    return sp.csr_matrix((matrix.ravel(), np.tile(np.arange(n), n), np.arange(0, n * n + 1, n)), shape=(n, n))


def test_with_all_pairs_known_it_is_the_best_approximation():
    rng = np.random.default_rng(1)
    root = rng.standard_normal((40, 6)) * np.array([5, 4, 3, 2, 1, 0.5])
    matrix = root @ root.T
    result = solve(everywhere(matrix), 3)
    values, vectors = np.linalg.eigh(matrix)
    best = (vectors[:, -3:] * values[-3:]) @ vectors[:, -3:].T
    assert result.status == "converged"
    np.testing.assert_allclose(result.factor @ result.factor.T, best, atol=1e-4)
    np.testing.assert_allclose(result.relative_value, np.sum(values[:-3] ** 2) / np.sum(values**2), rtol=1e-6)


def test_negative_eigenvalues_are_left_out():
    vectors = np.linalg.qr(np.random.default_rng(2).standard_normal((30, 30)))[0]
    matrix = (vectors * np.r_[3.0, -7.0, 1.0, np.zeros(27)]) @ vectors.T
    result = solve(everywhere(matrix), 2)
    expected = (vectors[:, [0, 2]] * [3.0, 1.0]) @ vectors[:, [0, 2]].T
    np.testing.assert_allclose(result.factor @ result.factor.T, expected, atol=1e-3)


def test_a_planted_matrix_is_found_from_part_of_its_entries():
    rng = np.random.default_rng(3)
    root = rng.standard_normal((120, 2))
    matrix = root @ root.T
    mask = np.triu(rng.random((120, 120)) < 0.3)
    known = sp.csr_matrix(np.where(mask | mask.T, matrix, 0))
    result = solve(known, 2)
    assert result.relative_value < 1e-6
    assert np.linalg.norm(result.factor @ result.factor.T - matrix) < 1e-2 * np.linalg.norm(matrix)


def test_the_value_never_rises_with_more_steps():
    rng = np.random.default_rng(4)
    half = np.triu((rng.random((80, 80)) < 0.1) * rng.random((80, 80)))
    known = sp.csr_matrix(half + np.triu(half, 1).T)
    values = [solve(known, 4, tol=0.0, max_iter=steps).relative_value for steps in (1, 2, 4, 8, 16, 32)]
    assert values == sorted(values, reverse=True)
    assert values[-1] < values[0] < 1
    assert solve(known, 4, max_iter=1).status == "max_iter"


def test_stored_zeros_are_known_zeros():
    """Rows 0 and 1 are each like row 2; whether the pair (0, 1) is known to be unlike decides about its product."""
    dense = np.array([[1, 0, 1.0], [0, 1, 1], [1, 1, 1]])
    free = solve(sp.csr_matrix(dense), 1).factor
    held = solve(everywhere(dense), 1).factor
    assert (free @ free.T)[0, 1] > 0.9
    assert (held @ held.T)[0, 1] < 0.9


def test_degenerate_matrices():
    nothing = solve(sp.csr_matrix((5, 5)), 3)
    assert (nothing.factor == np.zeros((5, 3))).all()
    assert nothing.status == "converged"
    one = solve(np.array([[4.0]]), 3)
    np.testing.assert_allclose(np.abs(one.factor), [[2.0]])
    assert (solve(-np.eye(4), 2).factor == 0).all()


@pytest.mark.parametrize("n_threads", [2, 3])
def test_bit_identical_for_every_number_of_threads(n_threads):
    rng = np.random.default_rng(5)
    half = sp.random(3000, 3000, 0.01, format="csr", random_state=6)
    known = sp.csr_matrix(half + half.T)
    one = singular_value_projection(known, 8, rng=np.random.default_rng(0), tol=0, max_iter=4)
    many = singular_value_projection(known, 8, rng=np.random.default_rng(0), tol=0, max_iter=4, n_threads=n_threads)
    np.testing.assert_array_equal(one.factor, many.factor)
    other = singular_value_projection(known, 8, rng=rng, tol=0, max_iter=4)
    assert (one.factor != other.factor).any()
