"""The answers of every model on the shared sets, to compare two states of the code.

    TAGWISE_DATA=... python benchmarks/answers.py record FOLDER [--only Cascade]… [--dataset bibtex]… [--seeds 3]
    python benchmarks/answers.py compare OLD NEW

``record`` fits each model with its defaults, in a process of its own, and stores metrics in FOLDER/answers.json and the
top 5 of every test row beside it. A cell that is there is not run again. ``compare`` lists the cells whose metrics
differ by more than 0.1 points, and the share of rows with the same top 5.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from memory import run_cell

METRICS = ("P@1", "P@3", "P@5", "nDCG@1", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
MAIN = ("LEML", "REML", "Cascade", "BinaryRelevance")
SMALL = ("bibtex", "medical", "enron", "debtags")
LARGE = ("delicious", "cooking-stackexchange", "yso-finna-en-min4")
# The fits of these take minutes on all but the smallest sets.
SLOW = ("MSE", "BayesianCS", "CompressedSensing", "LPSR", "MLCSSP", "MDDM")


def cells(models: list[str], datasets: list[str], seeds: int) -> list[dict]:
    from tagwise.registry import MODELS

    found = []
    for info in MODELS:
        name = info.class_name
        for dataset in (*SMALL, *LARGE):
            if (models and name not in models) or (datasets and dataset not in datasets):
                continue
            if name not in MAIN and dataset in LARGE:
                continue
            if (name in SLOW and dataset == "debtags") or (name, dataset) == ("BinaryRelevance", LARGE[-1]):
                continue
            shares = (1.0, 0.2) if info.learns_from_mask and dataset in ("bibtex", "debtags") else (1.0,)
            for known in shares:
                cell = {"model": name, "dataset": dataset, "known": known}
                found.extend(cell | {"seed": seed} for seed in range(seeds if name in MAIN else 1))
    return found


def name_of(cell: dict) -> str:
    return f"{cell['model']}-{cell['dataset']}-{cell['known']:g}-{cell['seed']}"


def measure(cell: dict) -> dict:
    from tagwise.data import hide_labels, load_dataset
    from tagwise.metrics import inverse_propensity, ranking_report
    from tagwise.registry import MODELS

    warnings.simplefilter("ignore")
    X, Y, X_test, Y_test = load_dataset(cell["dataset"])
    observed = None if cell["known"] == 1 else hide_labels(Y, cell["known"], random_state=cell["seed"])
    model = next(info for info in MODELS if info.class_name == cell["model"]).load_class()(n_jobs=1)
    if "random_state" in model.get_params():
        model.set_params(random_state=cell["seed"])
    start = time.process_time()
    model.fit(X, Y, observed)
    seconds = time.process_time() - start
    labels, scores = model.predict_topk(X_test, 5)
    np.savez_compressed(Path(cell["folder"]) / f"{name_of(cell)}.npz", labels=labels, scores=scores)
    report = ranking_report(Y_test, labels, inverse_propensity=inverse_propensity(Y))
    return {**cell, "seconds": round(seconds, 2), **{metric: 100 * float(report[metric]) for metric in METRICS}}


def record(folder: Path, wanted: list[dict]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "answers.json"
    results = json.loads(store.read_text()) if store.exists() else {}
    for cell in wanted:
        if name_of(cell) in results:
            continue
        results[name_of(cell)] = run_cell(__file__, {**cell, "folder": str(folder)}, minutes=20)
        store.write_text(json.dumps(results, indent=1))
        print(name_of(cell), results[name_of(cell)].get("P@1"), flush=True)


def compare(old: Path, new: Path) -> None:
    before, after = (json.loads((folder / "answers.json").read_text()) for folder in (old, new))
    for name in before:
        if name not in after or "P@1" not in after[name] or "P@1" not in before[name]:
            print(f"{name}: not in both")
            continue
        top = [np.load(folder / f"{name}.npz")["labels"] for folder in (old, new)]
        same = float((np.sort(top[0], axis=1) == np.sort(top[1], axis=1)).all(axis=1).mean())
        moved = {m: round(after[name][m] - before[name][m], 2) for m in METRICS}
        worst = min(moved.values())
        mark = "  WORSE" if worst < -0.1 else ""
        spread = f"{worst:+.2f} to {max(moved.values()):+.2f}{mark}"
        print(f"{name}: same top 5 in {100 * same:.2f}% of rows, differences {spread}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", type=json.loads, help=argparse.SUPPRESS)
    verbs = parser.add_subparsers(dest="verb", required="--cell" not in sys.argv)
    recorder = verbs.add_parser("record")
    recorder.add_argument("folder", type=Path)
    recorder.add_argument("--only", action="append", default=[])
    recorder.add_argument("--dataset", action="append", default=[])
    recorder.add_argument("--seeds", type=int, default=3)
    comparer = verbs.add_parser("compare")
    comparer.add_argument("old", type=Path)
    comparer.add_argument("new", type=Path)
    chosen = parser.parse_args()
    if chosen.cell:
        print(json.dumps(measure(chosen.cell)))
    elif chosen.verb == "record":
        record(chosen.folder, cells(chosen.only, chosen.dataset, chosen.seeds))
    else:
        compare(chosen.old, chosen.new)
