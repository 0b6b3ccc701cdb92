"""This version beside an earlier one, in one run: kernels, LEML, REML, Cascade and prediction on debtags.

    TAGWISE_DATA=... python benchmarks/versions.py --earlier FOLDER [--repeats 5] [--threads 2]

FOLDER is a checkout of the earlier version. Versions take turns in processes of their own, each case after a warm-up;
the fastest time of each counts. Writes results/versions.json and .md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "versions.json"
LIMIT = 1.05
# Kernels that changed their names: the first that a version has is measured.
KERNELS = {
    "CSR × dense": [("tagwise.kernels", "csr_matmul"), ("tagwise.kernels", "csr_times_dense")],
    "top-k of factors": [("tagwise.kernels", "top_k_of_factors")],
    "features": [("tagwise.kernels", "feature_matrix"), ("tagwise.kernels", "two_way")],
}


def found(name: str):
    """The function of this version that goes by one of the names."""
    for module, function in KERNELS[name]:
        if hasattr(importlib.import_module(module), function):
            return getattr(importlib.import_module(module), function)
    raise SystemExit(f"no function for {name}")


def measure(threads: int) -> dict[str, float]:
    """Seconds of every case, with the tagwise that is imported."""
    import numpy as np
    import scipy.sparse as sp
    from machine import best_seconds

    from tagwise import LEML, REML, BinaryRelevance, Cascade
    from tagwise.data import hide_labels, load_dataset

    warnings.simplefilter("ignore")
    data = load_dataset("debtags")
    X, Y, X_test = data.X_train, data.Y_train, data.X_test
    observed = hide_labels(Y, 0.2, random_state=0)
    rng = np.random.default_rng(0)
    B, A = (rng.standard_normal((size, 100)).astype(X.dtype) for size in (X.shape[1], X.shape[0]))
    H = rng.standard_normal((Y.shape[1], 100)).astype(X.dtype)
    features = found("features")(sp.csr_matrix(X), n_threads=threads)
    rmatmul = getattr(features, "rmatmul", None) or features.transposed_times
    models = {
        "LEML": LEML(n_jobs=threads),
        "LEML, logistic, masked": LEML(rank=20, loss="logistic", max_iter=2, n_jobs=threads),
        "REML": REML(n_jobs=threads),
        "Cascade": Cascade(n_jobs=threads),
        "BinaryRelevance": BinaryRelevance(n_jobs=threads),
    }
    cases = {
        "kernel: CSR × dense": lambda: found("CSR × dense")(X, B, n_threads=threads),
        "kernel: transposed CSR × dense": lambda: rmatmul(A),
        "kernel: top-k of factors": lambda: found("top-k of factors")(A, H, 5, n_threads=threads),
    }
    for name, model in models.items():
        mask = observed if "masked" in name else None
        cases[f"fit: {name}"] = lambda model=model, mask=mask: model.fit(X, Y, mask)
    seconds = {name: best_seconds(case, repeat=3, least=0.5) for name, case in cases.items()}
    row = sp.csr_matrix(X_test[5])
    for name in ("LEML", "REML", "Cascade"):
        model = models[name]
        seconds[f"predict: {name}, all test rows"] = best_seconds(lambda m=model: m.predict_topk(X_test), repeat=5)
        seconds[f"predict: {name}, one row"] = best_seconds(
            lambda m=model: [m.predict_topk(row) for _ in range(200)], repeat=5
        )
    return seconds


def run(earlier: Path, threads: int, repeats: int) -> dict:
    """The fastest seconds of both versions."""
    folders = {"earlier": earlier, "this": Path(__file__).resolve().parents[1]}
    best: dict[str, dict[str, float]] = {name: {} for name in folders}
    for turn in range(repeats):
        for name, folder in folders.items():
            environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
            command = [sys.executable, __file__, "--measure", "--threads", str(threads)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            for case, seconds in json.loads(done.stdout.splitlines()[-1]).items():
                best[name][case] = min(seconds, best[name].get(case, float("inf")))
            print(f"turn {turn + 1} of {repeats}, {name} version", file=sys.stderr, flush=True)
    cases = [
        {"case": case, "earlier": seconds, "this": best["this"][case], "ratio": best["this"][case] / seconds}
        for case, seconds in best["earlier"].items()
    ]
    return {"threads": threads, "repeats": repeats, "cases": cases}


def table(report: dict) -> str:
    """As Markdown."""
    lines = [
        "# This version beside version 0.1.0",
        "",
        f"debtags, {report['threads']} threads, the fastest of {report['repeats']} turns of both versions in one run; "
        "one row 200 times. Below 1 this version is faster.",
        "",
        "| case | 0.1.0, ms | this, ms | ratio |",
        "|---|---|---|---|",
    ]
    rows = [
        f"| {row['case']} | {1e3 * row['earlier']:.1f} | {1e3 * row['this']:.1f} | {row['ratio']:.2f} |"
        for row in report["cases"]
    ]
    return "\n".join(lines + rows) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--earlier", type=Path, help="a checkout of the earlier version")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.threads)))
    else:
        report = run(arguments.earlier, arguments.threads, arguments.repeats)
        RESULT.write_text(json.dumps(report, indent=1) + "\n")
        RESULT.with_suffix(".md").write_text(table(report))
        print(table(report))
        slower = [row["case"] for row in report["cases"] if row["ratio"] > LIMIT]
        print(f"slower by more than 5%: {', '.join(slower) or 'none'}")
