"""Plots and pages about fitted taggers; they need matplotlib and jinja2 (``pip install 'tagwise[plots]'``).

:func:`gather_findings` measures a tagger, :func:`write_report` turns the findings into one HTML file.
:func:`write_drift_report` writes one that compares recent texts with reference texts.
"""

from tagwise.reports.comparison import ComparedModel, Comparison
from tagwise.reports.drift import write_drift_report
from tagwise.reports.findings import Findings, gather_findings
from tagwise.reports.pages import write_report
from tagwise.reports.plots import plot_reliability

__all__ = [
    "ComparedModel",
    "Comparison",
    "Findings",
    "gather_findings",
    "plot_reliability",
    "write_drift_report",
    "write_report",
]
