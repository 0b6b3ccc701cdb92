"""The support vector machine kernels: against their slow twin, sparse and pruned, and the streams that order rows."""

import numpy as np
import pytest
import reference_kernels as reference
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.dual_coordinate_descent import Descent, train_sparse_svms
from tagwise.kernels.random_stream import next_below, random_stream
from tagwise.kernels.shortlists import Lookup, shortlist_margins
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


# Rankers on few rows: the machines of the dense solver, pruned and sparse; margins of shortlists.


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


def test_the_objective_is_that_of_the_dense_solver():
    X, on, off = problem()
    descent = Descent(tol=1e-7, max_iter=5000)
    _, _, objective = train_sparse_svms(X, on, off, descent, C=0.5)
    expected = dual_coordinate_descent(X, on, off, descent=descent, reg=2.0)
    trained = [0, 1, 2, 5, 6]
    # There C is 1 and the penalty's factor 2: twice this objective.
    np.testing.assert_allclose(2 * objective[trained], expected.value[trained], rtol=1e-6)
    np.testing.assert_array_equal(objective[[3, 4]], 0)


def test_pruning_drops_small_weights_and_nothing_else():
    X, on, off = problem()
    descent = Descent(tol=1e-4, max_iter=200)
    whole, _, _ = train_sparse_svms(X, on, off, descent, C=1.0)
    few, _, _ = train_sparse_svms(X, on, off, descent, C=1.0, prune=0.3)
    dense = whole.toarray()
    np.testing.assert_array_equal(few.toarray(), np.where(np.abs(dense) >= 0.3, dense, 0))
    assert 0 < few.nnz < whole.nnz


def test_same_bits_for_every_number_of_threads():
    X, on, off = problem(n=3000, d=200, n_labels=60, dtype=np.float32)
    one = train_sparse_svms(X, on, off, Descent(), C=1.0)
    assert one[0].dtype == np.float32
    for threads in (2, 3):
        many = train_sparse_svms(X, on, off, Descent(), C=1.0, n_threads=threads)
        assert (many[0] != one[0]).nnz == 0
        np.testing.assert_array_equal(many[1], one[1])


@pytest.mark.parametrize("passes", [1, 2])
def test_a_row_that_hardly_counts_hardly_changes_what_is_found_long_before_convergence(passes):
    """Rows are visited in an order that one row more does not change, wherever it stands."""
    X, on, off = problem(n=400, d=60)
    descent, costs = Descent(tol=0, max_iter=passes), np.ones(400)
    costs[::50] = 1e-9
    left = np.flatnonzero(costs == 1)
    whole = train_sparse_svms(X, on, off, descent, C=costs)
    some = X[left], on[:, left], off[:, left]
    fewer = train_sparse_svms(*some, descent, C=1.0, numbered=(0, left))
    far = train_sparse_svms(*some, descent._replace(seed=1), C=1.0, numbered=(0, left))
    np.testing.assert_allclose(whole[0].toarray(), fewer[0].toarray(), atol=1e-7)
    np.testing.assert_allclose(whole[1], fewer[1], atol=1e-7)
    assert np.abs(far[0] - fewer[0]).max() > 1e-3


def test_the_order_of_rows_differs_by_label_seed_and_pass():
    X, on, off = problem()
    on, off = (sp.vstack([each[0]] * 2, format="csr") for each in (on, off))

    def found(**options):
        return train_sparse_svms(X, on, off, Descent(**options), C=1.0)[0].toarray()

    first = found(max_iter=1)
    assert np.abs(first[0] - first[1]).max() > 1e-3
    assert np.abs(first - found(max_iter=1, seed=1)).max() > 1e-3
    assert np.abs(found(max_iter=2) - first).max() > 1e-3


def test_margins_are_entries_of_the_product():
    X, on, off = problem(dtype=np.float32)
    weights, intercept, _ = train_sparse_svms(X, on, off, Descent(), C=1.0)
    labels = np.random.default_rng(1).integers(-1, 7, (80, 4))
    scores = X.toarray() @ weights.toarray().T + intercept
    expected = np.where(labels < 0, 0, np.take_along_axis(scores, np.maximum(labels, 0), axis=1))
    for threads in (1, 3):
        found = shortlist_margins(X, labels, weights, intercept, n_threads=threads)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        by_feature = Lookup.of(sp.csr_matrix(weights.T))
        found = shortlist_margins(X, labels, by_feature, intercept, n_threads=threads)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_shapes_that_do_not_fit_are_named():
    X, on, off = problem()
    with pytest.raises(InvalidInputError, match="must be L×n"):
        train_sparse_svms(X, on[:, :3], off[:, :3], Descent(), C=1.0)
    with pytest.raises(InvalidInputError, match="n×d, n×M and L×d"):
        shortlist_margins(X, np.zeros((3, 2), dtype=np.int64), sp.csr_matrix((7, 30)), np.zeros(7))
    with pytest.raises(InvalidInputError, match="n×d, n×M and d×L"):
        shortlist_margins(X, np.zeros((80, 2), dtype=np.int64), Lookup.of(sp.csr_matrix((7, 30))), np.zeros(7))
