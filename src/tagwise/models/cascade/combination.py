"""One score out of three opinions: the proposer's, who has seen all pairs, a ranker's on hard ones, a prototype's.

The formula stands here once, as compiled functions of single numbers: a shortlist has some fifty labels, and for a
single row a dozen passes of numpy over fifty numbers take longer than finding them among tens of thousands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import compiled
from tagwise.kernels.top_k import keep, nothing_found
from tagwise.models.factor_model import PositiveWeight, check_positive_weight
from tagwise.parallel import run_chunks, work_chunks
from tagwise.validation import check_integer, check_real

__all__ = ["CascadeChoice", "Combination", "behind_shortlist", "check_prototype_weight", "log_odds"]

# labels, proposed, margins, cosines, has_ranker: see Combination.best.
_Opinions: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
_Weights: TypeAlias = tuple[float, float, float]
_Constants: TypeAlias = tuple[float, float]

# A proposer's score below this (0/1 scale) is as good as none; a product with 0 would forget the ranker.
_LEAST = 1e-3
# Cosines near 0 are not told apart, so that a label of few rows is not out for want of a common word.
_LEAST_COSINE = 0.1
# Probabilities this close to 0 or 1 are not told apart.
_EDGE = 1e-6


@dataclass(frozen=True)
class Combination:
    r"""How margins m, the proposer's centred scores s and cosines c with prototypes become centred scores of labels.

    .. math:: p = \sigma(\text{slope}\cdot m)\,\min(1, \max(s + \tfrac12, 10^{-3}))^{\text{exponent}}
                  \Big(\frac{\min(1, \max(c, 0)) + 0.1}{1.1}\Big)^{\text{prototype_weight}}, \qquad
              q = \sigma(a\,\sigma^{-1}(p) + b)

    The score is q − ½. q rises with p, so that (a, b) is for reading scores as probabilities and leaves the order of
    labels as it is.
    """

    slope: float
    exponent: float
    prototype_weight: float
    calibration: tuple[float, float]

    @classmethod
    def usual(cls, slope: float, exponent: float, prototype_weight: float) -> Combination:
        """With constants in the middle of what fits validation rows of five sets, all known or a fifth.

        Cosines lower products, by about e^(−1.3·prototype_weight) for labels that are on; b makes up for it.
        """
        return cls(slope, exponent, prototype_weight, (1.15, 1.25 + 1.5 * prototype_weight))

    @property
    def _weights(self) -> _Weights:
        return float(self.slope), float(self.exponent), float(self.prototype_weight)

    @property
    def _constants(self) -> _Constants:
        a, b = self.calibration
        return float(a), float(b)

    def scores(
        self,
        labels: np.ndarray,
        proposed: np.ndarray,
        margins: np.ndarray,
        cosines: np.ndarray,
        has_ranker: np.ndarray,
    ) -> np.ndarray:
        """Q − ½, in [−½, ½], of shortlisted labels (n×M), in the type of ``proposed``; arguments as in :meth:`best`."""
        out = np.empty(proposed.shape, dtype=proposed.dtype)
        _scores((labels, proposed, margins, cosines, has_ranker), self._weights, self._constants, out)
        return out

    def best(
        self,
        labels: np.ndarray,
        proposed: np.ndarray,
        margins: np.ndarray,
        cosines: np.ndarray,
        has_ranker: np.ndarray,
        k: int,
        *,
        n_threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k labels of each row with the largest products p, and their scores, in one pass.

        Parameters
        ----------
        labels : int array (n, N)
            Different labels, best proposals first; −1 for none.
        proposed : array (n, N)
            Their centred scores s by the proposer.
        margins : array (n, M), M ≤ N
            The rankers' margins m of the first M, the shortlist.
        cosines : array (n, M)
            Of the row with the label's prototype, c.
        has_ranker : bool array (L,)
            Labels without a ranker have the margin 2s.
        k : int
        n_threads : int

        Returns
        -------
        labels : int64 array (n, k)
            Best first, equal products in the order of their ids; then the labels behind the shortlist in the
            proposer's order; −1 where there are no more.
        scores : array (n, k) in the type of ``proposed``
            q − ½; behind the shortlist those of :func:`behind_shortlist`; −inf where the label is −1.

        Notes
        -----
        Products are computed in float64 and compared in the type of ``proposed``. Time O(n·N) and O(k) for each label
        that is among the k best when it is looked at; memory the result.
        """
        fit = labels.shape == proposed.shape and margins.shape == cosines.shape and margins.ndim == 2
        if not fit or len(margins) != len(labels):
            raise InvalidInputError(
                f"labels {labels.shape}, proposed {proposed.shape}, margins {margins.shape} and cosines "
                f"{cosines.shape} must be n×N, n×N, n×M and n×M."
            )
        if margins.shape[1] > labels.shape[1]:
            raise InvalidInputError(f"margins of {margins.shape[1]} labels where rows list {labels.shape[1]}.")
        best_labels, best_scores = nothing_found(len(labels), k, proposed.dtype)
        opinions = labels, proposed, margins, cosines, has_ranker
        weights, constants = self._weights, self._constants

        def rows(start: int, stop: int) -> None:
            _best(opinions, weights, constants, (best_scores, best_labels), start, stop)

        run_chunks(rows, work_chunks(np.arange(len(labels) + 1) * labels.shape[1]), n_threads)
        return best_labels, best_scores


@dataclass(frozen=True)
class CascadeChoice:
    """What validation rows may decide in a cascade."""

    positive_weight: PositiveWeight
    reg_sparse: float
    hard_negatives: int
    C: float
    combination: Combination

    def as_values(self) -> dict[str, Any]:
        """Plain values, as models keep them."""
        own = {name: getattr(self, name) for name in _OWN}
        return (
            own
            | {name: getattr(self.combination, name) for name in _COMBINED}
            | {"calibration": list(self.combination.calibration)}
        )

    @classmethod
    def from_values(cls, values: Any) -> CascadeChoice:
        """The inverse of :meth:`as_values`; raises ValueError for values that cannot have come from it."""
        names = (*_OWN, *_COMBINED)
        if not isinstance(values, dict) or set(values) != set(names):
            raise ValueError(f"chosen_ must hold {', '.join(names)}")
        calibration = values["calibration"]
        if not isinstance(calibration, list) or len(calibration) != 2:
            raise ValueError("calibration must hold two numbers")
        check_real(calibration[0], "calibration", minimum=0, open_minimum=True)
        check_real(calibration[1], "calibration")
        check_positive_weight(values["positive_weight"])
        check_integer(values["hard_negatives"], "hard_negatives", minimum=1)
        for name in ("reg_sparse", "C", "slope"):
            check_real(values[name], name, minimum=0, open_minimum=True)
        for name in ("exponent", "prototype_weight"):
            check_real(values[name], name, minimum=0)
        combined = {name: values[name] for name in _COMBINED} | {"calibration": tuple(calibration)}
        return cls(**{name: values[name] for name in _OWN}, combination=Combination(**combined))


_OWN = tuple(field.name for field in fields(CascadeChoice) if field.name != "combination")
_COMBINED = tuple(field.name for field in fields(Combination))


def check_prototype_weight(prototype_weight: Any) -> None:
    """Raise InvalidInputError unless it is a number of at least 0 or "auto"."""
    if isinstance(prototype_weight, str) and prototype_weight != "auto":
        raise InvalidInputError(f'prototype_weight must be a number or "auto"; found {prototype_weight!r}.')
    if prototype_weight != "auto":
        check_real(prototype_weight, "prototype_weight", minimum=0)


def log_odds(products: np.ndarray) -> np.ndarray:
    """σ⁻¹(p) in float64 of an array (m,): near 1, float32 has too few numbers."""
    out = np.empty(products.shape)
    _log_odds_of(products, out)
    return out


def behind_shortlist(proposed: np.ndarray) -> np.ndarray:
    """Scores of labels that no ranker has seen, from the proposer's: in its order, and below −½, all shortlisted ones.

    s − 1 for s < 0, and −½ − ½/(1 + s) from there on.
    """
    out = np.empty(proposed.shape, dtype=proposed.dtype)
    _scores_behind(proposed, out)
    return out


@compiled()
def _sigmoid(value: float) -> float:
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    power = math.exp(value)
    return power / (1 + power)


@compiled()
def _product(opinions: _Opinions, row: int, place: int, weights: _Weights) -> float:
    labels, proposed, margins, cosines, has_ranker = opinions
    slope, exponent, prototype_weight = weights
    score = np.float64(proposed[row, place])
    # Twice the centred score is least squares' score of labels −1/+1, the scale of a margin.
    margin = np.float64(margins[row, place]) if has_ranker[labels[row, place]] else 2 * score
    cosine = min(1.0, max(np.float64(cosines[row, place]), 0.0))
    value = _sigmoid(slope * margin) * min(1.0, max(score + 0.5, _LEAST)) ** exponent
    return value * ((cosine + _LEAST_COSINE) / (1 + _LEAST_COSINE)) ** prototype_weight


@compiled()
def _log_odds(product: float) -> float:
    chance = min(1 - _EDGE, max(np.float64(product), _EDGE))
    return math.log(chance / (1 - chance))


@compiled()
def _centred_probability(product: float, constants: _Constants) -> float:
    a, b = constants
    return _sigmoid(a * _log_odds(product) + b) - 0.5


@compiled()
def _behind(score: float) -> float:
    if score < 0:
        return np.float64(score) - 1
    return -0.5 - 0.5 / (1 + np.float64(score))


@compiled()
def _scores(opinions: _Opinions, weights: _Weights, constants: _Constants, out: np.ndarray) -> None:
    for row in range(out.shape[0]):
        for place in range(out.shape[1]):
            # Rounded to the type of the scores, in which products are compared.
            product = out.dtype.type(_product(opinions, row, place, weights))
            out[row, place] = _centred_probability(product, constants)


@compiled()
def _log_odds_of(products: np.ndarray, out: np.ndarray) -> None:
    for place in range(len(out)):
        out[place] = _log_odds(products[place])


@compiled()
def _scores_behind(proposed: np.ndarray, out: np.ndarray) -> None:
    for row in range(out.shape[0]):
        for place in range(out.shape[1]):
            out[row, place] = _behind(proposed[row, place])


@compiled()
def _best(
    opinions: _Opinions,
    weights: _Weights,
    constants: _Constants,
    found: tuple[np.ndarray, np.ndarray],
    start: int,
    stop: int,
) -> None:
    labels, proposed, margins, _, _ = opinions
    best_scores, best_labels = found
    shortlisted = margins.shape[1]
    for row in range(start, stop):
        best, names = best_scores[row], best_labels[row]
        for place in range(labels.shape[1]):
            label = labels[row, place]
            if label < 0:
                continue
            value = _product(opinions, row, place, weights) if place < shortlisted else _behind(proposed[row, place])
            keep(best, names, best.dtype.type(value), label)
        for place in range(len(best)):
            # Products are above 0, labels behind the shortlist below.
            if names[place] >= 0 and best[place] >= 0:
                best[place] = _centred_probability(best[place], constants)
