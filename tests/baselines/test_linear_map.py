"""Ridge regression onto dense targets: both solvers against scikit-learn."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge

from tagwise.baselines import linear_map
from tagwise.baselines.linear_map import LinearMap
from tagwise.exceptions import ConvergenceWarning


def data(n, d, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = sp.random(n, d, 0.5, format="csr", random_state=0, data_rvs=rng.standard_normal).astype(dtype)
    return X, rng.standard_normal((n, 5)) + 2


@pytest.mark.parametrize("direct", [True, False])
def test_it_is_ridge_regression(monkeypatch, direct):
    monkeypatch.setattr(linear_map, "LARGEST_DIRECT", 4000 if direct else 0)
    monkeypatch.setattr(linear_map, "_BATCH", 2)
    for shape, storage, dtype in product(
        [(40, 7), (9, 20)], [sp.csr_matrix, sp.csr_matrix.toarray], [np.float64, np.float32]
    ):
        X, T = data(*shape, dtype)
        one_map = LinearMap(storage(X), 0.3, n_threads=2, tol=1e-10)
        mapped = one_map.fit(T)
        peer = Ridge(alpha=0.3, solver="svd").fit(X.toarray().astype(float), T)
        np.testing.assert_allclose(mapped.coefficients, peer.coef_.T, atol=1e-6)
        np.testing.assert_allclose(mapped.intercept, peer.intercept_, atol=1e-6)
        fitted = peer.predict(X.toarray().astype(float))
        np.testing.assert_allclose(one_map.predict(mapped), fitted, atol=1e-6)
        value = 0.5 * np.sum((T - fitted) ** 2) + 0.15 * np.sum(peer.coef_**2)
        assert mapped.value == pytest.approx(value, rel=1e-6)


def test_unfinished_conjugate_gradients_warn(monkeypatch):
    monkeypatch.setattr(linear_map, "LARGEST_DIRECT", 0)
    monkeypatch.setattr(linear_map, "_MAX_ITER", 2)
    X, T = data(40, 7)
    with pytest.warns(ConvergenceWarning, match="stopped after 2 steps"):
        LinearMap(X, 1e-3, tol=1e-12).fit(T)
