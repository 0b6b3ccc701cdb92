"""What has moved since training: the comparison as lines for people, and as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike

import numpy as np

from tagwise.inspection.drift import Drift
from tagwise.persistence.atomic import atomic_write
from tagwise.progress import counted
from tagwise.reports import plots
from tagwise.reports.html import check_report_path, page_html
from tagwise.reports.sections import figure, percent, scrolled, section, text

__all__ = ["LEVEL", "Compared", "compared_figures", "verdict", "write_drift_report"]

LEVEL = 0.05
"""P-values up to this are said to be more than chance."""
# Of many texts, every trifle is certain: a stability index, and a gap between two shares, must be large too.
_SHIFT, _GAP = 0.1, 0.01
_MOST_TAGS, _MOST_WORDS = 200, 60
_MOVED, _STABLE = '<td class="no">moved</td>', '<td class="yes">as then</td>'


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


def p_text(p: float) -> str:
    """A p-value for people."""
    return "" if p != p else "< 0.001" if p < 0.001 else f"{p:.3f}"


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
        What the labels are called.
    unknown_words : sequence of (str, int)
        Words that training did not see, and in how many recent texts each is; from ``Tagger.unknown_words``.
    title, source : str
        The heading, and what was compared.

    Raises
    ------
    TagwiseError
        matplotlib is not installed.
    """
    check_report_path(path)
    parts = [_figures_section(drift), _tags_section(drift, tags)]
    links = {"figures": "Figures", "tags": "Tags"}
    if unknown_words:
        parts.append(_words_section(drift, unknown_words))
        links["words"] = "New words"
    if drift.answers is not None and drift.answered:
        parts.append(_answers_section(drift))
        links["answers"] = "Answers"
    rows = f"{drift.recent.rows:,} recent texts, compared with {drift.reference.rows:,} of the time of training"
    page = page_html(title, source, rows, links, parts).encode()
    atomic_write(path, lambda stream: stream.write(page))


def _table(columns: Sequence[str], rows: str, name: str, *, tall: bool = False) -> str:
    head = "".join(f'<th scope="col">{text(column)}</th>' for column in columns)
    return scrolled(f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>", name=name, tall=tall)


def _figures_section(drift: Drift) -> str:
    rows = "".join(
        f'<tr><th scope="row">{text(one.name)}</th><td>{text(one.then)}</td><td>{text(one.now)}</td>'
        f"<td>{text(p_text(one.p))}</td>{_MOVED if one.moved else _STABLE}</tr>"
        for one in compared_figures(drift)
    )
    then, now = (one.score_counts / one.rows for one in (drift.reference, drift.recent))
    caption = (
        "The texts of then are cut into tenths by the score of their best tag. Where the bars of now are lower on the "
        "right, the tagger is less sure than it was."
    )
    return section(
        "figures",
        "Has anything moved?",
        _table(("", "then", "now", "p", ""), rows, "compared"),
        '<div class="plots">',
        figure(plots.draw_score_bins(then, now), f"Best scores (stability index {drift.score_psi:.3f})", caption),
        "</div>",
        lead=verdict(drift),
    )


def _tags_section(drift: Drift, tags: Sequence[str]) -> str:
    moved = drift.moved_labels(LEVEL)
    then, now = drift.reference, drift.recent
    rows = "".join(
        f'<tr><th scope="row">{text(tags[label])}</th><td>{percent(then.label_counts[label] / then.rows, 2)}</td>'
        f"<td>{percent(now.label_counts[label] / now.rows, 2)}</td><td>{drift.label_psi[label]:.3f}</td>"
        f"<td>{text(p_text(float(drift.label_q[label])))}</td></tr>"
        for label in moved[:_MOST_TAGS].tolist()
    )
    columns = ("tag", "then, % of texts", "now, % of texts", "stability index", "q")
    shown = _table(columns, rows, "moved", tall=True) if rows else '<p class="none">No tag has moved.</p>'
    more = f" The {_MOST_TAGS} that moved most are listed." if len(moved) > _MOST_TAGS else ""
    lead = (
        f"{len(moved):,} of {counted(len(drift.label_q), 'tag')} are among the first five suggestions more or less "
        "often than then. q is the p-value adjusted for the number of tags: of those listed, a twentieth at most have "
        f"not moved, on average.{more}"
    )
    return section("tags", "Which tags?", shown, lead=lead)


def _words_section(drift: Drift, unknown_words: Sequence[tuple[str, int]]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{text(word)}</th><td>{n_texts:,}</td><td>{percent(n_texts / drift.recent.rows)}</td></tr>'
        for word, n_texts in unknown_words[:_MOST_WORDS]
    )
    lead = "Words of the recent texts that training did not see, those of most texts first. Training again learns them."
    return section(
        "words", "New words", _table(("word", "texts", "% of texts"), rows, "words-table", tall=True), lead=lead
    )


def _answers_section(drift: Drift) -> str:
    assert drift.answers is not None
    lead = (
        f"Of {drift.answered:,} suggestions with an answer, {drift.accepted:,.0f} were accepted; by their "
        f"probabilities {drift.expected:,.0f} should have been (p {p_text(drift.answers_p)})."
    )
    caption = (
        "Are suggestions with a probability of 80 % accepted 80 % of the time? Below the dashed line the tagger "
        "promises too much. Larger dots have more answers."
    )
    drawn = figure(plots.draw_reliability(drift.answers), "Accepted, by probability", caption)
    return section("answers", "Do people still agree?", '<div class="plots">', drawn, "</div>", lead=lead)
