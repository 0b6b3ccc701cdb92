"""Compressed sensing of labels: the regression, the decoding, limits and real data."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from linear_labels import linear_labels
from sklearn.linear_model import Ridge

from tagwise.baselines import CompressedSensing
from tagwise.solvers.sparse_recovery import cosamp, orthogonal_matching_pursuit

N, D, L = 60, 9, 8
data = partial(linear_labels, N, D, L, 0.8)


@pytest.mark.parametrize(("recovery", "method"), [("omp", orthogonal_matching_pursuit), ("cosamp", cosamp)])
def test_measurements_are_ridge_regressions_and_scores_are_recovered_labels(recovery, method):
    X, Y = data()
    model = CompressedSensing(n_measurements=12, n_nonzero=3, recovery=recovery, reg=0.5, normalize=False).fit(X, Y)
    codes = model.label_codes_
    peer = Ridge(alpha=0.5, solver="svd").fit(X.toarray(), Y.toarray() @ codes)
    np.testing.assert_allclose(model.feature_factors_, peer.coef_.T, atol=1e-8)
    expected = method(peer.predict(X.toarray()), codes, 3) - 0.5
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-7)
    residual = Y.toarray() @ codes - peer.predict(X.toarray())
    assert model.objective_[0] == pytest.approx(0.5 * np.sum(residual**2) + 0.25 * np.sum(peer.coef_**2), rel=1e-8)


def test_labels_that_the_features_give_away_come_back():
    """Each row is one of 40 kinds with three labels; far fewer measurements than labels tell them apart."""
    rng = np.random.default_rng(0)
    X = sp.csr_matrix(np.tile(np.eye(40), (5, 1)))
    kinds = np.zeros((40, 100))
    for kind in kinds:
        kind[rng.choice(100, 3, replace=False)] = 1
    Y = sp.csr_matrix(np.tile(kinds, (5, 1)))
    model = CompressedSensing(n_measurements=50, n_nonzero=3, reg=1e-6).fit(X, Y)
    assert (model.predict(X) != Y).nnz == 0


def test_codes_and_defaults():
    X, Y = data()
    one, two = (CompressedSensing(n_measurements=400, random_state=seed).fit(X, Y).label_codes_ for seed in (0, 1))
    np.testing.assert_allclose(np.linalg.norm(one, axis=1), 1, atol=0.15)
    assert not np.array_equal(one, two)
    for labels, measurements, nonzero in ((Y, L // 2, 5), (sp.csr_matrix(np.ones((N, 1000))), 400, 1000)):
        model = CompressedSensing().fit(X, labels)
        assert model.feature_factors_.shape == (D, measurements)
        assert model.n_nonzero_ == nonzero
