"""Plots and pages about fitted taggers; drawing needs matplotlib (``pip install 'tagwise[plots]'``).

:func:`gather_findings` measures a tagger, :func:`write_report` turns the findings into one HTML file.
"""

from tagwise.reports.comparison import ComparedModel, Comparison
from tagwise.reports.findings import Findings, gather_findings
from tagwise.reports.html import write_report
from tagwise.reports.plots import plot_reliability

__all__ = [
    "ComparedModel",
    "Comparison",
    "Findings",
    "gather_findings",
    "plot_reliability",
    "write_report",
]
