"""Choosing labels for a purpose, against brute force, a slow twin, planted cases and real rows."""

from itertools import combinations, pairwise, product

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from tagwise import Cascade
from tagwise.data import load_dataset
from tagwise.exceptions import InvalidInputError
from tagwise.metrics import inverse_propensity, macro_f1, precision_at_k, psp_at_k, purposes, recall_at_k
from tagwise.metrics.purposes import PURPOSES, LabelCounts, choose_labels, needs_all_rows


def candidates(n_rows, width, n_labels, seed, *, fewer=False):
    """Labels with probabilities, most probable first; with ``fewer`` some rows have fewer, or none at all."""
    rng = np.random.default_rng(seed)
    labels = np.array([rng.permutation(n_labels)[:width] for _ in range(n_rows)])
    # Multiples of 1/16, so that ties occur and sums are exact.
    probabilities = -np.sort(-rng.integers(0, 17, (n_rows, width)) / 16, axis=1)
    if fewer:
        gone = np.arange(width) >= rng.integers(0, width + 1, n_rows)[:, None]
        labels, probabilities = np.where(gone, -1, labels), np.where(gone, np.nan, probabilities)
    return labels, probabilities


def counts_of(n_labels, seed=0):
    """Of 100 rows in which every label may occur with every other."""
    Y = sp.csr_matrix(np.random.default_rng(seed).random((100, n_labels)) < np.linspace(0.05, 0.6, n_labels), dtype=int)
    return LabelCounts(Y.sum(axis=0).A1, 100, sp.csr_matrix(sp.triu(Y.T @ Y, k=1)))


def expected_macro_f1(labels, probabilities, chosen, n_labels):
    """The formula, label by label, from scratch."""
    marks = np.zeros(labels.shape, dtype=bool)
    np.put_along_axis(marks, chosen, True, axis=1)
    total = 0.0
    for label in range(n_labels):
        here = labels == label
        size = (here & marks).sum() + probabilities[here].sum()
        total += 2 * probabilities[here & marks].sum() / size if size else 0.0
    return total / n_labels


def ascent_twin(labels, probabilities, k, n_labels, n_sweeps=20):
    """Every row tries every subset of k candidates, and the whole expected F1 is computed for each."""
    chosen = np.tile(np.arange(k), (len(labels), 1))
    for _ in range(n_sweeps):
        before = chosen.copy()
        for row in range(len(labels)):
            values = []
            subsets = list(combinations(range(labels.shape[1]), k))
            for subset in subsets:
                chosen[row] = subset
                values.append(round(expected_macro_f1(labels, probabilities, chosen, n_labels), 12))
            chosen[row] = subsets[int(np.argmax(values))]
        if (chosen == before).all():
            break
    return chosen


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("purpose", ["precision", "recall", "psp"])
def test_purposes_with_weights_reach_the_best_of_all_subsets(purpose, seed):
    labels, probabilities = candidates(6, 5, 8, seed)
    counts = counts_of(8, seed)
    rows, n_rows, pairs = counts
    others = (pairs + pairs.T).sum(axis=1).A1
    weights = {
        "precision": np.ones(8),
        "recall": 1 / (1 + (others + 20 * others.sum() / rows.sum()) / (rows + 20)),
        "psp": inverse_propensity(np.arange(n_rows)[:, None] < rows[None, :]),
    }[purpose]
    chosen = choose_labels(labels, probabilities, 2, purpose, counts)
    for row in range(6):
        gains = probabilities[row] * weights[labels[row]]
        best = max(gains[list(subset)].sum() for subset in combinations(range(5), 2))
        assert gains[chosen[row]].sum() == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_most_probable_labels_are_best_for_recall_where_labels_are_independent(seed):
    labels, probabilities = candidates(4, 5, 5, seed)
    chosen = choose_labels(labels, probabilities, 2, "recall", LabelCounts(np.ones(5), 100))
    for p, picked in zip(probabilities, chosen):
        expected = dict.fromkeys(combinations(range(5), 2), 0.0)
        for outcome in product([0, 1], repeat=5):
            y = np.array(outcome)
            chance = np.where(y == 1, p, 1 - p).prod()
            for subset in expected:
                expected[subset] += chance * y[list(subset)].sum() / max(1, y.sum())
        assert expected[tuple(picked)] == pytest.approx(max(expected.values()), abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_the_ascent_equals_its_slow_twin(seed):
    labels, probabilities = candidates(7, 4, 6, seed)
    # No ties: which of two equal subsets comes first would be a matter of rounding.
    probabilities = np.sort(probabilities + np.random.default_rng(seed).random((7, 4)) / 64, axis=1)[:, ::-1].clip(0, 1)
    chosen = choose_labels(labels, probabilities, 2, "macro_f1", counts_of(6))
    np.testing.assert_array_equal(chosen, ascent_twin(labels, probabilities, 2, 6))


@pytest.mark.parametrize("seed", range(5))
def test_no_sweep_lowers_the_expected_macro_f1(seed, monkeypatch):
    labels, probabilities = candidates(40, 8, 20, seed, fewer=seed % 2 == 1)
    real = np.where(labels >= 0, probabilities, 0.0)
    reached = [expected_macro_f1(labels, real, np.tile(np.arange(3), (40, 1)), 20)]
    for n_sweeps in range(1, 6):
        monkeypatch.setattr(purposes, "_MOST_SWEEPS", n_sweeps)
        chosen = choose_labels(labels, probabilities, 3, "macro_f1", counts_of(20))
        reached.append(expected_macro_f1(labels, real, chosen, 20))
    assert all(after >= before - 1e-12 for before, after in pairwise(reached))
    assert reached[-1] > reached[0]


def test_the_ascent_comes_near_the_best_of_all_choices():
    for seed in range(10):
        labels, probabilities = candidates(4, 4, 5, seed)
        chosen = choose_labels(labels, probabilities, 2, "macro_f1", counts_of(5))
        subsets = list(combinations(range(4), 2))
        best = max(expected_macro_f1(labels, probabilities, np.array(each), 5) for each in product(subsets, repeat=4))
        assert expected_macro_f1(labels, probabilities, chosen, 5) >= 0.95 * best


def test_a_rare_label_takes_the_place_of_one_that_is_found_often_enough():
    """Label 0 is likely everywhere; each other label is somewhat less likely in one row alone, or nearly impossible."""
    n = 20
    labels = np.array([[0, 1 + row] for row in range(n)])
    likely = np.arange(n) < 5
    probabilities = np.where(likely[:, None], [0.6, 0.5], [0.6, 0.01])
    counts = LabelCounts(np.array([60] + [3] * n), 100)
    chosen = choose_labels(labels, probabilities, 1, "macro_f1", counts)
    np.testing.assert_array_equal(chosen[:, 0], likely)
    np.testing.assert_array_equal(choose_labels(labels, probabilities, 1, "precision", counts), np.zeros((n, 1)))


def test_one_row_alone_gets_its_most_probable_labels_for_macro_f1():
    for seed in range(10):
        labels, probabilities = candidates(1, 10, 30, seed)
        chosen = choose_labels(labels, probabilities, 4, "macro_f1", counts_of(30))
        np.testing.assert_array_equal(chosen, [[0, 1, 2, 3]])


@pytest.mark.parametrize("purpose", PURPOSES)
def test_rows_with_few_candidates_take_them_all_and_then_none(purpose):
    labels, probabilities = candidates(50, 6, 12, 3, fewer=True)
    chosen = choose_labels(labels, probabilities, 4, purpose, counts_of(12))
    assert (np.diff(chosen, axis=1) > 0).all()
    picked = np.take_along_axis(labels, chosen, axis=1)
    np.testing.assert_array_equal((picked >= 0).sum(axis=1), np.minimum(4, (labels >= 0).sum(axis=1)))
    assert (np.diff((picked >= 0).astype(int), axis=1) <= 0).all()


@pytest.mark.parametrize("purpose", PURPOSES)
def test_equally_good_candidates_are_chosen_in_their_order(purpose):
    labels, probabilities = np.array([[3, 1, 2, 0]]), np.full((1, 4), 0.5)
    counts = LabelCounts(np.full(4, 10), 100)
    np.testing.assert_array_equal(choose_labels(labels, probabilities, 2, purpose, counts), [[0, 1]])
    assert choose_labels(labels[:0], probabilities[:0], 2, purpose, counts).shape == (0, 2)


def test_propensities_of_two_rows_are_refused():
    with pytest.raises(InvalidInputError, match="at least 3"):
        choose_labels(np.array([[0, 1]]), np.array([[0.5, 0.2]]), 1, "psp", LabelCounts(np.ones(2), 2))


# --- real rows


@pytest.fixture(scope="module")
def held_out():
    """A cascade of some rows of debtags-sample, and other training rows."""
    data = load_dataset("debtags-sample")
    train, rest = slice(0, 2400), slice(2400, None)
    model = Cascade(refit=False).fit(data.X_train[train], data.Y_train[train])
    return model, data.X_train[rest], data.Y_train[rest], inverse_propensity(data.Y_train[train])


def figures(labels, Y, weights):
    k = labels.shape[1]
    chosen = sp.csr_matrix((np.ones(labels.size), labels.ravel(), np.arange(0, labels.size + 1, k)), shape=Y.shape)
    return {
        "precision": precision_at_k(Y, labels, k),
        "recall": recall_at_k(Y, labels, k),
        "psp": psp_at_k(Y, labels, weights, k),
        "macro_f1": macro_f1(Y, chosen),
    }


@pytest.mark.parametrize("k", [3, 5])
def test_each_purpose_improves_its_own_metric_on_rows_that_were_not_learnt_from(held_out, k):
    model, X, Y, weights = held_out
    plain, plain_scores = model.predict_topk(X, k)
    before = figures(plain, Y, weights)
    for purpose, least in {"precision": 0.0, "recall": -0.002, "psp": 0.03, "macro_f1": 0.08}.items():
        labels, scores = model.predict_topk(X, k, optimise=purpose)
        after = figures(labels, Y, weights)
        assert after[purpose] >= before[purpose] + least, purpose
        assert after["precision"] <= before["precision"] + 0.002, purpose
        assert (np.diff(scores, axis=1) <= 0).all()
        assert scores.dtype == plain_scores.dtype
    np.testing.assert_array_equal(model.predict_topk(X, k, optimise="precision")[0], plain)


def test_macro_f1_depends_on_the_rows_that_are_asked_about_and_nothing_else_does(held_out):
    model, X, _, _ = held_out
    for purpose in PURPOSES:
        together = model.predict_topk(X[:400], 5, optimise=purpose)[0]
        apart = np.concatenate([model.predict_topk(half, 5, optimise=purpose)[0] for half in (X[:200], X[200:400])])
        assert (together == apart).all() == (not needs_all_rows(purpose)), purpose
        np.testing.assert_array_equal(model.predict_topk(X[:400], 5, optimise=purpose)[0], together)
        labels, scores = model.predict_topk(X[:1], 5, optimise=purpose)
        np.testing.assert_allclose(scores[0], model.decision_function(X[:1])[0, labels[0]], atol=1e-6)


@pytest.mark.filterwarnings("ignore:rank=16")
def test_a_shortlist_of_any_length_takes_no_more_room_than_the_labels(held_out):
    model, X, _, _ = held_out
    longer = (
        clone(model).set_params(shortlist=10**9, validation_fraction=0.0).fit(X[:200], sp.csr_matrix(np.eye(200, 5)))
    )
    labels, _ = longer.predict_topk(X[:20], 2, optimise="macro_f1")
    assert labels.shape == (20, 2)
