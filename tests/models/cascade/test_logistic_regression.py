"""The two regressions of the fusion: derivatives, optima, planted coefficients, and what must not matter."""

import numpy as np
import pytest
from scipy.special import expit, logsumexp

from tagwise.models.cascade.logistic_regression import _listwise, _logistic, curvature, map_listwise, map_logistic


@pytest.fixture
def rows():
    """Terms (n, M, p), labels that count 1 or 2.5, and known pairs."""
    rng = np.random.default_rng(0)
    terms = rng.normal(size=(40, 7, 4))
    on = (rng.random((40, 7)) < 0.3) * rng.choice([1, 2.5], size=(40, 7))
    return terms, on, rng.random((40, 7)) < 0.8


def slow_listwise(w, terms, on, known):
    total = 0.0
    for row in range(len(terms)):
        z = terms[row] @ w
        positives = np.flatnonzero(known[row] & (on[row] > 0))
        negatives = np.flatnonzero(known[row] & (on[row] == 0))
        if len(negatives):
            for j in positives:
                total += on[row, j] * (logsumexp(z[[j, *negatives]]) - z[j]) / len(positives)
    return total


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_the_listwise_loss_is_that_of_the_formula(rows, scale):
    terms, on, known = rows
    w = np.random.default_rng(1).normal(size=4)
    value, _, _ = _listwise(scale * terms, on, known)(w)
    np.testing.assert_allclose(value, slow_listwise(w, scale * terms, on, known))


@pytest.mark.parametrize("kind", ["listwise", "logistic"])
def test_derivatives_are_those_of_the_value(rows, kind):
    terms, on, known = rows
    loss = (_listwise if kind == "listwise" else _logistic)(terms, on, known)
    w, h = np.random.default_rng(2).normal(size=4), 1e-6
    _, gradient, hessian = loss(w)
    steps = h * np.eye(4)
    np.testing.assert_allclose(gradient, [(loss(w + s)[0] - loss(w - s)[0]) / (2 * h) for s in steps], atol=1e-6)
    np.testing.assert_allclose(hessian, [(loss(w + s)[1] - loss(w - s)[1]) / (2 * h) for s in steps], atol=1e-6)
    np.testing.assert_array_equal(curvature(terms, on, known, w, listwise=kind == "listwise"), hessian)


def test_the_optimum_has_no_gradient(rows):
    rng = np.random.default_rng(3)
    prior = np.array([rng.normal(size=4), rng.uniform(0.1, 2, 4)])
    for loss, find in ((_listwise, map_listwise), (_logistic, map_logistic)):
        w = find(*rows, prior)
        assert np.abs(loss(*rows)(w)[1] + (w - prior[0]) / prior[1] ** 2).max() < 1e-3


@pytest.mark.parametrize("find", [map_listwise, map_logistic])
def test_whole_weights_are_repeated_rows(rows, find):
    prior = np.array([np.zeros(4), np.ones(4)])
    times = np.random.default_rng(6).integers(0, 4, 40)
    weighted = find(*rows, prior, times)
    repeated = find(*(np.repeat(part, times, axis=0) for part in rows), prior)
    np.testing.assert_allclose(weighted, repeated, atol=1e-6)


def test_what_a_row_has_in_common_and_unknown_pairs_do_not_matter(rows):
    terms, on, known = rows
    prior = np.array([np.zeros(4), np.ones(4)])
    found = map_listwise(terms, on, known, prior)
    rng = np.random.default_rng(4)
    shifted = terms + rng.normal(size=(40, 1, 4))
    np.testing.assert_allclose(map_listwise(shifted, on, known, prior), found, atol=1e-5)
    other = np.where(known, on, 1 - (on > 0))
    np.testing.assert_array_equal(map_listwise(terms, other, known, prior), found)


def test_planted_order_is_found():
    rng = np.random.default_rng(5)
    planted = np.array([2.0, -1.0, 0.5, 0.0])
    terms = rng.normal(size=(3000, 8, 4))
    on = (rng.random((3000, 8)) < expit(terms @ planted - 1)).astype(float)
    found = map_listwise(terms, on, np.ones_like(on, dtype=bool), np.array([np.zeros(4), np.full(4, 10.0)]))
    np.testing.assert_allclose(found / found[0], planted / planted[0], atol=0.05)


def test_without_a_telling_row_the_prior_stays():
    prior = np.array([[1.0, -2.0], [0.5, 0.5]])
    terms, known = np.ones((3, 2, 2)), np.ones((3, 2), dtype=bool)
    for on in (np.zeros((3, 2)), np.ones((3, 2))):
        np.testing.assert_array_equal(map_listwise(terms, on, known, prior), prior[0])
    nothing = terms[:0], np.zeros((0, 2)), known[:0]
    for learn in (map_listwise, map_logistic):
        np.testing.assert_array_equal(learn(*nothing, prior), prior[0])
