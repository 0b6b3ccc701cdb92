"""Which settings of each model are searched: rank, penalty and loss, and what takes their place in other methods.

==================  =====================================================================================
model               searched
==================  =====================================================================================
binary-relevance    reg 0.03-30; loss
leml                rank 25-400; reg 0.03-30; loss
reml                rank 25-400; reg_low_rank 0.1-10; reg_sparse 0.1-10; positive_weight 1, 2
cascade             rank 25-100; C 0.1-2; reg_sparse 0.3-3; positive_weight 1, 2; exponent 0.25, 0.5, 1
mse                 subspace_rank 0.02-0.2; reg 0.05-0.8; threshold 0.05-0.4
plst, cplst,        rank 25-400; reg 0.03-30
mlcssp
wsabie              rank 25-400; learning_rate 0.003-0.3; max_norm 3-30
sleec               rank 25-200; label_neighbors 15-100; n_neighbors 10-50; reg 0.1-10
knn                 n_neighbors 5-100; similarity_power 1-8
mlknn               n_neighbors 5-50; smoothing 0.1-3
mddm                kept 0.7-0.99; n_neighbors 5-30; smoothing 0.1-3
fastxml             cost 0.5-30; max_leaf 5-50; n_trees 25-100
lpsr                n_partitions 30-300; n_visited 1-10; reg 0.1-10
compressedsensing   reg 0.03-30; recovery omp, cosamp
bayesiancs          reg 0.03-30; feature_noise 0.005-0.1; code_noise 0.005-0.1
==================  =====================================================================================

Ranks above what the problem has room for are left out. Losses beside the squared one cost time in proportion to all
pairs of a row and a label, so that they are searched only where there are at most 20 million (known) pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.models.choice import model_class, short_name
from tagwise.validation import check_real

__all__ = ["Choice", "LogRange", "SearchSpace", "check_space", "draw_settings", "search_space"]

_MOST_PAIRS = 20_000_000
# Digits that are kept of a number that is drawn: people read, type and compare it.
_DIGITS = 3


@dataclass(frozen=True)
class Choice:
    """One of a few values, each as likely."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        """One of them."""
        return self.values[int(rng.integers(len(self.values)))]

    def as_values(self) -> dict[str, Any]:
        """For JSON."""
        return {"one of": list(self.values)}


@dataclass(frozen=True)
class LogRange:
    """A number between two positive ones, its logarithm uniform; 3 digits are kept."""

    low: float
    high: float

    def __post_init__(self) -> None:
        check_real(self.low, "low", minimum=0, open_minimum=True)
        check_real(self.high, "high", minimum=self.low)

    def draw(self, rng: np.random.Generator) -> float:
        """A number."""
        value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)

    def as_values(self) -> dict[str, Any]:
        """For JSON."""
        return {"from": self.low, "to": self.high}


SearchSpace = Mapping[str, "Choice | LogRange"]
"""Name of a constructor parameter → where its values come from."""

_RANK = Choice((25, 50, 100, 200, 400))
_LOSS = Choice(("squared", "logistic", "squared_hinge"))
_REG = LogRange(0.03, 30.0)
_NARROW = LogRange(0.1, 10.0)
_WEIGHT = Choice((1.0, 2.0))

_SPACES: dict[str, dict[str, Choice | LogRange]] = {
    "binary-relevance": {"reg": _REG, "loss": _LOSS},
    "leml": {"rank": _RANK, "reg": _REG, "loss": _LOSS},
    "reml": {"rank": _RANK, "reg_low_rank": _NARROW, "reg_sparse": _NARROW, "positive_weight": _WEIGHT},
    "cascade": {
        "rank": Choice((25, 50, 100)),
        "C": LogRange(0.1, 2.0),
        "reg_sparse": LogRange(0.3, 3.0),
        "positive_weight": _WEIGHT,
        "exponent": Choice((0.25, 0.5, 1.0)),
    },
    "mse": {
        "subspace_rank": LogRange(0.02, 0.2),
        "reg": LogRange(0.05, 0.8),
        "threshold": LogRange(0.05, 0.4),
    },
    "plst": {"rank": _RANK, "reg": _REG},
    "cplst": {"rank": _RANK, "reg": _REG},
    "mlcssp": {"rank": _RANK, "reg": _REG},
    "wsabie": {"rank": _RANK, "learning_rate": LogRange(0.003, 0.3), "max_norm": LogRange(3.0, 30.0)},
    "sleec": {
        "rank": Choice((25, 50, 100, 200)),
        "label_neighbors": Choice((15, 25, 50, 100)),
        "n_neighbors": Choice((10, 25, 50)),
        "reg": _NARROW,
    },
    "knn": {"n_neighbors": Choice((5, 10, 20, 30, 50, 100)), "similarity_power": Choice((1.0, 2.0, 4.0, 6.0, 8.0))},
    "mlknn": {"n_neighbors": Choice((5, 10, 20, 30, 50)), "smoothing": LogRange(0.1, 3.0)},
    "mddm": {
        "kept": Choice((0.7, 0.8, 0.9, 0.95, 0.99)),
        "n_neighbors": Choice((5, 10, 20, 30)),
        "smoothing": LogRange(0.1, 3.0),
    },
    "fastxml": {"cost": LogRange(0.5, 30.0), "max_leaf": Choice((5, 10, 20, 50)), "n_trees": Choice((25, 50, 100))},
    "lpsr": {"n_partitions": Choice((30, 100, 300)), "n_visited": Choice((1, 3, 10)), "reg": _NARROW},
    "compressedsensing": {"reg": _REG, "recovery": Choice(("omp", "cosamp"))},
    "bayesiancs": {"reg": _REG, "feature_noise": LogRange(0.005, 0.1), "code_noise": LogRange(0.005, 0.1)},
}


def search_space(
    model: str, *, n_rows: int, n_features: int, n_labels: int, n_pairs: int | None = None
) -> dict[str, Choice | LogRange]:
    """The settings that are searched for a model, on a problem of a given size; the table above lists them all.

    Parameters
    ----------
    model : str
        Name of a model, as for :func:`tagwise.models.choice.model_class`.
    n_rows, n_features, n_labels : int
        n, d, L.
    n_pairs : int, optional
        Known pairs of a row and a label; n·L where all are.
    """
    name = short_name(model_class(model))
    if name not in _SPACES:
        raise InvalidInputError(f"model {name} has no search space of its own; give one as space.")
    space = dict(_SPACES[name])
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
        settings = {name: values.draw(rng) for name, values in space.items()}
        if settings not in drawn:
            drawn.append(settings)
    return drawn
