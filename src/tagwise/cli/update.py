"""``tagwise update``: learn further rows and new tags in a model folder, without training from the beginning."""

from __future__ import annotations

import time
from typing import Any

import click
import scipy.sparse as sp
from rich.filesize import decimal

from tagwise import Tagger
from tagwise.cli.evaluate import measure, some_metrics
from tagwise.cli.options import ROWS, Given, option, verb
from tagwise.cli.output import show, show_json, show_table
from tagwise.cli.rows import add_feedback, holds_matrix, load_model, read_answers, read_for, warn_if_same
from tagwise.data.tables import Table
from tagwise.exceptions import InvalidInputError
from tagwise.progress import counted
from tagwise.store.folder import check_destination, folder_bytes

_METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@5")


@verb(
    "model",
    click.Argument(["file"], required=False),
    option("--out FOLDER", "Folder for the updated model.", required=True),
    "--overwrite",
    "--feedback",
    "--feedback-tagger",
    option("--test FILE", "Measure the model on the rows of this file, before and after."),
    "--quiet",
    "--json",
    ROWS,
    examples=(
        "tagwise train articles.csv --updatable --out tagger",
        "tagwise update tagger new.jsonl --out tagger-2",
        "tagwise update tagger new.jsonl --out tagger --overwrite",
        "tagwise update tagger --feedback feedback.jsonl --out tagger-2 --test others.csv",
        "tagwise update model X.new.npz --labels Y.new.npz --out model-2",
    ),
)
def command(given: Given) -> None:
    """Learn the rows of FILE in the folder MODEL, which was trained with --updatable, and write the result to --out.

    Words and tags that MODEL does not know become known; tags that the new rows hold much of are learnt again, from old
    and new rows together. MODEL itself stays as it is unless --out names it, and is then replaced in one step.
    """
    started = time.perf_counter()
    if given.file is None and given.feedback is None:
        raise click.UsageError("There is nothing to learn: name a FILE of rows, or --feedback.")
    check_destination(given.out, overwrite=given.overwrite)
    texts = given.file is None or not holds_matrix(given.file, given)
    if not texts:
        given.refuse_for_matrix(given.file, "feedback")
    fitted = load_model(given.model, given.file or "--feedback", texts=texts)
    inner = fitted.model_ if texts else fitted
    if not getattr(inner, "updatable", False):
        raise InvalidInputError(f"{given.model} has not kept its rows; train it with --updatable.")
    fitted.verbose = inner.verbose = 0 if given.quiet else 1
    answers = read_answers(given)
    if given.file is not None:
        warn_if_same(given.file, given.test)
    data: Any = Table() if given.file is None else read_for(fitted, given.file, given)
    test = None if given.test is None else read_for(fitted, given.test, given)
    if answers is not None:
        data = add_feedback(data, answers, given)
    old, before = _sizes(fitted), None if test is None else some_metrics(measure(fitted, test), _METRICS)
    if texts:
        fitted.update(data.texts, data.tags, data.known)
    else:
        fitted.update(data.X, _with_columns(data.Y, fitted.n_labels_))
    fitted.save(given.out, overwrite=given.overwrite)
    inner, new = fitted.model_ if texts else fitted, _sizes(fitted)
    figures: dict[str, Any] = {"out": given.out, **{name: count - old[name] for name, count in new.items()}}
    figures |= {"all_rows": new["rows"], "fitted_rows": inner.fitted_rows_, "drift": inner.drift_}
    if before is not None:
        figures["test"] = {"file": given.test, "before": before, "after": some_metrics(measure(fitted, test), _METRICS)}
    figures |= {"seconds": time.perf_counter() - started, "bytes": folder_bytes(given.out)}
    if given.as_json:
        show_json(figures)
    else:
        _show(figures)


def _with_columns(Y: sp.csr_matrix, n_labels: int) -> sp.csr_matrix:
    """Labels with at least so many columns: a file need not name the last ones."""
    Y = Y.copy()
    Y.resize(Y.shape[0], max(n_labels, Y.shape[1]))
    return Y


def _sizes(fitted: Any) -> dict[str, int]:
    inner = fitted.model_ if isinstance(fitted, Tagger) else fitted
    return {"rows": len(inner.kept_complete_), "features": inner.n_features_in_, "tags": inner.n_labels_}


def _show(figures: dict[str, Any]) -> None:
    new = " and ".join(
        counted(figures[f"{name}s"], f"new {name}") for name in ("feature", "tag") if figures[f"{name}s"]
    )
    show(f"Learnt {counted(figures['rows'], 'row')}{' with ' + new if new else ''}; {figures['all_rows']:,} in all.")
    if figures["fitted_rows"] == figures["all_rows"]:
        show("Rows have doubled since the last fit, so everything was fitted again.")
    else:
        show(f"What all tags share was fitted to {figures['fitted_rows']:,} rows; {figures['drift']:.0%} came since.")
    if found := figures.get("test"):
        pairs = ((name, 100 * old, 100 * found["after"][name]) for name, old in found["before"].items())
        rows = [[name, f"{old:.1f}", f"{now:.1f}", f"{now - old:+.1f}"] for name, old, now in pairs]
        show_table(f"On {found['file']}, in percent", ["", "before", "after", "change"], rows)
    show(f"Saved in {figures['out']}: {decimal(figures['bytes'])}, {figures['seconds']:.1f} s in all.")
