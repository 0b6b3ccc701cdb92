"""``python -m reproduction``: run a paper's tables and figures again and put the paper's values beside ours."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from reproduction.configuration import Cell, Figure, Study, Table, cells_of, needed_by, papers_in, read_studies
from reproduction.experiments import check_datasets
from reproduction.pages import make_pages
from reproduction.results import Results
from reproduction.runner import Outcome, Progress, plan, run_cells
from tagwise.cli.main import run
from tagwise.cli.output import show, show_json
from tagwise.exceptions import InvalidInputError
from tagwise.parallel import thread_count

__all__ = ["Request", "is_named", "reproduce", "wanted_cells"]


@dataclass(frozen=True)
class Request:
    """The options of ``tagwise reproduce``, which documents them."""

    folder: Path
    paper: str
    number: str | None = None
    quick: bool = False
    only_list: bool = False
    out: str | None = None
    threads: int = -1
    pages_only: bool = False
    as_json: bool = False


def reproduce(asked: Request) -> None:
    """Run the cells that are asked for and write the pages; ends with exit code 1 if a cell failed."""
    studies = read_studies(asked.folder, asked.paper)
    if not studies:
        known = ", ".join(papers_in(asked.folder)) or "none"
        raise InvalidInputError(
            f"{asked.folder} has no configuration of {asked.paper} ({asked.paper}/*.toml); it has {known}."
        )
    target = Path(asked.out) if asked.out else asked.folder / ("quick-results" if asked.quick else "results")
    results = Results(target)
    cells = wanted_cells(studies, asked.number, asked.quick)
    if asked.only_list:
        _list(studies, cells, results, asked.as_json)
        return
    outcome = Outcome(ran=0, finished_before=0, failed=())
    if not asked.pages_only:
        check_datasets(cells)
        with Progress() as progress:
            outcome = run_cells(cells, results, progress, threads=thread_count(asked.threads))
    pages = [str(page) for page in make_pages(asked.folder, target, papers_in(asked.folder))]
    if asked.as_json:
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


if __name__ == "__main__":
    run(["reproduce", *sys.argv[1:]])
