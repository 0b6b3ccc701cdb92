"""WSABIE: what it learns, the border between off and on, the fast mode, bad parameters, real data."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.baselines import WSABIE
from tagwise.metrics import micro_f1, precision_at_k

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


def test_the_fast_mode_learns_as_well_with_several_threads(topics):
    X, Y = topics
    model = WSABIE(**QUICK, deterministic=False, n_jobs=2).fit(X[:400], Y[:400])
    assert precision_at_k(Y[400:], model.predict_topk(X[400:], 1), k=1) > 0.8
    alone = WSABIE(**QUICK, deterministic=False).fit(X, Y)
    np.testing.assert_array_equal(alone.label_factors_, WSABIE(**QUICK).fit(X, Y).label_factors_)
