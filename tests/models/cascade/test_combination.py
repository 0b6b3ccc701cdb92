"""The fused choice from shortlists against the formulas of the combination, applied one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from tagwise.models.cascade.combination import Combination, Opinions, behind_shortlist, log_odds


def product(combination, margins, proposed, cosines):
    share = np.clip(proposed + 0.5, 1e-3, 1)
    alike = (np.clip(cosines, 0, 1) + 0.1) / 1.1
    return expit(combination.slope * margins) * share**combination.exponent * alike**combination.prototype_weight


def centred(combination, products):
    a, b = combination.calibration
    share = np.clip(products, 1e-6, 1 - 1e-6)
    return expit(a * np.log(share / (1 - share)) + b) - 0.5


def behind(proposed):
    return np.where(proposed < 0, proposed - 1, -0.5 - 0.5 / (1 + np.maximum(proposed, 0)))


def twin(combination, labels, proposed, margins, cosines, has_ranker, k):
    """Scores of all labels of the list, then a sort."""
    listed = margins.shape[1]
    margins = np.where(has_ranker[labels[:, :listed]], margins, 2 * proposed[:, :listed])
    products = product(combination, margins, proposed[:, :listed], cosines)
    scores = np.concatenate([products, behind(proposed[:, listed:])], axis=1)
    best_labels = np.full((len(labels), k), -1)
    best_scores = np.full((len(labels), k), -np.inf, dtype=proposed.dtype)
    for row in range(len(labels)):
        chosen = np.flatnonzero(labels[row] >= 0)
        order = chosen[np.lexsort((labels[row, chosen], -scores[row, chosen]))][:k]
        best_labels[row, : len(order)] = labels[row, order]
        ranked = order < listed
        best_scores[row, : len(order)] = np.where(
            ranked, centred(combination, scores[row, order].clip(0)), scores[row, order]
        )
    return best_labels, best_scores


@st.composite
def shortlists(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, n_labels = draw(st.integers(0, 5)), draw(st.integers(1, 60))
    width = draw(st.integers(1, n_labels))
    listed = draw(st.integers(0, width))
    labels = np.array([rng.permutation(n_labels)[:width] for _ in range(n_rows)], dtype=int).reshape(n_rows, width)
    # Whole numbers make ties; so do the limits of the share.
    proposed = -np.sort(-draw(st.sampled_from([0.2, 1.0])) * rng.integers(-3, 4, size=(n_rows, width)), axis=1)
    margins = rng.integers(-3, 4, size=(n_rows, listed)) * draw(st.sampled_from([0.3, 300.0]))
    labels[rng.random(labels.shape) < 0.1] = -1
    cosines = rng.integers(-1, 4, size=(n_rows, listed)) / 2.5
    return labels, proposed.astype(np.float64), margins, cosines, rng.random(n_labels) < 0.7


@given(shortlists(), st.sampled_from([1, 3, 70]), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.7]))
def test_the_same_as_the_formulas(shortlist, k, exponent, prototype_weight):
    combination = Combination(3.0, exponent, prototype_weight, (1.15, 1.25))
    labels, scores = combination.best(Opinions(*shortlist), k)
    expected, exact = twin(combination, *shortlist, k)
    np.testing.assert_allclose(scores, exact, rtol=1e-9, atol=1e-12)
    assert scores.dtype == np.float64
    # Products that are equal but for rounding may change places.
    same = labels == expected
    apart = np.ones_like(same)
    apart[:, 1:] &= np.abs(np.diff(np.where(np.isfinite(exact), exact, -9))) > 1e-9
    apart[:, :-1] &= apart[:, 1:]
    assert same[apart].all()


def test_equal_products_come_in_the_order_of_their_labels():
    labels = np.array([[7, 3, 5, 1]])
    proposed = np.full((1, 4), 0.1, dtype=np.float32)
    has_ranker = np.array([True] * 8)
    zeros = np.zeros((1, 3), np.float32)
    found, scores = Combination(3.0, 0.5, 0.5, (1.0, 0.0)).best(Opinions(labels, proposed, zeros, zeros, has_ranker), 4)
    np.testing.assert_array_equal(found, [[3, 5, 7, 1]])
    assert scores.dtype == np.float32
    assert scores[0, 0] == scores[0, 2] > -0.5 > scores[0, 3]


def test_the_same_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    labels = np.array([rng.permutation(60)[:20] for _ in range(5_000)])
    proposed = -np.sort(-rng.normal(size=labels.shape), axis=1)
    parts = (labels, proposed, rng.normal(size=(5_000, 12)), rng.random((5_000, 12)), rng.random(60) < 0.7)
    combination = Combination.usual(3.0, 0.5, 0.5)
    first, second = (combination.best(Opinions(*parts), 7, n_threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])


@given(shortlists(), st.sampled_from([np.float32, np.float64]))
def test_scores_of_all_have_the_bits_of_the_best(shortlist, dtype):
    labels, proposed, margins, cosines, has_ranker = shortlist
    labels, proposed = np.abs(labels), proposed.astype(dtype)
    combination = Combination.usual(3.0, 0.5, 0.5)
    width = margins.shape[1]
    opinions = Opinions(labels[:, :width], proposed[:, :width], margins, cosines, has_ranker)
    scores = np.concatenate([combination.scores(opinions), behind_shortlist(proposed[:, width:])], axis=1)
    assert scores.dtype == dtype
    _, best = combination.best(Opinions(labels, proposed, margins, cosines, has_ranker), labels.shape[1])
    np.testing.assert_array_equal(np.sort(best), np.sort(scores))


def test_log_odds_end_at_the_edges():
    np.testing.assert_allclose(
        log_odds(np.array([0, 0.25, 1], dtype=np.float32)), [-13.8155, -np.log(3), 13.8155], 1e-5
    )


def test_a_closed_form():
    """σ(slope·m) = ¾, the root of a share of ¼, and a cosine of 0.45, half of the way from −0.1 to 1."""
    labels, proposed = np.array([[0]]), np.array([[-0.25]])
    margins, cosines = np.array([[np.log(3) / 2]]), np.array([[0.45]])
    combination = Combination(2.0, 0.5, 2.0, (1.0, 0.0))
    _, scores = combination.best(Opinions(labels, proposed, margins, cosines, np.array([True])), 1)
    assert scores[0, 0] + 0.5 == pytest.approx(0.75 * 0.5 * 0.25)
