"""``tagwise drift``: comparison of recent texts with reference texts from the time of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tagwise import Tagger
from tagwise.cli.options import TEXTS, Given, option, verb
from tagwise.cli.output import echo_err, show, show_json, show_table, warn
from tagwise.cli.rows import answered_rows, load_model, read_answers, read_texts
from tagwise.data.feedback import Feedback
from tagwise.exceptions import InvalidInputError
from tagwise.inspection.calibration import probability_maps
from tagwise.inspection.drift import Drift
from tagwise.progress import ProgressBar, counted
from tagwise.reports.drift import LEVEL, compared_figures, verdict, write_drift_report
from tagwise.reports.pages import check_report_path, p_value

_MOST_SHOWN = 15
_MOST_LISTED = 1000


@verb(
    "model",
    "file",
    option(
        "--reference FILE",
        "Texts to compare with: from the time of training, but not trained on; read like FILE [default: the counts of "
        "the rows of train --validation, kept in the folder].",
    ),
    option(
        "--feedback FILE.jsonl",
        "Answers recorded by tagwise serve: compare the share of accepted suggestions with their probabilities.",
    ),
    "--feedback-tagger",
    option("--report FILE.html", "Also write the comparison as an HTML file. Needs the extra plots."),
    "--json",
    TEXTS,
    examples=(
        "tagwise train articles.csv --out tagger --validation 0.1",
        "tagwise drift tagger recent.jsonl --report drift.html",
        "tagwise drift tagger recent.jsonl --feedback feedback.jsonl --json",
        "tagwise drift tagger recent.jsonl --reference test.jsonl",
    ),
)
def command(given: Given) -> None:
    """Compare the recent texts of FILE with texts from the time when MODEL was trained.

    The comparison covers the share of unknown words, texts without known words, the best score of each text, and how
    often each tag is among the first five suggestions; with --feedback, also the share of accepted suggestions. A
    difference counts as drift if it is significant at the 5% level, adjusted for the number of tags; unknown words must
    also differ by at least one point, and best scores have a stability index of at least 0.1.
    """
    model, file, reference, report = given.model, given.file, given.reference, given.report
    if report is not None:
        check_report_path(report)
    tagger: Tagger = load_model(model, "drift", texts=True)
    answers = read_answers(given)
    if answers is not None and probability_maps(tagger.model_, tagger.calibration_) is None:
        raise InvalidInputError(
            f"--feedback: {model} has no probabilities to compare answers with; train with --validation, or leave it "
            "out."
        )
    if reference is None and tagger.reference_ is None:
        tagger.drift([])  # raises before any file is read
    then = None if reference is None else read_texts(reference, given)[0]
    texts, ids = read_texts(file, given)
    with ProgressBar(f"comparing {counted(len(texts), 'text')}", None):
        found = tagger.drift(texts, reference=None if then is None else tagger.profile(then))
    if answers is not None:
        found = _with_answers(tagger, found, texts, ids, answers)
    unknown = tagger.unknown_words(texts)
    # A word of a single text is usually a name or a typo.
    unknown = [(word, n_texts) for word, n_texts in unknown if n_texts > 1]
    if report is not None:
        title = f"Tagger “{Path(model).absolute().name}”: drift"
        source = f"{file}, compared with {reference or 'validation rows'}"
        tags = [tagger.title(tag) for tag in tagger.tags_]
        write_drift_report(found, report, tags=tags, unknown_words=unknown, title=title, source=source)
        echo_err(f"Report written to {report}.")
    if given.as_json:
        show_json(_as_values(tagger, found, unknown))
    else:
        _show(tagger, found, unknown)


def _with_answers(tagger: Tagger, found: Drift, texts: list[str], ids: list[str | None], answers: Feedback) -> Drift:
    """Add the acceptance of answered suggestions, on the recent texts and on texts that only the feedback holds."""
    table, mine = answered_rows(texts, ids, answers), set(tagger.tags_)
    known = [row or [] for row in table.known or []]
    if new := {tag for row in known for tag in row} - mine:
        warn(f"left out: answers on {counted(len(new), 'tag')} that the tagger does not know.")
    if table.counts["feedback_lost"]:
        warn(f"left out: {counted(table.counts['feedback_lost'], 'identifier')} in the feedback that no text has.")
    kept = [row for row, tags in enumerate(known) if mine.intersection(tags)]
    if not kept:
        warn("the feedback has no answer on a tag of this tagger; acceptance is not compared.")
        return found
    accepted, asked = ([[tag for tag in of[row] if tag in mine] for row in kept] for of in (table.tags, known))
    return found.with_answers(tagger.reliability([table.texts[row] for row in kept], accepted, asked))


def _as_values(tagger: Tagger, found: Drift, unknown: list[tuple[str, int]]) -> dict[str, Any]:
    then, now = found.reference, found.recent
    answers: dict[str, float] | None = None
    if found.answers is not None:
        answers = {"answered": found.answered, "accepted": round(found.accepted)}
        answers |= {"expected": found.expected, "p": found.answers_p}
    return {
        "drifted": any(one.moved for one in compared_figures(found)),
        "rows": {"reference": then.rows, "recent": now.rows},
        "unknown_words": {"reference": then.unknown_mean, "recent": now.unknown_mean, "p": found.unknown_p},
        "texts_without_words": {"reference": then.empty_rows, "recent": now.empty_rows, "p": found.empty_p},
        "scores": {"psi": found.score_psi, "p": found.score_p},
        "tags": {
            "compared": len(found.label_q),
            "moved": [
                {
                    "tag": tagger.tags_[label],
                    "reference": then.label_counts[label] / then.rows,
                    "recent": now.label_counts[label] / now.rows,
                    "psi": found.label_psi[label],
                    "q": found.label_q[label],
                }
                for label in found.moved_labels(LEVEL).tolist()
            ],
        },
        "answers": answers,
        "new_words": dict(unknown[:_MOST_LISTED]),
    }


def _show(tagger: Tagger, found: Drift, unknown: list[tuple[str, int]]) -> None:
    then, now, figures = found.reference, found.recent, compared_figures(found)
    kinds = ["drift" if one.moved else "small" if one.small else "" for one in figures]
    rows = [[one.name, one.then, one.now, p_value(one.p), kind] for one, kind in zip(figures, kinds)]
    title = f"{counted(now.rows, 'recent text')}, compared with {counted(then.rows, 'reference text')}"
    show_table(title, ["", "reference", "recent", "p", ""], rows)
    moved = found.moved_labels(LEVEL).tolist()
    if moved:
        lines = [
            [
                tagger.title(tagger.tags_[label]),
                *(f"{100 * side.label_counts[label] / side.rows:.2f}%" for side in (then, now)),
                f"{found.label_psi[label]:.3f}",
                p_value(float(found.label_q[label])),
            ]
            for label in moved[:_MOST_SHOWN]
        ]
        show()
        show_table("Tags suggested more or less often", ["tag", "reference", "recent", "index", "q"], lines)
        if len(moved) > _MOST_SHOWN:
            show(f"… and {len(moved) - _MOST_SHOWN:,} more, in --json and --report.")
    if unknown and found.unknown_p <= LEVEL and now.unknown_mean > then.unknown_mean:
        show()
        words = ", ".join(f"{word} ({n_texts:,})" for word, n_texts in unknown[:_MOST_SHOWN])
        show(f"Words not seen in training (number of texts): {words}.")
    show()
    advice = " If it matters, retrain with recent rows." if any(one.moved for one in figures) else ""
    show(verdict(found) + advice)
