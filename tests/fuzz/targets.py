"""What is fuzzed: a target takes bytes, and answers or raises a TagwiseError; anything else is a finding.

A target is a row of a list in a module of :data:`MODULES`. Its inputs are bytes. Where several files belong together,
such as a data set folder, they are joined into one input by :func:`join_files`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import ceil
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutation import mutate

MODULES = ("tests.fuzz.readers", "tests.fuzz.folders")
"""The modules with targets: each has a list ``TARGETS``."""

CORPUS = Path(__file__).parent / "corpus"
"""A folder per target: every input that was once a finding, by a name that says what it was."""

_MARK = b"\x00file\x00"


@dataclass(frozen=True)
class Target:
    """One thing that reads what strangers wrote.

    Attributes
    ----------
    name : str
        Also the name of its folder in the corpus.
    seeds : callable
        Makes the valid inputs that mutations start from. It is called once in a process.
    run : callable
        Takes an input and an empty folder to put files into, and uses whatever was read.
    share : float
        How many inputs it gets, in comparison with the other targets: fewer where one takes long.
    mutate : callable
        Makes an input from two seeds.
    """

    name: str
    seeds: Callable[[], list[bytes]]
    run: Callable[[bytes, Path], object]
    share: float = 1.0
    mutate: Callable[[Random, bytes, bytes], bytes] = mutate

    def input(self, seed: int, number: int) -> bytes:
        """The mutated input of this number: the same ones in every process and on every machine."""
        random = Random(f"{seed}/{self.name}/{number}")
        seeds = _seeds(self)
        return self.mutate(random, random.choice(seeds), random.choice(seeds))

    def corpus(self) -> dict[str, bytes]:
        """The inputs that were findings once."""
        return {path.name: path.read_bytes() for path in sorted((CORPUS / self.name).glob("*"))}


@cache
def _seeds(target: Target) -> list[bytes]:
    return target.seeds()


@cache
def all_targets() -> dict[str, Target]:
    """Every target by its name."""
    found = [target for module in MODULES for target in import_module(module).TARGETS]
    return {target.name: target for target in found}


def shares(targets: list[Target], total: int) -> dict[str, int]:
    """How many of ``total`` inputs each target gets, rounded up: never fewer than ``total`` in all."""
    whole = sum(target.share for target in targets)
    return {target.name: ceil(total * target.share / whole) for target in targets}


def write_results(results: dict[str, Any], out: Path | None) -> None:
    """Print the results of a run, and write them into a JSON file where that is wanted."""
    text = json.dumps(results, indent=1) + "\n"
    print(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)


def join_files(files: dict[str, bytes]) -> bytes:
    """Several files as one input."""
    return b"".join(_MARK + name.encode() + b"\n" + content for name, content in files.items())


def split_files(joined: bytes) -> dict[str, bytes]:
    """The files of an input; of a damaged one, those that can still be told apart."""
    files = {}
    for part in joined.split(_MARK)[1:]:
        name, _, content = part.partition(b"\n")
        files[name.decode("ascii", "replace").replace("/", "_")[:60]] = content
    return files


def write_files(joined: bytes, folder: Path, names: tuple[str, ...]) -> None:
    """Write the files of these names; those that damage took away are not written."""
    files = split_files(joined)
    for name in names:
        if name in files:
            (folder / name).write_bytes(files[name])
