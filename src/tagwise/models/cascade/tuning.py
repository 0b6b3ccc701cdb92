"""Held-out rows decide what a cascade weighs how: the proposer's weights, the rankers' C, and the combination."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit

from tagwise.data.splits import split_rows
from tagwise.exceptions import InvalidInputError
from tagwise.kernels.rankers import shortlist_margins
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.metrics import ndcg_at_k
from tagwise.models.cascade.choice import CascadeChoice
from tagwise.models.cascade.combination import Combination, log_odds
from tagwise.models.cascade.prototypes import label_prototypes
from tagwise.models.cascade.rankers import hardest, learn_rankers, positives_of, wrong_proposals
from tagwise.models.factor_model import unit_rows
from tagwise.parallel import thread_count
from tagwise.persistence.fit_state import State, count, real, value
from tagwise.progress import FitProgress
from tagwise.randomness import random_generator

if TYPE_CHECKING:
    from tagwise.models.cascade.cascade import Cascade

__all__ = ["choose_on_held_out_rows", "fit_calibration_constants"]

_WEIGHTS = (1.0, 2.0)
_PENALTIES = (0.5, 2.0)
_COSTS = (0.25, 0.5, 1.0)
_HARD_NEGATIVES = (20, 100, 200)
# Slope and exponent, each with every prototype_weight.
_SLOPES_AND_EXPONENTS = ((2.0, 0.25), (2.0, 0.5), (3.0, 0.25), (3.0, 0.5), (2.0, 1.0), (4.0, 1.0))
_PROTOTYPE_WEIGHT = (0.0, 0.25, 0.5, 1.0)
_PLACES = 5
# Probabilities are fitted to the best labels of a row, which are the ones that are looked at.
_CALIBRATED = 10


def _check_tried(tried: Any) -> None:
    if not isinstance(tried, list) or not all(isinstance(setting, dict) for setting in tried):
        raise ValueError("tried must list settings")


@dataclass(frozen=True)
class TrialsSoFar(State):
    """What has been tried, and the best of it."""

    runs: int = count(1, "most")
    tried: list[dict[str, Any]] = value(_check_tried)
    best: dict[str, Any] = value(CascadeChoice.check_values)
    best_score: float = real()


def choose_on_held_out_rows(
    model: Cascade,
    X: sp.csr_matrix,
    Y: sp.csr_matrix,
    observed: sp.csr_matrix | None,
    start: CascadeChoice,
    progress: FitProgress,
) -> tuple[CascadeChoice, list[dict[str, Any]]]:
    """The best of the settings above by nDCG@5 on held-out rows, and all that was tried.

    First the weights of positives (only where the model's own is a number) with all numbers of hard negatives, all C
    and combinations; then, at the best of these, the other penalties of the sparse part. With a mask, only known labels
    of the held-out rows are ranked. The constants of the probabilities are those of maximum likelihood for the ten best
    labels of the held-out rows. A checkpoint keeps what has been tried with each weight and each penalty.
    """
    trial = _Trial(model, X, Y, observed)
    weights = _WEIGHTS if isinstance(start.positive_weight, Real) else (start.positive_weight,)
    runs = [("positive_weight", weight) for weight in weights] + [("reg_sparse", penalty) for penalty in _PENALTIES]
    saved = progress.resume(TrialsSoFar, "trials", most=len(runs))
    if saved is not None:
        trial.runs, trial.tried, trial.best_score = saved.runs, saved.tried, saved.best_score
        trial.best = CascadeChoice.from_values(saved.best)
    for name, setting in runs[trial.runs :]:
        progress.note(f"held-out rows: {name} {setting}")
        if name == "positive_weight":
            trial.run(replace(start, positive_weight=setting), _HARD_NEGATIVES, _COSTS)
        else:
            trial.run(replace(trial.best, reg_sparse=setting), (trial.best.hard_negatives,), (trial.best.C,))
        so_far = TrialsSoFar(trial.runs, trial.tried, trial.best.as_values(), trial.best_score)
        progress.finish_stage("trials", so_far)
    return trial.best, trial.tried


def fit_calibration_constants(
    products: np.ndarray, is_on: np.ndarray, start: tuple[float, float]
) -> tuple[float, float]:
    """(a, b) of q = σ(a·logit(p) + b) by maximum likelihood; a stays positive, so that q rises with p."""
    odds = log_odds(products)
    on = is_on.astype(np.float64)

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        scale = np.exp(parameters[0])
        z = scale * odds + parameters[1]
        slope = expit(z) - on
        # A little weight on the usual constants: a few pairs, or perfectly separated ones, decide nothing.
        away = parameters - [np.log(start[0]), start[1]]
        value = np.logaddexp(0, z).sum() - on @ z + 0.5 * (away @ away)
        return float(value), np.array([scale * (slope @ odds), slope.sum()]) + away

    found = minimize(loss, [np.log(start[0]), start[1]], jac=True, method="L-BFGS-B", bounds=[(-3, 3), (-10, 10)])
    return float(np.exp(found.x[0])), float(found.x[1])


class _Trial:
    """Fits on the remaining rows, judged on the held-out ones."""

    def __init__(self, model: Cascade, X: sp.csr_matrix, Y: sp.csr_matrix, observed: sp.csr_matrix | None) -> None:
        self.model = model
        self.threads = thread_count(model.n_jobs)
        self.seed = int(random_generator(model.random_state).integers(2**31))
        known = positives_of(Y, observed)
        train, held = split_rows(known, model.validation_fraction, self.seed)
        if len(held) == 0:
            raise InvalidInputError(
                f"validation_fraction={model.validation_fraction} of {X.shape[0]} rows holds no row out (every row is "
                "needed to keep its labels in training); raise it or set it to 0."
            )
        self.X, self.held_X = X[train], X[held]
        self.positives, self.held_positives = known[train], known[held]
        self.observed = None if observed is None else observed[train]
        self.held_observed = None if observed is None else observed[held]
        self.rows, self.held_rows = self._as_read(self.X), self._as_read(self.held_X)
        self.held_unit = self.held_rows if model.normalize else self._unit(self.held_X)
        unit = self.rows if model.normalize else self._unit(self.X)
        self.prototypes = label_prototypes(unit, self.positives, n_threads=self.threads)
        self.best: CascadeChoice
        self.best_score = -1.0
        self.runs = 0
        self.tried: list[dict[str, Any]] = []

    def _as_read(self, X: sp.csr_matrix) -> sp.csr_matrix:
        return self._unit(X) if self.model.normalize else X

    def _unit(self, X: sp.csr_matrix) -> sp.csr_matrix:
        return sp.csr_matrix(unit_rows(X, n_threads=self.threads))

    def run(self, choice: CascadeChoice, hard_negatives: tuple[int, ...], costs: tuple[float, ...]) -> None:
        """Try one proposer with several rankers and all combinations; ``best`` is the best choice so far."""
        model = self.model
        proposer = model._proposer(positive_weight=choice.positive_weight, reg_sparse=choice.reg_sparse)
        proposer.fit(self.X, self.positives, self.observed)
        negatives = wrong_proposals(proposer, self.X, self.positives, self.observed, max(hard_negatives))
        labels, proposed = proposer.predict_topk(self.held_X, min(model.shortlist, self.positives.shape[1]))
        no_shift = np.zeros(self.positives.shape[1])
        cosines = shortlist_margins(self.held_unit, labels, self.prototypes, no_shift, n_threads=self.threads)
        ranked = labels.copy()
        if self.held_observed is not None:
            ranked[~contains_pairs(self.held_observed, labels, n_threads=self.threads)] = -1
        for many, cost in product(hard_negatives, costs):
            rankers = learn_rankers(
                self.rows,
                self.positives,
                hardest(negatives, self.positives, many),
                C=cost,
                prune=model.prune,
                seed=self.seed,
                n_threads=self.threads,
            )
            margins = shortlist_margins(
                self.held_rows, labels, rankers.weights, rankers.intercept, n_threads=self.threads
            )
            for (slope, exponent), prototype_weight in product(_SLOPES_AND_EXPONENTS, _PROTOTYPE_WEIGHT):
                combination = Combination.usual(slope, exponent, prototype_weight)
                # Scores are the products themselves, less ½, with these constants.
                plain = replace(combination, calibration=(1.0, 0.0))
                best, scores = plain.best(
                    ranked, proposed, margins, cosines, rankers.trained, _CALIBRATED, n_threads=self.threads
                )
                self._judge(replace(choice, hard_negatives=many, C=cost, combination=combination), best, scores + 0.5)
        self.runs += 1

    def _judge(self, choice: CascadeChoice, best: np.ndarray, products: np.ndarray) -> None:
        """How good the ranking ``best`` (n×10, −1 for none) of the held-out rows is, and what its products mean."""
        score = float(ndcg_at_k(self.held_positives, best[:, :_PLACES], k=_PLACES))
        self.tried.append({**_without_calibration(choice), "nDCG@5": score})
        if score > self.best_score:
            self.best_score = score
            combination, found = choice.combination, best >= 0
            on = contains_pairs(self.held_positives, best, n_threads=self.threads)
            constants = fit_calibration_constants(products[found], on[found], combination.calibration)
            self.best = replace(choice, combination=replace(combination, calibration=constants))


def _without_calibration(choice: CascadeChoice) -> dict[str, Any]:
    return {name: value for name, value in choice.as_values().items() if name != "calibration"}
