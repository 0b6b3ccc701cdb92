"""Ctrl-C: held back while tagwise works, and raised where nothing is half done.

Python runs the handler of a signal in the main thread, between any two of its steps. There are steps at which an
exception must not come: while numba makes Python objects of a kernel's results it becomes a ``SystemError``; while
llvmlite holds its lock, nobody releases that again; while threads are waited for, they are left alone with arrays that
the caller believes to be free. So a call of a model holds interrupts back (:class:`deferred_interrupts`): the handler
only takes note, and the interrupt is raised at the next safe point (:func:`raise_if_interrupted`), which are between
chunks of rows, between iterations, and between two passes of the compiler. The alternative, compiled code on other
threads while the main thread waits, would need the same safe points to stop those threads, and every answer to a single
row would take the time of handing it over.

Where the user's own code runs within a call, interrupts are raised at once (:func:`interruptible`). Outside the main
thread Python runs no handlers, and all of this does nothing. A handler of the user's own is called at the safe point,
and decides; ``SIG_IGN`` and ``SIG_DFL`` stay as they are.
"""

from __future__ import annotations

import os
import threading
from _signal import SIGINT, default_int_handler, getsignal, signal  # plain numbers: signal's enums take 10 µs per call
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from inspect import currentframe
from typing import Any

__all__ = ["current_call", "deferred_interrupts", "interruptible", "raise_if_interrupted", "working_for"]


class deferred_interrupts(ContextDecorator):
    """Context or decorator: interrupts of the main thread wait for a safe point or the end; nested ones do nothing."""

    def __init__(self) -> None:
        self.pending = False
        self._previous: Callable[..., Any] | None = None

    def _recreate_cm(self) -> deferred_interrupts:
        return deferred_interrupts()  # one for each call of a decorated function

    def __enter__(self) -> None:
        if _thread.call is None:
            handler = getsignal(SIGINT)
            if callable(handler):
                self._begin(handler)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._previous is None:
            return
        self._end()
        # An error in whose shadow an interrupt is waiting may be its consequence: Ctrl-C reaches other processes too.
        if self.pending and not isinstance(error, KeyboardInterrupt):
            self.deliver()

    def _begin(self, handler: Callable[..., Any]) -> None:
        global _holding
        self._previous = handler
        try:
            signal(SIGINT, self._note)
        except ValueError:  # not the main thread, which alone handles signals
            self._previous = None
            return
        _thread.call = _holding = self

    def _end(self) -> None:
        global _holding
        _thread.call = _holding = None
        signal(SIGINT, self._previous)

    def _note(self, number: int, frame: object) -> None:
        self.pending = True

    def deliver(self) -> None:
        """Raise the interrupt, or ask the handler that the user has set."""
        if self._previous is default_int_handler:
            raise KeyboardInterrupt  # and stays pending: all threads of the call must end
        if threading.current_thread() is threading.main_thread() and self._previous is not None:
            self.pending = False
            self._previous(SIGINT, currentframe())


class _Thread(threading.local):
    call: deferred_interrupts | None = None
    """The call that this thread works for, in the main thread or for it."""


_thread = _Thread()
_holding: deferred_interrupts | None = None


def raise_if_interrupted() -> None:
    """Safe point: raise an interrupt that came meanwhile. Also ends work that other threads do for the main one."""
    call = _thread.call
    if call is not None and call.pending:
        call.deliver()


@contextmanager
def interruptible() -> Iterator[None]:
    """Within a call that defers interrupts: raise them at once, for code of the user's own."""
    call = _thread.call
    if call is None or call is not _holding or threading.current_thread() is not threading.main_thread():
        yield
        return
    raise_if_interrupted()
    call._end()
    try:
        yield
    finally:
        handler = getsignal(SIGINT)  # the user's code may have set another one
        call._previous = None
        if callable(handler):
            call._begin(handler)


def current_call() -> deferred_interrupts | None:
    """The call that this thread works for, to be handed to other threads that take part of the work."""
    return _thread.call


@contextmanager
def working_for(call: deferred_interrupts | None) -> Iterator[None]:
    """Context of a thread that works for another one's call: it stops where that call is interrupted."""
    before, _thread.call = _thread.call, call
    try:
        yield
    finally:
        _thread.call = before


def _forget_in_child() -> None:
    """A forked child does not wait for the call that was running: its handler is the user's again."""
    if _holding is not None:
        _holding._end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
