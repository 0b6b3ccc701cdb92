"""``tagwise train``: from a file of texts and tags, or a matrix, to a model folder."""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

import click
import numpy as np
from rich.filesize import decimal

from tagwise import Tagger, TextFeatures
from tagwise.cli.evaluate import check_report, measure, some_metrics, warn_about, write_findings
from tagwise.cli.options import FEATURES, FRACTION, POSITIVE, ROWS, TAGS, Given, flag, option, parse_settings, verb
from tagwise.cli.output import echo_err, show, show_json, warn
from tagwise.cli.rows import (
    add_feedback,
    holds_matrix,
    open_cluster,
    read_answers,
    read_matrix,
    read_names,
    read_rows,
    tag_settings,
    warn_if_same,
)
from tagwise.data.tables import Table
from tagwise.estimator import MultiLabelModel
from tagwise.exceptions import InvalidInputError, TagwiseWarning
from tagwise.models.choice import ModelChoice, build_model, choose_model, model_info
from tagwise.progress import counted
from tagwise.store import Checkpoint
from tagwise.store.folder import MANIFEST_NAME, check_destination, folder_bytes
from tagwise.text.tags import split_texts

_METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "new-R@5")


@verb(
    "file",
    option("--out FOLDER", "Folder for the model; it must not exist.", required=True),
    "--overwrite",
    "--model",
    option("--set NAME=VALUE", "A parameter of that model; repeatable.", name="settings", multiple=True),
    "--unlisted",
    TAGS,
    "--feedback",
    "--feedback-tagger",
    option(
        "--validation FRACTION",
        "Do not train on this fraction of the rows, drawn at random: measure the tagger on them, and learn "
        "probabilities and thresholds from them.",
        type=FRACTION,
    ),
    option(
        "--target",
        "The F1 that thresholds are chosen for, with --validation.",
        type=click.Choice(["micro", "macro", "example"]),
        default="micro",
    ),
    option("--test FILE", "Also measure the tagger on this file, which is read like the first one."),
    "--report",
    FEATURES,
    "--embedder",
    "--embedding-cache",
    flag(
        "--updatable",
        "Keep features and tags of the rows in the folder, so that tagwise update can learn further rows.",
    ),
    option(
        "--checkpoint-every N",
        "Save the state of the fit in FOLDER.checkpoint after every N iterations, until the model is saved.",
        type=POSITIVE,
    ),
    flag("--resume", "Resume from FOLDER.checkpoint, if it is there; the result is the same."),
    "--dask",
    "--jobs",
    "--seed",
    "--quiet",
    "--json",
    ROWS,
    examples=(
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
    ),
)
def command(given: Given) -> None:
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
    if given.report is not None and given.test is None and given.validation is None:
        raise click.UsageError("--report needs rows that the tagger was not trained on: add --test or --validation.")
    if not given.overwrite and os.path.lexists(os.path.join(given.out, MANIFEST_NAME)):
        complete = " If it is the model of the fit to resume, nothing is left to do." if given.resume else ""
        raise InvalidInputError(
            f"--out: {given.out} already holds a model; name another folder, or pass --overwrite to replace it."
            + complete
        )
    check_destination(given.out)
    parameters = parse_settings(given.settings)
    if given.model.lower() != "auto":
        model_info(given.model)
    elif parameters:
        raise click.BadParameter("needs a model: --model auto may pick any.", param_hint="--set")
    checkpoint = _checkpoint(given)
    held = test = None
    try:
        if given.dask is None and holds_matrix(given.file, given):
            given.refuse_for_matrix(given.file, "validation", "test", "report", "feedback", "embedder")
            fitted, figures = _fit_matrix(given, parameters, checkpoint)
        else:
            fitted, figures, held, test = _fit_tagger(given, parameters, checkpoint)
    except KeyboardInterrupt:
        if checkpoint is not None and checkpoint.exists():
            echo_err(f"The state of the fit is in {checkpoint.folder}; add --resume to the same command to continue.")
        raise
    fitted.save(given.out, overwrite=given.overwrite)
    try:
        if checkpoint is not None:
            checkpoint.discard()
        if isinstance(fitted, Tagger):
            figures |= _measured(given, fitted, held, test)
        figures |= {"seconds": time.perf_counter() - started, "bytes": folder_bytes(given.out)}
        if given.as_json:
            show_json({"out": given.out, **figures})
        else:
            _show(given.out, figures)
    except BaseException:
        echo_err(f"The model is saved in {given.out}.")
        raise


def refuse_contradiction(given: Given) -> None:
    """Raise if ``--unlisted unknown`` is combined with an option on checked tags."""
    for name in ("known", "feedback"):
        if given.unlisted == "unknown" and name in given.stated:
            raise click.UsageError(
                f"--{name} (which tags were checked) and --unlisted unknown (none were) exclude each other; leave one "
                "out."
            )


def _checkpoint(given: Given) -> Checkpoint | None:
    """The checkpoint beside the model folder, if requested; an earlier run's is replaced only on request."""
    if given.checkpoint_every is None and not given.resume:
        return None
    checkpoint = Checkpoint(given.out.rstrip("/\\") + ".checkpoint", every=given.checkpoint_every or 1)
    if checkpoint.exists() != given.resume:
        if not given.resume:
            raise InvalidInputError(
                f"{checkpoint.folder} holds the state of an earlier run; pass --resume to continue it, or remove that "
                "folder to start over."
            )
        echo_err(f"There is no checkpoint in {checkpoint.folder}: the fit starts from the beginning.")
    return checkpoint


def _fit_matrix(
    given: Given, parameters: dict[str, Any], checkpoint: Checkpoint | None
) -> tuple[MultiLabelModel, dict[str, Any]]:
    """A plain model, and figures of its fit."""
    data = read_matrix(given.file, given)
    assert data.X is not None
    (n_rows, n_features), n_labels, n_ones = data.X.shape, data.Y.shape[1], int(data.Y.nnz)
    if given.model.lower() == "auto":
        choice = choose_model(n_rows, n_features, n_labels, n_ones, False, unlisted=given.unlisted)
    else:
        choice = ModelChoice(given.model.lower(), parameters, f"{given.model.lower()} was asked for.")
    settings = {**choice.parameters, **({"updatable": True} if given.updatable else {})}
    model = build_model(choice.name, settings, unlisted=given.unlisted, **given.shared())
    # Before the fit, which may take hours: a fault in the file of names must be known now.
    names = data.label_names or read_names(given.file, "labels", n_labels)
    started = time.perf_counter()
    model.fit(data.X, data.Y, checkpoint=checkpoint)
    model.label_names_ = names
    figures = {"model": choice.name, "reason": choice.reason, "rows": n_rows, "features": n_features, "tags": n_labels}
    return model, {**figures, "assignments": n_ones, "fit_seconds": time.perf_counter() - started}


def _fit_tagger(
    given: Given, parameters: dict[str, Any], checkpoint: Checkpoint | None
) -> tuple[Tagger, dict[str, Any], Table | None, Table | None]:
    """A tagger, figures of its fit, and the rows to measure it on: those of ``--validation`` and of ``--test``."""
    refuse_contradiction(given)
    for name in ("feedback", "id"):
        if given.dask is not None and name in given.stated:
            sentence = "compares rows of all files, which the workers of a cluster read apart; leave it out."
            raise click.BadParameter(sentence, param_hint=f"--{name}")
    check_report(given, given.test or (given.file if given.dask is None else None))
    chooses = given.model.lower() == "auto" and not given.stated & FEATURES.keys()
    tagger = Tagger(
        build_model(given.model, parameters, unlisted=given.unlisted, **given.shared()) if parameters else given.model,
        unlisted=given.unlisted,
        **tag_settings(given),
        features="auto" if chooses else TextFeatures(**given.values(FEATURES)),
        updatable=given.updatable,
        embedder=given.embedder,
        embedding_cache=given.embedding_cache,
        **given.shared(),
    )
    answers = read_answers(given)
    if given.dask is None:
        warn_if_same(given.file, given.test)
        data = read_rows(given.file, given)
    else:
        client = open_cluster(given.dask)
        from tagwise.distributed.texts import check_tagger, fit_tagger

        check_tagger(tagger)
        data = read_rows(given.file, given, client)
        for file in data.texts.files:
            warn_if_same(file.name, given.test)
    # Before the fit, which may take hours: a fault in this file must be known now.
    test = None if given.test is None else read_rows(given.test, given)
    figures, n_own = {"read": data.counts}, data.n_rows
    if answers is not None:
        data = add_feedback(data, answers, given)
        found = {name: count for name, count in data.counts.items() if name.startswith("feedback")}
        figures["feedback"] = {**answers.counts(), **found}
    tags = sorted(data.tag_counts)
    if len(tags) == 1:
        raise InvalidInputError(
            f"there is only one tag, {tags[0]!r:.60}, in all {data.n_rows:,} rows: every text would get it. Add "
            "rows with other tags, or check that --tags names the right column."
        )
    held = None
    if given.validation is not None and tags:
        # Rows behind the own ones are of feedback: little is known of them, and they are trained on.
        own = data if n_own == data.n_rows else data.part(range(n_own))
        rows, others = split_texts(own.texts, own.tags, given.validation, given.seed)
        data, held = data.part([*rows, *range(n_own, data.n_rows)]), data.part(others)
    if given.dask is None:
        tagger.fit(data.texts, data.tags, data.known, checkpoint=checkpoint)
    else:
        fit_tagger(tagger, data, checkpoint=checkpoint)
    if parameters:
        name = tagger.choice_.name
        tagger.choice_ = ModelChoice(name, parameters, f"{name} was asked for, with {', '.join(given.settings)}.")
    if held is not None:
        _calibrate(tagger, held, given.target)
    return tagger, figures, held, test


def _calibrate(tagger: Tagger, rows: Table, target: str) -> None:
    """Learn probabilities and thresholds from validation rows."""
    try:
        with warnings.catch_warnings():
            # The evaluation says so too, with more.
            warnings.filterwarnings("ignore", "The calibration ignores", TagwiseWarning)
            tagger.calibrate(rows.texts, rows.tags, rows.known, target=target)
    except InvalidInputError as error:
        # The fit may have taken hours, and the tagger is good without thresholds.
        warn(f"the tagger is not calibrated: {error}")


def _measured(given: Given, tagger: Tagger, held: Table | None, test: Table | None) -> dict[str, Any]:
    """Figures of a tagger that is saved; writes the report."""
    training = dict(tagger.training_)
    seconds, tag_rows = training.pop("seconds"), training.pop("tag_rows")
    figures: dict[str, Any] = {"model": tagger.choice_.name, "reason": tagger.choice_.reason, **training}
    figures |= {"tags_without_rows": int(np.count_nonzero(tag_rows == 0)), "fit_seconds": seconds}
    figures["calibrated"] = tagger.calibration_ is not None
    for name, rows in (("validation", held), ("test", test)):
        if rows is None:
            continue
        found = measure(tagger, rows)
        warn_about(found)
        figures[name] = {"file": given.test} if rows is test else {}
        metrics = some_metrics(found, _METRICS)
        figures[name] |= {"rows": found.rows, **metrics, "unseen_tags": len(found.unseen)}
        if rows is held and found.unseen:
            warn("only validation rows have these tags; train without --validation to learn them too.")
        if given.report is not None and (rows is test or test is None):
            source = given.test if rows is test else f"random validation rows of {given.file}"
            same = rows is held and figures["calibrated"]
            write_findings(tagger, rows, given.report, given.out, source, evaluation=found, calibrated_on_them=same)
    return figures


def _show(out: str, figures: dict[str, Any]) -> None:
    show(f"Model: {figures['reason']}")
    counts = ", ".join(counted(figures[name + "s"], name) for name in ("row", "feature", "tag"))
    show(f"Trained on {counts}, {figures['assignments'] / figures['rows']:.2f} tags per row.")
    if figures.get("known_pairs") is not None:
        share = figures["known_pairs"] / (figures["rows"] * figures["tags"])
        show(f"{figures['known_pairs']:,} pairs of row and tag are known, {share:.1%} of all.")
    if found := figures.get("feedback"):
        rows, texts = counted(found["feedback_rows"], "row"), counted(found["feedback_texts"], "other text")
        given = f"{counted(found['accepted'], 'tag')} accepted, {found['rejected']:,} rejected"
        show(f"Feedback on {rows} of the file and {texts}: {given}.")
    if figures.get("named_tags"):
        show(f"Learnt from the names of {counted(figures['named_tags'], 'tag')}.")
    for name, noun, what in (
        ("tags_without_rows", "tag", "of the vocabulary that no row has"),
        ("rows_without_words", "row", "without a known word"),
        ("rows_without_tags", "row", "without tags"),
    ):
        if figures.get(name):
            show(f"{counted(figures[name], noun)} {what}.")
    if found := figures.get("validation"):
        learnt = ", which also taught thresholds and probabilities" if figures["calibrated"] else ""
        show(f"On {counted(found['rows'], 'validation row')} drawn at random{learnt}: {_percents(found)}.")
    if found := figures.get("test"):
        show(f"On {counted(found['rows'], 'row')} of {found['file']}: {_percents(found)}.")
    times = f"{figures['seconds']:.1f} s in all, {figures['fit_seconds']:.1f} s of it to fit"
    show(f"Saved in {out}: {decimal(figures['bytes'])}, {times}.")


def _percents(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {100 * value:.1f}%" for name, value in found.items() if "@" in name)
