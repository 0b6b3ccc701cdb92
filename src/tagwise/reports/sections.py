"""The sections of a report on one tagger, each a function from findings to HTML, and the pieces that they are made of.

Every string that comes from data goes through :func:`text`, and nothing else does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape
from typing import Any

import numpy as np

from tagwise.progress import counted, visible
from tagwise.reports import plots
from tagwise.reports.curves import GROUPS, adds_up
from tagwise.reports.findings import Example, Findings, TagFigures
from tagwise.text.suggestion import Suggestion

__all__ = [
    "examples_section",
    "figure",
    "fit_section",
    "frequency_section",
    "headline_section",
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
    "P": "of the first k suggestions, how many are right",
    "nDCG": "the same, with earlier suggestions counting more",
    "PSP": "the same as P, with rare tags counting more",
    "R": "of a row's tags, how many are among the first k",
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


def scrolled(rows: str, *, name: str = "", tall: bool = False) -> str:
    """A table (its inner HTML) that scrolls sideways in a narrow window, and down if it is ``tall``."""
    identifier = f' id="{name}"' if name else ""
    return f'<div class="scroll{" tall" if tall else ""}"><table{identifier}>{rows}</table></div>'


def headline_section(found: Findings) -> str:
    """Ranking metrics as cards, and F1 of decisions."""
    metrics = found.evaluation.metrics
    ks = [int(name.partition("@")[2]) for name in metrics if name.startswith("P@")]
    cards = []
    for name, meaning in _MEANINGS.items():
        if f"{name}@{ks[0]}" not in metrics:
            continue
        values = "".join(
            f'<div class="at"><span class="k">@{k}</span><span class="value">{percent(metrics[f"{name}@{k}"])}</span>'
            f'<span class="bar"><span style="width:{100 * metrics[f"{name}@{k}"]:.1f}%"></span></span></div>'
            for k in ks
        )
        cards.append(f'<div class="card metric"><h3>{name}</h3>{values}<p>{text(meaning)}</p></div>')
    decided = "by calibrated thresholds" if found.calibrated else "every tag that scores at least 0"
    facts = "".join(
        f'<div class="fact"><span class="value">{percent(metrics[name])}</span><b>{name}</b> {text(meaning)}</div>'
        for name, meaning in _F1.items()
    )
    decisions = f'<div class="card decisions"><h3>Decisions <small>({text(decided)})</small></h3>{facts}</div>'
    lead = f"All figures in percent, measured on {found.evaluation.rows:,} rows with known tags."
    return section("headline", "How good is it?", f'<div class="cards">{"".join(cards)}</div>', decisions, lead=lead)


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
    """Which model and why, its settings, sizes and seconds."""
    training = found.training
    sizes = [
        ("training rows", training["rows"]),
        ("tags", training["tags"]),
        ("words", training["words"]),
        ("tags per row", training["assignments"] / training["rows"]),
        ("model size, MB", round(found.megabytes, 2)),
        ("seconds to fit", round(training["seconds"], 2)),
        ("milliseconds per row to suggest", round(found.predict_ms, 3)),
    ]
    if training["known_pairs"] is not None:
        known = 100 * training["known_pairs"] / (training["rows"] * training["tags"])
        sizes.insert(4, ("known pairs of row and tag, %", round(known, 2)))
    if training["features"] > training["words"]:
        sizes.insert(3, ("character n-grams", training["features"] - training["words"]))
    reason = found.reason.removeprefix(f"{found.model}: ")
    # These two do not change the model.
    settings = sorted((name, value) for name, value in found.settings.items() if name not in ("n_jobs", "verbose"))
    return section(
        "model",
        "Which model, and why",
        f'<p class="reason"><b class="name">{text(found.model)}</b> {text(reason)}</p>',
        f'<div class="two"><div class="card"><h3>Sizes and seconds</h3>{list_of_facts(sizes)}</div>'
        f'<div class="card"><h3>Settings</h3>{list_of_facts(settings)}</div></div>',
    )


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
        '<div class="plots">',
        f'<div class="card"><h3>Three groups of tags</h3>{summary}<p class="caption">Tags per group, training '
        f"rows per tag, and the share of true tags among the first {k} suggestions.</p>"
        "</div>",
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
        lead="Head: the most frequent tags, with about a third of all assignments in training. Tail: the rarest tags, "
        "with about another third.",
    )


def fit_section(found: Findings) -> str:
    """Objective over time, and whether probabilities are right."""
    parts = []
    if len(found.history) > 1:
        caption = f"{len(found.history)} iterations of the fit, {found.history[-1]['seconds']:.3g} seconds."
        if adds_up(found.history):
            caption += " Tags are solved in batches whose objectives add up, so the curve may rise."
        elif (stage := found.history[-1].get("stage")) is not None:
            caption += f" The last point is the objective of the {stage}, which differs from the one before."
        parts.append(figure(plots.draw_objective([(found.model, found.history)]), "Objective over time", caption))
    else:
        parts.append(_empty("Objective over time", f"{found.model} is fitted in one step, so there is no curve."))
    if found.reliability is not None:
        error = found.reliability.error
        wrong = "" if np.isnan(error) else f" On average they are off by {100 * error:.1f} points."
        caption = (
            f"Are tags with a predicted probability of 80 % right 80 % of the time?{wrong} Larger dots have more pairs."
        )
        parts.append(figure(plots.draw_reliability(found.reliability), "Calibration", caption))
    else:
        parts.append(_empty("Calibration", _NOT_CALIBRATED))
    return section("fit", "Fit and probabilities", '<div class="plots">', *parts, "</div>")


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
            "its words. Shares are exact: weight times value, relative to the absolute sum of all parts of the text."
        )
        legend = (
            '<p class="legend"><span class="w" style="--s:.7" data-sign="for">for the tag</span> '
            '<span class="w" style="--s:.7" data-sign="against">against it</span></p>'
        )
    shown = "".join(_example(example, number) for number, example in enumerate(found.examples, 1))
    title = f"{len(found.examples)} examples"
    return section("examples", title, legend, f'<ol class="examples">{shown}</ol>', lead=lead)


def _example(example: Example, number: int) -> str:
    words = list(dict.fromkeys(piece.word for piece in example.pieces if piece.word is not None))
    place = {word: index for index, word in enumerate(words)}
    first = _shares(example.suggestions[0], words) if example.suggestions else dict.fromkeys(words, 0.0)
    body = "".join(
        text(piece.text, keep="\t\n\r")
        if piece.word is None
        else f'<span class="w" data-w="{place[piece.word]}"{_colour(first[piece.word])}>{text(piece.text)}</span>'
        for piece in example.pieces
    )
    rows = "".join(
        _suggestion(suggestion, right, _shares(suggestion, words).values(), chosen=not index)
        for index, (suggestion, right) in enumerate(zip(example.suggestions, example.right))
    )
    titles = dict.fromkeys(example.unseen, ' title="never seen in training"')
    missed = "".join(f'<span class="missed"{titles.get(tag, "")}>{text(tag)}</span>' for tag in example.missed)
    missed = f'<p class="misses">Not among them: {missed}</p>' if missed else ""
    more = '<span class="more"> …</span>' if example.shortened else ""
    return (
        f'<li class="card example" id="example-{number}"><p class="body">{body}{more}</p>'
        f'<div class="suggestions">{rows}</div>{missed}</li>'
    )


def _suggestion(suggestion: Suggestion, right: bool, shares: Iterable[float], *, chosen: bool) -> str:
    mark = '<span class="mark yes" title="right">✓</span>' if right else '<span class="mark no" title="wrong">✗</span>'
    sure = f"{suggestion.score:.2f}" if suggestion.probability is None else f"{percent(suggestion.probability, 0)} %"
    meaning = "score" if suggestion.probability is None else "probability"
    chips = "".join(
        f'<span class="chip w"{_colour(part.share)}>{text(part.word)} <small>{100 * part.share:+.0f} %</small></span>'
        for part in (suggestion.why or ())[:_CHIPS]
    )
    values = " ".join(f"{share:.3g}" for share in shares)
    name = text(suggestion.tag)
    if suggestion.why is not None:
        name = f'<button type="button" aria-pressed="{str(chosen).lower()}" data-shares="{values}">{name}</button>'
    return (
        f'<div class="suggestion">{mark}<span class="tag">{name}</span>'
        f'<span class="sure" title="{meaning}">{sure}</span><span class="chips">{chips}</span></div>'
    )


def _shares(suggestion: Suggestion, words: list[str]) -> dict[str, float]:
    shares = {part.word: part.share for part in suggestion.why or ()}
    return {word: shares.get(word, 0.0) for word in words}


def _colour(share: float) -> str:
    """The attributes that colour a word; report.js sets the same ones when another tag is chosen."""
    if abs(share) < 0.005:
        return ""
    sign = "for" if share > 0 else "against"
    # The square root keeps a share of 4 % visible beside one of 40 %.
    return f' data-sign="{sign}" style="--s:{min(1.0, abs(share) ** 0.5):.2f}" title="{100 * share:+.1f} %"'
