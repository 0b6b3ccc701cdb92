"""MDDM: its projection solves the published eigenproblem, and votes are ML-kNN's on projected rows."""

import tracemalloc

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

from tagwise.baselines import MDDM, MLKNN, mddm
from tagwise.baselines.mddm import completed, dependence_projection, projection_memory
from tagwise.exceptions import InvalidInputError


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X = rng.random((80, 9)) * (rng.random((80, 9)) < 0.6)
    return X, (X @ rng.standard_normal((9, 4)) > 0.2).astype(float)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_the_projection_solves_the_generalised_eigenproblem(problem, correlation, form):
    X, Y = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mddm, "_BATCH", 3)
        P, values = dependence_projection(form(X), sp.csr_matrix(Y), correlation)
    X_c, Y_c = X - X.mean(axis=0), Y - Y.mean(axis=0)
    A, B = X_c.T @ Y_c @ Y_c.T @ X_c, correlation * X_c.T @ X_c + (1 - correlation) * np.eye(9)
    np.testing.assert_allclose(values, scipy.linalg.eigh(A, B, eigvals_only=True)[::-1][:4], rtol=1e-8)
    np.testing.assert_allclose(P.T @ B @ P, np.eye(4), atol=1e-9)
    np.testing.assert_allclose(A @ P, B @ P * values, atol=1e-9 * values[0])


def test_no_dependence_no_directions(problem):
    X, _ = problem
    P, values = dependence_projection(X, sp.csr_matrix((80, 3)), 0.5)
    assert P.shape == (9, 0)
    assert len(values) == 0
    model = MDDM().fit(X, np.zeros((80, 3)))
    assert model.projection_.shape == (9, 1)
    assert (model.projection_ == 0).all()


def test_votes_are_those_of_ml_knn_on_projected_rows(problem):
    X, Y = problem
    model = MDDM(n_components=3, n_neighbors=5, smoothing=0.5, normalize=False).fit(X, Y)
    inside = MLKNN(n_neighbors=5, smoothing=0.5, normalize=False).fit(X @ model.projection_, Y)
    np.testing.assert_allclose(model.decision_function(X), inside.decision_function(X @ model.projection_))
    np.testing.assert_allclose(model.rows_, X @ model.projection_)


def test_how_many_directions_are_kept(problem):
    X, Y = problem
    whole = MDDM(kept=1.0).fit(X, Y)
    assert whole.projection_.shape[1] == 4
    shares = np.cumsum(whole.eigenvalues_) / whole.eigenvalues_.sum()
    for kept in (0.5, float(shares[1]) - 1e-9, float(shares[1]) + 1e-9):
        expected = int(np.sum(shares < kept)) + 1
        assert MDDM(kept=kept).fit(X, Y).projection_.shape[1] == expected
    assert MDDM(n_components=2).fit(X, Y).projection_.shape[1] == 2
    assert MDDM(n_components=50).fit(X, Y).projection_.shape[1] == 4


@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_random_directions_complete_the_constraint(problem, correlation, form):
    X, Y = problem
    P, _ = dependence_projection(form(X), sp.csr_matrix(Y), correlation)
    whole = completed(P, 7, form(X), correlation, np.random.default_rng(0))
    X_c = X - X.mean(axis=0)
    B = correlation * X_c.T @ X_c + (1 - correlation) * np.eye(9)
    np.testing.assert_array_equal(whole[:, :4], P)
    np.testing.assert_allclose(whole.T @ B @ whole, np.eye(7), atol=1e-9)
    assert completed(P, 3, form(X), correlation, np.random.default_rng(0)) is P
    assert completed(P, 50, form(X), correlation, np.random.default_rng(0)).shape == (9, 9)


def test_directions_beyond_the_dependent_ones(problem):
    X, Y = problem
    model = MDDM(n_components=7, beyond="random").fit(X, Y)
    assert model.projection_.shape == (9, 7)
    assert (model.eigenvalues_[4:] == 0).all()
    again = MDDM(n_components=7, beyond="random", n_jobs=2).fit(X, Y)
    np.testing.assert_array_equal(model.projection_, again.projection_)
    other = MDDM(n_components=7, beyond="random", random_state=1).fit(X, Y)
    assert (model.projection_[:, :4] == other.projection_[:, :4]).all()
    assert (model.projection_[:, 4:] != other.projection_[:, 4:]).all()


def test_what_does_not_fit_into_memory_is_refused_before_any_work(problem):
    X, Y = problem
    needed = projection_memory(X, 4)
    MDDM(memory_limit=needed).fit(X, Y)
    with pytest.raises(InvalidInputError, match="9 features × 4 labels and labels × labels, needs memory of"):
        MDDM(memory_limit=needed - 1).fit(X, Y)
    wide = sp.csr_matrix((80, 100_000))
    with pytest.raises(InvalidInputError, match=r"memory of 223\.52 GiB"):
        MDDM().fit(X, wide)


@pytest.mark.parametrize(
    ("shape", "sparse", "correlation"),
    [((900, 300, 400), False, 0.5), ((300, 900, 50), True, 0.5), ((500, 60, 500), True, 0.0)],
    ids=str,
)
def test_the_memory_that_is_asked_for_is_the_peak(shape, sparse, correlation):
    n, d, n_labels = shape
    rng = np.random.default_rng(0)
    X, Y = rng.random((n, d)), sp.csr_matrix((rng.random((n, n_labels)) < 0.05).astype(float))
    X = sp.csr_matrix(X * (X > 0.9)) if sparse else X
    dependence_projection(X[:20], Y[:20, :5], correlation)  # compiles
    tracemalloc.start()
    P, _ = dependence_projection(X, Y, correlation, n_components=7)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert P.shape == (d, 7)
    assert 0.2 * projection_memory(X, n_labels) < peak < projection_memory(X, n_labels)
