"""``tagwise train``: from a file of texts and tags, or a matrix, to a model folder."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tagwise.cli.options import RowOptions, examples, jobs_option, json_option, row_options, seed_option
from tagwise.cli.output import say, show, show_json, size_text
from tagwise.cli.reporting import check_report, report_option, write_findings
from tagwise.progress import counted

if TYPE_CHECKING:
    from tagwise.cli.fitting import FittedTagger
    from tagwise.data.tables import Table

__all__ = ["command", "parse_settings"]


@click.command(
    name="train",
    short_help="Train on a file of texts and tags; write a model folder.",
    epilog=examples(
        "tagwise train articles.csv --out tagger",
        "tagwise train articles.jsonl --text body --tags subjects --out tagger --validation 0.1",
        "tagwise train articles.csv --out tagger --validation 0.1 --test others.csv --report report.html",
        "tagwise train checked.csv --known looked_at --out tagger",
        "tagwise train big.jsonl.gz --out tagger --model cascade --checkpoint-every 1",
        "tagwise train big.jsonl.gz --out tagger --model cascade --checkpoint-every 1 --resume",
        "tagwise train X.trn.npz --labels Y.trn.npz --out model --model leml --set rank=200",
    ),
)
@click.argument("file")
@click.option("--out", required=True, metavar="FOLDER", help="Folder for the model; it must not exist.")
@click.option("--overwrite", is_flag=True, help="Replace a model that is in that folder, once the new one is ready.")
@click.option(
    "--model",
    default="auto",
    show_default=True,
    help="auto picks by the size of the problem and by whether tags are unknown, and says which and why; or "
    "binary-relevance, leml, reml, cascade, or the name of a baseline.",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of that model; repeatable.")
@click.option(
    "--validation",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="FRACTION",
    help="Hold this part of the rows out: they are not trained on, but measure the tagger, and its probabilities and "
    "thresholds are learnt from them.",
)
@click.option(
    "--target",
    type=click.Choice(["micro", "macro", "example"]),
    default="micro",
    show_default=True,
    help="The F1 that thresholds are chosen for, with --validation.",
)
@click.option(
    "--test",
    metavar="FILE",
    help="Measure the tagger on the rows of this file as well, which is read as the first one is.",
)
@report_option
@click.option("--characters", is_flag=True, help="Count runs of 3 to 5 characters beside words.")
@click.option("--min-df", default=2, show_default=True, help="Leave out words that fewer texts have.")
@click.option("--max-features", type=int, metavar="N", help="Keep only so many words, the most frequent ones.")
@click.option(
    "--checkpoint-every",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep the state of the fit after every N iterations in FOLDER.checkpoint, until the model is saved.",
)
@click.option("--resume", is_flag=True, help="Go on from FOLDER.checkpoint, if it is there; the result is the same.")
@jobs_option
@seed_option
@click.option("--quiet", is_flag=True, help="Say only what looks wrong, and the result.")
@json_option
@row_options()
def command(
    file: str,
    out: str,
    overwrite: bool,
    model: str,
    settings: tuple[str, ...],
    validation: float | None,
    target: str,
    test: str | None,
    report: str | None,
    characters: bool,
    min_df: int,
    max_features: int | None,
    checkpoint_every: int | None,
    resume: bool,
    jobs: int,
    seed: int,
    quiet: bool,
    as_json: bool,
    rows: RowOptions,
) -> None:
    """Train on FILE and write a model folder.

    FILE is JSONL, CSV, TSV (also .gz and .bz2) or Parquet with a column of texts and one of tags: the result is a
    tagger. Or it is a matrix of features with labels (XMC text, svmlight, ARFF, npz): the result is a plain model.

    --report shows how well the tagger does on the rows of --test, or else on those that --validation holds out; for a
    tagger that is there already, tagwise evaluate --report does so on any rows.
    """
    from tagwise.cli.fitting import estimator_of, fit_model, fit_tagger, open_checkpoint
    from tagwise.cli.folders import check_free
    from tagwise.cli.rows import holds_matrix, read_rows
    from tagwise.models.choice import ModelChoice, model_info

    if report is not None and test is None and validation is None:
        raise click.UsageError(
            "--report is about rows that the tagger was not trained on: name a file of them with --test, or hold some "
            "out with --validation."
        )
    check_free(out, overwrite)
    parameters = parse_settings(settings)
    if model.lower() != "auto":
        model_info(model)
    elif parameters:
        raise click.BadParameter(
            "names a parameter, but --model auto may pick any model; name one.", param_hint="--set"
        )
    checkpoint = open_checkpoint(out, checkpoint_every, resume)
    verbose = 0 if quiet else 1
    started = time.perf_counter()
    done: FittedTagger | None = None
    test_rows: Table | None = None
    try:
        if holds_matrix(file, rows):
            for option, value in (("--validation", validation), ("--test", test), ("--report", report)):
                if value is not None:
                    raise click.BadParameter(
                        "is for texts; a matrix is trained on whole, and tagwise evaluate measures.", param_hint=option
                    )
            fitted, figures = fit_model(file, rows, model, parameters, jobs, seed, verbose, checkpoint)
        else:
            from tagwise import Tagger

            check_report(report, test or file, rows)
            estimator = estimator_of(model, parameters, jobs, seed, verbose)
            data = read_rows(file, rows, quiet=quiet)
            # Before the fit, which may take hours: what is wrong with the file is to be known now.
            test_rows = None if test is None else read_rows(test, rows, quiet=quiet)
            tagger = Tagger(
                estimator,
                min_df=min_df,
                max_features=max_features,
                characters=characters,
                n_jobs=jobs,
                random_state=seed,
                verbose=verbose,
            )
            done = fit_tagger(tagger, data, validation, target, seed, checkpoint)
            fitted, figures = done.tagger, done.figures
            if parameters:
                reason = f"{figures['model']} was asked for, with {', '.join(settings)}."
                tagger.choice_ = ModelChoice(figures["model"], parameters, reason)
                figures["reason"] = reason
    except KeyboardInterrupt:
        if checkpoint is not None and checkpoint.exists():
            say(f"The state of the fit is in {checkpoint.folder}; the same command with --resume goes on from there.")
        raise
    fitted.save(out, overwrite=overwrite)
    if checkpoint is not None:
        checkpoint.discard()
    seconds = time.perf_counter() - started
    if done is not None:
        figures |= _measured(done, out, file, test, test_rows, report)
    _show(out, figures, seconds, as_json)


def _measured(
    done: FittedTagger, out: str, file: str, test: str | None, test_rows: Table | None, report: str | None
) -> dict[str, Any]:
    """Figures of the rows of ``--test``; and the report, on them or on those that were held out."""
    from tagwise.cli.evaluate import Evaluated, warn_of
    from tagwise.cli.fitting import main_figures

    tagger = done.tagger
    rows, evaluation, source = done.held_out, done.evaluation, f"rows held out of {file}"
    figures: dict[str, Any] = {}
    if test is not None and test_rows is not None:
        rows, evaluation, source = test_rows, tagger.evaluate(test_rows.texts, test_rows.tags, test_rows.known), test
        warn_of(evaluation)
        figures["test"] = {"file": test, **main_figures(evaluation)}
    if report is not None and evaluation is not None:
        found = Evaluated(tagger, evaluation, rows, tagger.calibration_ is not None)
        write_findings(found, report, out, source, (1, 3, 5), calibrated_on_them=rows is done.held_out)
    return figures


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """``NAME=VALUE`` pairs as parameters; values are JSON where they can be, else text."""
    parameters: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"must be NAME=VALUE, such as rank=200; found {setting!r}.", param_hint="--set")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        parameters[name.strip()] = value
    return parameters


def _show(out: str, figures: dict[str, Any], seconds: float, as_json: bool) -> None:
    from tagwise.cli.folders import folder_bytes

    size = folder_bytes(out)
    if as_json:
        show_json({"out": out, **figures, "seconds": seconds, "bytes": size})
        return
    show(f"Model: {figures['reason']}")
    counts = f"{counted(figures['rows'], 'row')}, {counted(figures['features'], 'feature')}"
    a_row = figures["assignments"] / figures["rows"]
    show(f"Trained on {counts}, {counted(figures['tags'], 'tag')}, {a_row:.2f} a row.")
    if figures.get("known_pairs") is not None:
        share = figures["known_pairs"] / (figures["rows"] * figures["tags"])
        show(f"Known are {figures['known_pairs']:,} pairs of a row and a tag, {share:.1%} of all.")
    for name, what in (("rows_without_words", "no word that is known"), ("rows_without_tags", "no tag")):
        if figures.get(name):
            show(f"Of these rows, {figures[name]:,} with {what}.")
    if "held_out" in figures:
        learnt = ", which thresholds and probabilities were learnt from" if figures["calibrated"] else ""
        show(f"On {counted(figures['held_out']['rows'], 'held-out row')}{learnt}: {_percents(figures['held_out'])}.")
    if "test" in figures:
        found = figures["test"]
        show(f"On {counted(found['rows'], 'row')} of {found['file']}: {_percents(found)}.")
    fit = f"{figures['fit_seconds']:.1f} s of it to fit"
    show(f"Saved in {out}: {size_text(size)}, {seconds:.1f} s in all, {fit}.")


def _percents(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {100 * value:.1f}%" for name, value in found.items() if "@" in name)
