"""Coverage-guided fuzzing with atheris (the extra ``fuzz``): ``python -m tests.fuzz.guided --seconds 600``.

The time is divided over the targets, each in a process of its own, which starts from the seeds, the corpus and what
earlier runs found interesting (kept in ``--keep``). The first finding of a target ends its run and is saved.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.fuzz.mutation import mutate
from tests.fuzz.targets import Target, all_targets

# Longer inputs than twice the largest seed cost time and show little more; but lines of text may grow up to this.
LEAST_LENGTH = 8192


def structural(target: Target, seeds: list[bytes]) -> Callable[[bytes, int, int], bytes]:
    """A target's own mutation in the form that atheris asks for; what is damaged already is changed byte by byte."""

    def mutated(content: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        other = random.choice(seeds)
        try:
            return target.mutate(random, content, other)[:most]
        except Exception:  # of any kind: there is no structure left to change
            return mutate(random, content, other)[:most]

    return mutated


def fuzz(name: str, seconds: int, interesting: Path, findings: Path) -> None:
    """Fuzz one target in this process; ends the process."""
    import atheris

    # Instrumented byte code is nothing that numba compiles: what is imported before is left as it is.
    import tagwise.kernels

    for module in pkgutil.iter_modules(tagwise.kernels.__path__, "tagwise.kernels."):
        importlib.import_module(module.name)
    with atheris.instrument_imports(include=["tagwise"]):
        target = all_targets()[name]
    from tests.fuzz.run import run_one

    seeds = target.seeds()
    for number, seed in enumerate(seeds):
        (interesting / f"seed-{number}").write_bytes(seed)
    for old, content in target.corpus().items():
        (interesting / old).write_bytes(content)
    folder = Path(tempfile.mkdtemp(prefix="tagwise-fuzz-"))

    for seed in seeds:  # loading what is compiled is not to count
        run_one(target, seed, folder)

    def once(content: bytes) -> None:
        kind, what = run_one(target, content, folder)
        if kind == "finding":
            raise AssertionError(what)

    longest = max(LEAST_LENGTH, 2 * max(map(len, seeds)))
    options = [f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=3000", f"-max_len={longest}", "-verbosity=1"]
    # Digests of a folder fit what is in it only after mutations that know the format. Lines of text have no such
    # structure: for them, those of libFuzzer are guided better, as they see what is compared with what.
    own = {} if target.mutate is mutate else {"custom_mutator": structural(target, seeds)}
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={findings}/", str(interesting)], once, **own)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz the targets, guided by coverage.")
    parser.add_argument("--seconds", type=int, default=600, help="for all targets together")
    parser.add_argument("--targets", nargs="*", default=None, help="names; all by default")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-interesting"), help="folder for interesting inputs")
    parser.add_argument("--save", type=Path, default=Path("fuzz-findings"), help="folder for findings")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.targets or sorted(all_targets())
    seconds = max(1, given.seconds // len(names))
    if given.here:
        fuzz(names[0], given.seconds, given.keep, given.save)
        return
    failed = []
    for name in names:
        keep, save = given.keep / name, given.save / name
        keep.mkdir(parents=True, exist_ok=True)
        save.mkdir(parents=True, exist_ok=True)
        print(f"{name}: {seconds} s", flush=True)
        command = [sys.executable, "-m", "tests.fuzz.guided", "--here", "--targets", name, "--seconds", str(seconds)]
        ended = subprocess.run([*command, "--keep", str(keep), "--save", str(save)], capture_output=True, text=True)
        if ended.returncode:
            failed.append(name)
            print(ended.stderr[-3000:], flush=True)
        else:
            print("\n".join(ended.stderr.strip().splitlines()[-2:]), flush=True)
    if failed:
        sys.exit(f"Findings of {', '.join(failed)} are in {given.save}.")


if __name__ == "__main__":
    main()
