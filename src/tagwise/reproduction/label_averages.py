"""Precision, recall and accuracy of each label over the rows, averaged over labels.

MSE's equations 21-24 average over rows, but its printed figures of ML-kNN and MDDM only fit together as averages over
labels (see ``reproduction/mse/way-of-averaging.toml``); these are what they are compared with there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

__all__ = ["label_accuracy", "label_precision", "label_recall"]


def label_precision(Y_true: Any, Y_pred: Any) -> float:
    r"""Share of a label's predicted rows that have it, averaged over the labels that are predicted anywhere.

    .. math:: \frac{1}{|P|} \sum_{l \in P} \frac{|y^l \cap \hat y^l|}{|\hat y^l|}, \quad P = \{l : |\hat y^l| > 0\}
    """
    _, predicted, both = _sizes(Y_true, Y_pred)
    return _mean(both, predicted)


def label_recall(Y_true: Any, Y_pred: Any) -> float:
    r"""Share of a label's rows that it is predicted for, averaged over the labels that have a row.

    .. math:: \frac{1}{|T|} \sum_{l \in T} \frac{|y^l \cap \hat y^l|}{|y^l|}, \quad T = \{l : |y^l| > 0\}
    """
    true, _, both = _sizes(Y_true, Y_pred)
    return _mean(both, true)


def label_accuracy(Y_true: Any, Y_pred: Any) -> float:
    r"""Overlap of a label's true and predicted rows, averaged over the labels that have either.

    .. math:: \frac{1}{|U|} \sum_{l \in U} \frac{|y^l \cap \hat y^l|}{|y^l \cup \hat y^l|}
    """
    true, predicted, both = _sizes(Y_true, Y_pred)
    return _mean(both, true + predicted - both)


def _sizes(Y_true: Any, Y_pred: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of each label: true, predicted, both."""
    truth, predicted = sp.csr_matrix(Y_true), sp.csr_matrix(Y_pred)
    return tuple(  # type: ignore[return-value]
        np.asarray((matrix != 0).sum(axis=0)).ravel() for matrix in (truth, predicted, truth.multiply(predicted))
    )


def _mean(parts: np.ndarray, wholes: np.ndarray) -> float:
    there = wholes > 0
    return float((parts[there] / wholes[there]).mean()) if there.any() else 0.0
