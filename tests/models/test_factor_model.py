"""Answers of low-rank models: alone and in company, whatever the lengths of their factors, and after a change."""

import numpy as np
import pytest
import reference_kernels as reference
import scipy.sparse as sp

from tagwise import LEML, load
from tagwise.data import load_dataset
from tagwise.kernels import unit_rows


@pytest.fixture(scope="module")
def fitted():
    data = load_dataset("debtags-sample")
    return LEML(rank=20).fit(data.X_train, data.Y_train), data.X_test


def test_a_row_gets_the_same_labels_alone_and_in_company(fitted):
    model, X = fitted
    assert model._norm_sorted_labels().rule_out_others
    together, scores = model.predict_topk(X[:300], 5)
    exact = model.decision_function(X[:300])
    np.testing.assert_allclose(scores, -np.sort(-exact, axis=1)[:, :5], rtol=1e-4, atol=1e-6)
    for row in range(0, 300, 7):
        labels, alone = model.predict_topk(X[row], 5)
        np.testing.assert_allclose(alone[0], scores[row], rtol=1e-4, atol=1e-6)
        clear = np.abs(np.diff(np.sort(exact[row])[-6:][::-1])).min() > 1e-5
        assert not clear or (labels[0] == together[row]).all()


@pytest.mark.parametrize("n_rows", [1, 200])
def test_factors_of_equal_length_are_answered_too(fitted, n_rows):
    model, X = fitted
    other = LEML(**model.get_params(deep=False))
    other.__dict__.update(vars(model))
    lengths = np.linalg.norm(model.label_factors_, axis=1, keepdims=True)
    other.label_factors_ = model.label_factors_ / np.maximum(lengths, 1e-12)
    labels, _ = other.predict_topk(X[:n_rows], 5)
    assert not other._norm_sorted_labels().rule_out_others
    expected = reference.top_k_of_factors(model._embed(X[:n_rows]), other.label_factors_, 5, model.intercept_)[0]
    np.testing.assert_array_equal(labels, expected)


def test_factors_or_intercepts_that_are_replaced_are_noticed(fitted, tmp_path):
    model, X = fitted
    model.save(tmp_path / "model")
    other = load(tmp_path / "model")
    other.predict_topk(X[0])
    other.intercept_ = np.where(np.arange(other.n_labels_) == 17, 100, other.intercept_).astype(np.float32)
    for rows in (X[0], X[:50]):
        assert (other.predict_topk(rows, 1)[0] == 17).all()
    other.label_factors_ = np.zeros_like(other.label_factors_)
    order = np.argsort(-other.intercept_, kind="stable")[:4]
    np.testing.assert_array_equal(other.predict_topk(X[0], 4)[0][0], order)


def test_a_kernel_model_answers_one_row():
    data = load_dataset("debtags-sample")
    X = data.X_train[:200]
    model = LEML(rank=5, kernel="rbf", tol=1.0).fit(X, data.Y_train[:200])
    np.testing.assert_allclose(model.predict_topk(X[3])[1], model.predict_topk(X[:40])[1][3:4], rtol=1e-4, atol=1e-6)


def test_rows_of_unit_length_share_indices_and_leave_x_alone():
    X = sp.random(30, 20, 0.3, "csr", random_state=0)
    before = X.copy()
    scaled = unit_rows(X)
    np.testing.assert_allclose(np.sqrt(scaled.multiply(scaled).sum(axis=1)).A1[np.diff(X.indptr) > 0], 1)
    assert scaled.indices is X.indices
    assert (before != X).nnz == 0
