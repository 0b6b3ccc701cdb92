"""ADMM against the dual problem, which scipy solves as least squares with bounds, and against optimality itself."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import feature_matrix
from tagwise.solvers.admm import ADMMOptions, L1FitRidge, WeightedL1FitRidge, columns_that_fit

SHAPES = {"tall": (40, 12, None), "wide": (12, 40, None), "deficient": (40, 20, 4), "wide deficient": (15, 30, 5)}
METHODS = ["eigen", "cholesky", "cg"]
TIGHT = ADMMOptions(tol=1e-9, abs_tol=1e-10, max_iter=20_000)


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


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("weights", [(1.0, 0.01), (1.0, 0.5), (0.1, 0.3)])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_reaches_the_value_of_the_dual_problem(shape, weights, method):
    X, R = problem(*shape)
    result = L1FitRidge(X, *weights, method=method).solve(*given_as(X, R), options=TIGHT)
    assert result.status == "converged"
    np.testing.assert_allclose(result.objective, value(X, R, result.solution, *weights), rtol=1e-10)
    least = [least_value(X, r, *weights) for r in R.T]
    np.testing.assert_allclose(result.objective, least, rtol=1e-6)


@settings(max_examples=30)
@given(
    st.integers(2, 15),
    st.integers(1, 15),
    st.floats(0.1, 5),
    st.floats(0.01, 3),
    st.floats(1, 1.8),
    st.integers(0, 999),
)
def test_optimality_conditions(n_rows, n_features, reg, sparsity, relaxation, seed):
    X, R = problem(n_rows, n_features, columns=3, seed=seed)
    solver = L1FitRidge(X, reg, sparsity)
    result = solver.solve(
        *given_as(X, R), options=ADMMOptions(relaxation=relaxation, tol=1e-8, abs_tol=1e-9, max_iter=20_000)
    )
    assert result.status == "converged"
    H, subgradient = result.solution, result.dual / sparsity
    assert np.abs(subgradient).max() <= 1 + 1e-12
    on = result.split != 0
    np.testing.assert_allclose(subgradient[on], np.sign(result.split[on]), atol=1e-12)
    np.testing.assert_allclose(X @ H, result.split, atol=1e-6)
    slope = 2 * X.T @ (X @ H - R) + 2 * reg * H + sparsity * X.T @ subgradient
    assert np.linalg.norm(slope) <= 1e-6 * np.linalg.norm(2 * X.T @ R) + 1e-7
    # The last residual is that slope, without the factor 2.
    np.testing.assert_allclose(2 * result.dual_residual[-1], np.linalg.norm(slope, axis=0), atol=1e-12)
    np.testing.assert_allclose(result.primal_residual[-1], np.linalg.norm(X @ H - result.split, axis=0), atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_without_sparsity_it_is_ridge_regression(shape, method):
    X, R = problem(*shape)
    result = L1FitRidge(X, 0.3, 0, method=method).solve(*given_as(X, R), options=ADMMOptions(tol=1e-9))
    expected = np.linalg.solve(X.T @ X + 0.3 * np.eye(X.shape[1]), X.T @ R)
    np.testing.assert_allclose(result.solution, expected, atol=1e-8)
    np.testing.assert_allclose(result.split, X @ expected, atol=1e-8)
    np.testing.assert_allclose(result.objective, value(X, R, expected, 0.3, 0), rtol=1e-10)
    assert (result.status, result.n_iter) == ("converged", 1)
    assert not result.dual.any()


def test_ridge_regression_that_stops_short_says_so():
    X, R = problem(*SHAPES["tall"])
    result = L1FitRidge(1e6 * X, 1e-6, 0, method="cg").solve(
        1e6 * X.T @ R, np.sum(R**2, axis=0), options=ADMMOptions(tol=0, abs_tol=0)
    )
    assert result.status == "max_iter"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_much_sparsity_leaves_nothing(shape, method):
    X, R = problem(*shape)
    result = L1FitRidge(X, 1.0, 1000.0, method=method).solve(*given_as(X, R), options=TIGHT)
    assert not result.split.any()
    np.testing.assert_allclose(X @ result.solution, 0, atol=1e-7)
    np.testing.assert_allclose(result.objective, np.sum(R**2, axis=0), rtol=1e-6)


@pytest.mark.parametrize("first_penalty", [0.3, 1.0, 30.0])
def test_relaxation_and_adaptation_save_steps_and_change_nothing_else(first_penalty):
    X, R = problem(*SHAPES["tall"], columns=12)

    def steps(**options):
        solver = L1FitRidge(X, 1.0, 0.5, method="eigen", penalty=first_penalty)
        result = solver.solve(*given_as(X, R), options=replace(TIGHT, tol=1e-7, **options))
        assert result.status == "converged"
        return result.column_iterations.sum(), result.objective

    plain, expected = steps(relaxation=1.0, adapt=False)
    relaxed, with_relaxation = steps(relaxation=1.6, adapt=False)
    adapted, with_adaptation = steps(relaxation=1.0, adapt=True)
    both, with_both = steps(relaxation=1.6, adapt=True)
    np.testing.assert_allclose([with_relaxation, with_adaptation, with_both], [expected] * 3, rtol=1e-6)
    assert relaxed < 0.8 * plain
    assert adapted < 0.8 * plain
    assert both < min(relaxed, adapted)


def test_penalty_adapts_only_where_it_can():
    X, R = problem(*SHAPES["tall"])
    for method, fixed in [("eigen", False), ("cg", False), ("cholesky", True)]:
        solver = L1FitRidge(X, 1.0, 0.5, method=method, penalty=100.0)
        assert (solver.solve(*given_as(X, R), options=ADMMOptions(max_iter=50)).penalty == 100.0).all() == fixed
        assert (solver.solve(*given_as(X, R), options=ADMMOptions(max_iter=50, adapt=False)).penalty == 100.0).all()


@pytest.mark.parametrize("shape", [(30, 9), (9, 30)], ids=["tall", "wide"])
@pytest.mark.parametrize("storage", [sp.csr_matrix, np.asarray, feature_matrix])
def test_every_way_of_solving_and_storing_agrees(shape, storage):
    X, R = problem(*shape, seed=3)
    X = np.where(np.abs(X) < 0.2, 0, X)
    results = [L1FitRidge(storage(X), 0.7, 0.4, method=m).solve(*given_as(X, R), options=TIGHT) for m in METHODS]
    for result in results:
        np.testing.assert_allclose(result.solution, results[0].solution, atol=1e-7)
        np.testing.assert_allclose(result.objective, results[0].objective, rtol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_columns_may_come_in_any_blocks(method):
    X, R = problem(30, 10, columns=7)
    solver = L1FitRidge(X, 1.0, 0.3, method=method)
    cross, squared = given_as(X, R)
    together = solver.solve(cross, squared)
    assert len(set(together.column_iterations)) > 1
    for block in [slice(0, 3), slice(3, 4), slice(4, 7)]:
        apart = solver.solve(cross[:, block], squared[block])
        np.testing.assert_array_equal(apart.column_iterations, together.column_iterations[block])
        np.testing.assert_allclose(apart.solution, together.solution[:, block], atol=1e-10)
        np.testing.assert_allclose(apart.split, together.split[:, block], atol=1e-10)
        np.testing.assert_allclose(apart.dual, together.dual[:, block], atol=1e-10)
        np.testing.assert_allclose(apart.penalty, together.penalty[block], rtol=1e-6)
        np.testing.assert_allclose(
            apart.primal_residual[-1], together.primal_residual[apart.n_iter - 1, block], atol=1e-10
        )


@pytest.mark.parametrize("method", METHODS)
def test_result_does_not_depend_on_threads(method):
    X, R = problem(60, 20, columns=300)
    X = sp.csr_matrix(X)
    one, two = (L1FitRidge(X, 1.0, 0.1, method=method, n_threads=n).solve(*given_as(X, R)) for n in (1, 2))
    np.testing.assert_array_equal(one.solution, two.solution)
    np.testing.assert_array_equal(one.dual, two.dual)


@pytest.mark.parametrize("method", METHODS)
def test_warm_start(method):
    X, R = problem(*SHAPES["tall"])
    solver = L1FitRidge(X, 1.0, 0.5, method=method)
    cold = solver.solve(*given_as(X, R), options=TIGHT)
    start = (cold.split, cold.dual)
    again = solver.solve(*given_as(X, R), start=start, options=ADMMOptions(tol=1e-6))
    assert again.n_iter == 1
    np.testing.assert_allclose(again.objective, cold.objective, rtol=1e-6)
    nearby = R + 0.01 * np.random.default_rng(9).standard_normal(R.shape)
    from_nothing = solver.solve(*given_as(X, nearby), options=replace(TIGHT, adapt=False))
    from_there = solver.solve(*given_as(X, nearby), start=start, options=replace(TIGHT, adapt=False))
    assert from_there.column_iterations.sum() < from_nothing.column_iterations.sum()
    np.testing.assert_allclose(from_there.objective, from_nothing.objective, rtol=1e-6)


def test_residuals_fall_and_stand_still_in_the_end():
    X, R = problem(*SHAPES["tall"])
    result = L1FitRidge(X, 1.0, 0.5, method="cholesky").solve(*given_as(X, R), options=TIGHT)
    for residuals in (result.primal_residual, result.dual_residual):
        assert residuals.shape == (result.n_iter, R.shape[1])
        thirds = residuals[[0, result.n_iter // 3, 2 * result.n_iter // 3, -1]].sum(axis=1)
        assert (np.diff(thirds) < 0).all()
        quickest = result.column_iterations.argmin()
        after = residuals[result.column_iterations[quickest] - 1 :, quickest]
        assert (after == after[0]).all()
    assert result.n_iter == result.column_iterations.max()
    assert result.converged.all()


def test_plain_dual_residual_is_that_of_boyd():
    X, R = problem(*SHAPES["tall"])
    solver = L1FitRidge(X, 1.0, 0.5, method="cholesky", penalty=0.7)
    options = {"relaxation": 1.0, "tol": 0, "abs_tol": 0}
    before, after = (solver.solve(*given_as(X, R), options=ADMMOptions(max_iter=steps, **options)) for steps in (4, 5))
    change = 0.7 * np.linalg.norm(X.T @ (after.split - before.split), axis=0)
    np.testing.assert_allclose(after.dual_residual[-1], change, rtol=1e-10)


def test_says_when_steps_ran_out():
    X, R = problem(*SHAPES["tall"])
    result = L1FitRidge(X, 1.0, 0.5).solve(*given_as(X, R), options=ADMMOptions(max_iter=2, tol=1e-12))
    assert (result.status, result.n_iter) == ("max_iter", 2)
    assert not result.converged.any()
    np.testing.assert_allclose(result.objective, value(X, R, result.solution, 1.0, 0.5))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("storage", [sp.csr_matrix, np.asarray])
def test_single_precision(shape, method, storage):
    X, R = problem(*shape)
    X = X.astype(np.float32)
    exact = L1FitRidge(X.astype(np.float64), 0.1, 0.1, method=method).solve(
        *given_as(X.astype(float), R), options=TIGHT
    )
    cross, squared = given_as(X, R.astype(np.float32))
    result = L1FitRidge(storage(X), 0.1, 0.1, method=method).solve(
        cross, squared, options=ADMMOptions(tol=1e-5, max_iter=2000)
    )
    assert result.status == "converged"
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
@pytest.mark.parametrize("method", METHODS)
def test_columns_that_fit_fit(shape, dtype, method):
    rng = np.random.default_rng(0)
    X = sp.random(*shape, 0.02, format="csr", dtype=dtype, random_state=rng)
    limit = 10e6
    size = columns_that_fit(*shape, limit, dtype().itemsize)
    assert size > 20
    R = np.where(rng.random((shape[0], size)) < 0.1, 1, -1).astype(dtype)
    cross, squared = given_as(X, R)
    solver = L1FitRidge(X, 1.0, 0.1, method=method)
    first = solver.solve(cross, squared, options=ADMMOptions(max_iter=2))
    tracemalloc.start()
    solver.solve(cross, squared, start=(first.split, first.dual), options=ADMMOptions(max_iter=20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.4 * limit < peak <= limit
    assert columns_that_fit(10**6, 10**6, 1.0) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cross": np.full((3, 4), np.nan)}, "cross contains NaN"),
        ({"squared_norm": np.full(4, np.inf)}, "squared_norm contains NaN or infinity"),
    ],
)
def test_columns_that_overflowed_are_named(changes, words):
    arguments = {"cross": np.ones((3, 4)), "squared_norm": np.ones(4), **changes}
    with pytest.raises(InvalidInputError, match=words):
        L1FitRidge(np.ones((5, 3)), 1.0, 1.0).solve(**arguments)


def test_a_system_that_rounding_makes_singular_says_so():
    with pytest.raises(InvalidInputError, match="too small beside X"):
        L1FitRidge(1e10 * np.ones((5, 3)), 1e-6, 1.0, method="cholesky")


# Weights: a mask is the problem on the known rows alone, and no sparsity is weighted ridge regression.


def weighted_problem(n_rows=30, n_features=12, columns=4, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_features))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    R = np.where(rng.random((n_rows, columns)) < 0.3, 1.0, -1.0)
    known = (rng.random(R.shape) < 0.6).astype(float)
    known[0] = 1
    return X.astype(dtype), R.astype(dtype), known.astype(dtype), rng.uniform(0.3, 4, R.shape).astype(dtype)


def weighted_value(X, R, omega, H, reg, sparsity):
    fitted = X @ H
    loss = omega * (R - fitted) ** 2 + sparsity * np.abs(fitted) * (omega > 0)
    return loss.sum(axis=0) + reg * np.sum(H**2, axis=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(30, 12), (12, 30)])
def test_a_mask_is_the_problem_on_the_known_rows(shape, method):
    X, R, known, _ = weighted_problem(*shape)
    result = WeightedL1FitRidge(X, 0.8, 0.3, method=method).solve_weighted(R, known, options=TIGHT)
    assert result.status == "converged"
    np.testing.assert_allclose(result.objective, weighted_value(X, R, known, result.solution, 0.8, 0.3), rtol=1e-12)
    for column in range(R.shape[1]):
        rows = known[:, column] > 0
        alone = L1FitRidge(X[rows], 0.8, 0.3)
        r = R[rows, column : column + 1]
        expected = alone.solve(X[rows].T @ r, np.sum(r**2, axis=0), options=TIGHT)
        np.testing.assert_allclose(result.objective[column], expected.objective[0], rtol=1e-7)
        np.testing.assert_allclose(result.solution[:, column], expected.solution[:, 0], atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_without_sparsity_it_is_weighted_ridge_regression(method):
    X, R, known, omega = weighted_problem()
    omega = omega * known
    result = WeightedL1FitRidge(X, 0.8, 0.0, method=method).solve_weighted(R, omega, options=TIGHT)
    for column in range(R.shape[1]):
        w = omega[:, column]
        expected = np.linalg.solve(X.T @ (w[:, None] * X) + 0.8 * np.eye(12), X.T @ (w * R[:, column]))
        np.testing.assert_allclose(result.solution[:, column], expected, atol=1e-7)


def test_whole_weights_of_rows_are_repeated_rows():
    X, R, known, _ = weighted_problem()
    times = np.random.default_rng(1).integers(1, 4, len(X))
    weighted = WeightedL1FitRidge(X, 0.8, 0.3, row_weight=times.astype(float))
    found = weighted.solve_weighted(R, known * times[:, None], options=TIGHT)
    rows = np.repeat(np.arange(len(X)), times)
    expected = WeightedL1FitRidge(X[rows], 0.8, 0.3).solve_weighted(R[rows], known[rows], options=TIGHT)
    assert found.status == expected.status == "converged"
    np.testing.assert_allclose(found.objective, expected.objective, rtol=1e-6)
    np.testing.assert_allclose(found.solution, expected.solution, atol=1e-5)


@settings(max_examples=30)
@given(st.integers(2, 15), st.integers(1, 15), st.floats(0.1, 5), st.floats(0.01, 2), st.integers(0, 999))
def test_weighted_optimality_conditions(n_rows, n_features, reg, sparsity, seed):
    X, R, known, omega = weighted_problem(n_rows, n_features, 3, seed)
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
    X, R, known, _ = weighted_problem()
    solver = WeightedL1FitRidge(X, 1.0, 0.2)
    together = solver.solve_weighted(R, known, options=TIGHT)
    alone = solver.solve_weighted(R[:, 1:2], known[:, 1:2], options=TIGHT)
    np.testing.assert_allclose(together.solution[:, 1], alone.solution[:, 0], atol=1e-7)
    single = [array.astype(np.float32) for array in (X, R, known)]
    near = WeightedL1FitRidge(single[0], 1.0, 0.2).solve_weighted(*single[1:])
    assert near.solution.dtype == np.float32
    np.testing.assert_allclose(near.objective, together.objective, rtol=1e-4)


def test_a_warm_start_takes_fewer_steps():
    X, R, known, _ = weighted_problem()
    solver = WeightedL1FitRidge(X, 1.0, 0.2)
    cold = solver.solve_weighted(R, known)
    warm = solver.solve_weighted(R, known, start=(cold.split, cold.dual))
    assert warm.n_iter < cold.n_iter
    np.testing.assert_allclose(warm.objective, cold.objective, rtol=1e-4)


def test_a_residual_that_overflowed_is_named():
    X, R, known, _ = weighted_problem()
    with pytest.raises(InvalidInputError, match="residual contains NaN"):
        WeightedL1FitRidge(X, 1.0, 0.2).solve_weighted(np.full_like(R, np.nan), known)
