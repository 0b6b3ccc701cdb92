"""SLEEC: its parts against twins, what is kept of each cluster, bad input and the published figures."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.baselines import SLEEC, sleec
from tagwise.baselines.neighbor_votes import vote_weights
from tagwise.baselines.sleec import near_label_products
from tagwise.exceptions import ConvergenceWarning
from tagwise.solvers.singular_value_projection import singular_value_projection


def unit(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)


@pytest.fixture
def problem():
    """Three groups of rows, with features and labels of their own, and a label that all may have."""
    rng = np.random.default_rng(0)
    group = np.arange(150) % 3
    X = rng.random((150, 12)) * (rng.random((150, 12)) < 0.5) * (0.2 + 3 * (np.arange(12) // 4 == group[:, None]))
    Y = np.zeros((150, 7))
    Y[np.arange(150), 2 * group + (X.sum(axis=1) > 5)] = 1
    Y[:, 6] = rng.random(150) < 0.3
    return sp.csr_matrix(X), sp.csr_matrix(Y)


SMALL = {"rank": 4, "label_neighbors": 10, "n_neighbors": 5, "n_clusters": 3, "n_learners": 2}


@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.integers(1, 8))
def test_near_label_products_are_cosines_of_the_nearest(seed, n_rows, k):
    Y = (np.random.default_rng(seed).random((n_rows, 5)) < 0.4).astype(np.float32)
    found = near_label_products(sp.csr_matrix(Y), k)
    cosines = unit(Y.astype(np.float64)) @ unit(Y.astype(np.float64)).T
    stored = np.zeros((n_rows, n_rows), dtype=bool)
    stored[np.repeat(np.arange(n_rows), np.diff(found.indptr)), found.indices] = True
    # What is clearly nearer than the k-th nearest of either must be there, and what is clearly further from both must
    # not; between equally near ones any choice will do.
    last = np.sort(cosines, axis=1)[:, ::-1][:, min(k, n_rows) - 1]
    nearer, further = cosines > last[:, None] + 1e-9, cosines < last[:, None] - 1e-9
    assert stored[nearer | nearer.T].all()
    assert not stored[further & further.T].any()
    np.testing.assert_array_equal(stored, stored.T)
    assert (stored.sum(axis=1) >= min(k, n_rows)).all()
    np.testing.assert_allclose(found.toarray(), np.where(stored, cosines, 0), atol=1e-12)


def test_zeros_among_the_nearest_are_known_zeros():
    found = near_label_products(sp.csr_matrix(np.eye(3)), 2)
    assert found.nnz > 3
    np.testing.assert_allclose(found.toarray(), np.eye(3), atol=1e-15)


@pytest.mark.parametrize("sparsity", [0.0, 0.05])
def test_regressors_minimise_the_published_objective(problem, monkeypatch, sparsity):
    X, Y = problem
    factors = []

    def watched(*args, **options):
        factors.append(singular_value_projection(*args, **options))
        return factors[-1]

    monkeypatch.setattr(sleec, "singular_value_projection", watched)
    settings = {**SMALL, "n_clusters": 1, "n_learners": 1, "normalize": False, "reg": 0.5, "sparsity": sparsity}
    model = SLEEC(**settings).fit(X, Y)
    Z, dense = factors[0].factor, X.toarray()[:, model.features_]
    V = model.regressors_

    def objective(V):
        fitted = dense @ V
        return np.sum((Z - fitted) ** 2) + 0.5 * np.sum(V**2) + sparsity * np.abs(fitted).sum()

    ridge = np.linalg.solve(dense.T @ dense + 0.5 * np.eye(len(V)), dense.T @ Z)
    if sparsity == 0:
        np.testing.assert_allclose(V, ridge, atol=1e-6)
    else:
        assert objective(V) < objective(ridge)
    rng = np.random.default_rng(1)
    for size in (1e-2, 1e-1):
        assert objective(V) < objective(V + size * rng.standard_normal(V.shape))
    np.testing.assert_allclose(model.embedding_, unit(dense @ V)[model.members_], atol=1e-12)


def test_scores_are_votes_in_the_embedding_of_the_nearest_cluster(problem):
    X, Y = problem
    model = SLEEC(**SMALL, similarity_power=2).fit(X, Y)
    dense, labels = unit(X.toarray()), Y.toarray()
    expected = np.zeros((150, 7))
    for row, x in enumerate(dense):
        for learner in range(2):
            cluster = 3 * learner + int(np.argmax(model.centers_[3 * learner : 3 * learner + 3] @ x))
            features = slice(*model.feature_pointer_[cluster : cluster + 2])
            members = slice(*model.member_pointer_[cluster : cluster + 2])
            z = unit((x[model.features_[features]] @ model.regressors_[features])[None])
            cosines = (model.embedding_[members] @ z.T).ravel()
            nearest = np.argsort(-np.round(cosines, 12), kind="stable")[:5]
            weights = vote_weights(cosines[nearest][None], 2)
            expected[row] += (weights @ labels[model.members_[members][nearest]]).ravel() / 2
    np.testing.assert_allclose(model.decision_function(X), expected - 0.5, atol=1e-9)


def test_every_learner_holds_every_row_once_and_clusters_their_own_features(problem):
    X, Y = problem
    model = SLEEC(**SMALL).fit(X, Y)
    for learner in range(2):
        np.testing.assert_array_equal(np.sort(model.members_[150 * learner : 150 * (learner + 1)]), np.arange(150))
    for cluster in range(6):
        members = model.members_[slice(*model.member_pointer_[cluster : cluster + 2])]
        features = model.features_[slice(*model.feature_pointer_[cluster : cluster + 2])]
        np.testing.assert_array_equal(features, np.unique(X[members].indices))


def test_more_neighbors_and_rank_than_rows_take_no_memory(problem):
    X, Y = problem
    for n_clusters in (3, 40):
        settings = {"n_clusters": n_clusters, "n_learners": 2}
        sizes = np.diff(SLEEC(**settings).fit(X, Y).member_pointer_)
        exact = SLEEC(rank=int(sizes.max()), n_neighbors=int(sizes.max()), **settings).fit(X, Y)
        tracemalloc.start()
        huge = SLEEC(rank=10**6, n_neighbors=10**6, **settings).fit(X, Y)
        scores = huge.decision_function(X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert huge.embedding_.shape[1] == sizes.max()
        assert peak < 50_000_000
        np.testing.assert_array_equal(scores, exact.decision_function(X))
        assert (np.abs(scores) <= 0.5 + 1e-12).all()
    assert len(SLEEC(n_clusters=200, n_learners=1, rank=2).fit(X, Y).centers_) == 150


def test_a_cluster_without_any_feature(problem):
    _, Y = problem
    model = SLEEC(**SMALL).fit(sp.csr_matrix((150, 12)), Y)
    assert np.isfinite(model.decision_function(sp.csr_matrix((2, 12)))).all()


def test_a_stopped_fit_keeps_the_learners_so_far(problem):
    X, Y = problem
    stopped = SLEEC(**{**SMALL, "n_learners": 4}).fit(X, Y, callback=lambda iteration, info: iteration == 2)
    assert stopped.n_iter_ == 2
    np.testing.assert_array_equal(stopped.decision_function(X), SLEEC(**SMALL).fit(X, Y).decision_function(X))


def test_fits_that_do_not_converge_warn(problem, monkeypatch):
    with pytest.warns(ConvergenceWarning, match="6 of 6 clusters singular value projection stopped after max_iter=1"):
        SLEEC(**SMALL, max_iter=1).fit(*problem)
    monkeypatch.setattr(sleec, "_REGRESSION_STEPS", 1)
    with pytest.warns(ConvergenceWarning, match="the regression onto the embedding did not converge"):
        SLEEC(**SMALL, sparsity=0.1).fit(*problem)
