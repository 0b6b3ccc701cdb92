"""Published methods to compare with, one class each; imported on first use, like the names of :mod:`tagwise`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "CPLST",
    "KNN",
    "LPSR",
    "MDDM",
    "MLCSSP",
    "MLKNN",
    "PLST",
    "SLEEC",
    "WSABIE",
    "BayesianCS",
    "BinaryRelevance",
    "CompressedSensing",
    "FastXML",
]

if TYPE_CHECKING:
    from tagwise.baselines.bayesian_cs import BayesianCS
    from tagwise.baselines.compressed_sensing import CompressedSensing
    from tagwise.baselines.cplst import CPLST
    from tagwise.baselines.fastxml import FastXML
    from tagwise.baselines.knn import KNN
    from tagwise.baselines.lpsr import LPSR
    from tagwise.baselines.mddm import MDDM
    from tagwise.baselines.ml_cssp import MLCSSP
    from tagwise.baselines.ml_knn import MLKNN
    from tagwise.baselines.plst import PLST
    from tagwise.baselines.sleec import SLEEC
    from tagwise.baselines.wsabie import WSABIE
    from tagwise.models.binary_relevance import BinaryRelevance


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tagwise.baselines' has no attribute {name!r}")
    from tagwise.models.loading import MODEL_CLASSES

    value = getattr(import_module(MODEL_CLASSES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
