"""Cascade: the formula of its scores, what counts as a hard negative, tuning on held-out rows, and real figures."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logit

from tagwise import REML, Cascade
from tagwise.data import hide_labels, load_dataset, make_low_rank_plus_sparse
from tagwise.exceptions import InvalidInputError
from tagwise.inspection.explanations import explain_labels
from tagwise.metrics import inverse_propensity, precision_at_k, ranking_report
from tagwise.models.cascade import tuning as cascade_tuning
from tagwise.models.cascade.rankers import hardest, wrong_proposals
from tagwise.models.cascade.tuning import fit_calibration_constants
from tagwise.problems.labels import known_positives


@pytest.fixture(scope="module")
def problem():
    made = make_low_rank_plus_sparse(400, 60, 30, rank=4, features_per_row=8, noise=0.5, random_state=0)
    return made.X, made.Y


def small(**changed):
    return Cascade(**({"rank": 4, "support": 10, "shortlist": 6, "hard_negatives": 6, "tol": 0.5} | changed))


@pytest.fixture(scope="module")
def fitted(problem):
    return small().fit(*problem)


def unit(X):
    dense = X.toarray().astype(np.float64)
    return dense / np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-300)


def reference_scores(model, X):
    """The docstring's formula, one row and label at a time."""
    rows = unit(X)
    proposed = model.proposer_.decision_function(X)
    margins = rows @ model.ranker_weights_.toarray() + model.ranker_intercept_
    cosines = np.clip(rows @ model.prototypes_.toarray().T, 0, 1)
    a, b = model.chosen_["calibration"]
    out = np.empty_like(proposed)
    for i, s in enumerate(proposed):
        listed = np.argsort(-s, kind="stable")[: model.shortlist]
        for j in range(len(s)):
            if j in listed:
                m = margins[i, j] if model.has_ranker_[j] else 2 * s[j]
                p = expit(model.slope * m) * np.clip(s[j] + 0.5, 1e-3, 1) ** model.exponent
                p *= ((cosines[i, j] + 0.1) / 1.1) ** model.chosen_["prototype_weight"]
                out[i, j] = expit(a * logit(np.clip(p, 1e-6, 1 - 1e-6)) + b) - 0.5
            else:
                out[i, j] = s[j] - 1 if s[j] < 0 else -0.5 - 0.5 / (1 + s[j])
    return out


def test_scores_follow_the_formula(problem, fitted):
    expected = reference_scores(fitted, problem[0][:80])
    np.testing.assert_allclose(fitted.decision_function(problem[0][:80]), expected, atol=2e-4)
    assert fitted.has_ranker_.sum() > 20


def test_both_ways_of_adding_up_margins_agree(problem, fitted):
    X = problem[0][:60]
    expected = fitted.decision_function(X)
    other = small().fit(*problem)
    other.rankers_by_feature_ = not fitted.rankers_by_feature_
    other._build_prediction_cache()
    np.testing.assert_allclose(other.decision_function(X), expected, atol=1e-5)


def test_top_k_goes_on_behind_the_shortlist(problem, fitted):
    X = problem[0][:60]
    scores = fitted.decision_function(X)
    labels, best = fitted.predict_topk(X, k=35)
    assert (labels[:, 30:] == -1).all()
    assert np.isneginf(best[:, 30:]).all()
    np.testing.assert_allclose(best[:, :30], -np.sort(-scores, axis=1), atol=1e-5)
    assert (best[:, : fitted.shortlist] >= -0.5).all()
    assert (best[:, fitted.shortlist : 30] < -0.5).all()


def test_what_is_excluded_changes_no_other_score(problem, fitted):
    X = problem[0][:60]
    all_labels, all_scores = fitted.predict_topk(X, k=30)
    exclude = sp.csr_matrix((np.ones(180), all_labels[:, :3].ravel(), np.arange(61) * 3), shape=(60, 30))
    labels, scores = fitted.predict_topk(X, k=10, exclude=exclude)
    np.testing.assert_array_equal(labels, all_labels[:, 3:13])
    np.testing.assert_allclose(scores, all_scores[:, 3:13], atol=1e-6)


def test_hard_negatives_are_listed_known_and_off(problem):
    X, Y = problem
    observed = hide_labels(Y, 0.5, random_state=1)
    proposer = REML(rank=4, sparse_part="support", support=10, tol=0.5).fit(X, Y, observed)
    positives = known_positives(Y, observed)
    assert (positives != Y.multiply(observed)).nnz == 0
    wrong = wrong_proposals(proposer, X, positives, observed, 6)
    labels, _ = proposer.predict_topk(X, 6 + 2)  # the rows have between one and two known positives
    known, on = observed.toarray() != 0, Y.toarray() != 0
    for row in range(X.shape[0]):
        expected = [label for label in labels[row] if known[row, label] and not on[row, label]][:6]
        assert wrong.indices[wrong.indptr[row] : wrong.indptr[row + 1]].tolist() == expected


@pytest.mark.parametrize("known", [1.0, 0.5])
def test_fewer_hard_negatives_from_more_are_those_that_few_would_be(problem, known):
    """Or tuning, which looks for them once, would choose between other numbers than fits use."""
    X, Y = problem
    observed = None if known == 1 else hide_labels(Y, known, random_state=1)
    proposer = REML(rank=4, sparse_part="support", support=10, tol=0.5).fit(X, Y, observed)
    positives = known_positives(Y, observed)
    many = wrong_proposals(proposer, X, positives, observed, 12)
    for few in (1, 5, 12):
        expected = wrong_proposals(proposer, X, positives, observed, few)
        found = hardest(many, positives, few)
        np.testing.assert_array_equal(found.indptr, expected.indptr)
        np.testing.assert_array_equal(found.indices, expected.indices)


def test_a_label_that_every_row_has_keeps_the_proposers_margin():
    """It is never proposed wrongly, so that there is nothing to train a ranker on."""
    X = sp.csr_matrix(np.repeat(np.eye(2), 20, axis=0))
    Y = np.column_stack([X.toarray(), np.ones(40)])
    model = Cascade(rank=1).fit(X, sp.csr_matrix(Y))
    np.testing.assert_array_equal(model.has_ranker_, [True, True, False])
    assert model.ranker_weights_[:, 2].nnz == 0
    np.testing.assert_array_equal(model.predict(X).toarray(), Y)


def test_a_label_known_on_its_positive_rows_only_has_no_ranker(problem):
    """All other rows are unknown, and unknown pairs are never negatives, though the label is proposed there."""
    X, Y = problem
    label = int(np.asarray(Y.sum(axis=0)).argmax())
    known = np.ones(Y.shape)
    known[:, label] = Y.toarray()[:, label]
    assert small().fit(X, Y).has_ranker_[label]
    model = small().fit(X, Y, known)
    assert not model.has_ranker_[label]
    assert (model.predict_topk(X, 1)[0] == label).mean() > 0.5


def test_a_fit_that_is_stopped_has_no_rankers(problem):
    model = small(tol=0.0).fit(*problem, callback=lambda iteration, info: True)
    assert model.n_iter_ == 1
    assert not model.has_ranker_.any()
    labels, _ = model.predict_topk(problem[0], k=3)
    assert labels.shape == (400, 3)


def test_explanations_add_up_to_the_margin(problem, fitted):
    X = problem[0][:20]
    labels, _ = fitted.predict_topk(X, k=4)
    found = explain_labels(fitted, X, labels)
    margins = unit(X) @ fitted.ranker_weights_.toarray() + fitted.ranker_intercept_
    scores = fitted.proposer_.decision_function(X)
    expected = np.where(fitted.has_ranker_, margins, 2 * scores)
    np.testing.assert_allclose(found.scores(), np.take_along_axis(expected, labels, axis=1), atol=1e-5)
    assert "margin" in found.explained


def test_validation_rows_choose(problem):
    model = small(validation_fraction=0.25, C=7.0).fit(*problem)
    best = max(model.validation_, key=lambda tried: tried["nDCG@5"])
    for name in ("positive_weight", "reg_sparse", "hard_negatives", "C", "slope", "exponent", "prototype_weight"):
        assert model.chosen_[name] == best[name]
    assert model.chosen_["C"] in (0.25, 0.5, 1.0)
    assert {tried["reg_sparse"] for tried in model.validation_} == {0.5, 1.0, 2.0}
    assert {tried["positive_weight"] for tried in model.validation_} == {1.0, 2.0}
    again = small(validation_fraction=0.25, C=7.0, n_jobs=2).fit(*problem)
    assert again.chosen_ == model.chosen_
    np.testing.assert_array_equal(again.decision_function(problem[0]), model.decision_function(problem[0]))


def test_a_shortlist_of_fewer_than_five_labels_can_be_tuned(problem):
    model = small(validation_fraction=0.25, shortlist=3).fit(*problem)
    assert all(0 < tried["nDCG@5"] < 1 for tried in model.validation_)


def test_weights_per_label_are_not_tuned_away(problem):
    model = small(validation_fraction=0.25, positive_weight="propensity").fit(*problem)
    assert {tried["positive_weight"] for tried in model.validation_} == {"propensity"}


def test_what_y_says_outside_the_mask_changes_nothing_in_tuning(problem):
    X, Y = problem
    observed = hide_labels(Y, 0.5, random_state=1)
    flipped = Y.toarray()
    outside = observed.toarray() == 0
    flipped[outside] = 1 - flipped[outside]
    first = small(validation_fraction=0.25).fit(X, Y, observed)
    second = small(validation_fraction=0.25).fit(X, sp.csr_matrix(flipped), observed)
    assert first.validation_ == second.validation_
    assert first.chosen_ == second.chosen_


def test_tuning_ranks_and_trains_on_known_pairs_alone(problem, monkeypatch):
    X, Y = problem
    observed = hide_labels(Y, 0.5, random_state=1)
    seen, negatives_of_rankers = [], []
    constants, learn = cascade_tuning._ValidationRows._constants, cascade_tuning.learn_rankers

    def judging(rows, combination, best, products):
        seen.append(rows)
        found = best >= 0
        known = np.take_along_axis(rows.validation_observed.toarray() != 0, np.maximum(best, 0), axis=1)
        assert known[found].all()
        # Of a shortlist of six, about half are known.
        assert 1 < found.sum(axis=1).mean() < 5
        return constants(rows, combination, best, products)

    def learning(rows, positives, negatives, **settings):
        negatives_of_rankers.append(negatives)
        return learn(rows, positives, negatives, **settings)

    monkeypatch.setattr(cascade_tuning._ValidationRows, "_constants", judging)
    monkeypatch.setattr(cascade_tuning, "learn_rankers", learning)
    small(validation_fraction=0.25).fit(X, Y, observed)
    for negatives in negatives_of_rankers:
        assert negatives.multiply(seen[0].observed).nnz == negatives.nnz > 0
        assert negatives.multiply(seen[0].positives).nnz == 0


def test_prototype_weight_follows_from_the_rows_of_labels(problem, fitted):
    X, Y = problem
    counts = np.asarray(Y.sum(axis=0)).ravel()
    expected = min(1, 3 / np.sqrt(counts[counts > 0].mean()))
    assert fitted.chosen_["prototype_weight"] == pytest.approx(expected)
    assert small(prototype_weight=0.25).fit(X, Y).chosen_["prototype_weight"] == 0.25
    observed = hide_labels(Y, 0.5, random_state=1)
    known = np.asarray(Y.multiply(observed).sum(axis=0)).ravel()
    masked = small().fit(X, Y, observed)
    assert masked.chosen_["prototype_weight"] == pytest.approx(min(1, 3 / np.sqrt(known[known > 0].mean())))


def test_without_scaled_rows_cosines_are_cosines_all_the_same(problem):
    """A row twice as long is no more like a prototype."""
    X, Y = problem
    model = small(normalize=False).fit(X, Y)
    rows, labels = X[:20].astype(np.float32), np.tile(np.arange(30), (20, 1))
    expected = unit(X[:20]) @ model.prototypes_.toarray().T
    for scaled in (rows, 2 * rows):
        cosines = model._opinions(scaled, labels, np.zeros((20, 30))).cosines
        np.testing.assert_allclose(cosines, expected[:, : model.shortlist], atol=1e-5)


def test_no_row_left_for_validation_is_said():
    X, Y = sp.csr_matrix(np.eye(4)), sp.csr_matrix(np.eye(4))
    with pytest.raises(InvalidInputError, match=r"validation_fraction=0\.25 of 4 rows holds no row out"):
        Cascade(rank=1, validation_fraction=0.25).fit(X, Y)


def test_calibration_finds_planted_constants():
    rng = np.random.default_rng(0)
    product = rng.random(200_000)
    on = rng.random(len(product)) < expit(1.8 * logit(product) - 0.7)
    a, b = fit_calibration_constants(product, on, (1.0, 0.0))
    assert a == pytest.approx(1.8, abs=0.03)
    assert b == pytest.approx(-0.7, abs=0.03)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shortlist": 0}, "shortlist"),
        ({"hard_negatives": 0}, "hard_negatives"),
        ({"C": 0.0}, "C must"),
        ({"slope": 0.0}, "slope"),
        ({"exponent": -1.0}, "exponent"),
        ({"prototype_weight": -1.0}, "prototype_weight"),
        ({"prototype_weight": "much"}, "prototype_weight"),
        ({"prune": -0.1}, "prune"),
        ({"validation_fraction": 0.6}, "validation_fraction"),
        ({"support": 0}, "support"),
    ],
)
def test_bad_parameters_are_named(problem, changed, message):
    with pytest.raises(InvalidInputError, match=message):
        small(**changed).fit(*problem)


def test_debtags_is_above_the_peers(data_folder):
    data = load_dataset("debtags")
    model = Cascade(n_jobs=2).fit(data.X_train, data.Y_train)
    top, scores = model.predict_topk(data.X_test)
    report = ranking_report(data.Y_test, top, inverse_propensity=inverse_propensity(data.Y_train))
    # Best peer in each column: 88.1, 63.1, 48.0, PSP 57.7, 65.9, 69.6.
    assert report["P@1"] >= 0.881
    assert report["P@3"] >= 0.633
    assert report["P@5"] >= 0.480
    assert report["PSP@1"] >= 0.59
    assert report["PSP@5"] >= 0.70
    # Thresholds mean something: of what is given 0.7 or more, about that much is right.
    on = data.Y_test.toarray()[np.arange(len(top))[:, None], top] > 0
    probability = scores + 0.5
    sure = probability >= 0.7
    assert abs(on[sure].mean() - probability[sure].mean()) < 0.05


def test_debtags_with_a_fifth_of_the_labels_known(data_folder):
    data = load_dataset("debtags")
    observed = hide_labels(data.Y_train, 0.2, random_state=0)
    model = Cascade(n_jobs=2).fit(data.X_train, data.Y_train, observed)
    assert precision_at_k(data.Y_test, model.predict_topk(data.X_test, k=1)[0], k=1) >= 0.84


@pytest.mark.slow
def test_very_many_labels(data_folder):
    data = load_dataset("yso-finna-en-min4")
    model = Cascade(n_jobs=2).fit(data.X_train, data.Y_train)
    report = ranking_report(
        data.Y_test, model.predict_topk(data.X_test)[0], inverse_propensity=inverse_propensity(data.Y_train)
    )
    floors = {"P@1": 0.426, "P@3": 0.338, "P@5": 0.279, "PSP@1": 0.271, "PSP@3": 0.270, "PSP@5": 0.266}
    assert {name: report[name] >= floor for name, floor in floors.items()} == dict.fromkeys(floors, True)
