"""Several models on the same rows: their figures, and the section of a report that shows them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tagwise.progress import visible
from tagwise.reports import plots
from tagwise.reports.curves import objective_curve
from tagwise.reports.sections import figure, percent, scrolled, section, text

__all__ = ["ComparedModel", "Comparison", "comparison_section"]

_TIME_CAPTION = (
    "Up and to the left is better. Seconds are those of the comparison itself and include reading the texts."
)


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
        return int(np.argmax([model.metrics[self.metric] for model in self.models]))

    def columns(self) -> list[str]:
        """The metrics shown: P, nDCG and, if there are propensities, PSP at each k."""
        names = [f"{name}@{k}" for name in ("P", "nDCG", "PSP") for k in self.ks]
        return [name for name in names if name in self.models[0].metrics]


def comparison_section(comparison: Comparison) -> str:
    """Table, bars, and quality over time."""
    columns = comparison.columns()
    models = comparison.models
    names = [visible(model.name) for model in models]
    values = np.array([[model.metrics[name] for name in columns] for model in models])
    highest = values.max(axis=0)
    seconds, quality = [model.fit_seconds for model in models], [model.metrics[comparison.metric] for model in models]
    rows = "".join(
        f'<tr{" class=best" if place == comparison.best else ""}><th scope="row">{text(model.name)}</th>'
        + "".join(
            f"<td>{'<b>' if value == top else ''}{percent(value)}{'</b>' if value == top else ''}</td>"
            for value, top in zip(values[place], highest)
        )
        + f"<td>{model.fit_seconds:,.1f}</td><td>{model.predict_ms:,.3g}</td><td>{model.megabytes:,.1f}</td></tr>"
        for place, model in enumerate(models)
    )
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in ["model", *columns, "fit s", "ms per row", "MB"])
    parts = [
        scrolled(f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>", name="models"),
        '<div class="plots"><div class="wide">',
        figure(plots.draw_comparison(names, columns, values), "Quality", "Higher is better."),
        "</div>",
        figure(plots.draw_cost(names, seconds, quality, comparison.metric), "Quality and time", _TIME_CAPTION),
    ]
    histories = [(name, objective_curve(model.history)) for name, model in zip(names, models)]
    if any(history for _, history in histories):
        caption = "Each relative to its first value; objectives of different models cannot be compared."
        parts.append(figure(plots.draw_objectives(histories), "Objective over time", caption))
    lead = (
        f"{len(models)} models trained on the same {comparison.training_rows:,} rows and measured on the same "
        f"{comparison.rows:,} others. Best by {comparison.metric}: {names[comparison.best]}, which the rest of this "
        "report covers. Metrics in percent."
    )
    return section("comparison", "Models side by side", *parts, "</div>", lead=lead)
