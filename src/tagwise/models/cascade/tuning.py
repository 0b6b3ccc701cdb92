"""Validation rows decide what a cascade weighs how: the proposer's weights, the rankers' C, and the combination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from numbers import Real
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from tagwise.data.splits import split_rows
from tagwise.exceptions import InvalidInputError
from tagwise.kernels import unit_rows
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.kernels.shortlists import shortlist_margins
from tagwise.losses import sigmoid
from tagwise.metrics import ndcg_at_k
from tagwise.models.cascade.combination import CascadeChoice, Combination, Opinions, log_odds
from tagwise.models.cascade.rankers import Rankers, hardest, label_prototypes, learn_rankers, wrong_proposals
from tagwise.models.reml import REML
from tagwise.parallel import thread_count
from tagwise.persistence.fit_state import State, count, real, value
from tagwise.problems.labels import known_positives
from tagwise.progress import FitProgress
from tagwise.randomness import random_generator
from tagwise.solvers.search import Evaluation, search

__all__ = ["choose_on_validation_rows", "fit_calibration_constants"]

_POSITIVE_WEIGHTS = (1.0, 2.0)
_PENALTIES = (0.5, 2.0)
_COSTS = (0.25, 0.5, 1.0)
_HARD_NEGATIVES = (20, 100, 200)
# Slope and exponent, each with every weight of the prototypes.
_SLOPES_AND_EXPONENTS = ((2.0, 0.25), (2.0, 0.5), (3.0, 0.25), (3.0, 0.5), (2.0, 1.0), (4.0, 1.0))
_PROTOTYPE_WEIGHTS = (0.0, 0.25, 0.5, 1.0)
_K = 5
# Probabilities are fitted to the best labels of a row, which are the ones that are looked at.
_CALIBRATED = 10


class _Settings(Protocol):
    """What a cascade is asked for: its parameters, and an unfitted proposer."""

    n_jobs: int | None
    random_state: Any
    validation_fraction: float
    normalize: bool
    shortlist: int
    prune: float

    def _new_proposer(self, *, positive_weight: Any, reg_sparse: float) -> REML: ...


def choose_on_validation_rows(
    model: _Settings,
    X: sp.csr_matrix,
    Y: sp.csr_matrix,
    observed: sp.csr_matrix | None,
    start: CascadeChoice,
    progress: FitProgress,
) -> tuple[CascadeChoice, list[dict[str, Any]]]:
    """The best of the settings above by nDCG@5 on validation rows, and all that was tried.

    First the weights of positives (only where the model's own is a number) with all numbers of hard negatives, all C
    and combinations; then, at the best of these, the other penalties of the sparse part. With a mask, only known labels
    of the validation rows are ranked. The constants of the probabilities are those of maximum likelihood for the ten
    best labels of the validation rows. A checkpoint keeps what has been tried with each weight and each penalty.
    """
    rows = _ValidationRows(model, X, Y, observed)
    weights = _POSITIVE_WEIGHTS if isinstance(start.positive_weight, Real) else (start.positive_weight,)
    proposers = [("positive_weight", weight) for weight in weights] + [("reg_sparse", value) for value in _PENALTIES]
    tried = progress.resume(_Tried, "trials", most=len(proposers)) or _Tried(0, [], start.as_values(), -1.0)
    for name, setting in proposers[tried.n_proposers :]:
        progress.note(f"validation rows: {name} {setting}")
        if name == "positive_weight":
            proposed = replace(start, positive_weight=setting)
            rankers = list(product(_HARD_NEGATIVES, _COSTS))
        else:
            proposed = replace(CascadeChoice.from_values(tried.best), reg_sparse=setting)
            rankers = [(proposed.hard_negatives, proposed.C)]
        found = search(_candidates(proposed, rankers), rows.evaluator(proposed, max(rankers)[0]))
        tried.add([(trial.candidate, trial.score or 0.0) for trial in found.trials], found.best.details)
        progress.finish_stage("trials", tried)
    return CascadeChoice.from_values(tried.best), tried.settings


def _candidates(proposed: CascadeChoice, rankers: list[tuple[int, float]]) -> list[CascadeChoice]:
    """One proposer with several rankers, each with all combinations."""
    return [
        replace(proposed, hard_negatives=many, C=cost, combination=Combination.usual(slope, exponent, weight))
        for many, cost in rankers
        for (slope, exponent), weight in product(_SLOPES_AND_EXPONENTS, _PROTOTYPE_WEIGHTS)
    ]


def fit_calibration_constants(
    products: np.ndarray, is_on: np.ndarray, start: tuple[float, float]
) -> tuple[float, float]:
    """(a, b) of q = σ(a·logit(p) + b) by maximum likelihood; a stays positive, so that q rises with p."""
    odds = log_odds(products)
    on = is_on.astype(np.float64)

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        scale = np.exp(parameters[0])
        z = scale * odds + parameters[1]
        slope = sigmoid(z) - on
        # A little weight on the usual constants: a few pairs, or perfectly separated ones, decide nothing.
        away = parameters - [np.log(start[0]), start[1]]
        value = np.logaddexp(0, z).sum() - on @ z + 0.5 * (away @ away)
        return float(value), np.array([scale * (slope @ odds), slope.sum()]) + away

    found = minimize(loss, [np.log(start[0]), start[1]], jac=True, method="L-BFGS-B", bounds=[(-3, 3), (-10, 10)])
    return float(np.exp(found.x[0])), float(found.x[1])


def _check_settings(settings: Any) -> None:
    if not isinstance(settings, list) or not all(isinstance(setting, dict) for setting in settings):
        raise ValueError("settings must list what was tried")


@dataclass
class _Tried(State):
    """What has been tried so far, and the best of it."""

    n_proposers: int = count(1, "most")
    settings: list[dict[str, Any]] = value(_check_settings)
    best: dict[str, Any] = value(CascadeChoice.from_values)
    best_score: float = real()

    def add(self, trials: list[tuple[CascadeChoice, float]], constants: tuple[float, float]) -> None:
        """The trials with one proposer, and the calibration of the best of them; of equal scores the earlier wins."""
        for choice, score in trials:
            values = {name: kept for name, kept in choice.as_values().items() if name != "calibration"}
            self.settings.append({**values, "nDCG@5": score})
        best, score = max(trials, key=lambda trial: trial[1])
        if score > self.best_score:
            self.best_score = score
            self.best = {**best.as_values(), "calibration": list(constants)}
        self.n_proposers += 1


class _ValidationRows:
    """Fits on the remaining rows, judged on the validation rows."""

    def __init__(self, model: _Settings, X: sp.csr_matrix, Y: sp.csr_matrix, observed: sp.csr_matrix | None) -> None:
        self.model = model
        self.threads = thread_count(model.n_jobs)
        self.seed = int(random_generator(model.random_state).integers(2**31))
        known = known_positives(Y, observed)
        train, validation = split_rows(known, model.validation_fraction, self.seed)
        if len(validation) == 0:
            raise InvalidInputError(
                f"validation_fraction={model.validation_fraction} of {X.shape[0]} rows holds no row out (every row is "
                "needed to keep its labels in training); raise it or set it to 0."
            )
        self.X, self.validation_X = X[train], X[validation]
        self.positives, self.validation_positives = known[train], known[validation]
        self.observed = None if observed is None else observed[train]
        self.validation_observed = None if observed is None else observed[validation]
        unit, self.validation_unit = self._unit(self.X), self._unit(self.validation_X)
        self.rows = unit if model.normalize else self.X
        self.validation_rows = self.validation_unit if model.normalize else self.validation_X
        self.prototypes = label_prototypes(unit, self.positives, n_threads=self.threads)

    def _unit(self, X: sp.csr_matrix) -> sp.csr_matrix:
        return sp.csr_matrix(unit_rows(X, n_threads=self.threads))

    def evaluator(self, proposed: CascadeChoice, most_negatives: int) -> Callable[[CascadeChoice, Any], Evaluation]:
        """An evaluation of candidates that share one proposer; neighbours that share rankers train them once.

        Its details are the constants of the probabilities, fitted only for a candidate that is the best so far.
        """
        model = self.model
        proposer = model._new_proposer(positive_weight=proposed.positive_weight, reg_sparse=proposed.reg_sparse)
        proposer.fit(self.X, self.positives, self.observed)
        negatives = wrong_proposals(proposer, self.X, self.positives, self.observed, most_negatives)
        labels, scores = proposer.predict_topk(self.validation_X, min(model.shortlist, self.positives.shape[1]))
        no_shift = np.zeros(self.positives.shape[1])
        cosines = shortlist_margins(self.validation_unit, labels, self.prototypes, no_shift, n_threads=self.threads)
        ranked = labels.copy()
        if self.validation_observed is not None:
            ranked[~contains_pairs(self.validation_observed, labels, n_threads=self.threads)] = -1
        best_score = -1.0

        @lru_cache(maxsize=1)
        def ranked_by(many: int, cost: float) -> tuple[Rankers, np.ndarray]:
            hard = hardest(negatives, self.positives, many)
            rankers = learn_rankers(
                self.rows, self.positives, hard, C=cost, prune=model.prune, seed=self.seed, n_threads=self.threads
            )
            weights, shift = rankers.weights, rankers.intercept
            return rankers, shortlist_margins(self.validation_rows, labels, weights, shift, n_threads=self.threads)

        def evaluate(choice: CascadeChoice, _: Any) -> Evaluation:
            nonlocal best_score
            rankers, margins = ranked_by(choice.hard_negatives, choice.C)
            # With these constants scores are the products themselves, less ½.
            plain = replace(choice.combination, calibration=(1.0, 0.0))
            opinions = Opinions(ranked, scores, margins, cosines, rankers.trained)
            best, centred = plain.best(opinions, _CALIBRATED, n_threads=self.threads)
            score = float(ndcg_at_k(self.validation_positives, best[:, :_K], k=_K))
            if score <= best_score:
                return Evaluation(score)
            best_score = score
            return Evaluation(score, self._constants(choice.combination, best, centred + 0.5))

        return evaluate

    def _constants(self, combination: Combination, best: np.ndarray, products: np.ndarray) -> tuple[float, float]:
        """What products p of the best labels (n×10, −1 for none) of the validation rows mean."""
        found = best >= 0
        on = contains_pairs(self.validation_positives, best, n_threads=self.threads)
        return fit_calibration_constants(products[found], on[found], combination.calibration)
