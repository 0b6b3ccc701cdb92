"""Ctrl-C at random moments of fits and predictions of all models: ``python -m tests.fuzz.interrupts --count 500``.

A child process fits and predicts; its parent sends SIGINT at a moment that follows from the seed (as a share of how
long the same call takes uninterrupted). The call must end with KeyboardInterrupt, or have ended before; the model must
be as it was before the call; and the same call again must give the same bits. Commands (``tagwise train`` and
``predict``) must end with exit code 130, and say how to resume where there is a checkpoint. Anything else is a finding:
another exception, a changed model, other bits, a signal, or no answer for a minute.

Half of the fits are refits of a fitted model. Some children begin with an empty cache of compiled code, so that
interrupts also hit the compiler.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import itertools
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tests.fuzz.targets import write_results

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "helpers"))
NO_ANSWER_SECONDS = 60.0
# Interrupts that one child takes before the next one begins.
PER_CHILD = 10
# Of all interrupts, those that meet an empty cache of compiled code, and those of commands.
COLD, COMMANDS = 0.02, 0.12


# ---------------------------------------------------------------------- what is interrupted


def data() -> tuple[Any, Any, Any]:
    """Rows of the sample that take the models about a second."""
    from tagwise.data import load_dataset

    sample = load_dataset("debtags-sample")
    often = np.asarray(sample.Y_train.sum(axis=0)).ravel().argsort()[::-1][:60]
    return sample.X_train[:800, :3000], sample.Y_train[:800][:, np.sort(often)], sample.X_train[800:2000, :3000]


def makers() -> dict[str, Any]:
    """Name → maker of every model of the registry, in every variant of the contract tests."""
    from contract_models import MAKERS

    def with_memory(make: Any) -> Any:  # the limits there are for tiny data
        return partial(make, memory_limit=2.0**31) if "memory_limit" in make.parameters else make

    return {make.name: with_memory(make) for make in MAKERS}


def digest(value: Any) -> str:
    """Of all that a model, or an answer, consists of."""
    found = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, np.ndarray):
            found.update(f"{part.dtype}{part.shape}".encode())
            found.update(np.ascontiguousarray(part).tobytes() if part.dtype != object else repr(part.tolist()).encode())
        elif sp.issparse(part):
            for array in (part.indptr, part.indices, part.data):
                add(array)
        elif isinstance(part, dict):
            for key in part:
                if key not in ("seconds", "history_"):
                    found.update(str(key).encode())
                    add(part[key])
        elif isinstance(part, (list, tuple)):
            for each in part:
                add(each)
        elif hasattr(part, "__dict__") and type(part).__module__.startswith("tagwise"):
            add({name: part.__dict__[name] for name in sorted(part.__dict__)})
        else:
            found.update(repr(part).encode())

    add(value)
    return found.hexdigest()


KINDS = ("fit", "refit", "predict")


def prepared(kind: str, make: Any, n_jobs: int) -> tuple[Any, Callable[[], Any]]:
    """A model, and the call of it that is interrupted: a first fit, one after a fit to other rows, or predictions."""
    X, Y, rows = data()
    model = make(n_jobs=n_jobs)
    if kind == "refit":
        model.fit(X[:100], Y[:100])
    if kind != "predict":
        return model, lambda: model.fit(X, Y)
    model.fit(X, Y)

    def ask() -> Any:
        many = model.predict_topk(rows, k=5)
        return many, model.decision_function(rows[:200]), [model.predict_topk(rows[i], k=3) for i in range(100)]

    return model, ask


# ---------------------------------------------------------------------- the child


def child(name: str, kind: str, n_jobs: int, first_counts: bool) -> None:
    """Answer every line of standard input by one run of the call, and a line of what became of it.

    With ``first_counts`` already the first run may be interrupted, as is wanted where the compiler is to be met.
    """
    warnings.simplefilter("ignore")
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    model, call = prepared(kind, makers()[name], n_jobs)
    before = model.__dict__
    expected = None
    seconds = 0.0
    if not first_counts:
        call()  # loads compiled code
        _restore(model, before)
        started = time.perf_counter()
        expected = digest(call())
        seconds = time.perf_counter() - started
        _restore(model, before)
    state, kept = digest(model), dict(model.__dict__)
    print(json.dumps({"seconds": seconds}), flush=True)
    for _ in sys.stdin:
        outcome, finished = "", False
        try:
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                print("started", flush=True)
                answer = call()
                finished = True
                outcome = "finished"
            finally:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        except KeyboardInterrupt:
            outcome = "finished" if finished else "KeyboardInterrupt"
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"
        print("ended", flush=True)
        faults = []
        if outcome == "KeyboardInterrupt" and not (
            digest(model) == state and all(model.__dict__.get(key) is value for key, value in kept.items())
        ):
            # A call that had ended when the interrupt came, though not yet returned, has done all it should.
            faults += [] if digest(model) == expected else ["the model has changed"]
        if outcome != "finished":
            _restore(model, kept)
            answer = call()
        if expected is None:
            expected = digest(answer)
        if digest(answer) != expected:
            faults.append("other bits")
        _restore(model, kept)
        print(json.dumps({"outcome": outcome, "faults": faults}), flush=True)


def _restore(model: Any, attributes: dict[str, Any]) -> None:
    model.__dict__ = dict(attributes)


# ---------------------------------------------------------------------- the parent


class NoAnswerError(Exception):
    """A child that said nothing for too long, or has ended."""


class Child:
    """A process that runs a call when told, and can be interrupted meanwhile."""

    def __init__(self, name: str, kind: str, n_jobs: int, cold: bool = False) -> None:
        environment, self._cache = dict(os.environ), None
        if cold:
            self._cache = tempfile.mkdtemp(prefix="tagwise-cold-")
            environment["NUMBA_CACHE_DIR"] = self._cache
        arguments = [sys.executable, "-m", "tests.fuzz.interrupts", "--child", name, kind, str(n_jobs), str(int(cold))]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        self._process = subprocess.Popen(
            arguments,
            bufsize=0,  # what has been read ahead, select would not see
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=REPOSITORY,
            env=environment,
            start_new_session=True,
        )
        self.seconds = json.loads(self._line(600.0))["seconds"]

    def _line(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            code = self._process.poll() if not ready else self._process.wait(NO_ANSWER_SECONDS)
            if code is None:  # where is it?
                self._process.send_signal(signal.SIGUSR1)
                time.sleep(1.0)
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace")[-2000:]
            raise NoAnswerError("hang" if code is None else f"exit {code}", said)
        return line

    def interrupt(self, after: float) -> dict[str, Any]:
        """Run the call, interrupt it ``after`` seconds; returns what became of it and how long that took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        assert self._line(NO_ANSWER_SECONDS) == b"started\n"
        ended, _, _ = select.select([self._process.stdout], [], [], after)
        sent = time.perf_counter()
        if not ended:
            self._process.send_signal(signal.SIGINT)
        assert self._line(NO_ANSWER_SECONDS) == b"ended\n"
        waited = time.perf_counter() - sent
        return {**json.loads(self._line(600.0)), "waited": waited}

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()
        if self._cache is not None:
            shutil.rmtree(self._cache, ignore_errors=True)


def interrupt_models(count: int, rng: random.Random, *, cold: bool, only: str, results: Results) -> None:
    """``count`` interrupts, dealt over all models and kinds of calls."""
    names = list(makers())
    rng.shuffle(names)
    # Every model once, each by another kind of call than its neighbours, before any model again.
    plan = [
        (name, KINDS[(turn + place) % len(KINDS)]) for turn in range(len(KINDS)) for place, name in enumerate(names)
    ]
    for name, kind in itertools.cycle([one for one in plan if only in " ".join(one)]):
        if count <= 0:
            return
        what, process = f"{name} {kind}{' cold' if cold else ''}", None
        try:
            process = Child(name, kind, rng.choice((1, 2, 3)), cold)
            for _ in range(1 if cold else min(PER_CHILD, count)):
                after = rng.uniform(0.0, 15.0) if cold else rng.uniform(0.0, 1.0) * process.seconds
                count -= results.add(what, process.interrupt(after))
        except NoAnswerError as error:
            count -= results.add(what, {"outcome": error.args[0], "faults": [error.args[1]], "waited": 0.0})
        finally:
            if process is not None:
                process.close()


def interrupt_commands(count: int, rng: random.Random, results: Results) -> None:
    """Interrupts of ``tagwise train`` and ``tagwise predict``, each a process of its own."""
    from tagwise.data import load_dataset, write_jsonl

    sample = load_dataset("debtags-sample")
    with tempfile.TemporaryDirectory(prefix="tagwise-interrupts-") as folder:
        table, model = str(Path(folder) / "rows.jsonl"), str(Path(folder) / "model")
        write_jsonl(table, sample.texts_train[:800], sample.Y_train[:800], sample.label_names)
        train = ["train", table, "--model", "cascade", "--quiet"]
        subprocess.run([sys.executable, "-m", "tagwise", *train, "--out", model], check=True, capture_output=True)
        lasting: dict[str, float] = {}
        for number in itertools.count():
            if count <= 0:
                return
            out = Path(folder) / f"out-{number}"
            verb = ("predict", "train")[number % 2]
            arguments = ["predict", model, table]
            if verb == "train":
                arguments = [*train, "--out", str(out), "--checkpoint-every", "1"]
            after = rng.uniform(0.0, 1.0) * lasting[verb] if verb in lasting else None
            seconds, found = _interrupt_command(arguments, after, Path(f"{out}.checkpoint"))
            if after is None:
                lasting[verb] = seconds
            else:
                count -= results.add(f"command {verb}", found)


# Standard error says when the command begins and when it has ended: before and after, the interpreter is starting or
# stopping, which no program has in its hands.
_COMMAND = """
import sys
from tagwise.cli import run
sys.stderr.write("started\\n")
sys.stderr.flush()
try:
    run()
finally:
    sys.stderr.write("ended\\n")
    sys.stderr.flush()
"""


def _interrupt_command(arguments: list[str], after: float | None, checkpoint: Path) -> tuple[float, dict[str, Any]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    assert process.stderr is not None
    process.stderr.readline()
    started = time.perf_counter()
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    at = time.perf_counter()
    try:
        _, said = process.communicate(timeout=NO_ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return 0.0, {"outcome": "hang", "faults": [], "waited": NO_ANSWER_SECONDS}
    text, faults = said.decode(errors="replace").rstrip(), []
    ended = text.endswith("ended")
    text = text.removesuffix("ended").rstrip()
    outcome = {0: "finished", 130: "KeyboardInterrupt"}.get(process.returncode, f"exit {process.returncode}")
    if ended and "interrupted" not in text and process.returncode == -signal.SIGINT:
        outcome = "finished"  # and all that was left to do was the interpreter's
    if outcome == "KeyboardInterrupt":
        if not text.endswith("interrupted"):
            faults.append(f"does not say that it was interrupted: {text[-1000:]}")
        if checkpoint.exists() and "--resume" not in text:
            faults.append(f"does not say how to resume: {text[-1000:]}")
    elif outcome != "finished" or "Traceback" in text:
        faults.append(text[-1000:])
    now = time.perf_counter()
    return now - started, {"outcome": outcome, "faults": faults, "waited": now - at}


class Results:
    """Outcomes of the interrupts."""

    def __init__(self) -> None:
        self.models: dict[str, Counter[str]] = {}
        self.waited: list[float] = []
        self.findings: list[str] = []

    def add(self, what: str, found: dict[str, Any]) -> bool:
        """Count one run; returns whether it was interrupted before it had ended."""
        outcome, faults = found["outcome"], list(found["faults"])
        if outcome not in ("KeyboardInterrupt", "finished"):
            faults.append(outcome)
        if faults:
            self.findings.append(f"{what}: {'; '.join(faults)}")
            print(f"FINDING {self.findings[-1]}", flush=True)
        elif outcome == "KeyboardInterrupt":
            self.waited.append(found["waited"])
        self.models.setdefault(what, Counter())["finding" if faults else outcome] += 1
        return bool(faults) or outcome != "finished"

    def report(self, seed: int) -> dict[str, Any]:
        """For the file of results."""
        from tagwise import __version__

        outcomes = sum(self.models.values(), Counter())
        median, most, slowest = np.quantile(self.waited or [0.0], (0.5, 0.95, 1.0), method="lower").round(3).tolist()
        return {
            "runs": sum(outcomes.values()),
            "outcomes": dict(sorted(outcomes.items())),
            "seconds_until_raised": {"median": median, "95%": most, "slowest": slowest},
            "seed": seed,
            "version": __version__,
            "models": {what: dict(sorted(kinds.items())) for what, kinds in sorted(self.models.items())},
            "findings": self.findings,
        }


def main() -> int:
    """Run; the exit code says whether there are findings."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="names of models and calls must contain this, as 'REML predict'")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        name, kind, n_jobs, cold = options.child
        child(name, kind, int(n_jobs), bool(int(cold)))
        return 0
    # A shell starts what runs in the background with interrupts ignored, and commands would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng, results = random.Random(options.seed), Results()
    commands, cold = (0 if options.only else round(share * options.count) for share in (COMMANDS, COLD))
    interrupt_models(options.count - commands - cold, rng, cold=False, only=options.only, results=results)
    interrupt_models(cold, rng, cold=True, only=options.only, results=results)
    interrupt_commands(commands, rng, results)
    write_results(results.report(options.seed), options.out)
    return 1 if results.findings else 0


if __name__ == "__main__":
    sys.exit(main())
