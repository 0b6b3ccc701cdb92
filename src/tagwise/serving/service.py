"""The parts that all interfaces of a server share: the taggers, the feedback, the queue and the counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any, TypeVar

from starlette.exceptions import HTTPException

from tagwise.data.feedback import ANSWERS
from tagwise.progress import counted
from tagwise.serving.feedback import FeedbackStore, Queued, Tally, read_queue
from tagwise.serving.monitoring import Monitoring
from tagwise.serving.options import ServingOptions
from tagwise.serving.taggers import ServedTagger

__all__ = ["Service"]

Found = TypeVar("Found")


class Service:
    """One per process."""

    def __init__(self, options: ServingOptions) -> None:
        self.options, self.monitoring = options, Monitoring()
        self._predictor = ThreadPoolExecutor(1, thread_name_prefix="tagwise-predict")
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="tagwise-load")
        self.taggers = {
            name: ServedTagger(name, options, self.monitoring, self._loader, self._predictor)
            for name in options.taggers
        }
        self.feedback = None if options.feedback is None else FeedbackStore(options.feedback, options.most_waiting)
        self.queue = [] if options.queue is None else read_queue(options.queue, options.queue_text)
        self._watchers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Load the taggers, and start watching for newer ones."""
        for one in self.taggers.values():
            await one.reload()
            if self.options.watch_seconds > 0:
                self._watchers.append(asyncio.create_task(one.watch()))

    async def stop(self) -> None:
        """Shut down; accepted feedback is stored first."""
        for watcher in self._watchers:
            watcher.cancel()
        self._loader.shutdown(wait=False, cancel_futures=True)
        self._predictor.shutdown(wait=False, cancel_futures=True)
        if self.feedback is not None:
            self.feedback.close()

    def tagger(self, name: str) -> ServedTagger:
        """The tagger of this name, or status 404."""
        if name not in self.taggers:
            there = ", ".join(self.taggers)
            raise HTTPException(404, f"There is no tagger {name[:100]!r}; there is {there}.")
        return self.taggers[name]

    def queued(self, number: int) -> Queued:
        """One of the texts to work through, from 1, or status 404."""
        if not 1 <= number <= len(self.queue):
            there = counted(len(self.queue), "text")
            raise HTTPException(404, f"There is no text {number} in the queue; it has {there}.")
        return self.queue[number - 1]

    async def look(self, ask: Callable[[Tally], Found]) -> Found:
        """The answer of the tally; it is empty where feedback is switched off."""
        return ask(Tally()) if self.feedback is None else await self.feedback.look(ask)

    async def keep(self, served: ServedTagger, *answers: dict[str, Any]) -> None:
        """Store answers, or status 403 where feedback is switched off."""
        if self.feedback is None:
            raise HTTPException(403, "Feedback is switched off; start the server with --feedback FILE to keep answers.")
        version = None if served.loaded is None else served.loaded.version
        time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        given = {"time": time, "tagger": served.name, "version": version}
        await self.feedback.keep(*({**given, **answer} for answer in answers))
        for name in ANSWERS:
            if count := sum(len(answer.get(name, ())) for answer in answers):
                self.monitoring.feedback.labels(served.name, name).inc(count)
