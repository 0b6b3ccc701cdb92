"""Threads: fixed chunks of rows, one shared pool per thread count, and BLAS kept to one thread.

Borders of chunks depend on the data alone. A chunk writes rows of its own, or a partial sum that is later added in
chunk order, so that results are bit-identical for every number of threads. BLAS is held to one thread meanwhile: its
threads would compete with ours, and the rounding of its sums may depend on how many it uses.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.interrupts import current_call, deferred_interrupts, raise_if_interrupted, working_for

__all__ = ["even_chunks", "on_this_thread", "run_chunks", "single_threaded_blas", "thread_count", "work_chunks"]

Bounds = list[tuple[int, int]]
Result = TypeVar("Result")

# Enough chunks to balance several threads, few enough that handing them out (some µs each) stays invisible.
_MOST_CHUNKS = 32
# Chunk borders are searched among about this many rows: searching all of them would slow down short products.
_BORDER_ROWS = 4096


def thread_count(n_jobs: int | None) -> int:
    """Threads for joblib's ``n_jobs``: None is 1, -1 is all cores, -2 all but one (1 in daemons)."""
    import joblib

    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer))):
        raise InvalidTypeError(f"n_jobs must be a whole number or None; found {n_jobs!r}.")
    if n_jobs == 0:
        raise InvalidInputError("n_jobs must not be 0; use None or 1 for one thread, -1 for all cores.")
    # Work that is already spread over processes has this thread alone, and joblib would say so in a warning.
    if _thread.busy:
        return 1
    if n_jobs is not None and multiprocessing.current_process().daemon:
        # Such a process, a worker of Dask for one, shares the cores with others. joblib would grant it one job however
        # many are asked for, and warn, as it may not start processes of its own; these are threads.
        return max(1, int(n_jobs))
    return int(joblib.effective_n_jobs(n_jobs))


def even_chunks(n_rows: int, rows_per_chunk: int) -> Bounds:
    """Borders that cut ``n_rows`` into chunks of ``rows_per_chunk`` (the last may be shorter)."""
    return [(start, min(start + rows_per_chunk, n_rows)) for start in range(0, n_rows, rows_per_chunk)]


def work_chunks(indptr: np.ndarray, least_work: int = 1 << 14) -> Bounds:
    """Borders that cut the rows of a CSR matrix into chunks of about equal numbers of stored entries.

    A chunk has at least about ``least_work`` entries. A row counts as one entry more than it stores, so that long runs
    of empty rows are cut too.
    """
    n_rows = len(indptr) - 1
    if n_rows <= 0:
        return []
    total = int(indptr[-1]) + n_rows
    if total < 2 * least_work:  # one chunk: single rows are predicted often, and fast
        return [(0, n_rows)]
    wanted = min(_MOST_CHUNKS, total // least_work)
    goals = total * np.arange(1, wanted) // wanted
    step = max(1, n_rows // _BORDER_ROWS)
    rows = np.append(np.arange(0, n_rows, step), n_rows)
    work = indptr[rows] + rows
    cuts = np.searchsorted(work, goals)
    # Where much work lies between two of these rows, all rows between them are searched.
    for place in np.flatnonzero(np.diff(work)[cuts - 1] > total // (4 * wanted)) if step > 1 else ():
        low, high = rows[cuts[place] - 1], rows[cuts[place]]
        between = np.arange(low, high + 1)
        rows = np.append(rows, low + np.searchsorted(indptr[between] + between, goals[place]))
        cuts[place] = len(rows) - 1
    borders = sorted({0, n_rows, *rows[cuts].tolist()})
    return list(pairwise(borders))


def run_chunks(function: Callable[[int, int], Result], chunks: Bounds, n_threads: int) -> list[Result]:
    """``function(start, stop)`` for every chunk, results in the order of the chunks.

    Threads only pay off if the function releases the GIL (numba with ``nogil``, BLAS). The calling thread works too,
    and each thread takes the next chunk as soon as it has finished one: submitting every chunk to a pool would cost
    more than a short chunk takes. A nested call runs on the thread of its chunk, as waiting for the pool from inside it
    could deadlock. Of several errors, an interrupt or else the first chunk's is raised, after all threads have stopped.
    Interrupts are raised between chunks.
    """
    if len(chunks) == 1:  # a row alone, whose answer takes some ten such calls
        raise_if_interrupted()
        return [function(*chunks[0])]
    with deferred_interrupts():
        if n_threads > 1 and chunks and not _thread.busy:
            return _run_on_threads(function, chunks, n_threads)
        found = []
        for start, stop in chunks:
            raise_if_interrupted()
            found.append(function(start, stop))
        return found


def _run_on_threads(function: Callable[[int, int], Result], chunks: Bounds, n_threads: int) -> list[Result]:
    job = _Job(function, chunks)
    helpers: list[Future[None]] = []
    try:
        # One by one: if a thread does not start, those before it are still waited for.
        helpers.extend(_pool(n_threads - 1).submit(job.work) for _ in range(min(n_threads, len(chunks)) - 1))
        job.work()
    finally:
        job.waiting.clear()
        wait([helper for helper in helpers if not helper.cancel()])
        results, errors = job.end()
    if errors:
        try:
            raise min(errors.items(), key=lambda found: (isinstance(found[1], Exception), found[0]))[1]
        finally:
            del errors  # an error refers to this frame, which would keep the error and its arrays alive
    return [results[place] for place in range(len(chunks))]


class _Job(Generic[Result]):
    """A function, the chunks that no thread has taken yet, and results or errors of the others by position."""

    def __init__(self, function: Callable[[int, int], Result], chunks: Bounds) -> None:
        self.function, self.chunks, self.call = function, chunks, current_call()
        self.float_errors: Any = np.geterr()  # every thread has its own: what the caller ignores, all ignore
        self.waiting = deque(range(len(chunks)))
        self.results: dict[int, Result] = {}
        self.errors: dict[int, BaseException] = {}

    def work(self) -> None:
        """Take chunks until none is left; an error leaves none."""
        with on_this_thread(), working_for(self.call), np.errstate(**self.float_errors):
            while self.waiting:
                try:
                    place = self.waiting.popleft()
                except IndexError:  # another thread was faster
                    return
                try:
                    raise_if_interrupted()
                    self.results[place] = self.function(*self.chunks[place])
                except BaseException as error:
                    self.errors[place] = error
                    self.waiting.clear()

    def end(self) -> tuple[dict[int, Result], dict[int, BaseException]]:
        """Results and errors; the job drops them, as the pool keeps a job alive a moment longer than its caller."""
        found = self.results, self.errors
        del self.function, self.results, self.errors
        return found


class _Thread(threading.local):
    busy = False
    """Whether this thread works on chunks."""
    blas_users = 0
    """Number of active contexts of this thread that hold BLAS to one thread."""


_thread = _Thread()


@contextmanager
def on_this_thread() -> Iterator[None]:
    """Run the chunks of all calls within on the calling thread, for work that is already spread over processes."""
    before, _thread.busy = _thread.busy, True
    try:
        yield
    finally:
        _thread.busy = before


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=n_threads, thread_name_prefix="tagwise")


_blas_lock = threading.Lock()
_blas_users = 0
_blas_limit: Any = None


@cache
def _blas_controller() -> Any:
    import threadpoolctl

    return threadpoolctl.ThreadpoolController()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Hold BLAS to one thread; the first of several concurrent users sets the limit, the last one lifts it."""
    global _blas_users, _blas_limit
    controller = _blas_controller()  # not while the lock is held: the first time it imports, which may run anything
    with _blas_lock:
        if _blas_limit is None:
            _blas_limit = controller.limit(limits=1, user_api="blas")
        _blas_users += 1
        _thread.blas_users += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            _thread.blas_users -= 1
            if _blas_users == 0:
                _lift(_blas_limit)
                _blas_limit = None


def _start_over_in_child() -> None:
    """A fork copies only the thread that forks: the others' work, which a child would wait for, is not in the child."""
    global _blas_users
    _pool.cache_clear()
    _blas_users = _thread.blas_users  # where that is 0, the next user lifts the limit
    _blas_lock.release()


if hasattr(os, "register_at_fork"):
    # The lock is taken for the fork, so that no other thread holds it, and what it guards is whole.
    os.register_at_fork(
        before=_blas_lock.acquire, after_in_parent=_blas_lock.release, after_in_child=_start_over_in_child
    )


def _lift(limit: Any) -> None:
    """Restore the limits, also when another thread set them: newer threadpoolctl lets only that one touch OpenBLAS."""
    import threadpoolctl

    hand_over = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if hand_over is not None:
        hand_over(force=True)
    limit.restore_original_limits()
    if hand_over is not None:
        hand_over(force=True)
