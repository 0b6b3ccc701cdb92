"""Batching of concurrent requests: one call answers all waiting requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Batches", "BusyError"]

Key = TypeVar("Key")
Item = TypeVar("Item")
Answer = TypeVar("Answer")


class BusyError(Exception):
    """The limit of waiting items is exceeded; the message names it."""


@dataclass(eq=False)
class _Waiting(Generic[Key, Item, Answer]):
    key: Key
    items: Sequence[Item]
    size: int
    answer: asyncio.Future[list[Answer]]

    def settle(self, found: list[Answer] | Exception) -> None:
        """Give an answer, or the error, unless the client has gone."""
        if self.answer.done():
            return
        if isinstance(found, Exception):
            self.answer.set_exception(found)
        else:
            self.answer.set_result(found)


class Batches(Generic[Key, Item, Answer]):
    """Gathers items while others are answered, then passes on those of one key.

    So an item that comes alone is answered at once, and the more come, the larger are the batches. ``answer(key,
    items)`` is called in ``executor``, for items of a size of at most ``most`` together or those of one request. A
    request times out after ``seconds``.
    """

    def __init__(
        self,
        answer: Callable[[Key, list[Item]], list[Answer]],
        executor: Executor,
        *,
        most: int = 256,
        most_waiting: int = 4096,
        seconds: float = 30.0,
        busy: str = "Too many texts wait for their answers",
    ) -> None:
        self._answer, self._executor = answer, executor
        self._most, self._most_waiting, self._seconds, self._busy = most, most_waiting, seconds, busy
        self._queue: list[_Waiting[Key, Item, Answer]] = []
        self._size = 0
        self._task: asyncio.Task[None] | None = None

    async def ask(self, key: Key, items: Sequence[Item], size: int | None = None) -> list[Answer]:
        """The answer for each item; raises :class:`BusyError` if too many wait, TimeoutError if it takes too long."""
        size = len(items) if size is None else size
        if self._size and self._size + size > self._most_waiting:
            raise BusyError(self._busy)
        loop = asyncio.get_running_loop()
        waiting: _Waiting[Key, Item, Answer] = _Waiting(key, items, size, loop.create_future())
        self._queue.append(waiting)
        self._size += size
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        # A timer takes a fifth of the time of asyncio.wait_for, which makes a task.
        timer = loop.call_later(self._seconds, waiting.settle, asyncio.TimeoutError())
        try:
            return await waiting.answer
        finally:  # also where the one who asked has given up: then others have its place
            timer.cancel()
            self._size -= size

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)  # those that arrived in the same moment
        try:
            while batch := self._next_batch():
                items = [item for one in batch for item in one.items]
                try:
                    found = iter(await loop.run_in_executor(self._executor, self._answer, batch[0].key, items))
                except Exception as error:
                    for one in batch:
                        one.settle(error)
                else:
                    for one in batch:
                        one.settle([next(found) for _ in one.items])
        finally:
            self._task = None

    def _next_batch(self) -> list[_Waiting[Key, Item, Answer]]:
        """The first that waits, and those behind it that can be answered with it; empty where none waits."""
        batch: list[_Waiting[Key, Item, Answer]] = []
        left: list[_Waiting[Key, Item, Answer]] = []
        size = 0
        for one in self._queue:
            if one.answer.done():  # its client has gone
                continue
            if not batch or (one.key == batch[0].key and size + one.size <= self._most):
                batch.append(one)
                size += one.size
            else:
                left.append(one)
        self._queue = left
        return batch
