"""REML's rounds: what the next one depends on, and that as a checkpoint's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import CSRWithTranspose
from tagwise.models.leml.steps import Factors
from tagwise.models.reml.sparse_part import SparseStep
from tagwise.problems.labels import TrainingLabels

if TYPE_CHECKING:
    from tagwise.persistence.checkpoints import SavedState

__all__ = ["REMLRounds"]

# A fall below this share of the objective is rounding.
_ROUNDING = 1e-12


@dataclass
class REMLRounds:
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

    factors: Factors
    sparse: sp.csr_matrix | np.ndarray
    value: float
    first: float = 0.0
    fall: float = 0.0
    done: int = 0
    unsolved: int = 0
    converged: bool = False

    def add(self, step: SparseStep, value: float, tol: float) -> None:
        """One more round, at whose end the objective is ``value``."""
        self.fall = self.value - value
        self.first = self.first or self.fall
        self.sparse, self.value, self.unsolved = step.weights, value, step.unsolved
        self.done += 1
        self.converged = bool(self.fall <= max(tol * self.first, _ROUNDING * abs(value)))

    # ------------------------------------------------------------------ checkpoint

    def arrays(self) -> dict[str, Any]:
        """W, H, b and S; A = XW is made again."""
        factors = self.factors
        return {"W": factors.W, "H": factors.H, "b": factors.b, "S": self.sparse}

    def values(self) -> dict[str, Any]:
        """All the numbers."""
        names = ("value", "first", "fall", "done", "unsolved", "converged")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def restored(
        cls,
        saved: SavedState,
        X: CSRWithTranspose,
        labels: TrainingLabels,
        *,
        rank: int,
        support: int | None,
        max_iter: int,
    ) -> REMLRounds:
        """The rounds as they were saved; ``support`` is None where S is dense."""
        n_features, n_labels = X.shape[1], labels.shape[1]
        dtype = X.matrix.dtype
        W = saved.dense("W", (n_features, rank), dtype)
        H = saved.dense("H", (n_labels, rank), dtype)
        factors = Factors(W=W, A=X.matmul(W), H=H, b=saved.dense("b", (n_labels,), np.float64))
        sparse: sp.csr_matrix | np.ndarray
        if support is None:
            sparse = saved.dense("S", (n_features, n_labels), dtype)
        else:
            sparse = saved.sparse("S", (n_features, n_labels), dtype)
            _require_possible_supports(sparse, X, labels, support)
        return cls(
            factors,
            sparse,
            saved.real("value"),
            saved.real("first"),
            saved.real("fall"),
            done=saved.count("done", 1, max_iter),
            unsolved=saved.count("unsolved", 0, n_labels),
            converged=saved.flag("converged"),
        )


def _require_possible_supports(S: sp.csr_matrix, X: CSRWithTranspose, labels: TrainingLabels, support: int) -> None:
    """Raise ValueError for a label with more features than it can have chosen: its next system has no room for them."""
    entries = np.asarray((X.matrix != 0).sum(axis=1)).ravel()
    in_positives = (labels.positives.T != 0) @ entries
    if (np.bincount(S.indices, minlength=S.shape[1]) > np.minimum(in_positives, support)).any():
        raise ValueError("S has more entries in a column than the label can have features")
