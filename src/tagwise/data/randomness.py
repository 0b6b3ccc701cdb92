"""One rule for the ``random_state`` argument of masks, splits and synthetic problems."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from tagwise.exceptions import InvalidInputError, InvalidTypeError

__all__ = ["RandomState", "random_generator"]

RandomState = int | np.random.Generator | None


def random_generator(random_state: Any) -> np.random.Generator:
    """A generator from a seed; None gives fresh randomness, and a generator is used (and advanced) itself."""
    if random_state is None or isinstance(random_state, np.random.Generator):
        return np.random.default_rng(random_state)
    if isinstance(random_state, (bool, np.bool_)) or not isinstance(random_state, numbers.Integral):
        raise InvalidTypeError(
            f"random_state must be None, a whole number or a numpy.random.Generator; found {random_state!r}."
        )
    if random_state < 0:
        raise InvalidInputError(f"random_state must be at least 0; found {random_state}.")
    return np.random.default_rng(int(random_state))
