"""``tagwise reproduce``: run a paper's tables and figures again and put the paper's values beside ours."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tagwise.cli.options import examples, json_option
from tagwise.cli.output import show, show_json

if TYPE_CHECKING:
    from tagwise.reproduction.cells import Cell
    from tagwise.reproduction.configuration import Figure, Study, Table
    from tagwise.reproduction.runner import Outcome

__all__ = ["command"]


@click.command(
    name="reproduce",
    short_help="Run a paper's tables again, its values beside ours.",
    epilog=examples(
        "tagwise reproduce leml --quick",
        "tagwise reproduce leml --table 6",
        "tagwise reproduce mse --list",
        "tagwise reproduce reml --list --json",
    ),
)
@click.argument("paper")
@click.option("--table", "number", help='Only what this table or figure shows, such as 6, "figure 1" or theory.')
@click.option("--quick", is_flag=True, help="A small part of the cells: a few minutes, into quick-results.")
@click.option("--list", "only_list", is_flag=True, help="Show what there is and how much of it is done, and stop.")
@click.option("--out", type=click.Path(file_okay=False), help="Folder for results [default: results in the folder].")
@click.option(
    "--folder", type=click.Path(), help="Folder of the configurations [default: reproduction, here or above]."
)
@click.option("--threads", default=-1, show_default=True, help="Threads; -1 uses all cores.")
@click.option("--pages-only", is_flag=True, help="Make the pages anew from the stored results; run nothing.")
@json_option
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

    Results that are stored already are not computed again, so a run that was stopped goes on where it stopped.
    """
    from tagwise.reproduction.configuration import read_studies
    from tagwise.reproduction.folder import find_folder
    from tagwise.reproduction.results import ResultFolder

    place = find_folder(folder, paper)
    target = Path(out) if out else place / ("quick-results" if quick else "results")
    studies = read_studies(place, paper)
    wanted = _wanted(studies, number, quick)
    if only_list:
        _show(_listed(studies, wanted, ResultFolder(target)), as_json)
        return
    outcome = None if pages_only else _run(studies, wanted, ResultFolder(target), threads)
    pages = _pages(place, target)
    if as_json:
        show_json(
            {
                "ran": 0 if outcome is None else outcome.ran,
                "done_before": 0 if outcome is None else outcome.finished_before,
                "failed": {cell.title: message for cell, message in ([] if outcome is None else outcome.failed)},
                "pages": pages,
            }
        )
    else:
        for page in pages:
            show(page)
    if outcome is not None and outcome.failed:
        for cell, message in outcome.failed:
            click.echo(f"failed: {cell.title}: {message}", err=True)
        sys.exit(1)


def _run(studies: list[Study], wanted: list[Cell], folder: Any, threads: int) -> Outcome:
    from tagwise.parallel import thread_count
    from tagwise.reproduction.datasets import check_at_hand
    from tagwise.reproduction.runner import run_cells

    check_at_hand(studies, {cell.dataset for cell in wanted if cell.study.experiment != "excess-risk"})
    progress = _Bar() if sys.stderr.isatty() else _Lines()
    with progress:
        return run_cells(wanted, folder, progress, threads=thread_count(threads))


def _pages(place: Path, target: Path) -> list[str]:
    from tagwise.reproduction.folder import papers_in
    from tagwise.reproduction.pages import make_pages

    return [str(page) for page in make_pages(place, target, papers_in(place))]


def _wanted(studies: list[Study], number: str | None, quick: bool) -> list[Cell]:
    """The cells to run; with a number, those that this table or figure shows."""
    from tagwise.reproduction.cells import cells_of, needed_by

    if number is None:
        return [cell for study in studies for cell in cells_of(study, quick=quick)]
    items = _items(studies, number) or _items(studies, f"figure {number}")
    if not items:
        known = ", ".join(item.number for study in studies for item in study.shown)
        raise click.BadParameter(f"there is no {number!r}; there are {known}.", param_hint="--table")
    found = {
        (study.name, cell.file_name): cell
        for study, item in items
        for cell in cells_of(study, quick=quick)
        if needed_by(item, cell)
    }
    if not found:
        raise click.BadParameter(f"--quick leaves nothing of {number!r}; run it without.", param_hint="--table")
    return list(found.values())


def _items(studies: list[Study], number: str) -> list[tuple[Study, Table | Figure]]:
    return [(study, item) for study in studies for item in study.shown if _same(item, number)]


def _same(item: Table | Figure, number: str) -> bool:
    asked, full = (text.lower().replace("-", " ").strip() for text in (number, item.number))
    # "table 3 (AUC)" is a part of table 3, "theory, n" one of the theory.
    whole = full.split(" (")[0].split(",")[0]
    return asked in (full, whole) or f"table {asked}" == whole


def _listed(studies: list[Study], wanted: list[Cell], folder: Any) -> list[dict[str, Any]]:
    """What there is, and how much of it is done."""
    from tagwise.reproduction.runner import plan

    listed = []
    for study in studies:
        cells = plan([cell for cell in wanted if cell.study is study])
        if not cells:
            continue
        done = sum(folder.read(cell) is not None for cell in cells)
        shown = [{"number": item.number, "title": item.title} for item in study.shown]
        listed.append({"name": study.name, "title": study.title, "done": done, "cells": len(cells), "shown": shown})
    return listed


def _show(listed: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        show_json(listed)
        return
    for study in listed:
        show(f"{study['name']}: {study['title']}: {study['done']} of {study['cells']} cells done")
        for item in study["shown"]:
            show(f"  {item['number']}: {item['title']}")


def _headline(result: dict[str, Any]) -> str:
    if "error" in result:
        return str(result["error"])
    if "chosen" in result:
        return ", ".join(f"{name} = {value}" for name, value in result["chosen"].items())
    return "  ".join(f"{name} {value:.4g}" for name, value in result["values"].items())


class _Lines:
    """A line a cell, for logs."""

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
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Remaining

        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            Remaining(),
            console=Console(stderr=True, highlight=False),
            # Cells take seconds to many minutes: the whole run says how fast it is, not rich's last half minute.
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


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else (f"{minutes} min {rest:02d} s" if minutes else f"{rest} s")
