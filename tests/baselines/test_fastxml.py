"""FastXML: what a forest learns, how trees add up, forged forests, bad parameters, real data."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.baselines import FastXML
from tagwise.metrics import precision_at_k


@pytest.fixture(scope="module")
def topics():
    """600 rows of 8 topics with features and labels of their own, a fifth of the rows without their label."""
    rng = np.random.default_rng(0)
    topic = rng.integers(0, 8, 600)
    X = (rng.random((600, 40)) < np.where(np.arange(40) // 5 == topic[:, None], 0.6, 0.05)).astype(np.float32)
    Y = np.zeros((600, 9), dtype=np.float32)
    Y[np.arange(600), topic] = rng.random(600) < 0.8
    Y[:, 8] = rng.random(600) < 0.1
    return sp.csr_matrix(X), sp.csr_matrix(Y)


def test_topics_are_learnt_and_more_trees_are_better(topics):
    X, Y = topics
    one, many = (FastXML(n_trees=t).fit(X[:400], Y[:400]) for t in (1, 20))
    precision = [precision_at_k(Y[400:], m.predict_topk(X[400:], 1), k=1) for m in (one, many)]
    best = Y[400:, :8].sum() / 200
    assert precision[1] > precision[0]
    assert precision[1] > best - 0.12


def test_scores_are_the_mean_of_the_trees_shares(topics):
    X, Y = topics
    model = FastXML(n_trees=12).fit(X, Y)
    assert len(model.roots_) == 12
    assert [info["trees"] for info in model.history_] == [10, 12]
    shares = model.decision_function(X) + 0.5
    assert shares.min() >= -1e-6
    assert shares.max() <= 1 + 1e-6
    # The mean share over the rows that trained a tree is the label's frequency.
    np.testing.assert_allclose(shares.mean(axis=0), np.asarray(Y.mean(axis=0))[0], atol=1e-5)
    np.testing.assert_array_equal(model.predict(X).toarray(), shares > 0.5)


def test_a_tie_is_off():
    """Rows that nothing tells apart, half of them with the label."""
    model = FastXML(n_trees=3).fit(np.ones((4, 2)), np.array([[1], [1], [0], [0]]))
    assert not model.predict(np.ones((1, 2))).any()
    assert model.decision_function(np.ones((1, 2)))[0, 0] == pytest.approx(0, abs=1e-6)


def test_the_first_trees_of_a_larger_forest_are_a_smaller_one(topics):
    small, large = (FastXML(n_trees=t).fit(*topics) for t in (3, 5))
    np.testing.assert_array_equal(small.separators_.toarray(), large.separators_.toarray()[: len(small.children_)])
    np.testing.assert_array_equal(small.roots_, large.roots_[:3])
    other = FastXML(n_trees=3, random_state=1).fit(*topics)
    assert other.separators_.nnz != small.separators_.nnz or (other.separators_ != small.separators_).nnz


def test_a_stop_keeps_the_trees_so_far(topics):
    model = FastXML(n_trees=30).fit(*topics, callback=lambda iteration, info: iteration == 1)
    assert len(model.roots_) == 10


def test_parameters_shape_the_trees(topics):
    plain = FastXML(n_trees=3).fit(*topics)
    assert len(FastXML(n_trees=3, max_leaf=100).fit(*topics).children_) < len(plain.children_)
    assert len(FastXML(n_trees=3, C=1e-3).fit(*topics).children_) == 0
    assert np.diff(FastXML(n_trees=3, leaf_labels=1).fit(*topics).leaves_.indptr).max() == 1
