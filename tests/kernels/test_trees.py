"""Trees: how they are built, and how rows go through them, against the obvious."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagwise.kernels.trees import Growth, _labels_of, build_tree, find_leaves, ideal_gains, mean_leaves


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


def test_labels_of_a_node_rise_whatever_the_order_of_its_rows():
    """Rankings break ties by the place in this list, so that it must not depend on which rows come first."""
    Y = sp.csr_matrix(np.array([[0, 0, 1, 1, 0], [1, 0, 0, 0, 0], [0, 1, 1, 0, 0]]))
    for rows in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        slot = np.full(5, -1)
        names = _labels_of((Y.indptr, Y.indices), np.array(rows), slot)
        np.testing.assert_array_equal(names, [0, 1, 2, 3])
        np.testing.assert_array_equal(slot, [0, 1, 2, 3, -1])
