"""``tagwise compare``: several models trained and measured on the same rows."""

from __future__ import annotations

import re
from typing import Any

import click

from tagwise import Tagger, TextFeatures
from tagwise.cli.evaluate import check_report, measure, warn_about
from tagwise.cli.options import FEATURES, FRACTION, ROWS, TAGS, Given, option, parse_settings, verb
from tagwise.cli.output import echo_err, show, show_json, show_table, warn
from tagwise.cli.rows import holds_matrix, read_rows, tag_settings, warn_if_same
from tagwise.data.tables import Table
from tagwise.exceptions import InvalidInputError
from tagwise.models.choice import build_model, model_info
from tagwise.progress import counted
from tagwise.reports import ComparedModel, Comparison, gather_findings, write_report
from tagwise.reports.findings import model_megabytes, predict_milliseconds
from tagwise.text.tags import split_texts


@verb(
    "file",
    option(
        "--model NAME[:SETTING=VALUE,…]",
        "A model, with settings that differ from its defaults; repeatable. auto is the one that train picks.",
        name="models",
        multiple=True,
        required=True,
    ),
    option("--test FILE", "File of rows to measure on, read like FILE."),
    option(
        "--validation FRACTION",
        "Without --test: the fraction of the rows, drawn at random, to measure on and not to train on [default: 0.2].",
        type=FRACTION,
    ),
    "--unlisted",
    TAGS,
    "--k",
    FEATURES,
    "--jobs",
    "--seed",
    "--quiet",
    "--report",
    "--json",
    ROWS,
    examples=(
        "tagwise compare articles.csv --model auto --model leml --model knn",
        "tagwise compare train.csv --test test.csv --model leml --model leml:rank=200,reg=0.3",
        "tagwise compare articles.jsonl --model leml --model reml --validation 0.1 --report models.html",
        "tagwise compare articles.csv --model binary-relevance --model cascade --json",
    ),
)
def command(given: Given) -> None:
    """Train several models on FILE and measure them on the same other rows.

    The table has precision (P), nDCG and propensity-scored precision (PSP) of the first k tags, seconds to fit,
    milliseconds per row to suggest tags, and the size of the model; the report and --json have more. The best model is
    that of highest nDCG at the largest k. No model is kept; train it with tagwise train.
    """
    file, test, models = given.file, given.test, given.models
    if test is not None and given.validation is not None:
        raise click.UsageError("--test and --validation exclude each other; give one of them.")
    for path in (file, *([test] if test else [])):
        if holds_matrix(path, given):
            raise InvalidInputError(f"{path} holds a matrix; compare needs rows with texts.")
    if len(set(models)) < len(models):
        twice = next(name for name in models if models.count(name) > 1)
        raise click.BadParameter(f"{twice} is given twice.", param_hint="--model")
    check_report(given, file)
    estimators = [_model(model, given) for model in models]
    training = read_rows(file, given)
    if test is not None:
        held = read_rows(test, given)
        warn_if_same(file, test)
    else:
        rows, others = split_texts(training.texts, training.tags, given.validation or 0.2, given.seed)
        training, held = training.part(rows), training.part(others)
    features = TextFeatures(**given.values(FEATURES))
    settings = {"unlisted": given.unlisted, **tag_settings(given), "features": features, **given.shared()}
    taggers = {name: Tagger(estimator, **settings) for name, estimator in zip(models, estimators)}
    comparison, best, failed = _compare(taggers, training, held, given)
    if given.report is not None:
        findings = gather_findings(best, held.texts, held.tags, held.known, ks=given.ks)
        source = f"{file}, measured on {test or 'random validation rows of it'}"
        write_report(findings, given.report, title="Comparison of models", source=source, comparison=comparison)
        echo_err(f"Report written to {given.report}.")
    if given.as_json:
        show_json(
            {
                "training_rows": comparison.training_rows,
                "rows": comparison.rows,
                "best_by": comparison.metric,
                "best": comparison.models[comparison.best].name,
                "models": [model.as_values() for model in comparison.models],
                "failed": failed,
            }
        )
    else:
        _show(comparison, failed, "" if test else ", drawn at random")


def _model(model: str, given: Given) -> Any:
    """``NAME`` or ``NAME:SETTING=VALUE,…`` as ``Tagger`` takes it; refuses a model that cannot be trained as asked."""
    name, colon, settings = model.partition(":")
    if name.lower() == "auto":
        if colon:
            raise click.BadParameter("auto takes no settings: it may pick any model.", param_hint="--model")
        return name
    if not model_info(name).learns_from_mask and given.known is not None:
        raise InvalidInputError(
            f"--model {name} does not support unknown tags; leave that model out, or leave out --known, so that "
            "unlisted tags count as wrong."
        )
    if not colon:
        return name
    # A comma within a value, such as a list, is followed by no name.
    parameters = parse_settings(re.split(r",\s*(?=\w+\s*=)", settings), "--model")
    return build_model(name, parameters, **given.shared())


def _compare(
    taggers: dict[str, Tagger], training: Table, held: Table, given: Given
) -> tuple[Comparison, Tagger, dict[str, str]]:
    """The comparison, its best tagger, and why some models could not be fitted; only the best tagger is kept."""
    metric = f"nDCG@{max(given.ks)}"
    done: list[ComparedModel] = []
    failed: dict[str, str] = {}
    best: Tagger | None = None
    for name in list(taggers):
        if not given.quiet:
            echo_err(f"Training {name} on {counted(training.n_rows, 'row')}.")
        tagger = taggers.pop(name)
        try:
            tagger.fit(training.texts, training.tags, training.known)
            found = measure(tagger, held, given.ks)
        except InvalidInputError as error:
            warn(f"{name} is left out of the comparison: {error}")
            failed[name] = str(error)
            continue
        if not done:
            warn_about(found)
        if best is None or found.metrics[metric] > max(other.metrics[metric] for other in done):
            best = tagger
        model = ComparedModel(
            name=f"auto ({tagger.choice_.name})" if name.lower() == "auto" else name,
            metrics=found.metrics,
            fit_seconds=tagger.training_["seconds"],
            predict_ms=predict_milliseconds(tagger, held.texts),
            megabytes=model_megabytes(tagger),
            reason=tagger.choice_.reason,
            history=list(tagger.model_.history_),
        )
        done.append(model)
    if best is None:
        raise InvalidInputError(f"no model could be compared; the first problem: {next(iter(failed.values()))}")
    return Comparison(done, metric, given.ks, training.n_rows, held.n_rows), best, failed


def _show(comparison: Comparison, failed: dict[str, str], drawn: str) -> None:
    # Terminals are narrow; the report and --json have all metrics.
    last = f"@{max(comparison.ks)}"
    columns = [name for name in comparison.columns() if name.startswith("P@") or name.endswith(last)]
    if f"new-R{last}" in comparison.models[0].metrics:
        columns.append(f"new-R{last}")
    rows = []
    for model in comparison.models:
        metrics = [f"{100 * model.metrics[name]:.1f}" for name in columns]
        rows.append(
            [model.name, *metrics, f"{model.fit_seconds:.1f}", f"{model.predict_ms:.3f}", f"{model.megabytes:.1f}"]
        )
    measured = f"{comparison.rows:,} others{drawn}"
    title = f"Trained on {comparison.training_rows:,} rows, measured on {measured}, metrics in percent"
    show_table(title, ["model", *columns, "fit s", "ms/row", "MB"], rows)
    best = comparison.models[comparison.best]
    show(f"Best by {comparison.metric}: {best.name}.")
    if best.name.startswith("auto"):
        show(f"Model: {best.reason}")
    for name, reason in failed.items():
        show(f"Left out: {name}. {reason}")
