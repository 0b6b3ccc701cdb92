"""Tuning by successive halving: many settings on few rows, the best of them on more, the best of these on all."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.data.splits import split_rows
from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseWarning
from tagwise.feature_blocks import FeatureBlocks
from tagwise.inspection.validation_pairs import known_ranking
from tagwise.metrics import inverse_propensity, ranking_report
from tagwise.models.choice import build_model, model_class, model_info
from tagwise.persistence.atomic import atomic_write
from tagwise.persistence.checkpoints import Identity, checked_identity, differences, fit_identity
from tagwise.persistence.loading import storable_parameters
from tagwise.problems.labels import UNLISTED
from tagwise.solvers.search import Evaluation, Rung, Trial, search
from tagwise.tuning.spaces import DENSE_WEIGHT, SearchSpace, as_values, check_space, draw_settings, search_space
from tagwise.validation import (
    canonical_csr,
    check_choice,
    check_features,
    check_integer,
    check_labels,
    check_observed,
    check_real,
)

__all__ = ["FORMAT", "METRICS", "TuningResult", "rungs_for", "trial_values", "tune"]

METRICS = ("P", "nDCG", "PSP", "PSnDCG", "R")
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
    rungs: list[Rung]  # how many settings (the defaults not counted) were fitted on how many rows
    resumed: int  # how many of the trials an earlier run had made
    validation_rows: int = 0  # how many rows judged
    unseen_labels: int = 0  # how many labels of theirs have no training row; they count as missed

    def as_values(self) -> dict[str, Any]:
        """For JSON: the result without the trials."""
        return {
            "model": self.model,
            "metric": self.metric,
            "settings": self.settings,
            "score": self.score,
            "default_score": self.default_score,
            "fits": len(self.trials),
            "rows": [rung.budget for rung in self.rungs],
            "validation_rows": self.validation_rows,
            "unseen_labels": self.unseen_labels,
        }


def trial_values(trial: Trial[Settings]) -> dict[str, Any]:
    """A trial for JSON."""
    return {
        "rung": trial.rung,
        "rows": trial.budget,
        "settings": trial.candidate,
        "score": trial.score,
        "seconds": trial.seconds,
        "problem": trial.details,
    }


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
        ``"P@k"``, ``"nDCG@k"``, ``"PSP@k"``, ``"PSnDCG@k"`` or ``"R@k"``. With a mask, only known labels are ranked.
    budget : float
        The cost of the search in fits of all training rows, the defaults not counted; at most 10,000.
    factor : int
        One in ``factor`` settings advances to the next rung, which has ``factor`` times the rows.
    min_rows : int
        The fewest rows of the first rung, if there are as many.
    unlisted : {"off", "unknown"}
        What labels are that rows do not list, as in ``Tagger``: models are built for it.
    label_features : sparse matrix of shape (L, d), optional
        The features of the labels' names, for models that learn from names (Cascade).
    n_jobs : int or None
        Threads; the result is the same for every number.
    random_state : int
        Seed of the split, the settings, the order of rows, and the fits.
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
    Settings are drawn at random. The rows of a rung contain those of the rung before. The model's defaults take part in
    every rung, so the result is never worse than they are on the validation rows. Of equal scores the one drawn earlier
    wins, the defaults first. Settings that cannot be fitted rank last. Penalties are not scaled with the rows of a
    rung: the losses are sums over rows, for which the best penalty depends on noise and weights more than on n.

    The best score is a little too high for new rows, since the same validation rows chose it.

    References
    ----------
    K. Jamieson, A. Talwalkar. Non-stochastic best arm identification and hyperparameter optimization. AISTATS 2016.
    Deviations: the number of rungs is bounded, and the defaults always advance.
    """
    name = model_info(model).name
    seed = check_integer(random_state, "random_state", minimum=0)
    budget = check_real(budget, "budget", minimum=0, maximum=MOST_BUDGET, open_minimum=True)
    factor = check_integer(factor, "factor", minimum=2)
    min_rows = check_integer(min_rows, "min_rows", minimum=1)
    _metric_parts(metric)
    if callback is not None and not callable(callback):
        raise InvalidTypeError(f"callback must be callable as callback(trial, done, total); found {callback!r}.")
    training, judges = _split(_checked_rows(X, Y, observed), validation, validation_fraction, seed)
    n_rows, n_features = training[0].shape
    if space is None:
        pairs = None if training[2] is None else int(training[2].nnz)
        n_labels = training[1].shape[1]
        space = search_space(name, n_rows=n_rows, n_features=n_features, n_labels=n_labels, n_pairs=pairs)
        if isinstance(training[0], FeatureBlocks) and "dense_weight" in model_class(name)().get_params(deep=False):
            space["dense_weight"] = DENSE_WEIGHT
    else:
        space = check_space(space, name)
    if training[2] is not None and not model_info(name).learns_from_mask:
        raise InvalidInputError(f"observed: {name} has no notion of unknown labels; leave observed out.")

    rungs = rungs_for(n_rows, budget, factor, min_rows)
    defaults: Settings = {}
    candidates = [defaults, *draw_settings(space, rungs[0].n_candidates, np.random.default_rng([seed, 1]))]
    described = {
        "space": {key: as_values(values) for key, values in space.items()},
        "metric": metric,
        "settings": [rung.n_candidates for rung in rungs],
        "rows": [rung.budget for rung in rungs],
        "random_state": seed,
        "defaults": storable_parameters(model_class(name)().get_params(deep=False)),
    }
    if unlisted != "off":
        described["unlisted"] = check_choice(unlisted, "unlisted", UNLISTED)
    if label_features is not None and not model_info(name).learns_from_names:
        raise InvalidInputError(f"label_features: {name} does not learn from names; leave them out.")
    more: dict[str, Any] = {} if label_features is None else {"label_features": label_features}
    names = ("X", "Y", "observed")
    data = {**dict(zip(names, training)), **{f"validation {key}": part for key, part in zip(names, judges)}}
    record = _StateFile(state, fit_identity(name, described, data | more), candidates)
    resumed = len(record)

    def build(settings: Settings) -> Any:
        return build_model(name, settings, unlisted=unlisted, n_jobs=n_jobs, random_state=seed)

    evaluate = _evaluator(build, training, judges, metric, seed, more)
    found = search(candidates, evaluate, rungs=rungs, n_protected=1, record=record, callback=callback)
    best = found.best
    if best.score is None:
        raise InvalidInputError(f"no settings of {name} can be fitted; the first problem: {best.details}")
    default_score = next(trial.score for trial in found.ranked if trial.position == 0)
    in_training, in_validation = (
        np.bincount(part[1].indices, minlength=part[1].shape[1]) for part in (training, judges)
    )
    result = TuningResult(
        name,
        metric,
        best.candidate,
        best.score,
        default_score,
        found.trials,
        rungs,
        resumed,
        judges[0].shape[0],
        int(np.count_nonzero((in_validation > 0) & (in_training == 0))),
    )
    record.write(result.as_values())
    return result


def rungs_for(n_rows: int, budget: float, factor: int, min_rows: int) -> list[Rung]:
    """As many rungs as leave ``min_rows`` rows to the first, at most 4, with as many settings as the budget allows."""
    count = 1
    while count < _MOST_RUNGS and n_rows // factor**count >= min_rows:
        count += 1
    # Every rung costs the same: a factor fewer settings on a factor more rows.
    first = max(1, int(budget * factor ** (count - 1) / count))
    return [Rung(max(1, first // factor**rung), -(-n_rows // factor ** (count - 1 - rung))) for rung in range(count)]


_Rows = tuple[Any, sp.csr_matrix, "sp.csr_matrix | None"]


def _evaluator(
    build: Callable[[Settings], Any], training: _Rows, judges: _Rows, metric: str, seed: int, more: dict[str, Any]
) -> Callable[[Settings, int], Evaluation]:
    """A function that fits settings on the first rows of a fixed order and scores them on the validation rows.

    ``build`` makes a model of settings; ``more`` is for its fit, beside the rows.
    """
    kind, k = _metric_parts(metric)
    order = np.random.default_rng([seed, 0]).permutation(training[1].shape[0])
    weights = inverse_propensity(training[1]) if kind.startswith("PS") else None

    def score(settings: Settings, rows: int) -> float:
        model = build(settings)
        model.fit(*_part(training, np.sort(order[:rows])), **more)
        X, Y, observed = judges
        ranked, _ = known_ranking(model, X, min(k, model.n_labels_), observed)
        return ranking_report(Y, ranked, (k,), weights)[metric]

    def evaluate(settings: Settings, rows: int) -> Evaluation:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TagwiseWarning)
            try:
                reached = score(settings, rows)
            except InvalidInputError as error:
                return Evaluation(None, str(error))
        told = [str(warning.message) for warning in caught if issubclass(warning.category, TagwiseWarning)]
        return Evaluation(reached, told[0] if told else "")

    return evaluate


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
        content = {
            "format": FORMAT,
            "finished": result is not None,
            "result": result,
            "search": self.identity,
            "trials": [trial_values(trial) for trial in self.values()],
        }
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
            changes = differences(mine, checked_identity(content["search"]))
            for values in [] if changes else content["trials"]:
                position = positions[json.dumps(values["settings"], sort_keys=True)]
                trial = _read_trial(values, candidates[position], position)
                super().__setitem__((trial.rung, position), trial)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InvalidInputError(
                f"{path} exists and was not written by a search of tagwise; name another file, or remove it."
            ) from None
        if changes:
            raise InvalidInputError(
                f"{path} holds another search: {changes[0]}. Name another file, remove that one to start anew, or "
                "repeat the command that made it."
            )


def _read_trial(values: dict[str, Any], settings: Settings, position: int) -> Trial[Settings]:
    """The inverse of :func:`trial_values`; ValueError for values that it cannot have made."""
    rung, rows, score, seconds, problem = (values[key] for key in ("rung", "rows", "score", "seconds", "problem"))
    trial = Trial(settings, position, rung, rows, score, seconds, problem)
    numbers = isinstance(trial.rung, int) and isinstance(trial.budget, int) and isinstance(trial.seconds, (int, float))
    scored = trial.score is None or (isinstance(trial.score, float) and math.isfinite(trial.score))
    if not numbers or not scored or not isinstance(trial.details, str):
        raise ValueError("not a trial")
    return trial


def _checked_rows(X: Any, Y: Any, observed: Any) -> _Rows:
    features = check_features(X, blocks=True)
    labels = check_labels(Y, n_rows=features.shape[0])
    if observed is None:
        return features, labels, None
    mask = check_observed(observed, shape=labels.shape)
    # Y's entries at unknown pairs are never used, in scoring as in fitting.
    return features, canonical_csr(labels.multiply(mask.astype(bool))), mask


def _split(rows: _Rows, validation: Any, fraction: float, seed: int) -> tuple[_Rows, _Rows]:
    """Training rows and validation rows: those given, or a fraction of all rows."""
    if validation is not None:
        judges = _checked_rows(*validation)
        if [part.shape[1] for part in judges[:2]] != [part.shape[1] for part in rows[:2]]:
            raise InvalidInputError("validation must have the features and labels of X and Y.")
        return rows, judges
    train, validation = split_rows(rows[1], fraction, seed)
    return _part(rows, train), _part(rows, validation)


def _part(rows: _Rows, chosen: np.ndarray) -> _Rows:
    X, Y, observed = rows
    return X[chosen], Y[chosen], None if observed is None else observed[chosen]


def _metric_parts(metric: str) -> tuple[str, int]:
    match = re.fullmatch(r"(\w+)@([1-9][0-9]{0,3})", metric) if isinstance(metric, str) else None
    if match is None or match[1] not in METRICS:
        raise InvalidInputError(
            f"metric must be one of {', '.join(f'{name}@k' for name in METRICS)}; found {metric!r}."
        )
    return match[1], int(match[2])
