"""FastXML: what a forest learns, how trees add up, forged forests, bad parameters, real data."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import load
from tagwise.baselines import FastXML
from tagwise.data import load_dataset
from tagwise.exceptions import InvalidInputError
from tagwise.metrics import precision_at_k, ranking_report


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


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("roots_", lambda a: a + 10**6, "outside the trees"),
        ("roots_", lambda a: a[:0], "one set of trees"),
        ("roots_", lambda a: a.astype(np.int32), "int64"),
        ("children_", lambda a: a[:-1], "one set of trees"),
        ("children_", lambda a: np.zeros_like(a), "its own ancestor"),
        ("children_", lambda a: np.full_like(a, -(10**6)), "outside the trees"),
        ("biases_", lambda a: np.full_like(a, np.nan), "NaN"),
        ("biases_", lambda a: a.astype(np.float64), "one type"),
        ("leaves_", lambda a: sp.csr_matrix(a[:, :-1]), "features and labels of the model"),
        ("separators_", lambda a: sp.csr_matrix(a[:, :-1]), "features and labels of the model"),
    ],
)
def test_arrays_that_make_no_forest_are_neither_saved_nor_loaded(topics, tmp_path, name, change, words):
    model = FastXML(n_trees=2).fit(*topics)
    model.save(tmp_path / "model")
    assert isinstance(load(tmp_path / "model"), FastXML)
    setattr(model, name, change(getattr(model, name)))
    with pytest.raises(InvalidInputError, match=words):
        model.save(tmp_path / "model")


def test_unsorted_separators_are_refused(topics, tmp_path):
    model = FastXML(n_trees=2).fit(*topics)
    weights = model.separators_
    longest = int(np.argmax(np.diff(weights.indptr)))
    part = slice(weights.indptr[longest], weights.indptr[longest + 1])
    weights.indices[part] = weights.indices[part][::-1].copy()
    weights.has_sorted_indices = False
    with pytest.raises(InvalidInputError, match="must be sorted"):
        model.save(tmp_path / "model")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_trees": 0}, "n_trees must be at least 1"),
        ({"max_leaf": 0}, "max_leaf must be at least 1"),
        ({"C": 0}, "C must be finite above 0"),
        ({"leaf_labels": 0}, "leaf_labels must be at least 1"),
        ({"random_state": -1}, "random_state"),
    ],
    ids=str,
)
def test_bad_parameters(topics, parameters, words):
    with pytest.raises(InvalidInputError, match=words):
        FastXML(**parameters).fit(*topics)


def test_bibtex(data_folder):
    X, Y, X_test, Y_test = load_dataset("bibtex")
    model = FastXML(n_trees=10, n_jobs=-1).fit(X, Y)
    assert ranking_report(Y_test, model.predict_topk(X_test, 5))["P@1"] >= 0.57


@pytest.mark.slow
@pytest.mark.parametrize(("name", "floor"), [("bibtex", 0.624), ("delicious", 0.67)])
def test_published_figures_with_the_default_settings(data_folder, name, floor):
    """Published: 63.4 on bibtex, 69.6 on delicious, where ours falls short of it by 2 points."""
    X, Y, X_test, Y_test = load_dataset(name)
    model = FastXML(n_jobs=-1).fit(X, Y)
    assert ranking_report(Y_test, model.predict_topk(X_test, 5))["P@1"] >= floor
