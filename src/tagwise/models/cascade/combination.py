"""One score out of three opinions: the proposer's, who has seen all pairs, a ranker's of hard ones, a prototype's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tagwise.kernels.ranked_shortlists import best_of_shortlists

__all__ = ["Combination", "behind_shortlist", "log_odds"]

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
        """With constants in the middle of what fits held-out rows of five sets, all known or a fifth.

        Cosines lower products, by about e^(−1.3·prototype_weight) for labels that are on; b makes up for it.
        """
        return cls(slope, exponent, prototype_weight, (1.15, 1.25 + 1.5 * prototype_weight))

    def product(self, margins: np.ndarray, proposed: np.ndarray, cosines: np.ndarray) -> np.ndarray:
        """The products p of margins, centred scores and cosines of the same shape, in the type of the scores."""
        share = np.clip(proposed + 0.5, _LEAST, 1)
        alike = (np.clip(cosines, 0, 1) + _LEAST_COSINE) / (1 + _LEAST_COSINE)
        product = _sigmoid(self.slope * margins) * share**self.exponent * alike**self.prototype_weight
        return np.asarray(product, dtype=proposed.dtype)

    def scores(self, product: np.ndarray) -> np.ndarray:
        """Centred probabilities q − ½, in [−½, ½], of products p."""
        a, b = self.calibration
        return np.asarray(_sigmoid(a * log_odds(product) + b) - 0.5, dtype=product.dtype)

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
        """The k best of proposed labels (n×N) and their scores, in one pass; margins and cosines (n×M) of the first M.

        See :func:`~tagwise.kernels.ranked_shortlists.best_of_shortlists`; labels behind the shortlist get the scores of
        :func:`behind_shortlist`.
        """
        return best_of_shortlists(
            labels,
            proposed,
            margins,
            cosines,
            has_ranker,
            k,
            slope=self.slope,
            exponent=self.exponent,
            prototype_weight=self.prototype_weight,
            least=_LEAST,
            least_cosine=_LEAST_COSINE,
            calibration=self.calibration,
            edge=_EDGE,
            n_threads=n_threads,
        )


def log_odds(product: np.ndarray) -> np.ndarray:
    """σ⁻¹(p) in float64: near 1, float32 has too few numbers."""
    share = np.clip(product.astype(np.float64), _EDGE, 1 - _EDGE)
    return np.asarray(np.log(share / (1 - share)))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    """σ(x), to full relative precision on both sides. scipy has it too, but a module that takes long to import."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def behind_shortlist(proposed: np.ndarray) -> np.ndarray:
    """Scores of labels that no ranker has seen, from the proposer's: in its order, and below −½, all shortlisted ones.

    s − 1 for s < 0, and −½ − ½/(1 + s) from there on.
    """
    # In place: a block of scores is the largest array of a prediction.
    scores = np.maximum(proposed, 0)
    scores += 1
    np.divide(-0.5, scores, out=scores)
    scores -= 0.5
    np.subtract(proposed, 1, out=scores, where=proposed < 0)
    return scores
