"""Plots; all need matplotlib. Those of a report are SVG elements that take their colours from the page around them."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tagwise.exceptions import InvalidInputError, TagwiseError
from tagwise.inspection.reliability import ReliabilityBins
from tagwise.reports.figures import GROUPS, Acceptance, FrequencyBins
from tagwise.store.atomic import atomic_stream

# Placeholder colours for matplotlib; each becomes a variable of the page's style sheet, so that a plot fits a light and
# a dark page. No other colour may occur in a plot.
_NAMES = ("ink", "faint", "rule", *(f"series-{number}" for number in range(1, 7)))
_VARIABLES = {f"#0102{position:02x}": f"var(--{name})" for position, name in enumerate(_NAMES, 3)}
_INK, _FAINT, _RULE, *_SERIES = _VARIABLES
# Inches; small, so that text is still legible where a phone shrinks the plot.
_SIZE = (4.2, 2.9)
_METADATA = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
_MARKERS = ("o", "s", "^", "D", "v", "P")


def require_plots() -> None:
    """Raise an error that says what to install if matplotlib or jinja2 is missing."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise TagwiseError(
            f"Reports and plots need {error.name}; install it with: pip install 'tagwise[plots]'."
        ) from None


_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text, which can be searched and copied
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": _INK,
    "text.parse_math": False,
    "axes.labelcolor": _FAINT,
    "axes.edgecolor": _RULE,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _RULE,
    "grid.linewidth": 0.7,
    "xtick.color": _RULE,
    "ytick.color": _RULE,
    "xtick.labelcolor": _FAINT,
    "ytick.labelcolor": _FAINT,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "lines.markersize": 5,
}


def _plot(
    name: str, description: str, size: tuple[float, float] = _SIZE
) -> Callable[[Callable[..., None]], Callable[..., str]]:
    """Turn a function that draws on axes into one that returns an ``<svg>`` element.

    ``name`` keeps the ids of the element distinct from those of other plots on the page.
    """

    def decorate(draw: Callable[..., None]) -> Callable[..., str]:
        @wraps(draw)
        def drawn(*args: Any) -> str:
            import matplotlib as mpl
            from matplotlib.figure import Figure

            with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
                figure = Figure(figsize=size)
                figure.patch.set_alpha(0)
                axes = figure.subplots()
                draw(axes, *args)
                _fit_margins(figure, axes)
                stream = io.BytesIO()
                figure.savefig(stream, format="svg", transparent=True, metadata=_METADATA["svg"])
            return _inline(stream.getvalue().decode(), name, description)

        return drawn

    return decorate


def _fit_margins(figure: Any, axes: Any) -> None:
    """Lay axes out so that labels and legend just fit: one pass, half of the time of matplotlib's own solver."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.transforms import Bbox

    figure.subplots_adjust(left=0.14, right=0.97, bottom=0.2, top=0.86)
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [axes.xaxis.get_tightbbox(renderer), axes.yaxis.get_tightbbox(renderer)]
    if (legend := axes.get_legend()) is not None:
        boxes.append(legend.get_window_extent(renderer))
    inside, outside = axes.bbox, Bbox.union([axes.bbox, *(box for box in boxes if box is not None)])
    width, height = figure.bbox.width, figure.bbox.height
    gap = 0.04 * figure.dpi
    figure.subplots_adjust(
        left=(inside.x0 - outside.x0 + gap) / width,
        right=1 - max(outside.x1 - inside.x1 + gap, 3 * gap) / width,
        bottom=(inside.y0 - outside.y0 + gap) / height,
        top=1 - (outside.y1 - inside.y1 + gap) / height,
    )


def _style(number: int) -> dict[str, Any]:
    """Marker and colour of one of several series; from the seventh on, paler."""
    return {"marker": _MARKERS[number % 6], "color": _SERIES[number % 6], "alpha": 1.0 if number < 6 else 0.55}


def _legend(axes: Any) -> None:
    """A legend above the plot, with as many columns as there is room for."""
    names = axes.get_legend_handles_labels()[1]
    if not names:
        return
    longest = max(map(len, names))
    # Inches: 0.42 for a marker with its space, 0.066 per character, 0.6 for an axis with its labels.
    columns = min(4, max(1, int((_SIZE[0] - 0.6) // (0.42 + 0.066 * longest))))
    spacing = {"borderaxespad": 0.2, "columnspacing": 1.4, "handlelength": 1.6}
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=columns, **spacing)


def _inline(svg: str, name: str, description: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\1{name}-", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    # Its size is that of the position where it is put; the view box keeps the proportions.
    for side in ("height", "width"):
        svg = re.sub(rf'(<svg\b[^>]*?) {side}="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{description}"', 1).strip()


@_plot("groups", "Share of true tags found by number of suggestions, for frequent and rare tags")
def draw_group_recall(axes: Any, recall: np.ndarray) -> None:
    """Share of the true tags of head, middle and tail among the first k, over k."""
    positions = np.arange(1, recall.shape[1] + 1)
    for group, name in enumerate(GROUPS):
        if not np.isnan(recall[group]).any():
            axes.plot(positions, 100 * recall[group], label=name, **_style(group))
    axes.set(xlabel="number of suggestions", ylabel="% of true tags found", ylim=(0, 103), xticks=positions)
    _legend(axes)


@_plot("bins", "Precision, recall and F1 of decisions by how often a tag occurs in training")
def draw_bins(axes: Any, bins: FrequencyBins) -> None:
    """Precision, recall and F1 of decisions over the training frequency of tags."""
    positions = np.arange(len(bins.low))
    for number, name in enumerate(("precision", "recall", "F1")):
        axes.plot(positions, 100 * getattr(bins, name.lower()), label=name, **_style(number))
    axes.set(xlabel="training rows of a tag", ylabel="%", ylim=(0, 103), xlim=(-0.3, len(positions) - 0.7))
    _frequency_ticks(axes, bins)
    _legend(axes)


@_plot("histogram", "Number of tags by number of training rows")
def draw_histogram(axes: Any, bins: FrequencyBins, tag_rows: np.ndarray, tag_group: np.ndarray) -> None:
    """Histogram of tags by training rows, coloured by head, middle and tail."""
    bottom = np.zeros(len(bins.low))
    inside = (tag_rows[:, None] >= bins.low) & (tag_rows[:, None] <= bins.high)
    for group, name in reversed(list(enumerate(GROUPS))):
        counts = inside[tag_group == group].sum(axis=0)
        axes.bar(np.arange(len(counts)), counts, bottom=bottom, width=0.82, color=_SERIES[group], label=name)
        bottom += counts
    for position, total in enumerate(bottom.astype(int).tolist()):
        _annotate(axes, f"{total:,}", position, total)
    axes.set(xlabel="training rows of a tag", ylabel="tags", ylim=(0, 1.1 * max(1, bottom.max())))
    axes.grid(axis="x", visible=False)
    _frequency_ticks(axes, bins)
    _legend(axes)


def _annotate(axes: Any, written: str, x: float, y: float) -> None:
    """A small number above the top of a bar."""
    axes.annotate(written, (x, y), (0, 2), textcoords="offset points", ha="center", fontsize=9, color=_FAINT)


def _frequency_ticks(axes: Any, bins: FrequencyBins) -> None:
    names = [f"{low:,}" if low == high else f"{low:,}–" for low, high in zip(bins.low.tolist(), bins.high.tolist())]
    crowded = {"rotation": 45, "ha": "right"} if len(names) > 8 else {}
    axes.set_xticks(np.arange(len(names)), names, fontsize=9, **crowded)


def _draw_objective(axes: Any, histories: Sequence[tuple[str, list[dict[str, Any]]]]) -> None:
    """Objective over seconds, of fits of more than one step; of several, each relative to its own first value."""
    for number, (label, history) in enumerate(histories):
        if len(history) < 2:  # no curve, but the others keep their colours
            continue
        seconds = [info["seconds"] for info in history]
        values = np.array([info["objective"] for info in history], dtype=np.float64)
        if len(histories) > 1:
            values = values / values[0] if values[0] else values
        axes.plot(seconds, values, label=label, **_style(number))
    axes.yaxis.set_major_formatter("{x:,.6g}")
    axes.set(xlabel="seconds", ylabel="objective" if len(histories) == 1 else "objective ÷ first objective")
    if len(histories) > 1:
        _legend(axes)


draw_objective = _plot("objective", "Objective of the fit over time")(_draw_objective)
draw_objectives = _plot("objectives", "Objective of the fit over time")(_draw_objective)


@_plot("reliability", "Observed share of right tags over the predicted probability")
def draw_reliability(axes: Any, bins: ReliabilityBins) -> None:
    """Share of right tags over the predicted probability; larger dots have more pairs."""
    some = bins.count > 0
    axes.plot([0, 100], [0, 100], "--", color=_FAINT, linewidth=1.2, label="perfectly calibrated")
    axes.plot(100 * bins.predicted[some], 100 * bins.observed[some], color=_SERIES[0], label="observed")
    sizes = 12 + 90 * np.sqrt(bins.count[some] / max(1, bins.count.max()))
    axes.scatter(100 * bins.predicted[some], 100 * bins.observed[some], s=sizes, color=_SERIES[0], zorder=3)
    axes.set(xlabel="predicted probability, %", ylabel="right, %", xlim=(-2, 102), ylim=(-2, 104))
    _legend(axes)


@_plot("scores", "Share of texts by best score: reference and recent")
def draw_score_bins(axes: Any, then: np.ndarray, now: np.ndarray) -> None:
    """Shares of texts in the bins of their best score; bins are tenths of the texts of the reference."""
    places = np.arange(len(then))
    for number, (name, shares) in enumerate((("reference", then), ("recent", now))):
        axes.bar(places + (number - 0.5) * 0.4, 100 * shares, width=0.38, color=_SERIES[number], label=name)
    axes.set_xticks(places, [str(place + 1) for place in places])
    axes.set(xlabel="tenths of the reference texts, by best score", ylabel="texts, %")
    axes.grid(axis="x", visible=False)
    _legend(axes)


@_plot("acceptance", "Precision and recall of suggestions over the threshold that they must reach")
def draw_acceptance(axes: Any, found: Acceptance, precision: float, probable: bool) -> None:
    """Precision and recall over the threshold, and the threshold that reaches a wanted precision."""
    # A few hundred points draw the same lines as a hundred thousand.
    some = np.unique(np.linspace(0, max(0, len(found.count) - 1), 400).round().astype(np.int64))[: len(found.count)]
    scale = 100 if probable else 1
    for number, name in enumerate(("precision", "recall")):
        axes.plot(scale * found.confidence[some], 100 * getattr(found, name)[some], color=_SERIES[number], label=name)
    if (place := found.at(precision)) is not None:
        x = scale * found.confidence[place]
        axes.axvline(x, color=_FAINT, linewidth=1.2, linestyle="--")
        at_left = probable and x > 60
        axes.annotate(
            f"{x:.0f} %" if probable else f"{x:.2g}",
            (x, 4),
            (-5 if at_left else 5, 0),
            textcoords="offset points",
            ha="right" if at_left else "left",
            color=_INK,
        )
    axes.set(xlabel="probability of at least, %" if probable else "score of at least", ylabel="%", ylim=(0, 103))
    if probable:
        axes.set_xlim(0, 100)
    _legend(axes)


@_plot("comparison", "Metrics of the compared models", (9.5, 3.8))
def draw_comparison(axes: Any, names: Sequence[str], metrics: Sequence[str], values: np.ndarray) -> None:
    """Bars of some metrics, in [0, 1], for each model; ``values`` is (models, metrics)."""
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        positions = np.arange(len(metrics)) + (number - (len(names) - 1) / 2) * width
        style = _style(number)
        del style["marker"]
        axes.bar(positions, 100 * values[number], width=0.92 * width, label=name, **style)
        if len(names) <= 4:
            for position, value in zip(positions, values[number]):
                _annotate(axes, f"{100 * value:.0f}", position, 100 * value)
    axes.set_xticks(np.arange(len(metrics)), metrics)
    axes.set(ylabel="%", ylim=(0, min(100.0, 112 * float(np.nanmax(values, initial=0.01)))))
    axes.grid(axis="x", visible=False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=min(4, len(names)))


@_plot("cost", "Quality of the compared models over their seconds to fit")
def draw_cost(axes: Any, names: Sequence[str], seconds: Sequence[float], quality: Sequence[float], metric: str) -> None:
    """Quality over the seconds of a fit, a point for each model."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for number, (name, x, y) in enumerate(zip(names, seconds, quality)):
        # A rounded time of 0 does not fit on a logarithmic axis.
        axes.plot([max(x, 1e-3)], [100 * y], linestyle="none", markersize=8, label=name, **_style(number))
    axes.set_xscale("log")
    axes.margins(x=0.15, y=0.15)
    axes.set(xlabel="seconds to fit", ylabel=f"{metric}, %")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _legend(axes)


def plot_reliability(bins: ReliabilityBins, path: str | PathLike[str], *, title: str = "Reliability") -> None:
    """Plot the observed share of right tags over the predicted probability, and the number of pairs per bin.

    Parameters
    ----------
    bins : ReliabilityBins
        Such as ``tagger.calibration_.reliability`` or ``tagger.reliability(texts, tags)``.
    path : path
        An ``.svg`` or ``.png`` file, replaced atomically; the same bins make the same bytes.
    title : str

    Raises
    ------
    TagwiseError
        matplotlib is not installed.
    """
    target = Path(path)
    kind = target.suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise InvalidInputError(f"path must end in .svg or .png; found {str(path)!r}.")
    require_plots()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    some = bins.count > 0
    # Without a hash salt, ids in the file would be random.
    with mpl.rc_context({"svg.hashsalt": "tagwise"}):
        drawing = Figure(figsize=(5, 6))
        diagram, histogram = drawing.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        diagram.plot([0, 1], [0, 1], "--", color="grey", label="perfectly calibrated")
        diagram.plot(bins.predicted[some], bins.observed[some], marker="o", label="observed")
        diagram.set(ylabel="share of right tags", title=title, xlim=(0, 1), ylim=(0, 1))
        diagram.legend(loc="upper left")
        diagram.grid(alpha=0.3)
        width = 1 / len(bins.count)
        histogram.bar((np.arange(len(bins.count)) + 0.5) * width, bins.count, width=0.9 * width)
        histogram.set_yscale("symlog")
        histogram.set(xlabel="predicted probability", ylabel="pairs")
        histogram.set_ylim(bottom=0)
        drawing.tight_layout()
        with atomic_stream(target) as stream:
            drawing.savefig(stream, format=kind, dpi=100, metadata=_METADATA[kind])
