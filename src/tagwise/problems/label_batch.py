"""Some labels at a time as dense blocks of targets and weights, for models that treat every label on its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tagwise.losses import Loss
from tagwise.problems.labels import TrainingLabels

__all__ = ["LabelBatch", "LabelColumns"]


@dataclass(frozen=True)
class LabelBatch:
    """B labels of n rows.

    Attributes
    ----------
    targets : array (n, B)
        Labels in the loss's coding; pairs that are not known hold the code of "off" and weigh 0.
    weights : array (n, B), or None
        ω_ij, 0 outside Ω; None where every pair weighs 1.
    start : array (B,)
        The constant score that minimises each label's loss.
    """

    targets: np.ndarray
    weights: np.ndarray | None
    start: np.ndarray


class LabelColumns:
    """Training labels by column, so that a batch of labels costs its own entries and not all of Y's.

    Memory O(nnz Y + |Ω|); a batch of B labels takes O(n·B).
    """

    def __init__(self, labels: TrainingLabels, loss: Loss) -> None:
        self.loss = loss
        self.positives = sp.csr_matrix(labels.positives.T)
        self.observed = None if labels.observed is None else sp.csr_matrix(labels.observed.T)
        self.positive_weight = labels.positive_weight
        self.start = loss.constant(labels.rates())

    def batch(self, ids: np.ndarray, *, with_start: bool) -> LabelBatch:
        """The labels ``ids``; ``with_start=False`` starts them at the score 0 (models without an intercept)."""
        shape = (self.positives.shape[1], len(ids))
        dtype = self.positives.dtype
        on = _entries(self.positives, ids)
        targets = np.full(shape, self.loss.negative, dtype=dtype)
        targets[on] = 1
        weights = None
        if self.observed is not None:
            weights = np.zeros(shape, dtype=dtype)
            weights[_entries(self.observed, ids)] = 1
        elif self.positive_weight is not None:
            weights = np.ones(shape, dtype=dtype)
        if weights is not None and self.positive_weight is not None:
            weights[on] = self.positive_weight[ids][on[1]]
        start = self.start[ids] if with_start else np.zeros(len(ids))
        return LabelBatch(targets, weights, start)


def _entries(by_label: sp.csr_matrix, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of the stored pairs of the chosen labels, in a block with one column a label."""
    chosen = by_label[ids]
    return chosen.indices, np.repeat(np.arange(len(ids)), np.diff(chosen.indptr))
