"""What a search has found so far, as one JSON file that is replaced in one step: a killed search goes on from it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tagwise.exceptions import InvalidInputError
from tagwise.persistence.atomic import atomic_write
from tagwise.persistence.fit_identity import FitIdentity

__all__ = ["FORMAT", "SearchState", "Trial"]

FORMAT = "tagwise tuning 1"


@dataclass(frozen=True)
class Trial:
    """One fit of a search.

    Attributes
    ----------
    rung : int
        From 0.
    rows : int
        Rows that it was fitted on.
    settings : dict
        What differs from the model's defaults; empty for the defaults themselves.
    score : float or None
        The metric on the held-out rows; None where the fit failed.
    seconds : float
        To fit and to rank the held-out rows.
    problem : str
        Why it failed, or what it warned of; else empty.
    """

    rung: int
    rows: int
    settings: dict[str, Any]
    score: float | None
    seconds: float
    problem: str = ""

    def as_values(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class SearchState:
    """The trials of a search, and the file that keeps them.

    Parameters
    ----------
    path : path or None
        None keeps them in memory only.
    identity : FitIdentity
        Model, search and data; a file of another search is refused, and left as it is.
    """

    def __init__(self, path: str | PathLike[str] | None, identity: FitIdentity) -> None:
        self.path = None if path is None else Path(path)
        self.identity = identity
        self.trials: list[Trial] = []
        if self.path is not None and self.path.exists():
            self.trials = self._read(self.path)
        self.resumed = len(self.trials)
        self._known = {self._key(trial.rung, trial.settings): trial for trial in self.trials}

    @staticmethod
    def _key(rung: int, settings: dict[str, Any]) -> str:
        return json.dumps([rung, settings], sort_keys=True)

    def find(self, rung: int, settings: dict[str, Any]) -> Trial | None:
        """The trial of some settings at a rung, if it was done already."""
        return self._known.get(self._key(rung, settings))

    def add(self, trial: Trial) -> None:
        """Keep a trial, on disk before this returns."""
        self.trials.append(trial)
        self._known[self._key(trial.rung, trial.settings)] = trial
        self.write(None)

    def write(self, result: dict[str, Any] | None) -> None:
        """Write the file; ``result`` is what the search came to, once it is over."""
        if self.path is None:
            return
        content = {
            "format": FORMAT,
            "finished": result is not None,
            "result": result,
            "search": self.identity.as_values(),
            "trials": [trial.as_values() for trial in self.trials],
        }
        page = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False).encode() + b"\n"
        atomic_write(self.path, lambda stream: stream.write(page))

    def _read(self, path: Path) -> list[Trial]:
        try:
            content = json.loads(path.read_bytes())
            if content["format"] != FORMAT:
                raise ValueError
            saved = FitIdentity.from_values(content["search"])
            trials = [_checked(Trial(**values)) for values in content["trials"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InvalidInputError(
                f"{path} exists and is no file of a search that tagwise wrote; name another file, or remove it."
            ) from None
        # As JSON has it: tuples of this run would differ from the lists of the file.
        mine = FitIdentity.from_values(json.loads(json.dumps(self.identity.as_values())))
        differences = mine.differences(saved)
        if differences:
            raise InvalidInputError(
                f"{path} holds another search: {differences[0]}. Name another file, remove that one to start anew, or "
                "repeat the command that made it."
            )
        return trials


def _checked(trial: Trial) -> Trial:
    numbers = isinstance(trial.rung, int) and isinstance(trial.rows, int) and isinstance(trial.seconds, (int, float))
    scored = trial.score is None or (isinstance(trial.score, float) and math.isfinite(trial.score))
    if not numbers or not scored or not isinstance(trial.settings, dict) or not isinstance(trial.problem, str):
        raise ValueError("not a trial")
    return trial
