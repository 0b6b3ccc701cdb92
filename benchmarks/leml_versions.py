"""LEML's objective against seconds: this version and an earlier one, on the same problems in the same run.

    TAGWISE_DATA=... python benchmarks/leml_versions.py --earlier FOLDER [--threads 2]

FOLDER is a checkout of the earlier version. Each fit is a process of its own, after a round on the same data that loads
compiled code; versions take turns, and the fastest of three fits counts. Writes results/leml_versions.json and .md and
docs/figures/leml_versions.*.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import warnings
from pathlib import Path

from leml import load
from machine import description
from memory import run_cell
from pages import store

RESULT = Path(__file__).parent / "results" / "leml_versions.json"
FIGURES = Path(__file__).parents[1] / "docs" / "figures"
CASES = [
    {"data": "bibtex", "parameters": {"rank": 64, "reg": 1.0}},
    {"data": "debtags", "parameters": {"rank": 100, "reg": 3.0}},
    {"data": "eurlex-shape", "parameters": {"rank": 250, "reg": 1.0}},
]
ROUNDS = 10
REPEATS = 3


def measure(cell: dict, threads: int) -> dict:
    from tagwise import LEML

    warnings.simplefilter("ignore")
    settings = {**cell["parameters"], "n_jobs": threads, "random_state": 0}
    X, Y, _ = load(cell["data"], None)
    LEML(**{**settings, "max_iter": 1}).fit(X, Y)  # loads compiled code
    model = LEML(**settings, tol=0, max_iter=ROUNDS).fit(X, Y)
    usual = LEML(**settings).fit(X, Y)
    return {
        "objective": model.objective_.tolist(),
        "seconds": [info["seconds"] for info in model.history_],
        "usual_rounds": int(usual.n_iter_),
    }


def run(earlier: Path, threads: int) -> dict:
    here = Path(__file__).resolve().parents[1]
    folders = {"earlier": earlier, "this": here}
    results = []
    for case in CASES:
        fits: dict[str, list[dict]] = {name: [] for name in folders}
        for _ in range(REPEATS):
            for name, folder in folders.items():
                found = run_cell(
                    __file__, {**case, "threads": threads}, environment={"PYTHONPATH": str(folder / "src")}
                )
                if "error" in found:
                    raise SystemExit(f"{case['data']}, {name} version: {found['error']}")
                fits[name].append(found)
        for name, found_all in fits.items():
            best = min(found_all, key=lambda one: one["seconds"][-1])
            results.append({**case, "version": name, **{k: best[k] for k in ("objective", "seconds", "usual_rounds")}})
            print(case["data"], name, best["usual_rounds"], round(best["seconds"][-1], 2), flush=True)
    commit = subprocess.run(
        ["git", "-C", str(earlier), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {"machine": description(), "threads": threads, "earlier": commit.stdout.strip(), "results": results}


def table(report: dict) -> str:
    """Seconds of both versions, of all rounds and of those that the defaults take."""
    lines = [
        "# LEML, this version and an earlier one",
        "",
        f"{report['threads']} threads; squared loss, all labels known; earlier: commit {report['earlier']}. The "
        f"fastest of {REPEATS} fits of {ROUNDS} rounds, of which the defaults take the first few.",
        "",
        "| data | k | version | seconds per round | × earlier | rounds by default | their seconds | × earlier |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        both = {one["version"]: one for one in report["results"] if one["data"] == case["data"]}
        usual = {name: one["seconds"][min(one["usual_rounds"], ROUNDS) - 1] for name, one in both.items()}
        for name, one in both.items():
            lines.append(
                f"| {case['data']} | {case['parameters']['rank']} | {name} | {one['seconds'][-1] / ROUNDS:.3f} | "
                f"{one['seconds'][-1] / both['earlier']['seconds'][-1]:.2f} | {one['usual_rounds']} | "
                f"{usual[name]:.2f} | {usual[name] / usual['earlier']:.2f} |"
            )
    return "\n".join(lines) + "\n"


def plot(report: dict) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(CASES), figsize=(12, 3.6), layout="constrained")
    for axis, case in zip(axes, CASES):
        for one in report["results"]:
            if one["data"] != case["data"]:
                continue
            colour, label = ("tab:blue", "this version") if one["version"] == "this" else ("tab:orange", "earlier")
            axis.plot(one["seconds"], one["objective"], color=colour, marker=".", label=label)
            last = min(one["usual_rounds"], len(one["seconds"])) - 1
            axis.plot(one["seconds"][last], one["objective"][last], "o", color=colour, markersize=9, mfc="none")
        axis.set_title(f"{case['data']}, rank {case['parameters']['rank']}", fontsize=9)
        axis.set_xlabel("seconds")
        axis.set_xlim(left=0)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("objective")
    axes[0].legend(title="a dot a round;\na ring where the defaults stop", title_fontsize=8, fontsize=8)
    for ending in ("png", "svg"):
        metadata = {"Date": None} if ending == "svg" else None
        figure.savefig(FIGURES / f"leml_versions.{ending}", dpi=120, metadata=metadata)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--earlier", type=Path, help="a checkout of the version to compare with")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plot-only", action="store_true")
    parser.add_argument("--cell")
    arguments = parser.parse_args()
    if arguments.cell:
        cell = json.loads(arguments.cell)
        print(json.dumps(measure(cell, cell["threads"])))
        return
    if not arguments.plot_only:
        if arguments.earlier is None:
            parser.error("--earlier must name a checkout of the version to compare with")
        store(RESULT, run(arguments.earlier.resolve(), arguments.threads))
    report = json.loads(RESULT.read_text())
    RESULT.with_suffix(".md").write_text(table(report))
    plot(report)


if __name__ == "__main__":
    main()
