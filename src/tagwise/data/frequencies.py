"""How often labels are used: the frequencies of figure 1 of REML, and a histogram of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.validation import check_features, check_integer

__all__ = ["FrequencyHistogram", "frequency_histogram", "label_frequencies"]


def label_frequencies(Y: Any) -> np.ndarray:
    """In how many rows each column of Y is non-zero, most frequent first: int64 (L,).

    Against 1 … L on logarithmic axes this is figure 1 of REML.
    """
    Y = check_features(Y, name="Y")
    counts = np.bincount(Y.indices[Y.data != 0], minlength=Y.shape[1]) if sp.issparse(Y) else (Y != 0).sum(axis=0)
    return np.sort(counts.astype(np.int64))[::-1]


@dataclass(frozen=True)
class FrequencyHistogram:
    """How many labels occur in how many rows.

    ``n_labels[i]`` labels occur in at least ``edges[i]`` and fewer than ``edges[i + 1]`` rows; ``n_unused`` in none.
    """

    edges: np.ndarray
    n_labels: np.ndarray
    n_unused: int


def frequency_histogram(frequencies: np.ndarray, *, bins_per_decade: int = 5) -> FrequencyHistogram:
    """Count labels by frequency in whole-numbered bins that widen by the factor 10 to the power of 1/bins_per_decade.

    Parameters
    ----------
    frequencies : int array (L,)
        As :func:`label_frequencies` gives.
    bins_per_decade : int
        Borders are rounded; where that makes two equal (the rarest labels), one bin takes the place of two.
    """
    check_integer(bins_per_decade, "bins_per_decade", minimum=1)
    counts = np.asarray(frequencies)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise InvalidInputError(
            "frequencies must be a one-dimensional array of whole numbers, none negative; found shape "
            f"{counts.shape} of type {counts.dtype}."
        )
    largest = int(counts.max(initial=0))
    n_edges = int(bins_per_decade * (np.log10(max(largest, 1)) + 1)) + 2
    edges = np.unique(np.rint(10 ** (np.arange(n_edges) / bins_per_decade)).astype(np.int64))
    edges = edges[: np.searchsorted(edges, largest, side="right") + 1]
    n_labels = np.histogram(counts[counts > 0], bins=edges)[0] if largest else np.zeros(0, dtype=np.int64)
    # numpy counts a value on the last edge into the last bin; the last edge is above every value here.
    return FrequencyHistogram(edges, n_labels, int(np.count_nonzero(counts == 0)))
