"""Cascade beside its own parts, beside products of its opinions by constants, and beside the best peer.

    TAGWISE_DATA=... python benchmarks/cascade.py [--threads 2] [--only debtags] [--fresh] [--pages-only]

A cell is one fit of the default with one seed, in a process of its own; a cell that has its result is not run again.
The same fitted opinions on the test rows are then ranked by the learnt fusion, by the proposer alone, by the rankers
alone, and by products with constants, as version 0.1.0 did: its default, the same without prototypes, and a grid. The
seed decides the low rank's start, the order of rows in the rankers and the validation rows. Writes results/cascade.json
after each cell, and from it results/cascade.md and docs/figures/cascade_*.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from itertools import product
from pathlib import Path

import numpy as np
from machine import description
from memory import PeakMemory, run_cell
from pages import store

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parent.parent / "docs" / "figures"
DATASETS = ("bibtex", "debtags", "delicious", "cooking-stackexchange", "yso-finna-en-min4")
# 588,303 rows: only if asked for, one seed.
LARGE = "yso-finna-en"
METRICS = ("P@1", "P@3", "P@5", "nDCG@1", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
SHOWN = tuple(metric for metric in METRICS if metric != "nDCG@1")
SEEDS = (0, 1, 2)
# What a cell is known by.
PLACE = ("dataset", "known", "seed")
FUSED, PROPOSER, RANKERS = "Cascade", "proposer alone", "rankers alone"
CONSTANTS, WITHOUT = "constants of 0.1.0", "constants of 0.1.0, prototypes off"
BEST = "best constants in each column"
# Slope, exponent and weight of prototypes of the grid.
GRID = tuple(product((2.0, 3.0), (0.25, 0.5, 1.0), (0.0, 0.25, 0.5, 1.0)))
# Scores of these are probabilities.
CALIBRATED = (FUSED, CONSTANTS)


def cells(names: list[str]) -> list[dict]:
    wanted = []
    for name in names:
        for known in (1.0, 0.2) if name == "debtags" else (1.0,):
            seeds = SEEDS[:1] if name == LARGE else SEEDS
            wanted += [{"dataset": name, "known": known, "seed": seed} for seed in seeds]
    return wanted


# ---------------------------------------------------------------------- measure


def measure(cell: dict, threads: int) -> dict:
    from tagwise import Cascade
    from tagwise.data import hide_labels, load_dataset
    from tagwise.metrics import inverse_propensity, ranking_report

    warnings.simplefilter("ignore")
    settings = {"n_jobs": threads, "random_state": cell["seed"]}
    sample = load_dataset("debtags-sample")
    mask = None if cell["known"] == 1 else hide_labels(sample.Y_train, cell["known"], random_state=0)
    Cascade(**settings, rank=4).fit(sample.X_train, sample.Y_train, mask).predict_topk(sample.X_test)  # compile
    X, Y, X_test, Y_test = load_dataset(cell["dataset"])
    observed = None if cell["known"] == 1 else hide_labels(Y, cell["known"], random_state=cell["seed"])
    model = Cascade(**settings)
    with PeakMemory() as memory:
        start, cpu = time.perf_counter(), time.process_time()
        model.fit(X, Y, observed)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    start = time.perf_counter()
    model.predict_topk(X_test, 5)
    prediction = time.perf_counter() - start
    weights, systems = inverse_propensity(Y), {}
    for system, labels, scores in rankings(model, X_test):
        report = ranking_report(Y_test, labels, inverse_propensity=weights)
        systems[system] = {metric: float(report[metric]) for metric in METRICS}
        if system in CALIBRATED:
            systems[system]["reliability"] = reliability(labels, scores, Y_test)
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "predict_us_per_row": 1e6 * prediction / X_test.shape[0],
        "one_row_us": 1e6 * one_row(model, X_test),
        "peak_gb": memory.bytes / 1e9,
        "model_mb": model_bytes(model) / 1e6,
        "test_rows": X_test.shape[0],
        "systems": systems,
    }


def rankings(model, X):
    """The five best labels of each row, and their scores, by each way of ranking the model's opinions."""
    yield FUSED, *model.predict_topk(X, 5)
    yield PROPOSER, *model.proposer_.predict_topk(X, 5)
    # What 0.1.0 took: the fewer rows a label has, the more prototypes count.
    rows_of_label = model.label_frequency_[model.label_frequency_ > 0]
    usual = min(1.0, 3 / float(np.sqrt(rows_of_label.mean())))
    settings = {RANKERS: (1.0, 0.0, 0.0), CONSTANTS: (3.0, 0.5, usual), WITHOUT: (3.0, 0.5, 0.0)}
    settings |= {f"slope {s:g}, exponent {e:g}, prototypes {w:g}": (s, e, w) for s, e, w in GRID}
    learnt = model._fusion
    for system, (slope, exponent, weight) in settings.items():
        model._fusion = Product(slope, exponent, weight)
        yield system, *model.predict_topk(X, 5)
    model._fusion = learnt


class Product:
    """Opinions multiplied with constant weights, in the place of a learnt fusion."""

    def __init__(self, slope: float, exponent: float, weight: float) -> None:
        self.slope, self.exponent, self.weight = slope, exponent, weight

    def best(self, candidates, together, k, hidden=None, *, n_threads=1):
        """Labels and scores (n, k) of the shortlist."""
        margins, proposer, prototype = candidates.opinions[:3].astype(float)
        labels = candidates.labels[:, : margins.shape[1]]
        products = np.exp(self.exponent * (proposer - 1.5) + self.weight * (prototype - 1.2))
        products /= 1 + np.exp(-self.slope * margins)
        # Calibrated by two constants.
        chances = np.clip(products, 1e-6, 1 - 1e-6)
        logits = 1.15 * np.log(chances / (1 - chances)) + 1.25 + 1.5 * self.weight
        scores = (1 / (1 + np.exp(-logits)) - 0.5).astype(candidates.proposed.dtype)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(labels, order, axis=1), np.take_along_axis(scores, order, axis=1)


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
    for name in model.fields.arrays():
        array = getattr(model, name)
        total += array.nbytes if isinstance(array, np.ndarray) else array.data.nbytes + array.indices.nbytes
    return total


def reliability(labels, scores, Y_test) -> dict:
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


# ---------------------------------------------------------------------- the page


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


def groups(report: dict) -> dict[tuple[str, float], list[dict]]:
    """Cells that differ in the seed only, in the order of the page."""
    order = (*DATASETS, LARGE)
    found: dict[tuple[str, float], list[dict]] = {}
    for cell in sorted(report["cells"], key=lambda cell: (order.index(cell["dataset"]), -cell["known"], cell["seed"])):
        found.setdefault((cell["dataset"], cell["known"]), []).append(cell)
    return found


def values(group: list[dict], system: str, metric: str) -> np.ndarray:
    """One per seed; of the constants that are best on average in this column, for ``BEST``."""
    if system == BEST:
        named = {FUSED, PROPOSER, RANKERS}
        tried = [values(group, each, metric) for each in group[0]["systems"] if each not in named]
        return max(tried, key=np.mean)
    return np.array([cell["systems"][system][metric] for cell in group])


def standard_error(numbers: np.ndarray) -> float:
    return float(np.std(numbers, ddof=1) / np.sqrt(len(numbers))) if len(numbers) > 1 else 0.0


def spread(numbers: np.ndarray) -> str:
    mean = f"{100 * np.mean(numbers):.1f}"
    return mean if len(numbers) == 1 else f"{mean} ± {100 * standard_error(numbers):.2f}"


def shown_name(dataset: str, known: float) -> str:
    return dataset if known == 1 else f"{dataset}, {known:.0%} known"


def page(report: dict) -> str:
    peers = best_peers()
    lines = [
        "# Cascade",
        "",
        f"Generated by benchmarks/cascade.py on {report['machine']['cores']} cores, {report['threads']} threads. The",
        "default, in percent on the test rows: mean and, after ±, standard error over three seeds; no ± for one seed.",
        "nDCG@1 is P@1.",
        "",
        f"- `{FUSED}`: opinions fused by coefficients that are learnt on validation rows.",
        f"- `{PROPOSER}`, `{RANKERS}`: its first two stages, from the same fit.",
        f"- `{CONSTANTS}`: the same opinions multiplied, as version 0.1.0 did; also without prototypes.",
        f"- `{BEST}`: in each column the best on these test rows of those two and {len(GRID)} other",
        "  choices of constants. No setting has all of these figures.",
        "- best peer: in each column the best of any peer in peers.json; documented settings, the same splits and",
        "  metrics.",
        "- `20% known` hides four fifths of the training labels at random (the peers take the hidden ones for off).",
        "- `off by`: the expected calibration error, in points, of the probabilities of the five best labels.",
        "",
        "| set | ranking | " + " | ".join(SHOWN) + " | off by |",
        "|---|---|" + "---|" * (len(SHOWN) + 1),
    ]
    for (dataset, known), group in groups(report).items():
        name, best = shown_name(dataset, known), peers.get((dataset, known))
        for system in (FUSED, PROPOSER, RANKERS, CONSTANTS, WITHOUT, BEST):
            shown = [spread(values(group, system, metric)) for metric in SHOWN]
            stated = [cell["systems"][system]["reliability"]["error"] for cell in group] if system in CALIBRATED else []
            shown.append(spread(np.array(stated)) if stated else "")
            lines.append(f"| {name} | {system} | " + " | ".join(shown) + " |")
        if best:
            lines.append(f"| {name} | best peer | " + " | ".join(f"{100 * best[m]:.1f}" for m in SHOWN) + " | |")
    lines += [
        "",
        "## Behind",
        "",
        "Where the default is behind by more than one standard error (of the difference):",
        "",
    ]
    found = list(shortfalls(report, peers))
    lines += found or ["- nowhere."]
    lines += [
        "",
        "## Cost",
        "",
        "Of the fit and of five labels per test row, wall time unless it says CPU; `one row` is a median of 200.",
        "",
        "| set | fit, s | CPU s | µs/row | one row, µs | peak GB | model MB |",
        "|---|---|---|---|---|---|---|",
    ]
    forms = {
        "seconds": ".1f",
        "cpu_seconds": ".1f",
        "predict_us_per_row": ".0f",
        "one_row_us": ".0f",
        "peak_gb": ".2f",
        "model_mb": ".1f",
    }
    for (dataset, known), group in groups(report).items():
        costs = [f"{np.median([cell[key] for cell in group]):{form}}" for key, form in forms.items()]
        lines.append(f"| {shown_name(dataset, known)} | " + " | ".join(costs) + " |")
    return "\n".join(lines) + "\n"


def shortfalls(report: dict, peers: dict):
    """A line per set and competitor that is ahead of the default by more than one standard error."""
    for (dataset, known), group in groups(report).items():
        behind: dict[str, list[str]] = {}
        for metric in SHOWN:
            ours = values(group, FUSED, metric)
            others = {system: values(group, system, metric) for system in (PROPOSER, RANKERS, CONSTANTS, WITHOUT, BEST)}
            if (dataset, known) in peers:
                others["best peer"] = np.full(len(ours), peers[dataset, known][metric])
            for system, theirs in others.items():
                gap = theirs - ours
                if gap.mean() > standard_error(gap):
                    behind.setdefault(system, []).append(f"{metric} {100 * gap.mean():.2f}")
        for system, gaps in behind.items():
            yield f"- {shown_name(dataset, known)}, {system}: {', '.join(gaps)}"


def draw(report: dict) -> None:
    """Reliability of the fusion and of the constants of 0.1.0 on each set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = {name: group[0]["systems"] for (name, known), group in groups(report).items() if known == 1}
    figure, axes = plt.subplots(
        1, len(found), figsize=(2.6 * len(found), 3.2), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, (name, systems) in zip(axes[0], found.items()):
        axis.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for system in CALIBRATED:
            bins = systems[system]["reliability"]
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
    parser.add_argument("--only", action="append", choices=(*DATASETS, LARGE))
    parser.add_argument("--fresh", action="store_true", help="run cells again that have a result")
    parser.add_argument("--pages-only", action="store_true")
    parser.add_argument("--cell")
    arguments = parser.parse_args()
    if arguments.cell:
        print(json.dumps(measure(json.loads(arguments.cell), arguments.threads)))
        return
    path = RESULTS / "cascade.json"
    report = json.loads(path.read_text()) if path.exists() else {"cells": []}
    report["cells"] = [cell for cell in report["cells"] if "systems" in cell]
    if not arguments.pages_only:
        from tagwise.data import available_datasets

        names = arguments.only or [name for name in DATASETS if name in set(available_datasets())]
        report |= {"machine": description(), "threads": arguments.threads}
        for cell in cells(names):
            same = [known for known in report["cells"] if all(known[key] == cell[key] for key in PLACE)]
            if same and not arguments.fresh:
                continue
            result = run_cell(__file__, cell)
            print({key: value for key, value in result.items() if key != "systems"}, flush=True)
            if "error" in result:
                continue
            report["cells"] = [known for known in report["cells"] if known not in same] + [result]
            store(path, report)
    (RESULTS / "cascade.md").write_text(page(report))
    draw(report)


if __name__ == "__main__":
    main()
