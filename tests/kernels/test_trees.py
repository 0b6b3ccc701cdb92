"""Trees: how they are built, and how rows go through them, against the obvious."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagwise.kernels.trees import Growth, build_tree, find_leaves, ideal_gains, l1_logistic, mean_leaves


def arrays(matrix):
    return matrix.indptr, matrix.indices, matrix.data


def grow(X, Y, *, cost=10.0, max_leaf=4, leaf_labels=100, seed=0, number=0):
    growth = Growth(cost, max_leaf, leaf_labels, 1e-4, 50)
    return build_tree(
        arrays(X), (Y.indptr, Y.indices), ideal_gains(Y.indptr), max(X.shape[1], Y.shape[1]), growth, seed, number
    )


def problem(seed=0, n=80, d=10, n_labels=6):
    rng = np.random.default_rng(seed)
    X = sp.random(n, d, 0.4, format="csr", random_state=seed, data_rvs=rng.standard_normal)
    Y = sp.csr_matrix((X @ rng.standard_normal((d, n_labels)) > 0.8).astype(float))
    return X, Y


def leaves_of(X, tree):
    children, indptr, features, weights, biases = tree[:5]
    roots = np.array([0 if len(children) else -1])
    found = np.empty((X.shape[0], 1), dtype=np.int64)
    find_leaves(arrays(X), roots, children, (indptr, features, weights), biases, found, 0, X.shape[0])
    return found[:, 0]


def test_ideal_gains():
    Y = sp.csr_matrix(np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]]))
    expected = [0, 1, 1 / (1 + 1 / np.log2(3)), 1 / (1 + 1 / np.log2(3) + 0.5)]
    np.testing.assert_allclose(ideal_gains(Y.indptr), expected)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 60))
def test_leaves_hold_the_label_shares_of_the_rows_that_reach_them(seed, n):
    X, Y = problem(seed, n)
    tree = grow(X, Y)
    indptr, names, shares, lost = tree[5:]
    leaves = sp.csr_matrix((shares, names, indptr), shape=(len(indptr) - 1, Y.shape[1]))
    reached = leaves_of(X, tree)
    assert set(reached) == set(range(leaves.shape[0]))
    assert len(tree[0]) == leaves.shape[0] - 1
    for leaf in range(leaves.shape[0]):
        rows = Y[reached == leaf]
        np.testing.assert_allclose(leaves[leaf].toarray()[0], np.asarray(rows.mean(axis=0))[0], atol=1e-12)
    assert 0 <= lost <= n


def test_a_planted_split_is_found():
    """Two kinds of rows with features and labels of their own: one node sends each kind to its own leaf."""
    kind = np.arange(40) % 2
    X = sp.csr_matrix(np.where(kind[:, None], [0.0, 1.0], [1.0, 0.0]))
    Y = sp.csr_matrix(np.where(kind[:, None], [0.0, 1.0], [1.0, 0.0]))
    tree = grow(X, Y, max_leaf=20)
    assert len(tree[0]) == 1
    reached = leaves_of(X, tree)
    assert len(set(reached[kind == 0])) == len(set(reached[kind == 1])) == 1
    assert reached[0] != reached[1]
    assert tree[-1] == pytest.approx(0, abs=1e-9)


def test_leaf_sizes_costs_and_kept_labels():
    X, Y = problem(1, 300)
    small, large = grow(X, Y, max_leaf=2), grow(X, Y, max_leaf=100)
    assert len(small[0]) > len(large[0]) >= 1
    assert small[-1] < large[-1]
    assert len(grow(X, Y, cost=1e-4)[0]) == 0, "no weight pays: the root is a leaf"
    pruned = grow(X, Y, max_leaf=100, leaf_labels=2)
    assert np.diff(pruned[5]).max() <= 2
    full = sp.csr_matrix((large[7], large[6], large[5]), shape=(len(large[5]) - 1, Y.shape[1])).toarray()
    for leaf in range(len(full)):
        kept = np.sort(np.argsort(-full[leaf], kind="stable")[:2])
        kept = kept[full[leaf][kept] > 0]
        np.testing.assert_array_equal(pruned[6][pruned[5][leaf] : pruned[5][leaf + 1]], kept)


def test_a_seed_and_a_number_make_one_tree():
    X, Y = problem(2)
    one, same, other = grow(X, Y, number=1), grow(X, Y, number=1), grow(X, Y, number=2)
    for ours, theirs in zip(one, same):
        np.testing.assert_array_equal(ours, theirs)
    assert len(one[3]) != len(other[3]) or (one[3] != other[3]).any()


def test_routing_against_dense_separators():
    rng = np.random.default_rng(0)
    X = sp.random(50, 12, 0.4, format="csr", random_state=0, data_rvs=rng.standard_normal)
    weights = sp.random(3, 12, 0.5, format="csr", random_state=1, data_rvs=rng.standard_normal)
    biases = rng.standard_normal(3)
    # Node 0 → leaf 0 or node 2; node 1 (the second tree) → leaves 1, 2; node 2 → leaves 3, 4.
    children, roots = np.array([[-1, 2], [-2, -3], [-4, -5]]), np.array([0, 1, -1])
    found = np.empty((50, 3), dtype=np.int64)
    find_leaves(arrays(X), roots, children, arrays(weights), biases, found, 0, 50)
    on = X @ weights.T.toarray() + biases > 0
    np.testing.assert_array_equal(found[:, 0], np.where(on[:, 0], np.where(on[:, 2], 4, 3), 0))
    np.testing.assert_array_equal(found[:, 1], np.where(on[:, 1], 2, 1))
    assert (found[:, 2] == 0).all()


def test_the_mean_of_leaves():
    rng = np.random.default_rng(3)
    leaves = sp.random(7, 20, 0.3, format="csr", random_state=3)
    found = rng.integers(0, 7, size=(15, 4))
    sizes, names, means = mean_leaves(found, *arrays(leaves), 20, 5, 15)
    matrix = sp.csr_matrix((means, names, np.concatenate([[0], np.cumsum(sizes)])), shape=(10, 20))
    np.testing.assert_allclose(matrix.toarray(), leaves.toarray()[found[5:]].mean(axis=1), atol=1e-12)
    assert len(set(zip(np.repeat(np.arange(10), sizes), names))) == len(names), "a label is named once a row"


# Sparse logistic regression: its optimality conditions, and hard starts.


def logistic_problem(seed=0, n=150, d=30, dtype=np.float64):
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
    X, y, cost = logistic_problem(seed)
    w, _ = solve(X, y, cost)
    assert 0 < (w == 0).sum() < len(w)
    gradient = X.T @ (-cost * y / (1 + np.exp(y * (X @ w))))
    np.testing.assert_allclose(gradient[w != 0], -np.sign(w[w != 0]), atol=1e-6)
    assert (np.abs(gradient[w == 0]) <= 1 + 1e-6).all()


def test_every_step_falls_from_any_start():
    X, y, cost = logistic_problem(1)
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


def test_separable_rows_stay_finite():
    X = sp.csc_matrix(np.array([[1.0], [-1.0]]))
    w, _ = solve(X, np.array([1.0, -1.0]), np.full(2, 1e6))
    # 1 = 2·10⁶/(1 + eʷ) at the optimum.
    assert w[0] == pytest.approx(np.log(2e6 - 1), rel=1e-4)
