"""``tagwise train``: from a file of texts and tags, or a matrix, to a model folder."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import numpy as np

from tagwise import Tagger, TextFeatures, load
from tagwise.base import MultiLabelModel
from tagwise.cli import options
from tagwise.cli.evaluate import check_report, warn_about, warn_if_same, write_findings
from tagwise.cli.output import echo_err, show, show_json, size_text, warn
from tagwise.cli.rows import (
    holds_matrix,
    open_cluster,
    read_matrix,
    read_names,
    read_rows,
    read_shards,
    tag_settings,
)
from tagwise.data.feedback import read_feedback, with_feedback
from tagwise.data.tables import Table
from tagwise.exceptions import InvalidInputError, TagwiseWarning
from tagwise.models.choice import ModelChoice, build_model, choose_model, model_info
from tagwise.persistence import Checkpoint
from tagwise.persistence.folder import MANIFEST_NAME, check_destination, folder_bytes, read_model
from tagwise.progress import counted
from tagwise.text.evaluation import Evaluation
from tagwise.text.tags import split_texts

__all__ = ["command"]

_METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "new-R@5")


@click.command(
    epilog=options.examples(
        "tagwise train articles.csv --out tagger",
        "tagwise train articles.jsonl --text body --tags subjects --out tagger --validation 0.1",
        "tagwise train articles.csv --out tagger --validation 0.1 --test others.csv --report report.html",
        "tagwise train checked.csv --known looked_at --out tagger",
        "tagwise train articles.csv --unlisted unknown --out tagger",
        "tagwise train articles.csv --vocabulary subjects.tsv --out tagger",
        "tagwise train records.csv --text title --text abstract --tags subjects --out tagger",
        "tagwise train emotions.csv --tags-wide --out tagger",
        "tagwise train one-row-per-tag.csv --group-by id --out tagger",
        "tagwise train lines.tsv --no-header --text 2 --tags 3 --encoding cp1252 --out tagger",
        "tagwise train articles.csv --updatable --out tagger",
        "tagwise train articles.csv --feedback feedback.jsonl --out tagger --overwrite",
        "tagwise train big.jsonl.gz --out tagger --model cascade --checkpoint-every 1",
        "tagwise train big.jsonl.gz --out tagger --model cascade --checkpoint-every 1 --resume",
        "tagwise train X.trn.npz --labels Y.trn.npz --out model --model leml --set rank=200",
        "tagwise train 'parts/*.jsonl.gz' --dask tcp://scheduler:8786 --out tagger",
    )
)
@click.argument("file")
@click.option("--out", required=True, metavar="FOLDER", help="Folder for the model; it must not exist.")
@click.option("--overwrite", is_flag=True, help="Replace a model in that folder, once the new one is ready.")
@options.model_option
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of that model; repeatable.")
@options.unlisted_option
@options.tag_options
@click.option(
    "--feedback",
    metavar="FILE.jsonl",
    help="Also learn from what people accepted and rejected, as tagwise serve keeps it: exactly these pairs of text "
    "and tag are known of texts that FILE lacks, and they overrule what it says on the others.",
)
@options.feedback_tagger_option
@click.option(
    "--validation",
    type=options.FRACTION,
    metavar="FRACTION",
    help="Do not train on this fraction of the rows, drawn at random: measure the tagger on them, and learn "
    "probabilities and thresholds from them.",
)
@click.option(
    "--target",
    type=click.Choice(["micro", "macro", "example"]),
    default="micro",
    show_default=True,
    help="The F1 that thresholds are chosen for, with --validation.",
)
@click.option("--test", metavar="FILE", help="Also measure the tagger on this file, which is read like the first one.")
@options.report_option
@options.feature_options
@options.embedder_option
@options.embedding_cache_option
@click.option(
    "--updatable",
    is_flag=True,
    help="Keep features and tags of the rows in the folder, so that tagwise update can learn further rows.",
)
@click.option(
    "--checkpoint-every",
    type=click.IntRange(min=1),
    metavar="N",
    help="Save the state of the fit in FOLDER.checkpoint after every N iterations, until the model is saved.",
)
@click.option("--resume", is_flag=True, help="Resume from FOLDER.checkpoint, if it is there; the result is the same.")
@options.dask_option
@options.jobs_option
@options.seed_option
@options.quiet_option
@options.json_option
@options.row_options()
def command(
    file: str,
    out: str,
    overwrite: bool,
    model: str,
    settings: tuple[str, ...],
    unlisted: str,
    tagging: options.TagOptions,
    feedback: str | None,
    feedback_tagger: str | None,
    validation: float | None,
    target: str,
    test: str | None,
    report: str | None,
    features: dict[str, Any],
    updatable: bool,
    embedder: str | None,
    embedding_cache: str | None,
    checkpoint_every: int | None,
    resume: bool,
    dask: str | None,
    jobs: int,
    seed: int,
    quiet: bool,
    as_json: bool,
    rows: options.RowOptions,
) -> None:
    """Train on FILE and write a model folder.

    FILE is JSONL, CSV, TSV (also .gz and .bz2) or Parquet with columns of texts and tags: the result is a tagger. A
    column of 0 and 1 per tag, a row per tag, and Annif's corpora are recognised. Or it is a matrix of features with
    labels (XMC text, svmlight, ARFF, npz): the result is a plain model.

    With --model auto and no option of features, character n-grams or pairs of words are added to words where they rank
    validation rows of a sample clearly better.

    --report measures the tagger on the rows of --test, or else on the validation rows; tagwise evaluate --report does
    so later, on any rows.

    With --dask the files are read, counted and learnt from on a cluster, and the tagger is the same; validation rows
    and --test are measured here. Each worker uses one thread, or as many as --jobs says if that is a positive number.
    """
    started = time.perf_counter()
    if report is not None and test is None and validation is None:
        raise click.UsageError("--report needs rows that the tagger was not trained on: add --test or --validation.")
    checkpoint = _open_checkpoint(out, checkpoint_every, resume)
    if checkpoint is not None and resume and _finish(checkpoint, out, overwrite, as_json):
        return
    if not overwrite and os.path.lexists(os.path.join(out, MANIFEST_NAME)):
        raise InvalidInputError(
            f"--out: {out} already holds a model; name another folder, or pass --overwrite to replace it."
        )
    check_destination(out)
    parameters = options.parse_settings(settings)
    if model.lower() != "auto":
        model_info(model)
    elif parameters:
        raise click.BadParameter("needs a model: --model auto may pick any.", param_hint="--set")
    shared: dict[str, Any] = {"n_jobs": jobs, "random_state": seed, "verbose": 0 if quiet else 1}
    if dask is None and holds_matrix(file, rows):
        for option, value in (("--validation", validation), ("--test", test), ("--report", report)):
            if value is not None:
                sentence = "is for texts; measure a model of a matrix with tagwise evaluate."
                raise click.BadParameter(sentence, param_hint=option)
        tagging.refuse_for_matrix()
        if feedback is not None:
            raise click.BadParameter("is on texts; a matrix has none.", param_hint="--feedback")
        if embedder is not None:
            raise click.BadParameter("is for texts; a matrix has none.", param_hint="--embedder")
        with _resumable(checkpoint):
            shared["updatable"] = updatable
            fitted, figures = _fit_matrix(
                file, read_matrix(file, rows), model, parameters, unlisted, shared, checkpoint
            )
        fitted.save(out, overwrite=overwrite)
        with _saved(out, checkpoint):
            _show(out, figures, started, as_json)
    else:
        if report is not None:
            check_report(report, test or file, rows, exists=dask is None or test is not None)
        if rows.known is not None and unlisted == "unknown":
            raise click.UsageError("--known says which tags somebody looked at, --unlisted unknown that nobody did.")
        if feedback is not None and unlisted == "unknown":
            raise click.UsageError(
                "--feedback says which tags somebody looked at, --unlisted unknown that nobody did; leave one of them "
                "out."
            )
        given = build_model(model, parameters, unlisted=unlisted, **shared) if parameters else model
        chosen = model.lower() == "auto" and features == TextFeatures().get_params()
        text_features = "auto" if chosen else TextFeatures(**features)
        client = None
        if dask is not None:
            for option, value in (("--feedback", feedback), ("--id", rows.id)):
                if value is not None:
                    sentence = "compares rows of all files, which the workers of a cluster read apart; leave it out."
                    raise click.BadParameter(sentence, param_hint=option)
            client = open_cluster(dask)
        tagger = Tagger(
            given,
            unlisted=unlisted,
            **tag_settings(tagging),
            features=text_features,
            updatable=updatable,
            embedder=embedder,
            embedding_cache=embedding_cache,
            **shared,
        )
        if client is not None:
            from tagwise.distributed.texts import check_tagger

            check_tagger(tagger)
        answers = None if feedback is None else read_feedback(feedback, tagger=feedback_tagger)
        data: Any = (
            read_rows(file, rows, quiet=quiet) if client is None else read_shards(file, rows, client, quiet=quiet)
        )
        # Before the fit, which may take hours: a fault in this file must be known now.
        test_rows = None if test is None else read_rows(test, rows, quiet=quiet)
        for name in [file] if client is None else [part.name for part in data.files]:
            warn_if_same(name, test)
        read = data.counts
        n_own, learnt = data.n_rows, {}
        if answers is not None:
            data = with_feedback(data, answers)
            learnt = {**answers.counts(), **{name: n for name, n in data.counts.items() if name.startswith("feedback")}}
            if not quiet:
                echo_err(f"{feedback}: {answers.account}")
            if learnt["feedback_lost"]:
                lost = counted(learnt["feedback_lost"], "identifier")
                warn(f"{feedback}: {lost} that no row of {file} has, without a text: left out. Name the ids with --id.")
        data, held = _split(data, validation, seed, n_own)
        with _resumable(checkpoint):
            _fit_texts(tagger, data, checkpoint)
        if parameters:
            name = tagger.choice_.name
            tagger.choice_ = ModelChoice(name, parameters, f"{name} was asked for, with {', '.join(settings)}.")
        found = None if held is None else _calibrate(tagger, held, target)
        tagger.save(out, overwrite=overwrite)
        with _saved(out, checkpoint):
            figures = {
                "model": tagger.choice_.name,
                "reason": tagger.choice_.reason,
                **{name: value for name, value in tagger.training_.items() if name not in ("tag_rows", "seconds")},
                "tags_without_rows": int(np.count_nonzero(tagger.training_["tag_rows"] == 0)),
                "fit_seconds": tagger.training_["seconds"],
                "read": read,
                "calibrated": tagger.calibration_ is not None,
            }
            if answers is not None:
                figures["feedback"] = learnt
            if found is not None:
                figures["validation"] = _main_metrics(found)
                warn_about(found)
                if found.unseen:
                    warn("only validation rows have these tags; train without --validation to learn them too.")
            source, measured = f"random validation rows of {file}", held
            if test is not None and test_rows is not None:
                source, measured = test, test_rows
                found = tagger.evaluate(test_rows.texts, test_rows.tags, test_rows.known)
                warn_about(found)
                figures["test"] = {"file": test, **_main_metrics(found)}
            if report is not None and found is not None and measured is not None:
                same = measured is held and tagger.calibration_ is not None
                write_findings(tagger, measured, report, out, source, evaluation=found, calibrated_on_them=same)
            _show(out, figures, started, as_json)


def _open_checkpoint(out: str, every: int | None, resume: bool) -> Checkpoint | None:
    """The checkpoint beside the model folder, if one is wanted; refuses to start over on top of an old one."""
    if every is None and not resume:
        return None
    checkpoint = Checkpoint(out.rstrip("/\\") + ".checkpoint", every=every or 1)
    if checkpoint.exists() and not resume:
        raise InvalidInputError(
            f"{checkpoint.folder} holds the state of an earlier run; pass --resume to continue it, or remove that "
            "folder to start over."
        )
    return checkpoint


def _finish(checkpoint: Checkpoint, out: str, overwrite: bool, as_json: bool) -> bool:
    """Whether there is nothing to resume since the earlier run had saved its model; says so, and removes what it left.

    Where the model in ``out`` may be another, it is an error that says what to do.
    """
    holds_model = os.path.lexists(os.path.join(out, MANIFEST_NAME))
    if not checkpoint.exists():
        if holds_model and not overwrite:
            raise InvalidInputError(
                f"--resume: {out} holds a model, and {checkpoint.folder} no unfinished fit: if that is the model of "
                "this fit, it is complete and nothing is left to do. To train again, pass --overwrite."
            )
        echo_err(f"There is no checkpoint in {checkpoint.folder}: the fit starts from the beginning.")
        return False
    if not holds_model:
        return False
    fitted = load(out)
    done = (fitted.model_ if isinstance(fitted, Tagger) else fitted).history_
    before = read_model(checkpoint.folder).values.get("history")
    # Objectives and seconds of every iteration: no other fit has the same.
    if not before or done[: len(before)] != before:
        return False
    checkpoint.discard()
    if as_json:
        show_json({"out": out, "complete": True, "bytes": folder_bytes(out)})
    else:
        show(f"The fit is complete: {out} holds its model. Measure it with tagwise evaluate.")
    return True


@contextmanager
def _resumable(checkpoint: Checkpoint | None) -> Iterator[None]:
    """On Ctrl-C, say how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        if checkpoint is not None and checkpoint.exists():
            echo_err(f"The state of the fit is in {checkpoint.folder}; add --resume to the same command to continue.")
        raise


@contextmanager
def _saved(out: str, checkpoint: Checkpoint | None) -> Iterator[None]:
    """What follows the save of a model: whatever goes wrong now, the model is there."""
    try:
        if checkpoint is not None:
            checkpoint.discard()
        yield
    except BaseException:
        echo_err(f"The model is saved in {out}.")
        raise


def _fit_texts(tagger: Tagger, data: Any, checkpoint: Checkpoint | None) -> None:
    """Fit to rows here, or where the workers of a cluster have them."""
    if isinstance(data, Table):
        tagger.fit(data.texts, data.tags, data.known, checkpoint=checkpoint)
    else:
        from tagwise.distributed import fit_tagger

        fit_tagger(tagger, data, checkpoint=checkpoint)


def _split(data: Any, fraction: float | None, seed: int, n_own: int) -> tuple[Any, Table | None]:
    """Training rows and, with a fraction, validation rows: of the first ``n_own``, those of the file itself.

    Those that feedback added are trained on, since little is known of each.
    """
    tags = sorted(data.tag_counts)
    if len(tags) == 1:
        raise InvalidInputError(
            f"there is only one tag, {tags[0]!r:.60}, in all {data.n_rows:,} rows: every text would get it. Add "
            "rows with other tags, or check that --tags names the right column."
        )
    if fraction is None or not tags:
        return data, None
    if not isinstance(data, Table):
        return data.split(fraction, seed)
    training, validation = split_texts(data.texts[:n_own], data.tags[:n_own], fraction, seed)
    return data.part([*training, *range(n_own, len(data.texts))]), data.part(validation)


def _calibrate(tagger: Tagger, rows: Table, target: str) -> Evaluation:
    """Learn probabilities and thresholds from validation rows, and measure on them."""
    try:
        with warnings.catch_warnings():
            # The evaluation says so too, with more.
            warnings.filterwarnings("ignore", "The calibration ignores", TagwiseWarning)
            tagger.calibrate(rows.texts, rows.tags, rows.known, target=target)
    except InvalidInputError as error:
        # The fit may have taken hours, and the tagger is good without thresholds.
        warn(f"the tagger is not calibrated: {error}")
    return tagger.evaluate(rows.texts, rows.tags, rows.known)


def _fit_matrix(
    file: str,
    data: Any,
    model: str,
    parameters: dict[str, Any],
    unlisted: str,
    shared: dict[str, Any],
    checkpoint: Checkpoint | None,
) -> tuple[MultiLabelModel, dict[str, Any]]:
    """Fit a plain model to a matrix; returns it and figures for people."""
    (n_rows, n_features), n_labels = data.X.shape, data.Y.shape[1]
    if model.lower() == "auto":
        choice = choose_model(n_rows, n_features, n_labels, int(data.Y.nnz), False, unlisted=unlisted)
    else:
        choice = ModelChoice(model.lower(), parameters, f"{model.lower()} was asked for.")
    built = build_model(choice.name, choice.parameters, unlisted=unlisted, **shared)
    if shared["updatable"] and not model_info(choice.name).updatable:
        raise built._not_updatable("learn rows after its fit (--updatable)")
    # Before the fit, which may take hours: a fault in the file of names must be known now.
    names = data.label_names or read_names(file, "labels", n_labels)
    started = time.perf_counter()
    built.fit(data.X, data.Y, checkpoint=checkpoint)
    built.label_names_ = names
    figures = {
        "model": choice.name,
        "reason": choice.reason,
        "rows": n_rows,
        "features": n_features,
        "tags": n_labels,
        "assignments": int(data.Y.nnz),
        "fit_seconds": time.perf_counter() - started,
    }
    return built, figures


def _main_metrics(evaluation: Evaluation) -> dict[str, Any]:
    metrics = evaluation.metrics
    found = {"rows": evaluation.rows, **{name: metrics[name] for name in _METRICS if name in metrics}}
    return {**found, "unseen_tags": len(evaluation.unseen)}


def _show(out: str, figures: dict[str, Any], started: float, as_json: bool) -> None:
    figures = {**figures, "seconds": time.perf_counter() - started, "bytes": folder_bytes(out)}
    if as_json:
        show_json({"out": out, **figures})
        return
    show(f"Model: {figures['reason']}")
    counts = ", ".join(counted(figures[name + "s"], name) for name in ("row", "feature", "tag"))
    show(f"Trained on {counts}, {figures['assignments'] / figures['rows']:.2f} tags per row.")
    if figures.get("known_pairs") is not None:
        share = figures["known_pairs"] / (figures["rows"] * figures["tags"])
        show(f"{figures['known_pairs']:,} pairs of row and tag are known, {share:.1%} of all.")
    if "feedback" in figures:
        found = figures["feedback"]
        where = (
            f"{counted(found['feedback_rows'], 'row')} of the file and {counted(found['feedback_texts'], 'other text')}"
        )
        show(f"Feedback on {where}: {counted(found['accepted'], 'tag')} accepted, {found['rejected']:,} rejected.")
    if figures.get("named_tags"):
        show(f"Learnt from the names of {counted(figures['named_tags'], 'tag')}.")
    if figures.get("tags_without_rows"):
        show(f"{counted(figures['tags_without_rows'], 'tag')} of the vocabulary that no row has.")
    for name, what in (("rows_without_words", "without a known word"), ("rows_without_tags", "without tags")):
        if figures.get(name):
            show(f"{counted(figures[name], 'row')} {what}.")
    if "validation" in figures:
        learnt = ", which also taught thresholds and probabilities" if figures["calibrated"] else ""
        rows = counted(figures["validation"]["rows"], "validation row")
        show(f"On {rows} drawn at random{learnt}: {_percents(figures['validation'])}.")
    if "test" in figures:
        found = figures["test"]
        show(f"On {counted(found['rows'], 'row')} of {found['file']}: {_percents(found)}.")
    times = f"{figures['seconds']:.1f} s in all, {figures['fit_seconds']:.1f} s of it to fit"
    show(f"Saved in {out}: {size_text(figures['bytes'])}, {times}.")


def _percents(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {100 * value:.1f}%" for name, value in found.items() if "@" in name)
