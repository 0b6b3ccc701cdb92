"""Checks of constructor arguments that several baselines have."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tagwise.exceptions import TagwiseWarning
from tagwise.randomness import random_generator

__all__ = ["check_random_state", "usable_rank"]


def check_random_state(random_state: Any) -> None:
    """Raise for what cannot seed a generator, without drawing from a ``RandomState``."""
    if not isinstance(random_state, np.random.RandomState):
        random_generator(random_state)


def usable_rank(rank: int, largest: int, reason: str) -> int:
    """``rank``, or with a warning the largest that the data allows."""
    if rank > largest:
        # From here through _fit, _fit_checked and fit to the caller of fit.
        warnings.warn(f"rank={rank} is more than {reason}; using {largest}.", TagwiseWarning, stacklevel=5)
    return min(rank, largest)
