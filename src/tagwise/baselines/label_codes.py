"""Random codes for labels, and which labels need none: what the compressed-sensing methods share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["LabelCodes", "default_measurements"]

_MOST_BY_DEFAULT = 400


def default_measurements(n_labels: int) -> int:
    """Half the number of labels, at most 400."""
    return min(_MOST_BY_DEFAULT, (n_labels + 1) // 2)


@dataclass(frozen=True)
class LabelCodes:
    """A code of m numbers a label: y is compressed to Σ_j y_j code_j.

    Attributes
    ----------
    codes : float64 array (L, m)
        Φᵀ: independent normal numbers of variance 1/m, so that codes have length 1 on average; in the type of the
        features, so that a saved model decodes as the fitted one. Zeros for labels that are constant.
    base : float64 array (L,)
        The score of a label when its entry of the recovered y is 0: −½, or +½ for a label that is always on.
    """

    codes: np.ndarray
    base: np.ndarray

    @classmethod
    def draw(
        cls, rates: np.ndarray, n_measurements: int, rng: np.random.Generator, dtype: np.dtype | type
    ) -> LabelCodes:
        """Codes for labels of which ``rates`` (L) of the known rows are on; 0 and 1 make a label constant."""
        codes = rng.standard_normal((len(rates), n_measurements)) / np.sqrt(n_measurements)
        codes[(rates <= 0) | (rates >= 1)] = 0
        return cls(codes.astype(dtype), np.where(rates >= 1, 0.5, -0.5))
