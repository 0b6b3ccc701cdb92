"""When LEML's rounds end."""

import numpy as np
import pytest

from tagwise.models.leml.steps import Factors, Rounds


def rounds_of(falls, *, tol, first=0.0, least=3):
    """Add rounds whose steps in W lower the objective as told, until they end."""
    nothing = np.zeros((1, 1), dtype=np.float32)
    rounds = Rounds(Factors(nothing, nothing, nothing, np.zeros(1)), first)
    for fall in falls:
        if not rounds.ended:
            rounds.add(fall, tol=tol, least=least)
    return rounds.done, rounds.ended


@pytest.mark.parametrize(
    ("falls", "tol", "expected"),
    [
        ([10, 1, 1, 1], 0.15, (3, True)),  # not before the third
        ([10, 9, 8, 1, 1], 0.15, (4, True)),
        ([10, 9, 8], 0.15, (3, False)),
        ([10, 0, 5], 0.0, (2, True)),  # nothing is left to gain
        ([0, 1], 0.15, (1, True)),
    ],
)
def test_a_small_fall_ends_the_rounds_from_the_third_on(falls, tol, expected):
    assert rounds_of(falls, tol=tol) == expected


def test_a_warm_start_is_measured_against_the_fit_before():
    assert rounds_of([3, 1.4, 1], tol=0.15, first=10.0, least=1) == (2, True)


def test_patience_ends_the_rounds_and_the_best_is_kept():
    nothing = np.zeros((1, 1), dtype=np.float32)
    rounds = Rounds(Factors(nothing.copy(), nothing, nothing, np.zeros(1)), 1.0)
    for score in (0.5, 0.7, 0.6, 0.7):
        rounds.factors.W[:] = score
        rounds.add(1.0, tol=0.0, least=3)
        rounds.judge(score, patience=2)
    kept, number = rounds.kept()
    assert (number, rounds.ended) == (2, True)
    assert kept.W[0, 0] == np.float32(0.7)
