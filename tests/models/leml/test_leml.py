import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagwise import LEML
from tagwise.data import load_dataset
from tagwise.exceptions import ConvergenceWarning, InvalidInputError, InvalidTypeError, TagwiseWarning
from tagwise.metrics import precision_at_k


def random_problem(seed, n=40, d=10, n_labels=8):
    rng = np.random.default_rng(seed)
    X = sp.random(n, d, 0.5, format="csr", random_state=seed)
    return X, sp.csr_matrix(X @ rng.standard_normal((d, n_labels)) > 0.5).astype(float)


@settings(max_examples=40)
@given(st.integers(0, 9999), st.booleans(), st.booleans(), st.sampled_from([1.0, 3.0, "propensity"]), st.integers(1, 5))
def test_the_objective_falls_in_every_round(seed, masked, fit_intercept, positive_weight, rank):
    X, Y = random_problem(seed)
    observed = (np.random.default_rng(seed).random(Y.shape) < 0.6) if masked else None
    model = LEML(rank, positive_weight=positive_weight, fit_intercept=fit_intercept, reg=0.3, max_iter=8, tol=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TagwiseWarning)
        model.fit(X, Y, observed)
    assert (np.diff(model.objective_) <= 1e-9 * model.objective_[0]).all()


def test_objective_is_the_value_of_the_stated_problem():
    X, Y = random_problem(3)
    reg = 0.4
    model = LEML(3, reg=reg, max_iter=3, tol=0, normalize=False)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, Y)
    W, H = model.feature_factors_, model.label_factors_
    raw_scores = model.decision_function(X) + 0.5
    stated = 0.5 * np.sum((Y.toarray() - raw_scores) ** 2) + 0.5 * reg * (np.sum(W**2) + np.sum(H**2))
    assert model.objective_[-1] == pytest.approx(stated, rel=1e-9)


def test_reaches_the_trace_norm_optimum_at_full_rank():
    """At full rank the factored problem has no bad optima: its value is the convex trace-norm problem's."""
    X, Y = random_problem(5, n=30, d=5, n_labels=4)
    dense, reg = X.toarray(), 0.5
    model = LEML(4, reg=reg, max_iter=5000, inner_iter=50, tol=1e-14, normalize=False, fit_intercept=False)
    model.fit(X, Y)
    Z = np.zeros((5, 4))
    step = 1 / np.linalg.norm(dense, 2) ** 2
    for _ in range(20_000):  # proximal gradient on ½‖Y − XZ‖² + λ‖Z‖_*
        U, s, V = np.linalg.svd(Z - step * dense.T @ (dense @ Z - Y.toarray()), full_matrices=False)
        Z = U @ np.diag(np.maximum(s - step * reg, 0)) @ V
    convex = 0.5 * np.sum((Y.toarray() - dense @ Z) ** 2) + reg * np.linalg.norm(Z, "nuc")
    assert model.objective_[-1] == pytest.approx(convex, rel=1e-6)


def test_recovers_a_planted_low_rank_truth():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 20))
    scores = X @ rng.standard_normal((20, 3)) @ rng.standard_normal((3, 15))
    Y = (scores > np.quantile(scores, 0.8, axis=1, keepdims=True)).astype(int)
    model = LEML(3, max_iter=30).fit(X[:300], Y[:300])
    labels, _ = model.predict_topk(X[300:], 3)
    assert precision_at_k(Y[300:], labels, 3) > 0.75  # chance is 0.2


def test_unknown_is_not_negative():
    """With half of the positives hidden, a mask that says so ranks better than taking them for negatives."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((500, 15))
    truth = (X @ rng.standard_normal((15, 3)) @ rng.standard_normal((3, 12)) > 1.5).astype(int)
    observed = rng.random(truth.shape) < 0.15
    masked = LEML(3, max_iter=20).fit(X[:400], truth[:400], observed[:400])
    as_negative = LEML(3, max_iter=20).fit(X[:400], truth[:400] * observed[:400])
    kept = truth[400:].sum(axis=1) > 0
    reached, naive = (
        precision_at_k(truth[400:][kept], model.predict_topk(X[400:][kept], 1)[0], 1) for model in (masked, as_negative)
    )
    assert reached > naive


def test_positive_weight_raises_recall_of_positives():
    X, Y = random_problem(2)
    on = [LEML(3, positive_weight=weight).fit(X, Y).predict(X).nnz for weight in (0.5, 1.0, 4.0)]
    assert on[0] < on[1] < on[2]


def test_positive_weight_per_label_and_for_all_agree():
    X, Y = random_problem(2)
    one, each = (LEML(3, positive_weight=weight).fit(X, Y) for weight in (2.0, np.full(8, 2.0)))
    np.testing.assert_array_equal(one.label_factors_, each.label_factors_)


def test_rank_is_clipped_with_a_warning():
    X, Y = random_problem(0)
    with pytest.warns(TagwiseWarning, match="rank=50 is more than 10 features and 8 labels allow; using 8"):
        model = LEML(50, tol=0.5).fit(X, Y)
    assert model.feature_factors_.shape == (10, 8)


def test_stopping_early_warns_and_stopping_in_time_does_not():
    X, Y = random_problem(0)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1 rounds; .* above tol=1e-09; raise max_iter or tol"):
        LEML(3, max_iter=1, tol=1e-9).fit(X, Y)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2 rounds; .* tol counts from round 3 on; raise max_iter"):
        LEML(3, max_iter=2, tol=1.0).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LEML(3, max_iter=500, tol=1e-3).fit(X, Y)
    assert model.n_iter_ < 500


def test_features_that_overflow_the_fit_are_refused():
    X, Y = random_problem(0)
    with pytest.raises(InvalidInputError, match="the fit overflows"), np.errstate(all="ignore"):
        LEML(3, normalize=False).fit((1e30 * X).astype(np.float32), Y)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"rank": 0}, InvalidInputError, "rank must be at least 1; found 0"),
        ({"rank": 2.5}, InvalidTypeError, "rank must be a whole number; found 2.5"),
        ({"loss": "hinge"}, InvalidInputError, "loss must be one of"),
        ({"reg": 0}, InvalidInputError, "reg must be finite above 0; found 0"),
        ({"memory_limit": 0}, InvalidInputError, "memory_limit must be finite above 0; found 0"),
        ({"memory_limit": "1GB"}, InvalidTypeError, "memory_limit must be a number; found '1GB'"),
        ({"reg": float("nan")}, InvalidInputError, "reg must be finite"),
        ({"reg": "1"}, InvalidTypeError, "reg must be a number"),
        ({"max_iter": 0}, InvalidInputError, "max_iter must be at least 1"),
        ({"inner_iter": 0}, InvalidInputError, "inner_iter must be at least 1"),
        ({"tol": -1}, InvalidInputError, "tol must be finite at least 0"),
        ({"positive_weight": 0}, InvalidInputError, "positive_weight must be finite above 0"),
        ({"positive_weight": "rare"}, InvalidInputError, "positive_weight must be a number, an array or 'propensity'"),
        ({"positive_weight": np.ones(3)}, InvalidInputError, "one per label"),
        ({"positive_weight": -np.ones(8)}, InvalidInputError, "above 0 for every label"),
    ],
    ids=str,
)
def test_bad_parameters(changes, error, words):
    X, Y = random_problem(0)
    with pytest.raises(error, match=words):
        LEML(**{"rank": 2, **changes}).fit(X, Y)


def test_bibtex_reaches_the_expected_precision(data_folder):
    X, Y, X_test, Y_test = load_dataset("bibtex")
    labels, _ = LEML(rank=64, reg=1.0, max_iter=10, random_state=0).fit(X, Y).predict_topk(X_test, 5)
    p1, p3, p5 = precision_at_k(Y_test, labels, [1, 3, 5])
    assert p1 >= 0.61
    assert p3 >= 0.365
    assert p5 >= 0.27


def test_debtags_with_a_fifth_of_the_labels_known(data_folder):
    from tagwise.data import hide_labels

    X, Y, X_test, Y_test = load_dataset("debtags")
    observed = hide_labels(Y, 0.2, random_state=0)
    labels, _ = LEML(rank=100, reg=3.0, n_jobs=-1).fit(X, Y, observed).predict_topk(X_test, 5)
    assert precision_at_k(Y_test, labels, 1) >= 0.80
