"""Raw text to features. Names are imported on first use: scikit-learn does the work, and loads slowly."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["TfidfFeatures"]

if TYPE_CHECKING:
    from tagwise.text.tfidf import TfidfFeatures

_HOME_OF = {"TfidfFeatures": "tagwise.text.tfidf"}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tagwise.text' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
