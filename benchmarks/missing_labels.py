"""What a mask of known labels is worth: precision against the share of labels that is known.

    TAGWISE_DATA=... python benchmarks/missing_labels.py [--dataset debtags] [--threads 2]

Three ways with the same hidden labels: LEML and BinaryRelevance that know which labels are known, and LEML that takes
unknown for "no". Writes benchmarks/results/missing_labels.json and docs/figures/missing_labels.{png,svg}.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

from machine import description
from pages import store

from tagwise import LEML, BinaryRelevance
from tagwise.data import hide_labels, load_dataset
from tagwise.metrics import inverse_propensity, ranking_report

RESULT = Path(__file__).parent / "results" / "missing_labels.json"
FIGURES = Path(__file__).parents[1] / "docs" / "figures"
SHARES = [0.05, 0.1, 0.2, 0.4, 1.0]
WAYS = {
    "BinaryRelevance, masked": lambda threads: BinaryRelevance(n_jobs=threads),
    "LEML logistic, masked": lambda threads: LEML(rank=100, reg=1.0, loss="logistic", n_jobs=threads),
    "LEML squared, masked": lambda threads: LEML(rank=100, reg=3.0, n_jobs=threads),
    "LEML squared, unknown taken for “no”": lambda threads: LEML(rank=100, reg=3.0, n_jobs=threads),
}


def run(name: str, threads: int) -> dict:
    X, Y, X_test, Y_test = load_dataset(name)
    weights = inverse_propensity(Y)
    results = []
    for share in SHARES:
        observed = None if share == 1 else hide_labels(Y, share, random_state=0)
        for way, make in WAYS.items():
            if way.startswith("LEML logistic") and observed is None:
                continue  # several minutes on all n·L pairs; the point of this curve is the mask
            labels, mask = Y, observed
            if "no" in way.split()[-1] and observed is not None:
                labels, mask = Y.multiply(observed).tocsr(), None
            start = time.perf_counter()
            model = make(threads).fit(X, labels, mask)
            seconds = time.perf_counter() - start
            report = ranking_report(Y_test, model.predict_topk(X_test, 5)[0], inverse_propensity=weights)
            results.append({"way": way, "known": share, "seconds": seconds, **report})
            print(f"{share:5.0%} {way:38s} P@1 {report['P@1']:.3f}  {seconds:.1f} s", flush=True)
    return {"machine": description(), "dataset": name, "threads": threads, "seed": 0, "results": results}


def plot(report: dict) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharex=True)
    for axis, metric in zip(axes, ("P@1", "PSP@5")):
        for way in WAYS:
            points = [(r["known"], 100 * r[metric]) for r in report["results"] if r["way"] == way]
            style = "--" if way.endswith("“no”") else "-"
            axis.plot(*zip(*points), style, marker="o", label=way)
        axis.set_xscale("log")
        axis.set_xticks(SHARES, [f"{share:.0%}" for share in SHARES])
        axis.minorticks_off()
        axis.set_xlabel("share of the label entries that is known")
        axis.set_ylabel(f"{metric}, percent")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.suptitle(f"{report['dataset']}: what is not known is not “no”")
    figure.tight_layout()
    FIGURES.mkdir(exist_ok=True, parents=True)
    for ending in ("png", "svg"):
        figure.savefig(
            FIGURES / f"missing_labels.{ending}", dpi=120, metadata={"Date": None} if ending == "svg" else None
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="debtags")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plot-only", action="store_true", help="draw from the stored JSON")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if not options.plot_only:
        store(RESULT, run(options.dataset, options.threads))
    plot(json.loads(RESULT.read_text()))


if __name__ == "__main__":
    main()
