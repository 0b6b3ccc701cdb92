"""Run the cells that have no result yet; each result is stored before the next cell starts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

from tagwise.exceptions import TagwiseError
from tagwise.reproduction.cells import Cell, choice_of
from tagwise.reproduction.datasets import Split, load_split, mask_of
from tagwise.reproduction.experiments import excess_risk, label_counts, speed_up
from tagwise.reproduction.machine import machine, versions
from tagwise.reproduction.measuring import fitted, metric_values
from tagwise.reproduction.methods import make_model, resolve_parameters
from tagwise.reproduction.results import ResultFolder
from tagwise.reproduction.selection import choose

__all__ = ["Outcome", "Progress", "plan", "run_cells"]

# Rows of the fit that compiles what a timed cell needs.
_WARM_UP_ROWS = 300


class Progress(Protocol):
    """What the runner tells while it runs."""

    def begin(self, total: int, finished: int) -> None:
        """So many cells, so many of them finished by earlier runs."""
        ...

    def started(self, cell: Cell) -> None:
        """A cell is next."""
        ...

    def finished(self, cell: Cell, seconds: float, result: dict[str, Any]) -> None:
        """It is stored."""
        ...


@dataclass(frozen=True)
class Outcome:
    """How a run went."""

    ran: int
    finished_before: int
    failed: tuple[tuple[Cell, str], ...]


def plan(cells: list[Cell]) -> list[Cell]:
    """The cells with the choices of hyper-parameters before them, each once, grouped by data set."""
    planned: dict[tuple[str, str], Cell] = {}
    for cell in sorted(cells, key=_order(cells)):
        choice = choice_of(cell)
        if choice is not None:
            planned.setdefault((cell.study.name, choice.file_name), choice)
        planned.setdefault((cell.study.name, cell.file_name), cell)
    return list(planned.values())


def run_cells(cells: list[Cell], folder: ResultFolder, progress: Progress, *, threads: int) -> Outcome:
    """Run what is not stored yet.

    A cell that fails with an error of tagwise (a method that refuses the size, say) is stored with its message, does
    not stop the others, and is tried again by the next run. An interruption leaves all finished cells on disk.
    """
    planned = plan(cells)
    open_cells = [cell for cell in planned if folder.read(cell) is None]
    progress.begin(len(planned), len(planned) - len(open_cells))
    failed = []
    for cell in open_cells:
        progress.started(cell)
        start = time.perf_counter()
        try:
            result = _run(cell, folder, threads)
        except (TagwiseError, MemoryError) as error:
            message = f"{type(error).__name__}: {error}"
            result = {"error": message}
            failed.append((cell, message))
        seconds = time.perf_counter() - start
        timing = {"seconds": {**result.get("seconds", {}), "cell": seconds}}
        folder.write(cell, {**result, **timing, "threads": threads, "versions": versions(), "machine": machine()})
        progress.finished(cell, seconds, result)
    return Outcome(len(open_cells), len(planned) - len(open_cells), tuple(failed))


def _order(cells: list[Cell]) -> Any:
    # Grouped by study and data set (each is loaded once), otherwise as configured: Python's sort is stable.
    groups: dict[tuple[str, str], int] = {}
    for cell in cells:
        groups.setdefault((cell.study.name, cell.dataset), len(groups))
    return lambda cell: groups[cell.study.name, cell.dataset]


def _run(cell: Cell, folder: ResultFolder, threads: int) -> dict[str, Any]:
    experiment = cell.study.experiment
    if experiment == "excess-risk":
        return excess_risk(cell, threads)
    data = load_split(cell.study, cell.dataset)
    if experiment == "label-counts":
        return label_counts(cell, data)
    if experiment == "speed-up":
        return speed_up(cell, data)
    return _choice(cell, data, threads) if cell.choice else _scores(cell, data, folder, threads)


def _fixed_parameters(cell: Cell, data: Split) -> dict[str, Any]:
    return resolve_parameters(
        cell.method.fixed(cell.dataset), cell.settings, n_labels=data.Y.shape[1], n_features=data.X.shape[1]
    )


def _choice(cell: Cell, data: Split, threads: int) -> dict[str, Any]:
    rule = cell.study.selection_of(cell.method)
    assert rule is not None, "a choice is planned only where there is a rule"
    observed = mask_of(data.Y, cell.settings, cell.seed)
    fixed = _fixed_parameters(cell, data)
    return choose(
        str(cell.method.kind),
        fixed,
        cell.method.grid_for(cell.dataset),
        rule,
        data.X,
        data.Y,
        observed,
        seed=cell.seed,
        threads=threads,
    )


def _scores(cell: Cell, data: Split, folder: ResultFolder, threads: int) -> dict[str, Any]:
    parameters = _fixed_parameters(cell, data)
    choice = choice_of(cell)
    if choice is not None:
        chosen = folder.read(choice)
        if chosen is None:
            raise TagwiseError(f"its parameters could not be chosen, see {folder.path(choice).name}")
        parameters |= chosen["chosen"]
    observed = mask_of(data.Y, cell.settings, cell.seed)
    kind = str(cell.method.kind)
    if cell.study.timed:
        few = slice(0, _WARM_UP_ROWS)
        small = make_model(kind, parameters, seed=cell.seed, threads=threads)
        fitted(small, data.X[few], data.Y[few], None if observed is None else observed[few])
        metric_values(small, cell.study.metrics, data.Y[few], data.X[few], data.Y[few])
    model = make_model(kind, parameters, seed=cell.seed, threads=threads)
    seconds, warned = fitted(model, data.X, data.Y, observed)
    values, predicting = metric_values(model, cell.study.metrics, data.Y, data.X_test, data.Y_test)
    seconds |= predicting
    if "CPU seconds" in cell.study.metrics:
        values["CPU seconds"] = seconds["fit CPU"] + seconds["predict CPU"]
    if "fit seconds" in cell.study.metrics:
        values["fit seconds"] = seconds["fit"]
    return {
        "parameters": parameters,
        "choice": None if choice is None else choice.file_name,
        "values": values,
        "seconds": seconds,
        "rounds": int(getattr(model, "n_iter_", 1)),
        "warnings": warned,
    }
