"""The verdict on drift follows the figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tagwise.inspection import Drift, Profile, compare_profiles
from tagwise.reports.drift import compared_figures, verdict


def compared(**changes) -> Drift:
    """A thousand rows compared with themselves, with other figures in their place."""
    profile = Profile(1000, 10, 0.08, 0.01, np.array([0.0]), np.array([500, 500]), np.array([100, 900]))
    return replace(compare_profiles(profile, profile), **changes)


def test_without_a_significant_difference_there_is_no_drift():
    assert verdict(compared()) == "No drift: no difference is significant (p ≤ 0.05)."


def test_a_significant_but_small_difference_is_named_with_the_reason():
    plain = compared()
    recent = replace(plain.recent, unknown_mean=0.085)
    words = "Unknown words differ (p = 0.003), but by less than one point."
    found = compared(recent=recent, unknown_p=0.003)
    assert verdict(found) == f"No substantial drift. {words}"
    scores = "Best scores differ (p < 0.001), but the stability index is below 0.1."
    found = replace(found, score_p=1e-5, score_psi=0.06)
    assert verdict(found) == f"No substantial drift. {words} {scores}"
    assert not any(one.moved for one in compared_figures(found))
    found = replace(found, empty_p=0.01)
    assert verdict(found) == f"Drift: texts without known words. {words} {scores}"


def test_significant_and_large_differences_are_drift():
    recent = replace(compared().recent, unknown_mean=0.2)
    found = compared(recent=recent, unknown_p=1e-9, score_p=0.01, score_psi=0.3, label_q=np.array([0.5, 0.01]))
    assert verdict(found) == "Drift: unknown words, scores, 1 tag."
