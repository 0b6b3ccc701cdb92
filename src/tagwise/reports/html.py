"""A report as one self-contained HTML file: no network, no other file, no server."""

from __future__ import annotations

import base64
import hashlib
import os
import time
from importlib.resources import files
from os import PathLike
from pathlib import Path

from tagwise._version import __version__
from tagwise.exceptions import InvalidInputError
from tagwise.persistence.atomic import atomic_write
from tagwise.reports import sections
from tagwise.reports.comparison import Comparison, comparison_section
from tagwise.reports.findings import Findings
from tagwise.reports.plots import require_matplotlib
from tagwise.reports.sections import text

__all__ = ["check_report_path", "page_html", "report_html", "write_report"]

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_MARK = b'<meta name="generator" content="tagwise">'
_LINKS = {
    "comparison": "Comparison",
    "headline": "Figures",
    "confidence": "How sure",
    "frequency": "Frequent and rare",
    "mistakes": "Mistakes",
    "tags": "Every tag",
    "examples": "Examples",
    "model": "Model",
}


def write_report(
    findings: Findings,
    path: str | PathLike[str],
    *,
    title: str = "Tagger",
    source: str = "",
    comparison: Comparison | None = None,
) -> None:
    """Write a report on a tagger, or on several compared taggers, as one self-contained HTML file.

    Parameters
    ----------
    findings : Findings
        From :func:`tagwise.reports.gather_findings`; with a comparison, those of its best model.
    path : path
        The ``.html`` file. An existing report is replaced atomically; any other existing file is refused.
    title : str
        The heading.
    source : str
        What was measured: the name of a model and of a file of rows, say.
    comparison : Comparison, optional
        Figures of several models on the same rows, shown first.

    Notes
    -----
    The page has the date of today (UTC). With SOURCE_DATE_EPOCH in the environment it has that date, and the same
    findings make the same bytes on any day.

    Raises
    ------
    TagwiseError
        matplotlib is not installed.
    """
    check_report_path(path)
    page = report_html(findings, title=title, source=source, comparison=comparison).encode()
    atomic_write(path, lambda stream: stream.write(page))


def check_report_path(path: str | PathLike[str]) -> None:
    """Refuse, before any work, a report that could not be written.

    That is: a wrong file ending, a missing folder, an existing file that is not a report, or no matplotlib.
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InvalidInputError(f"a report is an HTML file, so its name must end in .html; found {str(path)!r}.")
    if not target.parent.is_dir():
        raise InvalidInputError(f"the folder {str(target.parent)!r} of the report does not exist; create it first.")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InvalidInputError(f"the folder {str(target.parent)!r} of the report may not be written to; name another.")
    if target.is_dir():
        raise InvalidInputError(f"{str(path)!r} is a folder; name a file for the report.")
    if target.exists() and not _is_report(target):
        raise InvalidInputError(f"{str(path)!r} exists and is not a tagwise report; name another file, or remove it.")
    require_matplotlib()


def _is_report(path: Path) -> bool:
    """Whether :func:`write_report` wrote the file; only then is it replaced."""
    with path.open("rb") as stream:
        return _MARK in stream.read(4096)


def _when() -> str:
    """Today's date (UTC), or that of SOURCE_DATE_EPOCH, which makes pages the same byte for byte."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(epoch) if epoch.isdecimal() else time.time()
    moment = time.gmtime(seconds)
    return f"{moment.tm_mday} {_MONTHS[moment.tm_mon - 1]} {moment.tm_year}"


def report_html(
    findings: Findings, *, title: str = "Tagger", source: str = "", comparison: Comparison | None = None
) -> str:
    """The page that :func:`write_report` writes."""
    require_matplotlib()
    parts = [] if comparison is None else [comparison_section(comparison)]
    parts += [
        sections.headline_section(findings),
        sections.notes_section(findings),
        sections.confidence_section(findings),
        sections.frequency_section(findings),
        sections.mistakes_section(findings),
        sections.tags_section(findings),
        sections.examples_section(findings),
        sections.model_section(findings),
    ]
    links = {name: label for name, label in _LINKS.items() if name != "comparison" or comparison}
    training = findings.training
    rows = (
        f"trained on {training['rows']:,} rows with {training['tags']:,} tags, measured on {findings.evaluation.rows:,}"
    )
    return page_html(title, source, rows, links, parts)


def page_html(title: str, source: str, rows: str, links: dict[str, str], parts: list[str]) -> str:
    """A whole page; ``links`` are ids of sections and what they are called, ``parts`` are HTML."""
    here = files("tagwise.reports")
    style = "".join(here.joinpath(name).read_text(encoding="utf-8") for name in ("look.css", "report.css"))
    script = here.joinpath("report.js").read_text(encoding="utf-8")
    navigation = "".join(f'<a href="#{name}">{label}</a>' for name, label in links.items())
    # Should escaping ever fail, the browser still runs only this script and loads nothing.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">{_MARK.decode()}'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">'
        f"<title>{text(title)} · tagwise report</title>\n<style>\n{style}</style></head>\n<body>"
        f'<header><div class="inner"><h1>{text(title)}</h1><p>{text(source)}</p>'
        f'<p class="when">{_when()} · tagwise {text(__version__)} · {text(rows)}</p><nav>{navigation}</nav></div>'
        "</header>\n"
        f"<main>{''.join(parts)}</main>\n<footer>Written by tagwise {text(__version__)}. This file needs no network "
        f"and no other file.</footer>\n<script>{script}</script></body></html>\n"
    )
