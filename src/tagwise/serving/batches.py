"""Requests that arrive together are answered together: one call of the model for all texts that wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

__all__ = ["LONG", "Batches", "BusyError", "Question"]

LONG = 1 << 14
"""Characters of a text that count as one text more."""

Answer = TypeVar("Answer")


class BusyError(Exception):
    """More waits than is allowed; the message says what."""


class Question(NamedTuple):
    """What is asked about texts; texts with equal questions, apart from ``top``, are answered together."""

    top: int = 5
    min_probability: float | None = None
    explain: int = 0


@dataclass(eq=False)
class _Waiting(Generic[Answer]):
    texts: Sequence[str]
    size: int
    question: Question
    answer: asyncio.Future[list[list[Answer]]]


def size_of(texts: Sequence[str]) -> int:
    """How many texts these count as: a long one as several, so that limits on their number limit memory too."""
    return len(texts) + sum(map(len, texts)) // LONG


class Batches(Generic[Answer]):
    """Gathers texts while the model answers others, and passes them on as soon as it is free.

    So a text that comes alone is answered at once, and the more come, the larger are the batches. ``answer(texts,
    question)`` is called in ``executor``, for at most ``most_texts`` at a time or those of one request, with the
    largest ``top`` that one of them asks for; each gets its own, or none after so many ``seconds``. Long texts count as
    several.
    """

    def __init__(
        self,
        answer: Callable[[list[str], Question], list[list[Answer]]],
        executor: Executor,
        *,
        most_texts: int = 256,
        most_waiting: int = 4096,
        seconds: float = 30.0,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._answer, self._executor, self._on_batch = answer, executor, on_batch
        self._most_texts, self._most_waiting, self._seconds = most_texts, most_waiting, seconds
        self._queue: deque[_Waiting[Answer]] = deque()
        self._waiting = 0
        self._task: asyncio.Task[None] | None = None

    async def ask(self, texts: Sequence[str], question: Question) -> list[list[Answer]]:
        """The answer for each text; raises :class:`BusyError` where too many wait, TimeoutError where it comes late."""
        size = size_of(texts)
        if self._waiting and self._waiting + size > self._most_waiting:
            raise BusyError("Too many texts wait for their answers")
        loop = asyncio.get_running_loop()
        waiting: _Waiting[Answer] = _Waiting(texts, size, question, loop.create_future())
        self._queue.append(waiting)
        self._waiting += size
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        # A timer takes a fifth of the time of asyncio.wait_for, which makes a task.
        timer = loop.call_later(self._seconds, _give_up, waiting.answer)
        try:
            return await waiting.answer
        finally:  # also where the one who asked has given up: then others have its place
            timer.cancel()
            self._waiting -= size

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)  # those that arrived in the same moment
        try:
            while self._queue:
                batch = self._next_batch()
                if not batch:
                    continue
                texts = [text for one in batch for text in one.texts]
                question = batch[0].question._replace(top=max(one.question.top for one in batch))
                self._on_batch(len(texts))
                try:
                    found = await loop.run_in_executor(self._executor, self._answer, texts, question)
                except Exception as error:
                    for one in batch:
                        if not one.answer.done():
                            one.answer.set_exception(error)
                    continue
                start = 0
                for one in batch:
                    stop = start + len(one.texts)
                    if not one.answer.done():  # else its client has gone
                        one.answer.set_result([row[: one.question.top] for row in found[start:stop]])
                    start = stop
        finally:
            self._task = None

    def _next_batch(self) -> list[_Waiting[Answer]]:
        """The first that waits, and those behind it that can be answered with it."""
        batch: list[_Waiting[Answer]] = []
        left: deque[_Waiting[Answer]] = deque()
        size = 0
        while self._queue:
            one = self._queue.popleft()
            if one.answer.done():  # its client has gone
                continue
            same = not batch or one.question._replace(top=0) == batch[0].question._replace(top=0)
            if same and (not batch or size + one.size <= self._most_texts):
                batch.append(one)
                size += one.size
            else:
                left.append(one)
        self._queue = left
        return batch


def _give_up(answer: asyncio.Future[list[list[Answer]]]) -> None:
    if not answer.done():
        answer.set_exception(asyncio.TimeoutError())
