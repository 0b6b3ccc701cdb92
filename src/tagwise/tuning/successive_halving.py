"""Successive halving: many settings on few rows, the best of them on more, the best of these on all."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.data.splits import split_rows
from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseWarning
from tagwise.inspection.validation_pairs import known_ranking
from tagwise.metrics import inverse_propensity, ranking_report
from tagwise.models.choice import build_model, model_class, model_info
from tagwise.models.stored_parameters import storable_parameters
from tagwise.persistence.fit_identity import FitIdentity
from tagwise.tuning.spaces import SearchSpace, as_values, check_space, draw_settings, search_space
from tagwise.tuning.state import SearchState, Trial
from tagwise.validation import canonical_csr, check_features, check_integer, check_labels, check_observed, check_real

__all__ = ["METRICS", "Schedule", "Trial", "TuningResult", "tune"]

METRICS = ("P", "nDCG", "PSP", "PSnDCG", "R")
"""What can be searched for, each at a number of places: ``"nDCG@5"``."""

_MOST_RUNGS = 4

TrialCallback = Callable[[Trial, int, int], None]
"""``callback(trial, done, total)``: after every trial; those that a resumed search has done already included."""


@dataclass(frozen=True)
class Schedule:
    """How many settings are fitted on how many rows, rung by rung.

    Attributes
    ----------
    settings : tuple of int
        Drawn settings at each rung, the defaults of the model not counted.
    rows : tuple of int
        Training rows at each rung; all of them at the last one.
    """

    settings: tuple[int, ...]
    rows: tuple[int, ...]

    @classmethod
    def of(cls, n_rows: int, budget: float, factor: int, min_rows: int) -> Schedule:
        """As many rungs as leave ``min_rows`` rows to the first, at most 4; settings that the budget pays for."""
        rungs = 1
        while rungs < _MOST_RUNGS and n_rows // factor**rungs >= min_rows:
            rungs += 1
        # Every rung costs as much: a factor fewer settings on a factor more rows.
        first = max(1, int(budget * factor ** (rungs - 1) / rungs))
        return cls(
            tuple(max(1, first // factor**rung) for rung in range(rungs)),
            tuple(-(-n_rows // factor ** (rungs - 1 - rung)) for rung in range(rungs)),
        )

    @property
    def total(self) -> int:
        """Fits of the whole search, the defaults at every rung included."""
        return sum(self.settings) + len(self.settings)


@dataclass(frozen=True, eq=False)
class TuningResult:
    """What a search came to.

    Attributes
    ----------
    model : str
    metric : str
    settings : dict
        The best settings: parameters for the model's constructor; empty where nothing beat its defaults.
    score : float
        Theirs, on the held-out rows, fitted on all training rows.
    default_score : float or None
        That of the model's defaults on the same rows; None where they cannot be fitted.
    trials : list of Trial
        All fits, in the order in which they were made.
    schedule : Schedule
    resumed : int
        How many of the trials an earlier run had made.
    """

    model: str
    metric: str
    settings: dict[str, Any]
    score: float
    default_score: float | None
    trials: list[Trial]
    schedule: Schedule
    resumed: int

    def as_values(self) -> dict[str, Any]:
        """For JSON: what was found, without the trials."""
        return {
            "model": self.model,
            "metric": self.metric,
            "settings": self.settings,
            "score": self.score,
            "default_score": self.default_score,
            "fits": len(self.trials),
            "rows": list(self.schedule.rows),
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
    n_jobs: int | None = None,
    random_state: int = 0,
    state: str | PathLike[str] | None = None,
    callback: TrialCallback | None = None,
) -> TuningResult:
    """Search for good settings of a model by successive halving, with rows as the resource.

    Parameters
    ----------
    model : str
        Name of a model, such as ``"leml"``.
    X, Y, observed
        As in ``fit``.
    validation : (X, Y, observed or None), optional
        Rows that judge. Otherwise ``validation_fraction`` of the rows, drawn so that every label keeps a training row.
    validation_fraction : float
    space : mapping, optional
        Name of a parameter → :class:`Choice` or :class:`LogRange`; the model's own space otherwise
        (:func:`search_space`).
    metric : str
        ``"P@k"``, ``"nDCG@k"``, ``"PSP@k"``, ``"PSnDCG@k"`` or ``"R@k"``. With a mask, only known labels are ranked.
    budget : float
        What the search may cost, in fits of all training rows, the defaults not counted.
    factor : int
        The best one in ``factor`` settings goes on, to ``factor`` times the rows.
    min_rows : int
        Rows of the first rung at least, if there are as many.
    n_jobs : int or None
        Threads; the result is the same for every number.
    random_state : int
        Seed of the split, the settings, the order of rows, and the fits.
    state : path, optional
        JSON file that is written after every fit. If it holds an earlier run of the same search, killed or finished,
        nothing that it did is done again, and the result is that of an uninterrupted search.
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
    every rung beside them, so that the result is never worse than they are on the held-out rows. Equal scores keep the
    order in which settings were drawn, the defaults first. A setting that cannot be fitted ranks last; why is in its
    trial. Penalties are not scaled with the rows of a rung: the losses of all models are sums over rows, for which the
    best ridge penalty depends on noise and weights rather than on their number.

    The score of the best setting is a little too high for new rows, since the same held-out rows chose it.

    References
    ----------
    K. Jamieson, A. Talwalkar. Non-stochastic best arm identification and hyperparameter optimization. AISTATS 2016.
    Deviations: the number of rungs is bounded, and the defaults always go on.
    """
    name = model_info(model).name
    seed = check_integer(random_state, "random_state", minimum=0)
    budget = check_real(budget, "budget", minimum=0, open_minimum=True)
    factor = check_integer(factor, "factor", minimum=2)
    min_rows = check_integer(min_rows, "min_rows", minimum=1)
    _metric_parts(metric)
    if callback is not None and not callable(callback):
        raise InvalidTypeError(f"callback must be callable as callback(trial, done, total); found {callback!r}.")
    training = _checked_rows(X, Y, observed)
    if validation is not None:
        judges = _checked_rows(*validation)
        if [part.shape[1] for part in judges[:2]] != [part.shape[1] for part in training[:2]]:
            raise InvalidInputError("validation must have the features and labels of X and Y.")
    else:
        train, held = split_rows(training[1], validation_fraction, seed)
        if not len(held):
            raise InvalidInputError(
                "no row can be held out, since each is the only one of a label; give validation rows."
            )
        judges, training = _part(training, held), _part(training, train)
    shape = (*training[0].shape, training[1].shape[1])
    pairs = None if training[2] is None else int(training[2].nnz)
    if space is None:
        wanted: SearchSpace = search_space(name, n_rows=shape[0], n_features=shape[1], n_labels=shape[2], n_pairs=pairs)
    else:
        wanted = check_space(space, name)
    if training[2] is not None and not model_info(name).learns_from_mask:
        raise InvalidInputError(f"observed: {name} has no notion of unknown labels; leave observed out.")
    schedule = Schedule.of(shape[0], budget, factor, min_rows)
    search = {
        "space": {key: as_values(values) for key, values in wanted.items()},
        "metric": metric,
        "settings": list(schedule.settings),
        "rows": list(schedule.rows),
        "random_state": seed,
        "defaults": storable_parameters(model_class(name)().get_params(deep=False)),
    }
    names = ("X", "Y", "observed")
    data = {**dict(zip(names, training)), **{f"held-out {key}": part for key, part in zip(names, judges)}}
    kept = SearchState(state, FitIdentity.of(name, search, data))
    trials = _Trials(name, training, judges, metric, seed, n_jobs, kept)
    return _search(trials, wanted, schedule, callback)


def _search(trials: _Trials, space: SearchSpace, schedule: Schedule, callback: TrialCallback | None) -> TuningResult:
    defaults: dict[str, Any] = {}
    drawn = draw_settings(space, schedule.settings[0], np.random.default_rng([trials.seed, 1]))
    done: list[Trial] = []
    ranked: list[Trial] = []
    for rung, rows in enumerate(schedule.rows):
        candidates = [defaults, *drawn[: schedule.settings[rung]]]
        finished = []
        for settings in candidates:
            trial = trials.run(rung, rows, settings)
            finished.append(trial)
            done.append(trial)
            if callback is not None:
                callback(trial, len(done), schedule.total)
        # A stable sort: equal scores stay in the order of drawing, with the defaults in front.
        ranked = sorted(finished, key=lambda trial: np.inf if trial.score is None else -trial.score)
        drawn = [trial.settings for trial in ranked if trial.settings]
    best = ranked[0]
    if best.score is None:
        raise InvalidInputError(f"no settings of {trials.name} can be fitted; the first problem: {best.problem}")
    default = next(trial for trial in ranked if not trial.settings)
    result = TuningResult(
        trials.name, trials.metric, best.settings, best.score, default.score, done, schedule, trials.state.resumed
    )
    trials.state.write(result.as_values())
    return result


_Rows = tuple[Any, sp.csr_matrix, "sp.csr_matrix | None"]


class _Trials:
    """Fits settings on the first rows of a fixed order, and judges them on the held-out rows."""

    def __init__(
        self, name: str, training: _Rows, judges: _Rows, metric: str, seed: int, n_jobs: int | None, state: SearchState
    ) -> None:
        self.name, self.training, self.judges, self.metric = name, training, judges, metric
        self.seed, self.n_jobs, self.state = seed, n_jobs, state
        self._order = np.random.default_rng([seed, 0]).permutation(training[1].shape[0])
        self._kind, self._k = _metric_parts(metric)
        self._weights = inverse_propensity(training[1]) if self._kind.startswith("PS") else None

    def run(self, rung: int, rows: int, settings: dict[str, Any]) -> Trial:
        """The trial of some settings: made, or found in the state."""
        found = self.state.find(rung, settings)
        if found is not None:
            return found
        start = time.perf_counter()
        score: float | None = None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TagwiseWarning)
            try:
                score = self._score(rows, settings)
                problem = ""
            except InvalidInputError as error:
                problem = str(error)
        told = [str(warning.message) for warning in caught if issubclass(warning.category, TagwiseWarning)]
        trial = Trial(rung, rows, settings, score, time.perf_counter() - start, problem or " ".join(told[:1]))
        self.state.add(trial)
        return trial

    def _score(self, rows: int, settings: dict[str, Any]) -> float:
        X, Y, observed = _part(self.training, np.sort(self._order[:rows]))
        model = build_model(self.name, settings, n_jobs=self.n_jobs, random_state=self.seed)
        model.fit(X, Y, observed)
        held_X, held_Y, held_observed = self.judges
        ranked, _ = known_ranking(model, held_X, min(self._k, model.n_labels_), held_observed)
        return ranking_report(held_Y, ranked, (self._k,), self._weights)[self.metric]


def _checked_rows(X: Any, Y: Any, observed: Any) -> _Rows:
    features = check_features(X)
    labels = check_labels(Y, n_rows=features.shape[0])
    if observed is None:
        return features, labels, None
    mask = check_observed(observed, shape=labels.shape)
    # What Y says of unknown pairs is never looked at, in judging as in fitting.
    return features, canonical_csr(labels.multiply(mask.astype(bool))), mask


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
