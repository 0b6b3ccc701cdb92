"""Models on a Dask cluster of this machine: are they the local ones, what do they hold, send and cost?

    python benchmarks/scaling.py [--quick] [--only equality] [--fresh] [--pages-only]

- equality: debtags and yso-finna-en-min4 in 7 unequal parts on 1 to 4 workers, against the fit of all rows here.
- memory: yso-finna-en as text files, by `tagwise train --dask`, on 3 workers with a limit of 1 GB each.
- scaling: LEML and Cascade, 1, 2 and 4 workers by 1, 2 and 4 times the rows: seconds, bytes, load of the scheduler.

Scheduler and workers, of one thread, are processes of their own. From the runs of the last part, scaling_costs.py
fits what a step costs, and works out what clusters of 8 to 512 workers would take. One that has its result is
not run again. `--quick` is a trial on small sets that leaves the stored figures alone. Writes
results/scaling.json after each cell, and from it results/scaling.md, docs/figures/scaling*.* and a part of
docs/scaling.md.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from machine import description
from memory import run_cell
from pages import replace_between, store
from scaling_costs import support_sums
from scaling_page import BEGIN, END, draw, page, section

RESULTS = Path(__file__).parent / "results"
DOCUMENT = Path(__file__).parent.parent / "docs" / "scaling.md"
FIGURES = DOCUMENT.parent / "figures"
PARTS = ("equality", "memory", "scaling")
# Seven parts that differ: where each ends, as a share of the rows.
CUTS = (0.02, 0.32, 0.37, 0.57, 0.70, 0.80, 1.0)
WORKERS = (1, 2, 3, 4)
# In float64 too, where rounding leaves more of the digits alone. BinaryRelevance of the second set has no room here.
EQUALITY = [
    *(("debtags", model, "float32") for model in ("LEML", "REML", "BinaryRelevance", "Cascade")),
    *(("debtags", model, "float64") for model in ("LEML", "Cascade")),
    *(("yso-finna-en-min4", model, "float32") for model in ("LEML", "REML", "Cascade")),
    ("yso-finna-en-min4", "LEML", "float64"),
]
SCALED = {"set": "yso-finna-en", "rows": 20_000, "rank": 50, "parts": 4}
QUICK_SCALED = {"set": "debtags-sample", "rows": 1_000, "rank": 8, "parts": 2}
TEXTS = {"set": "yso-finna-en", "copies": 1, "repeats": 24, "files": 24, "workers": 3, "limit": "1GB"}
QUICK_TEXTS = {"set": "debtags-sample", "copies": 2, "repeats": 1, "files": 4, "workers": 2, "limit": "1GB"}
SHARES = (1, 2, 4)


def made(model: str, rank: int) -> Any:
    """The model that is compared; the threads are those of one worker."""
    from tagwise import LEML, REML, BinaryRelevance, Cascade

    kinds = {
        "LEML": lambda: LEML(rank=rank),
        "REML": lambda: REML(rank=rank, sparse_part="support"),
        "BinaryRelevance": BinaryRelevance,
        "Cascade": Cascade,
    }
    return kinds[model]()


# ---------------------------------------------------------------------- equality


def measure_equality(cell: dict[str, Any]) -> dict[str, Any]:
    """One model of one set: here, and on each number of workers."""
    from clusters import cluster_of

    from tagwise.data import load_dataset
    from tagwise.distributed import fit

    warnings.simplefilter("ignore")
    data = load_dataset(cell["set"])
    X, Y, X_test = (matrix.astype(cell["dtype"]) for matrix in (data.X_train, data.Y_train, data.X_test))
    start = time.perf_counter()
    local = made(cell["model"], cell["rank"]).set_params(n_jobs=os.cpu_count()).fit(X, Y)
    result: dict[str, Any] = {"local_seconds": time.perf_counter() - start, "rows": X_test.shape[0], "runs": []}
    answers = local.predict_topk(X_test, 6)
    with tempfile.TemporaryDirectory() as folder:
        parts = write_parts(X, Y, Path(folder), cuts_of(X.shape[0], CUTS))
        for workers in cell["workers"]:
            with cluster_of(workers, Path(folder) / f"cluster-{workers}") as (_, client):
                start = time.perf_counter()
                model = fit(made(cell["model"], cell["rank"]), *parts, client=client)
                seconds = time.perf_counter() - start
            found = {"workers": workers, "seconds": seconds, "sha256": digest(model)}
            found |= agreement(answers, model.predict_topk(X_test, 6))
            if cell["model"] == "LEML":
                found |= factor_differences(model, local)
            result["runs"].append(found)
            print(cell["set"], cell["model"], found, file=sys.stderr, flush=True)
    return result


def cuts_of(n_rows: int, shares: tuple[float, ...]) -> list[int]:
    """Where parts begin, and the end."""
    return [0, *(round(share * n_rows) for share in shares)]


def write_parts(X: sp.csr_matrix, Y: sp.csr_matrix, folder: Path, cuts: list[int]) -> tuple[list[Any], list[Any]]:
    """Parts of X and Y that workers read from files."""
    import dask

    lists: tuple[list[Any], list[Any]] = ([], [])
    for number, (start, stop) in enumerate(pairwise(cuts)):
        for name, matrix, parts in zip("XY", (X, Y), lists):
            path = folder / f"{name}-{number}.npz"
            sp.save_npz(path, sp.csr_matrix(matrix[start:stop]), compressed=False)
            parts.append(dask.delayed(sp.load_npz)(str(path)))
    return lists


def digest(model: Any) -> str:
    """Of all fitted arrays, also those of a model inside."""
    found = hashlib.sha256()
    for name in model._saved_arrays:
        array = getattr(model, name)
        parts = (array.indptr, array.indices, array.data) if sp.issparse(array) else (array,)
        for part in parts:
            found.update(f"{name} {part.dtype} {part.shape}".encode())
            found.update(np.ascontiguousarray(part).data)
    inside = [getattr(model, name) for name in getattr(model, "_saved_models", {})]
    return hashlib.sha256("".join([found.hexdigest(), *map(digest, inside)]).encode()).hexdigest()


def agreement(ours: tuple[np.ndarray, np.ndarray], theirs: tuple[np.ndarray, np.ndarray], k: int = 5) -> dict[str, Any]:
    """Of two answers with at least k + 1 labels per row: rows with the same k labels, and in the same order.

    Where labels differ, also by how much the scores of ranks k and k + 1, between which they changed places, differ.
    """
    same_order = (ours[0][:, :k] == theirs[0][:, :k]).all(axis=1)
    same = (np.sort(ours[0][:, :k], axis=1) == np.sort(theirs[0][:, :k], axis=1)).all(axis=1)
    scores = np.abs(ours[1][same_order][:, :k] - theirs[1][same_order][:, :k])
    gaps = (ours[1][:, k - 1] - ours[1][:, k])[~same]
    return {
        "same": float(same.mean()),
        "same_order": float(same_order.mean()),
        "score_difference": float(np.nanmax(scores, initial=0.0)),
        "different": int((~same).sum()),
        "widest_gap": float(gaps.max(initial=0.0)),
    }


def factor_differences(model: Any, local: Any) -> dict[str, float]:
    """‖A − B‖ / ‖B‖ of the factors, and of their product WHᵀ, which is never made."""
    W, H, other_W, other_H = (
        getattr(one, name).astype(np.float64)
        for one in (model, local)
        for name in ("feature_factors_", "label_factors_")
    )
    left, right = np.hstack([W, other_W]), np.hstack([H, -other_H])
    squared = float(np.sum((left.T @ left) * (right.T @ right)))
    size = float(np.sum((other_W.T @ other_W) * (other_H.T @ other_H)))
    return {
        "W": float(np.linalg.norm(W - other_W) / np.linalg.norm(other_W)),
        "H": float(np.linalg.norm(H - other_H) / np.linalg.norm(other_H)),
        "WH": float(np.sqrt(max(squared, 0.0) / size)),
    }


# ---------------------------------------------------------------------- memory


def write_texts(cell: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Rows of a set as texts of its feature words, in files: each row once, and copies with one of its words left out.

    Words repeat, so that texts are longer than those that the features were made of.
    """
    from tagwise.data import load_dataset

    data, rng = load_dataset(cell["set"]), np.random.default_rng(0)
    words, tags = list(data.feature_names), [name.replace("\t", " ") for name in data.label_names]
    X, Y, n_bytes = data.X_train, data.Y_train, 0
    n_rows = X.shape[0]
    order = rng.permutation(cell["copies"] * n_rows)
    for number, rows in enumerate(np.array_split(order, cell["files"])):
        lines = []
        for copy, row in zip((rows // n_rows).tolist(), (rows % n_rows).tolist()):
            own = [words[word] for word in X.indices[X.indptr[row] : X.indptr[row + 1]].tolist()]
            if copy and len(own) > 2:
                del own[copy % len(own)]
            text = " ".join((own or ["empty"]) * cell["repeats"])
            labels = [tags[label] for label in Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()]
            lines.append(json.dumps({"text": text, "labels": labels}))
        packed = "\n".join(lines).encode() + b"\n"
        n_bytes += len(packed)
        (folder / f"part-{number:03}.jsonl.gz").write_bytes(gzip.compress(packed, 1))
    return {"rows": len(order), "text_bytes": n_bytes, "file_bytes": sum(f.stat().st_size for f in folder.iterdir())}


class PeakOfWorkers:
    """The kernel's own peak of each process below some, while the block runs; also of those that end in it."""

    def __init__(self, roots: list[int]) -> None:
        self.roots, self.peaks, self._done = roots, {}, threading.Event()

    def __enter__(self) -> PeakOfWorkers:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        import psutil

        while not self._done.wait(0.25):
            for root in self.roots:
                with suppress(psutil.Error, OSError):
                    for process in psutil.Process(root).children(recursive=True):
                        status = Path(f"/proc/{process.pid}/status").read_text()
                        if (peak := status.partition("VmHWM:")[2].split()) and "spawn_main" in " ".join(
                            process.cmdline()
                        ):
                            self.peaks[process.pid] = 1024 * int(peak[0])


def measure_memory(cell: dict[str, Any]) -> dict[str, Any]:
    """`tagwise train --dask` of text files that are together larger than what a worker may hold."""
    from clusters import Processes, cluster_of

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "texts").mkdir()
        result: dict[str, Any] = write_texts(cell, folder / "texts")
        print(cell["set"], result, file=sys.stderr, flush=True)
        with cluster_of(cell["workers"], folder / "cluster", memory_limit=cell["limit"]) as (processes, _):
            assert isinstance(processes, Processes)
            pattern, out = str(folder / "texts" / "*.jsonl.gz"), str(folder / "tagger")
            command = [sys.executable, "-m", "tagwise", "train", pattern, "--dask", processes.address, "--out", out]
            start = time.perf_counter()
            with PeakOfWorkers([one.pid for one in processes.workers]) as peaks:
                done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
            result |= {"seconds": time.perf_counter() - start, "complaints": processes.complaints()}
        result["peaks"] = sorted(peaks.peaks.values(), reverse=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        said = json.loads(done.stdout)
        return result | {"model": said["model"], "fit_seconds": said["fit_seconds"], "tags": said["tags"]}


# ---------------------------------------------------------------------- scaling


def measure_scaling(cells: list[dict[str, Any]], keep: Callable[[dict[str, Any]], None]) -> None:
    """Fits on one cluster, whose workers have compiled before: seconds, CPU, bytes and tasks of each."""
    from clusters import cluster_of

    from tagwise.data import load_dataset
    from tagwise.distributed import fit

    warnings.simplefilter("ignore")
    data = load_dataset(cells[0]["set"])
    with (
        tempfile.TemporaryDirectory() as place,
        cluster_of(cells[0]["workers"], Path(place) / "cluster") as (processes, client),
    ):
        few = write_parts(data.X_train[:1000], data.Y_train[:1000], Path(place), cuts_of(1000, even(8)))
        for model in {cell["model"]: None for cell in cells}:
            fit(made(model, 4), *few, client=client)
        for cell in cells:
            keep({**cell, **measured_fit(cell, data, Path(place), processes, client)})


def even(parts: int) -> tuple[float, ...]:
    """Where equal parts end, as shares of the rows."""
    return tuple(np.arange(1, parts + 1) / parts)


def measured_fit(cell: dict[str, Any], data: Any, folder: Path, processes: Any, client: Any) -> dict[str, Any]:
    from clusters import Account

    from tagwise.distributed import fit

    before = os.getloadavg()[0]
    n_rows, parts = cell["share"] * cell["rows"], cell["share"] * cell["parts"]
    X, Y = (sp.csr_matrix(matrix[:n_rows]).astype(np.float32) for matrix in (data.X_train, data.Y_train))
    whole = write_parts(X, Y, folder, cuts_of(X.shape[0], even(parts)))
    model, account = made(cell["model"], cell["rank"]), Account(processes, client)
    with account:
        fit(model, *whole, client=client)
    proposer = getattr(model, "proposer_", model)
    systems, cubes = support_sums(np.bincount(Y.indices, minlength=Y.shape[1]), X.nnz / X.shape[0])
    return {
        "n": X.shape[0],
        "d": X.shape[1],
        "L": Y.shape[1],
        "z": int(X.nnz),
        "y": int(Y.nnz),
        "k": int(proposer.feature_factors_.shape[1]),
        "p": parts,
        "systems": systems,
        "cubes": cubes,
        "rounds": int(proposer.n_iter_),
        "complaints": processes.complaints(),
        "load_before": before,
        **account.figures,
        "steps": account.steps,
    }


# ---------------------------------------------------------------------- run

MEASURES = {"equality": measure_equality, "memory": measure_memory}


def cells_of(part: str, *, quick: bool) -> list[dict[str, Any]]:
    """What is measured, the quick ones first."""
    if part == "equality":
        sets = [("debtags-sample", model, dtype) for _, model, dtype in EQUALITY[:5]] if quick else EQUALITY
        shared = {"part": part, "rank": 8 if quick else 50, "workers": list(WORKERS[:2] if quick else WORKERS)}
        return [{**shared, "set": name, "model": model, "dtype": dtype} for name, model, dtype in sets]
    if part == "memory":
        return [{"part": part, **(QUICK_TEXTS if quick else TEXTS)}]
    base = QUICK_SCALED if quick else SCALED
    return [
        {"part": part, **base, "model": model, "share": share, "workers": workers}
        for workers in (2, 1, 4)
        for share in SHARES
        for model in ("LEML", "Cascade")
    ]


def key_of(cell: dict[str, Any]) -> tuple[Any, ...]:
    """What tells a cell from others."""
    known = ("part", "set", "model", "dtype", "share", "workers" if cell["part"] == "scaling" else "rank")
    return tuple(cell.get(name) for name in known)


def run(report: dict[str, Any], options: argparse.Namespace, path: Path) -> None:
    """All cells that have no result; the figures are stored after each."""
    report["machine"] = description()

    def keep(result: dict[str, Any]) -> None:
        print(json.dumps({k: v for k, v in result.items() if k != "steps"}), file=sys.stderr, flush=True)
        # Another run may have stored a cell in the meantime.
        stored = json.loads(path.read_text())["cells"] if path.exists() else []
        report["cells"] = [one for one in stored if key_of(one) != key_of(result)] + [result]
        store(path, report)

    for part in options.only or PARTS:
        done = {key_of(cell) for cell in report["cells"] if "error" not in cell and not options.fresh}
        cells = [cell for cell in cells_of(part, quick=options.quick) if key_of(cell) not in done]
        if part == "scaling":
            for workers in {cell["workers"]: None for cell in cells}:
                measure_scaling([cell for cell in cells if cell["workers"] == workers], keep)
            continue
        for cell in cells:
            before = os.getloadavg()[0]
            keep({**run_cell(__file__, cell, minutes=options.minutes), "load_before": before})


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=PARTS, help="a part; can be given several times")
    parser.add_argument("--minutes", type=float, default=40.0, help="a cell may take")
    parser.add_argument("--quick", action="store_true", help="small sets, to see that all of it runs")
    parser.add_argument("--fresh", action="store_true", help="measure cells again that have a result")
    parser.add_argument("--pages-only", action="store_true", help="make pages and pictures from the stored JSON")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="of all files that are written")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.cell:
        cell = json.loads(options.cell)
        print(json.dumps(MEASURES[cell["part"]](cell)))
        return
    if options.quick and options.out is None:
        options.out = Path(tempfile.mkdtemp(prefix="tagwise-scaling-"))
    folder, figures = options.out or RESULTS, options.out or FIGURES
    path = folder / "scaling.json"
    report = json.loads(path.read_text()) if path.exists() else {"cells": []}
    if not options.pages_only:
        run(report, options, path)
    (folder / "scaling.md").write_text(page(report), encoding="utf-8")
    draw(report, figures)
    if options.out is None:
        replace_between(DOCUMENT, BEGIN, END, section(report))
    print(page(report))


if __name__ == "__main__":
    main()
