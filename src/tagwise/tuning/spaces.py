"""Which settings of each model are searched: rank, penalty and loss, and what takes their place in other methods.

:data:`tagwise.registry.MODELS` has the search space of every model.

Ranks above what the problem has room for are left out. Losses beside the squared one cost time in proportion to all
pairs of a row and a label, so that they are searched only where there are at most 20 million (known) pairs.
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

__all__ = ["Choice", "LogRange", "SearchSpace", "as_values", "check_space", "draw_settings", "search_space"]

_MOST_PAIRS = 20_000_000
# Digits that are kept of a number that is drawn: people read, type and compare it.
_DIGITS = 3


SearchSpace = Mapping[str, "Choice | LogRange"]
"""Name of a constructor parameter → where its values come from."""


def search_space(
    model: str, *, n_rows: int, n_features: int, n_labels: int, n_pairs: int | None = None
) -> dict[str, Choice | LogRange]:
    """The settings that are searched for a model, on a problem of a given size; see :data:`tagwise.registry.MODELS`.

    Parameters
    ----------
    model : str
        Name of a model, as for :func:`tagwise.registry.model_class`.
    n_rows, n_features, n_labels : int
        n, d, L.
    n_pairs : int, optional
        Known pairs of a row and a label; n·L where all are.
    """
    info = model_info(model)
    if not info.search_space:
        raise InvalidInputError(f"model {info.name} has no search space of its own; give one as space.")
    space = dict(info.search_space)
    rank = space.get("rank")
    if isinstance(rank, Choice):
        room = min(n_rows, n_features, n_labels)
        space["rank"] = Choice(tuple(value for value in rank.values if value <= room) or (room,))
    pairs = n_rows * n_labels if n_pairs is None else n_pairs
    if "loss" in space and pairs > _MOST_PAIRS:
        del space["loss"]
    return space


def check_space(space: Any, model: str) -> dict[str, Choice | LogRange]:
    """A search space that the user gave: parameters of the model, and where their values come from."""
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
    """Different settings, at most ``count`` of them: fewer where the space has no more.

    Notes
    -----
    Random draws search a space better than a grid of the same size where only some of its dimensions matter.
    """
    drawn: list[dict[str, Any]] = []
    for _ in range(20 * count):
        if len(drawn) == count:
            break
        settings = {name: _draw(values, rng) for name, values in space.items()}
        if settings not in drawn:
            drawn.append(settings)
    return drawn


def as_values(values: Choice | LogRange) -> dict[str, Any]:
    """For JSON."""
    if isinstance(values, Choice):
        return {"one of": list(values.values)}
    return {"from": values.low, "to": values.high}


def _draw(values: Choice | LogRange, rng: np.random.Generator) -> Any:
    """One of the values, each as likely; or a number whose logarithm is uniform, of which 3 digits are kept."""
    if isinstance(values, Choice):
        return values.values[int(rng.integers(len(values.values)))]
    value = math.exp(rng.uniform(math.log(values.low), math.log(values.high)))
    return min(max(float(f"{value:.{_DIGITS}g}"), values.low), values.high)
