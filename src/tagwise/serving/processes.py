"""What the processes of one server share, by files in a folder of theirs: models, limits and calls to reload."""

from __future__ import annotations

import asyncio
import hashlib
import mmap
import os
import secrets
import shutil
import time
from contextlib import nullcontext, suppress
from io import FileIO
from pathlib import Path

from tagwise.exceptions import ModelFormatError
from tagwise.persistence.atomic import HAS_LOCKS, locked
from tagwise.persistence.folder import MANIFEST_NAME, parse_manifest, read_manifest

if HAS_LOCKS:
    from fcntl import LOCK_EX, LOCK_NB, flock

__all__ = ["ATTEMPTS", "Calls", "RecentRequests", "digits", "missing", "shared_copy"]

ATTEMPTS = 8
"""To read a folder. Each after the first needs one more save to finish while it is read."""

_MINUTE = 60.0
_NUMBER = 8  # bytes
_DIGITS = 20


def digits(manifest: bytes) -> str:
    """The version of a model."""
    return hashlib.sha256(manifest).hexdigest()[:12]


def missing(folder: Path, error: FileNotFoundError) -> str:
    """The sentence on a file of a model that is not there."""
    return f"{folder}: {Path(error.filename).name} is missing."


def shared_copy(folder: Path, shared: Path) -> tuple[str, Path]:
    """The version of a model and a copy of its folder, which is made unless another process has done so."""
    for attempt in range(ATTEMPTS):
        manifest = read_manifest(folder)
        version = digits(manifest)
        place, part = shared / version, shared / f"{version}.{os.getpid()}.part"
        if place.is_dir():
            break
        payload = parse_manifest(manifest)["payload"]
        part.mkdir(exist_ok=True)
        try:
            if payload:
                shutil.copyfile(folder / payload["file"], part / payload["file"])
            (part / MANIFEST_NAME).write_bytes(manifest)
            part.rename(place)
        except FileNotFoundError as error:  # a save has replaced it meanwhile
            if attempt + 1 == ATTEMPTS:
                raise ModelFormatError(missing(folder, error)) from None
            continue
        except OSError:
            if not place.is_dir():  # else another process was faster
                raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
        break
    return version, place


class RecentRequests:
    """When each of some clients made its last requests, which are at most so many in any minute.

    A ring of times per client: the one that the next request would overwrite is the oldest that counts. With
    ``shared``, the rings are those of all processes. Memory: 8 bytes per client and request.
    """

    def __init__(self, clients: int, most: int, shared: str | None = None) -> None:
        self._most = most
        size = _NUMBER * clients * (1 + most)
        self._file: FileIO | None = None
        if shared is not None:
            self._file = open(Path(shared) / "requests", "a+b", buffering=0)  # noqa: SIM115
            self._file.truncate(size)  # what is new holds zeros
        self._rings = memoryview(mmap.mmap(-1 if self._file is None else self._file.fileno(), size)).cast("d")

    def wait(self, client: int) -> float:
        """Take a request of a client, and return 0; or the seconds until there is room for it."""
        first = client * (1 + self._most)
        with nullcontext() if self._file is None else locked(self._file):
            place = first + 1 + int(self._rings[first])
            now = _MINUTE + time.monotonic()  # one clock for all processes; a zero is more than a minute ago
            wait = self._rings[place] + _MINUTE - now
            if wait > 0:
                return wait
            self._rings[place] = now
            self._rings[first] = (place - first) % self._most
        return 0.0


class Calls:
    """By which one process asks all to load a tagger again, and hears when they have.

    A file holds the number of the latest call. Each process keeps a note, and a lock on it for as long as it lives: the
    number of the call that it has answered, and whether it could.
    """

    def __init__(self, shared: str, name: str) -> None:
        self._folder = Path(shared) / "calls" / name
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "latest").touch()
        self._latest = open(self._folder / "latest", "r+b", buffering=0)  # noqa: SIM115
        self._note = open(self._folder / f"{secrets.token_hex(8)}.note", "x+b", buffering=0)  # noqa: SIM115
        if HAS_LOCKS:
            flock(self._note, LOCK_EX)
        self._answered = 0
        self.answer(self.latest, True)

    @property
    def latest(self) -> int:
        """The number of the latest call; 0 where there was none."""
        self._latest.seek(0)
        return int(self._latest.read(_DIGITS) or b"0")

    @property
    def waits(self) -> bool:
        """Whether there is a call that this process has not answered."""
        return self.latest > self._answered

    def answer(self, number: int, done: bool) -> None:
        """Note that this process has loaded the tagger, or could not."""
        self._answered = number
        self._note.seek(0)
        self._note.write(b"%0*d%d" % (_DIGITS, number, done))

    async def ask_all(self, seconds: float) -> str | None:
        """Call, as one that has loaded the tagger, and wait for the others; returns what is wrong, if anything is."""
        with locked(self._latest):
            number = self.latest + 1
            self._latest.seek(0)
            self._latest.write(b"%0*d" % (_DIGITS, number))
        self.answer(number, True)
        end = time.monotonic() + seconds
        while True:
            answers = [self._answer_in(note) for note in self._folder.glob("*.note") if not self._is_left(note)]
            late = [one for one, _ in answers if one < number]
            if not late:
                return None if all(done for _, done in answers) else "another could not; the log says why."
            if time.monotonic() > end:
                have = "has" if len(late) == 1 else "have"
                return (
                    f"{len(late)} of {len(answers)} processes {have} not within {seconds:g} seconds; the log says why."
                )
            await asyncio.sleep(0.05)

    def close(self) -> None:
        """Answer no longer."""
        self._latest.close()
        self._note.close()
        with suppress(OSError):
            os.unlink(self._note.name)

    @staticmethod
    def _answer_in(note: Path) -> tuple[int, bool]:
        try:
            content = note.read_bytes()
        except FileNotFoundError:  # a process has ended just now
            content = b""
        return (int(content[:_DIGITS]), content[_DIGITS:] == b"1") if content else (0, True)

    @staticmethod
    def _is_left(note: Path) -> bool:
        """Whether the process of a note has died; then the note is removed."""
        if not HAS_LOCKS:
            return False
        try:
            with open(note, "rb") as stream:
                flock(stream, LOCK_EX | LOCK_NB)
                note.unlink()
        except BlockingIOError:
            return False
        except FileNotFoundError:
            pass
        return True
