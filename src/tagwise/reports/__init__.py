"""Tables, plots and pages about fitted models; what draws needs matplotlib (``pip install 'tagwise[plots]'``).

``gather_findings`` measures a tagger, ``write_report`` makes one HTML file of what it found.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["ComparedModel", "Comparison", "Findings", "gather_findings", "plot_reliability", "write_report"]

if TYPE_CHECKING:
    from tagwise.reports.comparison import ComparedModel, Comparison
    from tagwise.reports.findings import Findings, gather_findings
    from tagwise.reports.html import write_report
    from tagwise.reports.reliability import plot_reliability

_HOME_OF = {
    "ComparedModel": "tagwise.reports.comparison",
    "Comparison": "tagwise.reports.comparison",
    "Findings": "tagwise.reports.findings",
    "gather_findings": "tagwise.reports.findings",
    "plot_reliability": "tagwise.reports.reliability",
    "write_report": "tagwise.reports.html",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tagwise.reports' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
