"""Drift: closed forms, scipy's twins, what chance alone does, and shifts that are planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, fisher_exact

from tagwise import BinaryRelevance
from tagwise.exceptions import InvalidInputError
from tagwise.inspection import (
    Profile,
    benjamini_hochberg,
    compare_profiles,
    population_stability,
    profile_of,
    reliability_bins,
)
from tagwise.inspection.drift import _share_p


def test_the_stability_index_in_closed_form():
    # (9 + ½) / 10 of the reference and (4 + ½) / 10 of the recent rows are in the first bin.
    found = population_stability([9, 0], [4, 5])
    assert found == pytest.approx((0.45 - 0.95) * np.log(0.45 / 0.95) + (0.55 - 0.05) * np.log(0.55 / 0.05))
    assert population_stability([3, 7, 0], [3, 7, 0]) == 0
    np.testing.assert_allclose(population_stability([[9, 0], [2, 2]], [[4, 5], [2, 2]]), [found, 0])
    with pytest.raises(InvalidInputError, match="recent must hold counts"):
        population_stability([1, 2], [1, 2, 3])
    with pytest.raises(InvalidInputError, match="reference must hold counts"):
        population_stability([1, -2], [1, 2])


@given(st.lists(st.floats(0, 1), max_size=40))
def test_adjusted_p_values_are_those_of_scipy(p_values):
    p = np.array(p_values)
    expected = false_discovery_control(p) if len(p) else p
    np.testing.assert_allclose(benjamini_hochberg(p), expected)
    for bad in ([0.5, 1.5], [np.nan], [[0.5]]):
        with pytest.raises(InvalidInputError, match="p_values"):
            benjamini_hochberg(bad)


@given(st.integers(1, 30), st.integers(1, 30), st.data())
def test_two_shares_are_compared_exactly(n_then, n_now, data):
    then, now = data.draw(st.integers(0, n_then)), data.draw(st.integers(0, n_now))
    table = [[now, n_now - now], [then, n_then - then]]
    tails = [fisher_exact(table, alternative).pvalue for alternative in ("less", "greater")]
    assert float(_share_p(then, n_then, now, n_now)) == pytest.approx(min(1, 2 * min(tails)))


def drawn(rng, n_rows, shares, edges=(-1.0, 0.0, 1.0), shift=0.0):
    """The profile of rows that have each label with its own probability; without edges, they are deciles."""
    scores = rng.standard_normal(n_rows) + shift
    edges = np.quantile(scores, np.arange(1, 10) / 10) if edges is None else edges
    unknown = rng.beta(2, 18, n_rows)
    return Profile(
        n_rows,
        int(rng.binomial(n_rows, 0.02)),
        float(unknown.mean()),
        float(unknown.var()),
        np.array(edges),
        np.bincount(np.searchsorted(edges, scores, side="right"), minlength=len(edges) + 1),
        rng.binomial(n_rows, shares),
    )


def test_chance_alone_moves_nothing():
    """Of 200 comparisons of rows of one kind, about a twentieth find something, whatever they look at."""
    rng = np.random.default_rng(0)
    shares = np.concatenate([np.full(20, 0.2), np.full(280, 0.003)])
    found = []
    for _ in range(200):
        reference = drawn(rng, 400, shares, edges=None)
        found.append(compare_profiles(reference, drawn(rng, 900, shares, edges=reference.score_edges)))
    for name in ("unknown_p", "empty_p", "score_p"):
        assert np.mean([getattr(one, name) <= 0.05 for one in found]) < 0.09
    assert np.mean([len(one.moved_labels()) > 0 for one in found]) < 0.09


def test_planted_shifts_are_found():
    rng = np.random.default_rng(1)
    shares = np.full(300, 0.02)
    moved = shares.copy()
    moved[[7, 40]] = [0.2, 0.1]
    found = compare_profiles(drawn(rng, 1000, shares), drawn(rng, 1000, moved, shift=-0.7))
    assert found.moved_labels().tolist()[:2] == [7, 40]
    assert len(found.moved_labels()) <= 3
    assert found.score_p < 1e-6
    assert found.score_psi > 0.25
    assert found.unknown_p > 0.001
    others = compare_profiles(found.reference, replace(found.recent, unknown_mean=0.3, empty_rows=200))
    assert max(others.unknown_p, others.empty_p) < 1e-6


def test_answers_against_their_probabilities():
    rng = np.random.default_rng(2)
    p = rng.random(2000)
    same = drawn(rng, 100, np.full(5, 0.2))
    plain = compare_profiles(same, same)
    assert (plain.answered, plain.answers) == (0, None)
    assert np.isnan([plain.expected, plain.accepted, plain.answers_p]).all()
    kept = plain.with_answers(reliability_bins(p, rng.random(2000) < p))
    assert kept.answered == 2000
    assert kept.expected == pytest.approx(p.sum())
    assert kept.answers_p > 0.001
    fallen = plain.with_answers(reliability_bins(p, rng.random(2000) < 0.8 * p))
    assert fallen.accepted < 0.9 * fallen.expected
    assert fallen.answers_p < 1e-6


def test_a_profile_counts_rows():
    X = sp.csr_matrix(np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 0, 1]], dtype=np.float32))
    Y = np.array([[1, 0], [0, 1], [0, 1], [1, 0]])
    model = BinaryRelevance().fit(X, Y)
    found = profile_of(model, X, unknown_shares=[0.5, 0, np.nan, 0.25])
    assert (found.rows, found.empty_rows) == (4, 1)
    assert found.unknown_mean == pytest.approx(0.25)
    assert found.unknown_variance == pytest.approx(np.var([0.5, 0, 0.25]))
    assert found.label_counts.tolist() == [4, 4]  # both labels of every row are among the first five
    assert found.score_counts.sum() == 4
    assert (np.diff(found.score_edges) > 0).all()
    again = profile_of(model, X[:2], edges=found.score_edges)
    assert again.score_counts.sum() == 2
    assert np.isnan(compare_profiles(found, again).unknown_p)
    dense = profile_of(model, X.toarray(), unknown_shares=[0.5, 0, np.nan, 0.25])
    assert dense.empty_rows == 1
    np.testing.assert_array_equal(dense.score_counts, found.score_counts)


def test_profiles_that_cannot_be_compared_are_refused():
    rng = np.random.default_rng(3)
    one = drawn(rng, 50, np.full(4, 0.2))
    with pytest.raises(InvalidInputError, match="4 labels and recent has 5"):
        compare_profiles(one, drawn(rng, 50, np.full(5, 0.2)))
    with pytest.raises(InvalidInputError, match="different score bins"):
        compare_profiles(one, drawn(rng, 50, np.full(4, 0.2), edges=(0.0, 1.0)))
    X = sp.csr_matrix(np.eye(3, dtype=np.float32))
    model = BinaryRelevance().fit(X, np.eye(3))
    with pytest.raises(InvalidInputError, match="X has 0 sample"):
        profile_of(model, X[:0])


def test_a_profile_comes_back_from_its_parts():
    one = drawn(np.random.default_rng(4), 60, np.full(4, 0.2))
    for profile in (one, replace(one, unknown_mean=float("nan"), unknown_variance=float("nan"))):
        again = Profile.from_parts(profile.to_parts(), 4)
        for name, expected in vars(profile).items():
            np.testing.assert_array_equal(getattr(again, name), expected)
