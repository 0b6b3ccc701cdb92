"""LEML's rounds: what the next one depends on, when the last one has been, and all of it as a checkpoint's state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tagwise.kernels import FeatureMatrix
from tagwise.kernels.vectors import dot_all
from tagwise.models.leml.early_stopping import ValidationRows
from tagwise.models.leml.steps import Alternation, Factors

if TYPE_CHECKING:
    from tagwise.persistence.checkpoints import SavedState

__all__ = ["Rounds"]


@dataclass
class Rounds:
    """An alternation under way.

    Attributes
    ----------
    factors : Factors
    held : ValidationRows or None
        The rows that decide when to stop, with the best factors on them.
    first : float
        The fall of the objective that later ones are measured against: that of the first step in W.
    fall : float
        The last one.
    done : int
        Rounds so far.
    ended : bool
        Whether the last round met a stopping rule.
    """

    factors: Factors
    held: ValidationRows | None
    first: float = 0.0
    fall: float = 0.0
    done: int = 0
    ended: bool = False

    def run(
        self,
        alternation: Alternation,
        *,
        reg: float,
        tol: float,
        least: int,
        max_iter: int,
        report: Callable[..., bool],
    ) -> None:
        """Rounds until a stopping rule (after ``least`` rounds), ``max_iter`` or the report ends them."""
        factors, held = self.factors, self.held
        while not self.ended and self.done < max_iter:
            self.fall = alternation.step_features(factors)
            value = alternation.step_labels(factors)
            objective = value + 0.5 * reg * dot_all(factors.W, factors.W).item()
            more = {} if held is None else {"validation": held.score(factors)}
            self.first = self.first or self.fall
            self.done += 1
            small = self.fall <= tol * self.first and self.done >= least
            self.ended = small or self.fall <= 0 or (held is not None and held.exhausted)
            if report(objective, state=self, fall=self.fall, **more):
                break

    def best(self) -> tuple[Factors, int]:
        """The factors to keep and their round: the last, or with held-out rows the best on them."""
        if self.held is not None and self.held.best is not None:
            return self.held.best, self.held.best_round
        return self.factors, self.done

    # ------------------------------------------------------------------ checkpoint

    def arrays(self) -> dict[str, Any]:
        """W, H and b; with held-out rows those of the best round as well. A = XW is made again."""
        best = None if self.held is None else self.held.best
        return _arrays_of(self.factors) | ({} if best is None else _arrays_of(best, "best."))

    def values(self) -> dict[str, Any]:
        """Falls, rounds and, with held-out rows, the best score."""
        own = {"first": self.first, "fall": self.fall, "done": self.done, "ended": self.ended}
        held = self.held
        return own if held is None else own | {"best_score": held.best_score, "best_round": held.best_round}

    @classmethod
    def restored(
        cls,
        saved: SavedState,
        X: FeatureMatrix,
        held: ValidationRows | None,
        *,
        n_labels: int,
        rank: int,
        dtype: np.dtype,
        max_iter: int,
    ) -> Rounds:
        """The rounds as they were saved; ``held`` are the same rows, which have not seen any yet."""

        def factors(prefix: str = "") -> Factors:
            W = saved.dense(f"{prefix}W", (X.shape[1], rank), dtype)
            H = saved.dense(f"{prefix}H", (n_labels, rank), dtype)
            return Factors(W=W, A=X.matmul(W), H=H, b=saved.dense(f"{prefix}b", (n_labels,), np.float64))

        done = saved.count("done", 1, max_iter)
        if held is not None:
            held.go_on(factors("best."), saved.real("best_score"), saved.count("best_round", 1, done), done)
        first, ended = saved.real("first"), saved.flag("ended")
        if not first and not ended:
            raise ValueError("the first round lowered nothing, yet it was not the last")
        return cls(factors(), held, first, saved.real("fall"), done, ended)


def _arrays_of(factors: Factors, prefix: str = "") -> dict[str, Any]:
    return {f"{prefix}{name}": getattr(factors, name) for name in ("W", "H", "b")}
