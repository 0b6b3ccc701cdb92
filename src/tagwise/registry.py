"""The models of tagwise: one row each, as plain values that every layer may read without importing a model.

The public names, ``load``, model choice, tuning, the command line, error texts and the contract tests all read
:data:`MODELS`. Adding a model means adding its file, one row here, its tests and its page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

__all__ = ["MODELS", "MODEL_NAMES", "SAVED_CLASSES", "Choice", "LogRange", "ModelInfo", "info_of"]


@dataclass(frozen=True)
class Choice:
    """A parameter that is searched over a few values, each as likely."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class LogRange:
    """A parameter that is searched between two positive numbers, its logarithm uniform."""

    low: float
    high: float


@dataclass(frozen=True)
class ModelInfo:
    """One row of the registry.

    Attributes
    ----------
    class_name : str
        The class, and its name in a model folder.
    module : str
        Module of the class.
    learns_from_mask : bool
        Whether the method has a meaning for pairs that are unknown; if not, a mask is refused.
    explainable : bool
        Whether a score is an exact sum of one part per feature.
    search_space : mapping
        Constructor parameter → what tuning searches.
    also_baseline : bool
        Whether ``tagwise.baselines`` offers a model of ``tagwise.models`` too.
    probabilistic : bool
        Whether a score is a calibrated probability minus ½.
    learns_from_names : bool
        Whether ``fit`` learns from ``label_features``, the features of labels' names.
    weighs_rows : bool
        Whether the objective is a sum over rows that ``sample_weight`` can weigh; if not, it is refused.
    updatable : bool
        Whether a fitted model can learn further labels and rows: ``add_labels``, ``update`` and what belongs to them.
    """

    class_name: str
    module: str
    learns_from_mask: bool = False
    explainable: bool = False
    search_space: Mapping[str, Choice | LogRange] = field(default_factory=dict)
    also_baseline: bool = False
    probabilistic: bool = False
    learns_from_names: bool = False
    weighs_rows: bool = False
    updatable: bool = False

    @property
    def name(self) -> str:
        """Name for users: ``"leml"``, ``"binary-relevance"``."""
        return "binary-relevance" if self.class_name == "BinaryRelevance" else self.class_name.lower()

    def load_class(self) -> Any:
        """Import the class."""
        return getattr(import_module(self.module), self.class_name)


_RANK = Choice((25, 50, 100, 200, 400))
_LOSS = Choice(("squared", "logistic", "squared_hinge"))
_REG = LogRange(0.03, 30.0)
_NARROW = LogRange(0.1, 10.0)
_WEIGHT = Choice((1.0, 2.0))

MODELS: tuple[ModelInfo, ...] = (
    ModelInfo(
        "LEML",
        "tagwise.models.leml",
        True,
        True,
        {"rank": _RANK, "reg": _REG, "loss": _LOSS},
        weighs_rows=True,
        updatable=True,
    ),
    ModelInfo(
        "REML",
        "tagwise.models.reml",
        True,
        True,
        {"rank": _RANK, "reg_low_rank": _NARROW, "reg_sparse": _NARROW, "positive_weight": _WEIGHT},
        weighs_rows=True,
        updatable=True,
    ),
    ModelInfo(
        "Cascade",
        "tagwise.models.cascade",
        True,
        True,
        {
            "rank": Choice((25, 50, 100)),
            "C": LogRange(0.1, 2.0),
            "reg_sparse": LogRange(0.3, 3.0),
            "positive_weight": _WEIGHT,
            "hard_negatives": Choice((20, 100, 200)),
        },
        probabilistic=True,
        weighs_rows=True,
        learns_from_names=True,
        updatable=True,
    ),
    ModelInfo(
        "BinaryRelevance",
        "tagwise.models.binary_relevance",
        True,
        True,
        {"reg": _REG, "loss": _LOSS},
        also_baseline=True,
        weighs_rows=True,
        updatable=True,
    ),
    ModelInfo(
        "MSE",
        "tagwise.models.mse",
        search_space={
            "subspace_rank": LogRange(0.02, 0.2),
            "reg": LogRange(0.05, 0.8),
            "threshold": LogRange(0.05, 0.4),
        },
    ),
    ModelInfo("PLST", "tagwise.baselines.plst", explainable=True, search_space={"rank": _RANK, "reg": _REG}),
    ModelInfo("CPLST", "tagwise.baselines.cplst", explainable=True, search_space={"rank": _RANK, "reg": _REG}),
    ModelInfo("MLCSSP", "tagwise.baselines.ml_cssp", explainable=True, search_space={"rank": _RANK, "reg": _REG}),
    ModelInfo(
        "WSABIE",
        "tagwise.baselines.wsabie",
        explainable=True,
        search_space={"rank": _RANK, "learning_rate": LogRange(0.003, 0.3), "max_norm": LogRange(3.0, 30.0)},
    ),
    ModelInfo(
        "SLEEC",
        "tagwise.baselines.sleec",
        search_space={
            "rank": Choice((25, 50, 100, 200)),
            "label_neighbors": Choice((15, 25, 50, 100)),
            "n_neighbors": Choice((10, 25, 50)),
            "reg": _NARROW,
        },
    ),
    ModelInfo(
        "KNN",
        "tagwise.baselines.knn",
        search_space={
            "n_neighbors": Choice((5, 10, 20, 30, 50, 100)),
            "similarity_power": Choice((1.0, 2.0, 4.0, 6.0, 8.0)),
        },
    ),
    ModelInfo(
        "MLKNN",
        "tagwise.baselines.ml_knn",
        search_space={"n_neighbors": Choice((5, 10, 20, 30, 50)), "smoothing": LogRange(0.1, 3.0)},
    ),
    ModelInfo(
        "MDDM",
        "tagwise.baselines.mddm",
        search_space={
            "kept": Choice((0.7, 0.8, 0.9, 0.95, 0.99)),
            "n_neighbors": Choice((5, 10, 20, 30)),
            "smoothing": LogRange(0.1, 3.0),
        },
    ),
    ModelInfo(
        "FastXML",
        "tagwise.baselines.fastxml",
        search_space={"C": LogRange(0.5, 30.0), "max_leaf": Choice((5, 10, 20, 50)), "n_trees": Choice((25, 50, 100))},
    ),
    ModelInfo(
        "LPSR",
        "tagwise.baselines.lpsr",
        search_space={"n_partitions": Choice((30, 100, 300)), "n_visited": Choice((1, 3, 10)), "reg": _NARROW},
    ),
    ModelInfo(
        "CompressedSensing",
        "tagwise.baselines.compressed_sensing",
        search_space={"reg": _REG, "recovery": Choice(("omp", "cosamp"))},
    ),
    ModelInfo(
        "BayesianCS",
        "tagwise.baselines.bayesian_cs",
        learns_from_mask=True,
        search_space={"reg": _REG, "feature_noise": LogRange(0.005, 0.1), "code_noise": LogRange(0.005, 0.1)},
    ),
)
"""Every model, those of tagwise first."""

SAVED_CLASSES: Mapping[str, str] = {
    "Tagger": "tagwise.text.tagger",
}
"""Other classes that a model folder may hold: class → module."""

MODEL_NAMES: tuple[str, ...] = tuple(sorted(info.name for info in MODELS))
"""The names that models go by: ``"leml"``, ``"binary-relevance"``, …; case, hyphens and underscores do not matter."""


def info_of(model_class: type) -> ModelInfo:
    """The row of a class or of the registered class that it derives from.

    A class of one's own that derives from no registered model is taken to learn from a mask.
    """
    rows = {info.class_name: info for info in MODELS}
    for base in model_class.__mro__:
        if base.__name__ in rows and base.__module__.startswith("tagwise."):
            return rows[base.__name__]
    return ModelInfo(model_class.__name__, model_class.__module__, learns_from_mask=True)
