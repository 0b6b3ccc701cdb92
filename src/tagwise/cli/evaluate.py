"""``tagwise evaluate``: metrics of a model on rows with known tags, and the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tagwise import Tagger
from tagwise.cli.options import ROWS, Given, verb
from tagwise.cli.output import echo_err, show, show_json, show_table, warn
from tagwise.cli.rows import holds_matrix, load_model, read_for
from tagwise.data.tables import Table
from tagwise.exceptions import InvalidInputError
from tagwise.metrics.ranking import RANKINGS
from tagwise.metrics.setwise import SETS
from tagwise.progress import counted
from tagwise.reports import Findings, gather_findings, write_report
from tagwise.reports.pages import check_report_path
from tagwise.text.evaluation import Evaluation, evaluate
from tagwise.text.tags import ValidationRows

_MEANINGS = {metric.name: f"{metric.name}: {metric.meaning}" for metric in RANKINGS if metric.shown}
_DECISIONS = [metric.name for metric in SETS if metric.shown]


@verb(
    "model",
    "file",
    "--k",
    "--report",
    "--embedding-cache",
    "--json",
    ROWS,
    examples=(
        "tagwise evaluate tagger test.csv",
        "tagwise evaluate tagger test.jsonl --text body --tags subjects --k 1 --k 10",
        "tagwise evaluate tagger checked.csv --known looked_at --json",
        "tagwise evaluate model X.tst.npz --labels Y.tst.npz",
        "tagwise evaluate tagger test.csv --report report.html",
    ),
)
def command(given: Given) -> None:
    """Measure MODEL on FILE, which is read as by train and must not be the training file.

    Tags of FILE that are in neither the training rows nor the vocabulary count as missed, and are listed. Tags of
    the vocabulary without a training row are also measured separately.
    """
    check_report(given, given.file)
    texts = not holds_matrix(given.file, given)
    fitted = load_model(given.model, given.file, texts=texts, embedding_cache=given.embedding_cache)
    rows, calibrated = read_for(fitted, given.file, given), texts and fitted.calibration_ is not None
    if given.report is not None:
        found = write_findings(fitted, rows, given.report, given.model, given.file, ks=given.ks).evaluation
    else:
        found = measure(fitted, rows, given.ks)
    names = {tag: fitted.names_[tag] for tag in found.new if tag in fitted.names_} if texts else {}
    warn_about(found)
    if not given.as_json:
        _show(found, calibrated, given.ks)
        return
    show_json(
        {
            "rows": found.rows,
            "metrics": found.metrics,
            "decided_by": "calibrated thresholds" if calibrated else "score of at least 0",
            "unseen_tags": dict(found.unseen.most_common()),
            "new_tags": dict(found.new.most_common()),
            **({"names": names} if names else {}),
            "rows_with_new_tags": found.rows_with_new,
            "rows_without_words": found.rows_without_words,
            "rows_without_tags": found.rows_without_tags,
        }
    )


def measure(model: Any, rows: Any, ks: Sequence[int] = (1, 3, 5)) -> Evaluation:
    """Metrics of a tagger on a table, or of a plain model on a matrix.

    PSP is not available for plain models, whose folders do not hold label frequencies.
    """
    if isinstance(model, Tagger):
        return model.evaluate(rows.texts, rows.tags, rows.known, ks=ks)
    n_labels = model.n_labels_
    truth = rows.Y.copy()
    truth.resize(truth.shape[0], max(n_labels, truth.shape[1]))
    beyond = np.bincount(truth.indices, minlength=truth.shape[1])[n_labels:]
    unseen = Counter({f"label {n_labels + place}": int(count) for place, count in enumerate(beyond) if count})
    validation = ValidationRows(rows.X, truth[:, :n_labels], truth, None, unseen)
    return evaluate(model, None, validation, ks, np.zeros(n_labels, dtype=np.int64), 0)


def _show(found: Evaluation, calibrated: bool, ks: tuple[int, ...]) -> None:
    show_rankings(f"On {counted(found.rows, 'row')}, in percent", found.metrics, ks)
    decided = "their own thresholds" if calibrated else "a score of 0"
    figures = ", ".join(f"{name} {100 * found.metrics[name]:.1f}%" for name in _DECISIONS)
    show(f"Tags that reach {decided}: {figures}.")
    if found.new:
        recalls = [f"{name} {100 * value:.1f}%" for name, value in found.metrics.items() if name.startswith("new-")]
        rows_with, new = counted(found.rows_with_new, "row"), counted(len(found.new), "tag")
        show(f"{rows_with} have {new} of the vocabulary that no training row has: {', '.join(recalls)}.")


# ---------------------------------------------------------------------- for other verbs too


def show_rankings(title: str, metrics: dict[str, float], ks: Sequence[int], names: Iterable[str] = _MEANINGS) -> None:
    """A table of the ranking metrics in ``names`` that are available."""
    rows = [
        [_MEANINGS[name], *(f"{100 * metrics[f'{name}@{k}']:.1f}" for k in ks)]
        for name in names
        if f"{name}@{ks[0]}" in metrics
    ]
    show_table(title, ["", *(f"@{k}" for k in ks)], rows)


def warn_about(evaluation: Evaluation) -> None:
    """Print caveats on the figures."""
    if evaluation.unseen:
        several = ", ".join(f"{tag!r} ({count:,})" for tag, count in evaluation.unseen.most_common(5))
        more = ", …" if len(evaluation.unseen) > 5 else ""
        tags, times = counted(len(evaluation.unseen), "tag"), counted(sum(evaluation.unseen.values()), "time")
        warn(f"counted as missed: {tags} not seen in training, {times}: {several}{more}.")
    if evaluation.rows_without_words:
        rows = counted(evaluation.rows_without_words, "row")
        many = 10 * evaluation.rows_without_words > evaluation.rows
        advice = " Train with --characters, which also counts parts of words." if many else ""
        warn(f"{rows} without a known word: all get the same tags.{advice}")
    if evaluation.rows_without_tags:
        warn(f"{counted(evaluation.rows_without_tags, 'row')} without tags: every suggestion there is wrong.")


def some_metrics(evaluation: Evaluation, names: Iterable[str]) -> dict[str, float]:
    """Metrics that can be computed for the rows."""
    return {name: evaluation.metrics[name] for name in names if name in evaluation.metrics}


def check_report(given: Given, file: str | None) -> None:
    """Refuse a report that could not be written, before any work; ``file`` is the measured file, None if several."""
    if given.report is not None:
        if file is not None and holds_matrix(file, given):
            raise InvalidInputError(f"--report shows words and texts, but {file} holds a matrix; leave it out.")
        check_report_path(given.report)


def write_findings(tagger: Tagger, rows: Table, report: str, model: str, source: str, **more: Any) -> Findings:
    """The report on one tagger; ``source`` names the measured rows, ``more`` is for ``gather_findings``."""
    findings = gather_findings(tagger, rows.texts, rows.tags, rows.known, **more)
    title = f"Tagger “{Path(model).absolute().name}”"
    write_report(findings, report, title=title, source=f"{model}, measured on {source}")
    echo_err(f"Report written to {report}.")
    return findings
