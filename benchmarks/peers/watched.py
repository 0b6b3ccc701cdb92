"""A worker process within limits of time and memory, and why it failed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memory import _tree as process_tree

BETWEEN_LOOKS = 0.2


@dataclass(frozen=True)
class Limits:
    """What a worker may use."""

    minutes: float = 30.0
    gigabytes: float = 12.0


class WorkerError(Exception):
    """A worker that failed or was stopped; the message says why in one line."""


def run_watched(command: list[str], log: Path, limits: Limits, environment: dict[str, str] | None = None) -> None:
    """Run a command to its end; what it prints goes to ``log``."""
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        try:
            _wait(process, limits)
        finally:
            # Also the worker's own children, and also when the benchmark itself is interrupted.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode < 0:
        raise WorkerError(f"ended by {signal.Signals(-process.returncode).name}; {last_line(log)}".rstrip("; "))
    if process.returncode:
        raise WorkerError(last_line(log) or f"exit code {process.returncode}")


def _wait(process: subprocess.Popen, limits: Limits) -> None:
    end = time.monotonic() + 60 * limits.minutes
    while True:
        try:
            process.wait(BETWEEN_LOOKS)
            return
        except subprocess.TimeoutExpired:
            pass
        if time.monotonic() > end:
            raise WorkerError(f"stopped: more than {limits.minutes:g} minutes")
        if sum(resident_bytes(pid) for pid in process_tree(process.pid)) > 1e9 * limits.gigabytes:
            raise WorkerError(f"stopped: more than {limits.gigabytes:g} GB of memory")


def resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def last_line(log: Path) -> str:
    """The last line of a log that is not empty, shortened."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
