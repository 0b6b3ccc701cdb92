"""The labels that binary relevance has solved so far: what its next batch adds to, and a checkpoint goes on from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tagwise.persistence.checkpoints import SavedState

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
class SolvedLabels:
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

    coef: np.ndarray
    intercept: np.ndarray
    objective: float = 0.0
    batches: int = 0
    unfinished: int = 0

    def add(self, ids: np.ndarray, batch: SolvedBatch, threshold: float) -> None:
        """One more batch; its scores are centred at the ``threshold`` of the loss."""
        self.coef[:, ids] = batch.coefficients
        self.intercept[ids] = batch.intercept - threshold
        self.objective += batch.objective
        self.batches += 1
        self.unfinished += not batch.converged

    # ------------------------------------------------------------------ checkpoint

    def arrays(self) -> dict[str, Any]:
        """Coefficients and intercepts."""
        return {"coef": self.coef, "intercept": self.intercept}

    def values(self) -> dict[str, Any]:
        """How far it is."""
        return {"objective": self.objective, "batches": self.batches, "unfinished": self.unfinished}

    def go_on(self, saved: SavedState, n_batches: int) -> SolvedLabels:
        """What began like this, as it was saved."""
        done = saved.count("batches", 1, n_batches)
        return SolvedLabels(
            saved.dense("coef", self.coef.shape, self.coef.dtype),
            saved.dense("intercept", self.intercept.shape, np.float64),
            saved.real("objective"),
            done,
            saved.count("unfinished", 0, done),
        )
