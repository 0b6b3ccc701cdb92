"""Executors of the blocks of a fit: on threads of this process, or on a Dask cluster (:mod:`tagwise.distributed`)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tagwise.parallel import even_chunks

try:
    import fcntl
except ImportError:  # Windows: processes fill an array side by side, with equal numbers
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "Block",
    "Executor",
    "Threads",
    "blocks_of_work",
    "current_executor",
    "filled_together",
    "running_on",
    "total",
]

Block = tuple[int, int]
"""Labels, or rows, ``start`` to ``stop``."""


class Executor(Protocol):
    """Runs a function over blocks of labels or shards of rows.

    A function gets a block and what all blocks share, and returns arrays: it is pure, so that it can run anywhere and
    again. What is shared travels once to each machine.
    """

    n_blocks: int
    """Number of blocks that a step is divided into: 1 where threads of one process share all memory."""

    def share(self, value: Any) -> Any:
        """A handle of a value for ``common`` arguments; it stays valid until the fit ends."""
        ...

    def keep(self, function: Callable[..., Any], blocks: Sequence[Any], *common: Any) -> list[Any]:
        """A handle of each result of :meth:`stream`, which stays where it was made."""
        ...

    def value(self, handle: Any) -> Any:
        """The value of a handle, here."""
        ...

    def place(self) -> str | None:
        """Name of a new array that the processes of each machine fill together; None for one process."""
        ...

    def stream(self, function: Callable[..., Any], blocks: Sequence[Any], *common: Any) -> Iterator[Any]:
        """``function(block, *common)`` of every block, in order, each result when it is there."""
        ...

    def map(self, function: Callable[..., Any], blocks: Sequence[Any], *common: Any) -> list[Any]:
        """All results of :meth:`stream`."""
        return list(self.stream(function, blocks, *common))

    def sum(self, function: Callable[..., Any], blocks: Sequence[Any], *common: Any) -> Any:
        """The sum of all results, added up in their order; of tuples, item by item."""
        return total(self.stream(function, blocks, *common))


class Threads(Executor):
    """Threads of one process: one block, whose compiled loops divide their work (:mod:`tagwise.parallel`)."""

    n_blocks = 1

    def share(self, value: Any) -> Any:
        """The value itself."""
        return value

    keep = Executor.map

    def value(self, handle: Any) -> Any:
        """The handle, which is the value."""
        return handle

    def place(self) -> None:
        """None."""

    def stream(self, function: Callable[..., Any], blocks: Sequence[Any], *common: Any) -> Iterator[Any]:
        """Each block when its result is asked for."""
        for block in blocks:
            yield function(block, *common)


_current: ContextVar[Executor] = ContextVar("executor")


def current_executor() -> Executor:
    """The executor of the fit that is running: threads, unless :func:`running_on` says otherwise."""
    return _current.get(_THREADS)


@contextmanager
def running_on(executor: Executor) -> Iterator[None]:
    """Run the blocks of all fits within on an executor."""
    token = _current.set(executor)
    try:
        yield
    finally:
        _current.reset(token)


_THREADS = Threads()


def total(parts: Iterable[Any]) -> Any:
    """The sum of arrays, sparse matrices or numbers, in their order; of tuples, item by item."""
    return reduce(_plus, parts)


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, tuple):
        return tuple(map(_plus, left, right))
    return left + right


def filled_together(
    place: str, size: int, dtype: Any, chunks: Sequence[Block], fill: Callable[[np.ndarray, Block], Any]
) -> np.ndarray:
    """An array in a file of this machine that all its processes which ask for it fill, each other chunks.

    A chunk of a process that dies is filled by another: the lock goes with the process.
    """
    path = Path(tempfile.gettempdir(), place)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file, open(path.with_suffix(".done"), "a+b") as marks:
        file.truncate(max(1, size) * np.dtype(dtype).itemsize)
        marks.truncate(len(chunks) + 1)
        array, done = np.memmap(file, dtype, "r+", shape=(size,)), np.memmap(marks, np.uint8, "r+")
        for wait in (False, True):  # first free chunks, then those of others, which are usually done
            for number in np.flatnonzero(done[:-1] == 0).tolist():
                with suppress(BlockingIOError):
                    if fcntl is not None:
                        fcntl.lockf(marks, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, number)
                    if not done[number]:
                        fill(array, chunks[number])
                        done[number] = 1
                    if fcntl is not None:
                        fcntl.lockf(marks, fcntl.LOCK_UN, 1, number)
    return array.view(np.ndarray)


def blocks_of_work(work: np.ndarray, n_blocks: int) -> list[Block]:
    """Borders that cut items into at most ``n_blocks`` runs of about equal ``work``, none of them empty."""
    if n_blocks <= 1 or len(work) <= 1:
        return even_chunks(len(work), max(1, len(work)))
    done = np.cumsum(work + 1)
    borders = np.searchsorted(done, done[-1] * np.arange(1, n_blocks) / n_blocks)
    borders = np.unique(np.concatenate([[0], borders, [len(work)]]))
    return [(int(start), int(stop)) for start, stop in pairwise(borders)]
