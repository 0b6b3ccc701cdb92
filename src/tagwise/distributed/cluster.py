"""Connections to a Dask cluster, and messages for their failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from distributed import Client, Future, LocalCluster, get_client, wait
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker
from distributed.system import MEMORY_LIMIT

from tagwise.exceptions import ClusterError, InvalidInputError, InvalidTypeError
from tagwise.interrupts import raise_if_interrupted

__all__ = ["RETRIES", "connected_client", "gathered", "open_client", "workers_of"]

RETRIES = 2
"""Number of retries of a failed task."""
# Of a cluster on this machine; and how long a scheduler may take to answer, and to have a worker.
_MOST_PROCESSES, _SECONDS_TO_CONNECT = 1024, 30
# Ctrl-C reaches all processes of a terminal: the client decides, and ends the workers.
_WITHOUT_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
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
    """Silence the log of Dask in this process, such as attempts to reconnect to a scheduler, with their tracebacks.

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


def gathered(client: Client, future: Future) -> Any:
    """The result, as soon as it is there; an interrupt ends the waiting."""
    with _told(client):
        while True:
            try:
                wait(future, timeout=_SECONDS_BETWEEN_LOOKS)
            except (TimeoutError, asyncio.TimeoutError):
                raise_if_interrupted()
                if future.status not in ("error", "cancelled"):
                    continue
            return future.result()


def workers_of(client: Client) -> list[str]:
    """Addresses of the workers that are there now."""
    with _told(client):
        return sorted(client.nthreads())


@contextmanager
def _told(client: Client) -> Iterator[None]:
    """Report a lost scheduler, or workers killed by a task, in one sentence."""
    try:
        yield
    except KilledWorker as error:
        step = str(error.task).partition("-")[0]
        raise ClusterError(
            f"The step {step} failed: {error.allowed_failures + 1} workers died while they ran it, usually "
            "for lack of memory. Give workers more memory, or use smaller files."
        ) from error
    except (CommClosedError, CancelledError, TimeoutError, asyncio.TimeoutError, OSError) as error:
        # An OSError may also be what a task raised on a worker.
        comes_from_dask = not isinstance(error, OSError) or isinstance(error, CommClosedError)
        if client.status != "running" or (comes_from_dask and not _scheduler_answers(client)):
            where = getattr(client.scheduler, "address", "its address")
            raise ClusterError(
                f"The Dask scheduler at {where} no longer answers. Start it again and repeat the call; a fit "
                "with a checkpoint resumes where it was."
            ) from error
        raise


def _scheduler_answers(client: Client) -> bool:
    try:
        client.nthreads()
    except (OSError, TimeoutError, asyncio.TimeoutError, CancelledError, RuntimeError):
        return False
    return bool(client.status == "running")
