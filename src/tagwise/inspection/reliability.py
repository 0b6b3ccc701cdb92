"""Agreement of predicted probabilities with outcomes: the numbers behind a reliability diagram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tagwise.exceptions import InvalidInputError
from tagwise.fields import Fields, dense
from tagwise.validation import check_integer

__all__ = ["ReliabilityBins", "reliability_bins"]


@dataclass(frozen=True, eq=False)
class ReliabilityBins:
    """Pairs of a row and a label, binned by predicted probability into bins of equal width.

    Attributes
    ----------
    predicted : float64 array (B,)
        Mean predicted probability of the bin's pairs; NaN if it is empty.
    observed : float64 array (B,)
        Share of them that are on; NaN if it is empty.
    count : int64 array (B,)
        Number of pairs.
    """

    predicted: np.ndarray
    observed: np.ndarray
    count: np.ndarray

    def check(self) -> None:
        """Raise ValueError if bins from a folder cannot come from a calibration."""
        _FIELDS.check({name: np.nan_to_num(array) for name, array in vars(self).items()}, {})
        filled = self.count > 0
        for shares in (self.predicted[filled], self.observed[filled]):
            if not ((shares >= 0) & (shares <= 1)).all():
                raise ValueError("means and shares of reliability bins must lie between 0 and 1")

    @property
    def error(self) -> float:
        """Expected calibration error: the mean size of observed − predicted over pairs; NaN without pairs."""
        pairs = int(self.count.sum())
        return self.total(np.abs(self.observed - self.predicted)) / pairs if pairs else float("nan")

    def total(self, means: np.ndarray) -> float:
        """Sum over all pairs of a quantity with these means (B) in the bins."""
        filled = self.count > 0
        return float(means[filled] @ self.count[filled])


_FIELDS = Fields(
    predicted=dense("bins", meaning="", numbers="float64"),
    observed=dense("bins", meaning="", numbers="float64"),
    count=dense("bins", meaning="", numbers="count"),
)


def reliability_bins(probabilities: Any, on: Any, n_bins: int = 10) -> ReliabilityBins:
    """Bin pairs by predicted probability: [0, 1/B), [1/B, 2/B), …, [1 − 1/B, 1].

    Parameters
    ----------
    probabilities : float array (P,)
        In [0, 1].
    on : bool or 0/1 array (P,)
        Whether the label is on.
    n_bins : int
        B.
    """
    n_bins = check_integer(n_bins, "n_bins", minimum=1)
    stated, is_on = np.asarray(probabilities, dtype=np.float64).ravel(), np.asarray(on).ravel()
    if stated.shape != is_on.shape:
        raise InvalidInputError(
            f"probabilities has {len(stated):,} entries but on has {len(is_on):,}; pass one of each per pair."
        )
    if not ((stated >= 0) & (stated <= 1)).all():
        raise InvalidInputError("probabilities must lie between 0 and 1.")
    bins = np.minimum((stated * n_bins).astype(np.int64), n_bins - 1)
    count = np.bincount(bins, minlength=n_bins)
    size = np.where(count > 0, count, np.nan)
    return ReliabilityBins(
        predicted=np.bincount(bins, weights=stated, minlength=n_bins) / size,
        observed=np.bincount(bins, weights=is_on.astype(np.float64), minlength=n_bins) / size,
        count=count,
    )
