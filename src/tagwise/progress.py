"""What people and callbacks are told while something runs: the history of a fit, and a bar or plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tagwise.persistence.checkpoints import FitState, OpenCheckpoint, SavedState

__all__ = ["Callback", "FitProgress", "ProgressBar", "counted"]

Callback = Callable[[int, dict[str, Any]], bool | None]
"""``callback(iteration, info)``: called after every iteration (from 1) with ``objective``, ``seconds`` and whatever
else the model reports. Returning True stops the fit; the model keeps what it has by then."""

State = TypeVar("State")


def counted(number: int, noun: str) -> str:
    """A number with what it counts: "1 row", "2,000 rows"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class ProgressBar:
    """A bar on standard error where that is a terminal, nothing elsewhere; use as a context manager.

    Parameters
    ----------
    description : str
    total : float or None
        The end, in any unit; None where :meth:`at` will tell.
    wanted : bool
        False shows nothing.
    steps : bool
        Show the number of steps done, and leave the bar on the screen at the end.
    """

    def __init__(self, description: str, total: float | None, *, wanted: bool = True, steps: bool = False) -> None:
        self._description, self._total, self._wanted, self._steps = description, total, wanted, steps
        self._bar: Any = None
        self._task: Any = None

    @property
    def shown(self) -> bool:
        """Whether there is a bar to see."""
        return self._bar is not None

    def __enter__(self) -> ProgressBar:
        if self._wanted and sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}", markup=False),  # names of files may hold brackets
                BarColumn(),
                *([MofNCompleteColumn()] if self._steps else []),
                TextColumn("{task.fields[note]}", markup=False),
                TimeElapsedColumn(),
                console=Console(stderr=True, highlight=False),
                transient=not self._steps,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._description, total=self._total, note="")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def at(self, completed: float | None = None, note: str | None = None, *, total: float | None = None) -> None:
        """Move the bar, change the note beside it, or set its end; None leaves each as it is."""
        if self._bar is not None:
            fields = {} if note is None else {"note": note}
            self._bar.update(self._task, completed=completed, total=total, **fields)


class FitProgress:
    """Collects the history of a fit and shows it.

    With ``verbose`` a terminal gets one bar with objective and seconds, any other stream a line per iteration, both on
    standard error. Use as a context manager; call :meth:`step` once per iteration. A checkpoint is written as the fit
    goes, and a fit that supports it asks :meth:`resume` where an earlier run stopped.

    Attributes
    ----------
    history : list of dict
        One entry per iteration: ``iteration``, ``objective``, ``seconds`` since the start of the fit, ….
    stopped : bool
        Whether the callback asked to stop.
    resumed : bool
        Whether the fit goes on from a checkpoint.
    """

    def __init__(
        self,
        name: str,
        total: int,
        *,
        verbose: int = 0,
        callback: Callback | None = None,
        checkpoint: OpenCheckpoint | None = None,
    ) -> None:
        self.name, self.total, self.verbose, self.callback = name, total, verbose, callback
        self.checkpoint = checkpoint
        self.resumed = False
        self.history: list[dict[str, Any]] = []
        self.stopped = False
        self._start = time.perf_counter()
        self._bar = ProgressBar(f"fitting {name}", total, wanted=bool(verbose), steps=True)

    def __enter__(self) -> FitProgress:
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:  # a fit that converged early has done all there was to do
            self._bar.at(len(self.history), total=len(self.history))
        self._bar.__exit__()
        if error is not None and self.checkpoint is not None:
            self.checkpoint.withdraw()

    def step(self, objective: float, *, state: FitState | None = None, **more: Any) -> bool:
        """Record one finished iteration; returns whether the fit should stop.

        ``state`` is all that the next iteration depends on, for the checkpoint; models that cannot go on have none.
        """
        iteration = len(self.history) + 1
        info = {
            "iteration": iteration,
            "objective": float(objective),
            "seconds": time.perf_counter() - self._start,
            **more,
        }
        self.history.append(info)
        if self.verbose:
            self._show(info)
        if state is not None and self.checkpoint is not None:
            self.checkpoint.after_round(self.history, state)
        if self.callback is not None and self.callback(iteration, dict(info)):
            self.stopped = True
        return self.stopped

    def finish_stage(self, stage: str, state: FitState) -> None:
        """Put what a stage of the fit has come to into the checkpoint, where it stays until the fit is over."""
        if self.checkpoint is not None:
            self.checkpoint.after_stage(stage, self.history, state)

    def resume(self, restore: Callable[[SavedState], State], stage: str = "rounds") -> State | None:
        """What ``restore`` makes of a stage in the checkpoint, or None where there is nothing to go on from.

        Raises
        ------
        ModelFormatError
            ``restore`` found that the state cannot be one of this fit.
        """
        saved = None if self.checkpoint is None else self.checkpoint.saved(stage)
        if self.checkpoint is None or saved is None:
            return None
        try:
            state = restore(saved)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise self.checkpoint.unusable(error) from None
        if not self.resumed:
            self.resumed = True
            self._go_on(self.checkpoint)
        return state

    def _go_on(self, checkpoint: OpenCheckpoint) -> None:
        """Take over the history, and count seconds on from its end."""
        self.history += checkpoint.history
        if self.history:
            self._start -= self.history[-1]["seconds"]
        self.note(
            f"goes on from the checkpoint in {checkpoint.folder}, {len(self.history)} of {self.total} rounds done"
        )
        self._bar.at(len(self.history))

    def note(self, text: str) -> None:
        """Show what is being done between iterations; not part of the history."""
        if not self.verbose:
            return
        if self._bar.shown:
            self._bar.at(note=text)
        elif sys.stderr is not None:
            sys.stderr.write(f"{self.name}: {text}\n")

    def _show(self, info: dict[str, Any]) -> None:
        note = f"objective {info['objective']:.6g}"
        if self._bar.shown:
            self._bar.at(info["iteration"], note, total=self.total)
        elif sys.stderr is not None:  # a service may run without one
            line = f"{self.name}: iteration {info['iteration']}/{self.total}, {note}, {info['seconds']:.1f} s"
            sys.stderr.write(line + "\n")
