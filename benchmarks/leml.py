"""LEML: seconds per round, where they go, and the ratios to plain numpy/scipy and to the machine's limit.

    TAGWISE_DATA=... python benchmarks/leml.py [--threads 2] [--rounds 3] [--quick]

Cases: squared/full, squared/masked and logistic/masked, on debtags and on generated data of EURLex's shape. Each runs
in a process of its own; wiki.py has the memory of fits. The plain version (plain_leml.py) is the same algorithm
with the same start and steps, written as one would with numpy and scipy. The limit is the sum over all kernel calls of
the larger of operations / BLAS rate and bytes / copy rate, both measured in the same process. Kernels are products, and
the sums that conjugate gradients take of whole arrays between them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

from pages import store

RESULTS = Path(__file__).parent / "results"
EURLEX = (15_539, 5_000, 3_993, 236, 5.3)
CASES = [
    # data, share of labels known, rank, loss
    ("debtags", None, 100, "squared"),
    ("debtags", 0.2, 100, "squared"),
    ("debtags", 0.2, 100, "logistic"),
    ("eurlex-shape", None, 250, "squared"),
    ("eurlex-shape", None, 500, "squared"),
    ("eurlex-shape", 0.02, 250, "squared"),
    ("eurlex-shape", 0.02, 500, "squared"),
    ("eurlex-shape", 0.02, 250, "logistic"),
]


class Meter:
    """Wraps the kernels where the problems use them; adds up seconds and the time at the machine's limit."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.work: list[tuple[float, float]] = []

    def count(self, name: str, seconds: float, operations: float, size: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.work.append((operations, size))

    def limit(self, copy: float, blas: float) -> float:
        return sum(max(operations / blas, size / copy) for operations, size in self.work)

    def install(self, n_rows: int) -> None:
        from tagwise import kernels
        from tagwise.kernels import products, vectors
        from tagwise.objectives import pair_losses, squared
        from tagwise.solvers import cg

        def csr_bytes(matrix):
            return matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes

        def product(matrix, dense, out):
            return 2 * matrix.nnz * dense.shape[1], csr_bytes(matrix) + dense.nbytes + out.nbytes

        def pairs(pattern, weights, left, right, out):
            return 4 * pattern.nnz * left.shape[1], csr_bytes(pattern) + left.nbytes + right.nbytes + out.nbytes

        def sampled(pattern, left, right, out):
            return 2 * pattern.nnz * left.shape[1], csr_bytes(pattern) + left.nbytes + right.nbytes + out.nbytes

        def gram(left, *rest):
            out, right = rest[-1], rest[0] if len(rest) > 1 else left
            return 2 * left.shape[0] * out.size, left.nbytes + right.nbytes

        def rows(tall, small, out):
            return 2 * tall.shape[0] * small.size, tall.nbytes + out.nbytes

        def systems(pattern, weights, right, features, base, out):
            # A symmetric sum of outer products: half of a general product's operations would do.
            return pattern.nnz * features.shape[1] ** 2, csr_bytes(pattern) + features.nbytes

        def changed_in_place(target, factor, source, nothing):
            return 2 * target.size, 2 * target.nbytes + source.nbytes

        def inner(a, b, out):
            return 2 * a.size, a.nbytes + (0 if a is b else b.nbytes)

        work = {
            "csr_matmul": product,
            "pair_curvature_product": pairs,
            "sampled_product": sampled,
            "gram": gram,
            "dense_matmul": rows,
            "solve_row_systems": systems,
        }
        for name, cost in work.items():
            for module in (squared, pair_losses, products):
                if hasattr(module, name):
                    self._wrap(module, name, getattr(kernels, name), cost)
        for module in (squared, cg):
            for name in ("axpy", "aypx"):
                if hasattr(module, name):
                    self._wrap(module, name, getattr(vectors, name), changed_in_place)
        self._wrap(vectors, "dot", vectors.dot, inner)

    def _wrap(self, place, name, original, cost) -> None:
        def timed(*arguments, **options):
            start = time.perf_counter()
            out = original(*arguments, **options)
            self.count(name.lstrip("_"), time.perf_counter() - start, *cost(*arguments, out))
            return out

        setattr(place, name, timed)


def load(data: str, known: float | None):
    from tagwise.data import hide_labels, load_dataset, make_low_rank_plus_sparse

    if data == "eurlex-shape":
        rows, features, labels, per_row, labels_per_row = EURLEX
        problem = make_low_rank_plus_sparse(
            rows, features, labels, rank=60, features_per_row=per_row, labels_per_row=labels_per_row, random_state=0
        )
        X, Y = problem.X, problem.Y
    else:
        X, Y, *_ = load_dataset(data)
    return X, Y, None if known is None else hide_labels(Y, known, random_state=0)


def warm_up(X, Y, rank: int, threads: int, *, observed=None, loss: str = "squared") -> None:
    """Load compiled code, and start the threads and what BLAS keeps of its own.

    On few rows, so that the C library serves the large arrays of the fit as in a fresh process.
    """
    from tagwise import LEML

    rows = slice(0, 5000)
    model = LEML(rank, loss=loss, max_iter=1, n_jobs=threads)
    model.fit(X[rows], Y[rows], None if observed is None else observed[rows])


def run_case(data: str, known: float | None, rank: int, loss: str, threads: int, rounds: int, plain: bool) -> dict:
    """One case, in this process."""
    from machine import blas_rate, copy_rate, description

    from tagwise import LEML

    warnings.simplefilter("ignore")
    X, Y, observed = load(data, known)
    reg = 3.0 if data == "debtags" else 1.0
    warm_up(X, Y, rank, threads, observed=observed, loss=loss)
    result: dict[str, object] = {"machine": description(), "data": data, "known": known, "rank": rank, "loss": loss}
    if plain:
        from plain_leml import PlainLEML

        fitted = PlainLEML(rank, loss, reg, rounds).fit(X, Y, observed)
        return {"plain_seconds_per_round": fitted.seconds / rounds, "plain_objective": fitted.objective}
    meter = Meter()
    meter.install(X.shape[0])
    model = LEML(rank=rank, loss=loss, reg=reg, max_iter=rounds, tol=0, n_jobs=threads)
    start = time.perf_counter()
    model.fit(X, Y, observed)
    seconds = time.perf_counter() - start
    in_kernels = sum(meter.seconds.values())
    result |= {
        "pairs": None if observed is None else observed.nnz,
        "seconds_per_round": seconds / rounds,
        "objective": float(model.objective_[-1]),
        "shares": {name: value / seconds for name, value in sorted(meter.seconds.items(), key=lambda item: -item[1])},
        "outside_kernels": 1 - in_kernels / seconds,
        "times_limit": seconds / meter.limit(copy_rate(threads), blas_rate(threads)),
    }
    return result


def in_own_process(case: tuple, threads: int, rounds: int, plain: bool) -> dict:
    command = [sys.executable, __file__, "--case", json.dumps([*case, threads, rounds, plain])]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def table(report: dict) -> str:
    lines = [
        f"{report['threads']} threads, {report['rounds']} rounds; times are seconds per round, start included.",
        "Aims: at least 5 times faster than numpy/scipy with a mask; at most 1.5 times the limit for squared loss with",
        "all labels known. The limit takes every array as read once, as if a sparse product gathered rows of its dense",
        "factor from a perfect cache; the gathers are what separates CSR × dense from it (see kernels.md).",
        "",
        "| data | known | k | loss | tagwise | numpy/scipy | × faster | × limit | largest shares |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in report["results"]:
        known = "all" if r["known"] is None else f"{100 * r['known']:g}%"
        shares = ", ".join(f"{name} {100 * share:.0f}%" for name, share in list(r["shares"].items())[:3])
        lines.append(
            f"| {r['data']} | {known} | {r['rank']} | {r['loss']} | {r['seconds_per_round']:.2f} | "
            f"{r['plain_seconds_per_round']:.2f} | {r['plain_seconds_per_round'] / r['seconds_per_round']:.1f} | "
            f"{r['times_limit']:.1f} | {shares}, outside kernels {100 * r['outside_kernels']:.0f}% |"
        )
    return "\n".join(lines) + "\n"


def write_page(report: dict) -> None:
    (RESULTS / "leml.md").write_text("# LEML\n\n" + table(report))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="debtags only, nothing written")
    parser.add_argument("--table-only", action="store_true", help="make the page from the stored JSON")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(run_case(*json.loads(options.case))))
        return
    if options.table_only:
        write_page(json.loads((RESULTS / "leml.json").read_text()))
        return
    report = {"threads": options.threads, "rounds": options.rounds, "results": []}
    for case in CASES:
        if options.quick and case[0] != "debtags":
            continue
        both = [in_own_process(case, options.threads, options.rounds, plain) for plain in (False, True)]
        report["results"].append(both[0] | both[1])
        print(table({**report, "results": report["results"][-1:]}).splitlines()[-1], flush=True)
    if not options.quick:
        store(RESULTS / "leml.json", report)
        write_page(report)


if __name__ == "__main__":
    main()
