"""Sparse logistic regression: its optimality conditions, and hard starts."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.kernels.trees import l1_logistic


def problem(seed=0, n=150, d=30, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = sp.csc_matrix(sp.random(n, d, 0.3, random_state=seed, data_rvs=rng.standard_normal).astype(dtype))
    y = np.where(X @ rng.standard_normal(d) + rng.standard_normal(n) > 0, 1.0, -1.0)
    return X, y, rng.uniform(0.2, 3, n)


def solve(X, y, cost, *, tol=1e-8, max_iter=500, start=None):
    w = np.zeros(X.shape[1]) if start is None else start.copy()
    margins = X @ w
    steps = l1_logistic((X.indptr, X.indices, X.data), y, cost, tol, max_iter, w, margins)
    np.testing.assert_allclose(margins, X @ w, atol=1e-8)
    return w, steps


def value(X, y, cost, w):
    return np.abs(w).sum() + cost @ np.logaddexp(0, -y * (X @ w))


@pytest.mark.parametrize("seed", range(4))
def test_the_optimum(seed):
    """F is convex: a point where 0 is a subgradient is a minimum."""
    X, y, cost = problem(seed)
    w, _ = solve(X, y, cost)
    assert 0 < (w == 0).sum() < len(w)
    gradient = X.T @ (-cost * y / (1 + np.exp(y * (X @ w))))
    np.testing.assert_allclose(gradient[w != 0], -np.sign(w[w != 0]), atol=1e-6)
    assert (np.abs(gradient[w == 0]) <= 1 + 1e-6).all()


def test_every_step_falls_from_any_start():
    X, y, cost = problem(1)
    start = 20 * np.random.default_rng(0).standard_normal(X.shape[1])
    values = [value(X, y, cost, start)]
    w = start
    for _ in range(8):
        w, _ = solve(X, y, cost, max_iter=1, start=w)
        values.append(value(X, y, cost, w))
    assert (np.diff(values) <= 1e-9).all()
    best = value(X, y, cost, solve(X, y, cost)[0])
    far, _ = solve(X, y, cost, start=start)
    assert value(X, y, cost, far) == pytest.approx(best, rel=1e-4)


def test_costs_too_small_for_any_weight_end_at_once():
    X, y, cost = problem(2)
    w, steps = solve(X, y, 1e-4 * cost)
    assert not w.any()
    assert steps == 0


def test_a_looser_tolerance_takes_fewer_steps_and_float32_agrees():
    X, y, cost = problem(3)
    exact, many = solve(X, y, cost)
    rough, few = solve(X, y, cost, tol=0.1)
    assert few < many
    assert value(X, y, cost, exact) <= value(X, y, cost, rough)
    narrow, _ = solve(X.astype(np.float32), y, cost)
    np.testing.assert_allclose(narrow, exact, atol=1e-4)


def test_separable_rows_stay_finite():
    X = sp.csc_matrix(np.array([[1.0], [-1.0]]))
    w, _ = solve(X, np.array([1.0, -1.0]), np.full(2, 1e6))
    # 1 = 2·10⁶/(1 + eʷ) at the optimum.
    assert w[0] == pytest.approx(np.log(2e6 - 1), rel=1e-4)
