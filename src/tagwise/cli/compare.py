"""``tagwise compare``: several models trained and measured on the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tagwise.cli.options import RowOptions, examples, jobs_option, json_option, row_options, seed_option
from tagwise.cli.output import say, show, show_json, show_table, warn
from tagwise.cli.reporting import check_report, report_option
from tagwise.progress import counted

if TYPE_CHECKING:
    from tagwise import Tagger
    from tagwise.data.tables import Table
    from tagwise.reports import ComparedModel, Comparison
    from tagwise.text.evaluation import Evaluation

__all__ = ["command", "parse_model"]


@click.command(
    name="compare",
    short_help="Train several models and measure them on the same rows.",
    epilog=examples(
        "tagwise compare articles.csv --model auto --model leml --model knn",
        "tagwise compare train.csv --test test.csv --model leml --model leml:rank=200,reg=0.3",
        "tagwise compare articles.jsonl --model leml --model reml --validation 0.1 --report models.html",
        "tagwise compare articles.csv --model binary-relevance --model cascade --json",
    ),
)
@click.argument("file")
@click.option(
    "--model",
    "models",
    multiple=True,
    required=True,
    metavar="NAME[:SETTING=VALUE,…]",
    help="A model, with settings where they differ from its defaults; repeat it for each. auto picks one by size.",
)
@click.option("--test", metavar="FILE", help="File of rows to measure on, read as FILE is.")
@click.option(
    "--validation",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="FRACTION",
    help="Without --test: the part of the rows to hold out and measure on [default: 0.2].",
)
@click.option("--k", "ks", multiple=True, type=click.IntRange(min=1), help="A place to measure at [default: 1, 3, 5].")
@click.option("--characters", is_flag=True, help="Count runs of 3 to 5 characters beside words.")
@click.option("--min-df", default=2, show_default=True, help="Leave out words that fewer texts have.")
@click.option("--max-features", type=int, metavar="N", help="Keep only so many words, the most frequent ones.")
@jobs_option
@seed_option
@click.option("--quiet", is_flag=True, help="Say only what looks wrong, and the result.")
@report_option
@json_option
@row_options()
def command(
    file: str,
    models: tuple[str, ...],
    test: str | None,
    validation: float | None,
    ks: tuple[int, ...],
    characters: bool,
    min_df: int,
    max_features: int | None,
    jobs: int,
    seed: int,
    quiet: bool,
    report: str | None,
    as_json: bool,
    rows: RowOptions,
) -> None:
    """Train several models on FILE and measure them on the same other rows.

    The table has precision (P), nDCG and propensity-scored precision (PSP) of the first k tags, seconds to fit,
    milliseconds to suggest tags for a row, and the size of the model; the report and --json have more. The best is that
    of highest nDCG at the largest k. No model is kept; train it with tagwise train.
    """
    from tagwise import Tagger
    from tagwise.cli.rows import holds_matrix, read_rows
    from tagwise.exceptions import InvalidInputError

    if test is not None and validation is not None:
        raise click.UsageError("--test and --validation exclude each other: rows are measured on either.")
    for path in (file, *([test] if test else [])):
        if holds_matrix(path, rows):
            raise InvalidInputError(f"{path} holds a matrix; compare needs rows with texts.")
    if len(set(models)) < len(models):
        twice = next(name for name in models if models.count(name) > 1)
        raise click.BadParameter(f"{twice} is given twice.", param_hint="--model")
    check_report(report, file, rows)
    verbose = 0 if quiet else 1
    estimators = [parse_model(model, jobs, seed, verbose) for model in models]
    places = tuple(dict.fromkeys(ks)) or (1, 3, 5)
    training = read_rows(file, rows, quiet=quiet)
    _check_masks(models, estimators, training)
    if test is not None:
        held_out = read_rows(test, rows, quiet=quiet)
    else:
        from tagwise.cli.fitting import held_out_rows

        training, held_out = held_out_rows(training, 0.2 if validation is None else validation, seed)
    taggers = {
        name: Tagger(
            estimator,
            min_df=min_df,
            max_features=max_features,
            characters=characters,
            n_jobs=jobs,
            random_state=seed,
            verbose=verbose,
        )
        for name, estimator in zip(models, estimators)
    }
    comparison, best, failed = _compare(taggers, training, held_out, places, quiet)
    if report is not None:
        _write(best, held_out, comparison, report, file, test)
    if as_json:
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
        _show(comparison, failed)


def parse_model(model: str, jobs: int, seed: int, verbose: int) -> Any:
    """``NAME`` or ``NAME:SETTING=VALUE,…`` as what ``Tagger`` takes; refuses names and settings that there are not."""
    from tagwise.cli.train import parse_settings
    from tagwise.models.choice import build_model, model_info

    name, colon, settings = model.partition(":")
    if name.lower() != "auto":
        model_info(name)
    elif colon:
        raise click.BadParameter("auto takes no settings: it may pick any model.", param_hint="--model")
    if not colon:
        return name
    parameters = parse_settings([part.strip() for part in settings.split(",")])
    return build_model(name, parameters, n_jobs=jobs, random_state=seed, verbose=verbose)


def _check_masks(names: tuple[str, ...], estimators: list[Any], data: Table) -> None:
    if data.known is None:
        return
    from tagwise.exceptions import InvalidInputError
    from tagwise.models.choice import model_info
    from tagwise.registry import info_of

    for name, estimator in zip(names, estimators):
        if isinstance(estimator, str) and estimator.lower() == "auto":
            continue
        info = model_info(estimator) if isinstance(estimator, str) else info_of(type(estimator))
        if not info.learns_from_mask:
            raise InvalidInputError(
                f"--model {name} has no notion of unknown tags; leave that model out, or leave out --known, and all "
                "tags that a row does not list count as wrong for it."
            )


def _compare(
    taggers: dict[str, Tagger], training: Table, held_out: Table, ks: tuple[int, ...], quiet: bool
) -> tuple[Comparison, Tagger, dict[str, str]]:
    """The comparison, its best tagger, and why some models could not be fitted; only the best tagger is kept."""
    from tagwise.cli.evaluate import warn_of
    from tagwise.exceptions import InvalidInputError
    from tagwise.reports import Comparison

    metric = f"nDCG@{max(ks)}"
    done: list[ComparedModel] = []
    failed: dict[str, str] = {}
    best: Tagger | None = None
    for name in list(taggers):
        if not quiet:
            say(f"{name}: {counted(len(training.texts), 'row')} to train on.")
        tagger = taggers.pop(name)
        try:
            model, evaluation = _measured(name, tagger, training, held_out, ks)
        except InvalidInputError as error:
            warn(f"{name} is left out of the comparison: {error}")
            failed[name] = str(error)
            continue
        if not done:
            warn_of(evaluation)
        if best is None or model.metrics[metric] > max(other.metrics[metric] for other in done):
            best = tagger
        done.append(model)
    if best is None:
        raise InvalidInputError(f"no model could be compared; the first problem: {next(iter(failed.values()))}")
    return Comparison(done, metric, ks, len(training.texts), len(held_out.texts)), best, failed


def _measured(
    name: str, tagger: Tagger, training: Table, held_out: Table, ks: tuple[int, ...]
) -> tuple[ComparedModel, Evaluation]:
    from tagwise.reports import ComparedModel
    from tagwise.reports.findings import model_megabytes, predict_milliseconds

    tagger.fit(training.texts, training.tags, training.known)
    evaluation = tagger.evaluate(held_out.texts, held_out.tags, held_out.known, ks=ks)
    model = ComparedModel(
        name=f"auto ({tagger.choice_.name})" if name.lower() == "auto" else name,
        metrics=evaluation.metrics,
        fit_seconds=tagger.training_["seconds"],
        predict_ms=predict_milliseconds(tagger, held_out.texts),
        megabytes=model_megabytes(tagger),
        reason=tagger.choice_.reason,
        history=list(tagger.model_.history_),
    )
    return model, evaluation


def _write(best: Tagger, held_out: Table, comparison: Comparison, report: str, file: str, test: str | None) -> None:
    from tagwise.reports import gather_findings, write_report

    findings = gather_findings(best, held_out.texts, held_out.tags, held_out.known, ks=tuple(comparison.ks))
    source = f"{file}, measured on {test or 'rows held out of it'}"
    write_report(findings, report, title="Comparison of models", source=source, comparison=comparison)
    say(f"Report written to {report}.")


def _show(comparison: Comparison, failed: dict[str, str]) -> None:
    # Terminals are narrow; the report and --json have all places of all metrics.
    last = f"@{max(comparison.ks)}"
    columns = [name for name in comparison.columns() if name.startswith("P@") or name.endswith(last)]
    rows = [
        [
            model.name,
            *(f"{100 * model.metrics[name]:.1f}" for name in columns),
            f"{model.fit_seconds:.1f}",
            f"{model.predict_ms:.3f}",
            f"{model.megabytes:.1f}",
        ]
        for model in comparison.models
    ]
    title = f"Trained on {comparison.training_rows:,} rows, measured on {comparison.rows:,} others, metrics in percent"
    show_table(title, ["model", *columns, "fit s", "ms a row", "MB"], rows)
    best = comparison.models[comparison.best]
    show(f"Best by {comparison.metric}: {best.name}.")
    if best.name.startswith("auto"):
        show(f"Model: {best.reason}")
    for name, reason in failed.items():
        show(f"Left out: {name}. {reason}")
