"""Frequencies of labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.validation import check_features

__all__ = ["label_frequencies"]


def label_frequencies(Y: Any) -> np.ndarray:
    """Number of rows of each label, most frequent first: int64 (L,).

    Against 1 … L on logarithmic axes this is figure 1 of REML.
    """
    Y = check_features(Y, name="Y")
    counts = np.bincount(Y.indices[Y.data != 0], minlength=Y.shape[1]) if sp.issparse(Y) else (Y != 0).sum(axis=0)
    return np.sort(counts.astype(np.int64))[::-1]
