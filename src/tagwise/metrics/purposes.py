r"""Choosing labels for a purpose: the k labels of each row that maximise an expected metric, given probabilities.

Let p_ij be the probability that row i has label j, and a_ij = 1 where the label is chosen, k times in each row.

=========  =====================================================================================================
precision  Σ_ij a_ij p_ij: the k most probable labels
recall     Σ_ij a_ij p_ij·w_j with w_j = 1/(1 + o_j), where training rows with label j have o_j other labels on
           average: a label is worth more in rows with few labels
psp        Σ_ij a_ij p_ij·q_j with the inverse propensities q of the training rows
macro_f1   the mean over labels of 2 Σ_i a_ij p_ij / (Σ_i a_ij + Σ_i p_ij)
=========  =====================================================================================================

The first three are a weight per label: the exact optimum is a row's k largest p·w. Were the labels of a row
independent, the most probable ones would be the best for recall too; o_j accounts for labels that come in groups.

Macro-F1 is not a sum over rows. It is maximised by block coordinate ascent: the sum over labels falls apart into gains
once all other rows are held fixed, so each row in turn takes the k labels with the largest gains, until none changes.
The expected macro-F1 never falls, and starts from that of the plain ranking. (Schultheis, Wydmuch, Kotłowski, Babbar
and Dembczyński, "Generalized test utilities for long-tail performance in extreme multi-label classification", NeurIPS
2023, who approximate the expectation of a ratio by the ratio of expectations, as here.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.interrupts import raise_if_interrupted
from tagwise.kernels.compiled import compiled
from tagwise.kernels.top_k import keep
from tagwise.metrics.propensity import inverse_propensity_of_counts

__all__ = ["PURPOSES", "LabelCounts", "choose_labels", "needs_all_rows"]

PURPOSES = ("precision", "recall", "psp", "macro_f1")
"""Metrics that labels can be chosen for."""

# Passes over the rows; the third changes little.
_MOST_SWEEPS = 20
# The rows of a label are taken to have the usual number of other labels in so many rows more.
_SHRINKAGE = 20.0


class LabelCounts(NamedTuple):
    """Counts of labels in the training rows."""

    rows: np.ndarray
    """(L,): rows with each label."""
    n_rows: int
    """Number of training rows."""
    pairs: sp.csr_matrix | None = None
    """CSR (L, L): rows with labels j and t, for j < t; None if not counted."""

    def weights(self, purpose: str) -> np.ndarray:
        """Worth of finding each label (L,), for purposes that are a sum over rows.

        InvalidInputError for propensities of fewer than 3 rows.
        """
        if purpose == "psp":
            return inverse_propensity_of_counts(self.rows, self.n_rows)
        if purpose == "recall" and self.pairs is not None:
            others = np.asarray(self.pairs.sum(axis=0)).ravel() + np.asarray(self.pairs.sum(axis=1)).ravel()
            usual = others.sum() / max(1, self.rows.sum())
            return 1 / (1 + (others + _SHRINKAGE * usual) / (self.rows + _SHRINKAGE))
        return np.ones(len(self.rows))


def needs_all_rows(purpose: str | None) -> bool:
    """Whether the labels chosen for a row depend on the other rows."""
    return purpose == "macro_f1"


def choose_labels(
    labels: np.ndarray, probabilities: np.ndarray, k: int, purpose: str, counts: LabelCounts
) -> np.ndarray:
    """The k labels of each row that serve a purpose best, among candidates.

    Parameters
    ----------
    labels : int array (n, M)
        Candidates of each row, M ≥ k, best first, −1 for none.
    probabilities : array (n, M)
        In [0, 1]; ignored where the label is −1. Labels that are not listed are taken to have probability 0.
    k : int
    purpose : str
        One of :data:`PURPOSES`.
    counts : LabelCounts

    Returns
    -------
    int array (n, k)
        Columns of ``labels`` in increasing order, so that the chosen labels keep their order. Of equally good
        candidates the first are chosen; columns without a label only where a row has fewer than k.

    Notes
    -----
    Time O(n·M log M), for ``"macro_f1"`` O(n·M·k) at worst and O(n·M) usually for each of at most 20 sweeps, usually
    ten. Memory O(n·M + L). Deterministic; for ``"macro_f1"`` the result depends on all rows and on their order.
    """
    values = np.where(labels >= 0, probabilities, 0.0).astype(np.float64, copy=False)
    if purpose == "macro_f1":
        return _ascend(labels, values, k, len(counts.rows))
    gains = np.where(labels >= 0, values * counts.weights(purpose)[labels], -1.0)
    return np.sort(np.argsort(-gains, axis=1, kind="stable")[:, :k], axis=1)


def _ascend(labels: np.ndarray, probabilities: np.ndarray, k: int, n_labels: int) -> np.ndarray:
    """Block coordinate ascent of the expected macro-F1 from the first k columns."""
    chosen = np.tile(np.arange(k), (len(labels), 1))
    expected = _sums(labels, probabilities, n_labels)
    for _ in range(_MOST_SWEEPS):
        raise_if_interrupted()
        # Summed anew, so that rounding errors do not add up over the sweeps.
        names = np.take_along_axis(labels, chosen, axis=1)
        found = _sums(names, np.take_along_axis(probabilities, chosen, axis=1), n_labels)
        picked = _sums(names, np.ones(names.shape), n_labels)
        if not _sweep(labels, probabilities, expected, found, picked, chosen):
            break
    return chosen


def _sums(labels: np.ndarray, values: np.ndarray, n_labels: int) -> np.ndarray:
    """Sum of ``values`` per label, float64 (L,)."""
    real = labels >= 0
    return np.bincount(labels[real], weights=values[real], minlength=n_labels)


@compiled()
def _sweep(
    labels: np.ndarray,
    probabilities: np.ndarray,
    expected: np.ndarray,
    found: np.ndarray,
    picked: np.ndarray,
    chosen: np.ndarray,
) -> int:
    """Let each row choose again, given all others; returns the number of rows changed.

    Per label, Σ_i p_ij is ``expected``, Σ_i a_ij p_ij ``found`` and Σ_i a_ij ``picked``.
    """
    k = chosen.shape[1]
    gains, best = np.empty(k), np.empty(k, dtype=np.int64)
    n_changed = 0
    for row in range(labels.shape[0]):
        for place in chosen[row]:
            label = labels[row, place]
            if label >= 0:
                found[label] -= probabilities[row, place]
                picked[label] -= 1
        gains[:] = -np.inf
        best[:] = -1
        for place in range(labels.shape[1]):
            label = labels[row, place]
            gain = -np.inf
            if label >= 0:
                size, p = picked[label] + expected[label], probabilities[row, place]
                # Nothing expected, nothing picked: the label's F1 is 0 without it.
                before = found[label] / size if size > 0 else 0.0
                gain = (found[label] + p) / (size + 1) - before
            keep(gains, best, gain, place)
        best.sort()
        changed = False
        for rank in range(k):
            place = best[rank]
            changed |= place != chosen[row, rank]
            chosen[row, rank] = place
            label = labels[row, place]
            if label >= 0:
                found[label] += probabilities[row, place]
                picked[label] += 1
        n_changed += changed
    return n_changed
