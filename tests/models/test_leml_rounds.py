"""When LEML's rounds end."""

import numpy as np
import pytest

from tagwise.models.leml.rounds import Rounds
from tagwise.models.leml.steps import Factors


class Scripted:
    """An alternation whose steps in W lower the objective as told."""

    def __init__(self, falls):
        self.falls = iter(falls)

    def step_features(self, factors):
        return next(self.falls)

    def step_labels(self, factors):
        return 0.0


def rounds_of(falls, *, tol, first=0.0, least=3):
    nothing = np.zeros((1, 1), dtype=np.float32)
    rounds = Rounds(Factors(nothing, nothing, nothing, np.zeros(1)), None, first)
    rounds.run(Scripted(falls), reg=1.0, tol=tol, least=least, max_iter=len(falls), report=lambda *a, **k: False)
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
