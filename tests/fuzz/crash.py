"""Crashes, full disks, failing calls and races of everything that writes: ``python -m tests.fuzz.crash --kills 200``.

What writes is a :class:`Scenario`: how a folder is before, what a process does to it, and what may be found after that
process was killed at any moment. Beside kills (SIGKILL) at random moments, every input or output call of a save fails
once or from then on, or is the last one, the disk is full after any number of bytes, folders are read-only, two
processes save to one folder, and folders are replaced and cut off while they are read. A finding is an outcome that is
neither old nor new, or an exception that is not documented.
"""

from __future__ import annotations

import argparse
import errno
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import scipy.sparse as sp

from tagwise import __version__
from tagwise.exceptions import ModelFormatError
from tagwise.store import Checkpoint, ModelRecord, atomic, read_model, write_model
from tests.fuzz.targets import write_results


class Finding(AssertionError):
    """Something that must never be found."""


class Tally:
    """Outcomes of runs, and what must not be found."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.findings: list[str] = []

    def add(self, where: str, look: Callable[[], str]) -> None:
        """Count the outcome that ``look`` names; what it raises is a finding."""
        try:
            self.outcomes[look()] += 1
        except Exception:
            self.outcomes["finding"] += 1
            self.findings.append(f"{where}: {traceback.format_exc(limit=-4)}")

    def report(self) -> dict[str, Any]:
        """For the file of results."""
        return {"runs": sum(self.outcomes.values()), "outcomes": dict(self.outcomes), "findings": self.findings}


# ---------------------------------------------------------------------- what is written, and what may be found


def record(seed: int) -> ModelRecord:
    """A small model of which every byte depends on the seed."""
    rng = np.random.default_rng(seed)
    sparse = sp.csr_matrix(rng.random((50, 50)) * (rng.random((50, 50)) < 0.1))
    names = [f"label {seed} {number}" for number in range(200)]
    return ModelRecord("LEML", {"rank": seed}, {"W": rng.random((300, 100)), "S": sparse}, {"n_iter_": seed}, names)


MODELS = {"old": record(1), "new": record(2)}


def which(folder: Path) -> str:
    """The model that a folder holds, bit by bit."""
    found = _content(read_model(folder))
    for name, model in MODELS.items():
        if found == _content(model):
            return name
    raise Finding(f"{folder} holds neither the old model nor the new one")


def _content(model: ModelRecord) -> tuple[Any, ...]:
    S = model.tensors["S"]
    arrays = tuple(array.tobytes() for array in (model.tensors["W"], S.data, S.indices, S.indptr))
    return model.class_name, model.parameters, model.values, model.label_names, arrays


def _save(name: str, folder: Path) -> None:
    write_model(folder, MODELS[name])


def _reset(folder: Path, fresh: bool) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if not fresh:
        _save("old", folder)


class Scenario(NamedTuple):
    """One thing that a process may be killed at."""

    name: str
    prepare: Callable[[Path], object]
    """Makes what is there before; the folder itself does not exist yet."""
    act: Callable[[Path], object]
    """Runs in another process, which is killed."""
    check: Callable[[Path], str]
    """Looks at what is left, raises Finding for what must not be, and names the outcome."""


def _check_save(folder: Path) -> str:
    """The model that is left; nothing or leftovers only where a process was killed."""
    try:
        found = which(folder)
        left = " with leftovers" if len(os.listdir(folder)) != 2 else ""
    except ModelFormatError:
        if (folder / "manifest.json").exists():
            raise Finding("a folder with a manifest does not load") from None
        found, left = "nothing", ""
    _check_next_save(folder)
    return found + left


def _check_overwrite(folder: Path) -> str:
    found = _check_save(folder)
    if found == "nothing":
        raise Finding("the old model is lost")
    return found


def _check_next_save(folder: Path) -> None:
    _save("new", folder)
    if which(folder) != "new" or len(os.listdir(folder)) != 2:
        raise Finding(f"the save after a crash left {sorted(os.listdir(folder))}")


def _fit(folder: Path) -> str:
    """A fit with a checkpoint in every round; its model's numbers."""
    from tagwise import LEML

    rng = np.random.default_rng(0)
    X = sp.csr_matrix(sp.random(40, 10, 0.3, random_state=1))
    Y = sp.csr_matrix((X @ rng.standard_normal((10, 6)) > 0.5).astype(float))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LEML(rank=3, max_iter=6, tol=0).fit(X, Y, checkpoint=Checkpoint(folder))
    arrays = (model.objective_, model.feature_factors_, model.label_factors_, model.intercept_)
    return b"".join(array.tobytes() for array in arrays).hex()


@cache
def _whole_fit() -> str:
    """The numbers of a fit that nothing disturbs.

    It is made in this process, on one thread: what is compiled is then there in every process that is forked, which
    would otherwise load it for longer than it fits.
    """
    with tempfile.TemporaryDirectory() as name:
        return _fit(Path(name) / "checkpoint")


def _check_checkpoint(folder: Path) -> str:
    there = Checkpoint(folder).exists()
    if _in_child(partial(_fit, folder)) != _whole_fit():
        raise Finding("a resumed fit ended with other bits")
    Checkpoint(folder).discard()
    return "resumed" if there else "started anew"


def _save_alternately(folder: Path) -> None:
    while True:
        _save("new", folder)
        _save("old", folder)


SCENARIOS = [
    Scenario("save", lambda folder: None, partial(_save, "new"), _check_save),
    Scenario("overwrite", partial(_save, "old"), _save_alternately, _check_overwrite),
    Scenario("checkpoint", lambda folder: _whole_fit(), _fit, _check_checkpoint),
]
"""What is killed. Everything that writes belongs here."""


# ---------------------------------------------------------------------- processes


def _started(act: Callable[[], object]) -> Any:
    """A process that does this and ends; its limits, rights and signals are not those of this one."""
    process = multiprocessing.get_context("fork").Process(target=act)
    process.start()
    return process


def _in_child(function: Callable[[], object]) -> str:
    """What a function returns in a process of its own."""
    received, answer = multiprocessing.Pipe(duplex=False)

    def act() -> None:
        try:
            answer.send(str(function()))
        except BaseException:
            answer.send(Finding(traceback.format_exc(limit=-4)))

    process = _started(act)
    answer.close()
    try:
        found = received.recv()
    except EOFError:
        found = Finding("without an answer")
    process.join()
    if isinstance(found, Finding) or process.exitcode:
        raise Finding(f"a process ended with {process.exitcode}: {found}")
    return found


def kill_scenario(scenario: Scenario, base: Path, kills: int, seed: int) -> dict[str, Any]:
    """Outcomes of kills at random moments of one scenario."""
    chance, tally = random.Random(f"{seed}/{scenario.name}"), Tally()
    folder = base / scenario.name
    scenario.prepare(folder)
    started = time.perf_counter()
    if scenario.act is _save_alternately:
        _save("new", folder)
        longest = 2.5 * (time.perf_counter() - started)
    else:
        _in_child(partial(scenario.act, folder))
        longest = 1.2 * (time.perf_counter() - started)
    for _ in range(kills):
        shutil.rmtree(folder, ignore_errors=True)
        scenario.prepare(folder)
        process = _started(partial(scenario.act, folder))
        time.sleep(chance.uniform(0, longest))
        process.kill()
        process.join()
        tally.add(scenario.name, partial(scenario.check, folder))
    return tally.report()


# ---------------------------------------------------------------------- every call fails, or is the last


@contextmanager
def counted_calls(act: Callable[[int], None] = lambda number: None) -> Iterator[list[str]]:
    """The calls of a save to the system; ``act`` gets the number of each before it is made, and may raise or kill."""
    calls: list[str] = []

    def count(name: str) -> None:
        calls.append(name)
        act(len(calls) - 1)

    def counted(name: str) -> Any:
        original = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            count(name)
            return original(*arguments, **options)

        return mock.patch.object(os, name, call)

    class Raw(io.FileIO):
        def write(self, content: Any) -> int:
            # Half of the bytes get through first, as on a disk that fills up.
            count("write")
            return super().write(memoryview(content)[: max(1, len(content) // 2)])

    def opened(path: Any, mode: str) -> Any:
        count("open")
        return io.BufferedWriter(Raw(path, mode.replace("b", ""))) if "x" in mode else open(path, mode)

    with ExitStack() as stack:
        for name in ("open", "fsync", "replace", "unlink", "mkdir", "listdir", "rmdir"):
            stack.enter_context(counted(name))
        stack.enter_context(mock.patch.object(atomic, "open", opened, create=True))
        yield calls


def _every_call(folder: Path) -> Iterator[tuple[bool, int, str]]:
    """(whether it is a first save, number, description) of each call of a first save and of an overwrite."""
    for fresh in (True, False):
        _reset(folder, fresh)
        with counted_calls() as calls:
            _save("new", folder)
        for number, call in enumerate(calls):
            yield fresh, number, f"{call} {number} of {'a first save' if fresh else 'an overwrite'}"


def fail_every_call(base: Path) -> dict[str, Any]:
    """Each call of a first save and of an overwrite fails once, with each of three errors, and then from there on."""
    folder, tally = base / "calls", Tally()
    for fresh, number, where in _every_call(folder):
        for code, forever in ((errno.EIO, False), (errno.ENOSPC, False), (errno.EACCES, False), (errno.ENOSPC, True)):
            _reset(folder, fresh)
            look = partial(_failed_save, folder, number, code, fresh, forever)
            tally.add(f"{where}, {errno.errorcode[code]}{' forever' * forever}", look)
    return tally.report()


def _failed_save(folder: Path, number: int, code: int, fresh: bool, forever: bool) -> str:
    def act(now: int) -> None:
        if now == number or (forever and now > number):
            raise OSError(code, os.strerror(code))

    failed = False
    try:
        with counted_calls(act):
            _save("new", folder)
    except OSError as error:
        failed = True
        if error.errno != code or str(folder) not in str(error):
            raise Finding(f"the error does not say what and where: {error}") from None
    try:
        found = which(folder)
    except ModelFormatError:
        if not (fresh and failed):
            raise
        found = "nothing"
    if not failed and found != "new":
        raise Finding(f"the save said nothing, and the folder holds the {found} model")
    if not forever and folder.exists() and any(name.endswith(".tmp") for name in os.listdir(folder)):
        raise Finding(f"a temporary file was left: {os.listdir(folder)}")
    _check_next_save(folder)
    return f"{'refused' if failed else 'saved'}, {found} left"


def kill_every_call(base: Path) -> dict[str, Any]:
    """A process is killed at each call of a first save and of an overwrite, before the call."""
    folder, tally = base / "killed", Tally()
    for fresh, number, where in _every_call(folder):
        _reset(folder, fresh)

        def act(now: int, number: int = number) -> None:
            if now == number:
                os.kill(os.getpid(), signal.SIGKILL)

        def save(act: Callable[[int], None] = act) -> None:
            with counted_calls(act):
                _save("new", folder)

        _started(save).join()
        tally.add(f"killed before {where}", partial(_check_save if fresh else _check_overwrite, folder))
    return tally.report()


# ---------------------------------------------------------------------- no room, no rights


def _tried_save(folder: Path) -> str:
    try:
        _save("new", folder)
    except OSError as error:
        return f"refused: {errno.errorcode.get(error.errno or 0, 'no errno')}"
    return "saved"


def full_disk(base: Path, levels: int) -> dict[str, Any]:
    """Files that may not grow beyond a number of bytes (RLIMIT_FSIZE), from none to all that a save needs."""
    folder, tally = base / "full", Tally()
    _reset(folder, fresh=False)
    most = max(path.stat().st_size for path in folder.iterdir())

    def save(limit: int) -> str:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return _tried_save(folder)

    def look(limit: int) -> str:
        _reset(folder, fresh=False)
        said = _in_child(partial(save, limit))
        found = which(folder)
        if (said == "saved") != (found == "new"):
            raise Finding(f"the save {said}, and the folder holds the {found} model")
        _check_next_save(folder)
        return f"{said}, {found} left"

    for level in range(levels):
        limit = round(most * level / (levels - 1)) + (8 if level == levels - 1 else 0)
        tally.add(f"limit {limit}", partial(look, limit))
    return tally.report()


def read_only(base: Path) -> dict[str, Any]:
    """A folder, and a parent, that may not be written to; as another user where this one may do everything."""

    def save(target: Path) -> str:
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        return _tried_save(target)

    def look(target: Path) -> str:
        said = _in_child(partial(save, target))
        if said.removeprefix("refused: ") not in ("EACCES", "EPERM", "EROFS") or which(folder) != "old":
            raise Finding(f"a save into a read-only folder: {said}")
        return said

    tally, folder = Tally(), base / "read-only"
    base.chmod(0o755)
    _save("old", folder)
    folder.chmod(0o555)
    for target in (folder, folder / "inside"):
        tally.add(str(target), partial(look, target))
    folder.chmod(0o755)
    return tally.report()


# ---------------------------------------------------------------------- races


def _race(folder: Path, reads: int, *changes: Callable[[Path], object]) -> dict[str, Any]:
    """Read a folder while other processes change it; each change is repeated until all reads are done."""
    tally = Tally()
    _save("old", folder)

    def repeat(change: Callable[[Path], object]) -> None:
        while True:
            change(folder)

    def read() -> str:
        found: Counter[str] = Counter()
        for _ in range(reads):
            try:
                found[which(folder)] += 1
            except ModelFormatError:
                found["documented error"] += 1
        return json.dumps(found)

    processes = [_started(partial(repeat, change)) for change in changes]
    try:
        # In a process of its own: a signal (SIGBUS) is a finding, not the end.
        tally.outcomes.update(json.loads(_in_child(read)))
    except Exception:
        tally.findings.append(traceback.format_exc(limit=-3))
    for process in processes:
        process.kill()
        process.join()
        if process.exitcode != -signal.SIGKILL:
            tally.findings.append(f"a process that changed {folder.name} ended by itself")
    if tally.findings:
        tally.outcomes["finding"] = len(tally.findings)
    return {**tally.report(), "runs": reads}


def _replace_folder(folder: Path) -> None:
    for name in ("new", "old"):
        other, aside = (folder.with_name(f"{folder.name}-{what}") for what in (name, "aside"))
        for left in (other, aside):
            shutil.rmtree(left, ignore_errors=True)
        _save(name, other)
        folder.rename(aside)
        other.rename(folder)


def _cut_off(folder: Path) -> None:
    (payload,) = folder.glob("*.safetensors")
    content = payload.read_bytes()
    for size in (0, 8, len(content) // 2, len(content) - 1):
        with open(payload, "r+b") as stream:
            stream.truncate(size)
            stream.seek(0)
            stream.write(content)
        time.sleep(0.003)  # some readers find it whole


def races(base: Path, reads: int) -> dict[str, Any]:
    """Two processes save, a folder is replaced by another, and its tensors are cut off, while it is read."""
    two = _race(base / "two", reads, partial(_save, "new"), partial(_save, "old"))
    refused = two["outcomes"].get("documented error", 0)
    if refused:  # a reader beside saves always finds a whole model
        two["findings"].append(f"{refused} reads were refused while others saved")
        two["outcomes"]["finding"] = 1
    replaced, cut = _race(base / "replaced", reads, _replace_folder), _race(base / "cut", reads, _cut_off)
    return {"race: two saves": two, "race: replaced": replaced, "race: cut off": cut}


# ---------------------------------------------------------------------- all of it


def run_all(kills: int, seed: int, scenarios: list[str]) -> dict[str, Any]:
    """Everything; returns the content of the file of results."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="tagwise-crash-") as name:
        base = Path(name)
        found: dict[str, Any] = {
            f"kill: {scenario.name}": kill_scenario(scenario, base, kills, seed)
            for scenario in SCENARIOS
            if scenario.name in scenarios
        }
        found["kill at every call"] = kill_every_call(base)
        found["every call fails"] = fail_every_call(base)
        found["no room (RLIMIT_FSIZE)"] = full_disk(base, max(10, kills // 2))
        found["read-only folders"] = read_only(base)
        found |= races(base, 5 * kills)
    findings = [f"{key}: {what}" for key, value in found.items() for what in value.pop("findings")]
    return {
        "version": __version__,
        "seed": seed,
        "runs": sum(value["runs"] for value in found.values()),
        "findings": findings,
        "seconds": round(time.perf_counter() - started, 1),
        "cases": found,
    }


def main() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(description="Kill, starve and disturb everything that writes.")
    parser.add_argument("--kills", type=int, default=200, help="of each scenario")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scenarios", nargs="*", default=names, help="names of those that are killed; all by default")
    parser.add_argument("--out", type=Path, default=None, help="the JSON file of results")
    given = parser.parse_args()
    results = run_all(given.kills, given.seed, given.scenarios)
    write_results(results, given.out)
    sys.exit(bool(results["findings"]))


if __name__ == "__main__":
    main()
