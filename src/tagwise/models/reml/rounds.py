"""REML's rounds: what the next one depends on, and that as a checkpoint's state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import CSRWithTranspose
from tagwise.models.leml.steps import Factors
from tagwise.models.reml.sparse_part import SparseStep
from tagwise.persistence.fit_state import State, count, flag, matrix, nested, real
from tagwise.problems.labels import TrainingLabels

__all__ = ["REMLRounds", "require_possible_sparse_part"]

# A fall below this share of the objective is rounding.
_ROUNDING = 1e-12


@dataclass
class REMLRounds(State):
    """An alternation under way.

    Attributes
    ----------
    factors : Factors
        Without the offset ½ of a model without intercept.
    sparse : CSR or array (d, L)
        S of the last round; before the first one empty.
    value : float
        The objective, an eighth of equation 5.
    first, fall : float
        By how much the first and the last round lowered it.
    done : int
        Rounds so far.
    unsolved : int
        Labels whose S fell short of its tolerance in the last round.
    converged : bool
        Whether the last round met the stopping rule.
    """

    factors: Factors = nested(Factors)
    sparse: sp.csr_matrix | np.ndarray = matrix("d", "L")
    value: float = real()
    first: float = real(default=0.0)
    fall: float = real(default=0.0)
    done: int = count(1, "max_iter", default=0)
    unsolved: int = count(0, "L", default=0)
    converged: bool = flag(default=False)

    def add(self, step: SparseStep, value: float, tol: float) -> None:
        """One more round, at whose end the objective is ``value``."""
        self.fall = self.value - value
        self.first = self.first or self.fall
        self.sparse, self.value, self.unsolved = step.weights, value, step.unsolved
        self.done += 1
        self.converged = bool(self.fall <= max(tol * self.first, _ROUNDING * abs(value)))


def require_possible_sparse_part(
    S: sp.csr_matrix | np.ndarray, X: CSRWithTranspose, labels: TrainingLabels, support: int | None
) -> None:
    """Raise ValueError for an S of the wrong form (dense if ``support`` is None) or that no fit can have found.

    A label with more features than it can have chosen would have no room for them in its next system.
    """
    if isinstance(S, np.ndarray) != (support is None):
        raise ValueError(f"sparse must be a {'dense array' if support is None else 'CSR matrix'}")
    if isinstance(S, np.ndarray) or support is None:
        return
    entries = np.asarray((X.matrix != 0).sum(axis=1)).ravel()
    in_positives = (labels.positives.T != 0) @ entries
    if (np.bincount(S.indices, minlength=S.shape[1]) > np.minimum(in_positives, support)).any():
        raise ValueError("sparse has more entries in a column than the label can have features")
