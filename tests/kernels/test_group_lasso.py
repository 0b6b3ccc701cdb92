"""The group lasso kernel and its parts against what they must compute."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_kernels import group_lasso_gap, group_lasso_objective, proximal_group_lasso

from tagwise.kernels import group_lasso as kernel

STARTS = np.array([0, 2, 3, 6, 8])
REG = 0.2


def problem(seed, n=4, p=12):
    rng = np.random.default_rng(seed)
    atoms = rng.standard_normal((STARTS[-1], p)) + rng.standard_normal(p)
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    X = rng.standard_normal((n, p)) + atoms[rng.integers(0, len(atoms), n)]
    return X / np.linalg.norm(X, axis=1, keepdims=True), atoms


def curvature(gram):
    return np.array([np.linalg.eigvalsh(gram[a:b, a:b])[-1] for a, b in pairwise(STARTS)])


def test_solutions_agree_with_the_slow_twin():
    X, atoms = problem(0, n=30)
    gram, c = atoms @ atoms.T, X @ atoms.T
    n_rows = len(X)
    beta, gaps = np.empty_like(c), np.empty(n_rows)
    passes, screened = np.empty(n_rows, dtype=np.int64), np.empty(n_rows, dtype=np.int64)
    grouped = kernel.GroupedGram(gram, STARTS, curvature(gram))
    kernel.solve_group_lasso(c, np.ones(n_rows), grouped, REG, 1e-12, 10_000, (beta, gaps, passes, screened))
    slow = proximal_group_lasso(X, atoms, STARTS, REG, tol=1e-12, max_iter=100_000)
    np.testing.assert_allclose(beta, slow, atol=1e-5)
    np.testing.assert_allclose(
        group_lasso_objective(X, atoms, STARTS, REG, beta),
        group_lasso_objective(X, atoms, STARTS, REG, slow),
        atol=1e-11,
    )
    np.testing.assert_allclose(gaps, group_lasso_gap(X, atoms, STARTS, REG, beta), atol=1e-14)


@given(st.integers(0, 10**6), st.booleans())
def test_a_pass_lowers_the_objective_and_keeps_the_gradient(seed, warm):
    X, atoms = problem(seed, n=1)
    gram, c = atoms @ atoms.T, (X @ atoms.T)[0]
    beta = np.random.default_rng(seed).standard_normal(len(c)) if warm else np.zeros(len(c))
    gradient = c - gram @ beta
    before = group_lasso_objective(X, atoms, STARTS, REG, beta[None])[0]
    kernel._one_pass(gram, STARTS, curvature(gram), REG, beta, gradient, np.empty(len(c)))
    assert group_lasso_objective(X, atoms, STARTS, REG, beta[None])[0] <= before + 1e-12
    np.testing.assert_allclose(gradient, c - gram @ beta, atol=1e-12)


@given(st.integers(0, 10**6), st.integers(0, 20))
def test_a_newton_step_lowers_the_objective_and_keeps_the_gradient(seed, passes):
    X, atoms = problem(seed, n=1)
    gram, c = atoms @ atoms.T, (X @ atoms.T)[0]
    beta = np.random.default_rng(seed).standard_normal(len(c))
    gradient = c - gram @ beta
    for _ in range(passes):
        kernel._one_pass(gram, STARTS, curvature(gram), REG, beta, gradient, np.empty(len(c)))
    before = group_lasso_objective(X, atoms, STARTS, REG, beta[None])[0]
    in_use = np.count_nonzero(beta)
    vanished = kernel._newton_step(gram, STARTS, REG, beta, gradient)
    assert group_lasso_objective(X, atoms, STARTS, REG, beta[None])[0] <= before + 1e-12
    np.testing.assert_allclose(gradient, c - gram @ beta, atol=1e-11)
    assert (np.count_nonzero(beta) < in_use) == vanished


def test_newton_steps_end_at_the_minimum():
    """From near it, three steps leave a slope of rounding size; coordinate descent takes some passes for each digit."""
    X, atoms = problem(3, n=1)
    gram, c = atoms @ atoms.T, (X @ atoms.T)[0]
    slow = proximal_group_lasso(X, atoms, STARTS, REG, tol=1e-14, max_iter=100_000)[0]
    beta = np.where(slow != 0, 1.01 * slow, 0)
    gradient = c - gram @ beta
    for _ in range(3):
        kernel._newton_step(gram, STARTS, REG, beta, gradient)
    np.testing.assert_allclose(beta, slow, atol=1e-6)
    lengths = np.sqrt(np.add.reduceat(beta**2, STARTS[:-1]))
    slope = gradient - REG * beta / np.repeat(np.where(lengths > 0, lengths, 1), np.diff(STARTS))
    np.testing.assert_allclose(slope[beta != 0], 0, atol=1e-9)


def test_small_symmetric_systems():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((6, 6))
    system = root @ root.T + np.eye(6)
    right = rng.standard_normal(6)
    solution = right.copy()
    assert kernel._solve_symmetric(system.copy(), solution)
    np.testing.assert_allclose(solution, np.linalg.solve(system, right), rtol=1e-8)
    assert not kernel._solve_symmetric(-np.eye(3), np.ones(3))


def test_the_working_set_holds_what_is_in_use_and_the_worst_violators():
    beta = np.zeros(STARTS[-1])
    beta[2] = 0.5
    in_play = np.array([True, True, True, False])
    norms = np.array([0.3, 0.1, 0.5, 0.9])
    chosen = np.empty(4, dtype=bool)
    assert kernel._choose(beta, STARTS, REG, in_play, norms, chosen) == 6
    assert chosen.tolist() == [True, True, True, False]
    norms[0] = REG
    assert kernel._choose(beta, STARTS, REG, in_play, norms, chosen) == 4
    assert chosen.tolist() == [False, True, True, False]


def test_the_gap_of_nothing_is_half_the_square_less_what_a_scaled_row_reaches():
    c = np.array([0.6, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0])
    norms = np.empty(4)
    gap, scale = kernel._gap(c, c, np.zeros(8), 1.0, STARTS, 0.3, np.ones(4, dtype=bool), norms)
    assert scale == pytest.approx(0.5)
    assert gap == pytest.approx(0.5 * (1 - 0.5) ** 2)
    np.testing.assert_allclose(norms, [0.6, 0.1, 0, 0])
