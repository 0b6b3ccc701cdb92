"""Memory of a run at its peak, alone or with all its processes, and cells that run in a process of their own."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path


class PeakMemory:
    """The largest sum of the memory of this process and its children while the block runs, in bytes.

    Memory that processes share (memory maps, say) counts once: Linux tells each process its proportional share. Other
    systems tell only the largest resident size of this process.
    """

    def __enter__(self) -> PeakMemory:
        self.bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()
        if not self.bytes:
            self.bytes = _peak_since_start()

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            self.bytes = max(self.bytes, sum(_proportional_bytes(pid) for pid in _tree(os.getpid())))


def forget_peak() -> int:
    """Reset the kernel's peak of resident memory where that is possible; returns the resident bytes of now."""
    gc.collect()
    # Memory that was freed but is kept for reuse would hide what comes next. Only glibc has the call.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status_bytes("VmRSS")
    except OSError:
        return _peak_since_start()


def peak_bytes() -> int:
    """The kernel's own peak of resident bytes: exact however short, and also while other code holds the interpreter."""
    try:
        return _status_bytes("VmHWM")
    except OSError:
        return _peak_since_start()


def _status_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return 1024 * int(line.split()[1])
    raise OSError(f"/proc/self/status has no {key}")


def _peak_since_start() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def run_cell(
    script: str | Path, cell: dict, *, environment: dict[str, str] | None = None, minutes: float | None = None
) -> dict:
    """``python script --cell …`` in a fresh process, whose last line of output is the result as JSON."""
    command = [sys.executable, str(script), "--cell", json.dumps(cell)]
    most = None if minutes is None else 60 * minutes
    environment = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment, timeout=most)
    except subprocess.TimeoutExpired:
        return {**cell, "error": f"stopped: more than {minutes:g} minutes"}
    if done.returncode:
        return {**cell, "error": f"exit code {done.returncode}"}
    return {**cell, **json.loads(done.stdout.strip().splitlines()[-1])}


def _tree(root: int) -> list[int]:
    """The process and all below it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found, todo = [], [root]
    while todo:
        found.append(todo.pop())
        todo.extend(parents.get(found[-1], []))
    return found


def _proportional_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return 0
