"""Work on a Dask cluster: functions of parts of the data, and their results added up as a tree.

All that a cluster is asked for is a pure function of a part and of some arrays that the client holds, so any of it can
be computed again: a worker that dies costs its tasks, and what it alone held of the client's arrays is sent once more.
Nothing is bound to a worker's address. Sums are made in the order of the parts, by a tree that depends on their number
alone: the same parts give the same bits, whatever the number of workers.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import ClusterError, InvalidInputError, InvalidTypeError
from tagwise.interrupts import current_call, raise_if_interrupted, working_for

try:
    import dask
    from dask.sizeof import sizeof
    from distributed import Client, Future, LocalCluster, get_client, wait
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker
    from distributed.system import MEMORY_LIMIT
except ImportError as error:  # pragma: no cover - the extra is there wherever this is tested
    raise ImportError('tagwise.distributed needs Dask; install it by pip install "tagwise[dask]".') from error

__all__ = ["RETRIES", "Cluster", "Sent", "connected_client", "open_client", "total"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Results that are added up by one task.
_FAN_IN = 8
# Arrays of the client above this size go to a worker once, not with every task.
_SENT_ONCE_BYTES = 1 << 14
# A task that has failed so many times ends the work; so do so many losses of what the client has sent.
_MOST_FAILURES, _MOST_LOSSES = 3, 20
RETRIES = _MOST_FAILURES - 1
"""How often a task that has failed is tried again."""
# Of a cluster on this machine; and how long a scheduler may take to answer, and to have a worker.
_MOST_PROCESSES, _SECONDS_TO_CONNECT = 1024, 30
# Ctrl-C reaches all processes of a terminal: the client decides, and ends the workers.
_WITHOUT_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
# Steps of problems that do not depend on each other, under way at once.
_OVERLAPPING = 4
# Those of Dask, and of what it is built on.
_DASK_LOGGERS = ("distributed", "tornado", "asyncio")
# How often a client that waits looks for an interrupt.
_SECONDS_BETWEEN_LOOKS = 0.2


def connected_client(client: Any = None) -> Client:
    """The client given, or the one of this process; raises InvalidTypeError for anything else."""
    if client is None:
        try:
            return get_client()
        except ValueError:
            raise ClusterError(
                "client: there is no Dask client in this process; pass client=Client(...), of an address or of a "
                "LocalCluster."
            ) from None
    if not isinstance(client, Client):
        raise InvalidTypeError(f"client must be a dask.distributed.Client; found {type(client).__name__}.")
    return client


@contextmanager
def open_client(address: str) -> Iterator[Client]:
    """A client of the scheduler at an address, such as ``tcp://host:8786``.

    ``local:N`` starts N processes of one thread each on this machine, which share its memory, and ends them afterwards.
    """
    kind, _, number = address.partition(":")
    if kind == "local":
        if not number.isdecimal() or not 1 <= int(number) <= _MOST_PROCESSES:
            raise InvalidInputError(
                f"local:N needs a number of processes from 1 to {_MOST_PROCESSES}, such as local:4; found {address!r}."
            )
        share = MEMORY_LIMIT // int(number)
        with (
            LocalCluster(
                n_workers=int(number),
                threads_per_worker=1,
                memory_limit=share,
                dashboard_address=":0",
                silence_logs=logging.ERROR,
                preload=[_WITHOUT_INTERRUPTS],
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client
        return
    with _without_dask_log(), _client_of(address) as client:
        try:
            client.wait_for_workers(1, timeout=_SECONDS_TO_CONNECT)
        except (TimeoutError, asyncio.TimeoutError):
            raise ClusterError(
                f"The Dask scheduler at {address} has no workers. Start some with: dask worker {address} --nthreads 1."
            ) from None
        yield client


def _client_of(address: str) -> Client:
    try:
        return Client(address, timeout=_SECONDS_TO_CONNECT)
    except ValueError as error:
        raise InvalidInputError(
            f"{address!r:.100} is not the address of a Dask scheduler ({error}); it looks like tcp://host:8786, or is "
            "local:4 for four processes on this machine."
        ) from None
    except (OSError, TimeoutError, asyncio.TimeoutError):
        raise ClusterError(
            f"No Dask scheduler answers at {address}. Start one with: dask scheduler. Or use local:4 for four "
            "processes on this machine."
        ) from None


@contextmanager
def _without_dask_log() -> Iterator[None]:
    """Silence what Dask logs in this process, such as its attempts to reconnect to a scheduler, with their tracebacks.

    Whatever ends the work is raised, and reported in one sentence.
    """
    known = (name for name in list(logging.root.manager.loggerDict) if name.partition(".")[0] in _DASK_LOGGERS)
    levels = [(logger, logger.level) for logger in map(logging.getLogger, known)]
    for logger, _ in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in levels:
            logger.setLevel(level)


class Sent:
    """An array that the client keeps and workers are sent once, not with every task; again if they lose it."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.future: Future | None = None


class Cluster:
    """What models ask of a cluster."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """``function(*arguments)`` on some worker, under the function's name on the dashboard; futures are waited for.

        Arguments that are not futures travel with the task: for what is small, and must survive any worker.
        """
        return self.client.submit(function, *arguments, pure=False, retries=RETRIES)

    def kept(self, value: Any) -> Future:
        """A value for tasks that must survive any worker: each that needs it is sent it once, and it is never lost."""
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
            return self.submit(given, value)

    def stored(self, function: Callable[..., Any], parts: Sequence[Future], *arguments: Any) -> list[Future]:
        """``function(part, *arguments)`` of every part, kept by the workers; no worker's end can lose the arguments."""
        sent = [self.kept(one) if sizeof(one) > _SENT_ONCE_BYTES else one for one in arguments]
        return [self.submit(function, part, *sent) for part in parts]

    def map(self, function: Callable[..., Any], parts: Sequence[Future], *arguments: Any) -> list[Any]:
        """``function(part, *arguments)`` of every part, in order, at the client."""
        return self.collected(arguments, lambda sent: self.stored(function, parts, *sent))

    def sum(self, function: Callable[..., Any], parts: Sequence[Future], *arguments: Any) -> Any:
        """The sum of ``function(part, *arguments)`` over all parts, at the client: arrays, or tuples of them."""
        return self.collected(arguments, lambda sent: [self.tree(self.stored(function, parts, *sent))])[0]

    def gathered(self, futures: Sequence[Future], on_done: Callable[[int], None] | None = None) -> list[Any]:
        """The results, as soon as all are there; ``on_done`` is told now and then how many are."""
        with self._told():
            while True:
                try:
                    wait(list(futures), timeout=_SECONDS_BETWEEN_LOOKS)
                except (TimeoutError, asyncio.TimeoutError):
                    raise_if_interrupted()
                    if on_done is not None:
                        on_done(sum(future.status == "finished" for future in futures))
                    if all(future.status not in ("error", "cancelled") for future in futures):
                        continue
                return list(self.client.gather(list(futures)))

    def watched(self, root: Future, leaves: list[Future], on_done: Callable[[int], None]) -> Any:
        """The result of ``root``; ``on_done`` is told how many of the leaves below it are done.

        The list of leaves is emptied, so that workers can drop what is done.
        """
        n_leaves, waiting = len(leaves), list(leaves)
        leaves.clear()

        def look(done: int) -> None:
            waiting[:] = [future for future in waiting if future.status != "finished"]
            on_done(n_leaves - len(waiting))

        return self.gathered([root], look)[0]

    def overlapping(self, function: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
        """``function`` of every item, in order; some items ahead are begun, as each mostly waits for the cluster."""
        call, waiting = current_call(), deque[concurrent.futures.Future[_Result]]()

        def run(item: _Item) -> _Result:
            with working_for(call):
                return function(item)

        with ThreadPoolExecutor(_OVERLAPPING) as pool:
            try:
                for item in items:
                    waiting.append(pool.submit(run, item))
                    if len(waiting) > _OVERLAPPING:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for one in waiting:
                    one.cancel()

    def tree(self, futures: list[Future]) -> Future:
        """The sum of results that are still to come, made by the workers."""
        while len(futures) > 1:
            groups = [futures[start : start + _FAN_IN] for start in range(0, len(futures), _FAN_IN)]
            futures = [self.submit(total, *group) if len(group) > 1 else group[0] for group in groups]
        return futures[0]

    def collected(self, arguments: Sequence[Any], submit: Callable[[list[Any]], list[Future]]) -> list[Any]:
        """The results of the futures that ``submit`` makes of the arguments; see :meth:`sending`."""
        return self.sending(arguments, lambda sent: self.gathered(submit(sent)))

    def sending(self, arguments: Sequence[Any], work: Callable[[list[Any]], _Result]) -> _Result:
        """``work`` of the arguments, of which large ones are sent once and are futures.

        If workers lose them on the way, they are sent once more, and all of ``work`` is done again.
        """
        kept = [Sent(one) if not isinstance(one, Sent) and sizeof(one) > _SENT_ONCE_BYTES else one for one in arguments]
        for _ in range(_MOST_LOSSES):
            try:
                for one in kept:
                    if isinstance(one, Sent) and one.future is None:
                        one.future = self._scattered(one.value)
                return work([one.future if isinstance(one, Sent) else one for one in kept])
            except (CancelledError, CommClosedError):
                # The only worker that held an argument is gone, or went while it was sent one.
                for one in kept:
                    if isinstance(one, Sent):
                        one.future = None
        raise ClusterError(
            f"Workers were lost {_MOST_LOSSES} times while they held what the same step needs; give them more memory, "
            "or look into their logs."
        )

    def _scattered(self, value: Any) -> Future:
        """The value on some worker; where there is none, it is waited for, as tasks are."""
        while True:
            with self._told():
                try:
                    return self.client.scatter(value, hash=False)
                except (TimeoutError, asyncio.TimeoutError):
                    if self.client.nthreads():
                        raise
            raise_if_interrupted()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """A scheduler that is gone, or workers that die of a task, in a sentence; a worker that is lost is as it is."""
        try:
            yield
        except KilledWorker as error:
            step = str(error.task).partition("-")[0]
            raise ClusterError(
                f"The step {step} was given up: {error.allowed_failures + 1} workers died while they ran it, most "
                "often for want of memory. Use smaller parts or files, or give workers more memory."
            ) from error
        except (CommClosedError, CancelledError, TimeoutError, asyncio.TimeoutError, OSError) as error:
            # An OSError may also be what a task raised on a worker.
            comes_from_dask = not isinstance(error, OSError) or isinstance(error, CommClosedError)
            if self.client.status != "running" or (comes_from_dask and not self._scheduler_answers()):
                raise ClusterError(self._gone()) from error
            raise

    def _scheduler_answers(self) -> bool:
        try:
            self.client.nthreads()
        except (OSError, TimeoutError, asyncio.TimeoutError, CancelledError, RuntimeError):
            return False
        return bool(self.client.status == "running")

    def _gone(self) -> str:
        where = getattr(self.client.scheduler, "address", "its address")
        return (
            f"The Dask scheduler at {where} does not answer any more. Start it again and repeat the call; a fit with a "
            "checkpoint resumes where it was."
        )


def given(value: Any) -> Any:
    """The value itself."""
    return value


def total(*parts: Any) -> Any:
    """The sum of arrays, sparse matrices or numbers, of tuples of them, or of what adds itself up by ``plus``.

    The parts stay as they are.
    """
    if hasattr(parts[0], "plus"):
        return parts[0].plus(*parts[1:])
    if isinstance(parts[0], tuple):
        sums = [total(*column) for column in zip(*parts)]
        return type(parts[0])(*sums) if hasattr(parts[0], "_fields") else tuple(sums)
    out = parts[0] + parts[1]
    for part in parts[2:]:
        out = out + part if sp.issparse(out) or not isinstance(out, np.ndarray) else np.add(out, part, out=out)
    return out
