"""How much a positive counts against a negative."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.metrics import inverse_propensity
from tagwise.validation import check_real

__all__ = ["PositiveWeight", "check_positive_weight", "resolve_positive_weight"]

PositiveWeight: TypeAlias = Any
"""A number, an array with one number per label, or ``"propensity"``."""


def check_positive_weight(positive_weight: PositiveWeight) -> None:
    """Raise for what can never be a weight, before any data is seen."""
    if isinstance(positive_weight, str):
        if positive_weight != "propensity":
            raise InvalidInputError(
                f"positive_weight must be a number, an array or 'propensity'; found {positive_weight!r}."
            )
    elif np.isscalar(positive_weight) or positive_weight is None:
        check_real(positive_weight, "positive_weight", minimum=0, open_minimum=True)
    else:
        _as_array(positive_weight)


def resolve_positive_weight(
    positive_weight: PositiveWeight, Y: sp.csr_matrix, observed: sp.csr_matrix | None
) -> np.ndarray | None:
    """The weight of each label's positives (L), or None where all are 1."""
    n_labels = Y.shape[1]
    if isinstance(positive_weight, str):
        known = Y if observed is None else sp.csr_matrix(Y.multiply(observed))
        return inverse_propensity(known)
    if np.isscalar(positive_weight):
        number = check_real(positive_weight, "positive_weight", minimum=0, open_minimum=True)
        return None if number == 1 else np.full(n_labels, number)
    weights = _as_array(positive_weight)
    if weights.shape != (n_labels,):
        raise InvalidInputError(
            f"positive_weight has shape {weights.shape}; give one number or one per label ({n_labels})."
        )
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise InvalidInputError("positive_weight must be finite and above 0 for every label.")
    return weights


def _as_array(positive_weight: Any) -> np.ndarray:
    try:
        return np.asarray(positive_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(
            "positive_weight must be a number, 'propensity', or an array of one number per label; found "
            f"{positive_weight!r:.60}."
        ) from None
