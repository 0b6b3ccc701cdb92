"""Labels and rows after a fit: what is learnt then is what a fit would learn, and nothing else changes."""

import warnings
from copy import deepcopy
from itertools import pairwise
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import LEML, MSE, REML, BinaryRelevance, Cascade, load
from tagwise import problem as problem_module
from tagwise.baselines import KNN
from tagwise.data import load_dataset
from tagwise.exceptions import (
    ConvergenceWarning,
    InvalidInputError,
    InvalidTypeError,
    ModelFormatError,
    NotFittedError,
    TagwiseWarning,
)
from tagwise.metrics import precision_at_k
from tagwise.models import updating
from tagwise.models.cascade import cascade as cascade_module
from tagwise.models.cascade.cooccurrence import cooccurrence_counts
from tagwise.models.cascade.ranker import usual_mistakes
from tagwise.problem import Problem

NEW = 3
SMALL = {"support": 6, "shortlist": 6, "hard_negatives": 4, "rank": 4}
# Whose labels are solved to the end by a fit, so that taking them out and adding them gives the same numbers again.
EXACT = {
    "LEML": LEML(rank=4),
    "LEML weighted": LEML(rank=4, positive_weight="propensity", fit_intercept=False),
    "LEML closed form": LEML(rank=4, solver="closed_form", reg=0.3),
    "LEML rbf": LEML(rank=4, kernel="rbf", gamma=1.0),
    "REML support": REML(rank=4, sparse_part="support", support=6, tol=1.0),
    "REML admm": REML(rank=4, sparse_part="admm", tol=1.0, max_iter=1),
    "BinaryRelevance": BinaryRelevance(),
    "BinaryRelevance cg": BinaryRelevance(solver="cg", tol=1e-9, max_iter=500),
    "Cascade": Cascade(**SMALL, validation_fraction=0),
}
UPDATABLE = {
    "LEML": LEML(rank=4, updatable=True),
    "REML": REML(rank=4, sparse_part="support", support=6, updatable=True),
    "Cascade": Cascade(**SMALL, updatable=True),
    "BinaryRelevance": BinaryRelevance(updatable=True),
}


@pytest.fixture(autouse=True)
def _short_fits_do_not_converge():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def problem(n_rows=150, n_features=20, n_labels=11, seed=0):
    rng = np.random.default_rng(seed)
    X = sp.random(n_rows, n_features, 0.4, format="csr", random_state=seed + 1, dtype=np.float64)
    Y = sp.csr_matrix((X @ rng.standard_normal((n_features, n_labels)) > 0.5).astype(np.float64))
    return X, Y


X, Y = problem()
MASK = sp.csr_matrix((np.random.default_rng(5).random(Y.shape) < 0.6).astype(np.int8))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", EXACT)
def test_labels_that_are_taken_out_and_added_are_what_the_fit_learnt(name, masked):
    if masked and name in ("LEML closed form", "BinaryRelevance"):
        pytest.skip("needs all labels to be known")
    mask, new = (MASK, MASK[:, -NEW:]) if masked else (None, None)
    full = deepcopy(EXACT[name]).fit(X, Y, mask)
    model = deepcopy(full).remove_labels(np.arange(Y.shape[1] - NEW, Y.shape[1]))
    assert model.n_labels_ == Y.shape[1] - NEW
    extra = {"Y": Y[:, :-NEW] if mask is None else Y.multiply(MASK)[:, :-NEW]} if name == "Cascade" else {}
    assert model.add_labels(X, Y[:, -NEW:], new, **extra) is model
    np.testing.assert_array_equal(model.classes_, full.classes_)
    for attribute in dict(full.fields.along("L")):
        if name == "Cascade" and attribute.startswith(("ranker", "has_ranker")):
            continue  # whose hard negatives are looked for among the new labels
        found, wanted = getattr(model, attribute), getattr(full, attribute)
        if sp.issparse(found):
            found, wanted = found.toarray(), wanted.toarray()
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7, err_msg=attribute)
    if name == "Cascade":
        for attribute in dict(full.proposer_.fields.along("L")):
            found, wanted = getattr(model.proposer_, attribute), getattr(full.proposer_, attribute)
            difference = found - wanted
            assert abs(difference).max() < 1e-6, attribute


def test_the_old_labels_of_a_cascade_do_not_change_and_the_new_ones_are_found():
    full = Cascade(**SMALL).fit(X, Y)
    model = deepcopy(full).remove_labels([8, 9, 10])
    before = model.ranker_weights_.toarray()
    model.add_labels(X, Y[:, 8:])
    np.testing.assert_array_equal(model.ranker_weights_.toarray()[:, :8], before)
    assert model.has_ranker_[8:].all()
    assert model.score(X, Y) > full.score(X, Y) - 0.05


def test_new_labels_of_other_losses_are_at_their_minimum():
    model = LEML(rank=4, loss="logistic", reg=0.5).fit(X, Y[:, :8])
    model.add_labels(X, Y[:, 8:])
    A, targets = model.embed(X), 2 * Y[:, 8:].toarray() - 1
    scores = A @ model.label_factors_[8:].T + model.intercept_[8:]
    slope = -targets / (1 + np.exp(targets * scores))
    gradient = slope.T @ A + 0.5 * model.label_factors_[8:]
    assert np.abs(gradient).max() < 1e-2
    assert np.abs(slope.sum(axis=0)).max() < 1e-2


def test_rounds_of_reml_end_where_the_labels_are_solved():
    """Stationary in h, b and in s on its support: the closed form of the label side for a fixed W."""
    model = REML(rank=3, sparse_part="support", support=4, tol=0.0, max_iter=300).fit(X, Y[:, :8])
    model.add_labels(X, Y[:, 8:9])
    rows = model.scored_rows(X)
    A, y = np.asarray(rows @ model.feature_factors_), Y[:, 8].toarray().ravel()
    h, b, s = model.label_factors_[8], model.intercept_[8] + 0.5, model.sparse_weights_[:, 8].toarray().ravel()
    residual = y - A @ h - b - rows @ s
    assert np.abs(A.T @ residual - 0.5 * h).max() < 1e-3
    assert abs(residual.sum()) < 1e-3
    assert np.abs((rows.T @ residual - s)[s != 0]).max() < 1e-3


def test_weights_of_new_labels_come_from_the_parameter():
    weights = np.linspace(1, 3, 11)
    full = LEML(rank=4, positive_weight=weights).fit(X, Y)
    model = deepcopy(full).remove_labels([8, 9, 10])
    np.testing.assert_array_equal(model.positive_weight, weights[:8])
    with pytest.raises(InvalidInputError, match=r"positive_weight has 8 numbers.*with 11"):
        model.add_labels(X, Y[:, 8:])
    kept = LEML(rank=4, positive_weight=weights[:8], updatable=True).fit(X, Y[:, :8])
    with pytest.raises(InvalidInputError, match=r"positive_weight has 8 numbers.*with 11"):
        kept.update(X[:20], Y[:20])
    kept.set_params(positive_weight=weights).update(X[:20], Y[:20])
    assert kept.n_labels_ == 11
    model.set_params(positive_weight=weights).add_labels(X, Y[:, 8:])
    np.testing.assert_allclose(model.label_factors_, full.label_factors_, atol=1e-10)


def test_a_label_may_be_added_before_any_row_has_it():
    model = Cascade(**SMALL, updatable=True).fit(X, Y)
    model.add_labels(None, sp.csr_matrix((150, 2)))
    assert (model.n_labels_, model.label_frequency_[11:].sum(), model.cooccurrence_.shape) == (13, 0, (13, 13))


@pytest.mark.parametrize("dense", [False, True])
def test_kept_rows_are_not_those_of_the_caller(dense):
    features, labels = X.toarray() if dense else X.copy(), Y.copy()
    model = LEML(rank=4, updatable=True).fit(features, labels)
    for theirs, kept in ((features, model.kept_features_), (labels, model.kept_labels_)):
        (theirs if isinstance(theirs, np.ndarray) else theirs.data)[:] = 0.0
        assert kept.sum() > 0


def test_other_models_name_those_that_can():
    calls = {"add_labels": (X, Y), "update": (X, Y), "remove_labels": ([0],), "merge_labels": ([0], 1)}
    for model in (MSE(subspace_rank=2).fit(X, Y), KNN().fit(X, Y)):
        for method, arguments in calls.items():
            with pytest.raises(
                InvalidInputError, match=f"does not support {method}; .* use LEML, REML, Cascade or Bin"
            ):
                getattr(model, method)(*arguments)


def test_names_of_labels():
    model = BinaryRelevance().fit(X, Y[:, :3]).rename_labels(["a", "b", "c"])
    model.add_labels(X, Y[:, 3:4])
    assert model.label_names_ == ["a", "b", "c", "label 3"]
    model.remove_labels([0]).add_labels(X, Y[:, 4:6])
    assert model.label_names_ == ["b", "c", "label 3", "label 4", "label 5"]
    for call, words in (
        (lambda: model.rename_labels({"x": "y"}), "there is no label 'x'"),
        (lambda: model.rename_labels({"b": "c"}), "two labels would be called 'c'; use merge_labels"),
        (lambda: model.remove_labels(range(5)), "all 5 labels would be gone"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            call()


# ---------------------------------------------------------------------- rows


@pytest.mark.parametrize("name", UPDATABLE)
def test_rows_that_double_are_fitted_like_all_rows(name, tmp_path):
    model = deepcopy(UPDATABLE[name]).fit(X[:70], Y[:70])
    model.save(tmp_path / "model")
    model = load(tmp_path / "model").update(X[70:], Y[70:])
    full = deepcopy(UPDATABLE[name]).fit(X, Y)
    assert (model.fitted_rows_, model.drift_) == (150, 0.0)
    np.testing.assert_array_equal(model.predict_topk(X, 5)[0], full.predict_topk(X, 5)[0])


@pytest.mark.parametrize("name", ["REML", "BinaryRelevance"])
def test_touched_labels_are_those_of_all_rows_beside_what_is_shared(name):
    model = deepcopy(UPDATABLE[name]).fit(X[:120], Y[:120])
    expected = deepcopy(model).remove_labels([0])
    model.update(X[120:], Y[120:])  # a fifth of the rows: every label is learnt again
    assert not model.pending_.any()
    expected.kept_features_ = X  # add_labels learns from the rows that a model keeps
    fresh = deepcopy(model).remove_labels([0]).add_labels(None, Y[:, :1])
    np.testing.assert_allclose(fresh.decision_function(X)[:, -1], model.decision_function(X)[:, 0], atol=1e-8)


@pytest.mark.parametrize("name", UPDATABLE)
def test_an_update_keeps_the_model_whole(name, tmp_path):
    model = deepcopy(UPDATABLE[name]).fit(X[:100], Y[:100, :9])
    before = model.decision_function(X)
    failing = deepcopy(model)
    failing._learn_labels = Mock(side_effect=MemoryError)
    with pytest.raises(MemoryError):
        failing.update(X[100:130], Y[100:130])
    np.testing.assert_array_equal(failing.decision_function(X), before)
    assert failing.n_labels_ == 9
    assert failing.kept_labels_.shape == (100, 9)
    model.update(X[100:130], Y[100:130])  # with two labels more
    assert model.fitted_rows_ == 100
    assert model.drift_ == pytest.approx(30 / 130)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    for one in (model, again):
        one.update(X[130:], Y[130:])
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))


def test_updates_do_not_depend_on_the_threads():
    for name in ("LEML", "Cascade"):
        one, two = (
            deepcopy(UPDATABLE[name]).set_params(n_jobs=jobs).fit(X[:120], Y[:120]).update(X[120:], Y[120:])
            for jobs in (1, 2)
        )
        np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


@pytest.mark.parametrize("name", UPDATABLE)
def test_unknown_pairs_of_new_rows_do_not_matter(name):
    wrong = sp.csr_matrix(np.where(MASK[100:].toarray(), Y[100:].toarray(), 1 - Y[100:].toarray()))
    models = [
        deepcopy(UPDATABLE[name]).fit(X[:100], Y[:100]).update(X[100:], labels, MASK[100:])
        for labels in (Y[100:], wrong)
    ]
    np.testing.assert_array_equal(models[0].decision_function(X), models[1].decision_function(X))
    assert models[0].kept_complete_.sum() == 100
    assert models[0].kept_observed_.nnz == MASK[100:].nnz


def test_unknown_pairs_are_not_counted_as_mistakes():
    model, labels = Cascade(**SMALL | {"hard_negatives": 9}, updatable=True).fit(X, Y), np.arange(5)
    some = Y[:, labels].astype(np.float32)
    everything, positives_alone = Problem.of(X, some), Problem.of(X, some, some)
    assert usual_mistakes(model.proposer_, positives_alone, labels, 9) == 1
    assert usual_mistakes(model.proposer_, everything, labels, 9) > 1


@pytest.mark.parametrize("name", ["LEML", "REML", "BinaryRelevance"])  # rankers of Cascade see other negatives
def test_merged_labels_are_learnt_from_the_rows_of_both(name):
    model = deepcopy(UPDATABLE[name]).fit(X, Y)
    model.merge_labels([2, 5], 1)
    united = sp.csr_matrix(((Y[:, 1] + Y[:, 2] + Y[:, 5]) > 0).astype(np.float64))
    fresh = deepcopy(model).remove_labels([1]).add_labels(None, united)
    np.testing.assert_allclose(fresh.decision_function(X)[:, -1], model.decision_function(X)[:, 1], atol=1e-8)


def test_rows_that_are_kept_already_are_noticed(recwarn):
    model = LEML(rank=4, updatable=True).fit(X[:100], Y[:100])
    deepcopy(model).update(X[90:140], Y[90:140])
    deepcopy(model).update(X[:20], 1 - Y[:20].toarray())  # other labels are news
    deepcopy(model).update(X[:1], Y[:1])
    assert not [one for one in recwarn if "already been learnt" in str(one.message)]
    with pytest.warns(TagwiseWarning, match=r"\d+% of the new rows have already been learnt"):
        model.update(X[60:110], Y[60:110])


def test_arrays_and_sparse_rows_may_follow_each_other():
    given = {"sparse": X, "array": X.toarray()}
    for model in (UPDATABLE["LEML"], UPDATABLE["BinaryRelevance"]):
        for first, second in (("sparse", "array"), ("array", "sparse")):
            mixed = deepcopy(model).fit(given[first][:120], Y[:120]).update(given[second][120:], Y[120:])
            alike = deepcopy(model).fit(given[first][:120], Y[:120]).update(given[first][120:], Y[120:])
            np.testing.assert_array_equal(mixed.decision_function(X), alike.decision_function(X))
            mixed.remove_labels([10]).add_labels(given[second], Y[:, 10:])
            assert mixed.n_labels_ == 11


def test_a_model_that_has_not_kept_its_rows_says_so():
    model = LEML(rank=4).fit(X, Y)
    for call in (lambda: model.update(X, Y), lambda: model.merge_labels([0], 1)):
        with pytest.raises(InvalidInputError, match="has not kept; fit it with updatable=True"):
            call()
    with pytest.raises(InvalidInputError, match="X is None, but this LEML keeps no rows"):
        model.add_labels(None, Y)
    with pytest.raises(NotFittedError):
        LEML(updatable=True).update(X, Y)


def test_bad_input():
    model = LEML(rank=4, updatable=True).fit(X[:100], Y[:100])
    before = model.decision_function(X)
    closed = LEML(rank=3, kernel="rbf", gamma=1.0, solver="closed_form").fit(X, Y)
    unlisted = Cascade(**SMALL, updatable=True, unlisted="unknown", validation_fraction=0.2).fit(X, Y)
    for call, words in (
        (lambda: model.update(X[:, :5], Y), "20 features"),
        (lambda: model.update(X, Y[:, :9]), "Y has 9 labels but the model has 11"),
        (lambda: model.update(X[:0], Y[:0]), r"(0 sample|at least one row|no rows)"),
        (lambda: model.add_labels(X[100:], Y[100:, :1]), "other rows than the 100 that this model keeps"),
        (lambda: model.merge_labels([3], 3), "other than the one to merge into"),
        (lambda: model.remove_labels([11]), "labels must be ids from 0 to 10; found 11"),
        (lambda: model.remove_labels([1.5]), "labels must be ids, whole numbers"),
        (lambda: model.remove_labels(np.arange(11) == 5), "labels must be ids, whole numbers"),  # no mask
        (lambda: closed.add_labels(X, Y[:, :1]), 'solver="closed_form" with a kernel'),
        (lambda: unlisted.update(X, Y, MASK), "give one of them"),
        (lambda: unlisted.update(X[:2], [1, 0], label_features=X[:1]), "Y must have two dimensions"),
        (
            lambda: unlisted.add_labels(X, Y[:, :2], label_features=X[:3]),
            "label_features must be 2×20, a row per new label in the space of X; found 3×20",
        ),
    ):
        with pytest.raises((InvalidInputError, InvalidTypeError), match=words):
            call()
    np.testing.assert_array_equal(model.decision_function(X), before)


def test_kept_rows_that_do_not_fit_are_refused(tmp_path):
    fitted = LEML(rank=4, updatable=True).fit(X[:100], Y[:100])
    for attribute, value in (
        ("kept_weight_", np.zeros(100)),
        ("kept_complete_", np.ones(99, dtype=bool)),
        ("pending_", np.full(11, -1)),
        ("fitted_rows_", 101),
    ):
        model = deepcopy(fitted)
        setattr(model, attribute, value)
        with pytest.raises((InvalidInputError, ModelFormatError), match=attribute):
            model.save(tmp_path / "model")


def test_names_of_new_labels_are_learnt_from():
    names = sp.csr_matrix(np.eye(11, 20))
    model = Cascade(**SMALL, updatable=True).fit(X[:100], Y[:100, :10], label_features=names[:10])
    added = deepcopy(model).add_labels(None, Y[:100, 10:], label_features=names[10:])
    assert added.name_weights_[10].nnz == 1
    assert added.name_rows_[10] == X[:100, 10].nnz
    model.update(X[100:], Y[100:], label_features=names[10:])
    assert model.name_weights_[10].nnz == 1
    np.testing.assert_array_equal(model.name_rows_, X.getnnz(axis=0)[:11])


@pytest.mark.parametrize("masked", [False, True])
def test_what_a_cascade_counts_is_that_of_all_rows(masked):
    known = np.ones(Y.shape, dtype=bool)
    known[100:] &= MASK[100:].toarray() != 0 if masked else True
    positives = sp.csr_matrix(Y.toarray() * known, dtype=np.float32)
    model = Cascade(**SMALL, updatable=True).fit(X[:100], Y[:100], label_features=sp.csr_matrix(np.eye(11, 20)))
    model.update(X[100:], Y[100:], MASK[100:] if masked else None)
    assert (model.cooccurrence_ != cooccurrence_counts(positives)).nnz == 0
    np.testing.assert_array_equal(model.label_frequency_, np.bincount(positives.indices, minlength=11))
    np.testing.assert_array_equal(model.name_rows_, ((X[:, :11].toarray() != 0) & known).sum(axis=0))
    assert model.n_rows_ == 150


@pytest.mark.parametrize(
    "model",
    [UPDATABLE["LEML"], UPDATABLE["REML"], BinaryRelevance(tol=1e-10, max_iter=500, updatable=True)],
    ids=lambda model: type(model).__name__,
)
def test_labels_with_masks_are_learnt_some_at_a_time(model, monkeypatch):
    start = deepcopy(model).fit(X[:100], Y[:100])
    together = deepcopy(start).update(X[100:130], Y[100:130], MASK[100:130])
    widths = []
    learn = type(start)._learn_labels
    monkeypatch.setattr(updating, "_PAIRS_AT_ONCE", 300)

    def counted(self, rows, *more):
        widths.append(rows.Y.shape[1])
        learn(self, rows, *more)

    monkeypatch.setattr(type(start), "_learn_labels", counted)
    apart = deepcopy(start).update(X[100:130], Y[100:130], MASK[100:130])
    assert max(widths) == 3
    assert sum(widths) == 11
    np.testing.assert_allclose(apart.decision_function(X), together.decision_function(X), atol=1e-6)


def test_masks_that_are_too_large_to_write_down(monkeypatch):
    model = LEML(rank=4, updatable=True).fit(X, Y)
    known = deepcopy(model).add_labels(None, Y[:, :2], MASK[:, :2])
    partly = MASK[:, :2].getnnz(axis=1) < 2
    np.testing.assert_array_equal(known.kept_complete_, ~partly)
    assert known.kept_observed_.nnz == partly.sum() * Y.shape[1] + MASK[partly, :2].nnz
    monkeypatch.setattr(problem_module, "_MOST_PAIRS", 100)
    with pytest.raises(InvalidInputError, match="too many of them to write down"):
        model.add_labels(None, Y[:, :2], MASK[:, :2])
    model.update(sp.vstack([X, X]), sp.vstack([Y, Y]), sp.vstack([MASK, MASK]))
    assert model.fitted_rows_ == 150  # three times the rows, and no fit of all of them


# ---------------------------------------------------------------------- real data


@pytest.mark.parametrize("masked", [False, True])
def test_labels_learnt_again_get_as_many_hard_negatives_as_a_fit_would_find_for_them(monkeypatch, masked):
    """Which is not their share of all labels."""
    model = Cascade(**SMALL, updatable=True).fit(X, Y, MASK if masked else None)
    on = Y.toarray() * (MASK.toarray() if masked else 1) > 0
    proposed, _ = model.proposer_.predict_topk(X, SMALL["hard_negatives"])
    wrong = ~np.take_along_axis(on, proposed, axis=1)
    often = np.sort(np.argsort(-np.bincount(proposed[wrong], minlength=Y.shape[1]), kind="stable")[:3])
    expected = int(np.ceil((np.isin(proposed, often) & wrong).sum() / X.shape[0]))
    assert expected != np.ceil(SMALL["hard_negatives"] * len(often) / Y.shape[1])

    monkeypatch.setattr(cascade_module, "learn_rankers", learn := Mock(wraps=cascade_module.learn_rankers))
    with model._changing("learn labels again") as progress:
        model._learn_labels(model._kept.labels(often), often, progress)
    # The proposer has learnt them again, from the same rows.
    assert learn.call_args.args[2] == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["debtags", "yso-finna-en-min4"])
def test_ten_portions_end_within_half_a_point_of_one_fit(name):
    data = load_dataset(name)
    order = np.random.default_rng(0).permutation(data.X_train.shape[0])
    features, labels = data.X_train[order], data.Y_train[order]
    cuts = np.linspace(0, len(order), 11).astype(int)
    full = Cascade(n_jobs=-1).fit(features, labels)
    model = Cascade(n_jobs=-1, updatable=True).fit(features[: cuts[1]], labels[: cuts[1]])
    for start, stop in pairwise(cuts[1:]):
        model.update(features[start:stop], labels[start:stop])
    p1 = [precision_at_k(data.Y_test, one.predict_topk(data.X_test, 5)[0], 1) for one in (full, model)]
    assert p1[1] > p1[0] - 0.005
