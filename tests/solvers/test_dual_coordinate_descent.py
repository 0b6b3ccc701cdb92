"""Linear support vector machines: scikit-learn's objective, subsets, costs, batches, threads, bad input."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from tagwise.kernels.dual_coordinate_descent import Descent
from tagwise.solvers.dual_coordinate_descent import dual_coordinate_descent

N, D, L = 120, 15, 9


def data(dtype=np.float64):
    rng = np.random.default_rng(0)
    X = sp.random(N, D, 0.5, format="csr", random_state=0, data_rvs=rng.standard_normal).astype(dtype)
    Y = X @ rng.standard_normal((D, L)) + 0.5 * rng.standard_normal((N, L)) > 0.7
    return X, Y.astype(dtype)


def solve(X, on, off=None, *, loss="hinge", intercept_scale=1.0, tol=1e-3, max_iter=1000, seed=0, **more):
    descent = Descent(loss == "squared_hinge", float(intercept_scale), tol, max_iter, seed)
    return dual_coordinate_descent(X, on, off, descent=descent, **more)


def by_label(Y):
    return sp.csr_matrix(Y.T)


def objective(X, y, w, b, *, loss, reg, cost=1.0, scale=1.0):
    short = np.maximum(0, 1 - y * (X @ w + b))
    return reg / 2 * (w @ w + (b / scale) ** 2) + np.sum(cost * (short if loss == "hinge" else short**2))


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("reg", [0.3, 2.0])
def test_scikit_learns_optimum(loss, reg):
    X, Y = data()
    found = solve(X, by_label(Y), loss=loss, reg=reg, tol=1e-6, max_iter=50_000)
    assert found.converged.all()
    for j in range(L):
        y = np.where(Y[:, j] > 0, 1, -1)
        peer = LinearSVC(loss=loss, C=1 / reg, tol=1e-8, max_iter=10**6, random_state=0).fit(X, y)
        ours = objective(X, y, found.coefficients[j], found.intercept[j], loss=loss, reg=reg)
        theirs = objective(X, y, peer.coef_[0], peer.intercept_[0], loss=loss, reg=reg)
        assert ours == pytest.approx(theirs, rel=1e-5)
        assert found.value[j] == pytest.approx(ours, rel=1e-9)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_costs_are_scikit_learns_sample_weights_and_rows_without_a_cost_take_no_part(loss):
    X, Y = data()
    rng = np.random.default_rng(1)
    cost = rng.uniform(0.2, 4, Y.shape) * (rng.random(Y.shape) < 0.7)
    on, off = by_label(np.where(Y > 0, cost, 0)), by_label(np.where(Y > 0, 0, cost))
    found = solve(X, on, off, loss=loss, intercept_scale=2.0, tol=1e-6, max_iter=50_000)
    for j in range(3):
        y = np.where(Y[:, j] > 0, 1, -1)
        peer = LinearSVC(loss=loss, tol=1e-8, max_iter=10**6, intercept_scaling=2.0, random_state=0)
        peer.fit(X, y, sample_weight=cost[:, j])
        theirs = objective(X, y, peer.coef_[0], peer.intercept_[0], loss=loss, reg=1, cost=cost[:, j], scale=2.0)
        assert found.value[j] == pytest.approx(theirs, rel=1e-5)


def test_no_negatives_given_means_every_other_row_at_cost_one():
    X, Y = data()
    implied = solve(X, by_label(Y), tol=1e-8, max_iter=50_000)
    given = solve(X, by_label(Y), by_label(1 - Y), tol=1e-8, max_iter=50_000)
    np.testing.assert_allclose(implied.value, given.value, rtol=1e-7)
    np.testing.assert_allclose(implied.coefficients, given.coefficients, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bit_identical_for_every_thread_count_and_batch(dtype):
    X, Y = data(dtype)
    one, three = (solve(X, by_label(Y), tol=1e-3, n_threads=t) for t in (1, 3))
    assert one.coefficients.dtype == dtype
    for name in ("coefficients", "intercept", "value", "n_iter", "violation"):
        np.testing.assert_array_equal(getattr(one, name), getattr(three, name))
    ids = np.array([5, 2])
    some = solve(X, by_label(Y)[ids], tol=1e-3, streams=ids)
    np.testing.assert_array_equal(some.coefficients, one.coefficients[ids])
    other = solve(X, by_label(Y), tol=1e-1, seed=1)
    assert (other.coefficients != solve(X, by_label(Y), tol=1e-1).coefficients).any()


def test_stopping_short_is_told():
    X, Y = data()
    short = solve(X, by_label(Y), tol=1e-8, max_iter=2)
    assert not short.converged.any()
    assert (short.n_iter == 2).all()
    assert (short.violation > 1e-8).all()
    done = solve(X, by_label(Y), tol=1e-2)
    assert done.converged.all()
    assert (done.violation <= 1e-2).all()
