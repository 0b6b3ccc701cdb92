"""``python -m reproduction``: run a paper's tables and figures again and put the paper's values beside ours."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from reproduction.configuration import Cell, Figure, Study, Table, cells_of, needed_by, papers_in, read_studies
from reproduction.experiments import check_datasets
from reproduction.pages import make_pages
from reproduction.results import Results
from reproduction.runner import Outcome, plan, run_cells
from tagwise.cli.output import show, show_json
from tagwise.exceptions import InvalidInputError, TagwiseError
from tagwise.parallel import thread_count

HERE = Path(__file__).parent


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paper")
@click.option("--table", "number", help='Only this table or figure, such as 6, "figure 1" or theory.')
@click.option("--quick", is_flag=True, help="A small part of the cells, in a few minutes, into quick-results.")
@click.option("--list", "only_list", is_flag=True, help="List the tables and figures and how many cells are done.")
@click.option("--out", type=click.Path(file_okay=False), help="Folder for results [default: results in the folder].")
@click.option("--folder", type=click.Path(), help="Folder of the configurations [default: the one of this package].")
@click.option("--threads", default=-1, show_default=True, help="Threads; -1 uses all cores.")
@click.option("--pages-only", is_flag=True, help="Only write the pages again, from the stored results.")
@click.option("--json", "as_json", is_flag=True, help="Write the result as JSON, for programs.")
def command(
    paper: str,
    number: str | None,
    quick: bool,
    only_list: bool,
    out: str | None,
    folder: str | None,
    threads: int,
    pages_only: bool,
    as_json: bool,
) -> None:
    """Run the tables and figures of PAPER (leml, reml or mse) and write pages: the paper's value beside ours.

    Stored results are not computed again, so a run that was interrupted resumes where it stopped.
    """
    place = Path(folder) if folder else HERE
    studies = read_studies(place, paper)
    if not studies:
        known = ", ".join(papers_in(place)) or "none"
        raise InvalidInputError(f"{place} has no configuration of {paper} ({paper}/*.toml); it has {known}.")
    target = Path(out) if out else place / ("quick-results" if quick else "results")
    results = Results(target)
    cells = wanted_cells(studies, number, quick)
    if only_list:
        _list(studies, cells, results, as_json)
        return
    outcome = Outcome(ran=0, finished_before=0, failed=())
    if not pages_only:
        check_datasets(cells)
        with _Bar() if sys.stderr.isatty() else _Lines() as progress:
            outcome = run_cells(cells, results, progress, threads=thread_count(threads))
    pages = [str(page) for page in make_pages(place, target, papers_in(place))]
    if as_json:
        failed = {cell.title: message for cell, message in outcome.failed}
        show_json({"ran": outcome.ran, "done_before": outcome.finished_before, "failed": failed, "pages": pages})
    else:
        for page in pages:
            show(page)
    for cell, message in outcome.failed:
        click.echo(f"failed: {cell.title}: {message}", err=True)
    if outcome.failed:
        sys.exit(1)


def wanted_cells(studies: list[Study], number: str | None, quick: bool) -> list[Cell]:
    """The cells to run; with a number, those that this table or figure shows."""
    if number is None:
        return [cell for study in studies for cell in cells_of(study, quick=quick)]
    items = _items(studies, number) or _items(studies, f"figure {number}")
    if not items:
        known = ", ".join(item.number for study in studies for item in study.shown)
        raise click.BadParameter(f"there is no {number!r}; there are {known}.", param_hint="--table")
    found = {
        (study.name, cell.key): cell
        for study, item in items
        for cell in cells_of(study, quick=quick)
        if needed_by(item, cell)
    }
    if not found:
        raise click.BadParameter(f"--quick leaves nothing of {number!r}; run it without.", param_hint="--table")
    return list(found.values())


def is_named(item: Table | Figure, number: str) -> bool:
    """Whether ``--table NUMBER`` means this table or figure."""
    asked, full = (text.lower().replace("-", " ").strip() for text in (number, item.number))
    # "table 3 (AUC)" is a part of table 3, "theory, n" one of the theory.
    whole = full.split(" (")[0].split(",")[0]
    return asked in (full, whole) or f"table {asked}" == whole


def _items(studies: list[Study], number: str) -> list[tuple[Study, Table | Figure]]:
    return [(study, item) for study in studies for item in study.shown if is_named(item, number)]


def _list(studies: list[Study], wanted: list[Cell], results: Results, as_json: bool) -> None:
    """Write what there is, and how much of it is done."""
    listed: list[dict[str, Any]] = []
    for study in studies:
        cells = plan([cell for cell in wanted if cell.study is study])
        if cells:
            done = sum(results.read(cell) is not None for cell in cells)
            shown = [{"number": item.number, "title": item.title} for item in study.shown]
            listed.append({"name": study.name, "title": study.title, "done": done, "cells": len(cells), "shown": shown})
    if as_json:
        show_json(listed)
        return
    for entry in listed:
        show(f"{entry['name']}: {entry['title']}: {entry['done']} of {entry['cells']} cells done")
        for item in entry["shown"]:
            show(f"  {item['number']}: {item['title']}")


class _Lines:
    """One line per cell, for logs."""

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def begin(self, total: int, finished: int) -> None:
        self.total, self.count, self.ran, self.start = total, finished, 0, time.perf_counter()
        click.echo(f"{finished} of {total} cells are done already", err=True)

    def started(self, cell: Cell) -> None:
        pass

    def finished(self, cell: Cell, seconds: float, result: dict[str, Any]) -> None:
        self.count += 1
        self.ran += 1
        left = (time.perf_counter() - self.start) / self.ran * (self.total - self.count)
        took = f"{seconds:.1f} s; about {_clock(left)} left"
        click.echo(f"[{self.count}/{self.total}] {cell.title}: {_headline(result)} ({took})", err=True)


class _Bar:
    """A bar with the cells done and the time left, for terminals."""

    def __enter__(self) -> _Bar:
        self.bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False),
            # Cells take seconds to many minutes: the speed of the whole run counts, not that of the last half minute.
            speed_estimate_period=1e9,
        )
        self.bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.stop()

    def begin(self, total: int, finished: int) -> None:
        self.task = self.bar.add_task("", total=total, completed=finished)

    def started(self, cell: Cell) -> None:
        self.bar.update(self.task, description=cell.title)

    def finished(self, cell: Cell, seconds: float, result: dict[str, Any]) -> None:
        if "error" in result:
            self.bar.console.print(f"failed: {cell.title}: {result['error']}", markup=False)
        self.bar.advance(self.task)


def _headline(result: dict[str, Any]) -> str:
    if "error" in result:
        return str(result["error"])
    if "chosen" in result:
        return ", ".join(f"{name} = {value}" for name, value in result["chosen"].items())
    return "  ".join(f"{name} {value:.4g}" for name, value in result["values"].items())


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else (f"{minutes} min {rest:02d} s" if minutes else f"{rest} s")


if __name__ == "__main__":
    try:
        command(prog_name="python -m reproduction")
    except TagwiseError as error:
        click.echo(f"reproduction: {error}", err=True)
        sys.exit(1)
