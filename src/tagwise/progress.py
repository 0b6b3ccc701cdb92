"""Progress reports and callbacks: the history of a fit, and a bar or plain lines."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from tagwise.interrupts import interruptible, raise_if_interrupted

if TYPE_CHECKING:  # the command line shows its help without numpy
    from tagwise.fields import Fields

__all__ = ["Callback", "FitProgress", "Journal", "ProgressBar", "counted", "echo_err", "visible"]

# Where there is no terminal, the first steps get a line each, and all others together about so many; after so many
# seconds without one, the next step gets one too.
_FIRST_LINES, _OTHER_LINES, _QUIET_SECONDS = 5, 20, 10.0

# Control characters, line and paragraph separators, embeddings, overrides and isolates of the direction of writing, and
# halves of characters beyond 16 bits.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}

Callback = Callable[[int, dict[str, Any]], bool | None]
"""``callback(iteration, info)``: called after every iteration (from 1) with ``objective``, ``seconds`` and whatever
else the model reports. Returning True stops the fit; the model keeps what it has by then."""


class Journal(Protocol):
    """Keeps what a fit has learnt, so that a later run can resume it: all that progress knows of checkpoints."""

    folder: Any
    kept: dict[str, Any]
    """The state of an earlier run, by name; empty if there is nothing to resume."""
    history: list[dict[str, Any]]
    excused: BaseException | None
    """An error of the user's own callback, which says nothing about the state."""

    def save(self, kept: dict[str, Any], history: list[dict[str, Any]], *, now: bool = False) -> None:
        """Write what has been learnt, if it is time to, or ``now``."""

    def refusing_misfits(self) -> AbstractContextManager[None]:
        """Take errors of content that this fit cannot have written for what they are."""


def counted(number: int, noun: str) -> str:
    """A number with what it counts: "1 row", "2,000 rows"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def visible(text: str, keep: str = "") -> str:
    r"""Text as it is shown to people: what could move the cursor, end a line or reorder what follows is escaped.

    A tag or the name of a file may come from anyone. Such characters, other than those to ``keep``, become the escapes
    of JSON (``\n``, ``\t``, ``\u001b``, ``\u202e``), so JSON with them means the same. All others stay as they are.
    """
    return _UNSEEN.sub(
        lambda found: found[0] if found[0] in keep else _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}", text
    )


def echo_err(message: str) -> None:
    """Print a line on standard error; if that cannot be written, work continues without it."""
    # A service may run without one. Not by click.echo, which writes past the stream that a progress bar puts in place
    # of standard error: the sentence would end up in the middle of the bar.
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(visible(message, keep="\n") + "\n")


def _compiling() -> str:
    compiled = sys.modules.get("tagwise.kernels.compiled")  # else nothing is: it is not imported for that
    return f"compiling: {compiled.n_compiled()} functions" if compiled is not None and compiled.is_compiling() else ""


class ProgressBar:
    """A bar on standard error where that is ``wanted`` and a terminal, nothing elsewhere; use as a context manager.

    ``total`` is the end in any unit, None where :meth:`at` will tell. With ``steps`` it shows the number of steps done
    and stays on the screen at the end.
    """

    def __init__(self, description: str, total: float | None, *, wanted: bool = True, steps: bool = False) -> None:
        self._description, self._total, self._wanted, self._steps = description, total, wanted, steps
        self._bar: Any = None
        self._task: Any = None

    @property
    def shown(self) -> bool:
        """Whether a bar is shown."""
        return self._bar is not None

    def __enter__(self) -> ProgressBar:
        if self._wanted and sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
            from rich.text import Text

            class Compiling(TextColumn):
                """Number of functions compiled so far, while one is."""

                def render(self, task: Any) -> Text:
                    return Text(_compiling(), style="dim")

            self._bar = Progress(
                TextColumn("{task.description}", markup=False),  # names of files may hold brackets
                BarColumn(),
                *([MofNCompleteColumn()] if self._steps else []),
                TextColumn("{task.fields[note]}", markup=False),
                Compiling(""),
                TimeElapsedColumn(),
                console=Console(stderr=True, highlight=False),
                transient=not self._steps,
            )
            self._bar.start()
            self._task = self._bar.add_task(visible(self._description), total=self._total, note="")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def at(self, completed: float | None = None, note: str | None = None, *, total: float | None = None) -> None:
        """Move the bar, change the note beside it, or set its end; None leaves each as it is."""
        if self._bar is not None:
            fields = {} if note is None else {"note": visible(note)}
            self._bar.update(self._task, completed=completed, total=total, **fields)


class FitProgress:
    """Collects the history of a fit and shows it.

    With ``verbose`` a terminal gets one bar with objective and seconds, any other stream a line per iteration, or, of
    more than 20, for some of them; both on standard error. ``steps`` is what iterations are called there.
    Use as a context manager; call :meth:`step` once per iteration. A fit that can be resumed begins with
    :meth:`resume`, and calls :meth:`keep` before each step; the ``journal``, if there is one, writes what is kept.

    ``history`` has a dict per iteration (``iteration``, ``objective``, ``seconds`` since the start of the fit, …);
    ``stopped`` says whether the callback asked to stop, ``resumed`` whether the fit continues an earlier run.
    """

    def __init__(
        self,
        name: str,
        total: int,
        *,
        steps: str = "iteration",
        verbose: int = 0,
        callback: Callback | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.name, self.total, self.verbose, self._steps = name, total, verbose, steps
        self.callback, self.journal = callback, journal
        self.kept: dict[str, Any] = {} if journal is None else dict(journal.kept)
        self.resumed, self.stopped = bool(self.kept), False
        self.history: list[dict[str, Any]] = list(journal.history) if journal is not None and self.resumed else []
        self._start = time.perf_counter() - (self.history[-1]["seconds"] if self.history else 0.0)
        self._last_shown, self._shown_at = len(self.history), 0.0
        self._bar = ProgressBar(f"fitting {name}, {steps}", total, wanted=bool(verbose), steps=True)

    def __enter__(self) -> FitProgress:
        self._bar.__enter__()
        if self.journal is not None and self.resumed:
            done = f"{len(self.history)} of {counted(self.total, self._steps)} done"
            self.note(f"resumes from the checkpoint in {self.journal.folder}, {done}")
            self._bar.at(len(self.history))
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:  # a fit that converged early has done all there was to do
            self._bar.at(len(self.history), total=len(self.history))
        if self.verbose and self.history:
            self._show(self.history[-1], last=True)
        self._bar.__exit__()

    def step(self, objective: float, **more: Any) -> bool:
        """Record one finished iteration; returns whether the fit should stop."""
        iteration = len(self.history) + 1
        seconds = time.perf_counter() - self._start
        info = {"iteration": iteration, "objective": float(objective), "seconds": seconds, **more}
        self.history.append(info)
        if self.verbose:
            self._show(info)
        if self.journal is not None and self.kept:
            self.journal.save(self.kept, self.history)
        if self.callback is not None:
            try:
                with interruptible():
                    self.stopped = bool(self.callback(iteration, dict(info))) or self.stopped
            except Exception as error:
                if self.journal is not None:
                    self.journal.excused = error
                raise
        raise_if_interrupted()
        return self.stopped

    def keep(self, *drop: str, now: bool = False, **state: Any) -> None:
        """Add arrays and plain values to what has been learnt so far, without those to ``drop``.

        ``now`` writes them at once. What is kept at a :meth:`step` must be all that the next iteration depends on.
        """
        for name in drop:
            self.kept.pop(name, None)
        self.kept |= state
        if now and self.journal is not None:
            self.journal.save(self.kept, self.history, now=True)

    def resume(
        self, fields: Fields, dtype: Any, kept: dict[str, Any] | None = None, **sizes: int
    ) -> dict[str, Any] | None:
        """The state of an earlier run in these fields, or None if there is nothing to resume.

        ``kept`` is where to look: an item of ``self.kept`` rather than that itself.

        Raises
        ------
        ModelFormatError
            These arrays do not fit together, or not this fit: its floating type ``dtype`` or ``sizes`` of axes.
        """
        kept = self.kept if kept is None else kept
        found = {name: kept[name] for name in fields if name in kept}
        if self.journal is None or not found:
            return None
        with self.journal.refusing_misfits():
            fields.check(found, sizes, dtype)
        return found

    def note(self, text: str) -> None:
        """Show what is being done between iterations; not part of the history."""
        if not self.verbose:
            return
        if self._bar.shown:
            self._bar.at(note=text)
        else:
            echo_err(f"{self.name}: {text}")

    def _show(self, info: dict[str, Any], *, last: bool = False) -> None:
        note, number = f"objective {info['objective']:.6g}", info["iteration"]
        if self._bar.shown:
            self._bar.at(number, note, total=None if last else self.total)
            return
        every, seconds = -(-self.total // _OTHER_LINES), info["seconds"]
        due = number <= _FIRST_LINES or number % every == 0 or seconds - self._shown_at >= _QUIET_SECONDS
        if number > self._last_shown and (due or last):
            self._last_shown, self._shown_at = number, seconds
            echo_err(f"{self.name}: {self._steps} {number}/{self.total}, {note}, {seconds:.1f} s")
