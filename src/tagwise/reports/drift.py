"""Drift since training: the comparison as a table with a verdict, and as a self-contained HTML report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike

import numpy as np

from tagwise.inspection.drift import Drift
from tagwise.progress import counted
from tagwise.reports.pages import p_value, percent, write_page

LEVEL = 0.05
"""Significance level: differences with larger p-values do not count as drift."""
# With many texts, trivial differences are significant too: the stability index, or the gap between shares, must be
# large as well.
_SHIFT, _GAP = 0.1, 0.01
_MOST_TAGS, _MOST_WORDS = 200, 60


@dataclass(frozen=True)
class Compared:
    """One figure of the reference and of the recent texts."""

    name: str
    then: str
    now: str
    p: float  # NaN where there is none
    moved: str  # name of the drift in the verdict; empty if there is none
    small: str = ""  # why a significant difference does not count as drift; empty otherwise


def compared_figures(drift: Drift) -> list[Compared]:
    """Figures of the whole comparison; acceptance only if there are answers."""
    then, now = drift.reference, drift.recent
    figures = []
    if not np.isnan(drift.unknown_p):
        gap = abs(now.unknown_mean - then.unknown_mean)
        differs, large = drift.unknown_p <= LEVEL, gap >= _GAP
        words = "unknown words" if differs and large else ""
        small = f"Unknown words differ ({_p(drift.unknown_p)}), but by less than one point."
        small = small if differs and not large else ""
        before, after = (f"{percent(one.unknown_mean)}%" for one in (then, now))
        figures.append(Compared("unknown words per text", before, after, drift.unknown_p, words, small))
    empty = "texts without known words" if drift.empty_p <= LEVEL else ""
    before, after = (f"{percent(one.empty_rows / one.rows)}%" for one in (then, now))
    figures.append(Compared("texts without known words", before, after, drift.empty_p, empty))
    differs, large = drift.score_p <= LEVEL, drift.score_psi >= _SHIFT
    scores = "scores" if differs and large else ""
    small = f"Best scores differ ({_p(drift.score_p)}), but the stability index is below {_SHIFT}."
    index, small = f"{drift.score_psi:.3f}", small if differs and not large else ""
    figures.append(Compared("best scores: stability index", "–", index, drift.score_p, scores, small))
    moved, n_tags = len(drift.moved_labels(LEVEL)), len(drift.label_q)
    tags = counted(moved, "tag") if moved else ""
    figures.append(Compared("tags suggested more or less often", "–", f"{moved:,} of {n_tags:,}", float("nan"), tags))
    if drift.answered:
        before, after = (f"{percent(value / drift.answered)}%" for value in (drift.expected, drift.accepted))
        agreement = "acceptance" if drift.answers_p <= LEVEL else ""
        name = "suggestions accepted: expected, observed"
        figures.append(Compared(name, before, after, drift.answers_p, agreement))
    return figures


def verdict(drift: Drift) -> str:
    """The figures that have drifted, and why other significant differences do not count."""
    figures = compared_figures(drift)
    moved, small = ([text for text in texts if text] for texts in zip(*((one.moved, one.small) for one in figures)))
    if moved:
        found = f"Drift: {', '.join(moved)}."
    else:
        found = "No substantial drift." if small else f"No drift: no difference is significant (p ≤ {LEVEL})."
    return " ".join([found, *small])


def _p(p: float) -> str:
    shown = p_value(p)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def write_drift_report(
    drift: Drift,
    path: str | PathLike[str],
    *,
    tags: Sequence[str],
    unknown_words: Sequence[tuple[str, int]] = (),
    title: str = "Drift",
    source: str = "",
) -> None:
    """Write the comparison of recent texts with the reference as a self-contained HTML file.

    Parameters
    ----------
    drift : Drift
        From ``Tagger.drift``.
    path : path
        The ``.html`` file. An existing report is replaced atomically; any other existing file is refused.
    tags : sequence of str
        Names of the labels.
    unknown_words : sequence of (str, int)
        Words not seen in training, each with the number of recent texts that contain it; from
        ``Tagger.unknown_words``.
    title, source : str
        Heading, and a line that names the texts compared.

    Raises
    ------
    TagwiseError
        matplotlib or jinja2 is not installed.
    """
    links = [("figures", "Figures"), ("tags", "Tags")]
    links += [("words", "New words")] if unknown_words else []
    links += [("answers", "Answers")] if drift.answered else []
    write_page(
        path,
        "drift.html",
        title=title,
        source=source,
        links=links,
        drift=drift,
        figures=compared_figures(drift),
        verdict=verdict(drift),
        moved=drift.moved_labels(LEVEL),
        most_tags=_MOST_TAGS,
        tags=tags,
        unknown_words=unknown_words[:_MOST_WORDS],
    )
