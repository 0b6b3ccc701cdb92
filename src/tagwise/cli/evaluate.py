"""``tagwise evaluate``: how well a model does on rows whose tags are known; and the report on it."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import click
import numpy as np
import scipy.sparse as sp

from tagwise import Tagger
from tagwise.base import MultiLabelModel
from tagwise.cli.options import (
    RowOptions,
    cutoffs_option,
    embedding_cache_option,
    examples,
    json_option,
    report_option,
    row_options,
)
from tagwise.cli.output import echo_err, show, show_json, show_table, warn
from tagwise.cli.rows import holds_matrix, load_model, read_matrix, read_rows
from tagwise.data.records import STANDARD_INPUT
from tagwise.data.tables import Table
from tagwise.exceptions import InvalidInputError
from tagwise.progress import counted
from tagwise.reports import Findings, gather_findings, write_report
from tagwise.reports.html import check_report_path
from tagwise.text.evaluation import Evaluation, evaluate
from tagwise.text.tags import ValidationRows

__all__ = ["MEANINGS", "check_report", "command", "new_tags_text", "warn_about", "warn_if_same", "write_findings"]

MEANINGS = {
    "P": "P: precision of the first k tags",
    "nDCG": "nDCG: the same, with more weight on early ranks",
    "PSP": "PSP: precision, with more weight on rare tags",
    "R": "R: share of a row's tags among the first k",
    "coverage": "coverage: share of tags that are suggested correctly at least once",
}
_DECISIONS = ("micro-F1", "macro-F1", "example-F1")


@click.command(
    epilog=examples(
        "tagwise evaluate tagger test.csv",
        "tagwise evaluate tagger test.jsonl --text body --tags subjects --k 1 --k 10",
        "tagwise evaluate tagger checked.csv --known looked_at --json",
        "tagwise evaluate model X.tst.npz --labels Y.tst.npz",
        "tagwise evaluate tagger test.csv --report report.html",
    )
)
@click.argument("model")
@click.argument("file")
@cutoffs_option
@report_option
@embedding_cache_option
@json_option
@row_options()
def command(
    model: str,
    file: str,
    ks: tuple[int, ...],
    report: str | None,
    embedding_cache: str | None,
    as_json: bool,
    rows: RowOptions,
) -> None:
    """Measure MODEL on FILE, which is read as by train and must not be what it was trained on.

    Tags of FILE that neither training rows nor the vocabulary have count as missed, and are listed. Tags of the
    vocabulary that no training row has are also measured by themselves.
    """
    if report is not None:
        check_report(report, file, rows)
    fitted: Any = load_model(model, file, texts=not holds_matrix(file, rows), embedding_cache=embedding_cache)
    if holds_matrix(file, rows):
        found, calibrated = _evaluate_matrix(fitted, file, rows, ks), False
    else:
        data, calibrated = read_rows(file, rows), fitted.calibration_ is not None
        if report is not None:
            found = write_findings(fitted, data, report, model, file, ks=ks).evaluation
        else:
            found = fitted.evaluate(data.texts, data.tags, data.known, ks=ks)
    warn_about(found)
    if as_json:
        show_json(
            {
                "rows": found.rows,
                "metrics": found.metrics,
                "decided_by": "calibrated thresholds" if calibrated else "score of at least 0",
                "unseen_tags": dict(found.unseen.most_common()),
                "new_tags": dict(found.new.most_common()),
                **_names_of(fitted, found),
                "rows_with_new_tags": found.rows_with_new,
                "rows_without_words": found.rows_without_words,
                "rows_without_tags": found.rows_without_tags,
            }
        )
    else:
        _show(found, calibrated, ks)


def _names_of(fitted: Any, found: Evaluation) -> dict[str, Any]:
    """What new tags are called, for JSON."""
    names = fitted.names_ if isinstance(fitted, Tagger) else {}
    return {"names": called} if (called := {tag: names[tag] for tag in found.new if tag in names}) else {}


def _evaluate_matrix(model: MultiLabelModel, file: str, rows: RowOptions, ks: tuple[int, ...]) -> Evaluation:
    """Metrics of a plain model; without PSP, since its folder does not say how frequent labels were in training."""
    data = read_matrix(file, rows, shape=(model.n_features_in_, model.n_labels_))
    n_labels = model.n_labels_
    truth = data.Y
    if truth.shape[1] < n_labels:
        truth = sp.csr_matrix((truth.data, truth.indices, truth.indptr), shape=(truth.shape[0], n_labels))
    beyond = np.bincount(truth.indices, minlength=truth.shape[1])[n_labels:]
    unseen = Counter({f"label {n_labels + place}": int(count) for place, count in enumerate(beyond) if count})
    validation = ValidationRows(data.X, truth[:, :n_labels], truth, None, unseen)
    return evaluate(model, None, validation, ks, np.zeros(n_labels, dtype=np.int64), 0)


def warn_about(evaluation: Evaluation) -> None:
    """Say what a person must know before believing the figures."""
    if evaluation.unseen:
        several = ", ".join(f"{tag!r} ({count:,})" for tag, count in evaluation.unseen.most_common(5))
        more = ", …" if len(evaluation.unseen) > 5 else ""
        times = counted(sum(evaluation.unseen.values()), "time")
        warn(
            f"counted as missed: {counted(len(evaluation.unseen), 'tag')} that training never saw, {times}: "
            f"{several}{more}."
        )
    if evaluation.rows_without_words:
        rows = counted(evaluation.rows_without_words, "row")
        many = 10 * evaluation.rows_without_words > evaluation.rows
        advice = " Train with --characters, which also counts parts of words." if many else ""
        warn(f"{rows} without a word that training saw: all get the same tags.{advice}")
    if evaluation.rows_without_tags:
        warn(f"{counted(evaluation.rows_without_tags, 'row')} without tags: every suggestion there is wrong.")


def warn_if_same(file: str, test: str | None) -> None:
    """Say that figures will be too good where ``test`` is the very file that is trained on."""
    if test is not None and STANDARD_INPUT not in (file, test) and os.path.samefile(file, test):
        warn(f"--test {test} is the file that is trained on: its figures say nothing about other rows.")


def _show(found: Evaluation, calibrated: bool, ks: tuple[int, ...]) -> None:
    rows = [
        [meaning, *(f"{100 * found.metrics[f'{name}@{k}']:.1f}" for k in ks)]
        for name, meaning in MEANINGS.items()
        if f"{name}@{ks[0]}" in found.metrics
    ]
    show_table(f"On {counted(found.rows, 'row')}, in percent", ["", *(f"@{k}" for k in ks)], rows)
    decided = "their own thresholds" if calibrated else "a score of 0"
    figures = ", ".join(f"{name} {100 * found.metrics[name]:.1f}%" for name in _DECISIONS)
    show(f"Tags that reach {decided}: {figures}.")
    if found.new:
        show(new_tags_text(found))


def new_tags_text(found: Evaluation) -> str:
    """How well tags of the vocabulary do that no training row has."""
    recalls = ", ".join(
        f"{name} {100 * value:.1f}%" for name, value in found.metrics.items() if name.startswith("new-")
    )
    new, rows = counted(len(found.new), "tag"), counted(found.rows_with_new, "row")
    return f"{rows} have {new} of the vocabulary that no training row has: {recalls}."


def check_report(report: str, file: str, rows: RowOptions, *, exists: bool = True) -> None:
    """Refuse a report that could not be written, before any work; ``exists``: whether it is on a file, not several."""
    if exists and holds_matrix(file, rows):
        raise InvalidInputError(f"--report shows words and texts, but {file} holds a matrix; leave it out.")
    check_report_path(report)


def write_findings(tagger: Tagger, rows: Table, report: str, model: str, source: str, **more: Any) -> Findings:
    """The report on one tagger; ``source`` says which rows it was measured on, ``more`` is for ``gather_findings``."""
    findings = gather_findings(tagger, rows.texts, rows.tags, rows.known, **more)
    title = f"Tagger “{Path(model).absolute().name}”"
    write_report(findings, report, title=title, source=f"{model}, measured on {source}")
    echo_err(f"Report written to {report}.")
    return findings
