"""Crashes, full disks, failing calls and races of everything that writes: ``python -m tests.fuzz.crash --kills 200``.

What writes is a :class:`Scenario`: how a folder is before, what a process does to it, and what may be found after that
process was killed at any moment. Beside kills (SIGKILL) at random moments, every input or output call of a save fails
once, the disk is full after any number of bytes, folders are read-only, two processes save to one folder, and folders
are replaced and cut off while they are read. A finding is an outcome that is neither old nor new, or an exception that
is not documented.
"""

from __future__ import annotations

import argparse
import builtins
import errno
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp

from tagwise import __version__
from tagwise.exceptions import ModelFormatError
from tagwise.persistence import Checkpoint, ModelRecord, atomic, read_model, write_model


class Finding(AssertionError):
    """Something that must never be found."""


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


@dataclass(frozen=True)
class Scenario:
    """One thing that a process may be killed at.

    Attributes
    ----------
    prepare : callable(folder)
        Makes what is there before; the folder itself does not exist yet.
    act : callable(folder)
        Runs in another process, which is killed.
    check : callable(folder)
        Looks at what is left, raises Finding for what must not be, and names the outcome.
    """

    name: str
    prepare: Callable[[Path], object]
    act: Callable[[Path], object]
    check: Callable[[Path], str]


def _check_first_save(folder: Path) -> str:
    try:
        found = which(folder)
    except ModelFormatError:
        if (folder / "manifest.json").exists():
            raise Finding("a folder with a manifest does not load") from None
        found = "nothing"
    _check_next_save(folder)
    return found


def _check_overwrite(folder: Path) -> str:
    found = which(folder)
    left = " with leftovers" if len(os.listdir(folder)) != 2 else ""
    _check_next_save(folder)
    return found + left


def _check_next_save(folder: Path) -> None:
    write_model(folder, MODELS["new"])
    if which(folder) != "new" or len(os.listdir(folder)) != 2:
        raise Finding(f"the save after a crash left {sorted(os.listdir(folder))}")


def _fit(folder: Path) -> str:
    """A fit with a checkpoint in every round; its model's digest."""
    from tagwise import LEML

    rng = np.random.default_rng(0)
    X = sp.csr_matrix(sp.random(40, 10, 0.3, random_state=1))
    Y = sp.csr_matrix((X @ rng.standard_normal((10, 6)) > 0.5).astype(float))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LEML(rank=3, max_iter=6, tol=0).fit(X, Y, checkpoint=Checkpoint(folder))
    token = hashlib.sha256(model.objective_.tobytes())
    for array in (model.feature_factors_, model.label_factors_, model.intercept_):
        token.update(array.tobytes())
    return token.hexdigest()


@cache
def _whole_fit() -> str:
    """The digest of a fit that nothing disturbs.

    It is made in this process, on one thread: what is compiled is then there in every process that is forked, which
    would otherwise load it for longer than it fits.
    """
    with tempfile.TemporaryDirectory() as name:
        return _fit(Path(name) / "checkpoint")


def _in_child(function: Callable[..., str], *arguments: Any) -> str:
    """What a function returns in a process of its own, whose limits, rights and signals are not those of this one."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = function(*arguments)
        except BaseException:
            answer = "finding: " + traceback.format_exc(limit=-4)
        os.write(write_end, answer.encode()[:60_000])
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as stream:
        answer = stream.read().decode()
    _, status = os.waitpid(pid, 0)
    if answer.startswith("finding: ") or status:
        raise Finding(f"a process ended with {status}: {answer}")
    return answer


def _check_checkpoint(folder: Path) -> str:
    there = Checkpoint(folder).exists()
    if _in_child(_fit, folder) != _whole_fit():
        raise Finding("a resumed fit ended with other bits")
    Checkpoint(folder).discard()
    return "resumed" if there else "started anew"


def _nothing(folder: Path) -> None:
    pass


def _save_alternately(folder: Path) -> None:
    while True:
        for name in ("new", "old"):
            write_model(folder, MODELS[name])


SCENARIOS = [
    Scenario("save", _nothing, lambda folder: write_model(folder, MODELS["new"]), _check_first_save),
    Scenario("overwrite", lambda folder: write_model(folder, MODELS["old"]), _save_alternately, _check_overwrite),
    Scenario("checkpoint", lambda folder: _whole_fit(), _fit, _check_checkpoint),
]
"""What is killed. Everything that writes belongs here."""


# ---------------------------------------------------------------------- kills


def kill_at_random(scenario: Scenario, folder: Path, random: random.Random, longest: float) -> None:
    """Start the scenario in another process, and kill that at a random moment within ``longest`` seconds."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write_end, b"x")
        with suppress(BaseException):
            scenario.act(folder)
        os._exit(0)
    os.read(read_end, 1)
    time.sleep(random.uniform(0, longest))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(read_end)
    os.close(write_end)


def kill_scenario(scenario: Scenario, base: Path, kills: int, seed: int) -> dict[str, Any]:
    """Outcomes of kills at random moments of one scenario."""
    chance = random.Random(f"{seed}/{scenario.name}")
    folder = base / scenario.name
    scenario.prepare(folder)
    started = time.perf_counter()
    if scenario.act is _save_alternately:
        write_model(folder, MODELS["new"])
        longest = 2.5 * (time.perf_counter() - started)
    else:
        _in_child(lambda: str(scenario.act(folder)))
        longest = 1.2 * (time.perf_counter() - started)
    shutil.rmtree(folder, ignore_errors=True)
    outcomes: Counter[str] = Counter()
    findings = []
    for _ in range(kills):
        scenario.prepare(folder)
        kill_at_random(scenario, folder, chance, longest)
        try:
            outcomes[scenario.check(folder)] += 1
        except Exception:
            outcomes["finding"] += 1
            findings.append(traceback.format_exc(limit=-3))
        shutil.rmtree(folder, ignore_errors=True)
    return {"runs": kills, "outcomes": dict(outcomes), "findings": findings}


# ---------------------------------------------------------------------- every call fails once


class _CountingStream:
    """A file whose writes count as calls."""

    def __init__(self, stream: Any, count: Callable[[str], None]) -> None:
        self._stream, self._count = stream, count

    def write(self, content: Any) -> Any:
        self._count("write")
        return self._stream.write(content)

    def flush(self) -> None:
        self._count("flush")
        self._stream.flush()

    def __enter__(self) -> _CountingStream:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def failing_call(number: int | None, act: Callable[[], None]) -> Iterator[list[str]]:
    """The calls of a save to the system, of which the one with this number does ``act`` instead: it raises or kills."""
    calls: list[str] = []

    def count(name: str) -> None:
        calls.append(name)
        if len(calls) - 1 == number:
            act()

    def counted(name: str) -> Any:
        original = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            count(name)
            return original(*arguments, **options)

        return mock.patch.object(os, name, call)

    def counted_open(path: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        count("open")
        return _CountingStream(builtins.open(path, mode, *rest, **options), count)

    names = ("open", "fsync", "replace", "unlink", "mkdir", "listdir", "lstat", "rmdir")
    patches = [counted(name) for name in names] + [mock.patch.object(atomic, "open", counted_open, create=True)]
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield calls


def _raise(code: int) -> Callable[[], None]:
    def act() -> None:
        raise OSError(code, os.strerror(code))

    return act


def fail_every_call(base: Path) -> dict[str, Any]:
    """Each call of a first save and of an overwrite fails once, with each of three errors."""
    outcomes: Counter[str] = Counter()
    findings = []
    codes = (errno.EIO, errno.ENOSPC, errno.EACCES)
    for fresh in (True, False):
        folder = base / "calls"
        _reset(folder, fresh)
        with failing_call(None, lambda: None) as calls:
            write_model(folder, MODELS["new"])
        for number, call in enumerate(calls):
            for code in codes:
                _reset(folder, fresh)
                where = f"{call} {number} of {'a first save' if fresh else 'an overwrite'}, {errno.errorcode[code]}"
                try:
                    outcomes[_failed_save(folder, number, _raise(code), fresh)] += 1
                except Exception:
                    outcomes["finding"] += 1
                    findings.append(f"{where}: {traceback.format_exc(limit=-4)}")
    return {"runs": sum(outcomes.values()), "outcomes": dict(outcomes), "findings": findings}


def kill_every_call(base: Path) -> dict[str, Any]:
    """A process is killed at each call of a first save and of an overwrite, before the call."""
    outcomes: Counter[str] = Counter()
    findings = []
    for fresh in (True, False):
        folder = base / "killed"
        _reset(folder, fresh)
        with failing_call(None, lambda: None) as calls:
            write_model(folder, MODELS["new"])
        for number, call in enumerate(calls):
            _reset(folder, fresh)
            pid = os.fork()
            if pid == 0:
                with suppress(BaseException), failing_call(number, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                    write_model(folder, MODELS["new"])
                os._exit(0)
            os.waitpid(pid, 0)
            try:
                outcomes[_check_first_save(folder) if fresh else _check_overwrite(folder)] += 1
            except Exception:
                outcomes["finding"] += 1
                findings.append(f"killed before {call} {number}: {traceback.format_exc(limit=-4)}")
    return {"runs": sum(outcomes.values()), "outcomes": dict(outcomes), "findings": findings}


def _reset(folder: Path, fresh: bool) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if not fresh:
        write_model(folder, MODELS["old"])


def _failed_save(folder: Path, number: int, act: Callable[[], None], fresh: bool) -> str:
    failed = False
    try:
        with failing_call(number, act):
            write_model(folder, MODELS["new"])
    except OSError:
        failed = True
    if fresh and failed:
        try:
            found = which(folder)
        except ModelFormatError:
            found = "nothing"
    else:
        found = which(folder)
    if not failed and found != "new":
        raise Finding(f"the save said nothing, and the folder holds the {found} model")
    if folder.exists() and any(name.endswith(".tmp") for name in os.listdir(folder)):
        raise Finding(f"a temporary file was left: {os.listdir(folder)}")
    _check_next_save(folder)
    return f"{'refused' if failed else 'saved'}, {found} left"


# ---------------------------------------------------------------------- no room, no rights


def full_disk(base: Path, levels: int) -> dict[str, Any]:
    """Files that may not grow beyond a number of bytes (RLIMIT_FSIZE), from none to all that a save needs."""
    folder = base / "full"
    _reset(folder, fresh=False)
    most = max(path.stat().st_size for path in folder.iterdir())
    outcomes: Counter[str] = Counter()
    findings = []
    for level in range(levels):
        limit = round(most * level / (levels - 1)) + (8 if level == levels - 1 else 0)

        def save(limit: int = limit) -> str:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                write_model(folder, MODELS["new"])
            except OSError as error:
                return f"refused: {errno.errorcode.get(error.errno or 0, 'no errno')}"
            return "saved"

        _reset(folder, fresh=False)
        try:
            said = _in_child(save)
            found = which(folder)
            if (said == "saved") != (found == "new"):
                raise Finding(f"the save {said}, and the folder holds the {found} model")
            outcomes[f"{said}, {found} left"] += 1
            _check_next_save(folder)
        except Exception:
            outcomes["finding"] += 1
            findings.append(f"limit {limit}: {traceback.format_exc(limit=-3)}")
    return {"runs": levels, "outcomes": dict(outcomes), "findings": findings}


def small_file_system(base: Path) -> dict[str, Any]:
    """A tmpfs of a few pages; it is mounted, which needs the right to."""
    place = base / "mounted"
    place.mkdir()
    outcomes: Counter[str] = Counter()
    findings = []
    for pages in range(1, 200, 6):
        mount = ["mount", "-t", "tmpfs", "-o", f"size={pages * 4}k", "tmpfs", str(place)]
        if subprocess.run(mount, capture_output=True).returncode:
            return {"runs": 0, "outcomes": {"mounting is not allowed": 1}, "findings": []}
        try:
            said = "nothing"
            for name in ("old", "new"):
                try:
                    write_model(place / "m", MODELS[name])
                    said = name
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
            found = which(place / "m") if (place / "m" / "manifest.json").exists() else "nothing"
            if found != said:
                raise Finding(f"{said} was saved, and {found} is there")
            outcomes[f"{found} left"] += 1
        except Exception:
            outcomes["finding"] += 1
            findings.append(f"{pages} pages: {traceback.format_exc(limit=-3)}")
        finally:
            subprocess.run(["umount", str(place)], capture_output=True)
    return {"runs": sum(outcomes.values()), "outcomes": dict(outcomes), "findings": findings}


def read_only(base: Path) -> dict[str, Any]:
    """A folder, and a parent, that may not be written to; as another user where this one may do everything."""

    def save(target: Path) -> str:
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        try:
            write_model(target, MODELS["new"])
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, "no errno")
        return "saved"

    outcomes: Counter[str] = Counter()
    findings = []
    base.chmod(0o755)
    folder = base / "read-only"
    write_model(folder, MODELS["old"])
    folder.chmod(0o555)
    for target in (folder, folder / "inside"):
        try:
            said = _in_child(save, target)
            if said not in ("EACCES", "EPERM", "EROFS") or which(folder) != "old":
                raise Finding(f"a save into a read-only folder: {said}")
            outcomes[f"refused: {said}"] += 1
        except Exception:
            outcomes["finding"] += 1
            findings.append(traceback.format_exc(limit=-3))
    folder.chmod(0o755)
    return {"runs": sum(outcomes.values()), "outcomes": dict(outcomes), "findings": findings}


# ---------------------------------------------------------------------- races


def _race(base: Path, name: str, others: list[Callable[[Path], None]], reads: int) -> dict[str, Any]:
    """Read a folder while other processes change it; each change is repeated until all reads are done."""
    folder = base / name
    write_model(folder, MODELS["old"])
    processes = []
    for other in others:
        pid = os.fork()
        if pid == 0:
            with suppress(BaseException):
                while True:
                    other(folder)
            os._exit(1)
        processes.append(pid)
    outcomes: Counter[str] = Counter()
    findings = []

    def read() -> str:
        found: Counter[str] = Counter()
        for _ in range(reads):
            try:
                found[which(folder)] += 1
            except ModelFormatError:
                found["documented error"] += 1
        return json.dumps(found)

    try:
        # In a process of its own: a signal (SIGBUS) is a finding, not the end.
        outcomes.update(json.loads(_in_child(read)))
    except Exception:
        outcomes["finding"] += 1
        findings.append(traceback.format_exc(limit=-3))
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            outcomes["finding"] += 1
            findings.append(f"a process that changed {name} ended by itself")
    return {"runs": reads, "outcomes": dict(outcomes), "findings": findings}


def _replace_folder(folder: Path) -> None:
    for name in ("new", "old"):
        other = folder.with_name(f"{folder.name}-{name}")
        shutil.rmtree(other, ignore_errors=True)
        write_model(other, MODELS[name])
        aside = folder.with_name(f"{folder.name}-aside")
        shutil.rmtree(aside, ignore_errors=True)
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

    def save(name: str) -> Callable[[Path], None]:
        return lambda folder: write_model(folder, MODELS[name])

    found = {
        "two saves": _race(base, "two", [save("new"), save("old")], reads),
        "replaced": _race(base, "replaced", [_replace_folder], reads),
        "cut off": _race(base, "cut", [_cut_off], reads),
    }
    refused = found["two saves"]["outcomes"].get("documented error", 0)
    if refused:  # a reader beside saves always finds a whole model
        found["two saves"]["findings"].append(f"{refused} reads were refused while others saved")
        found["two saves"]["outcomes"]["finding"] = 1
    return found


# ---------------------------------------------------------------------- all of it


def run_all(kills: int, seed: int, scenarios: list[str] | None = None, mount: bool = False) -> dict[str, Any]:
    """Everything, with small file systems if they are to be mounted; returns what goes into the file of results."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="tagwise-crash-") as name:
        base = Path(name)
        found: dict[str, Any] = {
            f"kill: {scenario.name}": kill_scenario(scenario, base, kills, seed)
            for scenario in SCENARIOS
            if scenarios is None or scenario.name in scenarios
        }
        found["kill at every call"] = kill_every_call(base)
        found["every call fails"] = fail_every_call(base)
        found["no room (RLIMIT_FSIZE)"] = full_disk(base, max(10, kills // 2))
        if mount:
            found["no room (tmpfs)"] = small_file_system(base)
        found["read-only folders"] = read_only(base)
        found |= {f"race: {key}": value for key, value in races(base, 5 * kills).items()}
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
    parser = argparse.ArgumentParser(description="Kill, starve and disturb everything that writes.")
    parser.add_argument("--kills", type=int, default=200, help="of each scenario")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scenarios", nargs="*", default=None, help="names of those that are killed; all by default")
    parser.add_argument("--mount", action="store_true", help="also mount small file systems, and fill them")
    parser.add_argument("--out", type=Path, default=None, help="the JSON file of results")
    given = parser.parse_args()
    results = run_all(given.kills, given.seed, given.scenarios, given.mount)
    text = json.dumps(results, indent=1) + "\n"
    print(text)
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text)
    sys.exit(bool(results["findings"]))


if __name__ == "__main__":
    main()
