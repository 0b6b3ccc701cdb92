"""How long the command takes to start: ``--help``, and a cold ``predict`` beside the imports that it stands on.

Runs are interleaved and the best of each counts; a cold predict should take at most 1.5 times as long as the imports.
The first run of all compiles the kernels and writes byte code, as an installation does, and is not counted. Writes
results/start_up.json. What a start imports, which is what makes it quick or slow, is tested in tests/cli.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
from pages import store

RUNS = 5
ALLOWED = 1.5
RESULT = Path(__file__).parent / "results" / "start_up.json"


def seconds(arguments):
    """Wall-clock and processor time of one process."""
    start = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen([sys.executable, *arguments], env=environment, **quiet)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"python {' '.join(arguments)} failed.")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime


def main():
    from tagwise import Cascade, Tagger

    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "tagger")
        texts, tags = ["a cat and a dog", "red wine", "a dog", "white wine"] * 3, [["pets"], ["drinks"]] * 6
        Tagger(Cascade(rank=2)).fit(texts, tags).save(model)
        commands = {
            "imports": ["-c", "import sklearn, scipy.sparse, numba"],
            "predict": ["-m", "tagwise", "predict", model, "my dog"],
            "help": ["-m", "tagwise", "--help"],
        }
        seconds(commands["predict"])
        times = {name: [] for name in commands}
        for _ in range(RUNS):
            for name, arguments in commands.items():
                times[name].append(seconds(arguments))
    report = {"machine": machine.description(), "runs": RUNS, "allowed": ALLOWED}
    for kind, what in enumerate(("wall_clock", "processor")):
        best = {name: min(run[kind] for run in runs) for name, runs in times.items()}
        report[what] = {**best, "predict / imports": best["predict"] / best["imports"]}
        shown = ", ".join(f"{name} {value:.2f}" for name, value in report[what].items())
        print(f"{what}: {shown} (at most {ALLOWED})")
    store(RESULT, report)


if __name__ == "__main__":
    main()
