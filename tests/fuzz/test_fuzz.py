"""A short run of the harness: mutated inputs, the same ones each time, and every finding of the past."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("resource", reason="the harness needs limits of processes")

from tests.fuzz.run import run_numbers, run_one
from tests.fuzz.targets import CORPUS, all_targets, join_files, shares, split_files

INPUTS = 50_000
TARGETS = all_targets()
SHARES = shares(list(TARGETS.values()), INPUTS)
PAST = [(path.parent.name, path.name) for path in sorted(CORPUS.glob("*/*"))]


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs_parse_or_end_in_a_documented_error(name):
    found = run_numbers(TARGETS[name], 0, range(SHARES[name]), None)
    assert not found.findings, "\n".join(f"{target} {number}: {what}" for target, number, what in found.findings[:3])
    # Mutations that are all refused, or none of them, would test little.
    assert found.kinds["parsed"] > 0
    assert found.kinds["documented error"] > 0


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_parse(name, tmp_path):
    # Not each of them: the content of an input also chooses options, such as a column that it does not have.
    kinds = {run_one(TARGETS[name], content, tmp_path)[0] for content in TARGETS[name].seeds()}
    assert "parsed" in kinds
    assert "finding" not in kinds


@pytest.mark.parametrize(("target", "name"), PAST)
def test_what_was_once_a_finding(target, name, tmp_path):
    if target not in TARGETS:
        pytest.skip(f"the target {target} needs a package that is not installed")
    kind, what = run_one(TARGETS[target], (CORPUS / target / name).read_bytes(), tmp_path)
    assert kind in ("parsed", "documented error"), what


def test_inputs_are_the_same_in_every_run():
    target = TARGETS["csv"]
    assert target.input(3, 7) == target.input(3, 7)
    assert len({target.input(3, number) for number in range(50)}) > 40


def test_files_are_joined_and_split_again():
    files = {"a": os.urandom(50).replace(b"\0", b""), "b.txt": b"", "c": b"\n\n"}
    assert split_files(join_files(files)) == files
