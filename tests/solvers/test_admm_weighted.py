"""Weighted ADMM: a mask is the problem on the known rows alone, and no sparsity is weighted ridge regression."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagwise.exceptions import InvalidInputError
from tagwise.solvers.admm import ADMMOptions, L1FitRidge, WeightedL1FitRidge

TIGHT = ADMMOptions(tol=1e-9, abs_tol=1e-10, max_iter=20_000)
METHODS = ["eigen", "cholesky", "cg"]


def problem(n_rows=30, n_features=12, columns=4, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_features))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    R = np.where(rng.random((n_rows, columns)) < 0.3, 1.0, -1.0)
    known = (rng.random(R.shape) < 0.6).astype(float)
    known[0] = 1
    return X.astype(dtype), R.astype(dtype), known.astype(dtype), rng.uniform(0.3, 4, R.shape).astype(dtype)


def value(X, R, omega, H, reg, sparsity):
    fitted = X @ H
    loss = omega * (R - fitted) ** 2 + sparsity * np.abs(fitted) * (omega > 0)
    return loss.sum(axis=0) + reg * np.sum(H**2, axis=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(30, 12), (12, 30)])
def test_a_mask_is_the_problem_on_the_known_rows(shape, method):
    X, R, known, _ = problem(*shape)
    result = WeightedL1FitRidge(X, 0.8, 0.3, method=method).solve_weighted(R, known, options=TIGHT)
    assert result.status == "converged"
    np.testing.assert_allclose(result.objective, value(X, R, known, result.solution, 0.8, 0.3), rtol=1e-12)
    for column in range(R.shape[1]):
        rows = known[:, column] > 0
        alone = L1FitRidge(X[rows], 0.8, 0.3)
        r = R[rows, column : column + 1]
        expected = alone.solve(X[rows].T @ r, np.sum(r**2, axis=0), options=TIGHT)
        np.testing.assert_allclose(result.objective[column], expected.objective[0], rtol=1e-7)
        np.testing.assert_allclose(result.solution[:, column], expected.solution[:, 0], atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_without_sparsity_it_is_weighted_ridge_regression(method):
    X, R, known, omega = problem()
    omega = omega * known
    result = WeightedL1FitRidge(X, 0.8, 0.0, method=method).solve_weighted(R, omega, options=TIGHT)
    for column in range(R.shape[1]):
        w = omega[:, column]
        expected = np.linalg.solve(X.T @ (w[:, None] * X) + 0.8 * np.eye(12), X.T @ (w * R[:, column]))
        np.testing.assert_allclose(result.solution[:, column], expected, atol=1e-7)


@settings(max_examples=30)
@given(st.integers(2, 15), st.integers(1, 15), st.floats(0.1, 5), st.floats(0.01, 2), st.integers(0, 999))
def test_optimality_conditions(n_rows, n_features, reg, sparsity, seed):
    X, R, known, omega = problem(n_rows, n_features, 3, seed)
    omega = omega * known
    result = WeightedL1FitRidge(X, reg, sparsity).solve_weighted(
        R, omega, options=ADMMOptions(tol=1e-8, abs_tol=1e-9, max_iter=20_000)
    )
    assert result.status == "converged"
    H, Z = result.solution, result.split
    np.testing.assert_allclose(X @ H, Z, atol=1e-6)
    # What is left of the multiplier beside the loss's slope is a subgradient of λ3‖·‖₁.
    subgradient = result.dual + 2 * omega * (R - Z)
    assert np.abs(subgradient[omega > 0]).max() <= sparsity + 1e-8
    on = (Z != 0) & (omega > 0)
    np.testing.assert_allclose(subgradient[on], sparsity * np.sign(Z[on]), atol=1e-8)
    assert (result.dual[omega == 0] == 0).all()
    slope = 2 * reg * H + X.T @ result.dual
    assert np.linalg.norm(slope) <= 1e-6 * np.linalg.norm(2 * X.T @ (omega * R)) + 1e-7


def test_columns_do_not_influence_each_other_and_float32_is_near():
    X, R, known, _ = problem()
    solver = WeightedL1FitRidge(X, 1.0, 0.2)
    together = solver.solve_weighted(R, known, options=TIGHT)
    alone = solver.solve_weighted(R[:, 1:2], known[:, 1:2], options=TIGHT)
    np.testing.assert_allclose(together.solution[:, 1], alone.solution[:, 0], atol=1e-7)
    single = [array.astype(np.float32) for array in (X, R, known)]
    near = WeightedL1FitRidge(single[0], 1.0, 0.2).solve_weighted(*single[1:])
    assert near.solution.dtype == np.float32
    np.testing.assert_allclose(near.objective, together.objective, rtol=1e-4)


def test_a_warm_start_takes_fewer_steps():
    X, R, known, _ = problem()
    solver = WeightedL1FitRidge(X, 1.0, 0.2)
    cold = solver.solve_weighted(R, known)
    warm = solver.solve_weighted(R, known, start=(cold.split, cold.dual))
    assert warm.n_iter < cold.n_iter
    np.testing.assert_allclose(warm.objective, cold.objective, rtol=1e-4)


def test_a_residual_that_overflowed_is_named():
    X, R, known, _ = problem()
    with pytest.raises(InvalidInputError, match="residual contains NaN"):
        WeightedL1FitRidge(X, 1.0, 0.2).solve_weighted(np.full_like(R, np.nan), known)
