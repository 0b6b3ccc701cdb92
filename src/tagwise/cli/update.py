"""``tagwise update``: learn further rows and new tags in a model folder, without training from the beginning."""

from __future__ import annotations

import time
from typing import Any

import click
import scipy.sparse as sp

from tagwise import Tagger
from tagwise.base import MultiLabelModel
from tagwise.cli import options
from tagwise.cli.evaluate import warn_if_same
from tagwise.cli.output import echo_err, show, show_json, show_table, size_text, warn
from tagwise.cli.rows import holds_matrix, load_model, read_matrix, read_rows
from tagwise.data.feedback import read_feedback, with_feedback
from tagwise.data.tables import Table
from tagwise.exceptions import InvalidInputError
from tagwise.persistence.folder import check_destination, folder_bytes
from tagwise.progress import counted

__all__ = ["command"]

_METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@5")


@click.command(
    epilog=options.examples(
        "tagwise train articles.csv --updatable --out tagger",
        "tagwise update tagger new.jsonl --out tagger-2",
        "tagwise update tagger new.jsonl --out tagger --overwrite",
        "tagwise update tagger --feedback feedback.jsonl --out tagger-2 --test others.csv",
        "tagwise update model X.new.npz --labels Y.new.npz --out model-2",
    )
)
@click.argument("model")
@click.argument("file", required=False)
@click.option("--out", required=True, metavar="FOLDER", help="Folder for the updated model.")
@click.option("--overwrite", is_flag=True, help="Replace a model in that folder, once the new one is ready.")
@click.option(
    "--feedback",
    metavar="FILE.jsonl",
    help="Also learn from what people accepted and rejected, as tagwise serve keeps it: exactly these pairs of text "
    "and tag are known of texts that FILE lacks, and they overrule what it says on the others.",
)
@click.option(
    "--feedback-tagger", metavar="NAME", help="Only answers on suggestions of the tagger that was served as NAME."
)
@click.option("--test", metavar="FILE", help="Measure the model on the rows of this file, before and after.")
@options.quiet_option
@options.json_option
@options.row_options()
def command(
    model: str,
    file: str | None,
    out: str,
    overwrite: bool,
    feedback: str | None,
    feedback_tagger: str | None,
    test: str | None,
    quiet: bool,
    as_json: bool,
    rows: options.RowOptions,
) -> None:
    """Learn the rows of FILE in the folder MODEL, which was trained with --updatable, and write the result to --out.

    Words and tags that MODEL does not know become known; tags that the new rows hold much of are learnt again, from old
    and new rows together. MODEL itself stays as it is unless --out names it, and is then replaced in one step.
    """
    started = time.perf_counter()
    if file is None and feedback is None:
        raise click.UsageError("There is nothing to learn: name a FILE of rows, or --feedback.")
    check_destination(out, overwrite=overwrite)
    matrix = file is not None and holds_matrix(file, rows)
    fitted = load_model(model, "--feedback" if file is None else file, texts=not matrix)
    fitted.verbose = 0 if quiet else 1
    if isinstance(fitted, Tagger):
        fitted._require_updatable()
        fitted.model_.verbose = fitted.verbose
    answers = None if feedback is None else read_feedback(feedback, tagger=feedback_tagger)
    if matrix and answers is not None:
        raise click.BadParameter("is on texts; a matrix has none.", param_hint="--feedback")
    if file is not None:
        warn_if_same(file, test)
    data, test_rows = _read(fitted, file, rows, quiet), None if test is None else _read(fitted, test, rows, quiet)
    if answers is not None:
        data = with_feedback(data, answers)
        if not quiet:
            echo_err(f"{feedback}: {answers.account}")
        if data.counts["feedback_lost"]:
            lost = counted(data.counts["feedback_lost"], "identifier")
            warn(f"{feedback}: {lost} that no row of the file has, without a text: left out. Name the ids with --id.")
    before = None if test_rows is None else _measured(fitted, test_rows)
    known = _sizes(fitted)
    if isinstance(fitted, Tagger):
        fitted.update(data.texts, data.tags, data.known)
    else:
        fitted.update(data.X, _with_columns(data.Y, fitted.n_labels_))
    fitted.save(out, overwrite=overwrite)
    inner = fitted.model_ if isinstance(fitted, Tagger) else fitted
    figures: dict[str, Any] = {
        "out": out,
        **{name: count - known[name] for name, count in _sizes(fitted).items()},
        "all_rows": len(inner.kept_complete_),
        "fitted_rows": inner.fitted_rows_,
        "drift": inner.drift_,
    }
    if before is not None:
        figures["test"] = {"file": test, "before": before, "after": _measured(fitted, test_rows)}
    figures |= {"seconds": time.perf_counter() - started, "bytes": folder_bytes(out)}
    if as_json:
        show_json(figures)
    else:
        _show(figures)


def _read(fitted: Any, file: str | None, rows: options.RowOptions, quiet: bool) -> Any:
    """The rows of a file as the model reads them; no rows without a file."""
    if file is None:
        return Table()
    if isinstance(fitted, Tagger):
        return read_rows(file, rows, quiet=quiet)
    return read_matrix(file, rows, shape=(fitted.n_features_in_, fitted.n_labels_))


def _with_columns(Y: sp.csr_matrix, n_labels: int) -> sp.csr_matrix:
    """Labels with at least so many columns: a file need not name the last ones."""
    return sp.csr_matrix((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], max(n_labels, Y.shape[1])))


def _sizes(fitted: Any) -> dict[str, int]:
    inner: MultiLabelModel = fitted.model_ if isinstance(fitted, Tagger) else fitted
    if not getattr(inner, "updatable", False):
        raise InvalidInputError(
            f"MODEL holds a {type(inner).__name__} that has not kept its rows; train it with --updatable."
        )
    return {"rows": len(inner.kept_complete_), "features": inner.n_features_in_, "tags": inner.n_labels_}


def _measured(fitted: Any, rows: Any) -> dict[str, float]:
    if isinstance(fitted, Tagger):
        metrics = fitted.evaluate(rows.texts, rows.tags, rows.known).metrics
        return {name: metrics[name] for name in _METRICS if name in metrics}
    from tagwise.metrics import ndcg_at_k, precision_at_k

    truth = _with_columns(rows.Y, fitted.n_labels_)
    best = fitted.predict_topk(rows.X, 5)[0]
    return {
        **{f"P@{k}": float(precision_at_k(truth, best, k)) for k in (1, 3, 5)},
        "nDCG@5": float(ndcg_at_k(truth, best, 5)),
    }


def _show(figures: dict[str, Any]) -> None:
    new = " and ".join(
        counted(figures[name + "s"], f"new {name}") for name in ("feature", "tag") if figures[name + "s"]
    )
    show(f"Learnt {counted(figures['rows'], 'row')}{' with ' + new if new else ''}; {figures['all_rows']:,} in all.")
    if figures["fitted_rows"] == figures["all_rows"]:
        show("Rows have doubled since the last fit, so everything was fitted again.")
    else:
        show(f"What all tags share was fitted to {figures['fitted_rows']:,} rows; drift {figures['drift']:.2g}.")
    if "test" in figures:
        found = figures["test"]
        table = [
            [
                name,
                f"{100 * old:.1f}",
                f"{100 * found['after'][name]:.1f}",
                f"{100 * (found['after'][name] - old):+.1f}",
            ]
            for name, old in found["before"].items()
        ]
        show_table(f"On {found['file']}, in percent", ["", "before", "after", "change"], table)
    show(f"Saved in {figures['out']}: {size_text(figures['bytes'])}, {figures['seconds']:.1f} s in all.")
