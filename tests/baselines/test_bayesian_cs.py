"""Bayesian compressed sensing: the regression it comes to, its rounds with a mask, limits and real data."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from linear_labels import linear_labels
from sklearn.linear_model import Ridge

from tagwise.baselines import BayesianCS
from tagwise.baselines.label_inference import SparseLabelModel
from tagwise.data import hide_labels, load_dataset
from tagwise.exceptions import ConvergenceWarning, InvalidInputError
from tagwise.metrics import precision_at_k

N, D, L = 60, 9, 8


def data(seed=0):
    return linear_labels(N, D, L, 0.8, seed)


def test_all_labels_known_is_one_ridge_regression():
    X, Y = data()
    model = BayesianCS(n_measurements=6, reg=0.4, feature_noise=0.1, code_noise=0.3, normalize=False).fit(X, Y)
    peer = Ridge(alpha=0.4, solver="svd").fit(X.toarray(), Y.toarray() @ model.label_codes_)
    np.testing.assert_allclose(model.feature_factors_, peer.coef_.T, atol=1e-8)
    np.testing.assert_allclose(model.measurement_intercept_, peer.intercept_, atol=1e-8)
    assert model.n_iter_ == 1


def test_the_rounds_would_converge_to_that_regression():
    """One unknown label of a further, empty row makes the mask partial, so that the rounds run; all else is known."""
    X, Y = data()
    X = sp.csr_matrix(sp.vstack([X, sp.csr_matrix((1, D))]))
    Y = sp.csr_matrix(sp.vstack([Y, sp.csr_matrix((1, L))]))
    mask = np.ones(Y.shape)
    mask[-1, 0] = 0
    settings = {"n_measurements": 6, "reg": 0.4, "feature_noise": 0.1, "code_noise": 0.3, "normalize": False}
    rounds = BayesianCS(max_iter=300, tol=1e-9, **settings).fit(X, Y, observed=mask)
    exact = BayesianCS(**settings).fit(X, Y)
    assert rounds.n_iter_ > 1
    np.testing.assert_allclose(rounds.feature_factors_, exact.feature_factors_, atol=2e-3)


def test_scores_are_the_inferred_labels():
    X, Y = data()
    model = BayesianCS(n_measurements=6, n_sweeps=7, normalize=False).fit(X, Y)
    measurements = X @ model.feature_factors_ + model.measurement_intercept_
    inference = SparseLabelModel(model.label_codes_, 0.02, 0.02, 1e-3, 1e-3, sweeps=7)
    np.testing.assert_allclose(model.decision_function(X), inference.labels(measurements) - 0.5, atol=1e-9)


def test_constant_and_unknown_labels():
    X, Y = data()
    wide = sp.csr_matrix(sp.hstack([Y, np.ones((N, 1)), np.zeros((N, 1)), np.ones((N, 1))]))
    mask = np.ones(wide.shape)
    mask[::3, :L] = 0
    mask[:, L + 2] = 0
    scores = BayesianCS(n_measurements=6).fit(X, wide, observed=mask).decision_function(X)
    np.testing.assert_array_equal(scores[:, L], np.full(N, 0.5))
    np.testing.assert_array_equal(scores[:, L + 1], np.full(N, -0.5))
    np.testing.assert_array_equal(scores[:, L + 2], np.full(N, -1e30))


def test_rounds_that_do_not_converge_warn():
    X, Y = data()
    with pytest.warns(ConvergenceWarning, match="BayesianCS stopped after max_iter=1 rounds"):
        BayesianCS(max_iter=1, tol=0).fit(X, Y, observed=hide_labels(Y, 0.5, 0))


@pytest.mark.parametrize(
    "name",
    ["n_measurements", "reg", "feature_noise", "code_noise", "prior_shape", "prior_rate", "n_sweeps", "max_iter"],
)
def test_bad_parameters(name):
    with pytest.raises(InvalidInputError, match=rf"{name} must be .*found 0"):
        BayesianCS(**{name: 0}).fit(*data())


def test_a_negative_tolerance():
    with pytest.raises(InvalidInputError, match="tol must be"):
        BayesianCS(tol=-1).fit(*data())


def precision(model, real):
    return precision_at_k(real.Y_test, model.predict_topk(real.X_test, 1)[0], 1)


def test_bibtex(data_folder):
    real = load_dataset("bibtex")
    assert precision(BayesianCS().fit(real.X_train, real.Y_train), real) > 0.59


def test_bibtex_with_missing_labels(data_folder):
    """Inferring what is unknown beats calling it off."""
    real = load_dataset("bibtex")
    observed = hide_labels(real.Y_train, 0.2, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        inferred = BayesianCS(n_sweeps=10, max_iter=3).fit(real.X_train, real.Y_train, observed=observed)
    called_off = BayesianCS().fit(real.X_train, real.Y_train.multiply(observed))
    assert precision(inferred, real) > precision(called_off, real) + 0.01
