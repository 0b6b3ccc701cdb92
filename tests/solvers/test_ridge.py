"""Closed forms against scikit-learn's ridge regression, CPLST and other matrices of the same rank."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge

from tagwise.exceptions import InvalidInputError
from tagwise.solvers import ridge
from tagwise.solvers.ridge import RidgeFactor, reduced_rank_ridge


@pytest.mark.parametrize("shape", [(50, 9), (9, 50), (20, 20)], ids=["tall", "wide", "square"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_agrees_with_scikit_learn(shape, fit_intercept):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal(shape) * (rng.random(shape) < 0.6) + 0.1).astype(np.float32)
    Y = (rng.random((shape[0], 6)) < 0.3).astype(float)
    expected = Ridge(alpha=0.5, fit_intercept=fit_intercept, solver="svd").fit(X.astype(np.float64), Y)
    for form in (X, sp.csr_matrix(X), X.astype(np.float64), sp.csr_matrix(X, dtype=np.float64)):
        factor = RidgeFactor(form, 0.5, fit_intercept=fit_intercept, n_threads=2)
        found = factor.solve(sp.csr_matrix(Y.T))
        np.testing.assert_allclose(found.coefficients, expected.coef_.T, atol=1e-8)
        np.testing.assert_allclose(found.intercept, expected.intercept_ * np.ones(6), atol=1e-8)
        residual = Y - X @ found.coefficients - found.intercept
        value = 0.5 * np.sum(residual**2, axis=0) + 0.25 * np.sum(found.coefficients**2, axis=0)
        np.testing.assert_allclose(found.value, value, atol=1e-9)
        apart = np.column_stack([factor.solve(sp.csr_matrix(y)).coefficients for y in Y.T])
        np.testing.assert_allclose(apart, found.coefficients, atol=1e-12)


def test_threads_take_dense_columns_in_blocks_that_depend_on_the_matrix_alone(monkeypatch):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((40, 11)).astype(np.float32), sp.csr_matrix((rng.random((3, 40)) < 0.3).astype(float))
    whole = RidgeFactor(X, 0.5, fit_intercept=True).solve(Y).coefficients
    monkeypatch.setattr(ridge, "_COLUMNS", 4)
    one, two = (RidgeFactor(X, 0.5, fit_intercept=True, n_threads=n).solve(Y).coefficients for n in (1, 2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(one, whole, rtol=1e-10)


def test_a_system_that_rounding_makes_singular_says_so():
    X = 1e10 * np.ones((5, 3))
    with pytest.raises(InvalidInputError, match="too small beside the features"):
        RidgeFactor(X, 1e-6, fit_intercept=False)


# ---------------------------------------------------------------------- reduced rank

SHAPES = [(40, 8, 6), (8, 30, 6), (40, 8, 30), (20, 20, 5)]


def problem(n, d, n_labels, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, sp.csr_matrix((rng.random((n, n_labels)) < 0.3).astype(float))


def solve(X, Y, rank, reg, fit_intercept=False, memory_limit=2**30):
    return reduced_rank_ridge(X, Y, rank, reg, fit_intercept=fit_intercept, memory_limit=memory_limit)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rank", [1, 5])
def test_without_penalty_it_is_claim_1_and_cplst(shape, rank):
    X, Y = problem(*shape)
    W, H, b, _ = solve(X, Y, rank, 0.0)
    # CPLST as its authors state it: H the top eigenvectors of Yᵀ X X⁺ Y, W = X⁺ Y H.
    pinv, labels = np.linalg.pinv(X), Y.toarray()
    vectors = np.linalg.eigh(labels.T @ X @ pinv @ labels)[1][:, ::-1][:, :rank]
    np.testing.assert_allclose(W @ H.T, pinv @ labels @ vectors @ vectors.T, atol=1e-8)
    # Claim 1: V Σ⁻¹ times the best rank-k approximation of Uᵀ Y.
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    P, t, Qt = np.linalg.svd(U.T @ labels, full_matrices=False)
    t[rank:] = 0
    np.testing.assert_allclose(W @ H.T, Vt.T / s @ (P * t) @ Qt, atol=1e-8)
    assert not b.any()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_at_full_rank_it_is_ridge_regression(shape, fit_intercept):
    X, Y = problem(*shape)
    W, H, b, _ = solve(X, Y, min(shape[1:]), 0.7, fit_intercept)
    ridge = Ridge(alpha=0.7, fit_intercept=fit_intercept).fit(X, Y.toarray())
    np.testing.assert_allclose(X @ W @ H.T + b, ridge.predict(X), atol=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_other_matrix_of_that_rank_is_better(shape):
    X, Y = problem(*shape)
    reg, rank = 0.4, 2
    W, H, b, stated = solve(X, Y, rank, reg, fit_intercept=True)

    def objective(Z, b):
        return np.sum((Y.toarray() - X @ Z - b) ** 2) + reg * np.sum(Z**2)

    best = objective(W @ H.T, b)
    assert stated == pytest.approx(0.5 * best)
    rng = np.random.default_rng(1)
    for size in (1e-3, 1e-1):
        for _ in range(20):
            other = (W + size * rng.standard_normal(W.shape)) @ (H + size * rng.standard_normal(H.shape)).T
            assert objective(other, b + size * rng.standard_normal(len(b))) > best


def test_sparse_and_dense_agree_and_h_is_orthonormal():
    X, Y = problem(30, 12, 9)
    X[np.abs(X) < 1] = 0
    for one, two in zip(solve(X, Y, 4, 0.1, True), solve(sp.csr_matrix(X), Y, 4, 0.1, True)):
        np.testing.assert_allclose(one, two, atol=1e-9)
    _, H, *_ = solve(X, Y, 4, 0.1)
    np.testing.assert_allclose(H.T @ H, np.eye(4), atol=1e-10)


def test_too_large_a_problem_is_refused_with_the_memory_it_needs():
    X, Y = problem(40, 8, 6)
    with pytest.raises(
        InvalidInputError, match=r"closed form for 40 rows, 8 features and 6 labels needs memory of .*, above"
    ):
        solve(X, Y, 2, 0.1, memory_limit=1000)
