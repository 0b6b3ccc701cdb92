"""The plots of a report, as SVG that takes its colours from the page around it; needs matplotlib."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tagwise.exceptions import TagwiseError
from tagwise.inspection.reliability import ReliabilityBins
from tagwise.reports.curves import GROUPS, FrequencyBins

__all__ = [
    "SERIES",
    "draw_bins",
    "draw_comparison",
    "draw_cost",
    "draw_group_recall",
    "draw_histogram",
    "draw_objective",
    "draw_reliability",
    "require_matplotlib",
]

# Stand-ins that matplotlib accepts as colours; each becomes a variable of the page's style sheet, so that one drawing
# is right on light and on dark ground. No other colour may occur in a drawing.
_VARIABLES = {
    "#010203": "var(--ink)",
    "#010204": "var(--faint)",
    "#010205": "var(--rule)",
    "#010206": "var(--series-1)",
    "#010207": "var(--series-2)",
    "#010208": "var(--series-3)",
    "#010209": "var(--series-4)",
    "#01020a": "var(--series-5)",
    "#01020b": "var(--series-6)",
}
_INK, _FAINT, _RULE, *_COLOURS = _VARIABLES
SERIES = tuple(_COLOURS)
_SIZE = (4.9, 3.2)
_MARKERS = ("o", "s", "^", "D", "v", "P")


def require_matplotlib() -> None:
    """Raise the sentence that says what to install, where matplotlib is not."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise TagwiseError(
            "A report needs matplotlib for its plots; install it with: pip install 'tagwise[plots]'."
        ) from None


def _drawing(name: str, description: str, size: tuple[float, float], draw: Callable[[Any], None]) -> str:
    """An ``<svg>`` element; ``name`` keeps its ids apart from those of other drawings on the page."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none",  # text stays text: it can be read, found and copied
        "svg.hashsalt": name,
        "font.family": "sans-serif",
        "font.size": 10,
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
    with mpl.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.subplots()
        draw(axes)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(stream.getvalue().decode(), name, description)


def _legend(axes: Any) -> None:
    """Above the drawing, where no curve can run through it; as many names beside each other as there is room for."""
    longest = max((len(name) for name in axes.get_legend_handles_labels()[1]), default=0)
    # Inches, at 10 points: a sign with its space, and a character. An axis with its labels takes about 0.7.
    columns = min(4, max(1, int((_SIZE[0] - 0.7) // (0.5 + 0.08 * longest))))
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        columnspacing=1.4,
        handlelength=1.6,
    )


def _inline(svg: str, name: str, description: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\1{name}-", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    # Its size is that of the place where it is put; the view box keeps the proportions.
    svg = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{description}"', 1).strip()


def draw_group_recall(recall: np.ndarray) -> str:
    """Share of the true tags of head, middle and tail among the first k, over k."""

    def draw(axes: Any) -> None:
        places = np.arange(1, recall.shape[1] + 1)
        for group, name in enumerate(GROUPS):
            if not np.isnan(recall[group]).any():
                axes.plot(places, 100 * recall[group], marker=_MARKERS[group], color=SERIES[group], label=name)
        axes.set(xlabel="number of suggestions", ylabel="% of true tags found", ylim=(0, 103), xticks=places)
        _legend(axes)

    return _drawing(
        "groups", "Share of true tags found by number of suggestions, for frequent and rare tags", _SIZE, draw
    )


def draw_bins(bins: FrequencyBins) -> str:
    """Precision, recall and F1 of decisions over the training frequency of tags."""

    def draw(axes: Any) -> None:
        places = np.arange(len(bins.low))
        lines = (("precision", bins.precision), ("recall", bins.recall), ("F1", bins.f1))
        for number, (name, values) in enumerate(lines):
            axes.plot(places, 100 * values, marker=_MARKERS[number], color=SERIES[number], label=name)
        axes.set(xlabel="training rows of a tag", ylabel="%", ylim=(0, 103), xlim=(-0.3, len(places) - 0.7))
        _frequency_ticks(axes, bins)
        _legend(axes)

    return _drawing("bins", "Precision, recall and F1 of decisions by how often a tag occurs in training", _SIZE, draw)


def draw_histogram(bins: FrequencyBins, tag_rows: np.ndarray, tag_group: np.ndarray) -> str:
    """How many tags have how many training rows, coloured by head, middle and tail."""

    def draw(axes: Any) -> None:
        bottom = np.zeros(len(bins.low))
        inside = (tag_rows[:, None] >= bins.low) & (tag_rows[:, None] <= bins.high)
        for group, name in reversed(list(enumerate(GROUPS))):
            counts = inside[tag_group == group].sum(axis=0)
            axes.bar(np.arange(len(counts)), counts, bottom=bottom, width=0.82, color=SERIES[group], label=name)
            bottom += counts
        for place, total in enumerate(bottom.astype(int).tolist()):
            axes.annotate(
                f"{total:,}", (place, total), (0, 2), textcoords="offset points", ha="center", fontsize=8, color=_FAINT
            )
        axes.set(xlabel="training rows of a tag", ylabel="tags", ylim=(0, 1.1 * max(1, bottom.max())))
        axes.grid(axis="x", visible=False)
        _frequency_ticks(axes, bins)
        _legend(axes)

    return _drawing("histogram", "How many tags have how many training rows", _SIZE, draw)


def _frequency_ticks(axes: Any, bins: FrequencyBins) -> None:
    names = [f"{low:,}" if low == high else f"{low:,}–" for low, high in zip(bins.low.tolist(), bins.high.tolist())]
    crowded = len(names) > 8
    axes.set_xticks(
        np.arange(len(names)), names, rotation=45 if crowded else 0, ha="right" if crowded else "center", fontsize=9
    )


def draw_objective(histories: Sequence[tuple[str, list[dict[str, Any]]]], name: str = "objective") -> str:
    """Objective over seconds, of fits of more than one step; of several, each relative to its own first value."""

    def draw(axes: Any) -> None:
        for number, (label, history) in enumerate(histories):
            if len(history) < 2:  # no curve; but the others keep the colours that they have in other drawings
                continue
            seconds = [info["seconds"] for info in history]
            values = np.array([info["objective"] for info in history], dtype=np.float64)
            if len(histories) > 1:
                values = values / values[0] if values[0] else values
            style = {"marker": _MARKERS[number % 6], "color": SERIES[number % 6]}
            axes.plot(seconds, values, label=label, **style)
        axes.yaxis.set_major_formatter("{x:,.6g}")
        axes.set(xlabel="seconds", ylabel="objective" if len(histories) == 1 else "objective ÷ first objective")
        if len(histories) > 1:
            _legend(axes)

    return _drawing(name, "Objective of the fit over time", _SIZE, draw)


def draw_reliability(bins: ReliabilityBins) -> str:
    """Share that is right over the stated probability; larger dots have more pairs."""

    def draw(axes: Any) -> None:
        some = bins.count > 0
        axes.plot([0, 100], [0, 100], "--", color=_FAINT, linewidth=1.2, label="as stated")
        axes.plot(100 * bins.predicted[some], 100 * bins.observed[some], color=SERIES[0], label="observed")
        sizes = 12 + 90 * np.sqrt(bins.count[some] / max(1, bins.count.max()))
        axes.scatter(100 * bins.predicted[some], 100 * bins.observed[some], s=sizes, color=SERIES[0], zorder=3)
        axes.set(xlabel="stated probability, %", ylabel="% that is right", xlim=(-2, 102), ylim=(-2, 104))
        _legend(axes)

    return _drawing("reliability", "Observed share of right tags over the stated probability", _SIZE, draw)


def draw_comparison(names: Sequence[str], metrics: Sequence[str], values: np.ndarray) -> str:
    """Bars of some metrics, in [0, 1], for each model; ``values`` is (models, metrics)."""

    def draw(axes: Any) -> None:
        width = 0.8 / len(names)
        for number, name in enumerate(names):
            places = np.arange(len(metrics)) + (number - (len(names) - 1) / 2) * width
            colour = {"color": SERIES[number % 6], "alpha": 1.0 if number < 6 else 0.55}
            axes.bar(places, 100 * values[number], width=0.92 * width, label=name, **colour)
            if len(names) <= 4:
                for place, value in zip(places, values[number]):
                    axes.annotate(
                        f"{100 * value:.0f}",
                        (place, 100 * value),
                        (0, 2),
                        textcoords="offset points",
                        ha="center",
                        fontsize=8,
                        color=_FAINT,
                    )
        axes.set_xticks(np.arange(len(metrics)), metrics)
        axes.set(ylabel="%", ylim=(0, min(100.0, 112 * float(np.nanmax(values, initial=0.01)))))
        axes.grid(axis="x", visible=False)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=min(4, len(names)))

    return _drawing("comparison", "Metrics of the compared models", (9.5, 3.8), draw)


def draw_cost(names: Sequence[str], seconds: Sequence[float], quality: Sequence[float], metric: str) -> str:
    """Quality over the seconds of a fit, a point for each model."""

    def draw(axes: Any) -> None:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

        for number, (name, x, y) in enumerate(zip(names, seconds, quality)):
            style = {"marker": _MARKERS[number % 6], "color": SERIES[number % 6], "alpha": 1.0 if number < 6 else 0.55}
            # A rounded time of 0 has no place on a logarithmic axis.
            axes.plot([max(x, 1e-3)], [100 * y], linestyle="none", markersize=8, label=name, **style)
        axes.set_xscale("log")
        axes.margins(x=0.15, y=0.15)
        axes.set(xlabel="seconds to fit", ylabel=f"{metric}, %")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        _legend(axes)

    return _drawing("cost", f"{metric} of the compared models over their seconds to fit", _SIZE, draw)
