"""What all interfaces of a server share: the taggers, those who wait, the feedback and the counts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import partial
from typing import Any, TypeVar

from tagwise.data.feedback import ANSWERS
from tagwise.progress import counted
from tagwise.serving.batches import Batches, Question
from tagwise.serving.feedback import FeedbackStore, Queued, Tally, read_queue
from tagwise.serving.monitoring import Monitoring
from tagwise.serving.options import ServingOptions
from tagwise.serving.problems import Problem
from tagwise.serving.taggers import Loaded, ServedTagger, Taggers
from tagwise.text.suggestion import Suggestion

__all__ = ["Service"]

Found = TypeVar("Found")

log = logging.getLogger("tagwise.serving")


class Service:
    """One per process."""

    def __init__(self, options: ServingOptions) -> None:
        self.options = options
        self.monitoring = Monitoring()
        # The model releases the interpreter while it computes; a second thread would only compete for the same cores.
        self._predictor = ThreadPoolExecutor(1, thread_name_prefix="tagwise-predict")
        self.taggers = Taggers(
            (ServedTagger(name, folder, self._batches_of(name)) for name, folder in options.taggers.items()),
            options,
            self.note_model,
        )
        self._feedback = None if options.feedback is None else FeedbackStore(options.feedback, options.most_waiting)
        self.queue = [] if options.queue is None else read_queue(options.queue, options.queue_text)

    def _batches_of(self, name: str) -> Callable[[Loaded], Batches[Suggestion]]:
        sizes, note_texts = self.monitoring.batch_texts.labels(name), partial(self.monitoring.note_texts, name)
        return lambda loaded: Batches(
            partial(loaded.answer, on_texts=note_texts),
            self._predictor,
            most_texts=self.options.most_texts,
            most_waiting=self.options.most_waiting,
            seconds=self.options.seconds,
            on_batch=sizes.observe,
        )

    async def start(self) -> None:
        """Load the taggers."""
        await self.taggers.start()

    async def stop(self) -> None:
        """End what runs; feedback that was accepted is stored first."""
        await self.taggers.stop()
        self._predictor.shutdown(wait=False, cancel_futures=True)
        if self._feedback is not None:
            self._feedback.close()

    def note_model(self, served: ServedTagger) -> None:
        """Count a model that was loaded."""
        if served.loaded is not None:
            self.monitoring.note_model(served.name, served.loaded.version, served.loaded.loaded_at.timestamp())

    def tagger(self, name: str) -> ServedTagger:
        """The tagger of this name, or status 404."""
        try:
            return self.taggers.by_name[name]
        except KeyError:
            there = ", ".join(self.taggers.by_name)
            raise Problem(404, f"There is no tagger {name[:100]!r}; there is {there}.") from None

    @staticmethod
    def loaded(served: ServedTagger) -> Loaded:
        """What answers now, or status 503."""
        if served.loaded is None:
            sentence = f"{served.name} has no model yet: {served.error or 'it is being loaded.'}"
            raise Problem(503, sentence, {"Retry-After": "5"})
        return served.loaded

    async def ask(
        self, served: ServedTagger, texts: list[str], question: Question
    ) -> tuple[Loaded, list[list[Suggestion]]]:
        """Suggestions for texts, within the limits of the server."""
        if len(texts) > self.options.most_texts:
            most = self.options.most_texts
            raise Problem(422, f"texts: {len(texts):,} texts, but one request may hold {most}; send them in parts.")
        loaded = self.loaded(served)
        if question.min_probability is not None and not loaded.probabilistic:
            raise Problem(
                422,
                f"threshold: the scores of {served.name} are not probabilities; leave it out, or train with tagwise "
                "train --validation.",
            )
        if question.explain and not loaded.explainable:
            raise Problem(
                422, f"explain: the model of {served.name} cannot say which words speak for a tag; leave it out."
            )
        if self.options.log_texts:
            for text in texts:
                log.info("%s was asked for tags of %r", served.name, text)
        try:
            return await served.ask(texts, question)
        except asyncio.TimeoutError:
            sentence = f"The answer took more than {self.options.seconds:g} seconds; send fewer texts at a time."
            raise Problem(503, sentence, {"Retry-After": "5"}) from None

    @property
    def keeps_answers(self) -> bool:
        """Whether feedback is switched on."""
        return self._feedback is not None

    def queued(self, number: int) -> Queued:
        """One of the texts to work through, from 1, or status 404."""
        if not 1 <= number <= len(self.queue):
            raise Problem(404, f"There is no text {number} in the queue; it has {counted(len(self.queue), 'text')}.")
        return self.queue[number - 1]

    async def look(self, ask: Callable[[Tally], Found]) -> Found:
        """What was answered so far; nothing where feedback is switched off."""
        return ask(Tally()) if self._feedback is None else await self._feedback.look(ask)

    async def keep(self, served: ServedTagger, *answers: dict[str, Any]) -> None:
        """Store answers, or status 403 where feedback is switched off."""
        if self._feedback is None:
            raise Problem(403, "Feedback is switched off; start the server with --feedback FILE to keep answers.")
        version = None if served.loaded is None else served.loaded.version
        time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        given = {"time": time, "tagger": served.name, "version": version}
        await self._feedback.keep(*({**given, **answer} for answer in answers))
        for name in ANSWERS:
            if count := sum(len(answer.get(name, ())) for answer in answers):
                self.monitoring.feedback.labels(served.name, name).inc(count)
