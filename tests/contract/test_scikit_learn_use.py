"""What users of scikit-learn expect of every model: probabilities, a score, weights of rows, coefficients, its data."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from tagwise import LEML, REML, BinaryRelevance
from tagwise.exceptions import InvalidInputError
from tagwise.metrics import inverse_propensity, micro_f1, ndcg_at_k, precision_at_k, psp_at_k, scorer
from tagwise.registry import info_of

pytestmark = pytest.mark.filterwarnings("ignore::tagwise.exceptions.TagwiseWarning")


# ---------------------------------------------------------------------- probabilities


def test_probabilities_rank_as_scores_do_and_are_half_at_the_border(fitted, problem):
    X, _ = problem
    scores, found = fitted.decision_function(X), fitted.predict_proba(X, dense=True)
    assert found.shape == scores.shape
    assert found.dtype == scores.dtype
    assert ((found >= 0) & (found <= 1)).all()
    np.testing.assert_array_equal(found >= 0.5, scores >= 0)
    order = np.argsort(scores, axis=None, kind="stable")
    assert (np.diff(found.ravel()[order]) >= 0).all()


def test_sparse_probabilities_are_those_of_the_best_labels(fitted, problem):
    X, _ = problem
    dense, best = fitted.predict_proba(X, dense=True), fitted.predict_proba(X, k=3)  # Y was CSR at fit
    assert isinstance(best, sp.csr_matrix)
    assert best.shape == dense.shape
    labels, _ = fitted.predict_topk(X, 3)
    for row in range(X.shape[0]):
        assert set(best[row].indices) == set(labels[row])
        np.testing.assert_allclose(best[row].data, dense[row, best[row].indices], rtol=1e-5, atol=1e-6)


@pytest.mark.of_base
def test_probabilities_are_dense_where_labels_were(make, problem):
    X, Y = problem
    model = make().fit(X, Y.toarray())
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(X, dense=True))
    assert isinstance(model.predict_proba(X, dense=False), sp.csr_matrix)
    assert isinstance(make().fit(X, sp.csr_array(Y)).predict_proba(X), sp.csr_array)


def test_logistic_probabilities_are_those_of_logistic_regression():
    X, Y = make_multilabel_classification(random_state=0)
    model = BinaryRelevance(loss="logistic", normalize=False).fit(X, Y)
    np.testing.assert_allclose(model.predict_proba(X), 1 / (1 + np.exp(-model.decision_function(X))), atol=1e-12)


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge"])
def test_without_features_probabilities_are_frequencies(loss):
    """The best constant score of a label that is on in a share p of its rows means the probability p."""
    Y = (np.random.default_rng(0).random((200, 4)) < [0.1, 0.3, 0.5, 0.9]).astype(int)
    model = BinaryRelevance(loss=loss, solver="cg", tol=1e-8).fit(np.zeros((200, 1)), Y)
    np.testing.assert_allclose(model.predict_proba(np.zeros((1, 1)))[0], Y.mean(axis=0), atol=1e-6)


# ---------------------------------------------------------------------- score


def test_score_is_ndcg_at_5(fitted, problem):
    X, Y = problem
    assert fitted.score(X, Y) == ndcg_at_k(Y, fitted.predict_topk(X, 5), 5)


@pytest.mark.of_base
def test_scorers_measure_every_model(make, fitted, problem):
    X, Y = problem
    weights = inverse_propensity(Y)
    assert scorer("precision_at_1")(fitted, X, Y) == precision_at_k(Y, fitted.predict_topk(X, 1), 1)
    expected = psp_at_k(Y, fitted.predict_topk(X, 3), weights, 3)
    assert scorer("psp_at_3", inverse_propensity=weights)(fitted, X, Y) == expected
    assert scorer("micro_f1")(fitted, X, Y) == micro_f1(Y, fitted.predict(X))


def test_scorers_in_searches_and_pipelines():
    X, Y = make_multilabel_classification(n_samples=150, n_features=15, random_state=1)
    measure = scorer("ndcg_at_3")
    by_hand = [
        ndcg_at_k(Y[test], LEML(3, max_iter=3).fit(X[train], Y[train]).predict_topk(X[test], 3), 3)
        for train, test in [(np.arange(50, 150), np.arange(50)), (np.r_[:50, 100:150], np.arange(50, 100))]
    ]
    assert cross_val_score(LEML(3, max_iter=3), X, Y, scoring=measure, cv=3)[:2].tolist() == by_hand
    pipeline = make_pipeline(MaxAbsScaler(), BinaryRelevance())
    search = GridSearchCV(pipeline, {"binaryrelevance__reg": [0.1, 100.0]}, scoring=measure, cv=3, n_jobs=2).fit(X, Y)
    rows = search.best_estimator_[0].transform(X)
    assert measure(search, X, Y) == ndcg_at_k(Y, search.best_estimator_[-1].predict_topk(rows, 3), 3)
    peer = OneVsRestClassifier(LogisticRegression()).fit(X, Y)
    assert measure(peer, X, Y) == ndcg_at_k(Y, peer.decision_function(X), 3)
    assert scorer("micro_f1")(peer, X, Y) == micro_f1(Y, peer.predict(X))


def test_a_scorer_that_does_not_exist():
    wrong = {"ndcg": "name must be one of", "ndcg_at_0": "name must be one of", "psp_at_5": "needs inverse_propensity"}
    for name, words in wrong.items():
        with pytest.raises(InvalidInputError, match=words):
            scorer(name)


# ---------------------------------------------------------------------- weights of rows

WEIGHING = {
    **dict.fromkeys(["squared", "dual"], lambda **more: BinaryRelevance(reg=0.3, tol=1e-9, max_iter=500, **more)),
    "cg": lambda **more: BinaryRelevance(reg=0.3, solver="cg", tol=1e-9, max_iter=500, **more),
    "logistic": lambda **more: BinaryRelevance(loss="logistic", tol=1e-9, **more),
    "squared_hinge": lambda **more: BinaryRelevance(loss="squared_hinge", tol=1e-9, **more),
    "hinge": lambda **more: BinaryRelevance(loss="hinge", tol=1e-9, max_iter=5000, **more),
    # A random start has the same label factors for any rows; the spectral one is drawn row by row.
    "LEML": lambda **more: LEML(3, init="random", max_iter=4, **more),
    "LEML-logistic": lambda **more: LEML(3, init="random", loss="logistic", max_iter=4, **more),
    "REML": lambda **more: REML(3, sparse_part="support", support=4, max_iter=3, **more),
    "REML-admm": lambda **more: REML(3, sparse_part="admm", sparsity=0.5, max_iter=3, prune=0, **more),
    "REML-parts": lambda **more: REML(4, sparse_part="support", partitions=2, max_iter=3, **more),
}


@pytest.fixture
def exact_reml(monkeypatch):
    """REML begins at label factors that are drawn row by row; here they are the same for any rows, and ADMM ends."""

    def start(noise, feature_side, label_side, dtype):
        shape = label_side(noise).shape
        return np.linalg.qr(np.random.default_rng(5).standard_normal(shape))[0].astype(dtype)

    monkeypatch.setattr("tagwise.models.leml.steps.subspace_iteration", start)
    monkeypatch.setattr("tagwise.solvers.admm._ABSOLUTE_TOL", 1e-10)
    monkeypatch.setattr("tagwise.models.reml.sparse_part._ROUND_TOL", 1e-9)
    monkeypatch.setattr("tagwise.models.reml.sparse_part._ROUND_STEPS", 20_000)


def repeated(matrix, times):
    return matrix[np.repeat(np.arange(len(times)), times)]


@pytest.mark.parametrize("name", WEIGHING)
@pytest.mark.filterwarnings("ignore::tagwise.exceptions.ConvergenceWarning")
def test_whole_weights_are_repeated_rows(problem, mask, name, exact_reml):
    X, Y = problem
    if name == "dual":  # fewer rows than features
        X, Y, mask = X[:10], Y[:10], mask[:10]
    times = np.random.default_rng(2).integers(0, 4, X.shape[0])
    for known, weight, storage in product((None, mask), (1.0, 2.5), (sp.csr_matrix, sp.csr_matrix.toarray)):
        rows = repeated(X, times), repeated(Y, times), None if known is None else repeated(known, times)
        plain = WEIGHING[name](positive_weight=weight).fit(storage(rows[0]), rows[1], rows[2])
        weighted = WEIGHING[name](positive_weight=weight).fit(storage(X), Y, known, sample_weight=times)
        atol = 1e-3 if name == "hinge" else 1e-5
        np.testing.assert_allclose(weighted.decision_function(X), plain.decision_function(X), atol=atol)
        np.testing.assert_allclose(weighted.objective_[-1], plain.objective_[-1], rtol=1e-5)


def test_weights_are_those_of_ridge_regression(problem):
    X, Y = problem
    weights = np.random.default_rng(3).random(X.shape[0])
    for fit_intercept in (True, False):
        model = BinaryRelevance(reg=0.2, normalize=False, fit_intercept=fit_intercept).fit(X, Y, sample_weight=weights)
        ridge = Ridge(alpha=0.2, fit_intercept=fit_intercept).fit(X.toarray(), Y.toarray(), sample_weight=weights)
        np.testing.assert_allclose(model.coef_, ridge.coef_, atol=1e-8)


@pytest.mark.of_base
def test_ones_change_nothing_and_others_refuse_weights(make, fitted, problem):
    X, Y = problem
    if not info_of(type(fitted)).weighs_rows:
        with pytest.raises(InvalidInputError, match=r"does not support row weights.* LEML, REML, Cascade or BinaryRel"):
            make().fit(X, Y, sample_weight=np.ones(X.shape[0]))
        return
    same = make().fit(X, Y, sample_weight=np.ones(X.shape[0]))
    np.testing.assert_array_equal(same.decision_function(X), fitted.decision_function(X))


def test_weights_that_are_none(problem):
    for weights, words in (
        (np.ones(3), "has shape"),
        (-np.ones(60), "at least 0; found -1.0 for row 0"),
        (np.full(60, np.nan), "finite"),
        (np.zeros(60), "is zero for all rows"),
        (["a"] * 60, "must hold numbers"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            BinaryRelevance().fit(*problem, sample_weight=weights)
    with pytest.raises(InvalidInputError, match=r"closed_form.* does not support row weights"):
        LEML(2, solver="closed_form").fit(*problem, sample_weight=np.arange(60))


# ---------------------------------------------------------------------- coefficients


def test_coefficients_as_in_scikit_learn(fitted, problem):
    X, _ = problem
    linear = info_of(type(fitted)).explainable and fitted.explained_score == "the score"
    if not linear or getattr(fitted, "kernel", None) is not None:
        assert not hasattr(fitted, "coef_")
        return
    assert fitted.coef_.shape == (fitted.n_labels_, X.shape[1])
    rows = fitted.scored_rows(X)
    np.testing.assert_allclose(rows @ fitted.coef_.T + fitted.intercept_, fitted.decision_function(X), atol=1e-6)


# ---------------------------------------------------------------------- its data sets


@pytest.mark.of_base
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_data_of_scikit_learn(make, sparse):
    X, Y = make_multilabel_classification(
        n_samples=60, n_features=12, sparse=sparse, return_indicator="sparse" if sparse else "dense", random_state=0
    )
    model = make().fit(X, Y)
    found = model.predict(X)
    assert found.shape == Y.shape
    assert found.dtype == Y.dtype
    assert sp.issparse(found) == sparse
    assert model.predict_proba(X).shape == Y.shape
    truth = Y.toarray() if sparse else Y
    assert roc_auc_score(truth, model.predict_proba(X, dense=True), average="micro") > 0.5


def test_lists_of_labels_are_refused_with_advice():
    with pytest.raises(InvalidInputError, match="MultiLabelBinarizer"):
        BinaryRelevance().fit(*make_multilabel_classification(return_indicator=False, random_state=0))
