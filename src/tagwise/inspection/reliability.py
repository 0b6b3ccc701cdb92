"""How far stated probabilities agree with what happens: the numbers behind a reliability diagram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tagwise.exceptions import InvalidInputError
from tagwise.validation import check_integer

__all__ = ["ReliabilityBins", "reliability_bins"]


@dataclass(frozen=True, eq=False)
class ReliabilityBins:
    """Pairs of a row and a label, gathered by their stated probability into bins of equal width.

    Attributes
    ----------
    predicted : float64 array (B,)
        Mean stated probability of the bin's pairs; NaN where it has none.
    observed : float64 array (B,)
        Share of them that are on; NaN where it has none.
    count : int64 array (B,)
        How many pairs the bin has.
    """

    predicted: np.ndarray
    observed: np.ndarray
    count: np.ndarray

    @property
    def error(self) -> float:
        """Expected calibration error: the mean size of observed − predicted over pairs; NaN without pairs."""
        total = int(self.count.sum())
        if total == 0:
            return float("nan")
        gap = np.abs(self.observed - self.predicted)[self.count > 0]
        return float(gap @ self.count[self.count > 0] / total)


def reliability_bins(probabilities: Any, on: Any, n_bins: int = 10) -> ReliabilityBins:
    """Gather pairs by stated probability: [0, 1/B), [1/B, 2/B), …, [1 − 1/B, 1].

    Parameters
    ----------
    probabilities : float array (P,)
        In [0, 1].
    on : bool or 0/1 array (P,)
        What happened.
    n_bins : int
        B.
    """
    n_bins = check_integer(n_bins, "n_bins", minimum=1)
    stated, happened = np.asarray(probabilities, dtype=np.float64).ravel(), np.asarray(on).ravel()
    if stated.shape != happened.shape:
        raise InvalidInputError(
            f"probabilities has {len(stated):,} entries but on has {len(happened):,}; both must be of the same pairs."
        )
    if not ((stated >= 0) & (stated <= 1)).all():
        raise InvalidInputError("probabilities must lie between 0 and 1.")
    places = np.minimum((stated * n_bins).astype(np.int64), n_bins - 1)
    count = np.bincount(places, minlength=n_bins)
    some = np.maximum(count, 1)
    empty = count == 0
    predicted = np.bincount(places, weights=stated, minlength=n_bins) / some
    observed = np.bincount(places, weights=happened.astype(np.float64), minlength=n_bins) / some
    return ReliabilityBins(np.where(empty, np.nan, predicted), np.where(empty, np.nan, observed), count)
