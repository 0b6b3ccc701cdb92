"""Low rank alone, and with the sparse part on its residual: seconds of each step, size and accuracy.

    TAGWISE_DATA=... python benchmarks/support.py [--threads 2]

Nothing is chosen on test labels. The steps share a run, so that their ratios hold on a busy machine too. Writes
benchmarks/results/support.json.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from machine import best_seconds, description
from pages import store

from tagwise import LEML
from tagwise.data import available_datasets, load_dataset
from tagwise.kernels import csr_matmul, top_k_of_factors, top_k_of_factors_and_sparse, unit_rows
from tagwise.metrics import inverse_propensity, ranking_report
from tagwise.solvers.support import SupportFeatures, SupportRidge

RESULT = Path(__file__).parent / "results" / "support.json"
LOW_RANK = {"rank": 100, "max_iter": 4}
DATASETS = [("debtags", 3.0), ("yso-finna-en-min4", 1.0)]
# support, weight of the positives
SETTINGS = [(200, 1.0), (300, 1.0), (300, 2.0)]
METRICS = ("P@1", "P@3", "P@5", "PSP@5")


def timed(function: Callable[[], object]) -> tuple[object, dict[str, float]]:
    start, cpu = time.perf_counter(), time.process_time()
    result = function()
    return result, {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}


def sparse_part(X, Y, low_rank, intercept, support: int, weights, threads: int):
    features = SupportFeatures.build(X, support=support, n_threads=threads)
    ridge = SupportRidge(features, Y, reg=1.0, support=support, positive_weight=weights, n_threads=threads)
    return ridge.solve(*low_rank, intercept).weights


def run(name: str, reg: float, threads: int) -> dict:
    X, Y, X_test, Y_test = load_dataset(name)
    propensity = inverse_propensity(Y)
    rows, test_rows = unit_rows(X), unit_rows(X_test)
    model, fit = timed(lambda: LEML(**LOW_RANK, reg=reg, n_jobs=threads).fit(X, Y))
    U, V, intercept = model.feature_factors_, model.label_factors_, model.intercept_ + 0.5
    embedded = csr_matmul(test_rows, U, n_threads=threads)

    def top(sparse=None):
        if sparse is None:
            return top_k_of_factors(embedded, V, 5, intercept=intercept, n_threads=threads)
        return top_k_of_factors_and_sparse(
            embedded, V, 5, intercept=intercept, rows=test_rows, sparse=sparse, n_threads=threads
        )

    def line(support: int | None = None, weight: float | None = None, sparse=None, solve=None) -> dict:
        seconds = best_seconds(lambda: top(sparse), repeat=3)
        report = ranking_report(Y_test, top(sparse)[0], inverse_propensity=propensity)
        found = {
            "support": support,
            "positive_weight": weight,
            "nonzeros": 0 if sparse is None else sparse.nnz,
            **(solve or {}),
            "score_us_per_row": 1e6 * seconds / X_test.shape[0],
            **{metric: report[metric] for metric in METRICS},
        }
        print(
            f"{name:18} {'low rank' if support is None else f'+ support {support}, c = {weight:g}':22}"
            + "".join(f"{100 * found[metric]:7.1f}" for metric in METRICS)
            + f"{found['nonzeros']:11,} non-zeros  solve {found.get('seconds', 0):6.2f} s"
            + f"  score {found['score_us_per_row']:6.1f} µs/row",
            flush=True,
        )
        return found

    print(f"{name}: low rank fitted in {fit['seconds']:.1f} s")
    lines = [line()]
    for support, weight in SETTINGS:
        weights = np.full(Y.shape[1], weight)
        sparse, solve = timed(
            lambda support=support, weights=weights: sparse_part(rows, Y, (U, V), intercept, support, weights, threads)
        )
        lines.append(line(support, weight, sparse, solve))
    return {"dataset": name, "low_rank": {**LOW_RANK, "reg": reg, **fit}, "lines": lines}


def compile_first() -> None:
    X, Y, *_ = load_dataset("debtags-sample")
    model = LEML(rank=2, max_iter=1).fit(X, Y)
    U, V = model.feature_factors_, model.label_factors_
    sparse = sparse_part(X, Y, (U, V), model.intercept_, 200, None, 1)
    embedded = csr_matmul(X, U)
    top_k_of_factors_and_sparse(embedded, V, 5, intercept=model.intercept_, rows=X, sparse=sparse)
    top_k_of_factors(np.ascontiguousarray(embedded), V, 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    threads = parser.parse_args().threads
    warnings.simplefilter("ignore")
    compile_first()
    at_hand = set(available_datasets())
    report = {"machine": description(), "threads": threads, "results": []}
    for name, reg in DATASETS:
        if name not in at_hand:
            print(f"{name} is not at hand: left out")
            continue
        report["results"].append(run(name, reg, threads))
    store(RESULT, report)


if __name__ == "__main__":
    main()
