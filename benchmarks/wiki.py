"""LEML on the shape of the paper's largest problem: seconds per round and memory, on two cores.

    TAGWISE_DATA=... python benchmarks/wiki.py [--scale 1.0] [--threads 2] [--rounds 5] [--table-only]

The paper's Wikipedia set cannot be had; this is generated data of its sizes (881,805 rows, 366,932 features, 213,707
labels, 147 features and 7 labels a row), with popularities that fall by a power law and topics that tie labels to
features. Squared loss, all labels known, float32. Smaller cells show the memory of a fit beside what it may take:
W + H + XW + two n×k and a tenth. Each cell is a process of its own, kernels compiled before it measures. A scale other
than 1 leaves the stored figures alone. Writes results/wiki.json, and results/wiki.md from it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import sys
import time
import warnings
from itertools import pairwise
from pathlib import Path

from machine import description
from memory import run_cell
from pages import store

RESULTS = Path(__file__).parent / "results"
ROWS, FEATURES, LABELS = 881_805, 366_932, 213_707
RANK = 250
PAPER = {"seconds": 9_932, "cores": 32}
MOST_GB = 10
# Allowed over W + H + XW + two n×k.
TENTH = 1.1
MEMORY_CELLS = [
    {"data": "bibtex", "rank": 64},
    {"data": "debtags", "rank": 100},
    {"data": "yso-finna-en-min4", "rank": 100},
    {"data": "eurlex-shape", "rank": 250},
    {"data": "wiki-shape", "rank": RANK, "scale": 0.05},
]


def load(cell: dict):
    """Features and labels of a cell."""
    if cell["data"] != "wiki-shape":
        from leml import load as load_case

        return load_case(cell["data"], None)[:2]
    from tagwise.data import make_power_law

    rows, features, labels = (max(1, round(size * cell["scale"])) for size in (ROWS, FEATURES, LABELS))
    sizes = {"features_per_row": 147, "labels_per_row": 7}
    return make_power_law(rows, features, labels, **sizes, n_topics=500, topic_share=0.5, random_state=0)


class PeakResident:
    """Resident bytes before a block and at its peak; the system keeps the peak, so that watching costs nothing.

    What was freed before is handed back first, so that the block cannot use it unseen. Systems without /proc tell the
    peak since the process began.
    """

    def __enter__(self) -> PeakResident:
        if sys.platform == "linux":
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim is not None:
                trim(0)
            Path("/proc/self/clear_refs").write_text("5")
        self.before = self._resident("VmRSS")
        return self

    def __exit__(self, *exception: object) -> None:
        self.peak = self._resident("VmHWM")

    @staticmethod
    def _resident(field: str) -> int:
        if sys.platform != "linux":
            return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field):
                return 1024 * int(line.split()[1])
        raise RuntimeError(f"/proc/self/status does not tell {field}")


def measure(cell: dict) -> dict:
    """One fit, in this process."""
    from leml import warm_up

    from tagwise import LEML

    warnings.simplefilter("ignore")
    start = time.perf_counter()
    X, Y = load(cell)
    loading = time.perf_counter() - start
    rank, threads = cell["rank"], cell["threads"]
    warm_up(X, Y, rank, threads)
    (n_rows, n_features), n_labels = X.shape, Y.shape[1]
    budget = X.dtype.itemsize * rank * (n_features + n_labels + 3 * n_rows)

    ends, processor = [0.0], [0.0]

    def report(iteration: int, info: dict) -> None:
        ends.append(time.perf_counter() - begin)
        processor.append(time.process_time())
        print(f"round {iteration}: {info['objective']:.6g} after {ends[-1]:.1f} s", file=sys.stderr, flush=True)

    model = LEML(rank, max_iter=cell["rounds"], tol=0, n_jobs=threads)
    with PeakResident() as memory:
        begin, processor[0] = time.perf_counter(), time.process_time()
        model.fit(X, Y, callback=report)
        seconds = time.perf_counter() - begin
    return {
        "rows": n_rows,
        "features": n_features,
        "labels": n_labels,
        "entries": int(X.nnz),
        "label_entries": int(Y.nnz),
        "loading_seconds": loading,
        "seconds": seconds,
        "round_cpu_seconds": [after - before for before, after in pairwise(processor)],
        "round_seconds": [after - before for before, after in pairwise(ends)],
        "nothing_learnt": 0.5 * Y.nnz,
        "objective": [float(value) for value in model.objective_],
        "data_bytes": sum(array.nbytes for M in (X, Y) for array in (M.data, M.indices, M.indptr)),
        "before_bytes": memory.before,
        "peak_bytes": memory.peak,
        "over_bytes": memory.peak - memory.before,
        "budget_bytes": budget,
        "ratio": (memory.peak - memory.before) / budget,
    }


def page(report: dict) -> str:
    """The stored figures as a page."""
    lines = ["# LEML at the paper's largest size", ""]
    large = report.get("large")
    if large is not None and "error" not in large:
        per_round = sum(large["round_seconds"]) / len(large["round_seconds"])
        total = large["peak_bytes"] / 1e9
        per_row = [large[name] / large["rows"] for name in ("entries", "label_entries")]
        lines += [
            f"Generated by benchmarks/wiki.py: {large['rows']:,} rows, {large['features']:,} features,",
            f"{large['labels']:,} labels, {per_row[0]:.0f} features and {per_row[1]:.0f} labels a row, float32;",
            f"squared loss, all labels known, k = {large['rank']}; {large['threads']} threads on",
            f"{report['machine']['cores']} cores.",
            f"The paper reports {PAPER['seconds']:,} s on {PAPER['cores']} cores for its own data of these sizes.",
            "",
            "| round | seconds | of processor | objective |",
            "|---|---|---|---|",
            f"| 0 (no features) | | | {large['nothing_learnt']:,.0f} |",
        ]
        rounds = zip(large["round_seconds"], large["round_cpu_seconds"], large["objective"], strict=True)
        for number, (seconds, cpu, value) in enumerate(rounds, start=1):
            with_start = " (with the start)" if number == 1 else ""
            lines.append(f"| {number}{with_start} | {seconds:.0f} | {cpu:.0f} | {value:,.0f} |")
        lines += [
            "",
            f"{per_round:.0f} s a round, {large['seconds']:.0f} s in all. Two threads with a core each take half of",
            "their processor time; what is more went to others on the machine.",
            f"Peak memory {total:.2f} GB with everything, of which the data are {large['data_bytes'] / 1e9:.2f} GB: "
            + (f"under {MOST_GB} GB." if total < MOST_GB else f"over {MOST_GB} GB."),
        ]
    lines += [
        "",
        "## Memory of a fit",
        "",
        "Over: resident memory at the peak of the fit less that before it, with the data loaded. Budget: W + H + XW",
        f"and two n×k; a fit may take {TENTH:g} times that. Copies of small features are beyond it, for speed.",
        "Each fit is the first of its size in its process; after another one, holes in the heap can take more than",
        "that tenth.",
        "",
        "| data | rows | features | labels | k | over, MB | budget, MB | ratio | within |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in [*report.get("memory", []), *([large] if large else [])]:
        name = cell["data"] + (f" × {cell['scale']:g}" if "scale" in cell else "")
        if "error" in cell:
            lines.append(f"| {name} | {cell['error']} |" + " |" * 7)
            continue
        lines.append(
            f"| {name} | {cell['rows']:,} | {cell['features']:,} | {cell['labels']:,} | {cell['rank']} | "
            f"{cell['over_bytes'] / 1e6:.1f} | {cell['budget_bytes'] / 1e6:.1f} | {cell['ratio']:.2f} | "
            f"{within(cell)} |"
        )
    return "\n".join(lines) + "\n"


def within(cell: dict) -> str:
    beyond = cell["over_bytes"] - TENTH * cell["budget_bytes"]
    return "yes" if beyond <= 0 else f"no, by {beyond / 1e6:.1f} MB"


def run(report: dict, *, threads: int, rounds: int) -> None:
    """All cells, the stored figures and the page written after each."""
    from tagwise.data import available_datasets

    here = {*available_datasets(), "eurlex-shape", "wiki-shape"}
    report |= {"machine": description(), "memory": []}
    for cell in MEMORY_CELLS:
        if cell["data"] in here:
            report["memory"].append(run_cell(__file__, {**cell, "threads": threads, "rounds": 2}))
            write(report)
    large = {"data": "wiki-shape", "rank": RANK, "scale": 1.0, "threads": threads, "rounds": rounds}
    report["large"] = run_cell(__file__, large)
    write(report)


def write(report: dict) -> None:
    """results/wiki.json and the page from it."""
    store(RESULTS / "wiki.json", report)
    (RESULTS / "wiki.md").write_text(page(report))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="a share of all sizes, to try it; nothing is stored")
    parser.add_argument("--table-only", action="store_true", help="make the page from the stored JSON")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        print(json.dumps(measure(json.loads(options.cell))))
        return
    if options.scale != 1:
        cell = {"data": "wiki-shape", "rank": RANK, "scale": options.scale}
        print(json.dumps(run_cell(__file__, {**cell, "threads": options.threads, "rounds": options.rounds}), indent=1))
        return
    path = RESULTS / "wiki.json"
    report = json.loads(path.read_text()) if path.exists() else {}
    if not options.table_only:
        run(report, threads=options.threads, rounds=options.rounds)
    write(report)
    print(page(report))


if __name__ == "__main__":
    main()
