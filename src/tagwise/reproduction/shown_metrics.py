"""The metrics of the pages: how the papers print them, which way is better, and how near is near enough."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SHOWN", "ShownMetric"]


@dataclass(frozen=True)
class ShownMetric:
    """How a metric is shown.

    Attributes
    ----------
    scale : float
        Ours times this is in the unit that the paper prints.
    decimals : int
    better : int
        1 where higher is better, -1 where lower is, 0 where it is not compared (seconds on another machine).
    near : float
        How far below the paper still counts as reproduced, in the paper's unit: a point of percent, or as much of a
        share; a tenth of a point of Hamming loss, whose values are about one point.
    """

    scale: float
    decimals: int
    better: int
    near: float

    def value(self, ours: float) -> float:
        """Ours in the paper's unit."""
        return self.scale * ours

    def text(self, ours: float) -> str:
        """Ours as it is printed."""
        return f"{self.value(ours):.{self.decimals}f}"

    def reproduces(self, ours: float, paper: float) -> bool:
        """Within ``near`` of the paper's value, or better."""
        return self.better * (self.value(ours) - paper) >= -self.near - 1e-9


_PERCENT = ShownMetric(100, 2, 1, 1.0)
_WHOLE_PERCENT = ShownMetric(100, 1, 1, 1.0)
_SECONDS = ShownMetric(1, 2, 0, 0)
_COUNT = ShownMetric(1, 0, 0, 0)

SHOWN = {
    **{f"{name}@{k}": _PERCENT for name in ("P", "nDCG", "PSP", "R") for k in (1, 3, 5)},
    "AUC": ShownMetric(1, 4, 1, 0.01),
    "hamming": ShownMetric(1, 4, -1, 0.001),
    **dict.fromkeys(("precision", "recall", "F1", "accuracy"), _WHOLE_PERCENT),
    **dict.fromkeys(("label precision", "label recall", "micro F1", "label accuracy"), _WHOLE_PERCENT),
    "CPU seconds": _SECONDS,
    "fit seconds": _SECONDS,
    "gradient seconds": ShownMetric(1, 4, 0, 0),
    "product seconds": ShownMetric(1, 4, 0, 0),
    "excess risk": ShownMetric(1, 5, 0, 0),
    **dict.fromkeys(("labels", "in at most 2 rows", "in at most 10 rows", "most rows"), _COUNT),
}
