"""One factorisation for all columns against scikit-learn's ridge regression."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge

from tagwise.exceptions import InvalidInputError
from tagwise.solvers.ridge import RidgeFactor


@pytest.mark.parametrize("shape", [(50, 9), (9, 50), (20, 20)], ids=["tall", "wide", "square"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("storage", [sp.csr_matrix, np.asarray])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_agrees_with_scikit_learn(shape, fit_intercept, storage, dtype):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal(shape) * (rng.random(shape) < 0.6) + 0.1).astype(dtype)
    Y = (rng.random((shape[0], 6)) < 0.3).astype(float)
    expected = Ridge(alpha=0.5, fit_intercept=fit_intercept, solver="svd").fit(X.astype(np.float64), Y)
    found = RidgeFactor(storage(X), 0.5, fit_intercept=fit_intercept, n_threads=2).solve(sp.csr_matrix(Y.T))
    np.testing.assert_allclose(found.coefficients, expected.coef_.T, atol=1e-8)
    np.testing.assert_allclose(found.intercept, expected.intercept_ * np.ones(6), atol=1e-8)
    residual = Y - X @ found.coefficients - found.intercept
    value = 0.5 * np.sum(residual**2, axis=0) + 0.25 * np.sum(found.coefficients**2, axis=0)
    np.testing.assert_allclose(found.value, value, atol=1e-9)


def test_columns_may_come_in_any_batches():
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((30, 8)), sp.csr_matrix((rng.random((6, 30)) < 0.3).astype(float))
    factor = RidgeFactor(X, 1.0, fit_intercept=True)
    together = factor.solve(Y).coefficients
    apart = np.column_stack([factor.solve(Y[j]).coefficients for j in range(6)])
    np.testing.assert_allclose(apart, together, atol=1e-12)


def test_a_system_that_rounding_makes_singular_says_so():
    X = 1e10 * np.ones((5, 3))
    with pytest.raises(InvalidInputError, match="too small beside the features"):
        RidgeFactor(X, 1e-6, fit_intercept=False)
