"""Where LEML should start: the objective over rounds from a spectral and from random starts.

    TAGWISE_DATA=... python benchmarks/leml_start.py [--threads 2]

Writes benchmarks/results/leml_start.json and docs/figures/leml_start.{png,svg}.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

from machine import description
from pages import store

from tagwise import LEML
from tagwise.data import hide_labels, load_dataset
from tagwise.metrics import precision_at_k

RESULT = Path(__file__).parent / "results" / "leml_start.json"
FIGURES = Path(__file__).parents[1] / "docs" / "figures"
SETTINGS = [
    ("bibtex", None, {"rank": 64, "reg": 1.0}),
    ("debtags", None, {"rank": 100, "reg": 3.0}),
    ("debtags", 0.2, {"rank": 100, "reg": 3.0}),
]
STARTS = [("spectral", 0), ("random", 0), ("random", 1), ("random", 2)]
ROUNDS = 12


def run(threads: int) -> dict:
    results = []
    for name, known, parameters in SETTINGS:
        X, Y, X_test, Y_test = load_dataset(name)
        observed = None if known is None else hide_labels(Y, known, random_state=0)
        for init, seed in STARTS:
            model = LEML(**parameters, init=init, random_state=seed, max_iter=ROUNDS, tol=0, n_jobs=threads)
            model.fit(X, Y, observed)
            results.append(
                {
                    "dataset": name,
                    "known": known,
                    "init": init,
                    "seed": seed,
                    "objective": model.objective_.tolist(),
                    "seconds": [info["seconds"] for info in model.history_],
                    "P@1": precision_at_k(Y_test, model.predict_topk(X_test, 1)[0], 1),
                }
            )
            print(name, known, init, seed, model.objective_.round(1), flush=True)
    return {"machine": description(), "threads": threads, "results": results}


def plot(report: dict) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(SETTINGS), figsize=(12, 3.6))
    for axis, (name, known, parameters) in zip(axes, SETTINGS):
        for r in report["results"]:
            if (r["dataset"], r["known"]) == (name, known):
                colour = "tab:blue" if r["init"] == "spectral" else "tab:orange"
                label = r["init"] if r["seed"] == 0 else None
                axis.plot(range(1, len(r["objective"]) + 1), r["objective"], color=colour, label=label)
        share = "all labels known" if known is None else f"{known:.0%} of the labels known"
        axis.set_title(f"{name}, rank {parameters['rank']}, {share}", fontsize=9)
        axis.set_xlabel("round")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("objective")
    axes[0].legend()
    figure.tight_layout()
    FIGURES.mkdir(exist_ok=True, parents=True)
    for ending in ("png", "svg"):
        figure.savefig(FIGURES / f"leml_start.{ending}", dpi=120, metadata={"Date": None} if ending == "svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plot-only", action="store_true", help="draw from the stored JSON")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if not options.plot_only:
        store(RESULT, run(options.threads))
    plot(json.loads(RESULT.read_text()))


if __name__ == "__main__":
    main()
