"""Propensities: the probability that a true label is observed in the data, by its frequency.

Following Jain, Prabhu and Varma, "Extreme multi-label loss functions for recommendation, tagging, ranking and
other missing label applications", KDD 2016.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.validation import check_flag, check_labels, check_real

__all__ = ["PROPENSITY_CONSTANTS", "inverse_propensity", "inverse_propensity_of_counts", "propensity_constants"]

# Steps after which the estimate of rows has converged.
_STEPS = 60

PROPENSITY_CONSTANTS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"wikipedia": (0.5, 0.4), "amazon": (0.6, 2.6), "other": (0.55, 1.5)}
)
"""(A, B) per family of data sets, as in the tools of the extreme-classification repository."""


def propensity_constants(dataset: str) -> tuple[float, float]:
    """(A, B) of :func:`inverse_propensity` for a data set, by its name.

    Parameters
    ----------
    dataset : str
        Such as ``"Wikipedia-500K"`` or ``"debtags"``; case, punctuation and a leading ``LF-`` do not matter.

    Returns
    -------
    tuple of float
        ``PROPENSITY_CONSTANTS["wikipedia"]`` for names that begin with "wiki", except Wiki10-31K, which is
        published with the general constants; ``["amazon"]`` for names that begin with "amazon", except AmazonCat;
        else ``["other"]``.

    Notes
    -----
    AmazonCat sets use the general constants: A and B of the Amazon family were fitted to the co-purchase sets
    (Amazon-670K, Amazon-3M). To compare with a paper that used others, pass A and B yourself.
    """
    if not isinstance(dataset, str):
        raise InvalidTypeError(f"dataset must be a name; found {dataset!r}.")
    name = "".join(character for character in dataset.lower() if character.isalnum()).removeprefix("lf")
    if name.startswith("wiki") and not name.startswith("wiki10"):
        return PROPENSITY_CONSTANTS["wikipedia"]
    is_amazon = name.startswith("amazon") and not name.startswith("amazoncat")
    return PROPENSITY_CONSTANTS["amazon" if is_amazon else "other"]


def inverse_propensity(Y_train: Any, A: float = 0.55, B: float = 1.5, *, listed_only: bool = False) -> np.ndarray:
    r"""Inverse propensity of each label: the number of true labels per observed one.

    .. math:: q_l = 1 + C (N_l + B)^{-A}, \qquad C = (\ln N - 1)(B + 1)^A

    Parameters
    ----------
    Y_train : sparse or dense 0/1 matrix, N×L
        The labels that the model was trained on (not those of the test rows); :math:`N_l` counts label l's rows.
    A, B : float
        Constants of the data set, A ≥ 0 and B > 0; see :func:`propensity_constants`.
    listed_only : bool
        False takes the rows that list a label for :math:`N_l`, as is usual for metrics. True takes an estimate of the
        rows that have it, listed or not: the :math:`N_l` that equals the number listed times :math:`q_l`.

    Returns
    -------
    array of float64, L
        All at least 1; the rarer a label, the larger.

    Raises
    ------
    InvalidInputError
        Also for fewer than 3 rows, for which the formula would weigh frequent labels above rare ones.
    """
    truth = check_labels(Y_train, name="Y_train")
    A = check_real(A, "A", minimum=0.0)
    B = check_real(B, "B", minimum=0.0, open_minimum=True)
    n_rows, listed = truth.shape[0], np.bincount(truth.indices, minlength=truth.shape[1])
    inverse = inverse_propensity_of_counts(listed, n_rows, A, B)
    if check_flag(listed_only, "listed_only"):
        # Halfway to the next estimate on the logarithmic scale: the error at least halves for every A up to 2.
        rows = listed * inverse
        for _ in range(_STEPS):
            rows = np.sqrt(rows * listed * inverse)
            inverse = inverse_propensity_of_counts(rows, n_rows, A, B)
    return inverse


def inverse_propensity_of_counts(counts: np.ndarray, n_rows: float, A: float = 0.55, B: float = 1.5) -> np.ndarray:
    """:func:`inverse_propensity` of labels that occur in so many of ``n_rows`` training rows."""
    if n_rows < 3:
        raise InvalidInputError(
            f"Y_train has {n_rows:g} rows; propensities need at least 3, since ln N - 1 is negative below that."
        )
    constant = (np.log(n_rows) - 1.0) * (B + 1.0) ** A
    return np.asarray(1.0 + constant * (counts + B) ** -A)
