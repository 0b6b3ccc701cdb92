"""One score out of three opinions: the proposer's, who has seen all pairs, a ranker's on hard ones, a prototype's.

The formula stands here once, as compiled functions of single numbers: a shortlist has some fifty labels, and for a
single row a dozen passes of numpy over fifty numbers take longer than finding them among tens of thousands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tagwise.kernels.compiled import compiled
from tagwise.kernels.top_k import keep, nothing_found
from tagwise.kernels.vectors import sigmoid
from tagwise.models.factor_model import PositiveWeight, check_positive_weight
from tagwise.parallel import run_chunks, work_chunks
from tagwise.validation import check_integer, check_real

__all__ = ["CascadeChoice", "Combination", "Opinions", "behind_shortlist", "log_odds"]

# slope, exponent, prototype_weight, and a and b of the calibration.
_Numbers: TypeAlias = tuple[float, float, float, float, float]

# A proposer's score below this (0/1 scale) is as good as none; a product with 0 would forget the ranker.
_LEAST = 1e-3
# Cosines near 0 are not told apart, so that a label of few rows is not out for want of a common word.
_LEAST_COSINE = 0.1
# Probabilities this close to 0 or 1 are not told apart.
_EDGE = 1e-6


class Opinions(NamedTuple):
    """What is known of N labels per row, best proposals first; the first M ≤ N of them are the shortlist."""

    labels: np.ndarray
    """int (n, N); −1 for none."""
    proposed: np.ndarray
    """s (n, N): the proposer's centred scores."""
    margins: np.ndarray
    """m (n, M): the rankers' margins."""
    cosines: np.ndarray
    """c (n, M): of the row with the label's prototype."""
    has_ranker: np.ndarray
    """bool (L,); labels without a ranker have the margin 2s."""


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
    def _numbers(self) -> _Numbers:
        a, b = self.calibration
        return float(self.slope), float(self.exponent), float(self.prototype_weight), float(a), float(b)

    def scores(self, opinions: Opinions) -> np.ndarray:
        """Q − ½, in [−½, ½], of labels (n×N) that are all shortlisted, in the type of ``opinions.proposed``."""
        out = np.empty(opinions.proposed.shape, dtype=opinions.proposed.dtype)
        _scores(opinions, self._numbers, out)
        return out

    def best(self, opinions: Opinions, k: int, *, n_threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """The k labels of each row with the largest products p, and their scores, in one pass over n×N labels.

        Returns
        -------
        labels : int64 array (n, k)
            Best first, equal products in the order of their ids; then the labels behind the shortlist in the
            proposer's order; −1 where there are no more.
        scores : array (n, k) in the type of ``opinions.proposed``, in which products are compared
            q − ½; behind the shortlist those of :func:`behind_shortlist`; −inf where the label is −1.
        """
        n_rows, width = opinions.labels.shape
        best_labels, best_scores = nothing_found(n_rows, k, opinions.proposed.dtype)
        numbers = self._numbers

        def rows(start: int, stop: int) -> None:
            _best(opinions, numbers, best_scores, best_labels, start, stop)

        run_chunks(rows, work_chunks(np.arange(n_rows + 1) * width), n_threads)
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
        combined = {name: getattr(self.combination, name) for name in _COMBINED}
        return own | combined | {"calibration": list(self.combination.calibration)}

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
def _product(opinions: Opinions, row: int, place: int, numbers: _Numbers) -> float:
    labels, proposed, margins, cosines, has_ranker = opinions
    slope, exponent, prototype_weight, _, _ = numbers
    score = np.float64(proposed[row, place])
    # Twice the centred score is least squares' score of labels −1/+1, the scale of a margin.
    margin = np.float64(margins[row, place]) if has_ranker[labels[row, place]] else 2 * score
    cosine = min(1.0, max(np.float64(cosines[row, place]), 0.0))
    value = sigmoid(slope * margin) * min(1.0, max(score + 0.5, _LEAST)) ** exponent
    return value * ((cosine + _LEAST_COSINE) / (1 + _LEAST_COSINE)) ** prototype_weight


@compiled()
def _log_odds(product: float) -> float:
    chance = min(1 - _EDGE, max(np.float64(product), _EDGE))
    return math.log(chance / (1 - chance))


@compiled()
def _centred_probability(product: float, numbers: _Numbers) -> float:
    _, _, _, a, b = numbers
    return sigmoid(a * _log_odds(product) + b) - 0.5


@compiled()
def _behind(score: float) -> float:
    if score < 0:
        return np.float64(score) - 1
    return -0.5 - 0.5 / (1 + np.float64(score))


@compiled()
def _scores(opinions: Opinions, numbers: _Numbers, out: np.ndarray) -> None:
    for row in range(out.shape[0]):
        for place in range(out.shape[1]):
            # Rounded to the type of the scores, in which products are compared.
            product = out.dtype.type(_product(opinions, row, place, numbers))
            out[row, place] = _centred_probability(product, numbers)


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
    opinions: Opinions, numbers: _Numbers, best_scores: np.ndarray, best_labels: np.ndarray, start: int, stop: int
) -> None:
    labels, proposed = opinions.labels, opinions.proposed
    shortlisted = opinions.margins.shape[1]
    for row in range(start, stop):
        best, names = best_scores[row], best_labels[row]
        for place in range(labels.shape[1]):
            label = labels[row, place]
            if label < 0:
                continue
            value = _product(opinions, row, place, numbers) if place < shortlisted else _behind(proposed[row, place])
            keep(best, names, best.dtype.type(value), label)
        for place in range(len(best)):
            # Products are above 0, labels behind the shortlist below.
            if names[place] >= 0 and best[place] >= 0:
                best[place] = _centred_probability(best[place], numbers)
