"""Finding good settings of a model on held-out rows: search spaces, and successive halving."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Choice", "LogRange", "Trial", "TuningResult", "search_space", "tune"]

if TYPE_CHECKING:
    from tagwise.tuning.spaces import Choice, LogRange, search_space
    from tagwise.tuning.successive_halving import Trial, TuningResult, tune

_HOME_OF = {
    "Choice": "tagwise.tuning.spaces",
    "LogRange": "tagwise.tuning.spaces",
    "search_space": "tagwise.tuning.spaces",
    "Trial": "tagwise.tuning.successive_halving",
    "TuningResult": "tagwise.tuning.successive_halving",
    "tune": "tagwise.tuning.successive_halving",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tagwise.tuning' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
