"""TRON on problems with known optima: one at a time, many at once, and against scipy."""

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st

from tagwise.kernels.vectors import dot_rows
from tagwise.losses import get_loss
from tagwise.solvers.tron import tron


class Quadratics:
    """½ Σ_i c_i (x_i − t_i)² for every row of an array: a separable problem with the optimum t."""

    def __init__(self, optimum, scales):
        self.optimum, self.scales = optimum, scales

    def move_to(self, x):
        self.x = x.copy()

    def value(self):
        return 0.5 * np.sum(self.scales * (self.x - self.optimum) ** 2, axis=1, keepdims=True)

    def gradient(self):
        return self.scales * (self.x - self.optimum)

    def hessian_vector(self, direction):
        return self.scales * direction


class LinearClassifiers:
    """ℓ2-penalised linear classifiers on one X, one row of variables per label."""

    def __init__(self, X, targets, loss, reg):
        self.X, self.targets, self.loss, self.reg = X, targets, get_loss(loss), reg

    def move_to(self, w):
        self.w, self.scores = w.copy(), w @ self.X.T

    def value(self):
        losses = self.loss.value(self.targets, self.scores).sum(axis=1, keepdims=True)
        return losses + 0.5 * self.reg * np.sum(self.w**2, axis=1, keepdims=True)

    def gradient(self):
        return self.loss.first(self.targets, self.scores) @ self.X + self.reg * self.w

    def hessian_vector(self, direction):
        curved = self.loss.second(self.targets, self.scores) * (direction @ self.X.T)
        return curved @ self.X + self.reg * direction


def value_at(problem, x):
    problem.move_to(x)
    return problem.value()


def classifiers(loss, n_labels, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 5))
    targets = np.where(rng.random((n_labels, 60)) < 0.4, 1.0, -1.0)
    return LinearClassifiers(X, targets, loss, 0.5)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 999))
def test_finds_planted_optima_of_many_problems(rows, columns, seed):
    rng = np.random.default_rng(seed)
    optimum = 10 * rng.standard_normal((rows, columns))
    scales = np.exp(rng.uniform(-3, 3, (rows, columns)))
    result = tron(Quadratics(optimum, scales), np.zeros((rows, columns)), tol=1e-10, max_iter=200, inner=dot_rows)
    assert result.status in ("converged", "stalled")
    np.testing.assert_allclose(result.solution, optimum, atol=1e-6)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "squared"])
def test_agrees_with_scipy(loss):
    problem = classifiers(loss, 1)

    def value_and_gradient(w):
        value = value_at(problem, w[None, :])
        return value.item(), problem.gradient()[0]

    expected = scipy.optimize.minimize(
        value_and_gradient, np.zeros(5), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10}
    )
    result = tron(problem, np.zeros((1, 5)), tol=1e-9, max_iter=100, cg_tol=1e-3)
    assert result.value.item() == pytest.approx(expected.fun, rel=1e-9)
    np.testing.assert_allclose(result.solution[0], expected.x, atol=1e-5)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_together_is_the_same_as_alone(loss):
    together = classifiers(loss, 7)
    result = tron(together, np.zeros((7, 5)), tol=1e-8, max_iter=100, inner=dot_rows)
    for label in range(7):
        alone = LinearClassifiers(together.X, together.targets[label : label + 1], loss, 0.5)
        single = tron(alone, np.zeros((1, 5)), tol=1e-8, max_iter=100)
        np.testing.assert_allclose(result.solution[label], single.solution[0], atol=1e-8)


def test_start_and_end_are_reported():
    problem = classifiers("logistic", 3)
    start = np.ones((3, 5))
    result = tron(problem, start, tol=1e-3, max_iter=50, inner=dot_rows)
    np.testing.assert_allclose(result.start_value, value_at(problem, start))
    np.testing.assert_allclose(result.value, value_at(problem, result.solution))
    np.testing.assert_array_equal(start, 1)
    assert result.status == "converged"
    assert tron(problem, start, tol=1e-12, max_iter=1, inner=dot_rows).status == "max_iter"


def test_a_tolerance_below_rounding_ends_as_stalled():
    problem = classifiers("logistic", 2)
    result = tron(problem, np.zeros((2, 5)), tol=0, max_iter=1000, inner=dot_rows)
    assert result.status == "stalled"
    assert result.n_iter < 100


def test_the_value_never_rises_and_rejected_steps_do_not_use_up_the_steps():
    """Far from the optimum the first balls are too large; the one step that is allowed must still be taken."""
    for seed in range(20):
        problem = classifiers("squared_hinge", 1, seed)
        start = 30 * np.random.default_rng(seed).standard_normal((1, 5))
        values = [tron(problem, start, tol=0, max_iter=steps, cg_max_iter=3).value.item() for steps in range(8)]
        assert (np.diff(values) <= 1e-9 * np.abs(values[0])).all()
        assert values[1] < values[0]
