"""The sections of a report on one tagger, each a function from findings to HTML, and the pieces that they are made of.

Every string that comes from data goes through :func:`text`, and nothing else does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape
from typing import Any

import numpy as np

from tagwise.inspection.explanations import LEAST_SHARE
from tagwise.progress import counted, visible
from tagwise.reports import plots
from tagwise.reports.curves import GROUPS, objective_curve
from tagwise.reports.findings import Example, Findings, RowToCheck, TagFigures
from tagwise.reports.mistakes import PRECISIONS, Acceptance
from tagwise.text.suggestion import Suggestion

__all__ = [
    "confidence_section",
    "examples_section",
    "figure",
    "frequency_section",
    "headline_section",
    "mistakes_section",
    "model_section",
    "notes_section",
    "number",
    "percent",
    "scrolled",
    "section",
    "tags_section",
    "text",
]

_MEANINGS = {
    "P": ("precision", "Of the first k suggestions, the share that is right."),
    "nDCG": ("ranking", "As P, but early suggestions count more; 100 if all right tags come first."),
    "PSP": ("rare tags", "As P, but rare tags count more, by their propensity; 100 if the best k tags come first."),
    "R": ("recall", "Of a row’s tags, the share that is among the first k suggestions."),
}
_F1 = {
    "micro-F1": "over all decisions together",
    "macro-F1": "averaged over tags, rare and frequent ones alike",
    "example-F1": "averaged over rows",
}
_NOT_CALIBRATED = "The tagger has no probabilities: train with --validation, or call Tagger.calibrate."
_COLUMNS = {
    "tag": "text",
    **dict.fromkeys(("group", "training rows", "rows here", "precision", "recall", "F1"), "number"),
    "most telling words": "",
}
_CHIPS = 5
_BREAKS = "\t\n\r"


def text(value: Any, keep: str = "") -> str:
    """A value as :func:`visible` shows it, safe in content and in quoted attributes."""
    return escape(visible(str(value), keep), quote=True)


def percent(value: float, digits: int = 1) -> str:
    """A share in percent, without the sign; a dash for NaN."""
    return "–" if value != value else f"{100 * value:.{digits}f}"


def number(value: Any) -> str:
    """A number for people; other values as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return text(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def section(name: str, title: str, *content: str, lead: str = "") -> str:
    """A section with a heading; ``lead`` is escaped, ``content`` is HTML."""
    opening = f'<p class="lead">{text(lead)}</p>' if lead else ""
    return f'<section id="{name}"><h2>{text(title)}</h2>{opening}{"".join(content)}</section>'


def figure(drawing: str, title: str, caption: str) -> str:
    """A plot with a title and a caption; ``drawing`` is HTML."""
    return (
        f'<figure class="card"><h3>{text(title)}</h3><div class="plot">{drawing}</div>'
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def list_of_facts(facts: Iterable[tuple[str, Any]]) -> str:
    """Names and values as a definition list."""
    items = "".join(f"<div><dt>{text(name)}</dt><dd>{number(value)}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{items}</dl>'


def folded(title: str, content: str) -> str:
    """HTML that is shown when the reader asks for it."""
    return f'<details class="card"><summary>{text(title)}</summary>{content}</details>'


def scrolled(rows: str, *, name: str = "", tall: bool = False) -> str:
    """A table (its inner HTML) that scrolls sideways in a narrow window, and down if it is ``tall``."""
    identifier = f' id="{name}"' if name else ""
    return f'<div class="scroll{" tall" if tall else ""}"><table{identifier}>{rows}</table></div>'


def headline_section(found: Findings) -> str:
    """Ranking metrics as cards, between what is easy and what is possible; and F1 of decisions."""
    metrics = found.evaluation.metrics
    ks = [int(name.partition("@")[2]) for name in metrics if name.startswith("P@")]
    cards = "".join(
        _metric_card(found, name, title, meaning, ks)
        for name, (title, meaning) in _MEANINGS.items()
        if f"{name}@{ks[0]}" in metrics
    )
    decided = "by calibrated thresholds" if found.calibrated else "every tag that scores at least 0"
    facts = "".join(
        f'<div class="fact"><span class="value">{percent(metrics[name])}</span><b>{name}</b> {text(meaning)}</div>'
        for name, meaning in _F1.items()
    )
    decisions = (
        f'<div class="card decisions"><h3>Decisions <small>({text(decided)})</small></h3>{facts}'
        '<p class="caption">F1 is the harmonic mean of precision (of the tags decided for, how many are right) and '
        "recall (of the right tags, how many are decided for).</p></div>"
    )
    lead = f"All figures in percent, measured on {found.evaluation.rows:,} rows with known tags."
    legend = (
        '<p class="legend yardsticks"><span><i class="mark-frequent"></i>always the most frequent tags</span>'
        '<span><i class="mark-reachable"></i>best reachable: the rows’ own tags, without those that training never '
        "saw</span></p>"
    )
    return section("headline", "How good is it?", f'<div class="cards">{cards}</div>', legend, decisions, lead=lead)


def _metric_card(found: Findings, name: str, title: str, meaning: str, ks: list[int]) -> str:
    values = "".join(
        f'<div class="at"><span class="k">@{k}</span>'
        f'<span class="value">{percent(found.evaluation.metrics[key])}</span>'
        f'<span class="bar"><span class="room" style="width:{100 * found.reachable[key]:.1f}%"></span>'
        f'<span class="reached" style="width:{100 * found.evaluation.metrics[key]:.1f}%"></span>'
        f'<span class="usual" style="left:{100 * found.frequent[key]:.1f}%"></span></span></div>'
        for k in ks
        for key in [f"{name}@{k}"]
    )
    lines = "".join(
        f"<tr><th scope='row'>{what}</th>"
        + "".join(f"<td>{percent(figures[f'{name}@{k}'])}</td>" for k in ks)
        + "</tr>"
        for what, figures in (("most frequent", found.frequent), ("reachable", found.reachable))
    )
    return (
        f'<div class="card metric"><h3>{name} <small>{text(title)}</small></h3>{values}'
        f'<table class="yards"><tbody>{lines}</tbody></table><p>{text(meaning)}</p></div>'
    )


def notes_section(found: Findings) -> str:
    """What a reader should know about the rows before trusting the figures; empty if there is nothing."""
    evaluation = found.evaluation
    notes = []
    if evaluation.unseen:
        most = Counter(evaluation.unseen).most_common(8)
        names = ", ".join(f"<code>{text(tag)}</code> ({count:,})" for tag, count in most)
        more = ", …" if len(evaluation.unseen) > len(most) else ""
        notes.append(
            f"Never seen in training: {counted(len(evaluation.unseen), 'tag')} of these rows, {names}{more}. No model "
            "can suggest them, so they count as missed."
        )
    if evaluation.new:
        recalls = ", ".join(
            f"{name} {percent(value)}" for name, value in evaluation.metrics.items() if name.startswith("new-")
        )
        notes.append(
            f"Of the vocabulary, but of no training row: {counted(len(evaluation.new), 'tag')} of "
            f"{counted(evaluation.rows_with_new, 'row')}. By themselves: {recalls}."
        )
    if evaluation.rows_without_words:
        rows = counted(evaluation.rows_without_words, "row")
        notes.append(f"{rows} without any word known from training. All such rows get the same suggestions.")
    if evaluation.rows_without_tags:
        rows = counted(evaluation.rows_without_tags, "row")
        notes.append(f"{rows} without a tag, where every suggestion counts as wrong.")
    if found.calibrated_on_them:
        notes.append(
            "Thresholds and probabilities were learnt from these same rows, so the figures of decisions are a little "
            "better than on other rows. Rankings (P, nDCG, PSP, R) and the calibration curve are not affected."
        )
    if not any(name.startswith("PSP") for name in evaluation.metrics):
        notes.append("PSP is left out: it needs at least 3 training rows.")
    if not notes:
        return ""
    return '<aside class="notes"><ul>' + "".join(f"<li>{note}</li>" for note in notes) + "</ul></aside>"


def model_section(found: Findings) -> str:
    """Which model and why, sizes and seconds; settings and the course of the fit folded away."""
    training = found.training
    sizes = [
        ("training rows", training["rows"]),
        ("tags", training["tags"]),
        ("words", training["words"]),
        ("tags per row", training["assignments"] / training["rows"]),
        ("MB", round(found.megabytes, 2)),
        ("seconds to fit", round(training["seconds"], 2)),
        ("ms per row to suggest", round(found.predict_ms, 3)),
    ]
    if training["known_pairs"] is not None:
        known = 100 * training["known_pairs"] / (training["rows"] * training["tags"])
        sizes.insert(4, ("% of pairs known", round(known, 2)))
    if training["features"] > training["words"]:
        sizes.insert(3, ("other features", training["features"] - training["words"]))
    reason = found.reason.removeprefix(f"{found.model}: ")
    # These two do not change the model.
    settings = sorted((name, value) for name, value in found.settings.items() if name not in ("n_jobs", "verbose"))
    parts = [
        f'<p class="reason"><b class="name">{text(found.model)}</b> {text(reason)}</p>',
        f'<div class="card tiles">{list_of_facts(sizes)}</div>',
        folded("Settings", list_of_facts(settings)),
    ]
    if curve := objective_curve(found.history):
        caption = f"{len(curve)} iterations, {curve[-1]['seconds']:.3g} seconds."
        if "validation" in curve[-1]:
            best = max(float(info["validation"]) for info in curve)
            caption += (
                f" The best round was chosen by nDCG@5, {percent(best)} %, on validation rows of the fit’s own. Rare "
                "tags were kept in training for that choice, so this figure is too good for other rows."
            )
        drawing = f'<div class="plot">{plots.draw_objective([(found.model, curve)])}</div>'
        parts.append(folded("Objective over time", f'{drawing}<p class="caption">{text(caption)}</p>'))
    return section("model", "Which model, and why", *parts)


def frequency_section(found: Findings) -> str:
    """Head, middle and tail: recall over k, decisions by frequency, and the histogram of tags."""
    tag_rows = np.asarray(found.training["tag_rows"])
    k = min(5, found.group_recall.shape[1])
    rows = []
    for group, name in enumerate(GROUPS):
        mine = found.tag_group == group
        if not mine.any():
            continue
        counts = tag_rows[mine]
        span = f"{counts.min():,}" if counts.min() == counts.max() else f"{counts.min():,} – {counts.max():,}"
        rows.append(
            f'<tr><th scope="row"><span class="dot g{group}"></span>{name}</th><td>{mine.sum():,}</td><td>{span}</td>'
            f"<td>{percent(found.group_recall[group, k - 1])}</td></tr>"
        )
    columns = ("", "tags", "training rows", f"found in {k}, %")
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    summary = scrolled(f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>")
    return section(
        "frequency",
        "Frequent and rare tags",
        f'<div class="card"><h3>Three groups of tags</h3>{summary}<p class="caption">The head are the most frequent '
        "tags, with about a third of all assignments in training; the tail the rarest, with about another third. "
        f"“Found” is the share of true tags among the first {k} suggestions. A tail that rises late is known, but "
        "ranked behind frequent tags; one that stays low had too few rows to learn from.</p></div>",
        '<div class="plots three">',
        figure(
            plots.draw_group_recall(found.group_recall),
            "Tags found, by number of suggestions",
            "The share of true tags among the first suggestions of their rows.",
        ),
        figure(
            plots.draw_bins(found.bins),
            "Decisions, by frequency",
            "Tags binned by their training rows. A gap means that nothing was decided, or nothing is true.",
        ),
        figure(
            plots.draw_histogram(found.bins, tag_rows, found.tag_group),
            "Tags by frequency",
            "In most collections most tags are rare, so the left side matters.",
        ),
        "</div>",
    )


def confidence_section(found: Findings) -> str:
    """What can be accepted without a look, and whether probabilities are right."""
    probable = found.reliability is not None
    curve = found.acceptance
    columns = ("right, %", "from probability, %" if probable else "from score", "accepted, %", "tags found, %")
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    rows = "".join(_accepted_row(curve, wanted, probable) for wanted in PRECISIONS)
    every = ""
    if len(curve.count):
        every = (
            f'<tr><th scope="row">{percent(curve.precision[-1])} <small>(all)</small></th><td>–</td><td>100.0</td>'
            f"<td>{percent(curve.recall[-1])}</td></tr>"
        )
    wanted = PRECISIONS[-1]
    place = curve.at(wanted)
    if place is None:
        sentence = f"No threshold makes suggestions {100 * wanted:.0f}% right: none can be accepted automatically."
    else:
        share = percent(curve.accepted[place], 0)
        sentence = f"Accept automatically at {100 * wanted:.0f}% precision: {share}% of suggestions"
    parts = [
        f'<div class="card wide"><h3>{text(sentence)}</h3>'
        + scrolled(f"<thead><tr>{head}</tr></thead><tbody>{rows}{every}</tbody>")
        + '<p class="caption">Of the first five suggestions per row, accept those that are at least this sure: so many '
        "of them are accepted, so many of these are right, and so many of all true tags are found.</p></div>",
        figure(
            plots.draw_acceptance(curve, wanted, probable),
            "Precision and recall, by threshold",
            f"Of suggestions that are at least this sure. The dashed line is where {100 * wanted:.0f}% are right.",
        ),
    ]
    if found.reliability is not None:
        error = found.reliability.error
        wrong = "" if np.isnan(error) else f" On average they are off by {100 * error:.1f} points."
        caption = (
            f"Are tags with a predicted probability of 80 % right 80 % of the time?{wrong} Larger dots have more pairs."
        )
        parts.append(figure(plots.draw_reliability(found.reliability), "Calibration", caption))
    else:
        parts.append(_empty("Calibration", _NOT_CALIBRATED))
    return section("confidence", "How sure is it?", '<div class="plots">', *parts, "</div>")


def _accepted_row(curve: Acceptance, wanted: float, probable: bool) -> str:
    place = curve.at(wanted)
    if place is None:
        cells = "<td>–</td><td>0.0</td><td>0.0</td>"
    else:
        sure = percent(curve.confidence[place]) if probable else f"{curve.confidence[place]:.3g}"
        cells = f"<td>{sure}</td><td>{percent(curve.accepted[place])}</td><td>{percent(curve.recall[place])}</td>"
    return f'<tr><th scope="row">{100 * wanted:.0f}</th>{cells}</tr>'


def mistakes_section(found: Findings) -> str:
    """Tags that are taken for others, and rows that somebody should look at."""
    pairs = "".join(
        f'<tr><th scope="row">{text(pair.tag)}</th><td class="name">{text(pair.instead)}</td><td>{pair.rows:,}</td>'
        f"<td>{percent(pair.rows / pair.of, 0)}</td></tr>"
        for pair in found.confused
    )
    head = "".join(
        f'<th scope="col">{name}</th>' for name in ("the row has", "it gets instead", "rows", "% of its rows")
    )
    confused = scrolled(f"<thead><tr>{head}</tr></thead><tbody>{pairs}</tbody>", name="confused")
    if not found.confused:
        confused = '<p class="none">No two tags are confused more often than by chance.</p>'
    probable = found.reliability is not None
    checks = "".join(_row_to_check(row, probable) for row in found.to_check)
    shown = f'<ol class="checks">{checks}</ol>' if checks else '<p class="none">No suggestion is wrong.</p>'
    return section(
        "mistakes",
        "Where it is wrong, or the rows are",
        f'<div class="card"><h3>Tags most confused</h3>{confused}<p class="caption">A tag that rows have, and the '
        "wrong one that takes its place among their first suggestions, of as many as the row has tags; ordered by how "
        "much more often than by chance. Two names for the same thing show up here.</p></div>",
        f'<div class="card"><h3>Rows to check first</h3>{shown}<p class="caption">Rows without a tag that the tagger '
        f"is surest of ({'probability' if probable else 'score'} in brackets). Where the tag is right, the row lacks "
        "it; where it is wrong, its words mislead.</p></div>",
    )


def _row_to_check(row: RowToCheck, probable: bool) -> str:
    sure = f"{percent(row.confidence)} %" if probable else f"{row.confidence:.2f}"
    own = "".join(f'<span class="missed">{text(tag)}</span>' for tag in row.tags) or "none"
    more = " …" if row.shortened else ""
    return (
        f'<li><p class="body">{text(row.text, keep=_BREAKS)}{more}</p><p class="misses">Row {row.row:,} has {own} and '
        f'not <b class="lacks">{text(row.tag)}</b> ({sure})</p></li>'
    )


def _empty(title: str, sentence: str) -> str:
    return f'<div class="card"><h3>{text(title)}</h3><p class="none">{text(sentence)}</p></div>'


def tags_section(found: Findings) -> str:
    """The table of tags, with search and sorting."""
    head = "".join(
        f'<th scope="col"><button type="button" data-sort="{kind}">{text(name)}</button></th>'
        if kind
        else f'<th scope="col">{text(name)}</th>'
        for name, kind in _COLUMNS.items()
    )
    body = "".join(map(_tag_row, found.tags))
    left_out = found.n_tags - len(found.tags)
    note = f" The {len(found.tags):,} most frequent of {found.n_tags:,} tags are listed." if left_out else ""
    groups = "".join(f'<option value="{group}">{name}</option>' for group, name in enumerate(GROUPS))
    why = f'<p class="none">{text(found.unexplained)}</p>' if found.unexplained else ""
    return section(
        "tags",
        "Every tag",
        '<div class="tools"><input type="search" id="tag-search" placeholder="Search tags and words" '
        'aria-label="Search tags and words" autocomplete="off">'
        f'<select id="tag-group" aria-label="Frequency"><option value="">all</option>{groups}</select>'
        f'<output id="tag-count">{len(found.tags):,} tags</output></div>{why}',
        scrolled(f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>", name="tag-table", tall=True),
        lead=f"Precision, recall and F1 of decisions, in percent.{note}",
    )


def _tag_row(tag: TagFigures) -> str:
    figures = "".join(
        f'<td data-v="{-1 if value != value else round(value, 6)}">{percent(value)}</td>'
        for value in (tag.precision, tag.recall, tag.f1)
    )
    # The spaces of a character n-gram are made visible.
    shown = [word.replace(" ", "␣") if word.startswith("char:") else word for word in tag.words]
    words = " ".join(f"<span>{text(word)}</span>" for word in shown)
    return (
        f'<tr data-g="{tag.group}"><th scope="row">{text(tag.tag)}</th>'
        f'<td data-v="{tag.group}"><span class="dot g{tag.group}"></span>{GROUPS[tag.group]}</td>'
        f'<td data-v="{tag.training_rows}">{number(tag.training_rows)}</td>'
        f'<td data-v="{tag.rows}">{number(tag.rows)}</td>{figures}<td class="words">{words}</td></tr>'
    )


def examples_section(found: Findings) -> str:
    """Examples with their explanations, or with the reason why the model has none."""
    if not found.examples:
        return section("examples", "Examples", '<p class="none">No row has both tags and known words.</p>')
    if found.unexplained:
        lead, legend = f"Drawn at random. {found.unexplained}", ""
    else:
        lead = (
            "Drawn at random. Words are coloured by their share in the score of a suggested tag; choose a tag to see "
            "its words. Shares are exact: weight times value, relative to the absolute sum over all words of the text; "
            "the base rate is the score without any word, in the same unit. Long texts are cut to what is around these "
            "words."
        )
        legend = (
            '<p class="legend"><span class="w" style="--s:.7" data-sign="for">for the tag</span> '
            '<span class="w" style="--s:.7" data-sign="against">against it</span></p>'
        )
    shown = "".join(_example(example, number) for number, example in enumerate(found.examples, 1))
    title = f"{len(found.examples)} examples"
    return section("examples", title, legend, f'<ol class="examples">{shown}</ol>', lead=lead)


def _example(example: Example, number: int) -> str:
    pieces = [piece for part in example.parts for piece in part]
    words = list(dict.fromkeys(piece.word for piece in pieces if piece.word is not None))
    place = {word: index for index, word in enumerate(words)}
    first = _shares(example.suggestions[0], words) if example.suggestions else dict.fromkeys(words, 0.0)
    parts = [
        "".join(
            text(piece.text, keep=_BREAKS)
            if piece.word is None
            else f'<span class="w" data-w="{place[piece.word]}"{_colour(first[piece.word])}>{text(piece.text)}</span>'
            for piece in part
        )
        for part in example.parts
    ]
    rows = "".join(
        _suggestion(suggestion, right, _shares(suggestion, words).values(), chosen=not index)
        for index, (suggestion, right) in enumerate(zip(example.suggestions, example.right))
    )
    titles = dict.fromkeys(example.unseen, ' title="never seen in training"')
    missed = "".join(f'<span class="missed"{titles.get(tag, "")}>{text(tag)}</span>' for tag in example.missed)
    missed = f'<p class="misses">Not among them: {missed}</p>' if missed else ""
    gap = '<span class="more"> … </span>'
    body = gap.join(parts) + (gap if example.shortened else "")
    return (
        f'<li class="card example" id="example-{number}"><p class="body">{body}</p>'
        f'<div class="suggestions">{rows}</div>{missed}</li>'
    )


def _suggestion(suggestion: Suggestion, right: bool, shares: Iterable[float], *, chosen: bool) -> str:
    mark = '<span class="mark yes" title="right">✓</span>' if right else '<span class="mark no" title="wrong">✗</span>'
    sure = f"{suggestion.score:.2f}" if suggestion.probability is None else f"{percent(suggestion.probability, 0)} %"
    meaning = "score" if suggestion.probability is None else "probability"
    parts = [(part.word, part.share) for part in (suggestion.why or ()) if abs(part.share) >= LEAST_SHARE][:_CHIPS]
    chips = "".join(
        f'<span class="chip w"{_colour(share)}>{text(word)} <small>{_signed(share)}</small></span>'
        for word, share in parts
    )
    if (base := suggestion.base_share) is not None and abs(base) >= LEAST_SHARE:
        title = "the score without any word"
        chips += f'<span class="chip base" title="{title}">base rate <small>{_signed(base)}</small></span>'
    values = " ".join(f"{share:.3g}" for share in shares)
    name = text(suggestion.title)
    if suggestion.why is not None:
        name = f'<button type="button" aria-pressed="{str(chosen).lower()}" data-shares="{values}">{name}</button>'
    return (
        f'<div class="suggestion">{mark}<span class="tag">{name}</span>'
        f'<span class="sure" title="{meaning}">{sure}</span><span class="chips">{chips}</span></div>'
    )


def _signed(share: float) -> str:
    """A share in percent with its sign; never as 0."""
    return f"{100 * share:+.0f} %" if abs(share) >= 0.01 else f"{100 * share:+.1f} %"


def _shares(suggestion: Suggestion, words: list[str]) -> dict[str, float]:
    shares = {part.word: part.share for part in suggestion.why or ()}
    return {word: shares.get(word, 0.0) for word in words}


def _colour(share: float) -> str:
    """The attributes that colour a word; report.js sets the same ones when another tag is chosen."""
    if abs(share) < LEAST_SHARE:
        return ""
    sign = "for" if share > 0 else "against"
    # The square root keeps a share of 4 % visible beside one of 40 %.
    return f' data-sign="{sign}" style="--s:{min(1.0, abs(share) ** 0.5):.2f}" title="{100 * share:+.1f} %"'
