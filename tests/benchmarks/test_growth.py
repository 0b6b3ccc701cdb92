"""benchmarks/growth.py: slopes are those of power laws, stages add up, and what grows too fast is said."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tagwise import Cascade
from tagwise.data import load_dataset

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import growth
from stages import ELSEWHERE, STAGES, StageClock


@pytest.fixture
def report():
    """Rankers take the square of the rows, and all else is linear; more features or labels cost nothing."""

    def cell(n, d, L):
        stages = {"rankers": {"seconds": n**2 / 1e6, "cpu_seconds": n**2 / 1e6, "peak_bytes": 0}}
        costs = dict.fromkeys(growth.MEASURES, n / 1e3)
        return {"size": [n, d, L], "entries": 10 * n, "label_entries": 3 * n, "P@1": 0.5, "stages": stages, **costs}

    series = growth.QUICK
    cells = [cell(*size) for size in sorted({size for sizes in series.values() for size in sizes})]
    return {"machine": {"cores": 2}, "threads": 2, "minutes": 1.0, "series": series, "cells": cells}


def test_slopes_of_a_power_law_are_its_exponent():
    sizes = [1.0, 3.0, 10.0, 20.0]
    assert growth.slopes(sizes, [5 * size**1.5 for size in sizes]) == pytest.approx((1.5, 1.5))
    # Linear, but for the last step.
    whole, last = growth.slopes(sizes, [*sizes[:3], 40.0])
    assert last == pytest.approx(2)
    assert 1 < whole < 2
    assert growth.slopes([1.0], [1.0]) is None
    assert growth.slopes([1.0, 2.0], [0.0, 1.0]) is None


def test_a_set_without_a_result_is_a_row_that_says_why(report):
    stopped = report["cells"][-1]
    report["cells"][-1] = {"size": stopped["size"], "error": "stopped: more than 1 minutes"}
    text = growth.page(report)
    assert "| 12,000 | 2,000 | 1,000 | stopped: more than 1 minutes |" in text
    del report["cells"][-1]
    assert "| 12,000 | 2,000 | 1,000 | not measured |" in growth.page(report)


def test_stages_are_found_and_add_up_to_the_fit():
    data, clock = load_dataset("debtags-sample"), StageClock()
    places = [(import_module(module), path) for _, module, path in STAGES]
    before = [vars(_owner(module, path))[path.split(".")[-1]] for module, path in places]
    model = Cascade(rank=4, refit=False)
    assert clock.measure(lambda: model.fit(data.X_train[:300], data.Y_train[:300])) is model
    assert set(clock.stages) == {ELSEWHERE, *(name for name, _, _ in STAGES)}
    for key in ("seconds", "cpu_seconds"):
        assert sum(stage[key] for stage in clock.stages.values()) == pytest.approx(clock.total[key])
    assert clock.total["peak_bytes"] >= max(stage.get("peak_bytes", 0) for stage in clock.stages.values())
    # All is as it was.
    assert [vars(_owner(module, path))[path.split(".")[-1]] for module, path in places] == before


def _owner(module, path):
    *owners, _ = path.split(".")
    for part in owners:
        module = getattr(module, part)
    return module


def test_one_set_is_measured(monkeypatch):
    monkeypatch.setattr(growth, "WARM_UP", [])
    found = growth.measure({"size": [600, 200, 50], "threads": 1})
    assert found["size"] == [600, 200, 50]
    assert set(growth.MEASURES) <= set(found)
    # Guessing the most frequent label would be right less often.
    assert found["P@1"] > 0.3
    assert json.loads(json.dumps(found)) == found
