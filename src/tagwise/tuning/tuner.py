"""Tuning by successive halving: many settings on few rows, the best of them on more, and so on up to all rows."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tagwise.data.splits import split_rows
from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseWarning
from tagwise.feature_blocks import FeatureBlocks
from tagwise.inspection.validation_pairs import known_ranking
from tagwise.metrics import RANKINGS, inverse_propensity, ranking_report
from tagwise.models.choice import build_model, model_class, model_info
from tagwise.objectives.labels import UNLISTED
from tagwise.problem import Problem
from tagwise.solvers.search import Outcome, Rung, Trial, search
from tagwise.store.atomic import atomic_write
from tagwise.store.checkpoints import Identity, differences, fit_identity
from tagwise.store.folder import storable_parameters
from tagwise.tuning.spaces import DENSE_WEIGHT, SearchSpace, check_space, draw_settings, search_space
from tagwise.validation import check_choice, check_features, check_integer, check_labels, check_real

__all__ = ["FORMAT", "METRICS", "TuningResult", "rungs_for", "trial_values", "tune"]

METRICS = {metric.name: metric for metric in RANKINGS}
"""Metrics that can be maximised, each at some k: ``"nDCG@5"``."""

FORMAT = "tagwise tuning 1"

# Each fit is kept in memory and in the file of the search.
MOST_BUDGET = 10_000

_MOST_RUNGS = 4

Settings = dict[str, Any]
TrialCallback = Callable[[Trial[Settings], int, int], None]
"""``callback(trial, done, total)``, after every trial; also for the trials that a resumed search finds in its file."""


@dataclass(frozen=True, eq=False)
class TuningResult:
    """The outcome of a search."""

    model: str
    metric: str
    settings: Settings  # the best: parameters for the model's constructor; empty if nothing beat its defaults
    score: float  # their metric on the validation rows, fitted on all training rows
    default_score: float | None  # that of the model's defaults on the same rows; None if they cannot be fitted
    trials: list[Trial[Settings]]  # all fits in order; details say why one failed or what it warned of
    rungs: list[Rung]  # numbers of settings (the defaults not counted) that were fitted, and of rows
    resumed: int  # number of trials that an earlier run had made
    validation_rows: int
    unseen_labels: int  # labels of these rows without a training row; they count as missed

    def as_values(self) -> dict[str, Any]:
        """The result without the trials, for JSON."""
        values = {name: value for name, value in vars(self).items() if name not in ("trials", "rungs", "resumed")}
        return {**values, "fits": len(self.trials), "rows": [rung.budget for rung in self.rungs]}


def trial_values(trial: Trial[Settings]) -> dict[str, Any]:
    """A trial for JSON."""
    values = {"rung": trial.rung, "rows": trial.budget, "settings": trial.candidate}
    return {**values, "score": trial.score, "seconds": trial.seconds, "problem": trial.details}


def tune(
    model: str,
    X: Any,
    Y: Any,
    observed: Any = None,
    *,
    validation: tuple[Any, Any, Any] | None = None,
    validation_fraction: float = 0.2,
    space: SearchSpace | None = None,
    metric: str = "nDCG@5",
    budget: float = 4.0,
    factor: int = 3,
    min_rows: int = 500,
    unlisted: str = "off",
    label_features: Any = None,
    n_jobs: int | None = None,
    random_state: int = 0,
    state: str | PathLike[str] | None = None,
    callback: TrialCallback | None = None,
) -> TuningResult:
    """Search for good settings of a model by successive halving over training rows.

    Parameters
    ----------
    model : str
        Name of a model, such as ``"leml"``.
    X, Y, observed
        As in ``fit``.
    validation : (X, Y, observed or None), optional
        Rows to score settings on. Otherwise ``validation_fraction`` of the rows, at random. Labels that then have no
        training row count as missed.
    validation_fraction : float
    space : mapping, optional
        Parameter → :class:`Choice` or :class:`LogRange`; the model's default space otherwise (:func:`search_space`).
    metric : str
        A ranking metric at some k: ``"P@1"``, ``"nDCG@5"``, … (:data:`tagwise.metrics.RANKINGS`). With a mask, only
        known labels are ranked.
    budget : float
        The cost of the search in fits of all training rows, the defaults not counted; at most 10,000.
    factor : int
        One in ``factor`` settings advances to the next rung, which has ``factor`` times the rows.
    min_rows : int
        Minimum number of rows of the first rung.
    unlisted : {"off", "unknown"}
        How to treat unlisted labels, as in ``Tagger``: models are built accordingly.
    label_features : sparse matrix of shape (L, d), optional
        The features of the labels' names, for models that learn from names (Cascade).
    n_jobs, random_state : int
        Threads (the result does not depend on their number), and seed.
    state : path, optional
        JSON file that is written after every fit. If it holds an earlier run of the same search, stopped or finished,
        its fits are not repeated, and the result is that of an uninterrupted search.
    callback : callable(trial, done, total), optional

    Returns
    -------
    TuningResult

    Raises
    ------
    InvalidInputError
        ``state`` holds another search, or no settings can be fitted at all.

    Notes
    -----
    Settings are drawn at random. The rows of a rung contain those of the rung before. The model's defaults are part of
    every rung, so the result is never worse than the defaults on the validation rows. Ties go to the settings drawn
    earlier, the defaults first. Settings that cannot be fitted rank last. Penalties are not scaled with the rows of a
    rung: the losses are sums over rows, for which the best penalty depends on noise and weights more than on n.

    The best score is slightly optimistic, since the same validation rows chose it.

    References
    ----------
    K. Jamieson, A. Talwalkar. Non-stochastic best arm identification and hyperparameter optimization. AISTATS 2016.
    Deviations: the number of rungs is bounded, and the defaults always advance.
    """
    info = model_info(model)
    name, seed = info.name, check_integer(random_state, "random_state", minimum=0)
    budget = check_real(budget, "budget", minimum=0, maximum=MOST_BUDGET, open_minimum=True)
    factor = check_integer(factor, "factor", minimum=2)
    min_rows = check_integer(min_rows, "min_rows", minimum=1)
    judge = _metric_at_k(metric)
    if callback is not None and not callable(callback):
        raise InvalidTypeError(f"callback must be callable as callback(trial, done, total); found {callback!r}.")
    training = _checked_rows(X, Y, observed)
    if validation is None:
        train, held = split_rows(training.Y, validation_fraction, seed)
        training, judges = training.rows(train), training.rows(held)
    else:
        judges = _checked_rows(*validation)
        if (judges.X.shape[1], judges.n_labels) != (training.X.shape[1], training.n_labels):
            raise InvalidInputError("validation must have the features and labels of X and Y.")
    if training.known is not None and not info.learns_from_mask:
        raise InvalidInputError(f"observed: {name} does not support unknown labels; leave observed out.")
    if label_features is not None and not info.learns_from_names:
        raise InvalidInputError(f"label_features: {name} does not learn from names; leave them out.")
    n_rows, defaults = training.n_rows, model_class(name)().get_params(deep=False)
    if space is None:
        pairs = None if training.known is None else training.known.n_pairs
        sizes = {"n_rows": n_rows, "n_features": training.X.shape[1], "n_labels": training.n_labels}
        space = search_space(name, **sizes, n_pairs=pairs)
        if isinstance(training.X, FeatureBlocks) and "dense_weight" in defaults:
            space["dense_weight"] = DENSE_WEIGHT
    else:
        space = check_space(space, name)

    rungs = rungs_for(n_rows, budget, factor, min_rows)
    candidates: list[Settings] = [{}]
    candidates += draw_settings(space, rungs[0].n_candidates, np.random.default_rng([seed, 1]))
    described = {
        "space": {key: vars(values) for key, values in space.items()},
        "metric": metric,
        "settings": [rung.n_candidates for rung in rungs],
        "rows": [rung.budget for rung in rungs],
        "random_state": seed,
        "defaults": storable_parameters(defaults),
        "unlisted": check_choice(unlisted, "unlisted", UNLISTED),
    }
    more = {} if label_features is None else {"label_features": label_features}
    data = {key: getattr(training, key) for key in ("X", "Y", "observed")}
    data |= {f"validation {key}": getattr(judges, key) for key in ("X", "Y", "observed")}
    record = _StateFile(state, fit_identity(name, described, data | more), candidates)
    resumed = len(record)
    order = np.random.default_rng([seed, 0]).permutation(n_rows)

    def evaluate(settings: Settings, n_rows: int) -> Outcome:
        """The metric of settings on the validation rows, fitted on the first rows of a fixed order."""
        some = training.rows(np.sort(order[:n_rows]))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TagwiseWarning)
            try:
                model = build_model(name, settings, unlisted=unlisted, n_jobs=n_jobs, random_state=seed)
                reached = judge(model.fit(some.X, some.Y, some.observed, **more), judges, training)
            except InvalidInputError as error:
                return Outcome(None, str(error))
        told = [str(warning.message) for warning in caught if issubclass(warning.category, TagwiseWarning)]
        return Outcome(reached, told[0] if told else "")

    found = search(candidates, evaluate, rungs=rungs, n_protected=1, record=record, callback=callback)
    best = found.best
    if best.score is None:
        raise InvalidInputError(f"no settings of {name} can be fitted; the first problem: {best.details}")
    result = TuningResult(
        model=name,
        metric=metric,
        settings=best.candidate,
        score=best.score,
        default_score=next(trial.score for trial in found.ranked if trial.position == 0),
        trials=found.trials,
        rungs=rungs,
        resumed=resumed,
        validation_rows=judges.n_rows,
        unseen_labels=int(np.count_nonzero((judges.label_counts > 0) & (training.label_counts == 0))),
    )
    record.write(result.as_values())
    return result


def rungs_for(n_rows: int, budget: float, factor: int, min_rows: int) -> list[Rung]:
    """Rungs: at most 4, the first with ``min_rows`` rows or more, with as many settings as the budget allows."""
    count = 1
    while count < _MOST_RUNGS and n_rows // factor**count >= min_rows:
        count += 1
    # Every rung costs the same: a factor fewer settings on a factor more rows.
    first = max(1, int(budget * factor ** (count - 1) / count))
    return [Rung(max(1, first // factor**rung), -(-n_rows // factor ** (count - 1 - rung))) for rung in range(count)]


def _metric_at_k(metric: Any) -> Callable[[Any, Problem, Problem], float]:
    """A measure of a fitted model on rows, given the training rows, from a name such as "nDCG@5"."""
    match = re.fullmatch(r"(\w+)@([1-9][0-9]{0,3})", metric) if isinstance(metric, str) else None
    if match is None or match[1] not in METRICS:
        raise InvalidInputError(
            f"metric must be one of {', '.join(f'{name}@k' for name in METRICS)}; found {metric!r}."
        )
    k = int(match[2])

    def judge(model: Any, rows: Problem, training: Problem) -> float:
        ranked, _ = known_ranking(model, rows.X, min(k, rows.n_labels), rows.observed)
        weights = inverse_propensity(training.Y) if METRICS[match[1]].weighted else None
        return ranking_report(rows.Y, ranked, (k,), weights)[metric]

    return judge


def _checked_rows(X: Any, Y: Any, observed: Any) -> Problem:
    """Y's entries at unknown pairs are never used, in scoring as in fitting."""
    features = check_features(X, blocks=True)
    return Problem.of(features, check_labels(Y, n_rows=features.shape[0]), observed)


class _StateFile(dict[tuple[int, int], Trial[Settings]]):
    """The record of a search, kept in a JSON file that is replaced atomically after every trial.

    A path of None keeps it in memory only. A file of another search is refused and left as it is.
    """

    def __init__(self, path: str | PathLike[str] | None, identity: Identity, candidates: list[Settings]) -> None:
        super().__init__()
        self.path = None if path is None else Path(path)
        self.identity = identity
        if self.path is not None and self.path.exists():
            self._read(self.path, candidates)

    def __setitem__(self, key: tuple[int, int], trial: Trial[Settings]) -> None:
        super().__setitem__(key, trial)
        self.write(None)

    def write(self, result: dict[str, Any] | None) -> None:
        """Write the file; ``result`` is what the search found, once it is finished."""
        if self.path is None:
            return
        content = {"format": FORMAT, "finished": result is not None, "result": result, "search": self.identity}
        content["trials"] = [trial_values(trial) for trial in self.values()]
        page = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False).encode() + b"\n"
        atomic_write(self.path, lambda stream: stream.write(page))

    def _read(self, path: Path, candidates: list[Settings]) -> None:
        # As JSON has it: tuples of this run would differ from the lists of the file.
        mine = json.loads(json.dumps(self.identity))
        positions = {json.dumps(settings, sort_keys=True): position for position, settings in enumerate(candidates)}
        try:
            content = json.loads(path.read_bytes())
            if content["format"] != FORMAT:
                raise ValueError("another format")
            changes = differences(mine, content["search"])
            for values in [] if changes else content["trials"]:
                position = positions[json.dumps(values["settings"], sort_keys=True)]
                trial = _read_trial(values, candidates[position], position)
                super().__setitem__((trial.rung, position), trial)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise InvalidInputError(
                f"{path} exists and was not written by a search of tagwise; name another file, or remove it."
            ) from None
        if changes:
            raise InvalidInputError(
                f"{path} holds another search: {changes[0]}. Name another file, remove it to start over, or "
                "repeat the command that made it."
            )


def _read_trial(values: dict[str, Any], settings: Settings, position: int) -> Trial[Settings]:
    """The inverse of :func:`trial_values`; ValueError, KeyError or TypeError for values that it cannot have made."""
    check_integer(values["rung"], "rung", minimum=0)
    check_integer(values["rows"], "rows", minimum=1)
    check_real(values["seconds"], "seconds")
    if values["score"] is not None:
        check_real(values["score"], "score")
    if not isinstance(values["problem"], str):
        raise ValueError("not a trial")
    return Trial(settings, position, *(values[name] for name in ("rung", "rows", "score", "seconds", "problem")))
