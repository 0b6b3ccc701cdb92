"""``tagwise tune``: good settings of a model, found on validation rows."""

from __future__ import annotations

import json
import shlex
from typing import Any

from tagwise import TextFeatures
from tagwise.cli.options import FEATURES, FRACTION, POSITIVE, ROWS, TAGS, Given, RealRange, option, verb
from tagwise.cli.output import echo_err, show, show_json, show_table
from tagwise.cli.rows import holds_matrix, read_matrix, read_rows, tag_settings
from tagwise.cli.train import command as training
from tagwise.cli.train import refuse_contradiction
from tagwise.models.choice import choose_model, model_info
from tagwise.progress import ProgressBar, counted
from tagwise.store.atomic import check_target
from tagwise.text.embeddings import TextEmbedder
from tagwise.tuning import Trial, TuningResult, tune
from tagwise.tuning.texts import TuningRows
from tagwise.tuning.tuner import MOST_BUDGET, trial_values

_SHOWN = 8


@verb(
    "file",
    "--model",
    option(
        "--out FILE.json",
        "Trials and best settings, written after every fit; if it exists, the same command resumes from it.",
        required=True,
    ),
    option(
        "--budget",
        "Cost of the search, in fits of all training rows.",
        type=RealRange(0, MOST_BUDGET, min_open=True),
        default=4.0,
    ),
    option("--metric", "P@k, nDCG@k, PSP@k, PSnDCG@k, R@k or coverage@k.", default="nDCG@5"),
    option(
        "--validation FRACTION",
        "The fraction of the rows, drawn at random, to judge by and not to train on.",
        type=FRACTION,
        default=0.2,
    ),
    option("--min-rows", "Rows of the first, smallest fits.", type=POSITIVE, default=500),
    "--unlisted",
    TAGS,
    FEATURES,
    "--embedder",
    "--embedding-cache",
    "--jobs",
    "--seed",
    "--quiet",
    "--json",
    ROWS,
    examples=(
        "tagwise tune articles.csv --model leml --out leml.json",
        "tagwise tune articles.jsonl.gz --text body --tags subjects --model reml --budget 8 --out reml.json",
        "tagwise tune articles.csv --model auto --metric PSP@5 --out best.json",
        "tagwise tune X.trn.npz --labels Y.trn.npz --model leml --out leml.json",
    ),
)
def command(given: Given) -> None:
    """Search for good settings of a model: rank, penalty, loss; and first for good features of texts.

    Features are compared on a sample of the training rows, unless the command has an option of them. Then successive
    halving: many settings, drawn at random, are fitted on few rows; the best third continues with three
    times the rows, and so on up to all of them. The model's defaults take part to the end. Which settings are searched
    for each model is in the documentation of tagwise.tuning; with --embedder also the weight of embeddings beside
    words. After an interruption the same command resumes.
    """
    name = "auto" if given.model.lower() == "auto" else model_info(given.model).name
    check_target(given.out, "--out")
    refuse_contradiction(given)
    features, rows = given.values(FEATURES), None
    if holds_matrix(given.file, given):
        given.refuse_for_matrix(given.file, "embedder", "embedding_cache")
        matrix = read_matrix(given.file, given)
        X, Y, observed = matrix.X, matrix.Y, None
        assert X is not None
    else:
        rows = _rows(given, features)
        X, Y, observed, features = rows.X, rows.Y, rows.observed, rows.words.get_params()
        if rows.reason and not given.quiet:
            echo_err(rows.reason)
    if name == "auto":
        sizes = (X.shape[0], X.shape[1], Y.shape[1], int(Y.nnz))
        choice = choose_model(*sizes, masked=observed is not None, unlisted=given.unlisted)
        name = choice.name
        if not given.quiet:
            echo_err(choice.reason)

    def report(trial: Trial[dict[str, Any]], done: int, total: int) -> None:
        bar.at(done, f"{done} of at most {total} fits", total=total)
        found = f"failed ({trial.details})" if trial.score is None else f"{given.metric} {100 * trial.score:.2f}%"
        echo_err(f"{done}/{total}: {trial.budget:,} rows, {_settings(trial.candidate)}: {found}, {trial.seconds:.1f} s")

    try:
        with ProgressBar(f"tuning {name}", None, wanted=not given.quiet) as bar:
            result = tune(
                name,
                X,
                Y,
                observed,
                validation=None if rows is None else rows.validation,
                validation_fraction=given.validation,
                metric=given.metric,
                budget=given.budget,
                min_rows=given.min_rows,
                unlisted=given.unlisted,
                label_features=rows.names if rows is not None and model_info(name).learns_from_names else None,
                n_jobs=given.jobs,
                random_state=given.seed,
                state=given.out,
                callback=None if given.quiet else report,
            )
    except KeyboardInterrupt:
        echo_err(f"What was done so far is in {given.out}; the same command resumes from there.")
        raise
    train = _training_command(given, result, features)
    if given.as_json:
        trials = [trial_values(trial) for trial in result.trials]
        show_json(
            {**result.as_values(), "resumed": result.resumed, "command": train, "out": given.out, "trials": trials}
        )
    else:
        _show(result, train, given.out)


def _rows(given: Given, features: dict[str, Any]) -> TuningRows:
    embedder = None if given.embedder is None else TextEmbedder.of(given.embedder)
    if embedder is not None:
        embedder.settle(given.embedding_cache, not given.quiet)
    return TuningRows.of(
        read_rows(given.file, given),
        **tag_settings(given),
        features=TextFeatures(**features) if given.stated & features.keys() else None,
        embedder=embedder,
        validation_fraction=given.validation,
        n_jobs=given.jobs,
        random_state=given.seed,
    )


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in settings.items()) or "defaults"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _training_command(given: Given, result: TuningResult, features: dict[str, Any]) -> str:
    """The command that trains with the settings that were found, as it is typed into a shell."""
    words = ["tagwise", "train", given.file, "--out", "model", "--model", result.model]
    for name, value in result.settings.items():
        words += ["--set", f"{name}={_value(value)}"]
    alike = {*ROWS, *TAGS, "embedder", "embedding_cache", "unlisted", "seed"}
    settings = {name: getattr(given, name) for name in alike & given.stated}
    usual = TextFeatures().get_params()
    settings |= {name: value for name, value in features.items() if value != usual[name]}
    for parameter in training.params:
        value = settings.get(parameter.name or "")
        for each in value if isinstance(value, tuple) else () if value is None else (value,):
            words += parameter.opts if isinstance(each, bool) else [*parameter.opts, str(each)]
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
