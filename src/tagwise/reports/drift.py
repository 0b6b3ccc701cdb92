"""Drift since training: the comparison as lines for people, and as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike

import numpy as np

from tagwise.inspection.drift import Drift
from tagwise.progress import counted
from tagwise.reports.pages import percent, write_page

LEVEL = 0.05
"""P-values up to this are said to be more than chance."""
# Of many texts, every trifle is certain: a stability index, and a gap between two shares, must be large too.
_SHIFT, _GAP = 0.1, 0.01
_MOST_TAGS, _MOST_WORDS = 200, 60


@dataclass(frozen=True)
class Compared:
    """One figure, then and now."""

    name: str
    then: str
    now: str
    p: float  # NaN where there is none
    moved: str  # what has moved, in words; empty where nothing has


def compared_figures(drift: Drift) -> list[Compared]:
    """The figures of the whole comparison; answers where there are some."""
    then, now = drift.reference, drift.recent
    figures = []
    if not np.isnan(drift.unknown_p):
        gap = abs(now.unknown_mean - then.unknown_mean)
        words = "unknown words" if drift.unknown_p <= LEVEL and gap >= _GAP else ""
        before, after = (f"{percent(one.unknown_mean)}%" for one in (then, now))
        figures.append(Compared("unknown words of a text", before, after, drift.unknown_p, words))
    empty = "texts without a known word" if drift.empty_p <= LEVEL else ""
    before, after = (f"{percent(one.empty_rows / one.rows)}%" for one in (then, now))
    figures.append(Compared("texts without a known word", before, after, drift.empty_p, empty))
    scores = "scores" if drift.score_p <= LEVEL and drift.score_psi >= _SHIFT else ""
    figures.append(Compared("best scores: stability index", "–", f"{drift.score_psi:.3f}", drift.score_p, scores))
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
    """One sentence on the whole."""
    moved = [one.moved for one in compared_figures(drift) if one.moved]
    return f"Moved by more than chance: {', '.join(moved)}." if moved else "Nothing has moved by more than chance."


def write_drift_report(
    drift: Drift,
    path: str | PathLike[str],
    *,
    tags: Sequence[str],
    unknown_words: Sequence[tuple[str, int]] = (),
    title: str = "Drift",
    source: str = "",
) -> None:
    """Write how far recent texts are from those of the time of training, as one self-contained HTML file.

    Parameters
    ----------
    drift : Drift
        From ``Tagger.drift``.
    path : path
        The ``.html`` file. An existing report is replaced atomically; any other existing file is refused.
    tags : sequence of str
        Names of the labels.
    unknown_words : sequence of (str, int)
        Words that training did not see, and in how many recent texts each is; from ``Tagger.unknown_words``.
    title, source : str
        The heading, and what was compared.

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
