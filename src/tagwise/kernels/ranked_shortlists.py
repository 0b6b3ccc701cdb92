"""The best labels of shortlists by three opinions on each label: Cascade's combination, fused.

A shortlist has some fifty labels. For a single row, a dozen passes of numpy over fifty numbers take longer than finding
them among tens of thousands.
"""

from __future__ import annotations

import math

import numpy as np

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import compiled
from tagwise.kernels.norm_pruned import keep
from tagwise.kernels.top_k import nothing_found
from tagwise.parallel import run_chunks, work_chunks

__all__ = ["best_of_shortlists"]


def best_of_shortlists(
    labels: np.ndarray,
    proposed: np.ndarray,
    margins: np.ndarray,
    cosines: np.ndarray,
    has_ranker: np.ndarray,
    k: int,
    *,
    slope: float,
    exponent: float,
    prototype_weight: float,
    least: float,
    least_cosine: float,
    calibration: tuple[float, float],
    edge: float,
    n_threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    r"""The k labels of each row with the largest products p, and what the products say as centred probabilities.

    .. math:: p &= \sigma(\text{slope}\cdot m)\,\min(1, \max(s + \tfrac12, \text{least}))^{\text{exponent}}
                   \Big(\frac{\min(1, \max(c, 0)) + \delta}{1 + \delta}\Big)^{\text{prototype_weight}}, \\
              q &= \sigma(a\,\sigma^{-1}(\min(1 - \text{edge}, \max(p, \text{edge}))) + b)

    Parameters
    ----------
    labels : int array (n, N)
        Different labels, best proposals first; −1 for none.
    proposed : array (n, N)
        Their centred scores s by the proposer.
    margins : array (n, M), M ≤ N
        The rankers' margins m of the first M, the shortlist.
    cosines : array (n, M)
        Of the row with the label's prototype, c; δ is ``least_cosine``.
    has_ranker : bool array (L,)
        Labels without a ranker have the margin 2s.
    k : int

    Returns
    -------
    labels : int64 array (n, k)
        Best first, equal products in the order of their ids; then the labels behind the shortlist in the proposer's
        order; −1 where there are no more.
    scores : array (n, k) in the type of ``proposed``
        q − ½; behind the shortlist s − 1 for s < 0 and −½ − ½/(1 + s) from there on; −inf where the label is −1.

    Notes
    -----
    Products are made in float64 and compared in the type of ``proposed``. Time O(n·N) and O(k) for each label that is
    among the k best when it is looked at; memory the result.
    """
    fit = labels.shape == proposed.shape and margins.shape == cosines.shape and margins.ndim == 2
    if not fit or len(margins) != len(labels):
        raise InvalidInputError(
            f"labels {labels.shape}, proposed {proposed.shape}, margins {margins.shape} and cosines {cosines.shape} "
            "must be n×N, n×N, n×M and n×M."
        )
    if margins.shape[1] > labels.shape[1]:
        raise InvalidInputError(f"margins of {margins.shape[1]} labels where rows list {labels.shape[1]}.")
    best_labels, best_scores = nothing_found(len(labels), k, proposed.dtype)
    a, b = calibration
    numbers = (slope, exponent, prototype_weight, least, least_cosine, a, b, edge)
    constants = tuple(map(float, numbers))

    def rows(start: int, stop: int) -> None:
        _best(labels, proposed, margins, cosines, has_ranker, constants, best_scores, best_labels, start, stop)

    run_chunks(rows, work_chunks(np.arange(len(labels) + 1) * labels.shape[1]), n_threads)
    return best_labels, best_scores


@compiled()
def _sigmoid(value):
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    power = math.exp(value)
    return power / (1 + power)


@compiled()
def _best(labels, proposed, margins, cosines, has_ranker, constants, best_scores, best_labels, start, stop):
    slope, exponent, prototype_weight, least, least_cosine, a, b, edge = constants
    n_listed = margins.shape[1]
    for row in range(start, stop):
        best, names = best_scores[row], best_labels[row]
        for place in range(labels.shape[1]):
            label = labels[row, place]
            if label < 0:
                continue
            score = np.float64(proposed[row, place])
            if place < n_listed:
                # Twice the centred score is least squares' score of labels −1/+1, the scale of a margin.
                margin = np.float64(margins[row, place]) if has_ranker[label] else 2 * score
                cosine = min(1.0, max(np.float64(cosines[row, place]), 0.0))
                value = _sigmoid(slope * margin) * min(1.0, max(score + 0.5, least)) ** exponent
                value *= ((cosine + least_cosine) / (1 + least_cosine)) ** prototype_weight
            elif score < 0:
                value = score - 1
            else:
                value = -0.5 - 0.5 / (1 + score)
            keep(best, names, best.dtype.type(value), label)
        for place in range(len(best)):
            # Products are above 0, labels behind the shortlist below.
            if names[place] >= 0 and best[place] >= 0:
                chance = min(1 - edge, max(np.float64(best[place]), edge))
                best[place] = _sigmoid(a * math.log(chance / (1 - chance)) + b) - 0.5
