"""Sparse recovery: planted entries, slow twins, and codes that depend on one another."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagwise.solvers.sparse_recovery import cosamp, orthogonal_matching_pursuit

METHODS = {"omp": orthogonal_matching_pursuit, "cosamp": cosamp}


def codes_of(n_codes, size, seed=0):
    return np.random.default_rng(seed).standard_normal((n_codes, size)) / np.sqrt(size)


def slow_omp(z, codes, n_nonzero):
    support, y = [], np.zeros(len(codes))
    for _ in range(n_nonzero):
        correlation = codes @ (z - y @ codes)
        correlation[support] = 0
        if correlation.max() <= 0:
            break
        support.append(int(correlation.argmax()))
        y[:] = 0
        y[support] = np.linalg.lstsq(codes[support].T, z, rcond=None)[0]
    return y


def slow_cosamp(z, codes, n_nonzero, rounds=10):
    best = np.zeros(len(codes))
    for _ in range(rounds):
        correlation = codes @ (z - best @ codes)
        added = [j for j in np.argsort(-correlation, kind="stable")[: 2 * n_nonzero] if correlation[j] > 0]
        merged = sorted(set(np.flatnonzero(best)) | set(added))
        fit = np.zeros(len(codes))
        fit[merged] = np.linalg.lstsq(codes[merged].T, z, rcond=None)[0]
        fit[np.argsort(-np.abs(fit), kind="stable")[n_nonzero:]] = 0
        if np.linalg.norm(z - fit @ codes) >= np.linalg.norm(z - best @ codes):
            break
        best = fit
    return best


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), n_nonzero=st.integers(1, 3))
def test_planted_labels_come_back(method, seed, n_nonzero):
    """Guaranteed of matching pursuit when no two codes have a correlation above 1/(2s − 1)."""
    rng = np.random.default_rng(seed)
    codes = codes_of(60, 1000, seed=1)
    codes /= np.linalg.norm(codes, axis=1, keepdims=True)
    assert np.abs(codes @ codes.T - np.eye(60)).max() < 1 / 5
    truth = np.zeros((5, 60))
    for row in truth:
        row[rng.choice(60, n_nonzero, replace=False)] = 1
    np.testing.assert_allclose(method(truth @ codes, codes, n_nonzero), truth, atol=1e-8)


@pytest.mark.parametrize(("method", "slow"), [(orthogonal_matching_pursuit, slow_omp), (cosamp, slow_cosamp)])
@pytest.mark.parametrize("n_nonzero", [1, 3, 5])
def test_it_equals_its_twin_on_noise(method, slow, n_nonzero):
    codes, Z = codes_of(40, 20), np.random.default_rng(2).standard_normal((300, 20))
    found = method(Z, codes, n_nonzero, n_threads=2)
    np.testing.assert_allclose(found, [slow(z, codes, n_nonzero) for z in Z], atol=1e-7)
    assert (np.count_nonzero(found, axis=1) <= n_nonzero).all()


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_codes_that_point_elsewhere_equal_codes_codes_of_zeros_and_too_many_entries(method):
    np.testing.assert_array_equal(method(np.array([[-1.0, 0.0], [0.0, 0.0]]), np.eye(2), 2), np.zeros((2, 2)))
    codes = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    found = method(np.array([[1.0, 1.0, 0.0]]), codes, 3)
    np.testing.assert_allclose(found @ codes, [[1, 1, 0]], atol=1e-6)
    assert found[0, 2] == 0
    Z = np.random.default_rng(0).standard_normal((4, 3))
    for codes in (codes_of(9, 3), codes_of(2, 3)):
        assert np.isfinite(method(Z, codes, 20)).all()
