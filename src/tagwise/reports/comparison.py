"""Several models measured on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tagwise.progress import visible
from tagwise.reports.figures import objective_curve


@dataclass(frozen=True)
class ComparedModel:
    """One model of a comparison."""

    name: str
    metrics: dict[str, float]  # as in Evaluation.metrics
    fit_seconds: float  # to read the texts and fit
    predict_ms: float  # milliseconds per row to suggest tags, in batches
    megabytes: float  # size of the model
    reason: str = ""  # why this model, if it was chosen automatically
    history: list[dict[str, Any]] = field(default_factory=list)  # iterations of the fit

    def as_values(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "model": self.name,
            "reason": self.reason,
            "metrics": dict(self.metrics),
            "fit_seconds": self.fit_seconds,
            "predict_ms_per_row": self.predict_ms,
            "model_megabytes": self.megabytes,
        }


@dataclass(frozen=True)
class Comparison:
    """Models in the order in which they were given; the best is the first with the highest ``metric``."""

    models: Sequence[ComparedModel]
    metric: str
    ks: Sequence[int]
    training_rows: int
    rows: int

    @property
    def best(self) -> int:
        """Position of the best model."""
        return int(np.argmax(self.quality()))

    def quality(self) -> list[float]:
        """The metric of each model that decides which is best."""
        return [model.metrics[self.metric] for model in self.models]

    def columns(self) -> list[str]:
        """The metrics shown: P, nDCG and, if there are propensities, PSP at each k."""
        names = [f"{name}@{k}" for name in ("P", "nDCG", "PSP") for k in self.ks]
        return [name for name in names if name in self.models[0].metrics]

    def values(self) -> np.ndarray:
        """The metrics shown (models, columns)."""
        return np.array([[model.metrics[name] for name in self.columns()] for model in self.models])

    def histories(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """The name and the objectives of each model; no objectives where they cannot be compared."""
        return [(visible(model.name), objective_curve(model.history)) for model in self.models]
