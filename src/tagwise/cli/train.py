"""``tagwise train``: from a file of texts and tags, or a matrix, to a model folder."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tagwise.cli.options import RowOptions, examples, jobs_option, json_option, row_options, seed_option
from tagwise.cli.output import say, show, show_json, warn

if TYPE_CHECKING:
    from tagwise import Tagger
    from tagwise.cli.rows import TextRows
    from tagwise.models.base import MultiLabelModel
    from tagwise.persistence import Checkpoint

__all__ = ["command", "fit_model", "fit_tagger", "held_out_rows", "parse_settings"]

_METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")


@click.command(
    name="train",
    epilog=examples(
        "tagwise train articles.csv --out tagger",
        "tagwise train articles.jsonl --text body --tags subjects --out tagger --validation 0.1",
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
    """
    from tagwise.cli.folders import check_free
    from tagwise.cli.records import MATRIX_FORMATS, file_format
    from tagwise.models.choice import ModelChoice, model_class

    check_free(out, overwrite)
    parameters = parse_settings(settings)
    if model.lower() != "auto":
        model_class(model)
    elif parameters:
        raise click.BadParameter(
            "names a parameter, but --model auto may pick any model; name one.", param_hint="--set"
        )
    checkpoint = _checkpoint(out, checkpoint_every, resume)
    verbose = 0 if quiet else 1
    started = time.perf_counter()
    try:
        if file_format(file, rows.format) in MATRIX_FORMATS:
            if validation is not None:
                raise click.BadParameter("is for texts; a matrix is trained on whole.", param_hint="--validation")
            fitted, report = fit_model(file, rows, model, parameters, jobs, seed, verbose, checkpoint)
        else:
            from tagwise import Tagger
            from tagwise.cli.rows import read_rows

            data = read_rows(file, rows, quiet=quiet)
            tagger = Tagger(
                _estimator(model, parameters, jobs, seed, verbose),
                min_df=min_df,
                max_features=max_features,
                characters=characters,
                n_jobs=jobs,
                random_state=seed,
                verbose=verbose,
            )
            fitted, report = fit_tagger(tagger, data, validation, target, seed, checkpoint)
            if parameters:
                reason = f"{report['model']} was asked for, with {', '.join(settings)}."
                fitted.choice_ = ModelChoice(report["model"], parameters, reason)
                report["reason"] = reason
    except KeyboardInterrupt:
        if checkpoint is not None and checkpoint.exists():
            say(f"The state of the fit is in {checkpoint.folder}; the same command with --resume goes on from there.")
        raise
    fitted.save(out, overwrite=overwrite)
    if checkpoint is not None:
        checkpoint.discard()
    _show(out, report, time.perf_counter() - started, as_json)


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


def _estimator(model: str, parameters: dict[str, Any], jobs: int, seed: int, verbose: int) -> Any:
    """A name as it is; with parameters, the model that they make."""
    if not parameters:
        return model
    from tagwise.models.choice import build_model

    return build_model(model, parameters, n_jobs=jobs, random_state=seed, verbose=verbose)


def _checkpoint(out: str, every: int | None, resume: bool) -> Checkpoint | None:
    if every is None and not resume:
        return None
    from tagwise.exceptions import InvalidInputError
    from tagwise.persistence import Checkpoint

    checkpoint = Checkpoint(out.rstrip("/\\") + ".checkpoint", every=every or 1)
    if checkpoint.exists() and not resume:
        raise InvalidInputError(
            f"{checkpoint.folder} holds the state of an earlier run; pass --resume to go on from there, or remove that "
            "folder to start anew."
        )
    if resume and not checkpoint.exists():
        say(f"There is no checkpoint in {checkpoint.folder}: the fit starts at the beginning.")
    return checkpoint


def fit_tagger(
    tagger: Tagger,
    data: TextRows,
    validation: float | None,
    target: str,
    seed: int,
    checkpoint: Checkpoint | None = None,
) -> tuple[Tagger, dict[str, Any]]:
    """Fit and, with held-out rows, calibrate and measure; returns the tagger and figures for people."""
    from tagwise.exceptions import InvalidInputError

    tags = sorted(data.tag_counts)
    if len(tags) == 1:
        raise InvalidInputError(
            f"there is only one tag, {tags[0]!r:.60}, in all {len(data.texts):,} rows: every text would be suggested "
            "it. Add rows with other tags, or check that --tags names the right column."
        )
    held_out = None
    if validation is not None and tags:
        data, held_out = held_out_rows(data, validation, seed)
    tagger.fit(data.texts, data.tags, data.known, checkpoint=checkpoint)
    report: dict[str, Any] = {
        "model": tagger.choice_.name,
        "reason": tagger.choice_.reason,
        **{name: value for name, value in tagger.training_.items() if name not in ("tag_rows", "seconds")},
        "fit_seconds": tagger.training_["seconds"],
    }
    if held_out is not None:
        tagger.calibrate(held_out.texts, held_out.tags, held_out.known, target=target)
        metrics = tagger.evaluate(held_out.texts, held_out.tags, held_out.known).metrics
        report["held_out"] = {"rows": len(held_out.texts), **{k: metrics[k] for k in _METRICS if k in metrics}}
    return tagger, report


def held_out_rows(data: TextRows, fraction: float, seed: int) -> tuple[TextRows, TextRows]:
    """Training rows, and held-out ones of which no text is among the training texts; every tag stays in training.

    Raises
    ------
    InvalidInputError
        No row can be held out.
    """
    from tagwise.data import split_rows
    from tagwise.exceptions import InvalidInputError
    from tagwise.text.tag_lists import all_tags, tag_matrix

    names = all_tags(data.tags)
    Y, _ = tag_matrix(data.tags, {name: place for place, name in enumerate(names)})
    train, test = split_rows(Y, fraction, seed)
    training = data.part(train)
    seen = set(training.texts)
    fresh = [row for row in test.tolist() if data.texts[row] not in seen]
    if len(fresh) < len(test):
        warn(f"{len(test) - len(fresh):,} held-out rows have a text that training rows have too; they are left out.")
    if not fresh:
        raise InvalidInputError(
            f"--validation {fraction:g} leaves no row to hold out: each is the last training row of a tag, or its "
            "text is among the training texts. Give more rows, or leave --validation out."
        )
    return training, data.part(fresh)


def fit_model(
    file: str,
    rows: RowOptions,
    model: str,
    parameters: dict[str, Any],
    jobs: int,
    seed: int,
    verbose: int,
    checkpoint: Checkpoint | None,
) -> tuple[MultiLabelModel, dict[str, Any]]:
    """Fit a plain model to a matrix; returns it and figures for people."""
    from tagwise.cli.matrices import read_matrix, read_names
    from tagwise.models.choice import ModelChoice, build_model, choose_model

    data = read_matrix(file, rows)
    assert data.X is not None
    choice = ModelChoice(model.lower(), parameters, f"{model.lower()} was asked for.")
    if model.lower() == "auto":
        n_rows, n_features = data.X.shape
        choice = choose_model(n_rows, n_features, data.Y.shape[1], int(data.Y.nnz), masked=False)
    built = build_model(choice.name, choice.parameters, n_jobs=jobs, random_state=seed, verbose=verbose)
    started = time.perf_counter()
    built.fit(data.X, data.Y, checkpoint=checkpoint)
    built.label_names_ = data.label_names or read_names(file, "labels", data.Y.shape[1])
    report = {
        "model": choice.name,
        "reason": choice.reason,
        "rows": data.X.shape[0],
        "features": data.X.shape[1],
        "tags": data.Y.shape[1],
        "assignments": int(data.Y.nnz),
        "fit_seconds": time.perf_counter() - started,
    }
    return built, report


def _show(out: str, report: dict[str, Any], seconds: float, as_json: bool) -> None:
    from tagwise.cli.folders import folder_bytes

    size = folder_bytes(out)
    if as_json:
        show_json({"out": out, **report, "seconds": seconds, "bytes": size})
        return
    show(f"Model: {report['reason']}")
    counts = f"{report['rows']:,} rows, {report['features']:,} features, {report['tags']:,} tags"
    show(f"Trained on {counts}, {report['assignments'] / report['rows']:.2f} a row.")
    if report.get("known_pairs") is not None:
        share = report["known_pairs"] / (report["rows"] * report["tags"])
        show(f"Known are {report['known_pairs']:,} pairs of a row and a tag, {share:.1%} of all.")
    for name, what in (("rows_without_words", "no word that is known"), ("rows_without_tags", "no tag")):
        if report.get(name):
            show(f"{report[name]:,} rows have {what}.")
    held_out = dict(report.get("held_out", {}))
    if held_out:
        n_rows = held_out.pop("rows")
        figures = ", ".join(f"{name} {100 * value:.1f}%" for name, value in held_out.items())
        show(f"On {n_rows:,} held-out rows, which thresholds and probabilities were learnt from: {figures}.")
    show(f"Saved in {out}: {size / 1e6:.1f} MB, {seconds:.1f} s in all, {report['fit_seconds']:.1f} s of it to fit.")
