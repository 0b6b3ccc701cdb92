"""``--report`` for the verbs that measure: one HTML file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tagwise.cli.options import RowOptions
from tagwise.cli.output import say

if TYPE_CHECKING:
    from tagwise.cli.evaluate import Evaluated

__all__ = ["check_report", "report_option", "write_findings"]

Function = TypeVar("Function", bound=Callable[..., Any])


def report_option(function: Function) -> Function:
    """``--report``."""
    return click.option(
        "--report",
        metavar="FILE.html",
        help="Write a report for people as well: one HTML file with curves, a table of all tags, and examples with "
        "the words that speak for each tag. Needs the extra plots.",
    )(function)


def check_report(report: str | None, file: str, rows: RowOptions) -> None:
    """Refuse a report that could not be written, before any work."""
    if report is None:
        return
    from tagwise.cli.rows import holds_matrix
    from tagwise.exceptions import InvalidInputError
    from tagwise.reports.html import check_report_path

    if holds_matrix(file, rows):
        raise InvalidInputError(f"--report shows words and texts, but {file} holds a matrix; leave it out.")
    check_report_path(report)


def write_findings(
    found: Evaluated, report: str, model: str, source: str, ks: tuple[int, ...], *, calibrated_on_them: bool = False
) -> None:
    """The report on one tagger; ``source`` says which rows were measured on."""
    from tagwise.reports import gather_findings, write_report

    rows = found.rows
    assert rows is not None
    findings = gather_findings(
        found.model,
        rows.texts,
        rows.tags,
        rows.known,
        ks=ks,
        evaluation=found.evaluation,
        calibrated_on_them=calibrated_on_them and found.calibrated,
    )
    title = f"Tagger “{Path(model).absolute().name}”"
    write_report(findings, report, title=title, source=f"{model}, measured on {source}")
    say(f"Report written to {report}.")
