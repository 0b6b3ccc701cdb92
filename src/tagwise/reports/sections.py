"""The sections of a report on one tagger, each a function from findings to HTML."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from tagwise.progress import counted
from tagwise.reports import plots
from tagwise.reports.curves import GROUPS, adds_up
from tagwise.reports.findings import Findings
from tagwise.reports.markup import figure, list_of_facts, number, percent, scrolled, section, table, text

__all__ = ["fit_section", "frequency_section", "headline_section", "model_section", "notes_section", "tags_section"]

_MEANINGS = {
    "P": "of the first k suggestions, how many are right",
    "nDCG": "the same, with early places counting more",
    "PSP": "the same as P, with rare tags counting more",
    "R": "of a row's tags, how many are among the first k",
}
_F1 = {
    "micro-F1": "over all decisions together",
    "macro-F1": "averaged over tags, rare ones counting as much as frequent ones",
    "example-F1": "averaged over rows",
}


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
    """What a reader must know of the rows before believing the figures; nothing where there is nothing."""
    evaluation = found.evaluation
    notes = []
    if evaluation.unseen:
        most = Counter(evaluation.unseen).most_common(8)
        names = ", ".join(f"<code>{text(tag)}</code> ({count:,})" for tag, count in most)
        more = ", …" if len(evaluation.unseen) > len(most) else ""
        notes.append(
            f"Never seen in training: {counted(len(evaluation.unseen), 'tag')} of these rows, {names}{more}. No model "
            "can suggest them; they count as missed."
        )
    if evaluation.rows_without_words:
        rows = counted(evaluation.rows_without_words, "row")
        notes.append(f"{rows} without a word that training saw. All such rows get the same suggestions.")
    if evaluation.rows_without_tags:
        rows = counted(evaluation.rows_without_tags, "row")
        notes.append(f"{rows} without a tag. Whatever is suggested there is wrong.")
    if found.calibrated_on_them:
        notes.append(
            "Thresholds and probabilities were learnt from these same rows: figures of decisions are a little better "
            "than on other rows. Rankings (P, nDCG, PSP, R) and the calibration curve are not touched by this."
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
        ("tags a row", training["assignments"] / training["rows"]),
        ("model size, MB", round(found.megabytes, 2)),
        ("seconds to fit", round(training["seconds"], 2)),
        ("milliseconds to suggest, a row", round(found.predict_ms, 3)),
    ]
    if training["known_pairs"] is not None:
        known = 100 * training["known_pairs"] / (training["rows"] * training["tags"])
        sizes.insert(4, ("known pairs of row and tag, %", round(known, 2)))
    if training["features"] > training["words"]:
        sizes.insert(3, ("character n-grams", training["features"] - training["words"]))
    # Neither changes the model.
    settings = sorted((name, value) for name, value in found.settings.items() if name not in ("n_jobs", "verbose"))
    return section(
        "model",
        "Which model, and why",
        f'<p class="reason"><b class="name">{text(found.model)}</b> {text(_without_name(found))}</p>',
        f'<div class="two"><div class="card"><h3>Sizes and seconds</h3>{list_of_facts(sizes)}</div>'
        f'<div class="card"><h3>Settings</h3>{list_of_facts(settings)}</div></div>',
    )


def _without_name(found: Findings) -> str:
    """The reason, without the model's name in front of it, which stands there already."""
    return found.reason.removeprefix(f"{found.model}: ")


def frequency_section(found: Findings) -> str:
    """Head, middle and tail: recall over k, decisions by frequency, and the histogram of tags."""
    tag_rows = np.asarray(found.training["tag_rows"])
    rows = []
    for group, name in enumerate(GROUPS):
        mine = found.tag_group == group
        if not mine.any():
            continue
        counts = tag_rows[mine]
        recall = found.group_recall[group]
        at = min(5, len(recall)) - 1
        span = f"{counts.min():,}" if counts.min() == counts.max() else f"{counts.min():,} – {counts.max():,}"
        rows.append([f'<span class="dot g{group}"></span>{name}', f"{mine.sum():,}", span, percent(recall[at])])
    places = min(5, found.group_recall.shape[1])
    summary = table(["", "tags", "training rows", f"found in {places}, %"], rows)
    return section(
        "frequency",
        "Frequent and rare tags",
        '<div class="plots">',
        f'<div class="card"><h3>Three groups of tags</h3>{summary}<p class="caption">How many tags each group has, in '
        f"how many training rows one of them is, and the share of true tags among the first {places} suggestions.</p>"
        "</div>",
        figure(
            plots.draw_group_recall(found.group_recall),
            "Tags found, by number of suggestions",
            "The share of true tags that is among the first suggestions of their rows.",
        ),
        figure(
            plots.draw_bins(found.bins),
            "Decisions, by frequency",
            "Tags gathered by their training rows. A gap: nothing decided, or nothing true, in these rows.",
        ),
        figure(
            plots.draw_histogram(found.bins, tag_rows, found.tag_group),
            "How many tags are how frequent",
            "Most tags are rare in most collections; what happens on the left matters.",
        ),
        "</div>",
        lead="Head: the most frequent tags, which make up about a third of all assignments in training. Tail: the "
        "rarest, with about another third.",
    )


def fit_section(found: Findings) -> str:
    """Objective over time, and whether stated probabilities hold."""
    parts = []
    if len(found.history) > 1:
        caption = f"{len(found.history)} iterations of the fit, {found.history[-1]['seconds']:.3g} seconds."
        if adds_up(found.history):
            caption += " Tags are solved in batches, and their objectives add up: the curve may rise."
        elif found.model == "cascade":
            caption += " The last point is that of the rankers, whose objective is another than that of the proposer."
        parts.append(figure(plots.draw_objective([(found.model, found.history)]), "Objective over time", caption))
    else:
        parts.append(_empty("Objective over time", f"{found.model} is fitted in one step: there is no curve to show."))
    if found.reliability is not None:
        error = found.reliability.error
        wrong = "" if np.isnan(error) else f" On average they are off by {100 * error:.1f} points."
        parts.append(
            figure(
                plots.draw_reliability(found.reliability),
                "Calibration",
                f"Do tags with a stated probability of 80 % turn out right 80 % of the time?{wrong} Larger dots have "
                "more pairs.",
            )
        )
    else:
        parts.append(
            _empty(
                "Calibration",
                "The tagger is not calibrated, so that it states no probabilities: hold rows out with --validation "
                "when training, or call Tagger.calibrate.",
            )
        )
    return section("fit", "Fit and probabilities", '<div class="plots">', *parts, "</div>")


def _empty(title: str, sentence: str) -> str:
    return f'<div class="card"><h3>{text(title)}</h3><p class="none">{text(sentence)}</p></div>'


_COLUMNS = (
    ("tag", "text"),
    ("group", "number"),
    ("training rows", "number"),
    ("rows here", "number"),
    ("precision", "number"),
    ("recall", "number"),
    ("F1", "number"),
    ("words that speak for it", ""),
)


def tags_section(found: Findings) -> str:
    """The table of tags, with search and sorting."""
    head = "".join(
        f'<th scope="col"><button type="button" data-sort="{kind}">{text(name)}</button></th>'
        if kind
        else f'<th scope="col">{text(name)}</th>'
        for name, kind in _COLUMNS
    )
    body = "".join(_tag_row(found, place) for place in range(len(found.tags)))
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


def _tag_row(found: Findings, place: int) -> str:
    tag = found.tags[place]
    figures = "".join(
        f'<td data-v="{-1 if value is None else round(value, 6)}">{percent(value)}</td>'
        for value in (tag.precision, tag.recall, tag.f1)
    )
    words = " ".join(f"<span>{text(_shown_word(word))}</span>" for word in tag.words)
    return (
        f'<tr data-g="{tag.group}"><th scope="row">{text(tag.tag)}</th>'
        f'<td data-v="{tag.group}"><span class="dot g{tag.group}"></span>{GROUPS[tag.group]}</td>'
        f'<td data-v="{tag.training_rows}">{number(tag.training_rows)}</td>'
        f'<td data-v="{tag.rows}">{number(tag.rows)}</td>{figures}<td class="words">{words}</td></tr>'
    )


def _shown_word(word: str) -> str:
    """A character n-gram with its spaces made visible."""
    return re.sub(" ", "␣", word) if word.startswith("char:") else word
