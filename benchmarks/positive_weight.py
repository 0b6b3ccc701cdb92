"""What weighting positives does: precision against precision in the tail, and how to choose the weight.

    TAGWISE_DATA=... python benchmarks/positive_weight.py [--threads 2]

BinaryRelevance (squared loss, reg 1) on debtags and bibtex, with the positives of all labels, or of rare labels only
(at most 1 row in 60), weighted 1 to 16 times, and with "propensity". `choose_weight` picks one of these on validation
rows cut from the training rows, once for each share of the unweighted P@3 that has to be kept; the test rows are only
reported. Writes benchmarks/results/positive_weight.json and docs/figures/positive_weight.png.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from machine import description
from pages import store

from tagwise import BinaryRelevance
from tagwise.data import available_datasets, load_dataset, split_rows
from tagwise.metrics import inverse_propensity, ranking_report

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parents[1] / "docs" / "figures"
DATASETS = ("debtags", "bibtex")
WEIGHTS = (2, 4, 8, 16)
RARE = 1 / 60
KEEP = (1.0, 0.99)
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")


def candidates(Y) -> dict[str, object]:
    """Name of a scheme and weight → what `positive_weight` takes."""
    rare = np.bincount(Y.indices, minlength=Y.shape[1]) <= RARE * Y.shape[0]
    return {
        "none": 1.0,
        **{f"all labels ×{weight}": float(weight) for weight in WEIGHTS},
        **{f"rare labels ×{weight}": np.where(rare, weight, 1.0) for weight in WEIGHTS},
        "propensity": "propensity",
    }


def measure(X, Y, X_test, Y_test, weight: object, threads: int) -> dict:
    start = time.perf_counter()
    model = BinaryRelevance(positive_weight=weight, n_jobs=threads).fit(X, Y)
    seconds = time.perf_counter() - start
    report = ranking_report(Y_test, model.predict_topk(X_test, 5), inverse_propensity=inverse_propensity(Y))
    return {**{name: report[name] for name in METRICS}, "fit_seconds": seconds}


def on_validation_rows(X, Y, *, threads: int = 2, random_state: int = 0) -> dict[str, dict]:
    """Every candidate, fitted on four fifths of the rows and measured on the rest."""
    train, validation = split_rows(Y, 0.2, random_state=random_state, keep_labels=True)
    return {
        name: measure(X[train], Y[train], X[validation], Y[validation], weight, threads)
        for name, weight in candidates(Y[train]).items()
    }


def choose_weight(validation: dict[str, dict], keep: float = 1.0) -> str:
    """The candidate with the best PSP@5 among those that keep this share of the unweighted P@3."""
    floor = keep * validation["none"]["P@3"]
    return max(
        (name for name in validation if validation[name]["P@3"] >= floor), key=lambda name: validation[name]["PSP@5"]
    )


def run(name: str, threads: int) -> dict:
    X, Y, X_test, Y_test = load_dataset(name)
    validation = on_validation_rows(X, Y, threads=threads)
    chosen = {f"{keep:g}": choose_weight(validation, keep) for keep in KEEP}
    test = {label: measure(X, Y, X_test, Y_test, weight, threads) for label, weight in candidates(Y).items()}
    print(f"\n{name}\n{'test rows':18}" + "".join(f"{metric:>8}" for metric in METRICS))
    for label, result in test.items():
        print(f"{label:18}" + "".join(f"{100 * result[metric]:8.1f}" for metric in METRICS))
    for keep, choice in chosen.items():
        print(f"chosen on validation rows where {keep} of P@3 has to be kept: {choice}")
    return {"dataset": name, "chosen": chosen, "validation": validation, "test": test}


def plot(report: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(report["results"]), figsize=(5.5 * len(report["results"]), 4.4), squeeze=False)
    for axis, result in zip(axes[0], report["results"]):
        test = {name: (100 * r["PSP@5"], 100 * r["P@3"]) for name, r in result["test"].items()}
        for scheme, colour in (("all labels", "tab:blue"), ("rare labels", "tab:orange")):
            names = [f"{scheme} ×{weight}" for weight in WEIGHTS]
            points = np.array([test[name] for name in ("none", *names)])
            axis.plot(*points.T, "o-", color=colour, label=f"positives of {scheme}", ms=4)
            for weight, name in zip(WEIGHTS, names):
                axis.annotate(f"×{weight}", test[name], textcoords="offset points", xytext=(4, 4), fontsize=8)
        axis.plot(*test["none"], "ks", label="unweighted")
        axis.plot(*test["propensity"], "g^", label='"propensity"')
        for (keep, choice), colour in zip(result["chosen"].items(), ("k", "grey")):
            label = f"chosen on validation rows, keeping {100 * float(keep):.0f}% of P@3"
            axis.plot(*test[choice], "o", ms=14 if colour == "k" else 18, mfc="none", mec=colour, label=label)
        axis.set(title=result["dataset"], xlabel="PSP@5 (tail), %", ylabel="P@3, %")
        axis.grid(alpha=0.3)
    axes[0][-1].legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    threads = parser.parse_args().threads
    at_hand = set(available_datasets())
    for name in set(DATASETS) - at_hand:
        print(f"{name} is not at hand: left out")
    report = {
        "machine": description(),
        "threads": threads,
        "rare": RARE,
        "results": [run(name, threads) for name in DATASETS if name in at_hand],
    }
    store(RESULTS / "positive_weight.json", report)
    plot(report, FIGURES / "positive_weight.png")


if __name__ == "__main__":
    main()
