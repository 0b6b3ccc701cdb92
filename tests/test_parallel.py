import multiprocessing
import os
import signal
import threading
import time
import warnings
import weakref

import numpy as np
import pytest
import threadpoolctl
from hypothesis import given
from hypothesis import strategies as st
from numba.core.compiler_lock import global_compiler_lock

from tagwise import parallel
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.interrupts import deferred_interrupts
from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas, thread_count, work_chunks


def covers(chunks, n_rows):
    ends = [0, *(stop for _, stop in chunks)]
    return [start for start, _ in chunks] == ends[:-1] and ends[-1] == n_rows and ends == sorted(set(ends))


@given(st.integers(0, 40_000), st.integers(0, 2**32 - 1), st.integers(1, 300))
def test_chunks_cover_every_row_once(n_rows, seed, least):
    assert covers(even_chunks(n_rows, least), n_rows)
    indptr = np.concatenate([[0], np.cumsum(np.random.default_rng(seed).zipf(1.3, n_rows) % 5000)])
    chunks = work_chunks(indptr, least_work=least)
    assert covers(chunks, n_rows)
    assert len(chunks) <= 32


def test_work_chunks_balance_many_rows_with_long_ones_together():
    """Borders are looked for among some rows first; long rows between two of them must not end in one chunk."""
    lengths = np.ones(1_000_000, dtype=np.int64)
    lengths[500_000:500_200] = 10_000
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    chunks = work_chunks(indptr)
    work = [indptr[stop] - indptr[start] + stop - start for start, stop in chunks]
    assert covers(chunks, len(lengths))
    assert max(work) < 2 * sum(work) / 32


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_results_come_in_the_order_of_the_chunks_of_nested_loops_too(n_threads):
    chunks = even_chunks(100, 3)
    assert run_chunks(lambda start, stop: (start, stop), chunks, n_threads) == chunks

    def outer(start, stop):
        return run_chunks(lambda first, last: (start, first, last), chunks, n_threads)

    assert run_chunks(outer, even_chunks(40, 1), n_threads) == [
        [(row, *chunk) for chunk in chunks] for row in range(40)
    ]


def test_a_daemonic_process_has_threads_and_no_warning(monkeypatch):
    """As a worker of Dask that a nanny watches: it shares the cores, and joblib would warn."""
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (thread_count(None), thread_count(3), thread_count(-1)) == (1, 3, 1)


def test_thread_count_follows_joblib():
    assert thread_count(None) == 1
    assert thread_count(3) == 3
    assert thread_count(np.int64(2)) == 2
    assert thread_count(-1) >= 1
    with pytest.raises(InvalidInputError, match="n_jobs must not be 0"):
        thread_count(0)
    for bad in ("2", 1.5, True):
        with pytest.raises(InvalidTypeError, match="n_jobs must be a whole number"):
            thread_count(bad)


def blas_threads():
    """Of numpy's and scipy's BLAS."""
    return {one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"}


def test_blas_is_limited_inside_and_free_again_after_overlapping_use():
    before = blas_threads()
    inside, release = threading.Event(), threading.Event()

    def other():
        with single_threaded_blas():
            inside.set()
            release.wait(10)

    thread = threading.Thread(target=other)
    with single_threaded_blas():
        thread.start()
        assert inside.wait(10)
    assert blas_threads() == {1}, "the first to leave must not lift the limit of the other"
    release.set()
    thread.join()
    assert blas_threads() == before


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def exit_code_of_child(work):
    """Fork, do some work in the child, and return how that ended; a child that hangs is ended by a signal."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def use_blas_and_threads():
    with single_threaded_blas():
        return run_chunks(lambda start, stop: stop - start, even_chunks(8, 2), 2) == [2] * 4


def compile_something():
    with global_compiler_lock:
        return True


@needs_fork
@pytest.mark.parametrize(
    ("lock", "work"), [(parallel._blas_lock, use_blas_and_threads), (global_compiler_lock, compile_something)]
)
def test_a_child_that_is_forked_while_another_thread_holds_a_lock_works(lock, work):
    held = threading.Event()

    def hold():
        with lock:
            held.set()
            time.sleep(0.2)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    assert exit_code_of_child(work) == 0
    thread.join()


@needs_fork
def test_a_child_does_not_wait_for_other_threads_to_leave_blas():
    """Of the users of single-threaded BLAS a child has those of the thread that forked, and frees BLAS after them."""
    free = blas_threads()
    inside, release = threading.Event(), threading.Event()

    def other():
        with single_threaded_blas():
            inside.set()
            release.wait(60)

    def blas_is_free_again():
        with single_threaded_blas():
            limited = blas_threads() == {1}
        return limited and blas_threads() == free

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(10)
    assert exit_code_of_child(blas_is_free_again) == 0
    with single_threaded_blas():
        assert exit_code_of_child(lambda: parallel._blas_users == 1) == 0
    release.set()
    thread.join()


@needs_fork
def test_a_child_that_another_thread_forks_during_a_call_can_be_interrupted():
    """The handler that only takes note of an interrupt is not the child's."""
    codes = []

    def fork():
        codes.append(exit_code_of_child(lambda: signal.getsignal(signal.SIGINT) is before))

    before = signal.getsignal(signal.SIGINT)
    with deferred_interrupts():
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    assert codes == [0]


def test_the_calling_thread_works_and_all_threads_are_done_when_an_error_is_raised():
    started, running, calls = threading.Barrier(2, timeout=120), set(), []

    def chunk(start, stop):
        running.add(threading.get_ident())
        calls.append(threading.get_ident())
        if start < 2:
            started.wait()  # both threads have a chunk
        try:
            if start == 1:
                raise RuntimeError("chunk 1")
            time.sleep(0.05)
        finally:
            running.discard(threading.get_ident())

    with pytest.raises(RuntimeError, match="chunk 1"):
        run_chunks(chunk, even_chunks(1000, 1), 2)
    assert not running
    assert threading.get_ident() in calls
    assert len(calls) == 2, "no chunk is begun after an error"


def test_an_interrupt_is_not_hidden_by_an_error():
    both = threading.Barrier(2, timeout=120)

    def chunk(start, stop):
        both.wait()
        raise KeyboardInterrupt if start == 1 else RuntimeError("chunk 0")

    with pytest.raises(KeyboardInterrupt):
        run_chunks(chunk, even_chunks(2, 1), 2)


def test_chunks_do_not_wait_for_a_busy_pool():
    """Several callers share a pool: each goes on with its own chunks when others hold all its threads."""
    release = threading.Event()
    holding = threading.Barrier(3, timeout=120)

    def hold(start, stop):
        holding.wait()
        return release.wait(120)

    released = []
    other = threading.Thread(target=lambda: released.extend(run_chunks(hold, even_chunks(2, 1), 2)))
    other.start()
    holding.wait()
    assert run_chunks(lambda start, stop: start, even_chunks(20, 1), 2) == list(range(20))
    release.set()
    other.join(10)
    assert released == [True, True], "the others were waited for"


def test_nothing_of_a_loop_is_held_once_it_has_ended():
    """The pool's threads let go of a job a moment after its caller has gone on; its arrays must not wait for that."""
    for _ in range(100):
        array = np.ones(10)
        seen = weakref.ref(array)
        run_chunks(lambda start, stop, array=array: array[start:stop].sum(), even_chunks(10, 1), 3)
        del array
        assert seen() is None


def test_threads_that_were_asked_for_are_waited_for_when_another_cannot_start(monkeypatch):
    running, begun, real = set(), threading.Event(), parallel._pool(2)

    class Pool:
        asked = 0

        def submit(self, work):
            self.asked += 1
            if self.asked > 1:
                assert begun.wait(10)
                raise RuntimeError("can't start new thread")
            return real.submit(work)

    def chunk(start, stop):
        running.add(start)
        begun.set()
        time.sleep(0.05)
        running.discard(start)

    pool = Pool()
    monkeypatch.setattr(parallel, "_pool", lambda n_threads: pool)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run_chunks(chunk, even_chunks(100, 1), 3)
    assert not running


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_threads_treat_overflow_as_the_caller_does():
    """numpy keeps that per thread, so that warnings that a fit has switched off could come from its threads."""
    both = threading.Barrier(2)

    def overflow(start, stop):
        both.wait(timeout=60)  # on two threads
        return np.float64(1e300) * np.float64(1e300)

    with np.errstate(over="ignore"):
        assert run_chunks(overflow, [(0, 1), (1, 2)], 2) == [np.inf, np.inf]
