"""Raw text to features, and taggers. Names are imported on first use: scikit-learn does the work, and loads slowly."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Evaluation", "Suggestion", "Tagger", "TextFeatures", "WordShare"]

if TYPE_CHECKING:
    from tagwise.text.evaluation import Evaluation
    from tagwise.text.suggestion import Suggestion, WordShare
    from tagwise.text.tagger import Tagger
    from tagwise.text.tfidf import TextFeatures

_HOME_OF = {
    "Evaluation": "tagwise.text.evaluation",
    "Suggestion": "tagwise.text.suggestion",
    "Tagger": "tagwise.text.tagger",
    "TextFeatures": "tagwise.text.tfidf",
    "WordShare": "tagwise.text.suggestion",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tagwise.text' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
