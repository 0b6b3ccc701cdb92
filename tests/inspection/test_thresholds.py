"""Thresholds against exhaustive search, and what they do with ties, rare labels and labels that are best never on."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagwise.inspection.thresholds import TARGETS, best_thresholds
from tagwise.inspection.validation_pairs import ValidationPairs
from tagwise.metrics import example_f1, macro_f1, micro_f1

METRIC = {"micro": micro_f1, "macro": macro_f1, "example": example_f1}


def everything(scores, Y):
    """All labels of all rows as pairs, best first."""
    labels = np.argsort(-scores, axis=1, kind="stable")
    return ValidationPairs.of(labels, np.take_along_axis(scores, labels, axis=1), Y)


def value(target, scores, Y, thresholds):
    return METRIC[target](Y, (scores >= thresholds).astype(float))


def every_choice(scores):
    """All combinations of one threshold a label, at its scores and above them."""
    return product(*[[*np.unique(column), column.max() + 1] for column in scores.T])


problems = st.integers(0, 2**32 - 1).map(
    lambda seed: (
        np.random.default_rng(seed).integers(0, 6, size=(5, 3)).astype(float),
        (np.random.default_rng(seed + 1).random((5, 3)) < 0.4).astype(float),
    )
)


@settings(max_examples=60)
@given(problem=problems)
@pytest.mark.parametrize("target", ["micro", "macro"])
def test_micro_and_macro_are_the_best_there_are(target, problem):
    scores, Y = problem
    Y[0] = 1  # every label has a positive, so that every label has a threshold of its own
    best = max(value(target, scores, Y, np.array(choice)) for choice in every_choice(scores))
    found = value(target, scores, Y, best_thresholds(everything(scores, Y), target, 0))
    assert found == pytest.approx(best)


@settings(max_examples=60)
@given(problem=problems)
def test_example_is_best_label_by_label(problem):
    scores, Y = problem
    Y[0] = 1
    pairs = everything(scores, Y)
    thresholds = best_thresholds(pairs, "example", 0)
    found = value("example", scores, Y, thresholds)
    assert found >= value("example", scores, Y, best_thresholds(pairs, "micro", 0)) - 1e-12
    for label in range(3):
        for other in [*np.unique(scores[:, label]), scores[:, label].max() + 1]:
            changed = thresholds.copy()
            changed[label] = other
            assert value("example", scores, Y, changed) <= found + 1e-12


def test_each_target_does_best_at_what_it_is_for():
    rng = np.random.default_rng(0)
    truth = rng.random((400, 12)) < 0.5 ** np.arange(1, 13)
    scores = truth * rng.gamma(2, 1, truth.shape) + rng.normal(0, 1 + np.arange(12) / 4, truth.shape)
    pairs = everything(scores, sp.csr_matrix(truth.astype(float)))
    found = {target: best_thresholds(pairs, target, 0) for target in TARGETS}
    for target in TARGETS:
        reached = {name: value(target, scores, truth.astype(float), found[name]) for name in TARGETS}
        assert max(reached, key=reached.get) == target
        assert reached[target] > value(target, scores, truth.astype(float), 0.0) + 0.01


def test_a_threshold_lies_between_the_last_in_and_the_first_out():
    scores = np.array([[4.0, 1.0], [2.0, 1.0], [1.0, 3.0]])
    Y = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_array_equal(best_thresholds(everything(scores, Y), "macro", 0), [1.5, 2.0])
    scores, Y = np.array([[1.0], [1.0], [1.0], [0.0]]), np.array([[1.0], [0.0], [0.0], [0.0]])  # ties stay together
    np.testing.assert_array_equal(best_thresholds(everything(scores, Y), "macro", 0), [0.5])


def test_labels_without_positives_share_the_best_threshold_of_all_and_rare_ones_are_drawn_to_it():
    rng = np.random.default_rng(1)
    scores, Y = rng.normal(size=(30, 4)), (rng.random((30, 4)) < [0.5, 0.5, 0.1, 0.0]).astype(float)
    pairs = everything(scores, Y)
    own, drawn = best_thresholds(pairs, "macro", 0), best_thresholds(pairs, "macro", 6)
    shared = own[3]
    best = max(np.unique(scores), key=lambda cut: micro_f1(Y, (scores >= cut).astype(float)))
    np.testing.assert_array_equal(scores >= shared, scores >= best)
    assert len(set(own)) == 4
    weight = Y.sum(axis=0) / (Y.sum(axis=0) + 6)
    np.testing.assert_allclose(drawn, weight * own + (1 - weight) * shared)
    np.testing.assert_allclose(best_thresholds(pairs, "macro", 1e12), shared)


def test_labels_that_are_best_never_on_have_a_finite_threshold_above_all_scores():
    # One right pair among very many wrong ones: letting the first 20 in would cost micro-F1 more than it brings.
    scores = np.column_stack([np.arange(50.0), np.arange(50.0)])
    Y = np.zeros((50, 2))
    Y[40:, 0] = 1
    Y[5, 1] = 1
    thresholds = best_thresholds(everything(scores, Y), "micro", 0)
    assert thresholds[1] > 49
    assert np.isfinite(thresholds).all()
    none_on = ValidationPairs.of(np.array([[0], [0]]), np.array([[1.0], [2.0]]), np.array([[0.0, 1.0], [0.0, 1.0]]))
    for target in TARGETS:
        assert (best_thresholds(none_on, target, 0) > 2).all()


def test_positives_beyond_the_listed_places_count_as_missed():
    """Only the best label of each row is listed: the other labels' positives lower what a cut can gain."""
    scores = np.array([[3.0, 2.0], [2.9, 2.0], [2.8, 2.0], [2.7, 2.0]])
    Y = np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    first = ValidationPairs.of(np.zeros((4, 1), int), scores[:, :1], Y)
    np.testing.assert_array_equal(first.label_sizes, [1, 4])
    assert 2.9 < best_thresholds(first, "micro", 0)[0] < 3.0
