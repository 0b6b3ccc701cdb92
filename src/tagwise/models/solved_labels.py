"""The labels that binary relevance has solved so far: what its next batch adds to, and a checkpoint keeps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tagwise.persistence.fit_state import State, array, count, real

__all__ = ["SolvedBatch", "SolvedLabels"]


@dataclass(frozen=True)
class SolvedBatch:
    """One batch: coefficients (d×B), intercepts (B), the sum of its objectives, and how the solver ended."""

    coefficients: np.ndarray
    intercept: np.ndarray
    objective: float
    converged: bool
    n_iter: int


@dataclass
class SolvedLabels(State):
    """All batches so far.

    Attributes
    ----------
    coef : array (d, L)
        0 for labels that are not solved yet.
    intercept : float64 array (L,)
    objective : float
        The sum over the solved labels.
    batches, unfinished : int
        How many there are, and how many of them the solver did not bring to its tolerance.
    """

    coef: np.ndarray = array("d", "L")
    intercept: np.ndarray = array("L", dtype=np.float64)
    objective: float = real(default=0.0)
    batches: int = count(1, "n_batches", default=0)
    unfinished: int = count(0, "batches", default=0)

    def add(self, ids: np.ndarray, batch: SolvedBatch, threshold: float) -> None:
        """One more batch; its scores are centred at the ``threshold`` of the loss."""
        self.coef[:, ids] = batch.coefficients
        self.intercept[ids] = batch.intercept - threshold
        self.objective += batch.objective
        self.batches += 1
        self.unfinished += not batch.converged
