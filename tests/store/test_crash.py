"""Runs of the crash harness: every call of a save fails or is the last one, and some kills at random moments."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="the harness needs limits of processes")


@pytest.mark.parametrize(
    ("kills", "scenarios"),
    [(4, ["save", "overwrite"]), pytest.param(20, ["save", "overwrite", "checkpoint"], marks=pytest.mark.slow)],
)
def test_crashes_leave_the_old_or_the_new(kills, scenarios, tmp_path):
    """In a process of its own, which forks those that are killed: it has no threads of ours."""
    out = tmp_path / "crash.json"
    command = [sys.executable, "-m", "tests.fuzz.crash", "--kills", str(kills), "--scenarios", *scenarios]
    ended = subprocess.run(
        [*command, "--out", str(out)], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=1800
    )
    assert out.exists(), ended.stderr
    found = json.loads(out.read_text())
    assert not found["findings"], "\n".join(found["findings"])
    assert ended.returncode == 0
    # The kills must have fallen on both sides of the switch, and within saves, or nothing was tested.
    killed = found["cases"]["kill at every call"]["outcomes"]
    for outcome in ("nothing", "new", "old", "old with leftovers", "new with leftovers"):
        assert killed[outcome] > 0
    for scenario in scenarios:
        assert found["cases"][f"kill: {scenario}"]["runs"] == kills
    failed = found["cases"]["every call fails"]["outcomes"]
    assert {"refused, old left", "refused, nothing left", "saved, new left"} <= set(failed)
    # A reader whose tensors are cut off meanwhile ends with an error, not by SIGBUS.
    assert sum(found["cases"]["race: cut off"]["outcomes"].values()) == 5 * kills
