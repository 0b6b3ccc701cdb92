"""The work of ``tagwise train``: hold rows out, fit, calibrate, measure. ``compare`` and ``tune`` hold rows out too."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tagwise.cli.options import RowOptions
from tagwise.cli.output import say, warn
from tagwise.progress import counted

if TYPE_CHECKING:
    from tagwise import Tagger
    from tagwise.base import MultiLabelModel
    from tagwise.data.tables import Table
    from tagwise.persistence import Checkpoint
    from tagwise.text.evaluation import Evaluation

__all__ = [
    "FittedTagger",
    "estimator_of",
    "fit_model",
    "fit_tagger",
    "held_out_rows",
    "main_figures",
    "open_checkpoint",
]

_METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")


def estimator_of(model: str, parameters: dict[str, Any], jobs: int, seed: int, verbose: int) -> Any:
    """A name as it is; with parameters, the model that they make."""
    if not parameters:
        return model
    from tagwise.models.choice import build_model

    return build_model(model, parameters, n_jobs=jobs, random_state=seed, verbose=verbose)


def open_checkpoint(out: str, every: int | None, resume: bool) -> Checkpoint | None:
    """The checkpoint beside the folder of the model, if one is wanted; refuses to start anew over an old one."""
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


@dataclass(frozen=True, eq=False)
class FittedTagger:
    """A tagger, and what is to be told about it.

    Attributes
    ----------
    tagger : fitted Tagger
    figures : dict
        Model, reason, sizes and seconds; with held-out rows, how well the tagger does on them.
    held_out : Table or None
        The rows that were held out; the tagger is calibrated on them.
    evaluation : Evaluation or None
        Of those rows.
    """

    tagger: Tagger
    figures: dict[str, Any]
    held_out: Table | None
    evaluation: Evaluation | None


def fit_tagger(
    tagger: Tagger,
    data: Table,
    validation: float | None,
    target: str,
    seed: int,
    checkpoint: Checkpoint | None = None,
) -> FittedTagger:
    """Fit and, with held-out rows, calibrate and measure."""
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
    figures: dict[str, Any] = {
        "model": tagger.choice_.name,
        "reason": tagger.choice_.reason,
        **{name: value for name, value in tagger.training_.items() if name not in ("tag_rows", "seconds")},
        "fit_seconds": tagger.training_["seconds"],
    }
    if held_out is None:
        return FittedTagger(tagger, {**figures, "calibrated": False}, None, None)
    try:
        tagger.calibrate(held_out.texts, held_out.tags, held_out.known, target=target)
    except InvalidInputError as error:
        # The fit may have taken hours, and the tagger is good without probabilities.
        warn(f"the tagger has no probabilities and thresholds: {error}")
    evaluation = tagger.evaluate(held_out.texts, held_out.tags, held_out.known)
    figures |= {"calibrated": tagger.calibration_ is not None, "held_out": main_figures(evaluation)}
    return FittedTagger(tagger, figures, held_out, evaluation)


def main_figures(evaluation: Evaluation) -> dict[str, Any]:
    """How many rows were measured on, and the metrics that ``train`` shows."""
    metrics = evaluation.metrics
    return {"rows": evaluation.rows, **{name: metrics[name] for name in _METRICS if name in metrics}}


def held_out_rows(data: Table, fraction: float, seed: int) -> tuple[Table, Table]:
    """Training rows, and held-out ones of which no text is among the training texts; every tag stays in training.

    Raises
    ------
    InvalidInputError
        No row can be held out.
    """
    from tagwise.data import split_rows
    from tagwise.exceptions import InvalidInputError
    from tagwise.text.tags import all_tags, tag_matrix

    names = all_tags(data.tags)
    Y, _ = tag_matrix(data.tags, {name: place for place, name in enumerate(names)})
    train, test = split_rows(Y, fraction, seed)
    seen = {data.texts[row] for row in train.tolist()}
    repeats = [row for row in test.tolist() if data.texts[row] in seen]
    fresh = [row for row in test.tolist() if data.texts[row] not in seen]
    if repeats:
        warn(f"{counted(len(repeats), 'row')} to be held out, with a text that training rows have too: trained on.")
    if not fresh:
        raise InvalidInputError(
            f"--validation {fraction:g} leaves no row to hold out: each is the last training row of a tag, or its "
            "text is among the training texts. Give more rows, or leave --validation out."
        )
    return data.part(sorted([*train.tolist(), *repeats])), data.part(fresh)


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
    from tagwise.cli.rows import read_matrix, read_names
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
