"""The support vector machine kernels: against their slow twin, sparse and pruned, and the streams that order rows."""

import numpy as np
import pytest
import reference_kernels as reference
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.dual_coordinate_descent import Descent, train_sparse_svms
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


# Rankers on few rows: the machines of the dense solver, pruned and sparse.


def problem(n=80, d=30, n_labels=7, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = sp.random(n, d, 0.3, "csr", random_state=0, dtype=dtype)
    on = rng.random((n_labels, n)) < 0.2
    off = (rng.random((n_labels, n)) < 0.4) & ~on
    on[3], off[4] = False, False
    return X, sp.csr_matrix(on.astype(dtype)), sp.csr_matrix(off.astype(dtype))


@pytest.mark.parametrize("intercept_scale", [0.0, 1.0])
def test_weights_are_those_of_the_dense_solver(intercept_scale):
    X, on, off = problem()
    descent = Descent(constant=intercept_scale, tol=1e-7, max_iter=5000)
    weights, intercept, _ = train_sparse_svms(X, on, off, descent, C=0.5)
    expected = dual_coordinate_descent(X, on, off, descent=descent, reg=2.0)
    assert weights.shape == (7, 30)
    assert weights.has_sorted_indices
    for label in (0, 1, 2, 5, 6):
        np.testing.assert_allclose(weights[label].toarray()[0], expected.coefficients[label], atol=1e-5)
        assert intercept[label] == pytest.approx(expected.intercept[label], abs=1e-5)
    for label in (3, 4):  # nothing on, nothing off
        assert weights[label].nnz == 0
        assert intercept[label] == 0


def test_a_cost_per_row_is_a_row_that_is_there_as_often():
    X, on, off = problem()
    times = np.random.default_rng(1).integers(1, 4, X.shape[0])
    rows = np.repeat(np.arange(X.shape[0]), times)
    descent = Descent(tol=1e-8, max_iter=10_000)
    weighted = train_sparse_svms(X, on, off, descent, C=0.5 * times)
    repeated = train_sparse_svms(X[rows], on[:, rows], off[:, rows], descent, C=0.5)
    for ours, theirs in zip(weighted, repeated):
        ours, theirs = (part.toarray() if sp.issparse(part) else part for part in (ours, theirs))
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_pruning_drops_small_weights_and_nothing_else_for_every_number_of_threads():
    X, on, off = problem(n=3000, d=200, n_labels=60, dtype=np.float32)
    whole, intercept, _ = train_sparse_svms(X, on, off, Descent(), C=1.0)
    assert whole.dtype == np.float32
    dense = whole.toarray()
    for threads in (1, 2, 3):
        few, same, _ = train_sparse_svms(X, on, off, Descent(), C=1.0, prune=0.3, n_threads=threads)
        np.testing.assert_array_equal(few.toarray(), np.where(np.abs(dense) >= 0.3, dense, 0))
        np.testing.assert_array_equal(same, intercept)
        assert 0 < few.nnz < whole.nnz


def test_rows_are_visited_in_an_order_that_one_row_more_does_not_change():
    """Long before convergence a row that hardly counts changes hardly anything, but label, seed and pass do."""
    X, on, off = problem(n=400, d=60)
    costs = np.ones(400)
    costs[::50] = 1e-9
    some = [sp.csr_matrix(pairs @ sp.diags((costs == 1).astype(float))) for pairs in (on, off)]
    twice = [sp.vstack([each[0]] * 2, format="csr") for each in (on, off)]
    for pairs in some:
        pairs.eliminate_zeros()
        pairs.sort_indices()
    for passes in (1, 2):
        descent = Descent(tol=0, max_iter=passes)
        whole, fewer = train_sparse_svms(X, on, off, descent, C=costs), train_sparse_svms(X, *some, descent, C=1.0)
        far = train_sparse_svms(X, *some, descent._replace(seed=1), C=1.0)
        np.testing.assert_allclose(whole[0].toarray(), fewer[0].toarray(), atol=1e-7)
        np.testing.assert_allclose(whole[1], fewer[1], atol=1e-7)
        assert np.abs(far[0] - fewer[0]).max() > 1e-3
        alike = train_sparse_svms(X, *twice, descent, C=1.0)[0].toarray()
        assert np.abs(alike[0] - alike[1]).max() > 1e-3


def test_shapes_that_do_not_fit_are_named():
    X, on, off = problem()
    with pytest.raises(InvalidInputError, match="must be L×n"):
        train_sparse_svms(X, on[:, :3], off[:, :3], Descent(), C=1.0)
