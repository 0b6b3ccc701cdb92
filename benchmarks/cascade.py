"""Cascade beside its own first two stages and the best peer: accuracy over three seeds, seconds, memory, reliability.

    TAGWISE_DATA=... python benchmarks/cascade.py [--threads 2] [--only debtags] [--fresh] [--pages-only]

Each cell is a process of its own; a cell that has its result is not run again. "tuned" is `validation_fraction=0.2`:
all that is chosen is chosen on training rows. The seed decides the low rank's start, the order of rows in the rankers
and the validation rows. Writes results/cascade.json, and from it results/cascade.md and docs/figures/cascade_*.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from machine import description
from memory import PeakMemory, run_cell
from pages import store

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parent.parent / "docs" / "figures"
DATASETS = ("bibtex", "delicious", "debtags", "cooking-stackexchange", "yso-finna-en-min4", "yso-finna-en")
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
SEEDS = (0, 1, 2)
# What a cell is known by; a result with other parameters gives way.
PLACE = ("dataset", "system", "known", "seed")
PROPOSER = {"sparse_part": "support", "rank": 16, "tol": 1.0}
LARGE = "yso-finna-en"


def best_peers() -> dict[tuple[str, float], dict[str, float]]:
    """The best of any peer in each column, by set and share of known labels: what benchmarks/peers measured."""
    path = RESULTS / "peers.json"
    best: dict[tuple[str, float], dict[str, float]] = {}
    for cell in json.loads(path.read_text())["cells"] if path.exists() else []:
        if cell["peer"] == "tagwise" or "metrics" not in cell:
            continue
        name, masked = cell["set"].removesuffix("-20"), cell["set"].endswith("-20")
        columns = best.setdefault((name, 0.2 if masked else 1.0), {})
        for metric in METRICS:
            columns[metric] = max(columns.get(metric, 0.0), cell["metrics"][metric])
    return best


def cells(names: list[str]) -> list[dict]:
    wanted = []
    for name in names:
        seeds = SEEDS if name != LARGE else SEEDS[:1]
        systems = {"stages 1 and 2": ("REML", PROPOSER), "Cascade": ("Cascade", {})}
        if name != LARGE:
            systems["Cascade, tuned"] = ("Cascade", {"validation_fraction": 0.2})
        if name == "debtags":
            systems["Cascade, 20% known"] = ("Cascade", {})
        for system, (model, parameters) in systems.items():
            known = 0.2 if "known" in system else 1.0
            common = {"dataset": name, "system": system, "model": model, "parameters": parameters, "known": known}
            wanted += [{**common, "seed": seed} for seed in seeds]
    return wanted


def measure(cell: dict, threads: int) -> dict:
    import tagwise
    from tagwise.data import hide_labels, load_dataset
    from tagwise.metrics import inverse_propensity, ranking_report

    warnings.simplefilter("ignore")
    model_class = getattr(tagwise, cell["model"])
    settings = {**cell["parameters"], "n_jobs": threads, "random_state": cell["seed"]}
    sample = load_dataset("debtags-sample")
    mask = None if cell["known"] == 1 else hide_labels(sample.Y_train, cell["known"], random_state=0)
    model_class(**{**settings, "rank": 4}).fit(sample.X_train, sample.Y_train, mask).predict_topk(sample.X_test)
    X, Y, X_test, Y_test = load_dataset(cell["dataset"])
    observed = None if cell["known"] == 1 else hide_labels(Y, cell["known"], random_state=cell["seed"])
    model = model_class(**settings)
    with PeakMemory() as memory:
        start, cpu = time.perf_counter(), time.process_time()
        model.fit(X, Y, observed)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    start = time.perf_counter()
    labels, scores = model.predict_topk(X_test, 5)
    prediction = time.perf_counter() - start
    report = ranking_report(Y_test, labels, inverse_propensity=inverse_propensity(Y))
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "predict_us_per_row": 1e6 * prediction / X_test.shape[0],
        "one_row_us": 1e6 * one_row(model, X_test),
        "peak_gb": memory.bytes / 1e9,
        "model_mb": model_bytes(model) / 1e6,
        "chosen": getattr(model, "chosen_", None),
        "reliability": reliability(model, labels, scores, Y_test) if cell["model"] == "Cascade" else None,
        **{metric: float(report[metric]) for metric in METRICS},
    }


def one_row(model, X) -> float:
    """Median seconds of an answer to one row."""
    model.set_params(n_jobs=1)
    times = []
    for row in range(min(200, X.shape[0])):
        one = X[row]
        start = time.perf_counter()
        model.predict_topk(one, 5)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def model_bytes(model) -> int:
    total = model_bytes(model.proposer_) if hasattr(model, "proposer_") else 0
    for name in model._saved_arrays:
        array = getattr(model, name)
        total += array.nbytes if isinstance(array, np.ndarray) else array.data.nbytes + array.indices.nbytes
    return total


def reliability(model, labels, scores, Y_test) -> dict:
    """Of the five best labels of all test rows."""
    from tagwise.inspection.reliability import reliability_bins
    from tagwise.kernels.sampled_pairs import contains_pairs

    found = labels >= 0
    bins = reliability_bins(np.clip(scores[found] + 0.5, 0, 1), contains_pairs(Y_test, labels)[found])
    return {
        "predicted": bins.predicted.tolist(),
        "observed": bins.observed.tolist(),
        "count": bins.count.tolist(),
        "error": bins.error,
    }


def groups(report: dict) -> dict[tuple, list[dict]]:
    """Cells that differ in the seed only."""
    found: dict[tuple, list[dict]] = {}
    for cell in report["cells"]:
        found.setdefault((cell["dataset"], cell["known"], cell["system"]), []).append(cell)
    order = ("stages 1 and 2", "Cascade", "Cascade, tuned", "Cascade, 20% known")
    return dict(sorted(found.items(), key=lambda item: (DATASETS.index(item[0][0]), order.index(item[0][2]))))


def page(report: dict) -> str:
    lines = [
        "# Cascade",
        "",
        f"Generated by benchmarks/cascade.py on {report['machine']['cores']} cores, {report['threads']} threads. In",
        "percent, mean and, after ±, standard deviation over three seeds, or of one seed where there is no ±. The best",
        "peer in each column is the best of",
        "any peer in peers.json: documented settings, the same splits and metrics. `tuned` chooses weights, C, hard",
        "negatives and the combination on a fifth of the training rows; `20% known` hides four fifths of the training",
        "labels at random (the peers take the hidden ones for off). `off by`: the mean distance, in points, between",
        "the stated probability of the five best labels and the share that is right. Seconds and µs are wall time;",
        "`one row` is a median of 200.",
        "",
        "| set | system | "
        + " | ".join(METRICS)
        + " | off by | fit, s | CPU s | µs/row | one row, µs | peak GB | model MB |",
        "|---|---|" + "---|" * (len(METRICS) + 7),
    ]
    last, peers = None, best_peers()
    for (dataset, known, system), group in groups(report).items():
        name = dataset if known == 1 else f"{dataset}, {known:.0%} known"
        if name != last:
            best = peers.get((dataset, known))
            if best:
                lines.append(f"| {name} | best peer | " + " | ".join(f"{100 * best[m]:.1f}" for m in METRICS))
                lines[-1] += " |" + " |" * 7
            last = name
        shown = [spread([cell[metric] for cell in group]) for metric in METRICS]
        stated = [cell["reliability"]["error"] for cell in group if cell.get("reliability")]
        shown.append(f"{100 * np.mean(stated):.1f}" if stated else "")
        more = [
            f"{np.median([cell[key] for cell in group]):{form}}"
            for key, form in (
                ("seconds", ".1f"),
                ("cpu_seconds", ".1f"),
                ("predict_us_per_row", ".0f"),
                ("one_row_us", ".0f"),
                ("peak_gb", ".2f"),
                ("model_mb", ".1f"),
            )
        ]
        lines.append(f"| {name} | {system.split(', 20%')[0]} | " + " | ".join(shown + more) + " |")
    lines += ["", "What the validation rows chose:", ""]
    for (dataset, _, system), group in groups(report).items():
        if system == "Cascade, tuned":
            for cell in group:
                values = ", ".join(
                    f"{key} {value:g}" for key, value in cell["chosen"].items() if isinstance(value, (int, float))
                )
                lines.append(f"- {dataset}, seed {cell['seed']}: {values}")
    return "\n".join(lines) + "\n"


def spread(values: list[float]) -> str:
    mean = f"{100 * np.mean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {100 * np.std(values):.1f}"


def draw(report: dict) -> None:
    """Reliability of the default and the tuned model on each set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = [
        (key, group[0]["reliability"])
        for key, group in groups(report).items()
        if key[1] == 1 and group[0].get("reliability") and key[0] != LARGE
    ]
    names = list(dict.fromkeys(dataset for (dataset, _, _), _ in found))
    figure, axes = plt.subplots(
        1, len(names), figsize=(2.6 * len(names), 3.2), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, name in zip(axes[0], names):
        axis.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for (dataset, _, system), bins in found:
            if dataset == name:
                axis.plot(bins["predicted"], bins["observed"], marker="o", markersize=3, label=system)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("stated probability")
        axis.set_aspect("equal")
    axes[0][0].set_ylabel("share that is right")
    axes[0][0].legend(fontsize=8, frameon=False)
    for kind in ("png", "svg"):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(FIGURES / f"cascade_reliability.{kind}", dpi=120, metadata=metadata)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", action="append", choices=DATASETS)
    parser.add_argument("--fresh", action="store_true", help="run cells again that have a result")
    parser.add_argument("--pages-only", action="store_true")
    parser.add_argument("--cell")
    arguments = parser.parse_args()
    if arguments.cell:
        print(json.dumps(measure(json.loads(arguments.cell), arguments.threads)))
        return
    path = RESULTS / "cascade.json"
    report = json.loads(path.read_text()) if path.exists() else {"cells": []}
    if not arguments.pages_only:
        from tagwise.data import available_datasets

        names = arguments.only or [name for name in DATASETS if name in set(available_datasets())]
        report |= {"machine": description(), "threads": arguments.threads}
        for cell in cells(names):
            same = [known for known in report["cells"] if all(known[key] == cell[key] for key in PLACE)]
            if any(known["parameters"] == cell["parameters"] for known in same) and not arguments.fresh:
                continue
            result = run_cell(__file__, cell)
            print({k: v for k, v in result.items() if k not in ("reliability", "chosen")}, flush=True)
            if "error" in result:
                continue
            report["cells"] = [known for known in report["cells"] if known not in same] + [result]
            store(path, report)
    (RESULTS / "cascade.md").write_text(page(report))
    draw(report)


if __name__ == "__main__":
    main()
