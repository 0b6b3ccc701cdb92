"""docs/reliability.md shows the figures of the stored runs, which are long and have no findings."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import reliability  # noqa: E402

pytest.importorskip("resource", reason="the harness needs limits of processes")

from tests.fuzz.crash import SCENARIOS  # noqa: E402

LEAST_RUNS = {"readers": 1_000_000, "folders": 100_000, "crash": 200, "interrupts": 500, "serving": 20_000}


def test_the_page_shows_the_stored_figures():
    text = reliability.PAGE.read_text()
    assert reliability.page(text, reliability.figures()) == text, "run python scripts/reliability.py --write"


@pytest.mark.parametrize("name", LEAST_RUNS)
def test_a_stored_run_is_long_and_found_nothing(name):
    run = json.loads((reliability.RESULTS / f"{name}.json").read_text())
    assert run["runs"] >= LEAST_RUNS[name]
    assert not run.get("findings")
    assert not run.get("outcomes", {}).get("finding")
    assert run.get("slowest_seconds", 0) <= 5
    for case in run.get("cases", {}).values():
        assert not case["outcomes"].get("finding")


def test_the_server_was_swapped_asked_and_killed_often():
    cases = json.loads((reliability.RESULTS / "serving.json").read_text())["cases"]
    for processes in ("1 process", "2 processes"):
        assert cases[f"requests during 20 swaps, {processes}"]["outcomes"]["answered"] > 1000, "run make serving-runs"
    kills = [case["outcomes"]["acknowledged and kept"] for name, case in cases.items() if "50 kills" in name]
    assert kills
    assert min(kills) >= 10_000
    assert max(case["outcomes"].get("documented answers", 0) for case in cases.values()) >= 1000


def test_everything_that_writes_was_killed_often():
    cases = json.loads((reliability.RESULTS / "crash.json").read_text())["cases"]
    for scenario in SCENARIOS:
        assert f"kill: {scenario.name}" in cases, "run make crash"
        assert cases[f"kill: {scenario.name}"]["runs"] >= LEAST_RUNS["crash"]
