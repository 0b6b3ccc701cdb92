"""Workers that die, come late or are slow, tasks that fail, and a scheduler that goes away."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import dask
import numpy as np
import psutil
import pytest
import scipy.sparse as sp
from commands import COMMAND, some_rows, write_jsonl
from dask.distributed import Client, LocalCluster
from systems import needs_signals

from tagwise import LEML, REML, Cascade, Checkpoint, load
from tagwise.data import make_low_rank_plus_sparse
from tagwise.distributed import fit
from tagwise.distributed.executor import DaskExecutor
from tagwise.exceptions import ClusterError

pytestmark = pytest.mark.filterwarnings("ignore::tagwise.exceptions.TagwiseWarning")

MODELS = {
    "LEML": lambda: LEML(6, max_iter=6, tol=1e-6),
    "REML": lambda: REML(6, support=10, max_iter=6, tol=1e-6),
    "Cascade": lambda: Cascade(rank=6, support=10, shortlist=8, hard_negatives=10),
}


@pytest.fixture(scope="module")
def problem():
    made = make_low_rank_plus_sparse(1200, 80, 40, rank=4, features_per_row=8, noise=0.5, random_state=0)
    return made.X.astype(np.float64), made.Y


def local_cluster(workers):
    return LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")


def arrays(model):
    found = [getattr(model, name) for name in model.fields.arrays()]
    return b"".join((part.toarray() if sp.issparse(part) else part).tobytes() for part in found)


@needs_signals
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_worker_that_is_killed_costs_its_blocks_and_not_the_fit(problem, name):
    """At five random moments, one per fit; a worker that starts anew takes its place."""
    X, Y = problem
    with local_cluster(3) as cluster, Client(cluster) as client:
        nannies = list(cluster.workers.values())
        for _ in range(2):  # the second time all is compiled
            start = time.monotonic()
            expected = arrays(fit(MODELS[name](), X, Y, client=client))
            took = time.monotonic() - start
        for number, moment in enumerate(np.random.default_rng(0).random(5)):
            victim = nannies[number % 3].pid
            killer = threading.Timer(moment * took, os.kill, (victim, signal.SIGKILL))
            killer.start()
            assert arrays(fit(MODELS[name](), X, Y, client=client)) == expected
            killer.join()
            while nannies[number % 3].pid in (victim, None) or len(client.nthreads()) < 3:
                time.sleep(0.1)


@needs_signals
@pytest.mark.slow
def test_a_worker_comes_and_another_has_a_tenth_of_the_speed(problem):
    """The slow one is stopped for nine tenths of the time."""
    X, Y = problem
    with local_cluster(2) as cluster, Client(cluster) as client:
        expected = arrays(fit(MODELS["Cascade"](), X, Y, client=client))
        slow, ended = next(iter(cluster.workers.values())).pid, threading.Event()
        first = set(client.nthreads())

        def brake():
            while not ended.is_set():
                os.kill(slow, signal.SIGSTOP)
                time.sleep(0.09)
                os.kill(slow, signal.SIGCONT)
                time.sleep(0.01)

        braking = threading.Thread(target=brake, daemon=True)
        braking.start()

        def one_more(iteration, _):
            if iteration == 1:
                cluster.scale(3)
                client.wait_for_workers(3)

        try:
            assert arrays(fit(MODELS["Cascade"](), X, Y, client=client, callback=one_more)) == expected
        finally:
            ended.set()
            braking.join()
        fit(MODELS["Cascade"](), X, Y, client=client)  # whose steps are divided by three
        executed = client.run(lambda dask_worker: dask_worker.state.executed_count)
        (added,) = set(executed) - first
        assert executed[added] > 0


def fail(block, path):
    with open(path, "a") as stream:
        stream.write("x")
    raise ArithmeticError("this block cannot be computed")


def double(block):
    return 2 * block


def test_a_task_that_fails_three_times_ends_the_work_with_its_own_error(client, tmp_path):
    with DaskExecutor(client) as executor:
        with pytest.raises(ArithmeticError, match="this block cannot be computed"):
            executor.sum(fail, [1], str(tmp_path / "attempts"))
        assert (tmp_path / "attempts").read_text() == "xxx"
        assert executor.sum(double, [1, 2]) == 6  # the cluster works on


def unreadable(path):
    with open(path, "a") as stream:
        stream.write("x")
    raise ArithmeticError("this part cannot be read")


def test_a_part_that_cannot_be_read_three_times_ends_the_fit_and_all_processes(problem, tmp_path):
    X, Y = problem
    lazy = [X[:600], dask.delayed(unreadable)(str(tmp_path / "attempts"))]
    with local_cluster(2) as cluster, Client(cluster) as client:
        pids = client.run(os.getpid).values()
        with pytest.raises(ArithmeticError, match="this part cannot be read"):
            fit(LEML(2, max_iter=1), lazy, [Y[:600], Y[600:]], client=client)
        assert (tmp_path / "attempts").read_text() == "xxx"
    assert not any(map(psutil.pid_exists, pids))


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Scheduler:
    """A scheduler with two workers, each a process of its own."""

    def __init__(self, port):
        module = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
        self.address = f"tcp://127.0.0.1:{port}"
        self.scheduler = self._start([*module, "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"])
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", self.address, "--nthreads", "1", "--no-nanny"]
        self.workers = [self._start([*worker, "--no-dashboard"]) for _ in range(2)]

    @staticmethod
    def _start(command):
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end(self):
        for process in (self.scheduler, *self.workers):
            process.kill()
            process.wait()


@pytest.mark.slow  # clients try for half a minute to reach it again
def test_a_scheduler_that_goes_away_is_told_and_the_checkpoint_resumes(problem, tmp_path):
    X, Y = problem
    with local_cluster(2) as cluster, Client(cluster) as client:
        expected = arrays(fit(MODELS["LEML"](), X, Y, client=client))
    first = Scheduler(free_port())
    try:
        with Client(first.address, timeout=60) as client:
            client.wait_for_workers(2, timeout=60)
            checkpoint = Checkpoint(tmp_path / "checkpoint", every=1)

            def leave(iteration, info):
                if iteration == 2:
                    first.end()

            with pytest.raises(ClusterError, match=r"The Dask scheduler at .* no longer answers.*checkpoint"):
                fit(MODELS["LEML"](), X, Y, client=client, callback=leave, checkpoint=checkpoint)
    finally:
        first.end()
    rounds = []
    with local_cluster(2) as cluster, Client(cluster) as client:
        resumed = fit(
            MODELS["LEML"](), X, Y, client=client, checkpoint=checkpoint,
            callback=lambda iteration, info: rounds.append(iteration),
        )  # fmt: skip
    assert rounds[0] > 1
    assert arrays(resumed) == expected


@pytest.mark.slow
def test_a_command_whose_scheduler_is_killed_says_so_and_resumes(tmp_path):
    for number in range(4):
        write_jsonl(tmp_path / f"part-{number}.jsonl", some_rows(60))
    # So small a problem of LEML stays with the client; supports are always found by workers.
    settings = ["--model", "reml", "--set", "rank=3", "--set", "max_iter=40", "--set", "tol=0"]
    settings += ["--set", "sparse_part=support"]
    command = [*COMMAND, "train", str(tmp_path / "part-*.jsonl"), *settings, "--checkpoint-every", "1"]

    def started(cluster, out, *more):
        given = [*command, "--dask", cluster.address, "--out", str(tmp_path / out), *more]
        return subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    first = Scheduler(free_port())
    try:
        running = started(first, "tagger")
        until = time.monotonic() + 120
        # The manifest is there from the start, the arrays after the first round.
        while not list(tmp_path.glob("tagger.checkpoint/*.safetensors")) and time.monotonic() < until:
            time.sleep(0.05)
        assert running.poll() is None
        first.scheduler.kill()
        _, said = running.communicate(timeout=180)
    finally:
        first.end()
    assert running.returncode != 0
    assert f"The Dask scheduler at {first.address} no longer answers." in said
    assert "Traceback" not in said
    assert (tmp_path / "tagger.checkpoint").exists()
    second = Scheduler(free_port())
    try:
        resumed = started(second, "tagger", "--resume")
        _, said = resumed.communicate(timeout=180)
        assert resumed.returncode == 0, said
        whole = started(second, "whole")
        _, said = whole.communicate(timeout=180)
        assert whole.returncode == 0, said
    finally:
        second.end()
    mine, expected = (load(tmp_path / name).model_ for name in ("tagger", "whole"))
    assert mine.n_iter_ == expected.n_iter_
    assert arrays(mine) == arrays(expected)


def test_a_client_without_workers_waits_for_them(problem):
    X, Y = problem
    with LocalCluster(n_workers=0, dashboard_address=":0") as cluster, Client(cluster) as client:
        late = threading.Timer(1.0, lambda: cluster.scale(1))
        late.start()
        fit(LEML(2, max_iter=1), X, Y, client=client)
        late.join()
