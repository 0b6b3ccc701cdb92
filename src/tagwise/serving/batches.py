"""Requests that arrive together are answered together: one call of the model for all texts that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from tagwise.text.suggestion import Request

__all__ = ["LONG", "Batches", "BusyError"]

LONG = 1 << 14
"""Characters of a text that count as one text more, so that limits on the number of texts limit memory too."""

Answer = TypeVar("Answer")


class BusyError(Exception):
    """More waits than is allowed; the message says what."""


@dataclass(eq=False)
class _Waiting(Generic[Answer]):
    texts: Sequence[str]
    size: int
    request: Request
    answer: asyncio.Future[list[list[Answer]]]


class Batches(Generic[Answer]):
    """Gathers texts while the model answers others, and passes them on as soon as it is free.

    So a text that comes alone is answered at once, and the more come, the larger are the batches. ``answer(texts,
    request)`` is called in ``executor``, for at most ``most_texts`` at a time or those of one request, with the
    largest ``top`` that one of them asks for; each gets its own, or none after so many ``seconds``. Long texts count as
    several.
    """

    def __init__(
        self,
        answer: Callable[[list[str], Request], list[list[Answer]]],
        executor: Executor,
        *,
        most_texts: int = 256,
        most_waiting: int = 4096,
        seconds: float = 30.0,
    ) -> None:
        self._answer, self._executor = answer, executor
        self._most_texts, self._most_waiting, self._seconds = most_texts, most_waiting, seconds
        self._queue: list[_Waiting[Answer]] = []
        self._size = 0
        self._task: asyncio.Task[None] | None = None

    async def ask(self, texts: Sequence[str], request: Request) -> list[list[Answer]]:
        """The answer for each text; raises :class:`BusyError` where too many wait, TimeoutError where it comes late."""
        size = len(texts) + sum(map(len, texts)) // LONG
        if self._size and self._size + size > self._most_waiting:
            raise BusyError("Too many texts wait for their answers")
        loop = asyncio.get_running_loop()
        waiting: _Waiting[Answer] = _Waiting(texts, size, request, loop.create_future())
        self._queue.append(waiting)
        self._size += size
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        # A timer takes a fifth of the time of asyncio.wait_for, which makes a task.
        timer = loop.call_later(self._seconds, _settle, waiting.answer, asyncio.TimeoutError())
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
                texts = [text for one in batch for text in one.texts]
                request = replace(batch[0].request, top=max(one.request.top for one in batch))
                try:
                    found = await loop.run_in_executor(self._executor, self._answer, texts, request)
                except Exception as error:
                    for one in batch:
                        _settle(one.answer, error)
                    continue
                rows = iter(found)
                for one in batch:
                    _settle(one.answer, [next(rows)[: one.request.top] for _ in one.texts])
        finally:
            self._task = None

    def _next_batch(self) -> list[_Waiting[Answer]]:
        """The first that waits, and those behind it that can be answered with it; empty where none waits."""
        batch: list[_Waiting[Answer]] = []
        left: list[_Waiting[Answer]] = []
        size = 0
        for one in self._queue:
            if one.answer.done():  # its client has gone
                continue
            same = not batch or replace(one.request, top=batch[0].request.top) == batch[0].request
            if same and (not batch or size + one.size <= self._most_texts):
                batch.append(one)
                size += one.size
            else:
                left.append(one)
        self._queue = left
        return batch


def _settle(answer: asyncio.Future[list[list[Answer]]], found: list[list[Answer]] | Exception) -> None:
    """Give an answer, or the error, unless its client has gone."""
    if answer.done():
        return
    if isinstance(found, Exception):
        answer.set_exception(found)
    else:
        answer.set_result(found)
