"""Blocks of a fit on the workers of a Dask cluster.

Tasks are pure functions of a block and of what all blocks share, so any of them can be computed again: a worker that
dies costs the blocks that it was working on. What is shared lies in files, which all workers of a machine map into
memory: written once where workers see the client's folder, and otherwise sent once to each machine; an array that is
part of several values is one file. Results come back by the same folder where both see it, and what only other blocks
need is never read by the client. Dask's own ``scatter`` was tried: it keeps a copy per worker, and what its only
holder takes along when it dies has to be sent and everything that depends on it computed anew.

Values are pickled, as Dask pickles all that it sends: between processes of one cluster, which run each other's code
anyway, in a folder that only this user can read. Nothing of it outlives the fit; model folders hold no pickle.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any

import dask
import numpy as np
from distributed import Client, Future, wait
from distributed.protocol.pickle import dumps, loads

from tagwise.distributed.cluster import RETRIES, connected_client, gathered, workers_of
from tagwise.executor import Executor
from tagwise.parallel import single_threaded_blas

__all__ = ["DaskExecutor"]

# Values with fewer bytes travel with the task.
_STORED_BYTES = 1 << 16
# Arrays begin at multiples of it, as numpy's own do: compiled code has another version for others.
_ALIGNMENT = 64
# A worker that is gone takes no longer.
_SECONDS_TO_REMOVE = 5


class DaskExecutor(Executor):
    """An executor on the workers of a Dask cluster; use as a context manager.

    Parameters
    ----------
    client : dask.distributed.Client, optional
        By default that of this process.
    storage : path, optional
        A folder that the client and all workers see under the same path; shared values are then written once for all
        machines. By default a temporary folder of this machine.

    Attributes
    ----------
    n_blocks : int
        Number of workers at the start.
    tasks, bytes_shared, bytes_returned : int
        Tasks so far, bytes of shared values (once for each machine that they were written on), and bytes of results.
    """

    def __init__(self, client: Client | None = None, storage: str | Path | None = None) -> None:
        self.client = connected_client(client)
        self.storage = storage
        self.tasks = self.bytes_shared = self.bytes_returned = 0

    def __enter__(self) -> DaskExecutor:
        self.folder = Path(tempfile.mkdtemp(prefix="tagwise-", dir=self.storage))
        self._shared: weakref.WeakValueDictionary[str, Shared] = weakref.WeakValueDictionary()
        self._places: list[str] = []
        self._machines: dict[str, set[str]] = {}
        self._distant: set[str] = set()
        self._look_around()
        self.n_blocks = max(1, len(workers_of(self.client)))
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if (self._distant or self._places) and self.client.status == "running":
            with suppress(Exception):  # what ended the fit is the error to tell
                alive = set(self.client.nthreads())
                removed = [
                    self.client.submit(_remove_distant, self.folder.name, workers=[worker], pure=False)
                    for worker in {min(alive & workers, default="") for workers in self._machines.values()} - {""}
                ]
                wait(removed, timeout=_SECONDS_TO_REMOVE)

    def _look_around(self) -> None:
        """Find machines whose workers do not see the folder, and send them what is shared so far."""
        seen = self.client.run(_sees, self.folder)
        for worker, (host, _) in seen.items():
            self._machines.setdefault(host, set()).add(worker)
        for host in sorted({host for host, sees in seen.values() if not sees} - self._distant):
            self._distant.add(host)
            for shared in list(self._shared.values()):
                self._send(shared, host)

    def _send(self, shared: Shared, host: str) -> None:
        """Send a shared value to a machine; without one of its workers, it is sent once there is one again."""
        workers = sorted(self._machines[host] & set(workers_of(self.client)))
        if not workers:
            self._distant.discard(host)
            return
        packed, in_use = Packed.read(shared.path), [*self._shared, *self._places]
        sent = self.client.submit(_receive, shared.path, packed, in_use, workers=workers, pure=False, retries=RETRIES)
        gathered(self.client, sent)
        self.bytes_shared += packed.n_bytes

    def share(self, value: Any) -> Any:
        """A handle of a value; a task gets the value, the same object in all tasks of a worker."""
        if value is None or isinstance(value, (bool, int, float, str, Shared)):
            return value
        return self._stored(Packed.of(value), value)

    def value(self, handle: Any) -> Any:
        """The value of a handle; of one in a file, the parts that are read come into memory."""
        return opened(handle.path) if isinstance(handle, Shared) else handle

    def place(self) -> str:
        """Name of a new array that the workers of each machine fill together, in a folder of that machine."""
        self._places.append(uuid.uuid4().hex)
        return f"{self.folder.name}/{self._places[-1]}"

    def _stored(self, packed: Packed, value: Any) -> Shared:
        """The packed value in a file, and each of its large arrays in one that equal arrays share."""
        within = [one for one in value if isinstance(one, Shared)] if isinstance(value, tuple) else []
        arrays: list[np.ndarray | Path] = []
        for array in packed.arrays:
            if isinstance(array, Path) or len(array) < _STORED_BYTES:
                arrays.append(array)
                continue
            name = blake2b(array.data, digest_size=16).hexdigest()
            shared = self._shared.get(name) or self._written(Packed(b"", [array]), name, [])
            within.append(shared)
            arrays.append(shared.path)
        return self._written(Packed(packed.pickled, arrays), uuid.uuid4().hex, within)

    def _written(self, packed: Packed, name: str, within: list[Shared]) -> Shared:
        packed.write(self.folder / name)
        self.bytes_shared += packed.n_bytes
        return self._handle(name, within)

    def _handle(self, name: str, within: list[Shared]) -> Shared:
        """Of a file in the folder, which goes when the handle does."""
        self._shared[name] = shared = Shared(self.folder / name, within)
        weakref.finalize(shared, shared.path.unlink, missing_ok=True)
        for host in sorted(self._distant):
            self._send(shared, host)
        return shared

    def stream(self, function: Callable[..., Any], blocks: Sequence[Any], *common: Any) -> Iterator[Any]:
        """``function(block, *common)`` of every block, in order, each result when it is there."""
        for result in self._results(function, blocks, common):
            if isinstance(result, Path):
                path, result = result, Packed.read(result)
                with suppress(OSError):
                    path.unlink()
            self.bytes_returned += result.n_bytes
            yield result.value()

    def keep(self, function: Callable[..., Any], blocks: Sequence[Any], *common: Any) -> list[Any]:
        """Handles of all results; those of workers that see the folder stay there, and are sent to other machines."""
        handles = []
        for result in self._results(function, blocks, common):
            if isinstance(result, Path):
                self.bytes_returned += result.stat().st_size
                handles.append(self._handle(result.name, []))
            else:
                self.bytes_returned += result.n_bytes
                handles.append(self._stored(result, None))
        return handles

    def _results(
        self, function: Callable[..., Any], blocks: Sequence[Any], common: tuple[Any, ...]
    ) -> Iterator[Packed | Path]:
        workers = workers_of(self.client)
        shared = [one.path if isinstance(one, Shared) else Packed.of(one) for one in common]
        given: list[Packed | Shared] = []
        for block in blocks:
            packed = Packed.of(block)
            # A file serves any worker that sees it; a block for another machine travels to one worker alone.
            stored = packed.n_bytes >= _STORED_BYTES and not self._distant
            given.append(self._stored(packed, block) if stored else packed)

        def submit(number: int) -> Future:
            # The same block goes to the same worker where it can, which has what it computed on it last time.
            favourite = {"workers": [workers[number % len(workers)]], "allow_other_workers": True} if workers else {}
            self.tasks += 1
            block = given[number]
            place = block.path if isinstance(block, Shared) else block
            key = f"{getattr(function, '__name__', type(function).__name__)}-{uuid.uuid4().hex}"
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
                return self.client.submit(
                    run_block, self.folder, function, place, *shared, key=key, retries=RETRIES, **favourite
                )

        futures = {number: submit(number) for number in range(len(given))}
        for number in range(len(given)):
            try:
                result = gathered(self.client, futures[number])
            except FileNotFoundError:
                # A machine that joined later.
                self._look_around()
                result = gathered(self.client, submit(number))
            del futures[number]
            yield result


class Packed:
    """A value as a pickle, with its arrays beside it: in memory, mapped from a file copy-on-write, or in another file.

    The bytes of those count there.
    """

    def __init__(self, pickled: bytes, arrays: Sequence[np.ndarray | Path]) -> None:
        self.pickled, self.arrays = pickled, arrays

    @classmethod
    def of(cls, value: Any) -> Packed:
        """The value, packed; arrays are not copied."""
        found: list[Any] = []
        pickled = dumps(value, buffer_callback=found.append, protocol=5)
        return cls(pickled, [np.frombuffer(buffer.raw(), dtype=np.uint8) for buffer in found])

    @property
    def n_bytes(self) -> int:
        """Size."""
        return len(self.pickled) + sum(len(array) for array in self.arrays if not isinstance(array, Path))

    def value(self) -> Any:
        """The value; its arrays are writable and begin at multiples of 64 bytes."""
        return (
            loads(self.pickled, buffers=[_usable(array) for array in self.arrays]) if self.pickled else self.arrays[0]
        )

    def write(self, path: Path) -> None:
        """Arrays, the pickle, and where they begin; the file is there at once and whole."""
        part, places = path.with_suffix(".part"), list[Path | tuple[int, int]]()
        with open(part, "wb") as file:
            for array in self.arrays:
                if isinstance(array, Path):
                    places.append(array)
                    continue
                file.seek(-(-file.tell() // _ALIGNMENT) * _ALIGNMENT)
                places.append((file.tell(), file.tell() + len(array)))
                file.write(array.data)
            tail = dumps((self.pickled, places), protocol=5)
            file.write(tail)
            file.write(len(tail).to_bytes(8, "little"))
        part.replace(path)

    @classmethod
    def read(cls, path: Path) -> Packed:
        """The content of a file, mapped into memory."""
        content = np.memmap(path, np.uint8, mode="c").view(np.ndarray)
        size = int.from_bytes(content[-8:].tobytes(), "little")
        pickled, places = loads(content[-8 - size : -8].tobytes())
        return cls(pickled, [place if isinstance(place, Path) else content[slice(*place)] for place in places])


def _usable(array: np.ndarray | Path) -> np.ndarray:
    """The array, or a copy of one that is part of a message, which is read-only and may begin at any byte."""
    if isinstance(array, Path):
        found: np.ndarray = opened(array)
        return found
    if array.flags.writeable and array.ctypes.data % _ALIGNMENT == 0:
        return array
    room = np.empty(len(array) + _ALIGNMENT, dtype=np.uint8)
    copied = room[-room.ctypes.data % _ALIGNMENT :][: len(array)]
    copied[:] = array
    return copied


class Shared:
    """A value in a file; a task that gets it, or something that it is part of, gets the value."""

    def __init__(self, path: Path, within: list[Shared]) -> None:
        self.path, self.within = path, within

    def __reduce__(self) -> tuple[Any, ...]:
        return opened, (self.path,)


_lock = threading.RLock()
_open: dict[str, tuple[Path, Any]] = {}


def opened(path: Path) -> Any:
    """The value in a file, opened once in each process."""
    with _lock:
        # Values of earlier steps, whose files are gone, are not needed any more.
        for token in [token for token, (place, _) in _open.items() if not place.exists()]:
            del _open[token]
        if path.name not in _open:
            place = path if path.exists() else _distant_place(path)
            _open[path.name] = place, Packed.read(place).value()
        return _open[path.name][1]


# ---------------------------------------------------------------------- what workers run


def run_block(folder: Path, function: Callable[..., Any], *arguments: Packed | Path) -> Packed | Path:
    """The function of a block, with the threads that it asks for and no others, so that workers do not crowd."""
    with single_threaded_blas():
        values = [opened(one) if isinstance(one, Path) else one.value() for one in arguments]
        result = Packed.of(function(*values))
    if result.n_bytes < _STORED_BYTES or not folder.is_dir():
        return result
    path = folder / uuid.uuid4().hex
    result.write(path)
    return path


def _sees(folder: Path) -> tuple[str, bool]:
    return socket.gethostname(), folder.is_dir()


def _distant_place(path: Path) -> Path:
    """Path of a shared value on a machine that does not see the client's folder."""
    return Path(tempfile.gettempdir(), path.parent.name, path.name)


def _receive(path: Path, packed: Packed, in_use: list[str]) -> None:
    path = _distant_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    packed.write(path)
    for other in path.parent.iterdir():
        if other.stem not in in_use:
            other.unlink(missing_ok=True)


def _remove_distant(folder: str) -> None:
    shutil.rmtree(Path(tempfile.gettempdir(), folder), ignore_errors=True)
