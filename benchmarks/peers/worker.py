"""Runs one system of one plug-in, in the peer's own Python: `python worker.py JOB.json`.

Imports numpy, scipy and the peer, nothing of tagwise. A job has two phases, each a process of its own: "train" trains,
saves, loads what was saved and answers the test rows; "one row" loads it again, on one thread, and answers rows one by
one. Results go to files; what a peer prints goes to the log, whose last line says why a job failed.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

import numpy as np
from memory import forget_peak, peak_bytes

from peers.exchange import RESULT, Job, Problem, read_matrix, write_labels
from peers.plugin import Plugin, read_plugin

# Short predictions are repeated, at most so often and for so long, and the median counts.
MOST_REPEATS = 5
LONGEST_REPEATS = 10.0
WARM_ROWS = 20


def train(job: Job, plugin: Plugin) -> dict[str, Any]:
    """Everything but one-row latency."""
    module, threads = plugin.module, job.threads
    problem = Problem.read(Path(job.problem), with_mask=plugin.learns_from_mask)
    scratch, folder = Path(job.scratch), Path(job.model)
    settings, result = job.settings, {}
    if plugin.has("warm_up"):
        module.warm_up(settings, threads)
    if plugin.has("prepare"):
        module.prepare(problem, settings, scratch)
    if plugin.has("choose"):
        (settings, details), seconds, cpu = timed(lambda: module.choose(problem, settings, threads))
        if details is not None:
            result["choice"] = {**details, "seconds": seconds, "cpu_seconds": cpu}
    before = forget_peak()
    model, seconds, cpu = timed(lambda: module.train(problem, settings, threads, scratch))
    peak = peak_bytes() - before
    module.save(model, folder)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    del model
    before = forget_peak()
    answering = module.load(folder, settings, threads)
    answer, batch = repeated(lambda: module.predict(answering, problem.X_test, job.places, threads))
    peak = max(peak, peak_bytes() - before)
    write_labels(Path(job.out), ranked(plugin, answer, (problem.X_test.shape[0], job.places)))
    return {
        **result,
        "settings_used": settings,
        "version": version(module.DISTRIBUTION),
        "python": platform.python_version(),
        "train_seconds": seconds,
        "train_cpu_seconds": cpu,
        "batch_ms_per_row": 1e3 * batch / problem.X_test.shape[0],
        "peak_mb": max(peak, 0) / 1e6,
        "model_mb": size / 1e6,
    }


def one_row(job: Job, plugin: Plugin) -> dict[str, Any]:
    """Median milliseconds of an answer to one row, on one thread."""
    X = read_matrix(job.problem, "X_test")
    answering = plugin.module.load(Path(job.model), job.chosen or job.settings, 1)
    rows = [X[row] for row in range(min(job.rows, X.shape[0]))]
    times = []
    for row in rows[:WARM_ROWS] + rows:
        start = time.perf_counter()
        plugin.module.predict(answering, row, job.places, 1)
        times.append(time.perf_counter() - start)
    return {"one_row_ms": 1e3 * float(np.median(times[-len(rows) :]))}


def ranked(plugin: Plugin, answer: Any, shape: tuple[int, int]) -> np.ndarray:
    """Label numbers, best first, whatever the peer itself answers with."""
    labels = np.asarray(plugin.module.ranked(answer, shape[1]) if plugin.has("ranked") else answer)
    if labels.shape != shape or labels.dtype.kind not in "iu":
        raise TypeError(f"the answer must be label numbers {shape}; found {labels.dtype} {labels.shape}")
    return labels


def timed(function: Callable[[], Any]) -> tuple[Any, float, float]:
    """What a call returns, its wall seconds and its CPU seconds, those of finished child processes included."""
    start, cpu = time.perf_counter(), sum(os.times()[:4])
    value = function()
    return value, time.perf_counter() - start, sum(os.times()[:4]) - cpu


def repeated(function: Callable[[], Any]) -> tuple[Any, float]:
    """The first answer, and the median seconds."""
    times: list[float] = []
    first = None
    while len(times) < MOST_REPEATS and sum(times) < LONGEST_REPEATS:
        start = time.perf_counter()
        answer = function()
        times.append(time.perf_counter() - start)
        first = answer if first is None else first
    return first, float(np.median(times))


def main() -> None:
    job = Job.read(Path(sys.argv[1]))
    plugin = read_plugin(job.plugin)
    result = {"train": train, "one row": one_row}[job.phase](job, plugin)
    (Path(job.out) / RESULT).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
