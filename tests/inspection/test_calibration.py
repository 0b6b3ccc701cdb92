"""Probabilities that mean what they say, and state that survives a folder."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.isotonic import IsotonicRegression

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.inspection import calibration
from tagwise.inspection.calibration import Calibration, fit_calibration
from tagwise.inspection.reliability import reliability_bins
from tagwise.inspection.thresholds import best_thresholds
from tagwise.inspection.validation_pairs import ValidationPairs

ISOTONIC = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")


def planted(n_rows=2000, seed=0):
    """Two frequent labels whose scores mean different things, and eight rare ones; with the true probabilities."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 1, (n_rows, 10))
    slope = np.array([6.0, 1.0] + [2.0] * 8)
    shift = np.array([0.0, 0.0] + [-4.0] * 8)
    probability = 1 / (1 + np.exp(-(slope * scores + shift)))
    Y = sp.csr_matrix((rng.random(scores.shape) < probability).astype(float))
    labels = np.argsort(-scores, axis=1, kind="stable")
    return labels, np.take_along_axis(scores, labels, axis=1), Y, np.take_along_axis(probability, labels, axis=1)


@pytest.fixture(scope="module")
def fitted():
    labels, scores, Y, _ = planted()
    return fit_calibration(labels, scores, Y)


def test_probabilities_of_frequent_labels_are_their_own_and_hold_on_other_rows(fitted):
    labels, scores, Y, true = planted(seed=1)
    stated = fitted.probabilities(labels, scores)
    for label in (0, 1):
        pairs = labels == label
        assert np.abs(stated[pairs] - true[pairs]).mean() < 0.06
    pooled = np.interp(scores, fitted.maps.pooled_scores, fitted.maps.pooled_probabilities)
    assert np.abs(pooled - true)[labels == 0].mean() > 0.15
    pairs = ValidationPairs.of(labels, scores, Y)
    assert reliability_bins(fitted.probabilities(pairs.labels, pairs.scores), pairs.on).error < 0.04
    assert fitted.reliability.error < 0.04
    assert fitted.reliability.count.sum() == labels.size
    scores = np.linspace(-5, 5, 400)
    for label in range(10):
        stated = fitted.probabilities(np.full(400, label), scores)
        assert (np.diff(stated, prepend=0) >= 0).all()
        assert stated[-1] <= 1


def test_own_maps_are_blended_with_the_pooled_one_by_how_much_is_behind_them(fitted, monkeypatch):
    labels, scores, Y, _ = planted()
    on = ValidationPairs.of(labels, scores, Y).on.reshape(labels.shape)
    mine = labels == 1
    own = ISOTONIC.fit(scores[mine], on[mine]).predict(scores[mine])
    pooled = ISOTONIC.fit(scores.ravel(), on.ravel()).predict(scores.ravel()).reshape(scores.shape)
    weight = on[mine].sum() / (on[mine].sum() + calibration._SHRINKAGE)
    found = fitted.probabilities(labels, scores)[mine]
    np.testing.assert_allclose(found, weight * own + (1 - weight) * pooled[mine], atol=1e-12)
    monkeypatch.setattr(calibration, "_OWN_MAP_POSITIVES", 10**9)  # labels with few positives have the pooled map
    shared = fit_calibration(labels, scores, Y)
    assert not len(shared.maps.own_labels)
    np.testing.assert_allclose(shared.probabilities(labels, scores), pooled)


def test_places_without_a_label_have_no_probability(fitted):
    labels, scores = np.array([[0, -1]]), np.array([[1.0, -np.inf]])
    assert fitted.probabilities(labels, scores)[0, 1] == 0
    np.testing.assert_array_equal(fitted.is_on(labels, scores)[:, 1], [False])
    # Without rows, probabilities are those of the model.
    maps = calibration.ProbabilityMaps.of_probabilities()
    scores = np.array([[0.5, 0.25, -0.5, -0.75, -np.inf]])
    np.testing.assert_array_equal(maps(np.array([[0, 1, 2, 3, -1]]), scores), [[1, 0.75, 0, 0, 0]])


def test_state_comes_back(fitted):
    again = Calibration.from_parts(fitted.to_parts(), 10)
    labels, scores, _, _ = planted(seed=4)
    for method in ("probabilities", "is_on"):
        np.testing.assert_array_equal(getattr(again, method)(labels, scores), getattr(fitted, method)(labels, scores))
    assert (again.target, again.k, again.rows) == (fitted.target, fitted.k, fitted.rows)
    # A single row has no other half.
    found = fit_calibration(np.array([[0, 1]]), np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]))
    assert found.reliability.count.sum() == 0
    assert np.isnan(found.reliability.error)
    Calibration.from_parts(found.to_parts(), 2)


def test_thresholds_are_those_of_the_target():
    labels, scores, Y, _ = planted(300)
    pairs = ValidationPairs.of(labels, scores, Y)
    for target in ("micro", "macro", "example"):
        found = fit_calibration(labels, scores, Y, target=target, shrinkage=3)
        np.testing.assert_array_equal(found.thresholds, best_thresholds(pairs, target, 3))
        assert (found.target, found.k, found.rows) == (target, 10, 300)
        np.testing.assert_array_equal(found.is_on(labels, scores), scores >= found.thresholds[labels])


def test_unknown_pairs_take_no_part():
    labels, scores, Y, _ = planted(300)
    rng = np.random.default_rng(3)
    mask = rng.random(Y.shape) < 0.6
    lies = sp.csr_matrix(np.where(mask, Y.toarray(), rng.integers(0, 2, Y.shape)))
    honest, lied = (fit_calibration(labels, scores, said, observed=mask) for said in (Y, lies))
    for theirs, ours in ((honest, lied), (honest.maps, lied.maps), (honest.reliability, lied.reliability)):
        for name, found in vars(theirs).items():
            if isinstance(found, np.ndarray):
                np.testing.assert_array_equal(found, getattr(ours, name))
    assert honest.reliability.count.sum() == mask.sum()
    # Nor do labels of which nothing is known.
    found = fit_calibration(labels, np.where(labels == 9, -1e30, scores), Y)
    assert found.maps.pooled_scores.min() > -10
    assert found.reliability.count.sum() == 300 * 9


# --- scores that are probabilities minus ½


def stated_probabilities(n_rows, bias=0.0, seed=0):
    """Five labels per row, and what a model says about them: their probabilities minus ½, with biased log odds."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1, 2, (n_rows, 5))
    Y = sp.csr_matrix((rng.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(float))
    said = 1 / (1 + np.exp(-(odds + bias))) - 0.5
    labels = np.argsort(-said, axis=1, kind="stable")
    return labels, np.take_along_axis(said, labels, axis=1), Y


def mean_error(found, bias=0.0):
    """Of probabilities on 20,000 other rows, against the truth."""
    labels, scores, _ = stated_probabilities(20_000, bias, seed=99)
    true = 1 / (1 + np.exp(bias - np.log((0.5 + scores) / (0.5 - scores))))
    return np.abs(found.probabilities(labels, scores) - true).mean()


def test_right_probabilities_stay_with_few_and_with_many_rows(monkeypatch):
    monkeypatch.setattr(calibration, "_OWN_MAP_POSITIVES", 10**9)
    for n_rows in (50, 2000):
        errors, isotonic = [], []
        for seed in range(5):
            rows = stated_probabilities(n_rows, seed=seed)
            errors.append(mean_error(fit_calibration(*rows, probabilistic=True)))
            isotonic.append(mean_error(fit_calibration(*rows)))
        assert np.mean(errors) < min(0.01, np.mean(isotonic) / 2)


def test_wrong_probabilities_follow_the_rows():
    _, scores, _ = stated_probabilities(20_000, 1.5, seed=99)
    wrong = np.abs(scores + 0.5 - 1 / (1 + np.exp(1.5 - np.log((0.5 + scores) / (0.5 - scores))))).mean()

    def error(n_rows):
        drawn = (stated_probabilities(n_rows, 1.5, seed) for seed in range(3))
        return np.mean([mean_error(fit_calibration(*rows, probabilistic=True), 1.5) for rows in drawn])

    assert wrong > 0.12
    assert error(50) < 0.8 * wrong
    assert error(4000) < 0.02


def test_the_correction_is_the_part_that_holds_on_other_rows():
    labels, scores, Y = stated_probabilities(300, 0.5)
    pairs = ValidationPairs.of(labels, scores, Y)
    gain = size = 0.0
    for this in (pairs.rows % 2 == 1, pairs.rows % 2 == 0):
        stated = pairs.scores[this] + 0.5
        correction = ISOTONIC.fit(pairs.scores[~this], pairs.on[~this]).predict(pairs.scores[this]) - stated
        gain, size = gain + correction @ (pairs.on[this] - stated), size + correction @ correction
    weight = 300 / 400 * gain / size
    assert 0.3 < weight < 0.7
    whole = ISOTONIC.fit(pairs.scores, pairs.on)
    maps = fit_calibration(labels, scores, Y, probabilistic=True).maps
    grid = np.linspace(-0.5, 0.5, 77)
    np.testing.assert_allclose(
        np.interp(grid, maps.pooled_scores, maps.pooled_probabilities),
        weight * whole.predict(grid) + (1 - weight) * (grid + 0.5),
        atol=1e-12,
    )
    again = Calibration.from_parts(fit_calibration(labels, scores, Y, probabilistic=True).to_parts(), 5)
    np.testing.assert_array_equal(again.maps.pooled_probabilities, maps.pooled_probabilities)


def test_forged_state_is_refused():
    labels, scores, Y, _ = planted()
    found = fit_calibration(labels[:, :2] * 0 + [0, 1], scores[:, :2], Y)
    assert len(found.maps.own_labels) == 2
    values = found.to_parts()
    knots = {"pooled_scores": np.array([0.0, 1.0]), "pooled_probabilities": np.array([0.0, 1.0])}
    forged = [
        {"rows": "many"},
        *(
            {"maps": {**values["maps"], **maps}}
            for maps in (
                {"surprise": np.ones(3)},
                {"own_labels": np.arange(3)},
                {"own_labels": np.array([0, 10])},
                {"own_labels": np.array([1, 0])},
                {"own_weights": np.array([0.5, 1.5])},
                {"own_starts": np.array([0, 0, 2])},
                dict.fromkeys(knots, np.empty(0)),
                {**knots, "pooled_scores": np.array([0.0, np.inf])},
                {**knots, "pooled_scores": np.array([1.0, 0.0])},
                {**knots, "pooled_probabilities": np.array([1.0, 0.0])},
                {**knots, "pooled_probabilities": np.array([0.0, 2.0])},
            )
        ),
        {"reliability": {**values["reliability"], "count": np.array([1])}},
        {"reliability": {**values["reliability"], "observed": np.full(10, 2.0)}},
    ]
    Calibration.from_parts({**values, "maps": {**values["maps"], **knots}}, 10)
    for change in forged:
        with pytest.raises((ValueError, TypeError)):
            pytest.fail(f"{change}: {Calibration.from_parts({**values, **change}, 10)}")


def test_bad_input():
    given = {"labels": np.tile([0, 1], (4, 1)), "scores": np.ones((4, 2)), "Y": np.eye(4, 3)}
    for change, error, words in (
        ({"target": "f1"}, InvalidInputError, "target must be one of"),
        ({"shrinkage": -1}, InvalidInputError, "shrinkage"),
        ({"labels": np.zeros((4, 2))}, InvalidTypeError, "float64"),
        ({"scores": np.zeros((4, 2), int)}, InvalidTypeError, "int64"),
        ({"scores": np.zeros((4, 1))}, InvalidInputError, "shapes"),
        ({"labels": np.zeros((3, 2), int), "scores": np.zeros((3, 2))}, InvalidInputError, "4 rows of Y"),
        ({"labels": np.full((4, 2), 3)}, InvalidInputError, "from 0 to 2"),
        ({"scores": np.full((4, 2), np.nan)}, InvalidInputError, "NaN"),
        ({"labels": np.full((4, 2), -1)}, InvalidInputError, "no listed label"),
        ({"Y": np.zeros((4, 3))}, InvalidInputError, "calibration is impossible"),
        ({"observed": np.ones((4, 2))}, InvalidInputError, "observed has shape"),
    ):
        with pytest.raises(error, match=words):
            fit_calibration(**{**given, **change})


# --- reliability


def test_bins_hold_means_and_shares():
    bins = reliability_bins([0.0, 0.04, 0.1, 0.55, 1.0, 1.0], [0, 1, 0, 1, 1, 0])
    np.testing.assert_array_equal(bins.count, [2, 1, 0, 0, 0, 1, 0, 0, 0, 2])
    np.testing.assert_allclose(bins.predicted[[0, 1, 5, 9]], [0.02, 0.1, 0.55, 1.0])
    np.testing.assert_allclose(bins.observed[[0, 1, 5, 9]], [0.5, 0, 1, 0.5])
    assert np.isnan(bins.predicted[2])
    assert bins.error == pytest.approx((2 * 0.48 + 0.1 + 0.45 + 2 * 0.5) / 6)
    for words, probabilities, on, *n_bins in (
        ("2 entries but on has 1", [0.1, 0.2], [1]),
        ("between 0 and 1", [1.1], [1]),
        ("between 0 and 1", [np.nan], [1]),
        ("n_bins", [0.1], [1], 0),
    ):
        with pytest.raises(InvalidInputError, match=words):
            reliability_bins(probabilities, on, *n_bins)
