"""ADMM against the dual problem, which scipy solves as least squares with bounds, and against optimality itself."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import feature_matrix
from tagwise.solvers import admm
from tagwise.solvers.admm import L1FitRidge, WeightedL1FitRidge, columns_that_fit

SHAPES = {"tall": (40, 12, None), "wide": (12, 40, None), "deficient": (40, 20, 4), "wide deficient": (15, 30, 5)}
METHODS = ["eigen", "cholesky", "cg"]
TIGHT = {"tol": 1e-9, "max_iter": 20_000}


@pytest.fixture(autouse=True, scope="module")
def no_absolute_tolerance():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admm, "_ABSOLUTE_TOL", 1e-10)
        yield


def problem(n_rows, n_features, rank=None, *, columns=5, seed=0):
    """Unit rows and ±1 columns; with ``rank`` a matrix that has only so much."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_features)) * (rng.random((n_rows, n_features)) < 0.5)
    if rank is not None:
        X = rng.standard_normal((n_rows, rank)) @ rng.standard_normal((rank, n_features))
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-3)
    return X, np.where(rng.random((n_rows, columns)) < 0.25, 1.0, -1.0)


def given_as(X, R):
    return X.T @ R, np.sum(R**2, axis=0)


def value(X, R, H, reg, sparsity):
    fitted = X @ H
    return np.sum((R - fitted) ** 2, axis=0) + reg * np.sum(H**2, axis=0) + sparsity * np.abs(fitted).sum(axis=0)


def least_value(X, r, reg, sparsity):
    """max over |s| ≤ 1 of ‖r‖² − ‖A^(−½)Xᵀ(r − ½λ3 s)‖², A = XᵀX + λ1 I: by strong duality the least objective."""
    values, vectors = np.linalg.eigh(X.T @ X + reg * np.eye(X.shape[1]))
    M = (vectors / np.sqrt(values)) @ vectors.T @ X.T
    s = lsq_linear(M, M @ r * (2 / sparsity), bounds=(-1, 1), method="bvls", tol=1e-14).x
    return r @ r - np.sum((M @ (r - sparsity / 2 * s)) ** 2)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_reaches_the_value_of_the_dual_problem_and_without_sparsity_ridge_regression(shape):
    X, R = problem(*shape)
    for weights in [(1.0, 0.01), (1.0, 0.5), (0.1, 0.3)]:
        least = [least_value(X, r, *weights) for r in R.T]
        for method in METHODS:
            result = L1FitRidge(X, *weights, method=method).solve(*given_as(X, R), **TIGHT)
            assert result.converged.all()
            np.testing.assert_allclose(result.objective, value(X, R, result.solution, *weights), rtol=1e-10)
            np.testing.assert_allclose(result.objective, least, rtol=1e-6)
    expected = np.linalg.solve(X.T @ X + 0.3 * np.eye(X.shape[1]), X.T @ R)
    for method in METHODS:
        result = L1FitRidge(X, 0.3, 0, method=method).solve(*given_as(X, R), tol=1e-9)
        np.testing.assert_allclose(result.solution, expected, atol=1e-8)
        np.testing.assert_allclose(result.split, X @ expected, atol=1e-8)
        np.testing.assert_allclose(result.objective, value(X, R, expected, 0.3, 0), rtol=1e-10)
        assert result.converged.all()
        assert not result.dual.any()


@settings(max_examples=30)
@given(st.integers(2, 15), st.integers(1, 15), st.floats(0.1, 5), st.floats(0.01, 3), st.integers(0, 999))
def test_optimality_conditions(n_rows, n_features, reg, sparsity, seed):
    X, R = problem(n_rows, n_features, columns=3, seed=seed)
    result = L1FitRidge(X, reg, sparsity).solve(*given_as(X, R), tol=1e-8, max_iter=20_000)
    assert result.converged.all()
    H, subgradient = result.solution, result.dual / sparsity
    assert np.abs(subgradient).max() <= 1 + 1e-12
    on = result.split != 0
    np.testing.assert_allclose(subgradient[on], np.sign(result.split[on]), atol=1e-12)
    np.testing.assert_allclose(X @ H, result.split, atol=1e-6)
    slope = 2 * X.T @ (X @ H - R) + 2 * reg * H + sparsity * X.T @ subgradient
    assert np.linalg.norm(slope) <= 1e-6 * np.linalg.norm(2 * X.T @ R) + 1e-7


@pytest.mark.parametrize("penalty", [0.3, 30.0])
def test_relaxation_and_adaptation_save_steps_and_change_nothing_else(monkeypatch, penalty):
    X, R = problem(*SHAPES["tall"], columns=12)
    monkeypatch.setattr(admm, "_PENALTY", penalty)
    expected = [least_value(X, r, 1.0, 0.5) for r in R.T]

    def steps(relaxation, adapt_until):
        calls = []
        with monkeypatch.context() as patch:
            patch.setattr(admm, "_RELAXATION", relaxation)
            patch.setattr(admm, "_ADAPT_UNTIL", adapt_until)
            solver = L1FitRidge(X, 1.0, 0.5, method="eigen")
            step = solver._step
            patch.setattr(solver, "_step", lambda state: calls.append(len(state.columns)) or step(state))
            result = solver.solve(*given_as(X, R), tol=1e-7, max_iter=20_000)
        np.testing.assert_allclose(result.objective, expected, rtol=1e-6)
        return sum(calls)

    plain, relaxed, adapted, both = steps(1.0, 0), steps(1.6, 0), steps(1.0, 200), steps(1.6, 200)
    assert max(relaxed, adapted) < 0.8 * plain
    assert both < min(relaxed, adapted)


@pytest.mark.parametrize("shape", [(30, 9), (9, 30)], ids=["tall", "wide"])
def test_every_way_of_solving_and_storing_agrees(shape):
    X, R = problem(*shape, seed=3)
    X = np.where(np.abs(X) < 0.2, 0, X)
    expected = L1FitRidge(X, 0.7, 0.4).solve(*given_as(X, R), **TIGHT)
    for storage in (sp.csr_matrix, np.asarray, feature_matrix):
        for method in METHODS:
            result = L1FitRidge(storage(X), 0.7, 0.4, method=method).solve(*given_as(X, R), **TIGHT)
            np.testing.assert_allclose(result.solution, expected.solution, atol=1e-7)
            np.testing.assert_allclose(result.objective, expected.objective, rtol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_columns_may_come_in_any_blocks_and_threads_change_no_bit(method):
    X, R = problem(60, 20, columns=300)
    cross, squared = given_as(X, R)
    one, two = (L1FitRidge(sp.csr_matrix(X), 1.0, 0.1, method=method, n_threads=n) for n in (1, 2))
    together, threaded = one.solve(cross, squared), two.solve(cross, squared)
    for name in ("solution", "split", "dual"):
        np.testing.assert_array_equal(getattr(together, name), getattr(threaded, name))
    for block in [slice(0, 3), slice(3, 4), slice(4, 7)]:
        apart = one.solve(cross[:, block], squared[block])
        for name in ("solution", "split", "dual"):
            np.testing.assert_allclose(getattr(apart, name), getattr(together, name)[:, block], atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_a_start_near_the_solution_saves_steps(method):
    X, R = problem(*SHAPES["tall"])
    solver = L1FitRidge(X, 1.0, 1e-3, method=method)
    done = solver.solve(*given_as(X, R), **TIGHT)
    nearby = given_as(X, R + 0.01 * np.random.default_rng(9).standard_normal(R.shape))
    best = solver.solve(*nearby, **TIGHT).objective
    cold, warm = (solver.solve(*nearby, start=start, max_iter=2) for start in (None, done.split))
    assert (warm.objective - best).sum() < 0.1 * (cold.objective - best).sum()
    again = solver.solve(*nearby, start=done.split, **TIGHT)
    np.testing.assert_allclose(again.objective, best, rtol=1e-6)


def test_says_when_steps_ran_out():
    X, R = problem(*SHAPES["tall"])
    result = L1FitRidge(X, 1.0, 0.5).solve(*given_as(X, R), max_iter=2, tol=1e-12)
    assert not result.converged.any()
    np.testing.assert_allclose(result.objective, value(X, R, result.solution, 1.0, 0.5))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_single_precision(shape):
    X, R = problem(*shape)
    X = X.astype(np.float32)
    exact = L1FitRidge(X.astype(np.float64), 0.1, 0.1).solve(*given_as(X.astype(float), R), **TIGHT)
    cross, squared = given_as(X, R.astype(np.float32))
    for method in METHODS:
        for storage in (sp.csr_matrix, np.asarray):
            result = L1FitRidge(storage(X), 0.1, 0.1, method=method).solve(cross, squared, tol=1e-5, max_iter=2000)
            assert result.converged.all()
            assert {a.dtype for a in (result.solution, result.split, result.dual)} == {np.dtype(np.float32)}
            assert result.objective.dtype == np.float64
            np.testing.assert_allclose(result.objective, exact.objective, rtol=1e-4)
            np.testing.assert_allclose(result.solution, exact.solution, atol=5e-3)


def test_method_follows_size_and_memory():
    X = sp.random(60, 50, 0.1, format="csr", random_state=0)
    assert L1FitRidge(X, 1, 1).method == "eigen"
    assert L1FitRidge(X, 1, 1, memory_limit=16 * 50**2).method == "cholesky"
    assert L1FitRidge(X, 1, 1, memory_limit=16 * 50**2 - 1).method == "cg"
    assert L1FitRidge(X[:20], 1, 1, memory_limit=16 * 20**2).method == "cholesky"
    # A wide dense matrix of single precision needs a copy too.
    dense = X[:20].toarray().astype(np.float32)
    assert L1FitRidge(dense, 1, 1, memory_limit=16 * 20**2).method == "cg"


@pytest.mark.parametrize("shape", [(1500, 200), (200, 1500), (700, 700)], ids=["tall", "wide", "square"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_that_fit_fit(shape, dtype):
    rng = np.random.default_rng(0)
    X = sp.random(*shape, 0.02, format="csr", dtype=dtype, random_state=rng)
    limit = 10e6
    size = columns_that_fit(*shape, limit, dtype().itemsize)
    assert size > 20
    R = np.where(rng.random((shape[0], size)) < 0.1, 1, -1).astype(dtype)
    cross, squared = given_as(X, R)
    for method in METHODS:
        solver = L1FitRidge(X, 1.0, 0.1, method=method)
        first = solver.solve(cross, squared, max_iter=2)
        tracemalloc.start()
        solver.solve(cross, squared, start=first.split, max_iter=20)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert 0.4 * limit < peak <= limit
    assert columns_that_fit(10**6, 10**6, 1.0) == 1


def test_what_overflowed_is_named():
    solver, cross, squared = L1FitRidge(np.ones((5, 3)), 1.0, 1.0), np.ones((3, 4)), np.ones(4)
    with pytest.raises(InvalidInputError, match="cross contains NaN"):
        solver.solve(np.nan * cross, squared)
    with pytest.raises(InvalidInputError, match="squared_norm contains NaN or infinity"):
        solver.solve(cross, np.inf * squared)
    with pytest.raises(InvalidInputError, match="residual contains NaN"):
        WeightedL1FitRidge(np.ones((5, 3)), 1.0, 0.2).solve_weighted(np.full((5, 2), np.nan), np.ones((5, 2)))
    with pytest.raises(InvalidInputError, match="too small beside X"):
        L1FitRidge(1e10 * np.ones((5, 3)), 1e-6, 1.0, method="cholesky")


# Weights: a mask is the problem on the known rows alone, and no sparsity is weighted ridge regression.


def weighted_problem(n_rows=30, n_features=12, columns=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_features))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    R = np.where(rng.random((n_rows, columns)) < 0.3, 1.0, -1.0)
    known = (rng.random(R.shape) < 0.6).astype(float)
    known[0] = 1
    return X, R, known, rng.uniform(0.3, 4, R.shape)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(30, 12), (12, 30)])
def test_a_mask_is_the_problem_on_the_known_rows_and_no_sparsity_weighted_ridge_regression(shape, method):
    X, R, known, omega = weighted_problem(*shape)
    result = WeightedL1FitRidge(X, 0.8, 0.3, method=method).solve_weighted(R, known, **TIGHT)
    ridge = WeightedL1FitRidge(X, 0.8, 0.0, method=method).solve_weighted(R, omega * known, **TIGHT)
    assert result.converged.all()
    for column in range(R.shape[1]):
        rows, w = known[:, column] > 0, (omega * known)[:, column]
        r = R[rows, column : column + 1]
        alone = L1FitRidge(X[rows], 0.8, 0.3).solve(X[rows].T @ r, np.sum(r**2, axis=0), **TIGHT)
        np.testing.assert_allclose(result.objective[column], alone.objective[0], rtol=1e-7)
        np.testing.assert_allclose(result.solution[:, column], alone.solution[:, 0], atol=1e-5)
        expected = np.linalg.solve(X.T @ (w[:, None] * X) + 0.8 * np.eye(shape[1]), X.T @ (w * R[:, column]))
        np.testing.assert_allclose(ridge.solution[:, column], expected, atol=1e-7)


def test_whole_weights_of_rows_are_repeated_rows():
    X, R, known, _ = weighted_problem()
    times = np.random.default_rng(1).integers(1, 4, len(X))
    weighted = WeightedL1FitRidge(X, 0.8, 0.3, row_weight=times.astype(float))
    found = weighted.solve_weighted(R, known * times[:, None], **TIGHT)
    rows = np.repeat(np.arange(len(X)), times)
    expected = WeightedL1FitRidge(X[rows], 0.8, 0.3).solve_weighted(R[rows], known[rows], **TIGHT)
    np.testing.assert_allclose(found.objective, expected.objective, rtol=1e-6)
    np.testing.assert_allclose(found.solution, expected.solution, atol=1e-5)


@settings(max_examples=30)
@given(st.integers(2, 15), st.integers(1, 15), st.floats(0.1, 5), st.floats(0.01, 2), st.integers(0, 999))
def test_weighted_optimality_conditions(n_rows, n_features, reg, sparsity, seed):
    X, R, known, omega = weighted_problem(n_rows, n_features, 3, seed)
    omega = omega * known
    result = WeightedL1FitRidge(X, reg, sparsity).solve_weighted(R, omega, tol=1e-8, max_iter=20_000)
    assert result.converged.all()
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


def test_weighted_columns_do_not_influence_each_other_and_float32_is_near():
    X, R, known, _ = weighted_problem()
    solver = WeightedL1FitRidge(X, 1.0, 0.2)
    together = solver.solve_weighted(R, known, **TIGHT)
    alone = solver.solve_weighted(R[:, 1:2], known[:, 1:2], **TIGHT)
    np.testing.assert_allclose(together.solution[:, 1], alone.solution[:, 0], atol=1e-7)
    single = [array.astype(np.float32) for array in (X, R, known)]
    near = WeightedL1FitRidge(single[0], 1.0, 0.2).solve_weighted(*single[1:])
    assert near.solution.dtype == np.float32
    np.testing.assert_allclose(near.objective, together.objective, rtol=1e-4)
