"""One rule for every ``random_state`` argument."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.validation import integer_text

__all__ = ["RandomState", "check_random_state", "random_generator"]

_WORD = 2**64 - 1

RandomState = int | np.random.Generator | np.random.RandomState | None


def random_generator(random_state: Any) -> np.random.Generator:
    """A generator from a seed.

    None gives fresh randomness; a ``Generator`` is used (and advanced) itself; from a ``RandomState``, numpy's older
    kind that scikit-learn passes around, a seed is drawn.
    """
    if random_state is None or isinstance(random_state, np.random.Generator):
        return np.random.default_rng(random_state)
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(int(random_state.randint(np.iinfo(np.int32).max)))
    if isinstance(random_state, (bool, np.bool_)) or not isinstance(random_state, numbers.Integral):
        raise InvalidTypeError(
            "random_state must be None, a whole number, a numpy.random.Generator or a numpy.random.RandomState; "
            f"found {random_state!r}."
        )
    if not 0 <= int(random_state) <= _WORD:
        raise InvalidInputError(f"random_state must be from 0 to 2^64 - 1; found {integer_text(random_state)}.")
    return np.random.default_rng(int(random_state))


def check_random_state(random_state: Any) -> None:
    """Raise for what cannot seed a generator, without drawing from a ``RandomState``."""
    if not isinstance(random_state, np.random.RandomState):
        random_generator(random_state)
