"""``tagwise evaluate``: how well a model does on rows whose tags are known."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tagwise.cli.options import RowOptions, examples, json_option, row_options
from tagwise.cli.output import show, show_json, show_table, warn
from tagwise.cli.reporting import check_report, report_option, write_findings
from tagwise.progress import counted

if TYPE_CHECKING:
    from tagwise.data.tables import Table
    from tagwise.text.evaluation import Evaluation

__all__ = ["Evaluated", "command", "evaluation_of", "warn_of"]

_MEANINGS = {
    "P": "P: precision of the first k tags",
    "nDCG": "nDCG: the same, early places counting more",
    "PSP": "PSP: precision with rare tags counting more",
    "R": "R: share of a row's tags among the first k",
    "coverage": "coverage: tags that are ever suggested rightly",
}
_DECISIONS = ("micro-F1", "macro-F1", "example-F1")


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A model, the rows it was measured on, and what came out.

    Attributes
    ----------
    model : Tagger or fitted model
    evaluation : Evaluation
    rows : Table or None
        The rows, where they are texts.
    calibrated : bool
        Whether decisions go by learnt thresholds; else a tag is decided for where it scores at least 0.
    """

    model: Any
    evaluation: Evaluation
    rows: Table | None
    calibrated: bool

    def as_plain(self) -> dict[str, Any]:
        """For JSON."""
        found = self.evaluation
        return {
            "rows": found.rows,
            "metrics": found.metrics,
            "decided_by": "calibrated thresholds" if self.calibrated else "score of at least 0",
            "unseen_tags": dict(found.unseen.most_common()),
            "rows_without_words": found.rows_without_words,
            "rows_without_tags": found.rows_without_tags,
        }


@click.command(
    name="evaluate",
    short_help="Measure a model on rows whose tags are known.",
    epilog=examples(
        "tagwise evaluate tagger test.csv",
        "tagwise evaluate tagger test.jsonl --text body --tags subjects --k 1 --k 10",
        "tagwise evaluate tagger checked.csv --known looked_at --json",
        "tagwise evaluate model X.tst.npz --labels Y.tst.npz",
        "tagwise evaluate tagger test.csv --report report.html",
    ),
)
@click.argument("model")
@click.argument("file")
@click.option("--k", "ks", multiple=True, type=click.IntRange(min=1), help="A place to measure at [default: 1, 3, 5].")
@report_option
@json_option
@row_options()
def command(model: str, file: str, ks: tuple[int, ...], report: str | None, as_json: bool, rows: RowOptions) -> None:
    """Measure MODEL on FILE, which is read as by train and must not be what it was trained on.

    Tags of FILE that training never saw count as missed, and are listed.
    """
    places = tuple(dict.fromkeys(ks)) or (1, 3, 5)
    check_report(report, file, rows)
    found = evaluation_of(model, file, rows, places)
    warn_of(found.evaluation)
    if report is not None:
        write_findings(found, report, model, file, places)
    if as_json:
        show_json(found.as_plain())
    else:
        _show(found, places)


def evaluation_of(model: str, file: str, rows: RowOptions, ks: tuple[int, ...] = (1, 3, 5)) -> Evaluated:
    """Load a model, read a file, and measure.

    A tagger takes texts, a plain model a matrix; anything else is refused. The metrics of a plain model have no PSP:
    its folder does not say how frequent labels were in training.
    """
    from tagwise import Tagger, load
    from tagwise.cli.rows import holds_matrix, read_rows

    fitted = load(model)
    if holds_matrix(file, rows):
        from tagwise.cli.folders import require_matrix_model

        require_matrix_model(fitted, model, file)
        return _of_matrix(fitted, file, rows, ks)
    if not isinstance(fitted, Tagger):
        from tagwise.exceptions import InvalidInputError

        raise InvalidInputError(
            f"{model} holds a {type(fitted).__name__} that was trained on a matrix and knows no words; {file} holds "
            "texts."
        )
    data = read_rows(file, rows)
    found = fitted.evaluate(data.texts, data.tags, data.known, ks=ks)
    return Evaluated(fitted, found, data, fitted.calibration_ is not None)


def _of_matrix(model: Any, file: str, rows: RowOptions, ks: tuple[int, ...]) -> Evaluated:
    import numpy as np
    import scipy.sparse as sp

    from tagwise.cli.rows import read_matrix
    from tagwise.text.evaluation import evaluate
    from tagwise.text.tags import ValidationRows

    data = read_matrix(file, rows, shape=(model.n_features_in_, model.n_labels_))
    n_labels = model.n_labels_
    truth = data.Y
    if truth.shape[1] < n_labels:
        truth = sp.csr_matrix((truth.data, truth.indices, truth.indptr), shape=(truth.shape[0], n_labels))
    beyond = np.bincount(truth.indices, minlength=truth.shape[1])[n_labels:]
    unseen = Counter({f"label {n_labels + place}": int(rows) for place, rows in enumerate(beyond) if rows})
    held_out = ValidationRows(data.X, truth[:, :n_labels], truth, None, unseen)
    found = evaluate(model, None, held_out, ks, np.zeros(n_labels, dtype=np.int64), 0)
    return Evaluated(model, found, None, calibrated=False)


def warn_of(evaluation: Evaluation) -> None:
    """Say what a person must know before believing the figures."""
    if evaluation.unseen:
        several = ", ".join(f"{tag!r} ({rows:,})" for tag, rows in evaluation.unseen.most_common(5))
        more = ", …" if len(evaluation.unseen) > 5 else ""
        places = counted(sum(evaluation.unseen.values()), "place")
        warn(
            f"counted as missed: {counted(len(evaluation.unseen), 'tag')} that training never saw, in {places}: "
            f"{several}{more}."
        )
    if evaluation.rows_without_words:
        warn(
            f"{counted(evaluation.rows_without_words, 'row')} without a word that training saw: all get the same tags."
        )
    if evaluation.rows_without_tags:
        warn(f"{counted(evaluation.rows_without_tags, 'row')} without tags: whatever is suggested there is wrong.")


def _show(found: Evaluated, ks: tuple[int, ...]) -> None:
    metrics = found.evaluation.metrics
    rows = [
        [meaning, *(f"{100 * metrics[f'{name}@{k}']:.1f}" for k in ks)]
        for name, meaning in _MEANINGS.items()
        if f"{name}@{ks[0]}" in metrics
    ]
    show_table(f"On {counted(found.evaluation.rows, 'row')}, in percent", ["", *(f"@{k}" for k in ks)], rows)
    decided = "their own thresholds" if found.calibrated else "a score of 0"
    figures = ", ".join(f"{name} {100 * metrics[name]:.1f}%" for name in _DECISIONS)
    show(f"Of the tags that reach {decided}: {figures}.")
