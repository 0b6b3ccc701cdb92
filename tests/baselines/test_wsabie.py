"""WSABIE: what it learns, the border between off and on, the fast mode, bad parameters, real data."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.baselines import WSABIE
from tagwise.data import load_dataset
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.metrics import micro_f1, precision_at_k, ranking_report

QUICK = {"rank": 10, "max_iter": 15, "learning_rate": 0.1}


@pytest.fixture(scope="module")
def topics():
    """600 rows of 8 topics; a topic has features of its own and two labels, one on in all of its rows."""
    rng = np.random.default_rng(0)
    topic = rng.integers(0, 8, 600)
    X = (rng.random((600, 40)) < np.where(np.arange(40) // 5 == topic[:, None], 0.6, 0.05)).astype(np.float32)
    Y = np.zeros((600, 16), dtype=np.float32)
    Y[np.arange(600), 2 * topic] = 1
    Y[np.arange(600), 2 * topic + 1] = rng.random(600) < 0.5
    return sp.csr_matrix(X), sp.csr_matrix(Y)


def test_topics_are_learnt(topics):
    X, Y = topics
    model = WSABIE(**QUICK).fit(X[:400], Y[:400])
    assert precision_at_k(Y[400:], model.predict_topk(X[400:], 1), k=1) > 0.8
    assert model.objective_[-1] < 0.5 * model.objective_[0]


def test_the_border_is_the_best_one_for_the_training_rows(topics):
    X, Y = topics
    model = WSABIE(**QUICK).fit(X, Y)
    scores = model.decision_function(X)
    ours = micro_f1(Y, model.predict(X))
    others = [
        micro_f1(Y, sp.csr_matrix((scores >= t).astype(np.float32))) for t in np.quantile(scores, np.linspace(0, 1, 50))
    ]
    assert ours >= max(others) - 1e-9


def test_factors_stay_within_the_ball(topics):
    model = WSABIE(**QUICK, max_norm=0.6).fit(*topics)
    for factors in (model.feature_factors_, model.label_factors_):
        assert np.linalg.norm(factors, axis=1).max() <= 0.6 + 1e-5


def test_seeds_matter(topics):
    one, two = (WSABIE(**QUICK, random_state=seed).fit(*topics) for seed in (0, 1))
    assert (one.feature_factors_ != two.feature_factors_).any()


def test_the_fast_mode_learns_as_well_with_several_threads(topics):
    X, Y = topics
    model = WSABIE(**QUICK, deterministic=False, n_jobs=2).fit(X[:400], Y[:400])
    assert precision_at_k(Y[400:], model.predict_topk(X[400:], 1), k=1) > 0.8
    alone = WSABIE(**QUICK, deterministic=False).fit(X, Y)
    np.testing.assert_array_equal(alone.label_factors_, WSABIE(**QUICK).fit(X, Y).label_factors_)


@pytest.mark.parametrize(
    ("parameters", "error", "words"),
    [
        ({"rank": 0}, InvalidInputError, "rank must be at least 1"),
        ({"learning_rate": 0}, InvalidInputError, "learning_rate must be finite above 0"),
        ({"max_iter": 0}, InvalidInputError, "max_iter must be at least 1"),
        ({"max_norm": -1.0}, InvalidInputError, "max_norm must be finite above 0"),
        ({"max_trials": 0}, InvalidInputError, "max_trials must be at least 1"),
        ({"deterministic": 1}, InvalidTypeError, "deterministic must be True or False"),
        ({"random_state": -1}, InvalidInputError, "random_state"),
    ],
    ids=str,
)
def test_bad_parameters(topics, parameters, error, words):
    with pytest.raises(error, match=words):
        WSABIE(**parameters).fit(*topics)


@pytest.mark.parametrize(("name", "floor"), [("bibtex", 0.60), ("delicious", 0.65)])
def test_published_figures(data_folder, name, floor):
    """Published: 54.8 on bibtex, 64.1 on delicious."""
    X, Y, X_test, Y_test = load_dataset(name)
    model = WSABIE(n_jobs=-1, max_iter=30 if name == "bibtex" else 10).fit(X, Y)
    assert ranking_report(Y_test, model.predict_topk(X_test, 5))["P@1"] >= floor


@pytest.mark.slow
def test_delicious_with_the_default_settings(data_folder):
    """Published: 64.1."""
    X, Y, X_test, Y_test = load_dataset("delicious")
    assert ranking_report(Y_test, WSABIE(n_jobs=-1).fit(X, Y).predict_topk(X_test, 5))["P@1"] >= 0.65
