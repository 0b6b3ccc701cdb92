"""Feedback (accepted and rejected tags): an append-only file, and its effect on a table.

Each line is a JSON object: ``text`` or ``id`` of what was tagged (or both), the tags that were ``accepted``,
``rejected`` or ``withdrawn``, and whatever else its writer notes, such as ``time`` and ``tagger``. An accepted tag is
known to be right, a rejected one known to be wrong; a withdrawn one is unknown again. Of several answers
on the same text and tag, the latest counts. docs/serving.md specifies the format.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from io import FileIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tagwise.data.columns import Dialect
from tagwise.data.formats import FORMATS
from tagwise.data.records import HALF_PAIR, JsonRecords, holds_half_pair, kind_of
from tagwise.data.tables import Table
from tagwise.exceptions import InvalidInputError, ParseError
from tagwise.progress import counted
from tagwise.store.atomic import flush_folder, locked

__all__ = ["ANSWERS", "Feedback", "FeedbackFile", "feedback_line", "read_feedback", "with_feedback"]

ANSWERS = ("accepted", "rejected", "withdrawn")
"""The fields of a record that hold lists of tags."""


class Answer(NamedTuple):
    """The latest answer on a text and a tag."""

    record: int  # counted from 0
    right: bool | None  # None: withdrawn


@dataclass
class Answers:
    """The latest answers on one text."""

    text: str | None = None
    tags: dict[str, Answer] = field(default_factory=dict)


@dataclass
class Feedback:
    """The answers of a file, by subject.

    Attributes
    ----------
    by_id, by_text : dict
        Answers on rows that have an identifier, and on texts that have none.
    records : int
        Lines of the file.
    repeated, contradicted : int
        Number of repeated answers, and of answers that changed an earlier one.
    taggers : Counter of str
        Number of records per tagger that made the suggestions, if named.
    """

    by_id: dict[str, Answers] = field(default_factory=dict)
    by_text: dict[str, Answers] = field(default_factory=dict)
    records: int = 0
    repeated: int = 0
    contradicted: int = 0
    taggers: Counter[str] = field(default_factory=Counter)

    def add(self, record: Mapping[str, Any]) -> None:
        """Take a checked record, which is later than all before it."""
        identifier, text = record.get("id"), record.get("text")
        part, key = (self.by_text, text) if identifier is None else (self.by_id, identifier)
        answers = part.setdefault(str(key), Answers())
        answers.text = answers.text if text is None else text
        for name, right in zip(ANSWERS, (True, False, None)):
            for tag in dict.fromkeys(record.get(name) or ()):
                before = answers.tags.get(tag)
                if before is not None and before.right is not None:
                    self.repeated += before.right is right
                    self.contradicted += before.right is not right
                answers.tags[tag] = Answer(self.records, right)
        if isinstance(record.get("tagger"), str):
            self.taggers[record["tagger"]] += 1
        self.records += 1

    def counts(self) -> dict[str, int]:
        """Numbers of records, of texts with answers, and of accepted and rejected tags."""
        given = [
            [answer.right for answer in one.tags.values() if answer.right is not None]
            for part in (self.by_id, self.by_text)
            for one in part.values()
        ]
        accepted = sum(map(sum, given))
        return {
            "records": self.records,
            "texts": sum(map(bool, given)),
            "accepted": accepted,
            "rejected": sum(map(len, given)) - accepted,
            "repeated": self.repeated,
            "contradicted": self.contradicted,
        }

    @property
    def account(self) -> str:
        """The sentence on what was read."""
        found = self.counts()
        said = (
            f"{counted(self.records, 'record')} of feedback on {counted(found['texts'], 'text')}: "
            f"{counted(found['accepted'], 'tag')} accepted, {found['rejected']:,} rejected"
        )
        if self.repeated or self.contradicted:
            said += (
                f"; {counted(self.repeated, 'answer')} repeated and {self.contradicted:,} changed, of which the latest "
                "counts"
            )
        return said + "."


def read_feedback(path: str | os.PathLike[str], *, tagger: str | None = None) -> Feedback:
    """Read a file of feedback.

    Parameters
    ----------
    path : path
        JSON lines, as ``tagwise serve --feedback`` writes them. A truncated last line belongs to a
        record that was never acknowledged, and is left out.
    tagger : str, optional
        Leave out records on suggestions of other taggers.

    Raises
    ------
    ParseError
        A line is not a record; the message names line and reason.
    InvalidInputError
        The records are on several taggers, and ``tagger`` is not given; or none are on ``tagger``.
    """
    found = Feedback()
    skipped: Counter[str] = Counter()
    with closing(JsonRecords(os.fspath(path), Dialect(), FORMATS["jsonl"])) as records:
        while True:
            try:
                record = records.next()
            except ParseError:
                if records.raw is None or records.raw.endswith(b"\n"):
                    raise
                break  # the beginning of a record
            if record is None:
                break
            fault = record_fault(record)
            if fault is not None:
                raise ParseError(records.path, records.line, 0, fault)
            of = record.get("tagger")
            if tagger is not None and isinstance(of, str) and of != tagger:
                skipped[of] += 1
            else:
                found.add(record)
    if len(found.taggers) > 1:
        raise InvalidInputError(
            f"{path} holds answers on suggestions of {_listed(found.taggers)}; say which of them are meant: "
            "tagger=…, --feedback-tagger on the command line."
        )
    if skipped and not found.records:
        raise InvalidInputError(f"{path} holds no answer on suggestions of {tagger!r}; there is {_listed(skipped)}.")
    return found


def _listed(taggers: Counter[str]) -> str:
    return ", ".join(f"{name!r:.60} ({counted(count, 'record')})" for name, count in sorted(taggers.items())[:10])


def record_fault(record: Mapping[str, Any]) -> str | None:
    """The fault of a record; None for a good one."""
    for name in ("id", "text"):
        if not isinstance(record.get(name), (str, type(None))):
            return f"{name} must be a string; found {kind_of(record[name])}"
    if record.get("id") is None and record.get("text") is None:
        return "a feedback record needs text or id; this one has neither"
    if not any(name in record for name in ANSWERS):
        return f"a feedback record needs one of {', '.join(ANSWERS)}; this one has none"
    for name in ANSWERS:
        tags = record.get(name) or []
        if not isinstance(tags, list) or not all(isinstance(tag, str) and tag for tag in tags):
            return f"{name} must be a list of tags, none of them empty"
    times = Counter(tag for name in ANSWERS for tag in set(record.get(name) or ()))
    twice = [tag for tag, count in times.items() if count > 1]
    if twice:
        return f"one record answers {min(twice)!r:.60} in two ways; a tag is accepted, rejected or withdrawn"
    return HALF_PAIR if holds_half_pair([json.dumps(record, ensure_ascii=False)]) else None


def with_feedback(table: Table, feedback: Feedback) -> Table:
    """The rows of a table with the answers.

    Answers on a row of the table, by its identifier or else by its text, add to its known tags and
    overrule them. Other texts become new rows after those of the table, with only the answered tags known.
    Texts that differ in blanks around them are the same.

    Returns
    -------
    Table
        ``texts``, ``tags`` and ``known`` are what ``Tagger.fit`` takes. ``counts`` also has ``feedback_rows`` and
        ``feedback_texts`` (rows of the table and other texts with answers) and ``feedback_lost`` (identifiers without a
        text that no row has); ``account`` is a sentence with these numbers.
    """
    texts, tags = list(table.texts), [list(row) for row in table.tags]
    known: list[list[str] | None] = [None] * len(texts) if table.known is None else list(table.known)
    ids = None if table.ids is None else list(table.ids)
    targets, lost = _by_target(table, feedback)
    rows, added = set(), 0
    for numbers, text, identifier, answers in targets:
        right = {tag: answer.right for tag, answer in answers.items() if answer.right is not None}
        if not right:
            continue
        for row in numbers:
            tags[row] = [tag for tag in tags[row] if right.get(tag, True)]
            tags[row] += [tag for tag, is_right in right.items() if is_right and tag not in tags[row]]
            checked = known[row]
            if checked is not None:
                known[row] = list(dict.fromkeys([*checked, *right]))
            rows.add(row)
        if not numbers:
            added += 1
            texts.append(text)
            tags.append([tag for tag, is_right in right.items() if is_right])
            known.append(list(right))
            if ids is not None:
                ids.append(identifier or f"feedback {added}")
    sentence = f"Feedback on {counted(len(rows), 'row')} of the file and on {counted(added, 'other text')}."
    if lost:
        sentence += f" {counted(lost, 'identifier')} in the feedback that no row has, without a text: left out."
    counts = {"feedback_rows": len(rows), "feedback_texts": added, "feedback_lost": lost}
    return replace(
        table,
        texts=texts,
        tags=tags,
        known=None if all(row is None for row in known) else known,
        ids=ids,
        account=f"{table.account} {sentence}".strip(),
        counts={**table.counts, **counts},
    )


class _Target(NamedTuple):
    """Rows of the table, or a text that is in none, with its answers."""

    rows: list[int]
    text: str
    identifier: str | None
    answers: dict[str, Answer]


def _by_target(table: Table, feedback: Feedback) -> tuple[list[_Target], int]:
    """The latest answers by subject, and the number of answers on unknown subjects.

    If a text was answered both with and without its identifier, the latest answer counts.
    """
    rows_of_text: dict[str, list[int]] = {}
    for row, text in enumerate(table.texts):
        rows_of_text.setdefault(text.strip(), []).append(row)
    row_of_id = {identifier: row for row, identifier in enumerate(table.ids or ())}
    targets: dict[Any, _Target] = {}
    lost = 0
    without_id: list[tuple[str | None, Answers]] = [(None, answers) for answers in feedback.by_text.values()]
    for identifier, answers in [*feedback.by_id.items(), *without_id]:
        text = answers.text or ""
        if identifier is not None and identifier in row_of_id:
            rows = [row_of_id[identifier]]
        elif answers.text is None:
            lost += 1
            continue
        else:
            rows = rows_of_text.get(text.strip(), [])
        latest = targets.setdefault(tuple(rows) or text.strip(), _Target(rows, text, identifier, {})).answers
        for tag, answer in answers.tags.items():
            if tag not in latest or latest[tag].record < answer.record:
                latest[tag] = answer
    return list(targets.values()), lost


def feedback_line(record: Mapping[str, Any]) -> bytes:
    """A record as a line of the file; raises InvalidInputError for invalid ones."""
    fault = record_fault(record)
    if fault is not None:
        raise InvalidInputError(f"The answer cannot be kept: {fault}.")
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


class Place(NamedTuple):
    """Position up to which a file was read."""

    file: int = 0  # number of the file among those that had its path
    end: int = 0


class FeedbackFile:
    """Appends records durably: none is lost once :meth:`append` has returned, even if the process dies.

    Several processes may append to one file. A record that was being written when a process or the machine stopped was
    never acknowledged; the next writer removes its remains. A file that was moved or removed meanwhile is created
    again.

    Raises
    ------
    InvalidInputError
        The folder does not exist, or the file holds something other than feedback.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._opened = 0
        if not self.path.parent.is_dir():
            raise InvalidInputError(f"feedback: {self.path.parent} is not a folder; create it first.")
        if self.path.exists() and not self.path.is_file():
            raise InvalidInputError(f"feedback: {self.path} is not a file; name another.")
        self._file = self._open()
        with open(self.path, "rb") as stream:
            first = stream.readline()
        # The only line may be the beginning of a record; nothing else that lacks its end is taken for one.
        torn = first.startswith(b'{"') and not first.endswith(b"\n") and _json(first) is None
        if first and not torn and _record_of(first) is None:
            self._file.close()
            raise InvalidInputError(
                f"feedback: {self.path} holds something else than feedback, to which nothing is added; name another "
                "file."
            )
        with self._alone():
            self._mend_last_line()

    def _open(self) -> FileIO:
        is_new = not self.path.exists()
        file = open(self.path, "a+b", buffering=0)  # noqa: SIM115
        self._opened += 1
        if is_new:
            flush_folder(self.path.parent)
        return file

    def append(self, lines: Iterable[bytes]) -> None:
        """Write lines of :func:`feedback_line` and flush them to the device; raises OSError where that fails.

        Then none of them is in the file.
        """
        together = b"".join(lines)
        with self._alone():
            self._mend_last_line()
            size = self._file.seek(0, os.SEEK_END)
            try:
                view = memoryview(together)
                while view:
                    view = view[self._file.write(view) :]
                os.fsync(self._file.fileno())
            except OSError:
                self._file.truncate(size)
                raise

    def place(self, before: Place) -> Place:
        """Position to continue reading at: the previous one, or the start if the file was replaced."""
        with self._alone():
            if self._file.seek(0, os.SEEK_END) < before.end:
                self._opened += 1
            return before if before.file == self._opened else Place(self._opened, 0)

    def read(self, place: Place) -> Iterator[tuple[dict[str, Any], Place]]:
        """The sound records behind a place, whichever process wrote them, each with the place behind it.

        A snapshot: another thread may iterate over it while more are appended.
        """
        with self._alone():  # what is written now is not acknowledged yet
            size = self._file.seek(0, os.SEEK_END)
            stream = open(self.path, "rb")  # noqa: SIM115
        return _records_in(stream, place, size)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _mend_last_line(self) -> None:
        """Remove a partial record left by a stopped writer; a complete one gets its line end."""
        size = self._file.seek(0, os.SEEK_END)
        if not size:
            return
        with mmap(self._file.fileno(), 0, access=ACCESS_READ) as content:
            last = content[content.rfind(b"\n") + 1 :]
        if _record_of(last) is not None:
            self._file.write(b"\n")
        elif last:
            self._file.truncate(size - len(last))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from the file."""
        while True:
            with locked(self._file):
                if self._is_in_place():
                    yield
                    return
            before, self._file = self._file, self._open()
            before.close()

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False


def _records_in(stream: BinaryIO, place: Place, size: int) -> Iterator[tuple[dict[str, Any], Place]]:
    with stream:
        stream.seek(place.end)
        while stream.tell() < size and (line := stream.readline()).endswith(b"\n"):
            record = _record_of(line)
            if record is not None:
                yield record, Place(place.file, stream.tell())


def _json(line: bytes) -> Any:
    """The value of a line; None if it is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _record_of(line: bytes) -> dict[str, Any] | None:
    record = _json(line)
    return record if isinstance(record, dict) and record_fault(record) is None else None
