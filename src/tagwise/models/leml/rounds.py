"""LEML's rounds: what the next one depends on, when the last one has been, and all of it as a checkpoint's state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tagwise.kernels.vectors import dot_all
from tagwise.models.leml.early_stopping import BestRound, ValidationRows
from tagwise.models.leml.steps import Alternation, Factors
from tagwise.persistence.fit_state import State, count, flag, nested, real, unsaved

__all__ = ["Rounds"]


@dataclass
class Rounds(State):
    """An alternation under way.

    Attributes
    ----------
    factors : Factors
    held : ValidationRows or None
        The rows that decide when to stop.
    first : float
        The fall of the objective that later ones are measured against: that of the first step in W.
    fall : float
        The last one.
    done : int
        Rounds so far.
    ended : bool
        Whether the last round met a stopping rule.
    best : BestRound or None
        The best round on the validation rows so far.
    """

    factors: Factors = nested(Factors)
    held: ValidationRows | None = unsaved()
    first: float = real(default=0.0)
    fall: float = real(default=0.0)
    done: int = count(1, "max_iter", default=0)
    ended: bool = flag(default=False)
    best: BestRound | None = nested(BestRound, optional=True)

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
            self.ended = small or self.fall <= 0 or (held is not None and self._exhausted(more["validation"], held))
            if report(objective, state=self, fall=self.fall, **more):
                break

    def _exhausted(self, score: float, held: ValidationRows) -> bool:
        """Keep this round if it is the best on the validation rows; whether ``patience`` rounds have not been."""
        if self.best is None or score > self.best.score:
            W, H, b = (getattr(self.factors, name).copy() for name in ("W", "H", "b"))
            self.best = BestRound(Factors(W, self.factors.A, H, b), score, self.done)
        return self.done - self.best.number >= held.patience

    def kept(self) -> tuple[Factors, int]:
        """The factors to keep and their round: the last, or the best on validation rows."""
        return (self.factors, self.done) if self.best is None else (self.best.factors, self.best.number)

    def check(self) -> None:
        """A checkpoint must not hold a fit that could neither end nor go on."""
        if not self.first and not self.ended:
            raise ValueError("the first round lowered nothing, yet it was not the last")
        if (self.best is None) != (self.held is None):
            raise ValueError("there is a best round if and only if there are validation rows")
