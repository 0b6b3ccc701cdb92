"""The product of opinions that cascades of version 0.1.0 combine by, in the place of a learnt fusion.

Folders of that version are answered as they were; no fit makes a product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from tagwise.kernels.compiled import compiled
from tagwise.kernels.shortlists import behind
from tagwise.kernels.top_k import keep, nothing_found
from tagwise.kernels.vectors import sigmoid
from tagwise.models.cascade.opinions import LabelFacts, Opinions
from tagwise.parallel import run_chunks, work_chunks
from tagwise.validation import check_real

__all__ = ["Product"]

# slope, exponent, prototype_weight, and a and b of the calibration.
_Numbers: TypeAlias = tuple[float, float, float, float, float]

_LEAST = 1e-3
_LEAST_COSINE = 0.1
# Probabilities this close to 0 or 1 are not told apart.
_EDGE = 1e-6


@dataclass(frozen=True)
class Product:
    r"""How margins m, the proposer's centred scores s and cosines c with prototypes become centred scores of labels.

    .. math:: p = \sigma(\text{slope}\cdot m)\,\min(1, \max(s + \tfrac12, 10^{-3}))^{\text{exponent}}
                  \Big(\frac{\min(1, \max(c, 0)) + 0.1}{1.1}\Big)^{\text{prototype_weight}}, \qquad
              q = \sigma(a\,\sigma^{-1}(p) + b)

    The score is q − ½.
    """

    slope: float
    exponent: float
    prototype_weight: float
    a: float
    b: float

    @classmethod
    def from_values(cls, values: Any) -> Product:
        """From what a folder says; ValueError for values that are none."""
        names = [field.name for field in fields(cls)]
        if not isinstance(values, dict) or set(values) != set(names):
            raise ValueError(f"product_ must hold {', '.join(names)}")
        for name in names:
            check_real(values[name], name, minimum=-math.inf if name == "b" else 0, open_minimum=name in ("slope", "a"))
        return cls(**{name: float(values[name]) for name in names})

    @property
    def _numbers(self) -> _Numbers:
        return self.slope, self.exponent, self.prototype_weight, self.a, self.b

    def scores(self, opinions: Opinions, facts: LabelFacts) -> np.ndarray:
        """As :meth:`tagwise.models.cascade.fusion.Fusion.scores`."""
        out = np.empty(opinions.proposed.shape, dtype=opinions.proposed.dtype)
        _scores(opinions, facts.has_ranker, self._numbers, out)
        return out

    def best(
        self, opinions: Opinions, facts: LabelFacts, k: int, hidden: np.ndarray | None = None, *, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """As :meth:`tagwise.models.cascade.fusion.Fusion.best`; equal products in the order of their ids."""
        n_rows, width = opinions.labels.shape
        best_labels, best_scores = nothing_found(n_rows, k, opinions.proposed.dtype)
        numbers, has_ranker = self._numbers, facts.has_ranker
        skipped = np.zeros((0, 0), dtype=np.bool_) if hidden is None else hidden

        def rows(start: int, stop: int) -> None:
            _best(opinions, has_ranker, numbers, skipped, best_scores, best_labels, start, stop)

        run_chunks(rows, work_chunks(np.arange(n_rows + 1) * width), n_threads)
        return best_labels, best_scores


@compiled()
def _product(opinions: Opinions, has_ranker: np.ndarray, row: int, place: int, numbers: _Numbers) -> float:
    slope, exponent, prototype_weight, _, _ = numbers
    score = np.float64(opinions.proposed[row, place])
    margin = np.float64(opinions.margins[row, place]) if has_ranker[opinions.labels[row, place]] else 2 * score
    cosine = min(1.0, max(np.float64(opinions.cosines[row, place]), 0.0))
    value = sigmoid(slope * margin) * min(1.0, max(score + 0.5, _LEAST)) ** exponent
    return value * ((cosine + _LEAST_COSINE) / (1 + _LEAST_COSINE)) ** prototype_weight


@compiled()
def _centred_probability(product: float, numbers: _Numbers) -> float:
    _, _, _, a, b = numbers
    chance = min(1 - _EDGE, max(np.float64(product), _EDGE))
    return sigmoid(a * math.log(chance / (1 - chance)) + b) - 0.5


@compiled()
def _scores(opinions: Opinions, has_ranker: np.ndarray, numbers: _Numbers, out: np.ndarray) -> None:
    for row in range(out.shape[0]):
        for place in range(out.shape[1]):
            # Rounded to the type of the scores, in which products are compared.
            product = out.dtype.type(_product(opinions, has_ranker, row, place, numbers))
            out[row, place] = _centred_probability(product, numbers)


@compiled()
def _best(
    opinions: Opinions,
    has_ranker: np.ndarray,
    numbers: _Numbers,
    hidden: np.ndarray,
    best_scores: np.ndarray,
    best_labels: np.ndarray,
    start: int,
    stop: int,
) -> None:
    labels, proposed = opinions.labels, opinions.proposed
    shortlisted = opinions.margins.shape[1]
    for row in range(start, stop):
        best, names = best_scores[row], best_labels[row]
        for place in range(labels.shape[1]):
            label = labels[row, place]
            if label < 0 or (hidden.shape[0] > 0 and hidden[row, place]):
                continue
            if place < shortlisted:
                value = _product(opinions, has_ranker, row, place, numbers)
            else:
                value = behind(proposed[row, place])
            keep(best, names, best.dtype.type(value), label)
        for place in range(len(best)):
            # Products are above 0, labels behind the shortlist below.
            if names[place] >= 0 and best[place] >= 0:
                best[place] = _centred_probability(best[place], numbers)
