"""Where a cascade's fit spends its time and has its peak of memory: stage by stage, from the same run as the total."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any

from memory import forget_peak, peak_bytes

# Name, module, and what is called there. What a stage calls is its own, whatever it is: the outermost counts.
STAGES = (
    ("proposer, XᵀX", "tagwise.solvers.support", "SupportFeatures.build"),
    ("proposer, low rank", "tagwise.models.reml.reml", "REML._start"),
    ("proposer, low rank", "tagwise.models.leml.steps", "Alternation.step_features"),
    ("proposer, low rank", "tagwise.models.leml.steps", "Alternation.step_labels"),
    ("proposer, supports", "tagwise.solvers.support", "SupportRidge.solve"),
    ("hard negatives", "tagwise.models.cascade.ranker", "wrong_proposals"),
    ("rankers", "tagwise.models.cascade.cascade", "learn_rankers"),
    ("prototypes", "tagwise.models.cascade.prototype", "label_prototypes"),
    ("co-occurrence", "tagwise.models.cascade.cooccurrence", "cooccurrence_counts"),
    ("fusion, opinions", "tagwise.models.cascade.cascade", "Cascade._judged"),
    ("fusion, regressions", "tagwise.models.cascade.cascade", "learn_fusion"),
)
# All that is in none of them.
ELSEWHERE = "elsewhere"


class StageClock:
    """Wall seconds, CPU seconds and peak of each stage while a block runs, and of all of it."""

    def __init__(self) -> None:
        self.stages: dict[str, dict[str, float]] = {}
        self.total: dict[str, float] = {}
        self._inside = False
        self._peak = 0
        # What the watching itself takes, which is nobody's.
        self._own = {"seconds": 0.0, "cpu_seconds": 0.0}

    def measure(self, function: Callable[[], Any]) -> Any:
        """Run a function with all stages watched; the peaks are bytes beyond what is resident before it."""
        self._before = forget_peak()
        with _in_place_of_stages(self._watched):
            start, cpu = time.perf_counter(), time.process_time()
            value = function()
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        self._note_peak()
        found = {"seconds": seconds - self._own["seconds"], "cpu_seconds": cpu - self._own["cpu_seconds"]}
        inside = {key: sum(one[key] for one in self.stages.values()) for key in found}
        self.stages[ELSEWHERE] = {key: found[key] - inside[key] for key in found}
        self.total = {**found, "peak_bytes": self._peak - self._before}
        return value

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            if self._inside:
                return function(*arguments, **named)
            self._inside = True
            start, cpu = time.perf_counter(), time.process_time()
            self._note_peak()
            forget_peak()
            self._own["seconds"] += time.perf_counter() - start
            self._own["cpu_seconds"] += time.process_time() - cpu
            start, cpu = time.perf_counter(), time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                one = self.stages.setdefault(name, {"seconds": 0.0, "cpu_seconds": 0.0, "peak_bytes": 0})
                one["seconds"] += time.perf_counter() - start
                one["cpu_seconds"] += time.process_time() - cpu
                one["peak_bytes"] = max(one["peak_bytes"], self._note_peak() - self._before)
                self._inside = False

        return timed

    def _note_peak(self) -> int:
        """The kernel's peak since it was last forgotten, which the peak of all takes in."""
        peak = peak_bytes()
        self._peak = max(self._peak, peak)
        return peak


@contextmanager
def _in_place_of_stages(watched: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Put what watches a stage in its place, for a while."""
    replaced = []
    for name, module, path in STAGES:
        *owners, last = path.split(".")
        owner: Any = import_module(module)
        for part in owners:
            owner = getattr(owner, part)
        stored = vars(owner)[last]
        replaced.append((owner, last, stored))
        if isinstance(stored, classmethod):
            setattr(owner, last, staticmethod(watched(name, getattr(owner, last))))
        else:
            setattr(owner, last, watched(name, stored))
    try:
        yield
    finally:
        for owner, last, stored in replaced:
            setattr(owner, last, stored)
