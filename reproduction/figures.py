"""Plots of the pages (SVG and PNG), and the slopes fitted to them; from stored results alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.configuration import Figure, Study, needed_by
from reproduction.metrics import SHOWN
from reproduction.results import PaperValues, StudyResults
from tagwise.reports.plots import require_plots
from tagwise.store.atomic import atomic_stream

__all__ = ["Line", "along_axis", "draw", "fitted_slope", "in_order", "lines_of", "panels_of", "serial_share"]

Line = tuple[list[Any], list[float]]

# Above the highest point of an axis that starts at 0.
_HEADROOM = 1.1
# Beyond this ratio of the highest to the lowest value, the axis becomes logarithmic.
_WIDE_RANGE = 10


def panels_of(figure: Figure, results: StudyResults) -> list[tuple[str, str]]:
    """Data set and metric of each panel, for data sets that have a result."""
    cells = [cell for cell in results.cells if needed_by(figure, cell)]
    datasets = figure.datasets or in_order(cell.dataset for cell in cells)
    there = {cell.dataset for cell, _ in results.done if needed_by(figure, cell)}
    return [(dataset, metric) for dataset in datasets if dataset in there for metric in figure.metrics]


def methods_of(figure: Figure, results: StudyResults) -> list[str]:
    """The methods of a figure, as they are listed or met."""
    cells = [cell for cell in results.cells if needed_by(figure, cell)]
    return list(figure.methods or in_order(cell.method.name for cell in cells))


def lines_of(figure: Figure, results: StudyResults, dataset: str, metric: str) -> dict[str, Line]:
    """Method → (x, y in the paper's unit). A method without the axis holds for all of it: a level line."""
    lines: dict[str, Line] = {}
    cells = [c for c in results.cells if c.dataset == dataset and needed_by(figure, c)]
    axis = along_axis(cell.settings.get(figure.x) for cell in cells)
    for method in methods_of(figure, results):
        points = []
        for value in axis:
            mean = results.mean(metric, dataset, method, {**figure.where, figure.x: value})
            if mean is not None:
                points.append((value, SHOWN[metric].value(mean)))
        if figure.relative_to is not None:
            reference = results.mean(metric, dataset, method, {**figure.where, figure.x: figure.relative_to})
            points = [(x, SHOWN[metric].value(reference) / y) for x, y in points] if reference else []
        if points:
            lines[method] = ([x for x, _ in points], [y for _, y in points])
    return lines


def in_order(values: Iterator[Any]) -> list[Any]:
    """Each value once, as first met; None (a cell that holds for the whole axis) left out."""
    return [value for value in dict.fromkeys(values) if value is not None]


def along_axis(values: Iterator[Any]) -> list[Any]:
    """Each value once, None left out: numbers from small to large, others as first met."""
    places = in_order(values)
    return sorted(places) if _numeric(places) else places


def _numeric(places: list[Any]) -> bool:
    return all(isinstance(place, (int, float)) for place in places)


def fitted_slope(line: Line, limit: float | None = None) -> float | None:
    """Slope of log y over log x (up to ``limit``) by least squares; None with fewer than two points."""
    points = [(x, y) for x, y in zip(*line) if limit is None or float(x) <= limit]
    x, y = [x for x, _ in points], [y for _, y in points]
    if len(x) < 2 or min(y) <= 0:
        return None
    return float(np.polyfit(np.log([float(v) for v in x]), np.log(y), 1)[0])


def serial_share(line: Line) -> float:
    """F of Amdahl's law, time(p)/time(1) = f + (1 − f)/p, by least squares over a speed-up; within [0, 1].

    1/f is the limit of the speed-up for any number of threads.
    """
    threads, times = np.asarray(line[0], dtype=float), 1 / np.asarray(line[1], dtype=float)
    gone = 1 - 1 / threads
    share = float(np.sum((times - 1 / threads) * gone) / max(float(np.sum(gone**2)), np.finfo(float).tiny))
    return min(max(share, 0.0), 1.0)


def draw(study: Study, figure: Figure, results: StudyResults, paper: PaperValues, stem: Path) -> None:
    """Write ``stem.svg`` and ``stem.png``; nothing without results."""
    panels = panels_of(figure, results)
    if not panels:
        return
    require_plots()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    special: dict[str, Callable[..., None]] = {"method": _bars, "curve": _curve}
    width = _panels_per_row(figure, len(panels))
    height = math.ceil(len(panels) / width)
    with pyplot.rc_context({"svg.hashsalt": "tagwise", "svg.fonttype": "none", "font.size": 9}):
        drawing, axes = pyplot.subplots(height, width, figsize=(4.6 * width, 3.4 * height), squeeze=False)
        for axis, (dataset, metric) in zip(axes.flat, panels):
            special.get(figure.x, _lines)(axis, figure, results, paper, dataset, metric)
            if figure.x not in special:
                axis.set_xlabel(study.axis_title(figure.x))
        for axis in list(axes.flat)[len(panels) :]:
            axis.set_visible(False)
        drawing.tight_layout()
        _save(drawing, stem)
        pyplot.close(drawing)


def _panels_per_row(figure: Figure, panels: int) -> int:
    """One data set per row where that fits, at most three side by side, and four as two by two."""
    if len(figure.metrics) in (2, 3):
        return len(figure.metrics)
    return 2 if panels == 4 else min(3, panels)


def _save(drawing: Any, stem: Path) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    # Without dates and versions, the same results give the same bytes.
    for ending, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
        with atomic_stream(stem.parent / f"{stem.name}.{ending}") as stream:
            drawing.savefig(stream, format=ending, dpi=100, metadata=metadata)


def _title(axis: Any, dataset: str, metric: str, figure: Figure) -> None:
    unit = ", percent" if SHOWN[metric].scale == 100 else ""
    axis.set_title(dataset)
    axis.set_ylabel(f"speed-up ({metric})" if figure.relative_to is not None else metric + unit)
    axis.grid(alpha=0.3)


def _printed(
    figure: Figure, paper: PaperValues, dataset: str, method: str, settings: dict[str, Any], metric: str
) -> float | None:
    """The paper's value, from the first of the tables that has it."""
    values = (paper.number(table, dataset, method, settings, metric) for table in figure.paper_tables)
    return next((value for value in values if value is not None), None)


def _lines(axis: Any, figure: Figure, results: StudyResults, paper: PaperValues, dataset: str, metric: str) -> None:
    lines = lines_of(figure, results, dataset, metric)
    places: list[Any] = along_axis(x for xs, _ in lines.values() for x in xs)
    numeric = _numeric(places)
    at = {x: (x if numeric else i) for i, x in enumerate(places)}
    heights = [y for _, ys in lines.values() for y in ys]
    for method, line in lines.items():
        (drawn,) = axis.plot([at[x] for x in line[0]], line[1], marker="o", label=method + _slope_text(figure, line))
        values = ((x, _printed(figure, paper, dataset, method, {**figure.where, figure.x: x}, metric)) for x in line[0])
        printed = [(at[x], y) for x, y in values if y is not None]
        if printed:
            axis.plot(*zip(*printed), "--", marker="x", color=drawn.get_color(), label=f"{method}, paper")
            heights += [y for _, y in printed]
        if method in figure.predicted and numeric:
            xs, ys = np.asarray(line[0], dtype=float), line[1]
            along = ys[0] * (xs / xs[0]) ** figure.predicted[method]
            axis.plot(xs, along, ":", color=drawn.get_color(), label=f"slope {figure.predicted[method]:g}, predicted")
        if figure.amdahl:
            serial = serial_share(line)
            xs = np.asarray(line[0], dtype=float)
            axis.plot(xs, 1 / (serial + (1 - serial) / xs), ":", color=drawn.get_color(), label="Amdahl")
    if figure.relative_to is not None and heights:
        axis.set_ylim(0, _HEADROOM * max(heights))
    if figure.log:
        axis.set_xscale("log", base=2)
    if figure.log or (heights and 0 < _WIDE_RANGE * min(heights) < max(heights)):
        axis.set_yscale("log")
    if lines:
        axis.set_xticks(list(at.values()), [str(x) for x in at])
        axis.set_xticks([], minor=True)
        # A speed-up rises from the left, which leaves room below the line.
        axis.legend(fontsize=7, loc="best" if figure.relative_to is None else "lower right")
    _title(axis, dataset, metric, figure)


def _slope_text(figure: Figure, line: Line) -> str:
    """The fitted slope for the legend; if the figure is about a part of x, that part's slope first."""
    if not figure.slopes:
        return ""
    whole, part = fitted_slope(line), fitted_slope(line, figure.slope_limit)
    if whole is None:
        return ""
    if figure.slope_limit is None or part is None:
        return f", slope {whole:.2f}"
    return f"\nslope {part:.2f} up to {figure.slope_limit:g}, {whole:.2f} in all"


def _bars(axis: Any, figure: Figure, results: StudyResults, paper: PaperValues, dataset: str, metric: str) -> None:
    names, heights, printed = [], [], []
    for method in methods_of(figure, results):
        mean = results.mean(metric, dataset, method, figure.where)
        if mean is not None:
            names.append(method)
            heights.append(SHOWN[metric].value(mean))
            printed.append(_printed(figure, paper, dataset, method, figure.where, metric))
    places = np.arange(len(names))
    axis.bar(places, heights)
    marks = [(x, y) for x, y in zip(places, printed) if y is not None]
    if marks:
        axis.plot(*zip(*marks), "kx", label="paper")
        axis.legend(fontsize=7)
    if heights:
        low, high = min(heights), max(heights)
        spread = high - low + 1
        axis.set_ylim(max(0.0, low - 0.5 * spread), high + 0.2 * spread)
    axis.set_xticks(places, names, rotation=60, ha="right", fontsize=7)
    _title(axis, dataset, metric, figure)


def _curve(axis: Any, figure: Figure, results: StudyResults, paper: PaperValues, dataset: str, metric: str) -> None:
    found = [result["curve"] for cell, result in results.done if cell.dataset == dataset and "curve" in result]
    for curve in found:
        axis.plot(curve["x"], curve["y"])
    axis.set_xscale("log")
    axis.set_yscale("symlog")
    axis.set_ylim(0, 2 * max((max(curve["y"]) for curve in found), default=1))
    axis.set_xlabel("rank of the label")
    axis.set_title(dataset)
    axis.set_ylabel("rows per label")
    axis.grid(alpha=0.3)
