"""Published methods to compare with, one class each; imported on first use, like the names of :mod:`tagwise`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["BinaryRelevance"]

if TYPE_CHECKING:
    from tagwise.models.binary_relevance import BinaryRelevance

_HOME_OF = {
    "BinaryRelevance": "tagwise.models.binary_relevance",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tagwise.baselines' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
