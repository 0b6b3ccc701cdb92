"""``tagwise tune``: good settings of a model, found on validation rows."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tagwise.cli import options
from tagwise.cli.output import echo_err, show, show_json, show_table
from tagwise.cli.rows import holds_matrix, read_matrix, read_rows, tag_settings
from tagwise.cli.train import command as training
from tagwise.exceptions import InvalidInputError
from tagwise.models.choice import choose_model, model_info
from tagwise.progress import ProgressBar, counted
from tagwise.text.choice import EVERY, choose_features
from tagwise.text.embeddings import EmbeddedFeatures, EmbeddingCache, TextEmbedder
from tagwise.text.features import TextFeatures
from tagwise.text.names import check_vocabulary, name_features, name_words, names_in_use, without_names
from tagwise.text.tags import TrainingRows, ValidationRows, all_tags, column_of, normalised, split_texts
from tagwise.tuning import Trial, TuningResult, tune
from tagwise.tuning.tuner import MOST_BUDGET, trial_values

__all__ = ["command"]

_SHOWN = 8


@click.command(
    epilog=options.examples(
        "tagwise tune articles.csv --model leml --out leml.json",
        "tagwise tune articles.jsonl.gz --text body --tags subjects --model reml --budget 8 --out reml.json",
        "tagwise tune articles.csv --model auto --metric PSP@5 --out best.json",
        "tagwise tune X.trn.npz --labels Y.trn.npz --model leml --out leml.json",
    )
)
@click.argument("file")
@options.model_option
@click.option(
    "--out",
    required=True,
    metavar="FILE.json",
    help="What was tried and found; written after every fit. If it exists, the same command resumes from it.",
)
@click.option(
    "--budget",
    type=options.RealRange(0, MOST_BUDGET, min_open=True),
    default=4.0,
    show_default=True,
    help="Cost of the search, in fits of all training rows.",
)
@click.option("--metric", default="nDCG@5", show_default=True, help="P@k, nDCG@k, PSP@k, PSnDCG@k or R@k.")
@click.option(
    "--validation",
    type=options.FRACTION,
    default=0.2,
    show_default=True,
    metavar="FRACTION",
    help="The fraction of the rows, drawn at random, to judge by and not to train on.",
)
@click.option(
    "--min-rows", type=click.IntRange(min=1), default=500, show_default=True, help="Rows of the first, smallest fits."
)
@options.unlisted_option
@options.tag_options
@options.feature_options
@options.embedder_option
@options.embedding_cache_option
@options.jobs_option
@options.seed_option
@options.quiet_option
@options.json_option
@options.row_options()
def command(
    file: str,
    model: str,
    out: str,
    validation: float,
    unlisted: str,
    tagging: options.TagOptions,
    features: dict[str, Any],
    embedder: str | None,
    embedding_cache: str | None,
    jobs: int,
    seed: int,
    quiet: bool,
    as_json: bool,
    rows: options.RowOptions,
    **search: Any,
) -> None:
    """Search for good settings of a model: rank, penalty, loss; and first for good features of texts.

    Features are compared on a sample of the training rows, unless the command has an option of them. Then successive
    halving: many settings, drawn at random, are fitted on few rows; the best third continues with three
    times the rows, and so on up to all of them. The model's defaults take part to the end. Which settings are searched
    for each model is in the documentation of tagwise.tuning; with --embedder also the weight of embeddings beside
    words. After an interruption the same command resumes.
    """
    name = "auto" if model.lower() == "auto" else model_info(model).name
    folder = Path(out).absolute().parent
    if Path(out).is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidInputError(f"--out: {out} must be a file in a folder that exists and may be written to.")
    if rows.known is not None and unlisted == "unknown":
        raise click.UsageError("--known says which tags somebody looked at, --unlisted unknown that nobody did.")
    beside = None
    if embedder is not None:
        if holds_matrix(file, rows):
            raise click.BadParameter("is for texts; a matrix has none.", param_hint="--embedder")
        beside = TextEmbedder.of(embedder)
        beside.cache = None if embedding_cache is None else EmbeddingCache(embedding_cache)
        beside.verbose = not quiet
    X, Y, observed, judges, names, features = _data(
        file, rows, (features, beside), tagging, validation, seed, jobs, quiet
    )
    if name == "auto":
        sizes = (X.shape[0], X.shape[1], Y.shape[1], int(Y.nnz))
        choice = choose_model(*sizes, masked=observed is not None, unlisted=unlisted)
        name = choice.name
        if not quiet:
            echo_err(choice.reason)

    def report(trial: Trial[dict[str, Any]], done: int, total: int) -> None:
        bar.at(done, f"{done} of at most {total} fits", total=total)
        score = "failed" if trial.score is None else f"{search['metric']} {100 * trial.score:.2f}%"
        problem = f" ({trial.details})" if trial.score is None else ""
        what = f"{trial.budget:,} rows, {_settings(trial.candidate)}"
        echo_err(f"{done}/{total}: {what}: {score}, {trial.seconds:.1f} s{problem}")

    try:
        with ProgressBar(f"tuning {name}", None, wanted=not quiet) as bar:
            result = tune(
                name,
                X,
                Y,
                observed,
                validation=judges,
                validation_fraction=validation,
                unlisted=unlisted,
                label_features=names if model_info(name).learns_from_names else None,
                n_jobs=jobs,
                random_state=seed,
                state=out,
                callback=None if quiet else report,
                **search,
            )
    except KeyboardInterrupt:
        echo_err(f"What was done so far is in {out}; the same command resumes from there.")
        raise
    given = {**asdict(rows), **asdict(tagging), **features, "embedder": embedder, "embedding_cache": embedding_cache}
    train = _training_command(file, result, given, unlisted, seed)
    if as_json:
        trials = [trial_values(trial) for trial in result.trials]
        show_json({**result.as_values(), "resumed": result.resumed, "command": train, "out": out, "trials": trials})
    else:
        _show(result, train, out)


def _data(
    file: str,
    rows: options.RowOptions,
    kinds: tuple[dict[str, Any], TextEmbedder | None],
    tagging: options.TagOptions,
    validation: float,
    seed: int,
    jobs: int,
    quiet: bool,
) -> tuple[Any, Any, Any, tuple[Any, Any, Any] | None, Any, dict[str, Any]]:
    """Features, labels and mask, validation rows of the same three, features of the tags' names, and settings.

    ``kinds`` are settings of the features that are words, and what embeds texts beside them. Of a matrix, which
    ``tune`` splits itself, validation rows and names are None. Settings of features are chosen where they are all
    usual.
    """
    settings, embedder = kinds
    if holds_matrix(file, rows):
        tagging.refuse_for_matrix()
        matrix = read_matrix(file, rows)
        return matrix.X, matrix.Y, None, None, None, settings
    vocabulary = check_vocabulary(tag_settings(tagging)["vocabulary"])
    data = read_rows(file, rows, quiet=quiet)
    if tagging.normalise_tags:
        data.tags, data.known = normalised(data.tags, data.known, vocabulary)
    fitted, held = (data.part(part) for part in split_texts(data.texts, data.tags, validation, seed))
    # Also the tags that validation rows alone have: no settings can find them, and all settings miss them.
    every = all_tags([*data.tags, vocabulary])
    labels = TrainingRows.of(fitted.texts, fitted.tags, fitted.known, every)
    words = TextFeatures(**settings)
    if settings == TextFeatures().get_params():
        choice = choose_features(labels, EVERY, n_jobs=jobs, random_state=seed)
        words = choice.features
        if not quiet:
            echo_err(choice.reason)
    is_new = ~labels.has_rows
    new = [tag for tag, without in zip(labels.tags, is_new) if without]
    new_names = [name for tag in new for name in vocabulary.get(tag, ())]
    features: Any = words if embedder is None else EmbeddedFeatures(words, embedder)
    X = features.fit_transform(fitted.texts, also=name_words(new_names))
    called = names_in_use(vocabulary, labels, features, X)
    names = name_features(labels.tags, called, features, is_new)
    if names is not None:  # a tagger would not know of tags that validation rows alone have
        names = without_names(names, [without and tag not in vocabulary for tag, without in zip(labels.tags, is_new)])
    judges = ValidationRows.of(features, column_of(labels.tags), held.texts, held.tags, held.known)
    return X, labels.Y, labels.observed, (judges.X, judges.Y, judges.observed), names, words.get_params()


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in settings.items()) or "defaults"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _training_command(file: str, result: TuningResult, settings: dict[str, Any], unlisted: str, seed: int) -> str:
    """The command that trains with the settings that were found, as it is typed into a shell."""
    words = ["tagwise", "train", file, "--out", "model", "--model", result.model]
    for name, value in result.settings.items():
        words += ["--set", f"{name}={_value(value)}"]
    given = {**settings, "unlisted": unlisted, "seed": seed}
    for option in training.params:
        value = given.get(option.name or "")
        for each in value if isinstance(value, tuple) else (value,):
            left_out = each is None or each == option.default or (each is False and option.default is not True)
            if not left_out:
                words += option.opts if isinstance(each, bool) else [*option.opts, str(each)]
    return shlex.join(words)


def _show(result: TuningResult, train: str, out: str) -> None:
    last = len(result.rungs) - 1
    finals = sorted(
        (trial for trial in result.trials if trial.rung == last and trial.score is not None),
        key=lambda trial: -(trial.score or 0.0),
    )
    rows = [
        [_settings(trial.candidate), f"{100 * (trial.score or 0.0):.2f}", f"{trial.seconds:.1f}"]
        for trial in finals[:_SHOWN]
    ]
    judged = counted(result.validation_rows, "validation row")
    title = f"{result.model}, fitted on all {result.rungs[-1].budget:,} rows, scored on {judged} drawn at random"
    show_table(title, ["settings", f"{result.metric}, %", "s"], rows)
    best = f"Best settings: {_settings(result.settings)}, {result.metric} {100 * result.score:.2f}%"
    if not result.settings:
        best = f"Nothing beats the defaults: {result.metric} {100 * result.score:.2f}%"
    elif result.default_score is not None:
        best += f" (defaults: {100 * result.default_score:.2f}%)"
    again = f", {result.resumed} of them by an earlier run" if result.resumed else ""
    show(f"{best}. {counted(len(result.trials), 'fit')}{again}; all are in {out}.")
    missed = ""
    if result.unseen_labels:
        missed = f" {counted(result.unseen_labels, 'tag')} without a training row count as missed."
    show(f"The same rows chose the settings, so the best score is a little too good for other rows.{missed}")
    show(f"Train with: {train}")
