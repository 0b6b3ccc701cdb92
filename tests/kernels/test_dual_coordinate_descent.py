"""The support vector machine kernel against its slow twin, and the random streams that order its rows."""

import numpy as np
import pytest
import reference_kernels as reference
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagwise.kernels.dual_coordinate_descent import Descent
from tagwise.kernels.random_stream import next_below, random_stream, shuffle
from tagwise.solvers.dual_coordinate_descent import dual_coordinate_descent


@settings(max_examples=25)
@given(
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 3.0]),
)
def test_against_the_reference(seed, n_rows, n_features, squared, constant):
    rng = np.random.default_rng(seed)
    X = sp.random(n_rows, n_features, 0.6, format="csr", random_state=seed, data_rvs=rng.standard_normal)
    y = np.where(rng.random(n_rows) < 0.4, 1.0, -1.0)
    cost = rng.uniform(0.2, 3, n_rows)
    sides = [sp.csr_matrix(np.where(y == side, cost, 0)[None, :]) for side in (1, -1)]
    found = dual_coordinate_descent(X, *sides, descent=Descent(squared, constant, tol=1e-9, max_iter=100_000))
    w, b = reference.dual_coordinate_descent(X.toarray(), y, cost, squared=squared, constant=constant, n_passes=1000)
    margins = y * (X @ w + b)
    short = np.maximum(0, 1 - margins)
    value = 0.5 * w @ w + (0.5 * (b / constant) ** 2 if constant else 0) + cost @ (short**2 if squared else short)
    assert found.converged.all()
    # The twin's passes end before it is at the optimum: its value may be above ours, which has converged, not below.
    assert found.value[0] <= value * (1 + 1e-6) + 1e-9
    assert found.value[0] == pytest.approx(value, rel=1e-4, abs=1e-6)
    np.testing.assert_allclose(found.coefficients[0], w, atol=2e-3)
    np.testing.assert_allclose(found.intercept[0], b, atol=2e-3)


def test_streams_differ_by_seed_and_number_and_nothing_else():
    def first(seed, number):
        stream = random_stream(seed, number)
        return [next_below(stream, 1000) for _ in range(20)]

    assert first(3, 5) == first(3, 5)
    draws = [tuple(first(seed, number)) for seed in range(20) for number in range(20)]
    assert len(set(draws)) == len(draws)


def test_numbers_below_a_limit_are_even():
    stream = random_stream(1, 0)
    counts = np.bincount([next_below(stream, 7) for _ in range(70_000)], minlength=7)
    assert len(counts) == 7
    assert np.abs(counts - 10_000).max() < 500


def test_a_shuffle_permutes_the_head_alone():
    values = np.arange(100)
    shuffle(random_stream(0, 0), values, 60)
    assert sorted(values[:60]) == list(range(60))
    assert (values[:60] != np.arange(60)).sum() > 40
    np.testing.assert_array_equal(values[60:], np.arange(60, 100))
