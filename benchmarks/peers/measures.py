"""What is compared: where a measure stands in a cell, how it is shown, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Cell = dict[str, Any]


@dataclass(frozen=True)
class Measure:
    """A column of the table."""

    key: str
    heading: str
    digits: int
    accuracy: bool = False

    def of(self, cell: Cell) -> float:
        """In the unit of the heading."""
        return 100 * cell["metrics"][self.key] if self.accuracy else cell[self.key]

    def shown(self, cell: Cell) -> str:
        return f"{self.of(cell):,.{self.digits}f}"

    def best_cell(self, cells: list[Cell]) -> Cell:
        return max(cells, key=self.of) if self.accuracy else min(cells, key=self.of)

    def best(self, cells: list[Cell]) -> str | None:
        """The best figure, as it is shown."""
        return self.shown(self.best_cell(cells)) if cells else None

    def ahead(self, one: Cell, other: Cell) -> float:
        """By how much `one` is ahead: points, or how many times less it takes; 0 or 1 when they look the same."""
        if self.shown(one) == self.shown(other):
            return 0.0 if self.accuracy else 1.0
        if self.accuracy:
            return self.of(one) - self.of(other)
        # Figures may be shown as 0.0, and be measured as 0.
        tiny = 0.5 * 10.0**-self.digits
        return max(self.of(other), tiny) / max(self.of(one), tiny)


ACCURACY = tuple(
    Measure(f"{kind}@{k}", f"{kind}@{k}", 2, accuracy=True)
    for kind, places in (("P", (1, 3, 5)), ("nDCG", (3, 5)), ("PSP", (1, 3, 5)))
    for k in places
)
COST = (
    Measure("train_seconds", "train, s", 2),
    Measure("train_cpu_seconds", "train, CPU s", 2),
    Measure("batch_ms_per_row", "batch, ms/row", 3),
    Measure("one_row_ms", "one row, ms", 2),
    Measure("peak_mb", "peak, MB", 0),
    Measure("model_mb", "model, MB", 1),
)
ALL = ACCURACY + COST


def metric_note() -> str:
    return (
        "P@k, nDCG@k and PSP@k in percent (nDCG@1 is P@1), all computed by tagwise from each system's five best labels."
    )
