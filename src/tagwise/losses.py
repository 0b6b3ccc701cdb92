"""Losses of one label at one score: value, first and second derivative.

A loss is an object without data; arrays in, arrays out, elementwise. ``target`` is the label in the loss's own
coding (see :meth:`Loss.targets`), ``score`` the model's value s = xᵀWh + b. Squared loss codes labels 0/1, the margin
losses −1/+1. Derivatives follow the definitions, not the printed table of the paper, whose logistic row has two slips.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from tagwise.validation import check_choice

__all__ = ["LOSSES", "Loss", "as_probability", "get_loss", "sigmoid"]

# Where an estimate of a probability starts to bend, to stay above 0.
_END = 1e-4


class Loss(ABC):
    """Base of the losses.

    Attributes
    ----------
    name : str
        Name for users: ``loss=name``.
    negative : float
        The code of a label that is off (a label that is on is always 1).
    threshold : float
        A score at or above it means that the label is on.
    quadratic : bool
        Whether the second derivative is 1 at every score, so that normal equations solve what others take Newton
        steps for.
    """

    name: str
    negative: float
    threshold: float
    quadratic = False

    def targets(self, labels: np.ndarray) -> np.ndarray:
        """0/1 labels in this loss's coding."""
        return labels if self.negative == 0 else (1 - self.negative) * labels + self.negative

    @abstractmethod
    def constant(self, rate: np.ndarray) -> np.ndarray:
        """The score that minimises the mean loss of a label that is on in a share ``rate`` of its rows."""

    @abstractmethod
    def rate(self, score: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`constant`, between 0 and 1: how often a label is on whose best score this is."""

    @abstractmethod
    def value(self, target: np.ndarray, score: np.ndarray) -> np.ndarray:
        """ℓ(target, score)."""

    @abstractmethod
    def first(self, target: np.ndarray, score: np.ndarray) -> np.ndarray:
        """∂ℓ/∂score."""

    @abstractmethod
    def second(self, target: np.ndarray, score: np.ndarray) -> np.ndarray:
        """∂²ℓ/∂score² (generalised where ℓ is only once differentiable)."""


class Squared(Loss):
    """ℓ(a, s) = ½ (a − s)², labels 0/1."""

    name = "squared"
    negative = 0.0
    threshold = 0.5
    quadratic = True

    def constant(self, rate: np.ndarray) -> np.ndarray:
        return rate

    def rate(self, score: np.ndarray) -> np.ndarray:
        return as_probability(score)

    def value(self, target: np.ndarray, score: np.ndarray) -> np.ndarray:
        return 0.5 * (score - target) ** 2

    def first(self, target: np.ndarray, score: np.ndarray) -> np.ndarray:
        return score - target

    def second(self, target: np.ndarray, score: np.ndarray) -> np.ndarray:
        return np.ones_like(score)


class Logistic(Loss):
    """ℓ(a, s) = log(1 + e^{−as}), labels −1/+1."""

    name = "logistic"
    negative = -1.0
    threshold = 0.0

    def constant(self, rate: np.ndarray) -> np.ndarray:
        # The best constant of a label that is never (or always) on is infinite; a millionth is far enough.
        inside = np.clip(rate, 1e-6, 1 - 1e-6)
        return np.log(inside) - np.log1p(-inside)

    def rate(self, score: np.ndarray) -> np.ndarray:
        return sigmoid(score)

    def value(self, target: np.ndarray, score: np.ndarray) -> np.ndarray:
        # log(1 + e^z) = max(z, 0) + log(1 + e^{−|z|}) does not overflow. numpy's log is vectorised and its log1p is not
        # (7 times slower); what log loses beside the 1 is below the rounding of any sum that the value enters.
        z = -target * score
        return np.maximum(z, 0) + np.log(1 + np.exp(-np.abs(z)))

    def first(self, target: np.ndarray, score: np.ndarray) -> np.ndarray:
        return -target * sigmoid(-target * score)

    def second(self, target: np.ndarray, score: np.ndarray) -> np.ndarray:
        probability = sigmoid(score)
        return probability * (1 - probability)


class SquaredHinge(Loss):
    """ℓ(a, s) = max(0, 1 − as)², labels −1/+1; the second derivative is 2 inside the margin and 0 outside."""

    name = "squared_hinge"
    negative = -1.0
    threshold = 0.0

    def constant(self, rate: np.ndarray) -> np.ndarray:
        return 2 * rate - 1

    def rate(self, score: np.ndarray) -> np.ndarray:
        return as_probability(0.5 * (score + 1))

    def value(self, target: np.ndarray, score: np.ndarray) -> np.ndarray:
        return np.maximum(0, 1 - target * score) ** 2

    def first(self, target: np.ndarray, score: np.ndarray) -> np.ndarray:
        return -2 * target * np.maximum(0, 1 - target * score)

    def second(self, target: np.ndarray, score: np.ndarray) -> np.ndarray:
        return 2.0 * (target * score < 1).astype(score.dtype)


def sigmoid(score: np.ndarray) -> np.ndarray:
    """1 / (1 + e^{−score})."""
    # tanh saturates instead of overflowing, for scores of either sign.
    return 0.5 * (1 + np.tanh(0.5 * score))


def as_probability(estimate: np.ndarray) -> np.ndarray:
    """An estimate x of a probability, which may lie outside of 0 to 1, as a number between them, in the same order.

    x itself from 0.0001 to 0.9999; ε²/(2ε − x) below, with ε = 0.0001, which has the value and the slope of x at ε, and
    as much less than 1 beyond.
    """
    to_end = np.minimum(estimate, 1 - estimate)
    tail = _END**2 / (2 * _END - np.minimum(to_end, _END))
    bent = np.where(estimate < 0.5, tail, 1 - tail)
    return np.where(to_end < _END, bent, estimate).astype(estimate.dtype, copy=False)


LOSSES: dict[str, Loss] = {loss.name: loss for loss in (Squared(), Logistic(), SquaredHinge())}


def get_loss(name: str) -> Loss:
    """The loss of that name."""
    return LOSSES[check_choice(name, "loss", tuple(LOSSES))]
