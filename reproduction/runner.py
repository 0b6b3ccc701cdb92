"""Run the cells that have no result yet; each result is stored before the next cell starts."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from reproduction.configuration import Cell, choice_of
from reproduction.experiments import run_experiment
from reproduction.results import Results
from tagwise import __version__
from tagwise.exceptions import TagwiseError
from tagwise.progress import ProgressBar

__all__ = ["Outcome", "Progress", "plan", "run_cells"]

_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")


class Progress:
    """The state of a run on standard error: a bar on a terminal, a line per cell elsewhere."""

    def __enter__(self) -> Progress:
        self._bar = ProgressBar("cells", None, steps=True).__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.__exit__(*exception)

    def begin(self, total: int, finished: int) -> None:
        """Number of cells, and how many of them earlier runs finished."""
        self._total, self._count, self._ran, self._start = total, finished, 0, time.perf_counter()
        self._bar.at(finished, total=total)
        if not self._bar.shown:
            click.echo(f"{finished} of {total} cells are done already", err=True)

    def started(self, cell: Cell) -> None:
        """The next cell."""
        left = f", about {self._time_left()} left" if self._ran else ""
        self._bar.at(note=cell.title + left)

    def finished(self, cell: Cell, seconds: float, result: dict[str, Any]) -> None:
        """Its result is stored."""
        self._count += 1
        self._ran += 1
        self._bar.at(self._count)
        if not self._bar.shown:
            took = f"{seconds:.1f} s; about {self._time_left()} left"
            click.echo(f"[{self._count}/{self._total}] {cell.title}: {_headline(result)} ({took})", err=True)

    def _time_left(self) -> str:
        left = round((time.perf_counter() - self._start) / self._ran * (self._total - self._count))
        hours, minutes, seconds = left // 3600, left // 60 % 60, left % 60
        if hours:
            return f"{hours} h {minutes:02d} min"
        return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


def _headline(result: dict[str, Any]) -> str:
    if "error" in result:
        return str(result["error"])
    if "chosen" in result:
        return ", ".join(f"{name} = {value}" for name, value in result["chosen"].items())
    return "  ".join(f"{name} {value:.4g}" for name, value in result["values"].items())


@dataclass(frozen=True)
class Outcome:
    """How a run went."""

    ran: int
    finished_before: int
    failed: tuple[tuple[Cell, str], ...]


def plan(cells: list[Cell]) -> list[Cell]:
    """The cells, each once and after the choice of hyper-parameters that it needs, grouped by study and data set."""
    groups: dict[tuple[str, str], dict[str, Cell]] = {}
    for cell in cells:
        group = groups.setdefault((cell.study.name, cell.dataset), {})
        choice = choice_of(cell)
        if choice is not None:
            group.setdefault(choice.key, choice)
        group.setdefault(cell.key, cell)
    return [cell for group in groups.values() for cell in group.values()]


def run_cells(cells: list[Cell], results: Results, progress: Progress, *, threads: int) -> Outcome:
    """Run what is not stored yet.

    A cell that fails with an error of tagwise (a method that refuses the size, say) is stored with its message, does
    not stop the others, and is tried again by the next run. An interruption keeps all finished cells.
    """
    planned = plan(cells)
    open_cells = [cell for cell in planned if results.read(cell) is None]
    progress.begin(len(planned), len(planned) - len(open_cells))
    failed = []
    for cell in open_cells:
        progress.started(cell)
        start = time.perf_counter()
        try:
            result = run_experiment(cell, results, threads)
        except (TagwiseError, MemoryError) as error:
            message = f"{type(error).__name__}: {error}"
            result = {"error": message}
            failed.append((cell, message))
        seconds = time.perf_counter() - start
        timing = {"seconds": {**result.get("seconds", {}), "cell": seconds}}
        results.write(cell, {**result, **timing, "threads": threads, "versions": _versions(), "machine": _machine()})
        progress.finished(cell, seconds, result)
    return Outcome(len(open_cells), len(planned) - len(open_cells), tuple(failed))


def _versions() -> dict[str, str]:
    """Versions of Python, tagwise and what it computes with."""
    found = {"python": platform.python_version(), "tagwise": __version__}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _machine() -> dict[str, str | int]:
    """System, kind of processor and number of cores, without the machine's name."""
    return {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count() or 1}
