"""Search over candidates by successive halving; with a single rung, plain search over a list."""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

__all__ = ["Outcome", "Rung", "SearchResult", "Trial", "search"]

C = TypeVar("C")


class Outcome(NamedTuple):
    """The result of ``evaluate``."""

    score: float | None  # higher is better; None if the candidate could not be evaluated, which ranks it last
    details: Any = None  # anything worth keeping: why it failed, a threshold that was found on the way, …


class Rung(NamedTuple):
    """Number of candidates to evaluate, and the budget (rows, iterations, …) of each."""

    n_candidates: int
    budget: Any


@dataclass(frozen=True)
class Trial(Generic[C]):
    """One evaluation of one candidate."""

    candidate: C
    position: int  # of the candidate in the list that was searched
    rung: int  # from 0
    budget: Any  # the rung's; None in a search without rungs
    score: float | None
    seconds: float  # what the evaluation took
    details: Any = None  # those of the Outcome


@dataclass(frozen=True)
class SearchResult(Generic[C]):
    """All trials in the order in which they were made, and those of the last rung, best first."""

    trials: list[Trial[C]]
    ranked: list[Trial[C]]

    @property
    def best(self) -> Trial[C]:
        """The winner; its score is None if no candidate of the last rung could be evaluated."""
        return self.ranked[0]


def search(
    candidates: Sequence[C],
    evaluate: Callable[[C, Any], Outcome],
    *,
    rungs: Sequence[Rung] | None = None,
    n_protected: int = 0,
    record: MutableMapping[tuple[int, int], Trial[C]] | None = None,
    callback: Callable[[Trial[C], int, int], None] | None = None,
) -> SearchResult[C]:
    """Evaluate candidates in order, and keep the best of each rung for the next one.

    Parameters
    ----------
    candidates : sequence
        A grid, or random draws. At least one.
    evaluate : callable(candidate, budget)
        Must not depend on which candidates came before, or a resumed search would end differently.
    rungs : sequence of Rung, optional
        One rung with all candidates and the budget None otherwise.
    n_protected : int
        The first so many candidates take part in every rung, in front of the others and not counted among them.
    record : mutable mapping from (rung, position) to trial, optional
        A trial that it holds is not evaluated again; new ones are added. One that writes to disk can be resumed.
    callback : callable(trial, done, total), optional
        After every trial, once it is recorded; also for trials that were found in the record.

    Notes
    -----
    Equal scores stay in the order in which they were evaluated: the earlier candidate wins. Successive halving is due
    to K. Jamieson, A. Talwalkar, Non-stochastic best arm identification and hyperparameter optimization, AISTATS 2016.
    """
    if rungs is None:
        rungs = [Rung(len(candidates), None)]
    record = {} if record is None else record
    total = sum(n_protected + min(rung.n_candidates, len(candidates) - n_protected) for rung in rungs)
    protected = list(range(n_protected))
    order = list(range(n_protected, len(candidates)))
    trials: list[Trial[C]] = []
    ranked: list[Trial[C]] = []
    for number, rung in enumerate(rungs):
        finished = []
        for position in protected + order[: rung.n_candidates]:
            trial = record.get((number, position))
            if trial is None:
                start = time.perf_counter()
                score, details = evaluate(candidates[position], rung.budget)
                seconds = time.perf_counter() - start
                trial = Trial(candidates[position], position, number, rung.budget, score, seconds, details)
                record[number, position] = trial
            finished.append(trial)
            trials.append(trial)
            if callback is not None:
                callback(trial, len(trials), total)
        # By falling score, failures last; a stable sort keeps the order of equal ones.
        ranked = sorted(finished, key=lambda trial: (trial.score is None, -(trial.score or 0.0)))
        order = [trial.position for trial in ranked if trial.position >= n_protected]
    return SearchResult(trials, ranked)
