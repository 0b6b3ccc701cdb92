"""Search spaces of the models: rank, penalty and loss, or their counterparts in other methods.

:data:`tagwise.registry.MODELS` holds the search space of every model. Ranks above the problem's dimensions are dropped.
Losses other than the squared one cost time in proportion to all (known) pairs of a row and a label, so they are
searched only if there are at most 20 million pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.models.choice import model_class, model_info
from tagwise.registry import Choice, LogRange
from tagwise.validation import check_real

__all__ = [
    "DENSE_WEIGHT",
    "Choice",
    "LogRange",
    "SearchSpace",
    "check_space",
    "draw_settings",
    "search_space",
]

_MOST_PAIRS = 20_000_000
# Significant digits of a drawn number: people read, type and compare it.
_DIGITS = 3

DENSE_WEIGHT = LogRange(0.3, 3.0)
"""Range of the weight of a dense block of features, for models with that parameter and rows with a block."""

SearchSpace = Mapping[str, "Choice | LogRange"]
"""Constructor parameter → range of its values."""


def search_space(
    model: str, *, n_rows: int, n_features: int, n_labels: int, n_pairs: int | None = None
) -> dict[str, Choice | LogRange]:
    """The default search space of a model for a problem of a given size; see :data:`tagwise.registry.MODELS`.

    ``n_pairs`` is the number of known pairs of a row and a label, n·L by default.
    """
    info = model_info(model)
    if not info.search_space:
        raise InvalidInputError(f"model {info.name} has no default search space; pass one as space.")
    space = dict(info.search_space)
    rank = space.get("rank")
    if isinstance(rank, Choice):
        largest = min(n_rows, n_features, n_labels)
        space["rank"] = Choice(tuple(value for value in rank.values if value <= largest) or (largest,))
    pairs = n_rows * n_labels if n_pairs is None else n_pairs
    if "loss" in space and pairs > _MOST_PAIRS:
        del space["loss"]
    return space


def check_space(space: Any, model: str) -> dict[str, Choice | LogRange]:
    """Check a search space given by the user against the model's parameters."""
    if not isinstance(space, Mapping) or not space:
        raise InvalidTypeError("space must map names of parameters to Choice or LogRange, and not be empty.")
    accepted = model_class(model)().get_params(deep=False)
    for name, values in space.items():
        if name not in accepted:
            raise InvalidInputError(f"space: {model} has no parameter {name!r}; it has {', '.join(sorted(accepted))}.")
        if not isinstance(values, (Choice, LogRange)) or (isinstance(values, Choice) and not values.values):
            raise InvalidTypeError(f"space[{name!r}] must be a Choice of some values or a LogRange; found {values!r}.")
        if isinstance(values, LogRange):
            check_real(values.low, f"space[{name!r}].low", minimum=0, open_minimum=True)
            check_real(values.high, f"space[{name!r}].high", minimum=values.low)
    return dict(space)


def draw_settings(space: SearchSpace, count: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Draw up to ``count`` distinct settings at random."""
    drawn: list[dict[str, Any]] = []
    for _ in range(20 * count):
        settings = {name: _draw(values, rng) for name, values in space.items()}
        if settings not in drawn:
            drawn.append(settings)
        if len(drawn) == count:
            break
    return drawn


def _draw(values: Choice | LogRange, rng: np.random.Generator) -> Any:
    """One of the values with equal probability, or a log-uniform number rounded to 3 significant digits."""
    if isinstance(values, Choice):
        return values.values[int(rng.integers(len(values.values)))]
    value = math.exp(rng.uniform(math.log(values.low), math.log(values.high)))
    return min(max(float(f"{value:.{_DIGITS}g}"), values.low), values.high)
