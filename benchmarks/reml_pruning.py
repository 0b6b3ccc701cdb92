"""What pruning the dense H of ADMM saves and costs: weights kept and precision over tolerances, on held-out rows.

    TAGWISE_DATA=... python benchmarks/reml_pruning.py [--plot-only]

A fifth of the training rows is held out; test rows are not looked at. Writes results/reml_pruning.json and
docs/figures/reml_pruning.png.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

from machine import description
from pages import store

from tagwise import REML
from tagwise.data import available_datasets, load_dataset
from tagwise.data.splits import split_train_test
from tagwise.metrics import precision_at_k
from tagwise.models.reml.sparse_part import pruned

HERE = Path(__file__).parent
SETS = {"bibtex": 127, "delicious": 196, "medical": 36, "enron": 42}
TOLERANCES = (0.0, 1e-4, 1e-3, 3e-3, 1e-2, 2e-2, 3e-2, 5e-2, 0.1, 0.2, 0.3)


def curve(name: str, rank: int) -> dict:
    X, Y, *_ = load_dataset(name)
    split = split_train_test(X, Y, test_fraction=0.2, random_state=0, keep_labels=True)
    model = REML(rank=rank, sparse_part="admm", prune=0, n_jobs=-1).fit(split.X_train, split.Y_train)
    whole = model.sparse_weights_.toarray()
    points = []
    for tolerance in TOLERANCES:
        model.sparse_weights_ = pruned(whole, tolerance)
        labels, _ = model.predict_topk(split.X_test, 5)
        points.append(
            {
                "prune": tolerance,
                "kept": model.sparse_weights_.nnz / whole.size,
                **{f"P@{k}": float(precision_at_k(split.Y_test, labels, k=k)) for k in (1, 3, 5)},
            }
        )
        print(name, points[-1], flush=True)
    return {"dataset": name, "rank": rank, "points": points}


def plot(results: list[dict]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2))
    for result in results:
        kept = [100 * point["kept"] for point in result["points"]]
        lost = [100 * (point["P@3"] - result["points"][0]["P@3"]) for point in result["points"]]
        (line,) = axes.plot(kept, lost, marker="o", markersize=3, label=result["dataset"])
        for point, x, y in zip(result["points"], kept, lost):
            if point["prune"] in (0.02, 0.2):
                axes.annotate(f"{point['prune']:g}", (x, y), textcoords="offset points", xytext=(4, -9), fontsize=7,
                              color=line.get_color())  # fmt: skip
    axes.axhline(0, color="grey", linewidth=0.7)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.invert_xaxis()
    axes.set_xlabel("weights of H kept, percent (numbers at the points: prune)")
    axes.set_ylabel("P@3 against no pruning, points")
    axes.set_title("Pruning ADMM's H (held-out training rows)")
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(HERE.parent / "docs" / "figures" / "reml_pruning.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot-only", action="store_true")
    path = HERE / "results" / "reml_pruning.json"
    if not parser.parse_args().plot_only:
        warnings.simplefilter("ignore")
        at_hand = set(available_datasets())
        results = [curve(name, rank) for name, rank in SETS.items() if name in at_hand]
        store(path, {"machine": description(), "results": results})
    plot(json.loads(path.read_text())["results"])


if __name__ == "__main__":
    main()
