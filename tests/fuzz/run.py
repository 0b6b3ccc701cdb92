"""Mutated inputs through the targets, watched one by one: ``python -m tests.fuzz.run --inputs 1000000``.

Every input must parse or end in a documented error (a TagwiseError), within 5 seconds of CPU and within 500 MB plus 20
times its size of memory. Whatever does not is a finding and is saved; ``--again FILE`` runs it once more. Inputs are
numbered and follow from the seed. A batch of them has a process of its own; where a signal or its time limit ends that,
the input that it died of is a finding, and those around it run in other processes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from tagwise import __version__
from tagwise.exceptions import TagwiseError
from tests.fuzz.targets import MODULES, Target, all_targets, shares, write_results

CPU_SECONDS = 5.0
FREE_BYTES = 500 * 2**20
BYTES_PER_BYTE = 20
# Beyond any allowed peak: an allocation that would harm the machine fails instead.
ADDRESS_SPACE = 3 * 2**30
BATCH = 5000


@dataclass
class Outcomes:
    """What became of some inputs."""

    kinds: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0.0
    slowest_input: str = ""
    peak_bytes: int = 0
    peak_input: str = ""
    findings: list[tuple[str, int, str]] = field(default_factory=list)  # target, number, what happened

    def add(self, other: Outcomes) -> None:
        """Take in what became of others."""
        self.kinds += other.kinds
        if other.slowest_seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest_input = other.slowest_seconds, other.slowest_input
        if other.peak_bytes > self.peak_bytes:
            self.peak_bytes, self.peak_input = other.peak_bytes, other.peak_input
        self.findings += other.findings


def run_one(target: Target, content: bytes, folder: Path) -> tuple[str, str]:
    """(kind, description) of one input: ``parsed``, ``documented error`` or ``finding``."""
    for left in folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    try:
        target.run(content, folder)
    except TagwiseError as error:
        return "documented error", str(error)
    except Exception:
        return "finding", traceback.format_exc(limit=-6)
    return "parsed", ""


class _Watch:
    """CPU seconds and memory of single inputs in this process."""

    def start(self) -> None:
        # The default action of the signal ends the process, also inside of compiled code.
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._before, self._started = _peak_bytes(), time.process_time()

    def stop(self) -> tuple[float, int]:
        signal.setitimer(signal.ITIMER_PROF, 0)
        return time.process_time() - self._started, _peak_bytes() - self._before


def _peak_bytes() -> int:
    """Most memory held by this process, as Linux counts it; 0 elsewhere."""
    try:
        content = Path("/proc/self/status").read_bytes()
    except OSError:
        return 0
    at = content.index(b"VmHWM:") + 6
    return int(content[at : content.index(b"kB", at)]) * 1024


def run_numbers(target: Target, seed: int, numbers: range, watch: _Watch | None, at: Any = None) -> Outcomes:
    """Run the inputs of these numbers; ``at`` is told which one is being run."""
    found = Outcomes()
    with tempfile.TemporaryDirectory(prefix="tagwise-fuzz-", dir=_memory_folder()) as name:
        for number in numbers:
            content = target.input(seed, number)
            if at is not None:
                at.value = number
            if watch is not None:
                watch.start()
            kind, what = run_one(target, content, Path(name))
            if watch is not None:
                seconds, peak = watch.stop()
                label = f"{target.name} {number}"
                if seconds > found.slowest_seconds:
                    found.slowest_seconds, found.slowest_input = seconds, label
                if peak > found.peak_bytes:
                    found.peak_bytes, found.peak_input = peak, label
                if peak > FREE_BYTES + BYTES_PER_BYTE * len(content):
                    kind, what = "finding", f"took {peak / 2**20:.0f} MB for {len(content):,} bytes\n{what}"
            found.kinds[kind] += 1
            if kind == "finding":
                found.findings.append((target.name, number, what))
    return found


def _memory_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _work(name: str, seed: int, numbers: range, at: Any, answer: Any) -> None:
    """Run a batch in this process, with limits."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE + _address_space(), hard))
    target = all_targets()[name]
    for content in target.seeds():  # loading what was compiled counts for no input
        with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
            run_one(target, content, Path(folder))
    answer.send(run_numbers(target, seed, numbers, _Watch(), at))


def _address_space() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 2**30


def run_batch(name: str, seed: int, numbers: range) -> Outcomes:
    """What becomes of these inputs in a process of their own."""
    context = multiprocessing.get_context("forkserver")
    received, answer = context.Pipe(duplex=False)
    at = context.Value("q", numbers.start, lock=False)
    process = context.Process(target=_work, args=(name, seed, numbers, at, answer), daemon=True)
    process.start()
    answer.close()
    try:
        return received.recv()
    except EOFError:
        process.join()
    code, died = process.exitcode, at.value
    why = f"more than {CPU_SECONDS:g} s of CPU" if code == -signal.SIGPROF else f"the process ended with {code}"
    found = Outcomes(Counter({"finding": 1}), findings=[(name, died, why)])
    for others in (range(numbers.start, died), range(died + 1, numbers.stop)):
        if others:
            found.add(run_batch(name, seed, others))
    return found


def run_all(targets: list[Target], inputs: int, seed: int, n_workers: int, save: Path | None) -> dict[str, Any]:
    """Run inputs on several processes; returns what goes into the file of results."""
    started = time.perf_counter()
    counts = shares(targets, inputs)
    batches = [
        (name, range(start, min(start + BATCH, count)))
        for name, count in counts.items()
        for start in range(0, count, BATCH)
    ]
    by_target, total = {name: Outcomes() for name in counts}, Outcomes()
    multiprocessing.set_forkserver_preload(list(MODULES))
    with ThreadPoolExecutor(n_workers) as workers:
        for done, found in enumerate(workers.map(lambda batch: run_batch(batch[0], seed, batch[1]), batches), 1):
            for outcomes in (by_target[batches[done - 1][0]], total):
                outcomes.add(found)
            for finding in found.findings:
                _report(finding, seed, save)
            print(f"{done:,} of {len(batches):,} batches done", flush=True)
    return {
        "version": __version__,
        "seed": seed,
        "runs": sum(total.kinds.values()),
        "outcomes": {kind: total.kinds[kind] for kind in ("parsed", "documented error", "finding")},
        "slowest_seconds": round(total.slowest_seconds, 3),
        "slowest_input": total.slowest_input,
        "peak_mb": round(total.peak_bytes / 2**20, 1),
        "peak_input": total.peak_input,
        "seconds": round(time.perf_counter() - started, 1),
        "limits": {"cpu_seconds": CPU_SECONDS, "mb": FREE_BYTES // 2**20, "times_the_input": BYTES_PER_BYTE},
        "targets": {
            name: {
                "outcomes": dict(found.kinds),
                "slowest_seconds": round(found.slowest_seconds, 3),
                "peak_mb": round(found.peak_bytes / 2**20, 1),
            }
            for name, found in by_target.items()
        },
    }


def _report(finding: tuple[str, int, str], seed: int, save: Path | None) -> None:
    name, number, what = finding
    print(f"\nFINDING {name} {number}: {what}", flush=True)
    if save is not None:
        (save / name).mkdir(parents=True, exist_ok=True)
        (save / name / f"{seed}-{number}").write_bytes(all_targets()[name].input(seed, number))


def main() -> None:
    parser = argparse.ArgumentParser(description="Run mutated inputs through the targets, and watch each of them.")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--targets", nargs="*", default=None, help="names; all by default")
    parser.add_argument("--module", default="tests.fuzz.readers", help="whose targets, if no names are given")
    parser.add_argument("--save", type=Path, default=Path("fuzz-findings"), help="folder for findings")
    parser.add_argument("--out", type=Path, default=None, help="the JSON file of results")
    parser.add_argument("--again", type=Path, default=None, help="run this file once, through the one target named")
    given = parser.parse_args()
    known = all_targets()
    if given.again is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(*run_one(known[given.targets[0]], given.again.read_bytes(), Path(folder)), sep=": ")
        return
    names = given.targets or [target.name for target in import_module(given.module).TARGETS]
    results = run_all([known[name] for name in names], given.inputs, given.seed, given.jobs, given.save)
    write_results(results, given.out)
    sys.exit(results["outcomes"]["finding"] > 0)


if __name__ == "__main__":
    main()
