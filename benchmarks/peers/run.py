"""tagwise beside its peers: each in an environment of its own, the same data, the same threads, one at a time.

    TAGWISE_DATA=... python benchmarks/peers/run.py [--only bibtex] [--only-peer pecos] [--fresh]

Installs each peer of plugins/ from PyPI on first use, trains and measures every system on every set, and writes
peers.json, and from it alone peers.md, after every cell; a cell that has its result is not run again. A peer that does
not install, fails, or passes a limit becomes a row that says why. docs/peers.md says what is measured how.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from machine import description

from peers import page
from peers.environments import InstallationError, default_folder, python_of
from peers.exchange import RESULT, Job, read_labels
from peers.plugin import PLUGINS, Plugin, find_plugins
from peers.problems import SETS, Judge, hand_out
from peers.watched import Limits, WorkerError, run_watched
from tagwise.exceptions import TagwiseError
from tagwise.store.atomic import atomic_write

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
# What makes two cells the same one.
IDENTITY = ("set", "peer", "system", "settings", "threads")


class Store:
    """peers.json and peers.md, written anew after every cell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "peers.json"
        self.report: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {"cells": []}

    def result_of(self, cell: dict[str, Any]) -> dict[str, Any] | None:
        return next((one for one in self.report["cells"] if all(one.get(k) == cell[k] for k in IDENTITY)), None)

    def put(self, cell: dict[str, Any]) -> None:
        """Takes the place of a former result of the system on the set, whatever its settings were."""
        place = (cell["set"], cell["peer"], cell["system"])
        others = [one for one in self.report["cells"] if (one["set"], one["peer"], one["system"]) != place]
        self.report["cells"] = [*others, cell]
        self.write()

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.report, indent=1) + "\n"
        atomic_write(self.path, lambda stream: stream.write(text.encode()))
        self.write_page()

    def write_page(self) -> None:
        (self.folder / "peers.md").write_text(page.full_page(self.report), encoding="utf-8")


class Runner:
    """Runs cells one after the other."""

    def __init__(self, store: Store, environments: Path, threads: int, limits: Limits) -> None:
        self.store, self.environments, self.threads, self.limits = store, environments, threads, limits
        self._pythons: dict[str, Path | InstallationError] = {}

    def python_of(self, plugin: Plugin) -> Path:
        """The plug-in's Python; an installation that failed is not tried again for every set."""
        if plugin.name not in self._pythons:
            try:
                print(f"{plugin.name}: looking for its environment, or making it", flush=True)
                self._pythons[plugin.name] = python_of(plugin, self.environments)
            except InstallationError as error:
                self._pythons[plugin.name] = error
        found = self._pythons[plugin.name]
        if isinstance(found, InstallationError):
            raise found
        return found

    def run(self, cell: dict[str, Any], plugin: Plugin, problem: Path, judge: Judge) -> dict[str, Any]:
        """A cell with its result, or with the reason why there is none."""
        done = {**cell, **judge.description(), "date": datetime.now(timezone.utc).date().isoformat()}
        reason = plugin.refusal(cell["settings"], judge.shape)
        if reason is not None:
            return {**done, "left_out": reason}
        try:
            python = self.python_of(plugin)
        except InstallationError as error:
            return {**done, "error": f"does not install: {error}"}
        work = Path(tempfile.mkdtemp(prefix="tagwise-peers-"))
        try:
            return {**done, **self._measure(cell, plugin, python, problem, work, judge)}
        except WorkerError as error:
            return {**done, "error": str(error)}
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _measure(
        self, cell: dict[str, Any], plugin: Plugin, python: Path, problem: Path, work: Path, judge: Judge
    ) -> dict[str, Any]:
        (work / "scratch").mkdir()
        results: dict[str, Any] = {}
        for phase, threads in (("train", self.threads), ("one row", 1)):
            out = work / phase.replace(" ", "-")
            out.mkdir()
            job = Job(
                phase=phase,
                plugin=str(plugin.path),
                system=cell["system"],
                settings=cell["settings"],
                threads=threads,
                problem=str(problem),
                scratch=str(work / "scratch"),
                model=str(work / "model"),
                out=str(out),
                chosen=results.get("settings_used", {}),
            )
            job.write(out / "job.json")
            command = [str(python), str(HERE / "worker.py"), str(out / "job.json")]
            run_watched(command, out / "log.txt", self.limits, dict.fromkeys(THREAD_VARIABLES, str(threads)))
            results |= json.loads((out / RESULT).read_text())
        try:
            results["metrics"] = judge.report(read_labels(work / "train"))
        except TagwiseError as error:
            raise WorkerError(f"the answer cannot be judged: {error}") from error
        return results


def wanted_cells(plugin: Plugin, name: str, threads: int) -> list[dict[str, Any]]:
    """The systems of a plug-in on a set, as JSON has them."""
    cells = [
        {"set": name, "peer": plugin.name, "system": system, "settings": settings, "threads": threads}
        for system, settings in plugin.systems.items()
    ]
    return json.loads(json.dumps(cells))


def has_result(result: dict[str, Any] | None, options: argparse.Namespace) -> bool:
    return result is not None and not options.fresh and not (options.retry and "error" in result)


def summary(cell: dict[str, Any]) -> str:
    start = f"{cell['set']}: {cell['system']}: "
    if "metrics" not in cell:
        return start + page.reason(cell)
    return start + (
        f"P@1 {100 * cell['metrics']['P@1']:.2f}, train {cell['train_seconds']:.1f} s "
        f"({cell['train_cpu_seconds']:.1f} CPU s), {cell['batch_ms_per_row']:.3f} ms/row, "
        f"one row {cell['one_row_ms']:.2f} ms, peak {cell['peak_mb']:.0f} MB, model {cell['model_mb']:.1f} MB"
    )


def run_all(options: argparse.Namespace) -> None:
    plugins = [one for one in find_plugins(options.plugins) if not options.only_peer or one.name in options.only_peer]
    if not plugins:
        raise SystemExit(f"No plug-in is named {' or '.join(options.only_peer)}.")
    unknown = set(options.only_system or ()) - {system for plugin in plugins for system in plugin.systems}
    if unknown:
        raise SystemExit(f"No system is named {' or '.join(sorted(unknown))}.")
    store = Store(options.out)
    store.report["machine"] = description()
    limits = Limits(options.minutes, options.gigabytes)
    runner = Runner(store, options.environments or default_folder(), options.threads, limits)
    for name in options.only or [name for name, one in SETS.items() if one.usual]:
        if not SETS[name].at_hand():
            print(f"{name} is not at hand: left out", flush=True)
            continue
        todo = [(plugin, cell) for plugin in plugins for cell in wanted_cells(plugin, name, options.threads)]
        if options.only_system:
            todo = [(plugin, cell) for plugin, cell in todo if cell["system"] in options.only_system]
        todo = [(plugin, cell) for plugin, cell in todo if not has_result(store.result_of(cell), options)]
        if not todo:
            print(f"{name}: all results are there", flush=True)
            continue
        with tempfile.TemporaryDirectory(prefix="tagwise-peers-problem-") as folder:
            judge = hand_out(SETS[name], Path(folder))
            for plugin, cell in todo:
                result = {**runner.run(cell, plugin, Path(folder), judge), "limits": asdict(limits)}
                print(summary(result), flush=True)
                store.put(result)
    store.write()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=SETS, help="a data set; can be given several times")
    parser.add_argument("--only-peer", action="append", metavar="NAME", help="a plug-in; can be given several times")
    parser.add_argument("--only-system", action="append", metavar="NAME", help="a system of the plug-ins, likewise")
    parser.add_argument("--threads", type=int, default=2, help="for training and batch prediction")
    parser.add_argument("--fresh", action="store_true", help="run cells again that have a result")
    parser.add_argument("--retry", action="store_true", help="run cells again that failed")
    parser.add_argument("--pages-only", action="store_true", help="make peers.md from the stored peers.json")
    parser.add_argument("--minutes", type=float, default=Limits.minutes, help="a worker may take")
    parser.add_argument("--gigabytes", type=float, default=Limits.gigabytes, help="of memory a worker may take")
    parser.add_argument("--environments", type=Path, metavar="FOLDER", help="of the peers' virtual environments")
    parser.add_argument("--plugins", type=Path, default=PLUGINS, metavar="FOLDER", help="of the plug-ins")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FOLDER", help="of peers.json and peers.md")
    options = parser.parse_args(arguments)
    if options.pages_only:
        Store(options.out).write_page()
    else:
        run_all(options)
    print((options.out / "peers.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
