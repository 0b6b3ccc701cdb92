"""Determinism, refits, clones, history, callbacks and progress."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from comparison import assert_same_model
from sklearn.base import clone

N_ROWS, N_FEATURES, N_LABELS = 60, 12, 7


@pytest.fixture(scope="module")
def large_problem():
    """Enough rows and entries for several chunks of every kernel, so that threads really share the work."""
    rng = np.random.default_rng(0)
    X = sp.random(5000, 30, 0.5, format="csr", random_state=1)
    Y = sp.csr_matrix(X @ rng.standard_normal((30, 9)) > 2).astype(np.float64)
    return X, Y, sp.csr_matrix((rng.random(Y.shape) < 0.6).astype(np.int8))


def test_bit_identical_for_every_number_of_threads(make, large_problem):
    X, Y, mask = large_problem
    for observed in (None, mask) if make.learns_from_mask else (None,):
        one, many = make(n_jobs=1).fit(X, Y, observed), make(n_jobs=3).fit(X, Y, observed)
        assert_same_model(one, many)
        for ours, theirs in zip(one.predict_topk(X, 4), many.predict_topk(X, 4)):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(one.decision_function(X), many.decision_function(X))
        assert (one.predict(X) != many.predict(X)).nnz == 0


def test_same_data_same_model_whatever_was_fitted_before(make, fitted, problem):
    X, Y = problem
    model = make().fit(X[:30, :5], Y[:30, :3])
    before = model.get_params()
    assert model.fit(X, Y) is model
    assert model.get_params() == before
    assert_same_model(model, fitted)
    assert (model.n_features_in_, model.n_labels_) == (N_FEATURES, N_LABELS)
    assert_same_model(make(n_jobs=-1, random_state=3).fit(X, Y), make(random_state=3).fit(X, Y))


def test_clone_and_parameters(fitted, problem):
    copy = clone(fitted)
    assert not hasattr(copy, "n_iter_")
    assert copy.get_params() == fitted.get_params()
    assert_same_model(copy.fit(*problem), fitted)
    with pytest.raises(ValueError, match="Invalid parameter"):
        fitted.set_params(no_such_parameter=1)


def test_history_callback_and_progress_agree(make, problem, capsys):
    seen = []
    model = make(verbose=1).fit(*problem, callback=lambda iteration, info: seen.append((iteration, info["objective"])))
    assert model.n_iter_ == len(model.objective_) == len(model.history_) >= 1
    assert [info["iteration"] for info in model.history_] == list(range(1, model.n_iter_ + 1))
    seconds = [info["seconds"] for info in model.history_]
    assert seconds == sorted(seconds)
    assert seen == list(zip(range(1, model.n_iter_ + 1), model.objective_))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count(f": {model._iteration_name} ") == model.n_iter_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stopped = make(max_iter=50).fit(*problem, callback=lambda iteration, info: iteration == 1)
    assert stopped.n_iter_ == 1
    stopped.predict(problem[0])
    assert capsys.readouterr().err == ""


@pytest.mark.of_base
def test_an_error_in_the_callback_is_not_swallowed(make, problem):
    def broken(iteration, info):
        raise RuntimeError("from the callback")

    with pytest.raises(RuntimeError, match="from the callback"):
        make().fit(*problem, callback=broken)
