"""What a fit tells while it runs: a callback, the kept history, and a bar or plain lines for people."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tagwise.persistence.checkpoints import FitState, OpenCheckpoint, SavedState

__all__ = ["Callback", "FitProgress"]

Callback = Callable[[int, dict[str, Any]], bool | None]
"""``callback(iteration, info)``: called after every iteration (from 1) with ``objective``, ``seconds`` and whatever
else the model reports. Returning True stops the fit; the model keeps what it has by then."""

State = TypeVar("State")


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
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> FitProgress:
        if self.verbose and sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task(f"fitting {self.name}", total=self.total, note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            if error is None:  # a fit that converged early has done all that there was to do
                self._bar.update(self._task, completed=len(self.history), total=len(self.history))
            self._bar.stop()
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
        if self._bar is not None:
            self._bar.update(self._task, completed=len(self.history))

    def note(self, text: str) -> None:
        """Show what is being done between iterations; not part of the history."""
        if not self.verbose:
            return
        if self._bar is not None:
            self._bar.update(self._task, note=text)
        elif sys.stderr is not None:
            sys.stderr.write(f"{self.name}: {text}\n")

    def _show(self, info: dict[str, Any]) -> None:
        note = f"objective {info['objective']:.6g}"
        if self._bar is not None:
            self._bar.update(self._task, completed=info["iteration"], total=self.total, note=note)
        elif sys.stderr is not None:  # a service may run without one
            line = f"{self.name}: iteration {info['iteration']}/{self.total}, {note}, {info['seconds']:.1f} s"
            sys.stderr.write(line + "\n")
