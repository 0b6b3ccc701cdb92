"""Tables of the pages: ours, the paper's value in brackets behind it, and how many of them agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tagwise.reproduction.cells import Cell, needed_by
from tagwise.reproduction.configuration import Study, Table
from tagwise.reproduction.papers import PaperValues
from tagwise.reproduction.results import StudyResults
from tagwise.reproduction.shown_metrics import SHOWN

__all__ = ["Comparison", "axis_value", "compared", "in_order", "markdown_table", "row_keys"]

WORSE = "↓"


@dataclass
class Comparison:
    """How a table's cells stand against the paper's."""

    number: str
    with_paper: int = 0
    reproduced: int = 0
    worse: list[tuple[str, float]] = field(default_factory=list)
    by_metric: dict[str, list[int]] = field(default_factory=dict)

    def count(self, metric: str, reproduced: bool) -> None:
        """Add a cell that the paper has a value for."""
        entry = self.by_metric.setdefault(metric, [0, 0])
        entry[0] += reproduced
        entry[1] += 1
        self.with_paper += 1
        self.reproduced += reproduced

    def sentence(self) -> str:
        """How many cells agree, by metric where there are several."""
        parts = ", ".join(f"{metric} {yes} of {all_}" for metric, (yes, all_) in self.by_metric.items())
        beside = f" ({parts})" if len(self.by_metric) > 1 else ""
        return f"{self.reproduced} of {self.with_paper} cells are within one point of the paper or better{beside}."

    def worst(self) -> tuple[str, float] | None:
        """The cell that is farthest below the paper, and by how much in the paper's unit."""
        return max(self.worse, key=lambda entry: entry[1]) if self.worse else None


def axis_value(cell: Cell, axis: str) -> Any:
    """A cell's place on an axis; None on settings that it does not have."""
    return {"dataset": cell.dataset, "method": cell.method.name}.get(axis, cell.settings.get(axis))


def in_order(values: Iterator[Any]) -> list[Any]:
    """Each value once, as first met; None (a cell that holds for the whole axis) left out."""
    return [value for value in dict.fromkeys(values) if value is not None]


def row_keys(table: Table, cells: list[Cell]) -> list[dict[str, Any]]:
    """The rows: combinations of the axes that some cell has, in the order of the configuration."""
    keys: dict[tuple[Any, ...], None] = {}
    for cell in cells:
        if needed_by(table, cell):
            key = tuple(axis_value(cell, axis) for axis in table.rows)
            if None not in key:
                keys.setdefault(key)
    return [dict(zip(table.rows, key)) for key in keys]


def _columns(table: Table, cells: list[Cell]) -> list[str]:
    if table.columns == "metric":
        return list(table.metrics)
    return list(table.methods or in_order(cell.method.name for cell in cells if needed_by(table, cell)))


def compared(
    table: Table, results: StudyResults, paper: PaperValues
) -> Iterator[tuple[dict[str, Any], str, list[float], str | None]]:
    """Row by row and column by column: the row, the metric, ours (one a seed) and the paper's value as printed."""
    for row in row_keys(table, results.cells):
        for column in _columns(table, results.cells):
            metric = column if table.columns == "metric" else table.metrics[0]
            # An axis that is neither in the rows nor the columns has one value, which the table names.
            method = str(row.get("method", column if table.columns == "method" else (table.methods or ("",))[0]))
            dataset = str(row.get("dataset", (table.datasets or ("",))[0]))
            settings = {**table.where, **{a: v for a, v in row.items() if a not in ("dataset", "method")}}
            ours = results.values(metric, dataset, method, settings)
            printed = paper.text(table.number, dataset, method, settings, metric)
            yield {**row, "column": column}, metric, ours, printed


def markdown_table(study: Study, table: Table, results: StudyResults, paper: PaperValues) -> tuple[str, Comparison]:
    """The table in Markdown, and how it compares."""
    comparison = Comparison(table.number)
    columns = _columns(table, results.cells)
    head = [*(study.axis_title(axis) for axis in table.rows), *columns]
    lines = [_line(head), _line(["---"] * len(table.rows) + ["---:"] * len(columns))]
    texts: list[str] = []
    for place, metric, ours, printed in compared(table, results, paper):
        texts.append(_cell(ours, printed, metric, place, comparison if table.counts else None))
        if len(texts) == len(columns):
            lines.append(_line([*(str(place[axis]) for axis in table.rows), *texts]))
            texts = []
    return "\n".join(lines) + "\n", comparison


def _cell(
    ours: list[float], printed: str | None, metric: str, place: dict[str, Any], comparison: Comparison | None
) -> str:
    shown = SHOWN[metric]
    beside = "" if printed is None else f" ({printed})"
    if not ours:
        return f"–{beside}"
    mean = sum(ours) / len(ours)
    text = shown.text(mean)
    if len(ours) > 1:
        spread = (sum((value - mean) ** 2 for value in ours) / (len(ours) - 1)) ** 0.5
        text += f" ± {shown.text(spread)}"
    if printed is None or not shown.better or comparison is None:
        return text + beside
    reproduced = shown.reproduces(mean, float(printed))
    comparison.count(metric, reproduced)
    if reproduced:
        return text + beside
    name = ", ".join(str(value) for value in place.values())
    comparison.worse.append(
        (f"{name}, {metric}" if metric not in name else name, abs(shown.value(mean) - float(printed)))
    )
    return f"{text}{beside} {WORSE}"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
