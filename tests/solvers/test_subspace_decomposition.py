"""Bilateral random projections: the formula of the paper, its error bound, and what a start can only gain."""

import numpy as np
import pytest
import scipy.sparse as sp
from bilateral_projection import average_error_bound, bilateral_random_projection
from hypothesis import given
from hypothesis import strategies as st

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import feature_matrix
from tagwise.solvers.subspace_decomposition import project_bilaterally


def matrix_of_spectrum(values, m, n, seed=0):
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((size, len(values))))[0] for size in (m, n))
    return (left * values) @ right.T


SPECTRA = {
    "exponential": 0.7 ** np.arange(40),
    "polynomial": 1 / (1 + np.arange(40)),
    "step": np.r_[np.ones(8), np.full(32, 0.05)],
    "flat": np.ones(40),
    "large": 1000 * 0.9 ** np.arange(40),
}


def test_it_is_the_formula_of_the_paper():
    X = matrix_of_spectrum(np.linspace(2, 1, 20), 30, 20)
    A1 = np.random.default_rng(7).standard_normal((20, 4))
    A2 = X @ A1
    Y2 = X.T @ A2
    Y1 = X @ Y2
    expected = Y1 @ np.linalg.inv(A2.T @ Y1) @ Y2.T
    found = bilateral_random_projection(X, 4, random_state=7)
    np.testing.assert_allclose(found.dense(), expected, atol=1e-11)
    np.testing.assert_allclose(found.right.T @ found.right, np.eye(4), atol=1e-12)


def test_a_matrix_of_low_rank_is_recovered():
    X = matrix_of_spectrum([5.0, 2.0, 1e-3], 50, 30)
    for given_as in (X, sp.csr_matrix(X)):
        found = bilateral_random_projection(given_as, 3)
        assert (found.left.shape, found.right.shape) == ((50, 3), (30, 3))
        np.testing.assert_allclose(found.dense(), X, atol=1e-10)
    wide = bilateral_random_projection(X[:6, :4], 3, oversampling=10)
    assert wide.right.shape == (4, 4)
    np.testing.assert_allclose(wide.dense(), X[:6, :4], atol=1e-12)


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize(("rank", "oversampling"), [(5, 2), (8, 4), (3, 10)])
def test_the_mean_error_of_100_draws_is_below_the_bound_of_theorem_3(name, rank, oversampling):
    values = SPECTRA[name]
    X = matrix_of_spectrum(values, 60, 40)
    draws = [bilateral_random_projection(X, rank, oversampling=oversampling, random_state=i) for i in range(100)]
    bound = average_error_bound(values, rank, oversampling)
    mean = np.mean([np.linalg.norm(X - draw.dense(), 2) for draw in draws])
    assert values[rank + oversampling] * (1 - 1e-9) <= mean <= bound
    if name == "step" and rank == 8:
        assert bound < 2 * values[rank], "with a gap in the spectrum the bound is near the best possible error"


def test_the_bound_by_hand_and_its_unit():
    values = np.array([4.0, 2.0, 1.0, 0.5])
    near = (np.sqrt((1 / 16 + 1 / 4) / 2) + 1) * 1.0
    far = np.e * np.sqrt(5) / 3 * np.sqrt((1 + 0.0625) / 4)
    assert average_error_bound(values, 2, 3) == pytest.approx(near + far)
    assert average_error_bound(10 * values, 2, 3) == pytest.approx(10 * (near + far))


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(5, 12), st.integers(5, 12))
def test_a_projection_keeps_at_least_what_its_start_kept(seed, rank, m, n):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) * rng.exponential(size=n)
    start = np.linalg.qr(rng.standard_normal((n, rank)))[0]
    left, right = project_bilaterally(feature_matrix(X), start)
    assert np.sum(left**2) >= np.sum((X @ start) ** 2) * (1 - 1e-12)
    np.testing.assert_allclose(left, X @ right)


def test_zeros_and_extreme_scales():
    np.testing.assert_array_equal(bilateral_random_projection(np.zeros((5, 4)), 2).dense(), np.zeros((5, 4)))
    X = matrix_of_spectrum([3.0, 1.0], 9, 7)
    for scale in (1e-120, 1e120):
        np.testing.assert_allclose(bilateral_random_projection(scale * X, 2).dense() / scale, X, atol=1e-10)


def test_seeds_types_and_threads():
    X = sp.random(3000, 60, 0.3, format="csr", random_state=0)
    one = bilateral_random_projection(X, 5, random_state=1)
    np.testing.assert_array_equal(one.right, bilateral_random_projection(X, 5, random_state=1, n_threads=3).right)
    assert np.abs(one.right - bilateral_random_projection(X, 5, random_state=2).right).max() > 1e-3
    narrow = bilateral_random_projection(X.astype(np.float32), 5, random_state=1)
    assert narrow.left.dtype == narrow.right.dtype == np.float32
    np.testing.assert_allclose(narrow.dense(), one.dense(), atol=1e-3)


def test_a_start_must_fit():
    for shape, words in (((3, 2), "3×2"), ((4, 5), "4×5")):
        with pytest.raises(InvalidInputError, match=f"start of shape {words} does not fit"):
            project_bilaterally(feature_matrix(np.eye(4)), np.ones(shape))
