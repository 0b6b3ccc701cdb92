"""A Dask cluster on this machine, whose scheduler and workers are processes of their own, and what they do.

As a file that Dask loads before a scheduler or worker starts (`--preload`), it counts the bytes that the process sends.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from distributed import Client
from distributed.comm.tcp import TCP

# What workers and nannies write when memory is short, by what it means.
COMPLAINTS = {
    "unmanaged memory": re.compile(r"[Uu]nmanaged memory"),
    "paused": re.compile(r"Pausing worker"),
    "restarted": re.compile(r"(?i)restarting worker|terminated by signal|exceeded 95% memory"),
    "event loop unresponsive": re.compile(r"Event loop was unresponsive"),
}
# Seconds.
_BETWEEN_HEARTBEATS = 3.0


def count_bytes() -> None:
    """From now on, `TCP.sent` is what this process has sent."""
    if hasattr(TCP, "sent"):
        return
    TCP.sent = 0
    write = TCP.write

    async def counting(self: TCP, *arguments: Any, **more: Any) -> int:
        n_bytes = await write(self, *arguments, **more)
        TCP.sent += n_bytes
        return n_bytes

    TCP.write = counting


count_bytes()


def bytes_sent() -> int:
    """By this process, to all others of the cluster."""
    return TCP.sent


def between_workers(dask_worker: Any) -> int:
    """Bytes that this worker has sent to others."""
    return dask_worker.transfer_outgoing_bytes_total


def steps_so_far(dask_scheduler: Any) -> dict[str, dict[str, float]]:
    """By name of tasks: how many are done, the CPU seconds of their threads, and the seconds that they took."""
    found = {
        name: {"tasks": prefix.state_counts["memory"], "seconds": prefix.all_durations["compute"], "compute": 0.0}
        for name, prefix in dask_scheduler.task_prefixes.items()
    }
    for key, value in dask_scheduler.cumulative_worker_metrics.items():
        if key[0] == "execute" and key[2] == "thread-cpu" and key[1] in found:
            found[key[1]]["compute"] += value
    return found


class Processes:
    """A scheduler and workers of one thread, with their logs in a folder."""

    def __init__(self, n_workers: int, folder: Path, *, memory_limit: str | None = None) -> None:
        self.folder, self.n_workers = folder, n_workers
        folder.mkdir(parents=True, exist_ok=True)
        own = Path(__file__).parent
        paths = [str(own), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        place = folder / "scheduler.json"
        preload = ["--preload", str(Path(__file__).resolve())]
        shared = ["--no-dashboard", *preload]
        # Where this process is killed, the others end by themselves.
        last = ["--idle-timeout", "300"]
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", place, *last, *shared
        )
        while not (place.exists() and place.read_text().strip()):
            if self.scheduler.poll() is not None:
                raise RuntimeError((folder / "scheduler.log").read_text())
            time.sleep(0.05)
        self.address = json.loads(place.read_text())["address"]
        limits = ["--no-nanny", "--memory-limit", "0"] if memory_limit is None else ["--memory-limit", memory_limit]
        self._options = ["--nthreads", "1", "--local-directory", folder, *limits, *shared]
        self.workers = [self.start_worker(f"worker-{i}") for i in range(n_workers)]

    def start_worker(self, name: str) -> subprocess.Popen:
        """A further worker, which writes a log of this name."""
        return self._start("worker", self.address, *self._options, log=name)

    def _start(self, kind: str, *options: object, log: str | None = None) -> subprocess.Popen:
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *map(str, options)]
        with open(self.folder / f"{log or kind}.log", "wb") as stream:
            return subprocess.Popen(command, stdout=stream, stderr=stream, env=self.environment)

    def complaints(self) -> dict[str, int]:
        """How many lines of the logs say that memory is short."""
        text = "".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))
        return {name: sum(1 for line in text.splitlines() if what.search(line)) for name, what in COMPLAINTS.items()}

    def end(self) -> None:
        """End all of them, workers first so that they do not look for a scheduler."""
        for process in (*self.workers, self.scheduler):
            process.terminate()
        for process in (*self.workers, self.scheduler):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def cluster_of(n_workers: int, folder: Path, **more: Any) -> Iterator[tuple[Processes, Client]]:
    """The processes and a client of them; all end with the block."""
    processes = Processes(n_workers, folder, **more)
    try:
        with Client(processes.address, timeout=60) as client:
            client.wait_for_workers(n_workers, timeout=120)
            yield processes, client
    finally:
        processes.end()


class Account:
    """What a cluster does in a block: seconds, CPU seconds, bytes, and tasks by name."""

    def __init__(self, processes: Processes, client: Client) -> None:
        self.processes, self.client = processes, client

    def _now(self) -> dict[str, Any]:
        def cpu(pid: int) -> float:
            times = psutil.Process(pid).cpu_times()
            return times.user + times.system

        return {
            "seconds": time.perf_counter(),
            "client_cpu": cpu(os.getpid()),
            "scheduler_cpu": cpu(self.processes.scheduler.pid),
            "worker_cpu": sum(cpu(one.pid) for one in self.processes.workers),
            "from_client": bytes_sent(),
            "from_scheduler": self.client.run_on_scheduler(bytes_sent),
            "from_workers": sum(self.client.run(bytes_sent).values()),
            "between_workers": sum(self.client.run(between_workers).values()),
        }

    def __enter__(self) -> Account:
        time.sleep(_BETWEEN_HEARTBEATS)
        self._steps, self._start = self.client.run_on_scheduler(steps_so_far), self._now()
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is not None:
            return
        end = self._now()
        # Workers tell what their threads did now and then.
        time.sleep(_BETWEEN_HEARTBEATS)
        steps = self.client.run_on_scheduler(steps_so_far)
        self.figures: dict[str, Any] = {name: end[name] - self._start[name] for name in end}
        self.steps = {}
        for name, found in steps.items():
            before = self._steps.get(name, {})
            own = {key: value - before.get(key, 0) for key, value in found.items()}
            if own["tasks"]:
                self.steps[name] = own
        self.figures["tasks"] = sum(own["tasks"] for own in self.steps.values())
