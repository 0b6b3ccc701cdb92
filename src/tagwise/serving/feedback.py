"""Feedback: kept in a file, counted, and looked up for the texts of the queue.

Answers that arrive together are flushed together.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from starlette.exceptions import HTTPException

from tagwise.data.columns import Dialect
from tagwise.data.feedback import ANSWERS, FeedbackFile, Place, feedback_line
from tagwise.data.streams import checked_path
from tagwise.data.tables import TableReader
from tagwise.exceptions import InvalidInputError
from tagwise.progress import counted
from tagwise.serving.batches import Batches
from tagwise.serving.errors import unavailable

__all__ = ["FeedbackStore", "Queued", "Tally", "key_of", "read_queue"]

log = logging.getLogger("tagwise.serving")

Found = TypeVar("Found")


class FeedbackStore:
    """A file of feedback; a record is on the device when :meth:`keep` returns."""

    def __init__(self, path: str, most_waiting: int = 4096) -> None:
        self._file = FeedbackFile(path)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="tagwise-feedback")
        self._waiting: Batches[None, bytes, None] = Batches(
            self._append,
            self._writer,
            most=most_waiting,
            most_waiting=most_waiting,
            seconds=math.inf,
            busy="Too many answers wait to be stored",
        )
        self._looking = asyncio.Lock()
        self._tally, self._counted = Tally(), Place()

    async def keep(self, *records: Mapping[str, Any]) -> None:
        """Store records, all or none; ends the request with status 507 where that fails.

        Raises InvalidInputError for one that a reader of the file would refuse, and BusyError where too many wait.
        """
        lines = b"".join(map(feedback_line, records))
        # A client that goes away does not take its record with it.
        await asyncio.shield(self._waiting.ask(None, [lines]))

    def _append(self, key: None, lines: list[bytes]) -> list[None]:
        try:
            self._file.append(lines)
        except OSError as error:
            reason = error.strerror or str(error)
            log.error("%s: feedback could not be stored: %s.", self._file.path, reason)
            raise HTTPException(507, f"The answer could not be stored: {reason}. Send it again later.") from None
        return [None] * len(lines)

    async def look(self, ask: Callable[[Tally], Found]) -> Found:
        """The answer of the tally, over all records of the file, those of other processes included.

        They are read in a thread, so that the first read of a long file does not block requests.
        """
        async with self._looking:
            try:
                return await asyncio.to_thread(self._counted_up, ask)
            except OSError as failure:
                raise unavailable(f"The answers cannot be read: {failure.strerror or failure}.") from None

    def _counted_up(self, ask: Callable[[Tally], Found]) -> Found:
        place = self._writer.submit(self._file.place, self._counted).result()
        records = self._writer.submit(self._file.read, place).result()
        if place.file != self._counted.file:
            self._tally, self._counted = Tally(), place
        for record, behind in records:
            self._tally.add(record)
            self._counted = behind
        return ask(self._tally)

    def close(self) -> None:
        """Wait for pending writes, and close the file."""
        self._writer.shutdown(wait=True)
        self._file.close()


class Tally:
    """The latest answers by tagger, text and tag; texts are kept as digests, so memory is that of the tags."""

    def __init__(self) -> None:
        self._answers: dict[str, dict[bytes, dict[str, bool]]] = {}
        self._counts: dict[str, Counter[bool]] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Take a sound record, which is later than all before it."""
        tagger = str(record.get("tagger"))
        texts = self._answers.setdefault(tagger, {})
        key = key_of(record.get("id"), record.get("text"))
        tags = texts.setdefault(key, {})
        counts = self._counts.setdefault(tagger, Counter())
        counts.subtract(tags.values())
        for name in ANSWERS:
            for tag in record.get(name) or ():
                tags.pop(tag, None)
                if name != "withdrawn":
                    tags[tag] = name == "accepted"
        if not tags:
            del texts[key]
        counts.update(tags.values())

    def counts(self, tagger: str) -> dict[str, int]:
        """Number of texts with answers, and of accepted and rejected tags, of a tagger."""
        counts = self._counts.get(tagger, Counter())
        texts = len(self._answers.get(tagger, {}))
        return {"texts": texts, "accepted": counts[True], "rejected": counts[False]}

    def on(self, tagger: str, key: bytes) -> dict[str, bool] | None:
        """The latest answers on a text: True for accepted tags, False for rejected ones; None if there are none."""
        return self._answers.get(tagger, {}).get(key)


def key_of(identifier: str | None, text: str | None) -> bytes:
    """Digest that identifies a text: of its identifier, or else of the text without the blanks around it."""
    kind, value = (b"id ", identifier) if identifier is not None else (b"text ", (text or "").strip())
    return hashlib.blake2b(kind + value.encode(errors="surrogatepass"), digest_size=16).digest()


class Queued(NamedTuple):
    """One of the texts."""

    text: str
    id: str | None
    key: bytes
    """Digest that its answers are kept under."""
    asked: tuple[str, ...] = ()
    """Tags to ask about, as ``tagwise ask`` names them."""


def read_queue(path: str, text: Sequence[str] = ()) -> list[Queued]:
    """The texts of a table in its order, with the identifiers of a column ``id`` if there is one.

    A column ``asked`` of lists of tags holds the tags to ask about. Rows without a text are left out.
    ``text`` names the columns of the texts; else they are guessed.
    """
    queue, empty = [], 0
    dialect = Dialect(text=text or None, flags=True)
    try:
        with TableReader(checked_path(path), dialect, with_tags=False, empty_texts=True) as rows:
            for row in rows:
                if row.text.strip():
                    key = key_of(row.given_id, row.text)
                    asked = row.fields.get("asked")
                    if not isinstance(asked, list) or not all(isinstance(tag, str) and tag for tag in asked):
                        asked = []  # an unrelated column of that name
                    queue.append(Queued(row.text, row.given_id, key, tuple(dict.fromkeys(asked))))
                else:
                    empty += 1
    except OSError as error:
        raise InvalidInputError(f"--queue: {path} cannot be read: {error.strerror or error}.") from None
    if not queue:
        raise InvalidInputError(f"--queue: {path} holds no text.")
    if empty:
        log.warning("%s: left out: %s without a text.", path, counted(empty, "row"))
    return queue
