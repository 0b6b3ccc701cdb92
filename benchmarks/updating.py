"""What it costs, and what it loses, to learn labels and rows after a fit instead of fitting again.

    python benchmarks/updating.py [--sets debtags yso-finna-en-min4] [--models Cascade LEML REML BinaryRelevance]

Three questions, per set and model, all in CPU seconds of one thread and in one run with the fit that they are compared
with. `add`: 100 labels, drawn at random, are taken out of a fitted model and added again. `one percent`: the model is
fitted to 99% of the rows and learns the rest. `ten portions`: it is fitted to a tenth of the rows and learns the
others, in random order, a tenth at a time. Writes results/updating.json after each set and model, and the tables of
docs/updating.md. `--page-only` writes the tables from the stored figures.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from copy import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from machine import description
from pages import replace_between, store

import tagwise
from tagwise.data import load_dataset
from tagwise.metrics import precision_at_k

RESULT = Path(__file__).parent / "results" / "updating.json"
PAGE = Path(__file__).parent.parent / "docs" / "updating.md"
START, END = "<!-- figures: written by benchmarks/updating.py -->", "<!-- end of the figures -->"
SETS = ("debtags", "yso-finna-en-min4")
MODELS: dict[str, dict[str, Any]] = {"Cascade": {}, "LEML": {"rank": 100}, "REML": {"rank": 50}, "BinaryRelevance": {}}
MODELS_OF = {"debtags": tuple(MODELS), "yso-finna-en-min4": ("Cascade", "LEML")}
N_LABELS, PORTIONS = 100, 10


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and its CPU seconds."""
    start = time.process_time()
    return function(), time.process_time() - start


def measure(name: str, model: str) -> dict[str, Any]:
    """All figures of a set and a model."""
    data = load_dataset(name)
    order = np.random.default_rng(0).permutation(data.X_train.shape[0])
    X, Y = data.X_train[order], data.Y_train[order]
    n_rows, n_labels = Y.shape

    def new() -> Any:
        return getattr(tagwise, model)(updatable=True, n_jobs=1, **MODELS[model])

    def top(fitted: Any) -> np.ndarray:
        return fitted.predict_topk(data.X_test, 5)[0]

    def p1(fitted: Any) -> float:
        return float(precision_at_k(data.Y_test, top(fitted), 1))

    warm = new().fit(X[:1000], Y[:1000])  # compiles
    warm.update(X[1000:1100], Y[1000:1100]).remove_labels([0]).add_labels(None, warm.kept_labels_[:, :1])
    full, seconds = timed(lambda: new().fit(X, Y))
    found: dict[str, Any] = {"dataset": name, "model": model, "fit_cpu_seconds": seconds, "p1": p1(full)}

    frequency = np.bincount(Y.indices, minlength=n_labels)
    chosen = np.random.default_rng(1).choice(np.flatnonzero(frequency), N_LABELS, replace=False)
    chosen.sort()
    without = copy(full).remove_labels(chosen)
    order_of = np.concatenate([np.setdiff1d(np.arange(n_labels), chosen), chosen])
    _, seconds = timed(lambda: without.add_labels(None, Y[:, chosen]))
    truth = data.Y_test[:, chosen]
    recalls = [recall(truth, best, chosen) for best in (top(full), order_of[top(without)])]
    found["add"] = {"cpu_seconds": seconds, "recall_full": recalls[0], "recall": recalls[1], "pairs": int(truth.nnz)}

    cut = round(0.99 * n_rows)
    fitted, fit_seconds = timed(lambda: new().fit(X[:cut], Y[:cut]))
    _, seconds = timed(lambda: fitted.update(X[cut:], Y[cut:]))
    found["one_percent"] = {"cpu_seconds": seconds, "fit_cpu_seconds": fit_seconds, "p1": p1(fitted)}
    found["one_percent"]["drift"] = fitted.drift_
    # The first of the two also reads compiled code.
    found["fit_cpu_seconds"] = min(found["fit_cpu_seconds"], fit_seconds / 0.99)

    cuts = np.linspace(0, n_rows, PORTIONS + 1).astype(int)
    fitted, seconds = timed(lambda: new().fit(X[: cuts[1]], Y[: cuts[1]]))
    portions = [{"rows": int(cuts[1]), "cpu_seconds": seconds, "p1": p1(fitted), "fitted_rows": fitted.fitted_rows_}]
    for start, stop in pairwise(cuts[1:]):
        _, seconds = timed(lambda start=start, stop=stop: fitted.update(X[start:stop], Y[start:stop]))
        more = {"p1": p1(fitted), "fitted_rows": fitted.fitted_rows_, "drift": fitted.drift_}
        portions.append({"rows": int(stop), "cpu_seconds": seconds, **more})
    found["portions"] = portions
    return found


def recall(truth: Any, best: np.ndarray, labels: np.ndarray) -> float:
    """Of the pairs of rows and chosen labels (n, m), the share that is among the best five of all labels (n, 5)."""
    rows, columns = truth.nonzero()
    return float((best[rows] == labels[columns][:, None]).any(axis=1).mean())


def tables(results: list[dict[str, Any]]) -> str:
    """The figures for people."""
    lines = [
        "| set | model | a fit, CPU s | 100 labels added | share of a fit | R@5 on them: fit / added |",
        "|---|---|---|---|---|---|",
    ]
    for one in results:
        add, fit = one["add"], one["fit_cpu_seconds"]
        lines.append(
            f"| {one['dataset']} | {one['model']} | {fit:.1f} | {add['cpu_seconds']:.2f} s | "
            f"{100 * add['cpu_seconds'] / fit:.1f}% | {100 * add['recall_full']:.1f} / {100 * add['recall']:.1f} |"
        )
    lines += [
        "",
        "| set | model | 1% new rows, CPU s | share of a fit | P@1: fit / ten portions | CPU s: fit / ten portions |",
        "|---|---|---|---|---|---|",
    ]
    for one in results:
        small, fit, portions = one["one_percent"], one["fit_cpu_seconds"], one["portions"]
        whole = sum(portion["cpu_seconds"] for portion in portions)
        lines.append(
            f"| {one['dataset']} | {one['model']} | {small['cpu_seconds']:.2f} | "
            f"{100 * small['cpu_seconds'] / small['fit_cpu_seconds']:.1f}% | {100 * one['p1']:.2f} / "
            f"{100 * portions[-1]['p1']:.2f} | {fit:.1f} / {whole:.1f} |"
        )
    return "\n".join(lines)


def stored(machine: dict[str, Any]) -> dict[str, Any]:
    """What has been measured so far."""
    return json.loads(RESULT.read_text()) if RESULT.exists() else {"machine": machine, "results": []}


def main() -> None:
    """Measure what is asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--models", nargs="+", default=tuple(MODELS), choices=tuple(MODELS))
    parser.add_argument("--page-only", action="store_true", help="make the tables from the stored results")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    machine = description()
    for name in () if arguments.page_only else arguments.sets:
        for model in (model for model in MODELS_OF[name] if model in arguments.models):
            one = measure(name, model)
            done = stored(machine)  # again: another run may have added its own
            others = [old for old in done["results"] if (old["dataset"], old["model"]) != (name, model)]
            order = [(name, model) for name in SETS for model in MODELS]
            done["results"] = sorted([*others, one], key=lambda found: order.index((found["dataset"], found["model"])))
            store(RESULT, done)
            print(tables([one]), flush=True)
    if PAGE.exists() and START in PAGE.read_text(encoding="utf-8"):
        replace_between(PAGE, START, END, tables(stored(machine)["results"]))


if __name__ == "__main__":
    main()
