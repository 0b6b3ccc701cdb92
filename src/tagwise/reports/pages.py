"""Reports as self-contained HTML files: no network, no other file, no server. templates/ holds the pages."""

from __future__ import annotations

import base64
import hashlib
import os
import time
from calendar import month_name
from functools import cache
from importlib.resources import files
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tagwise._version import __version__
from tagwise.exceptions import InvalidInputError
from tagwise.inspection.explanations import LEAST_SHARE
from tagwise.metrics import RANKINGS, SETS
from tagwise.progress import counted, visible
from tagwise.reports import plots
from tagwise.reports.comparison import Comparison
from tagwise.reports.figures import GROUPS, PRECISIONS, objective_curve
from tagwise.reports.findings import Findings
from tagwise.store.atomic import atomic_write, check_target
from tagwise.text.suggestion import Suggestion, WordShare

if TYPE_CHECKING:
    from jinja2 import Environment

_MARK = b'<meta name="generator" content="tagwise">'
_CHIPS = 5
_LINKS = [
    ("comparison", "Comparison"),
    ("headline", "Figures"),
    ("confidence", "How sure"),
    ("frequency", "Frequent and rare"),
    ("mistakes", "Mistakes"),
    ("tags", "Every tag"),
    ("examples", "Examples"),
    ("model", "Model"),
]


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
        Names of the model and of the file of rows, say.
    comparison : Comparison, optional
        Figures of several models on the same rows, shown first.

    Notes
    -----
    The page has the date of today (UTC). With SOURCE_DATE_EPOCH in the environment it has that date, and the same
    findings make the same bytes on any day.

    Raises
    ------
    TagwiseError
        matplotlib or jinja2 is not installed.
    """
    check_report_path(path)
    page = report_html(findings, title=title, source=source, comparison=comparison).encode()
    atomic_write(path, lambda stream: stream.write(page))


def check_report_path(path: str | PathLike[str]) -> None:
    """Refuse a report that could not be written, before any work.

    That is: a wrong file ending, a missing folder, an existing file that is not a report, or a missing library.
    """
    check_target(path, "report", ".html", ".htm")
    if Path(path).exists():
        with Path(path).open("rb") as stream:
            if _MARK not in stream.read(4096):
                raise InvalidInputError(
                    f"{str(path)!r} exists and is not a tagwise report; name another file, or remove it."
                )
    plots.require_plots()


def report_html(
    findings: Findings, *, title: str = "Tagger", source: str = "", comparison: Comparison | None = None
) -> str:
    """The page that :func:`write_report` writes."""
    training = findings.training
    sizes = {
        "training rows": training["rows"],
        "tags": training["tags"],
        "words": training["words"],
        "other features": training["features"] - training["words"] or None,
        "tags per row": training["assignments"] / training["rows"],
        "% of pairs known": None,
        "MB": round(findings.megabytes, 2),
        "seconds to fit": round(training["seconds"], 2),
        "ms per row to suggest": round(findings.predict_ms, 3),
    }
    if training["known_pairs"] is not None:
        known = 100 * training["known_pairs"] / (training["rows"] * training["tags"])
        sizes["% of pairs known"] = round(known, 2)
    # n_jobs and verbose do not change the model.
    settings = {name: value for name, value in findings.settings.items() if name not in ("n_jobs", "verbose")}
    return _page(
        "report.html",
        title=title,
        source=source,
        links=_LINKS if comparison else _LINKS[1:],
        found=findings,
        compared=comparison,
        ks=[int(name.partition("@")[2]) for name in findings.evaluation.metrics if name.startswith("P@")],
        rankings=RANKINGS,
        sets=SETS,
        tag_rows=np.asarray(training["tag_rows"]),
        reason=findings.reason.removeprefix(f"{findings.model}: "),
        sizes=[(name, value) for name, value in sizes.items() if value is not None],
        settings=sorted(settings.items()),
        curve_of_fit=objective_curve(findings.history),
    )


def write_page(path: str | PathLike[str], template: str, **values: Any) -> None:
    """Write a page of one of the templates; ``values`` are what it shows."""
    check_report_path(path)
    page = _page(template, **values).encode()
    atomic_write(path, lambda stream: stream.write(page))


def _page(template: str, **values: Any) -> str:
    plots.require_plots()
    from markupsafe import Markup

    style, more, script = (
        files("tagwise.reports").joinpath(name).read_text(encoding="utf-8")
        for name in ("look/look.css", "templates/report.css", "templates/report.js")
    )
    # Should escaping ever fail, the browser still runs only this script and loads nothing.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = time.gmtime(int(epoch) if epoch.isdecimal() else time.time())
    return (
        _templates()
        .get_template(template)
        .render(
            **values,
            date=f"{moment.tm_mday} {month_name[moment.tm_mon]} {moment.tm_year}",
            version=__version__,
            policy=Markup(policy),
            style=Markup(style + more),
            script=Markup(script),
        )
    )


@cache
def _templates() -> Environment:
    """The templates; every value that they show is escaped, with the characters visible that could harm a terminal."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    environment = Environment(
        loader=PackageLoader("tagwise.reports"),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else visible(str(value)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(plots=plots, groups=GROUPS, precisions=PRECISIONS, least_share=LEAST_SHARE)
    environment.filters.update(
        counted=counted,
        number=number,
        p_value=p_value,
        percent=percent,
        prose=lambda text: Markup(escape(visible(text, "\t\n\r"))),
        shares=_shares,
        # The spaces of a character n-gram are made visible.
        spaced=lambda word: word.replace(" ", "␣") if word.startswith("char:") else word,
        telling=_telling,
        visible=visible,
    )
    return environment


def percent(value: float, digits: int = 1) -> str:
    """A share in percent, without the sign; a dash for NaN."""
    return "–" if value != value else f"{100 * value:.{digits}f}"


def number(value: Any) -> str:
    """Display form of a number; other values as text."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return str(value)
    return f"{value:,}" if isinstance(value, Integral) else f"{value:,.4g}"


def p_value(p: float) -> str:
    """Display form of a p-value; empty for NaN."""
    return "" if p != p else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _shares(suggestion: Suggestion, words: list[str]) -> dict[str, float]:
    """The share of each word in the score of a suggestion."""
    shares = {part.word: part.share for part in suggestion.why or ()}
    return {word: shares.get(word, 0.0) for word in words}


def _telling(suggestion: Suggestion) -> list[WordShare]:
    """The words with the largest shares."""
    return [part for part in suggestion.why or () if abs(part.share) >= LEAST_SHARE][:_CHIPS]
