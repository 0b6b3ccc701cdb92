"""How Cascade's training time, memory and prediction time grow with rows, features and labels, on generated sets.

    python benchmarks/growth.py [--threads 2] [--minutes 20] [--quick] [--only rows] [--fresh] [--pages-only]

One size is varied at a time around a base, and then all together. Popularities fall by a power law; topics and features
of their own tie labels to features, so that there is something to learn. Each set is a process of its own, kernels
compiled before it measures; one that has its result is not run again. Prints the slopes of log time against the log of
the size and, where the number of stored entries grows, against that too: of all sizes by least squares, and of the
last doubling. `--quick` is a trial with small sets, a minute in all, that leaves the stored figures alone.
`--amazon-like 0.2` measures only the stages of that share of the Amazon-670K-like set of benchmarks/peers. Writes
results/growth.json after each set, and from it results/growth.md and docs/figures/growth.*.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from machine import description
from memory import run_cell
from pages import store
from stages import ELSEWHERE, STAGES, StageClock

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parent.parent / "docs" / "figures"
Size = tuple[int, int, int]
"""Rows, features and labels."""
SERIES: dict[str, list[Size]] = {
    "rows": [(n, 25_000, 10_000) for n in (10_000, 31_250, 100_000, 250_000, 500_000, 1_000_000)],
    "features": [(100_000, d, 10_000) for d in (5_000, 25_000, 100_000, 250_000, 500_000)],
    "labels": [(100_000, 25_000, L) for L in (1_000, 3_000, 10_000, 50_000, 250_000, 500_000)],
    "all": [(n, n // 4, n // 2) for n in (12_500, 25_000, 50_000, 100_000, 200_000)],
}
QUICK: dict[str, list[Size]] = {
    "rows": [(6_000, 1_000, 500), (12_000, 1_000, 500)],
    "features": [(6_000, 1_000, 500), (6_000, 2_000, 500)],
    "labels": [(6_000, 1_000, 500), (6_000, 1_000, 1_000)],
    "all": [(6_000, 1_000, 500), (12_000, 2_000, 1_000)],
}
WHAT = {
    "rows": "n, with d and L as they are",
    "features": "d, with n and L as they are",
    "labels": "L, with n and d as they are",
    "all": "n, with d = n/4 and L = n/2",
}
# Compiles, or reads what is compiled, for few labels and for many.
WARM_UP: list[Size] = [(500, 200, 50), (1_000, 300, 8_000)]
# Place of the varied size; and where X and Y grow with it.
VARIED = {"rows": 0, "features": 1, "labels": 2, "all": 0}
GROWING = ("rows", "all")
FEATURES_PER_ROW, LABELS_PER_ROW, TOPICS = 10, 3, 100
MOST_TEST_ROWS = 10_000
MEASURES = {
    "cpu_seconds": ("training, CPU s", ".1f"),
    "seconds": ("training, s", ".1f"),
    "peak_mb": ("peak, MB", ",.0f"),
    "batch_ms_per_row": ("batch, ms/row", ".4f"),
    "one_row_ms": ("one row, ms", ".3f"),
}
# Above this a slope is called more than linear: below it, it may be noise.
LINEAR = 1.1
# Stages that take less of a fit are not judged.
LEAST_SHARE = 0.02


# ---------------------------------------------------------------------- measure


def generated(size: Size) -> tuple[Any, Any, Any, Any]:
    """X, Y, X_test and Y_test."""
    from tagwise.data import make_power_law

    n, d, L = size
    X, Y = make_power_law(
        n + min(n, MOST_TEST_ROWS),
        d,
        L,
        features_per_row=FEATURES_PER_ROW,
        labels_per_row=LABELS_PER_ROW,
        label_exponent=0.8,
        n_topics=TOPICS,
        own_features=5,
        own_share=0.4,
        random_state=0,
    )
    return X[:n], Y[:n], X[n:], Y[n:]


def measure(cell: dict[str, Any]) -> dict[str, Any]:
    """One fit and its predictions, in this process."""
    from tagwise import Cascade
    from tagwise.metrics import precision_at_k

    warnings.simplefilter("ignore")
    for size in WARM_UP:
        X, Y, X_test, _ = generated(size)
        Cascade(n_jobs=cell["threads"], rank=4, refit=False).fit(X, Y).predict_topk(X_test, 5)
    if "amazon_share" in cell:
        from peers.problems import amazon_like

        X, Y, X_test, Y_test = amazon_like(cell["amazon_share"])
    else:
        X, Y, X_test, Y_test = generated(cell["size"])
    model, clock = Cascade(n_jobs=cell["threads"]), StageClock()
    clock.measure(lambda: model.fit(X, Y))
    labels, batch = batch_seconds(model, X_test)
    return {
        "size": [*X.shape, Y.shape[1]],
        "entries": int(X.nnz),
        "label_entries": int(Y.nnz),
        "seconds": clock.total["seconds"],
        "cpu_seconds": clock.total["cpu_seconds"],
        "peak_mb": clock.total["peak_bytes"] / 1e6,
        "batch_ms_per_row": 1e3 * batch / X_test.shape[0],
        "one_row_ms": 1e3 * one_row_seconds(model, X_test),
        "P@1": float(precision_at_k(Y_test, labels, 1)),
        "stages": clock.stages,
    }


def batch_seconds(model: Any, X: Any) -> tuple[np.ndarray, float]:
    """The five best labels of all rows, and the median of the seconds of three times."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        labels, _ = model.predict_topk(X, 5)
        times.append(time.perf_counter() - start)
    return labels, float(np.median(times))


def one_row_seconds(model: Any, X: Any) -> float:
    """The median over 200 rows, one by one on one thread."""
    model.set_params(n_jobs=1)
    rows, times = [X[row] for row in range(min(200, X.shape[0]))], []
    for row in rows[:20] + rows:
        start = time.perf_counter()
        model.predict_topk(row, 5)
        times.append(time.perf_counter() - start)
    return float(np.median(times[-len(rows) :]))


# ---------------------------------------------------------------------- slopes


def of_series(report: dict[str, Any], series: str) -> list[dict[str, Any]]:
    """The measured sets of a series, by size."""
    found = {tuple(cell["size"]): cell for cell in report["cells"] if "error" not in cell}
    return [found[tuple(size)] for size in report["series"][series] if tuple(size) in found]


def slopes(sizes: list[float], values: list[float]) -> tuple[float, float] | None:
    """d log value / d log size: by least squares over all, and of the last step; None where there is none."""
    if len(sizes) < 2 or min(values) <= 0 or sizes[-1] == sizes[-2]:
        return None
    x, y = np.log(sizes), np.log(values)
    return float(np.polyfit(x, y, 1)[0]), float((y[-1] - y[-2]) / (x[-1] - x[-2]))


def stored_entries(cell: dict[str, Any]) -> int:
    return cell["entries"] + cell["label_entries"]


def sizes_of(cells: list[dict[str, Any]], series: str, *, by_entries: bool = False) -> list[float]:
    """The size that varies, or the stored entries of X and Y."""
    return [float(stored_entries(cell) if by_entries else cell["size"][VARIED[series]]) for cell in cells]


def shown_slopes(sizes: list[float], values: list[float]) -> str:
    found = slopes(sizes, values)
    # Not -0.00.
    return "" if found is None else " / ".join(f"{round(slope, 2) + 0.0:.2f}" for slope in found)


def stage_seconds(cells: list[dict[str, Any]], stage: str) -> list[float]:
    return [cell["stages"].get(stage, {}).get("cpu_seconds", 0.0) for cell in cells]


def stage_names(cells: list[dict[str, Any]]) -> list[str]:
    """Those that some fit has, in their usual order."""
    usual = [*dict.fromkeys(name for name, _, _ in STAGES), ELSEWHERE]
    return [name for name in usual if any(name in cell["stages"] for cell in cells)]


def more_than_linear(report: dict[str, Any]) -> list[str]:
    """A line for each measure and stage whose last step is steeper than the stored entries, or than d or L, allow."""
    lines = []
    for series in report["series"]:
        cells = of_series(report, series)
        if not cells:
            continue
        sizes = sizes_of(cells, series, by_entries=series in GROWING)
        against = "entries" if series in GROWING else series
        values = {name: [cell[key] for cell in cells] for key, (name, _) in MEASURES.items()}
        for stage in stage_names(cells):
            if cells[-1]["stages"].get(stage, {}).get("cpu_seconds", 0) > LEAST_SHARE * cells[-1]["cpu_seconds"]:
                values[f"CPU s of {stage}"] = stage_seconds(cells, stage)
        for name, numbers in values.items():
            found = slopes(sizes, numbers)
            if found is not None and found[1] > LINEAR:
                lines.append(f"- {series}: {name}, as the {against} to the power of {found[1]:.2f}.")
    return lines


# ---------------------------------------------------------------------- the page


def page(report: dict[str, Any]) -> str:
    series = report["series"]
    columns = [(name, False) for name in series] + [(name, True) for name in series if name in GROWING]
    headings = [f"{name}, by entries" if by_entries else name for name, by_entries in columns]
    lines = [
        "# How Cascade grows",
        "",
        f"Generated by benchmarks/growth.py on {report['machine']['cores']} cores, {report['threads']} threads. The",
        f"sets are generated: {FEATURES_PER_ROW} features and {LABELS_PER_ROW} labels per row, popularities that fall",
        f"by a power law, {TOPICS} topics, and a few features of its own for each label. The model is the default,",
        "with learnt fusion. Peak memory is beyond the loaded data; P@1, in percent on new rows, shows that there is",
        f"something to learn. A set may take {report['minutes']:g} minutes.",
        "",
        "![Training and prediction time against size, log-log](../../docs/figures/growth.png)",
        "",
        "## Slopes",
        "",
        "Of log figure against log size: all sizes by least squares / last doubling; 1 is linear. By entries: against",
        "those that X and Y store, whose number stays the same where only d or L grows.",
        "",
        f"| | {' | '.join(headings)} |",
        "|---|" + "---|" * len(columns),
    ]
    of_columns = [of_series(report, name) for name, _ in columns]
    sizes = [sizes_of(cells, name, by_entries=by) for cells, (name, by) in zip(of_columns, columns)]
    for key, (name, _) in MEASURES.items():
        values = [[cell[key] for cell in cells] for cells in of_columns]
        lines.append(f"| {name} | " + " | ".join(map(shown_slopes, sizes, values)) + " |")
    for stage in stage_names([cell for cells in of_columns for cell in cells]):
        values = [stage_seconds(cells, stage) for cells in of_columns]
        lines.append(f"| CPU s of {stage} | " + " | ".join(map(shown_slopes, sizes, values)) + " |")
    lines += ["", f"More than linear (above {LINEAR:g}) in the last doubling:", ""]
    lines += more_than_linear(report) or ["- nothing."]
    for name in series:
        lines += ["", f"## {name.capitalize()}: {WHAT[name]}", "", *table(report, name)]
    if report.get("amazon_like"):
        lines += ["", *amazon_section(report)]
    return "\n".join(lines) + "\n"


def table(report: dict[str, Any], series: str) -> list[str]:
    cells = of_series(report, series)
    headings = [name for name, _ in MEASURES.values()]
    names = stage_names(cells)
    lines = [
        "Behind P@1: CPU s of the stages of training.",
        "",
        f"| n | d | L | {' | '.join([*headings, 'P@1', *names])} |",
        "|---|---|---|" + "---|" * (len(headings) + 1 + len(names)),
    ]
    for size in report["series"][series]:
        found = [cell for cell in report["cells"] if tuple(cell["size"]) == tuple(size)]
        shape = " | ".join(f"{number:,}" for number in size)
        if not found or "error" in found[0]:
            why = found[0]["error"] if found else "not measured"
            lines.append(f"| {shape} | {why} |" + " |" * (len(headings) + len(names)))
            continue
        (cell,) = found
        figures = [f"{cell[key]:{form}}" for key, (_, form) in MEASURES.items()] + [f"{100 * cell['P@1']:.0f}"]
        figures += [f"{stage_seconds([cell], name)[0]:.1f}" for name in names]
        lines.append(f"| {shape} | {' | '.join(figures)} |")
    return lines


def amazon_section(report: dict[str, Any]) -> list[str]:
    """The stages of shares of the Amazon-670K-like set: seconds, and memory beyond the data at each one's peak."""
    cells = sorted(report["amazon_like"], key=lambda cell: cell["amazon_share"])
    lines = [
        "## Stages of an Amazon-670K-like set",
        "",
        "Shares of the rows and labels of the generated set of benchmarks/peers, with all of its features. CPU s, and",
        "GB beyond the data at the peak of the stage.",
        "",
        "| | " + " | ".join(f"{cell['amazon_share']:g}" for cell in cells) + " |",
        "|---|" + "---|" * len(cells),
    ]
    done = [cell for cell in cells if "error" not in cell]
    shapes = [cell.get("error") or "{:,} × {:,}, {:,} labels".format(*cell["size"]) for cell in cells]
    lines.append("| rows × features | " + " | ".join(shapes) + " |")
    for name in stage_names(done):
        shown = []
        for cell in cells:
            stage = cell.get("stages", {}).get(name, {})
            peak = f", {stage['peak_bytes'] / 1e9:.2f} GB" if "peak_bytes" in stage else ""
            shown.append(f"{stage['cpu_seconds']:.1f} s{peak}" if stage else "")
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    for key, (name, form) in MEASURES.items():
        lines.append(f"| {name} | " + " | ".join(f"{cell[key]:{form}}" if key in cell else "" for cell in cells) + " |")
    lines.append("| P@1 | " + " | ".join(f"{100 * cell['P@1']:.1f}" if "P@1" in cell else "" for cell in cells) + " |")
    return lines


def short(size: int) -> str:
    """10000 as 10k."""
    return f"{size / 1e6:.3g}M" if size >= 1e6 else f"{size / 1e3:.3g}k"


def draw(report: dict[str, Any], folder: Path) -> None:
    """Training by stages above, prediction below, a column for each series."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = {series: of_series(report, series) for series in report["series"]}
    found = {series: cells for series, cells in found.items() if len(cells) > 1}
    if not found:
        return
    figure, axes = plt.subplots(
        2, len(found), figsize=(3.2 * len(found), 6), sharey="row", squeeze=False, layout="constrained"
    )
    names = stage_names([cell for cells in found.values() for cell in cells])
    colours = dict(zip(names, plt.get_cmap("tab20").colors, strict=False))
    for column, (series, cells) in enumerate(found.items()):
        sizes = [cell["size"][VARIED[series]] for cell in cells]
        training, prediction = axes[0][column], axes[1][column]
        for name in names:
            training.plot(sizes, stage_seconds(cells, name), color=colours[name], linewidth=1, label=name)
        total = [cell["cpu_seconds"] for cell in cells]
        training.plot(sizes, total, color="black", marker="o", markersize=3, label="training")
        guide = [total[-1] * size / sizes[-1] for size in sizes]
        training.plot(sizes, guide, color="0.6", linestyle="--", linewidth=1, label="linear")
        for key, marker in (("one_row_ms", "s"), ("batch_ms_per_row", "o")):
            name = MEASURES[key][0].split(",")[0]
            prediction.plot(sizes, [cell[key] for cell in cells], marker=marker, markersize=3, label=name)
        for axis in (training, prediction):
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_xticks(sizes, [short(size) for size in sizes], fontsize=7, rotation=30)
            axis.minorticks_off()
            axis.grid(color="0.9", linewidth=0.5)
        training.set_title({"all": "n, d and L together (n shown)"}.get(series, series), fontsize=10)
        training.set_ylim(bottom=0.01)
    axes[0][0].set_ylabel("training, CPU s")
    axes[1][0].set_ylabel("prediction, ms per row")
    for row in axes:
        row[-1].legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.02, 0.5))
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("png", "svg"):
        figure.savefig(folder / f"growth.{kind}", dpi=120, metadata={"Date": None} if kind == "svg" else None)
    plt.close(figure)


# ---------------------------------------------------------------------- run


def run(report: dict[str, Any], options: argparse.Namespace, path: Path) -> None:
    """All sets that have no result, the smallest first; the figures are stored after each."""
    series = QUICK if options.quick else SERIES
    wanted = {size for name in options.only or series for size in series[name]}
    again = wanted if options.fresh else set()
    if report.get("threads") != options.threads:
        report["cells"] = []
    report["cells"] = [cell for cell in report["cells"] if "error" not in cell and tuple(cell["size"]) not in again]
    report |= {"machine": description(), "threads": options.threads, "minutes": options.minutes, "series": series}
    done = {tuple(cell["size"]) for cell in report["cells"]}
    for size in sorted(wanted - done, key=lambda size: (size[0] * (size[1] + size[2]), size)):
        report["cells"].append(measured({"size": size, "threads": options.threads}, options))
        store(path, report)


def measured(cell: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    result = run_cell(__file__, cell, minutes=options.minutes)
    shown = result.get("error") or ", ".join(f"{name} {result[key]:{form}}" for key, (name, form) in MEASURES.items())
    print(f"{result.get('size', cell)}: {shown}", file=sys.stderr, flush=True)
    return result


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=20.0, help="a set may take")
    parser.add_argument("--only", action="append", choices=SERIES, help="a series; can be given several times")
    parser.add_argument("--quick", action="store_true", help="small sets, to see that all of it runs")
    parser.add_argument("--fresh", action="store_true", help="measure sets again that have a result")
    parser.add_argument("--amazon-like", type=float, metavar="SHARE", help="only the stages of this share of that set")
    parser.add_argument("--pages-only", action="store_true", help="make page and picture from the stored JSON")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="of all files that are written")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.cell:
        print(json.dumps(measure(json.loads(options.cell))))
        return
    if options.quick and options.out is None:
        options.out = Path(tempfile.mkdtemp(prefix="tagwise-growth-"))
    folder, figures = options.out or RESULTS, options.out or FIGURES
    path = folder / "growth.json"
    report = json.loads(path.read_text()) if path.exists() else {"cells": []}
    if options.amazon_like is not None:
        cell = {"amazon_share": options.amazon_like, "threads": options.threads}
        others = [one for one in report.get("amazon_like", []) if one["amazon_share"] != options.amazon_like]
        report["amazon_like"] = [*others, measured(cell, options)]
        store(path, report)
    elif not options.pages_only:
        run(report, options, path)
    if "series" in report:
        (folder / "growth.md").write_text(page(report), encoding="utf-8")
        draw(report, figures)
        print(page(report))


if __name__ == "__main__":
    main()
