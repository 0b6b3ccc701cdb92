"""Contributions and intercept add up to the score: for every linear model, on sparse, dense, scaled and plain rows."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import LEML, MSE, REML, BinaryRelevance, Cascade
from tagwise.baselines import CPLST, KNN, MLCSSP, PLST, WSABIE, BayesianCS, CompressedSensing, FastXML
from tagwise.exceptions import (
    ExplanationError,
    InvalidInputError,
    InvalidTypeError,
    NotFittedError,
)
from tagwise.inspection import explain_labels, explanations, heaviest_features, nearest_labels
from tagwise.inspection.explanations import heaviest_features_of_each

pytestmark = pytest.mark.filterwarnings("ignore::tagwise.exceptions.ConvergenceWarning")
LINEAR = {
    "LEML": LEML(rank=3),
    "LEML-plain-rows": LEML(rank=3, normalize=False, fit_intercept=False),
    "LEML-logistic": LEML(rank=3, loss="logistic", reg=0.1),
    "LEML-closed": LEML(rank=3, solver="closed_form"),
    "REML-admm": REML(rank=3, sparse_part="admm"),
    "REML-support": REML(rank=3, sparse_part="support", support=4),
    "BinaryRelevance": BinaryRelevance(),
    "BinaryRelevance-hinge": BinaryRelevance(loss="hinge", reg=0.1),
    "PLST": PLST(rank=3),
    "CPLST": CPLST(rank=3),
    "MLCSSP": MLCSSP(rank=3),
    "WSABIE": WSABIE(rank=3, max_iter=5),
}


@pytest.fixture
def problem():
    X = sp.random(50, 20, 0.3, format="csr", random_state=1)
    X.data[X.indptr[7] : X.indptr[8]] = 0
    X.eliminate_zeros()
    truth = np.random.default_rng(0).standard_normal((20, 9))
    return X, sp.csr_matrix((X @ truth > 0.5).astype(float))


@pytest.mark.parametrize("model", LINEAR.values(), ids=LINEAR.keys())
def test_contributions_and_intercept_are_the_score(model, problem, monkeypatch):
    monkeypatch.setattr(explanations, "_BLOCK_WEIGHTS", 60)  # three labels at a time
    sparse, Y = problem
    for X, rtol in ((sparse, 1e-9), (sparse.toarray(), 1e-9), (sparse.astype(np.float32), 1e-4)):
        model.fit(X, Y)
        labels, scores = model.predict_topk(X, 4)
        explained = explain_labels(model, X, labels)
        np.testing.assert_allclose(explained.scores(), scores, rtol=rtol, atol=rtol)
        full = np.take_along_axis(model.decision_function(X), labels, axis=1)
        np.testing.assert_allclose(explained.scores(), full, rtol=rtol, atol=rtol)
        assert explained.explained == "the score"


def test_a_contribution_is_value_times_weight(problem):
    X, Y = problem
    for model in (LINEAR["LEML"], LINEAR["REML-support"]):
        model.fit(X, Y)
        Z = model.feature_factors_ @ model.label_factors_.T
        if hasattr(model, "sparse_weights_"):
            Z += model.sparse_weights_.toarray()
        features, contributions = explain_labels(model, X[3], np.array([[5]])).of(0, 0)
        row = X[3].toarray()[0]
        np.testing.assert_allclose(contributions, row[features] / np.linalg.norm(row) * Z[features, 5], rtol=1e-9)
        assert set(features) == set(np.flatnonzero(row))
        assert (np.diff(np.abs(contributions)) <= 0).all()


def test_rows_without_entries_and_places_without_labels(problem):
    X, Y = problem
    model = BinaryRelevance().fit(X, Y)
    explained = explain_labels(model, X[[7, 8]], np.array([[2, -1], [-1, 4]]))
    assert [len(explained.of(row, place)[0]) for row in (0, 1) for place in (0, 1)] == [0, 0, 0, X[8].nnz]
    np.testing.assert_allclose(explained.intercepts, [[model.intercept_[2], 0], [0, model.intercept_[4]]])
    np.testing.assert_allclose(explained.scores()[0, 0], model.decision_function(X[7])[0, 2])
    assert explain_labels(model, X, np.full((50, 2), -1)).contributions.nnz == 0


def test_a_cascade_explains_the_margin_that_decides(problem):
    X, Y = problem
    model = Cascade(rank=3, support=5, shortlist=4).fit(X, Y)
    labels, _ = model.predict_topk(X, 3)
    explained = explain_labels(model, X, labels)
    rows = X.toarray() / np.maximum(np.linalg.norm(X.toarray(), axis=1, keepdims=True), 1e-300)
    rankers = rows @ model.ranker_weights_.toarray() + model.ranker_intercept_
    proposer = model.proposer_
    Z = proposer.feature_factors_ @ proposer.label_factors_.T + proposer.sparse_weights_.toarray()
    margins = np.where(model.has_ranker_, rankers, 2 * (rows @ Z + proposer.intercept_))
    np.testing.assert_allclose(explained.scores(), np.take_along_axis(margins, labels, axis=1), atol=1e-9)
    assert "margin" in explained.explained


def test_heaviest_features(problem):
    X, Y = problem
    model = BinaryRelevance().fit(X, Y)
    features, weights = heaviest_features(model, 3, top=4)
    np.testing.assert_array_equal(features, np.argsort(-model.feature_weights_[:, 3])[:4])
    np.testing.assert_array_equal(weights, model.feature_weights_[features, 3])
    features, weights = heaviest_features(model, 3, top=20)
    assert (weights > 0).all()
    assert len(features) == np.count_nonzero(model.feature_weights_[:, 3] > 0)


def test_the_features_of_many_labels_are_those_of_each_in_few_look_ups(problem, monkeypatch):
    X, Y = problem
    model = Cascade(rank=3, support=5, shortlist=4, validation_fraction=0).fit(X, Y)
    labels = np.array([8, 0, 3, 3, 5])
    calls = []
    weights = Cascade.label_weights
    monkeypatch.setattr(Cascade, "label_weights", lambda self, ids: calls.append(len(ids)) or weights(self, ids))
    many = list(heaviest_features_of_each(model, labels, 4))
    assert calls == [5]
    for (features, values), label in zip(many, labels, strict=True):
        order = np.argsort(-model.label_weights([label])[0], kind="stable")[:4]
        np.testing.assert_array_equal(features, order[model.label_weights([label])[0, order] > 0])
        np.testing.assert_array_equal(values, heaviest_features(model, label, 4)[1])
    monkeypatch.setattr(explanations, "_BLOCK_WEIGHTS", 2 * X.shape[1])
    again = list(heaviest_features_of_each(model, labels, 4))
    assert all(np.array_equal(one[0], other[0]) for one, other in zip(many, again, strict=True))


def test_models_without_linear_scores_refuse(problem):
    X, Y = problem
    for model, words in (
        (LEML(rank=3, kernel="rbf", gamma=1.0), "LEML with a kernel has no exact explanations"),
        (MSE(subspace_rank=2), "MSE has no exact explanations"),
        (KNN(n_neighbors=3), "KNN has no exact"),
        (FastXML(n_trees=2), "FastXML has no exact"),
        (CompressedSensing(n_measurements=9, n_nonzero=2), "CompressedSensing has no exact"),
        (BayesianCS(n_measurements=9), "BayesianCS has no exact"),
    ):
        model.fit(X, Y)
        with pytest.raises(ExplanationError, match=words):
            explain_labels(model, X, model.predict_topk(X, 2)[0])
        for function in (heaviest_features, nearest_labels):
            with pytest.raises(ExplanationError, match=words):
                function(model, 0)


def test_bad_arguments(problem):
    X, Y = problem
    model = PLST(rank=3).fit(X, Y)
    for labels, error, words in (
        (np.zeros((50, 2)), InvalidTypeError, "float64"),
        (np.zeros((3, 2), int), InvalidInputError, "each of the 50 rows"),
        (np.zeros(50, int), InvalidInputError, "each of the 50 rows"),
        (np.full((50, 2), 9), InvalidInputError, "from 0 to 8"),
        (np.full((50, 2), -2), InvalidInputError, "from 0 to 8"),
    ):
        with pytest.raises(error, match=words):
            explain_labels(model, X, labels)
    for function in (heaviest_features, nearest_labels):
        for label, top, words in (
            (-1, 5, "label must be at least 0"),
            (9, 5, "label must be below 9"),
            (0, 0, "top must be at least 1"),
        ):
            with pytest.raises(InvalidInputError, match=words):
                function(model, label, top=top)
        with pytest.raises(NotFittedError):
            function(PLST(), 0)
    for label in (-1, 9, 999):
        for answer in (model.label_weights, model.label_intercepts):
            with pytest.raises(InvalidInputError, match=rf"labels must be ids from 0 to 8; found {label}\."):
                answer([0, label])
    with pytest.raises(NotFittedError):
        explain_labels(PLST(), X, np.zeros((50, 1), int))


def test_cosines_of_all_weights(problem, monkeypatch):
    X, Y = problem
    monkeypatch.setattr(explanations, "_BLOCK_WEIGHTS", 40)  # blocks of two labels
    for model in (BinaryRelevance(), LEML(rank=4)):
        weights = model.fit(X, Y).label_weights(np.arange(9))
        unit = weights / np.linalg.norm(weights, axis=1, keepdims=True)
        cosines = unit @ unit.T
        labels, found = nearest_labels(model, 2, top=10)
        expected = [label for label in np.argsort(-cosines[2], kind="stable") if label != 2]
        assert labels.tolist() == expected
        np.testing.assert_allclose(found, cosines[2, expected], atol=1e-5)
        assert nearest_labels(model, 2, top=3)[0].tolist() == expected[:3]
    # A label without weights is like none.
    model = BinaryRelevance().fit(X, sp.hstack([Y, np.ones((50, 1))], format="csr"))
    assert 9 not in nearest_labels(model, 0)[0]
    assert len(nearest_labels(model, 9)[0]) == 0
