"""Questions to people: the greedy choice against its plain twin, limits, and choices on planted problems."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagwise import LEML, BinaryRelevance, Cascade
from tagwise.baselines import KNN
from tagwise.data import load_dataset
from tagwise.exceptions import InvalidInputError, InvalidTypeError, NotFittedError
from tagwise.inspection import ask, fit_calibration
from tagwise.inspection.questions import _greedy


def plain_greedy(rows, labels, worth, embedded, budget, per_row, per_label):
    """Every gain computed again at every step."""
    chosen = []
    while len(chosen) < budget:
        best, best_gain = None, -1.0
        for one in range(len(worth)):
            mine = [other for other in chosen if labels[other] == labels[one]]
            on_row = sum(rows[other] == rows[one] for other in chosen)
            if one in chosen or len(mine) >= per_label or on_row >= per_row:
                continue
            alike = max([0.0, *(float(embedded[rows[one]] @ embedded[rows[other]]) for other in mine)])
            gain = worth[one] * max(0.0, 1 - alike)
            if gain > best_gain:
                best, best_gain = one, gain
        if best is None:
            break
        chosen.append(best)
    return chosen


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 3), st.integers(1, 4))
def test_the_heap_chooses_what_computing_every_gain_again_does(seed, budget, per_row, per_label):
    rng = np.random.default_rng(seed)
    n_rows, n_labels = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    pairs = rng.permutation(n_rows * n_labels)[: int(rng.integers(1, n_rows * n_labels + 1))]
    rows, labels = np.divmod(np.sort(pairs), n_labels)
    # Eighths and sixteenths: products are exact, so that equal gains are equal on both ways.
    worth = rng.integers(1, 9, len(rows)) / 8
    embedded = rng.integers(-2, 3, (n_rows, 3)) / 4
    found = _greedy(rows, labels, worth, embedded, budget, per_row, per_label)
    assert found.tolist() == plain_greedy(rows, labels, worth, embedded, budget, per_row, per_label)


def problem(n_rows=60, seed=0):
    """Rows with one of four words and the label of the word; a fifth label has two rows."""
    rng = np.random.default_rng(seed)
    words = np.arange(n_rows) % 4
    X = sp.csr_matrix(np.eye(6, dtype=np.float32)[words] + 0.05 * rng.random((n_rows, 6), dtype=np.float32))
    Y = np.zeros((n_rows, 5))
    Y[np.arange(n_rows), words] = 1
    Y[:2, 4] = 1
    return X, sp.csr_matrix(Y)


@pytest.fixture(scope="module")
def fitted():
    X, Y = problem()
    return Cascade(rank=4, n_jobs=1).fit(X, Y), X, Y


@pytest.mark.parametrize("strategy", ["informative", "top", "random"])
def test_questions_keep_to_their_limits(fitted, strategy):
    model, X, Y = fitted
    known = sp.csr_matrix(Y.toarray() * (np.arange(5) < 2))
    limited = {} if strategy in ("top", "random") else {"per_label": 4}
    found = ask(model, X, 12, strategy, exclude=known, per_row=2, **limited)
    assert len(found) == 12
    pairs = set(zip(found.rows.tolist(), found.labels.tolist()))
    assert len(pairs) == 12
    assert not any(known[row, label] for row, label in pairs)
    if strategy != "random":
        assert np.bincount(found.rows).max() <= 2
    if limited:
        assert np.bincount(found.labels).max() <= 4
    for n_jobs in (2, 1):
        again = ask(model.set_params(n_jobs=n_jobs), X, 12, strategy, exclude=known, per_row=2, **limited)
        np.testing.assert_array_equal(again.rows, found.rows)
        np.testing.assert_array_equal(again.labels, found.labels)
    positions = np.concatenate(list(found.by_row().values()))
    assert sorted(positions.tolist()) == list(range(12))
    assert all(len(set(found.rows[places])) == 1 for places in found.by_row().values())


class Stated(LEML):
    """Scores that are given: the rows of X themselves, as probabilities minus ½."""

    probabilistic = True

    def fitted_features(self, X):
        return X

    def embed(self, X):
        return X.toarray()

    def predict_topk(self, X, k=5, *, exclude=None, optimise=None):
        scores = X.toarray() - 0.5
        if exclude is not None:
            scores[exclude.toarray() > 0] = -np.inf
        labels = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        values = np.take_along_axis(scores, labels, axis=1)
        return np.where(np.isneginf(values), -1, labels), values


def stated(n_labels):
    model = Stated(rank=1)
    model.n_labels_ = model.n_features_in_ = n_labels
    return model


def test_the_first_question_is_the_most_uncertain_and_rarity_weighs():
    P = np.array([[0.9, 0.02, 0.01], [0.6, 0.01, 0.5], [0.97, 0.4, 0.01]])
    X = sp.csr_matrix(P)
    plain = ask(stated(3), X, 3, rarity=0)
    assert (plain.rows[0], plain.labels[0]) == (1, 2)  # ½ · ½
    np.testing.assert_allclose(plain.probabilities[0], 0.5)
    rare = (np.array([900, 1, 500]), 1000)
    weighed = ask(stated(3), X, 3, counts=rare, rarity=1)
    assert (weighed.rows[0], weighed.labels[0]) == (2, 1)  # .4 · .6 · 9.4 against .25 · 1.2
    unweighed = ask(stated(3), X, 3, counts=rare, rarity=0)
    even = ask(stated(3), X, 3, counts=(np.array([9, 9, 9]), 1000), rarity=1)
    for other in (unweighed, even):
        np.testing.assert_array_equal(other.rows, plain.rows)


def test_texts_that_repeat_each_other_are_asked_about_once():
    row, other = [0.5, 0.1], [0.1, 0.45]
    P = sp.csr_matrix(np.array([row, row, row, other]))
    found = ask(stated(2), P, 2, per_row=1)
    assert sorted(found.rows.tolist()) == [0, 3]  # not row 1, although it is the more uncertain
    assert len(ask(stated(2), P, 7)) == 6  # at most 3 on each label


def test_top_is_what_somebody_sees_who_reads_random_rows(fitted):
    model, X, _ = fitted
    found = ask(model, X, 7, "top", per_row=3, random_state=5)
    labels, _ = model.predict_topk(X, 3)
    assert len(found.by_row()) == 3
    for row, places in found.by_row().items():
        np.testing.assert_array_equal(found.labels[places], labels[row][: len(places)])


def test_random_pairs_cover_what_is_left(fitted):
    model, X, Y = fitted
    known = sp.csr_matrix(np.ones(Y.shape) - np.eye(*Y.shape))
    found = ask(model, X, 1000, "random", exclude=known)
    assert sorted(zip(found.rows.tolist(), found.labels.tolist())) == [(n, n) for n in range(5)]
    assert np.isnan(found.probabilities).all()
    many = ask(model, X, 250, "random").labels
    assert np.bincount(many).min() > 30


@pytest.mark.parametrize("model", [BinaryRelevance(), KNN(n_neighbors=3), LEML(rank=3)], ids=lambda m: type(m).__name__)
def test_other_models_need_a_calibration(model):
    X, Y = problem()
    model.fit(X, Y)
    Y = sp.csr_matrix((Y + sp.random(*Y.shape, 0.2, random_state=0)) > 0).astype(float)  # of which nothing is certain
    with pytest.raises(InvalidInputError, match="strategy 'informative' needs probabilities"):
        ask(model, X, 5)
    calibration = fit_calibration(*model.predict_topk(X, 5), Y)
    found = ask(model, X, 5, calibration=calibration, counts=(np.full(5, 9), 60))
    assert 0 < len(found) <= 5
    assert ((found.probabilities > 0) & (found.probabilities < 1)).all()
    assert len(ask(model, X, 5, "top")) == 5


def test_bad_arguments_are_named(fitted):
    model, X, _ = fitted
    for change, words in (
        ({"budget": 0}, "budget must be at least 1"),
        ({"budget": 2.5}, "budget"),
        ({"strategy": "best"}, "strategy must be"),
        ({"per_row": 0}, "per_row must be at least 1"),
        ({"per_label": 0}, "per_label must be at least 1"),
        ({"rarity": 1.5}, "rarity must be"),
        ({"X": sp.csr_matrix((3, 5))}, "X"),
        ({"X": sp.csr_matrix((0, 6), dtype=np.float32)}, "X"),
        ({"exclude": sp.csr_matrix((3, 5))}, "exclude"),
        ({"counts": (np.ones(3), 10)}, "counts has rows for 3 labels, but the model has 5"),
    ):
        with pytest.raises((InvalidInputError, InvalidTypeError), match=words):
            ask(model, **{"X": X, "budget": 5, **change})
    with pytest.raises(NotFittedError, match="not fitted"):
        ask(Cascade(), X, 5)


@pytest.mark.slow
def test_on_real_rows_about_as_many_answers_are_yes_as_is_said():
    data = load_dataset("debtags-sample")
    rows = np.random.default_rng(0).permutation(data.X_train.shape[0])[:1500]
    model = Cascade(n_jobs=2).fit(data.X_train[rows], data.Y_train[rows])
    found = ask(model, data.X_test, 400)
    accepted = np.asarray(data.Y_test[found.rows, found.labels]).ravel()
    assert len(found) == 400
    assert accepted.mean() == pytest.approx(found.probabilities.mean(), abs=0.08)
    assert np.bincount(found.labels).max() <= 20
    # Rarer labels than those of suggestions, and more of them.
    frequency = np.asarray(data.Y_train[rows].sum(axis=0)).ravel()
    top = ask(model, data.X_test, 400, "top")
    assert np.median(frequency[found.labels]) < np.median(frequency[top.labels])
    assert len(np.unique(found.labels)) > len(np.unique(top.labels))
