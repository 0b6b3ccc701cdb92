"""Exact top-5 beside the same product by BLAS, answers to one row; all in one run.

    TAGWISE_DATA=... python benchmarks/prediction.py [--only products one-row] [--quick] [--pages-only]

`random` factors are normal numbers. `fitted` ones are LEML's on yso-finna-en-min4 (27,754 labels); for 213,707 labels
its label factors are drawn with repetition, each turned towards another one and brought back to its length. The BLAS
time is that of the plain float32 product of the same shapes, tile by tile, on as many threads, in the fastest of
several tilings; kernels take turns with it, and the fastest of several turns counts. Without TAGWISE_DATA only `random`
is measured. Writes results/prediction.json, and from it results/prediction.md.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from machine import description
from pages import store
from prediction_page import page

from tagwise import LEML, Cascade
from tagwise.data import load_dataset
from tagwise.kernels import top_k_of_factors
from tagwise.kernels.norm_pruned import NormSorted, norm_pruned_topk, top_k_within_bounds
from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas

RESULTS = Path(__file__).parent / "results"
DATASET = "yso-finna-en-min4"
FEW_LABELS, MANY_LABELS = 27_754, 213_707
RANKS = (100, 250)
THREADS = (1, 2)
K = 5
# Rows and labels of a tile. The fastest of these is the limit.
TILINGS = ((256, 1024), (512, 1024), (2048, 1024))
TURNS, FEWER_TURNS = 8, 3
ONE_ROW_CALLS = 1000
PARTS = ("products", "one-row")


# ---------------------------------------------------------------------- factors


@cache
def fitted(rank: int) -> LEML:
    """Two rounds; prediction takes as long after ten."""
    warnings.simplefilter("ignore")
    X, Y, _, _ = load_dataset(DATASET)
    return LEML(rank=rank, max_iter=2, n_jobs=-1).fit(X, Y)


@cache
def test_rows():
    return load_dataset(DATASET).X_test


def random_factors(n_rows: int, n_labels: int, rank: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    shapes = ((n_rows, rank), (n_labels, rank), (n_labels,))
    return tuple(rng.standard_normal(shape, dtype=np.float32) for shape in shapes)


def fitted_factors(n_rows: int, n_labels: int, rank: int) -> tuple[np.ndarray, ...]:
    model = fitted(rank)
    return model._embed(test_rows()[:n_rows]), *more_labels(model, n_labels)


def more_labels(model: LEML, n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Label factors and intercepts like those of the model, for as many labels."""
    H, b = model.label_factors_, model.intercept_
    if n_labels == len(H):
        return H, b
    rng = np.random.default_rng(0)
    drawn, other = rng.integers(len(H), size=(2, n_labels))
    lengths = np.linalg.norm(H, axis=1, keepdims=True)
    least = np.finfo(np.float32).tiny
    turned = H[drawn] + 0.5 * lengths[drawn] * H[other] / np.maximum(lengths[other], least)
    turned *= lengths[drawn] / np.maximum(np.linalg.norm(turned, axis=1, keepdims=True), least)
    return turned.astype(np.float32), b[drawn]


# ---------------------------------------------------------------------- products


def plain_product(left: np.ndarray, right: np.ndarray, tiling: tuple[int, int], threads: int) -> None:
    rows, width = tiling

    def block(start: int, stop: int) -> None:
        tile = np.empty((stop - start, width), dtype=left.dtype)
        for first, last in even_chunks(len(right), width):
            np.matmul(left[start:stop], right[first:last].T, out=tile[:, : last - first])

    with single_threaded_blas():
        run_chunks(block, even_chunks(len(left), rows), threads)


def take_turns(functions: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """The fastest seconds of each, after one call that warms up."""
    for function in functions.values():
        function()
    seconds = dict.fromkeys(functions, np.inf)
    for _ in range(turns):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def measure_products(kind: str, n_rows: int, n_labels: int, rank: int, threads: int, turns: int) -> dict:
    left, right, intercept = (random_factors if kind == "random" else fitted_factors)(n_rows, n_labels, rank)
    by_length = NormSorted.of(right, intercept)
    functions: dict[str, Callable[[], object]] = {
        f"BLAS {rows}×{width}": lambda tiling=(rows, width): plain_product(left, right, tiling, threads)
        for rows, width in TILINGS
        if rows * threads <= n_rows
    }
    functions["all"] = lambda: top_k_of_factors(left, right, K, intercept=intercept, n_threads=threads)
    functions["longest"] = lambda: norm_pruned_topk(left, by_length, K, n_threads=threads)
    seconds = take_turns(functions, turns)
    blas = min(value for name, value in seconds.items() if name.startswith("BLAS"))
    same = functions["all"]()[0] == functions["longest"]()[0]
    return {
        "factors": kind,
        "rows": n_rows,
        "labels": n_labels,
        "rank": rank,
        "threads": threads,
        "blas_us_per_row": 1e6 * blas / n_rows,
        "blas_gflops": 2 * n_rows * n_labels * rank / blas / 1e9,
        "all_us_per_row": 1e6 * seconds["all"] / n_rows,
        "all_share": blas / seconds["all"],
        "longest_us_per_row": 1e6 * seconds["longest"] / n_rows,
        "longest_share": blas / seconds["longest"],
        "used": "longest" if by_length.rule_out_others else "all",
        "same_labels": float(same.mean()),
    }


def products(quick: bool) -> list[dict]:
    found = []
    kinds = ("random", "fitted") if "TAGWISE_DATA" in os.environ and not quick else ("random",)
    for n_labels in (3000,) if quick else (FEW_LABELS, MANY_LABELS):
        for rank in (20,) if quick else RANKS:
            for kind in kinds:
                for threads in THREADS:
                    rows = 1024 if quick else 4096
                    turns = FEWER_TURNS if n_labels == MANY_LABELS else TURNS
                    found.append(measure_products(kind, rows, n_labels, rank, threads, turns))
                    print(found[-1], flush=True)
    return found


# ---------------------------------------------------------------------- one row


def latency(function: Callable[[object], object], arguments: list) -> dict[str, float]:
    """Of single calls, one after the other."""
    for argument in arguments[:50]:
        function(argument)
    seconds = []
    for call in range(ONE_ROW_CALLS):
        argument = arguments[call % len(arguments)]
        start = time.perf_counter()
        function(argument)
        seconds.append(time.perf_counter() - start)
    return {f"p{q}_us": float(1e6 * np.percentile(seconds, q)) for q in (10, 50, 90)}


def one_row() -> list[dict]:
    """Of models with all 27,754 labels: the public answer, and the kernel that finds the labels alone."""
    X, Y, X_test, _ = load_dataset(DATASET)
    rows = [X_test[row] for row in range(200)]
    cascade = Cascade(n_jobs=-1).fit(X, Y)
    found = []

    def entry(name: str, model, kernel: Callable[[object], object], arguments: list) -> None:
        model.set_params(n_jobs=1)
        answer = latency(lambda row: model.predict_topk(row, K), rows)
        found.append({"model": name, "labels": int(Y.shape[1]), "answer": answer, "kernel": latency(kernel, arguments)})
        model.set_params(n_jobs=-1)
        print(found[-1], flush=True)

    proposer = cascade.proposer_
    entry(
        "Cascade",
        cascade,
        lambda row: top_k_within_bounds(
            row[1], proposer._bounded, cascade.shortlist, rows=row[0], sparse=proposer.sparse_weights_
        ),
        [proposer._rows_and_embedding(row) for row in rows],
    )
    for rank in RANKS:
        model = fitted(rank)
        entry(
            f"LEML, rank {rank}",
            model,
            lambda row, model=model: norm_pruned_topk(row, model._norm_sorted_labels(), K),
            [model._embed(row) for row in rows],
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="small and without data sets; nothing is written")
    parser.add_argument("--pages-only", action="store_true")
    options = parser.parse_args()
    path = RESULTS / "prediction.json"
    report = json.loads(path.read_text()) if path.exists() and not options.quick else {}
    measures = {
        "products": lambda: products(options.quick),
        "one-row": one_row,
    }
    if not options.pages_only:
        report |= {"machine": description(), "calls": ONE_ROW_CALLS, "dataset": DATASET}
        has_data = "TAGWISE_DATA" in os.environ and not options.quick
        for name in options.only if has_data else ["products"]:
            report[name] = measures[name]()
            if not options.quick:
                store(path, report)
    if options.quick:
        print(page(report))
    else:
        (RESULTS / "prediction.md").write_text(page(report))


if __name__ == "__main__":
    main()
