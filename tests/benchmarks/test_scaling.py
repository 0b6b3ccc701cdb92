"""benchmarks/scaling.py: costs follow their formulas, constants are found again, and pages have all parts."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import scaling
import scaling_costs as costs

UNIT = 1e-8
PER_TASK, PER_BYTE, PER_PRODUCT = 2e-3, 1e-9, 1e-7


def a_cell(model, systems=1e6):
    """A fit of a set on several clusters that keep to the formulas."""
    sizes = {"n": 1e4, "d": 5e3, "L": 3e3, "z": 3e5, "y": 4e4, "k": 20, "rounds": 2, "systems": systems, "cubes": 1e7}
    cell = {"part": "fit", "set": "made", "model": model, **sizes, "local_cpu": 10.0, "model_bytes": 10**6}
    shape, runs = costs.shape_of(cell), []
    for workers in (1, 2, 4):
        steps = {
            step.functions[0]: {"compute": UNIT * (step.work(workers) + step.each * workers + step.once)}
            for step in costs.steps_of(model, shape)
        }
        tasks, moved = costs.tasks_of(model, shape, workers), 1e7 * workers**1.5
        inside = sum(own["compute"] for own in steps.values())
        run = {"workers": workers, "steps": steps, "tasks": tasks, "bytes_shared": moved, "bytes_returned": 0}
        run |= {"worker_cpu": inside + PER_TASK * tasks, "scheduler_cpu": PER_BYTE * moved, "same": 1.0}
        runs.append(
            run | {"client_cpu": PER_TASK * tasks + PER_BYTE * moved + PER_PRODUCT * costs.client_products(shape)}
        )
    return {**cell, "runs": runs}


@pytest.fixture
def report():
    runs = [{"moment": 0.5, "tasks": 30, "done": 31, "same_bits": True}]
    cells = [
        a_cell("LEML"),
        a_cell("Cascade"),
        a_cell("Cascade", systems=9e6),
        {"part": "killed", "set": "made", "model": "Cascade", "runs": runs},
    ]
    return {"machine": {"cores": 2, "python": "3.11"}, "cells": cells}


def test_tasks_grow_with_workers_at_the_most():
    shape = costs.Shape(n=1e6, d=1e5, L=1e6, z=1e8, y=1e7, k=16, systems=1e9, cubes=1e11)
    few, many = (costs.tasks_of("Cascade", shape, workers) for workers in (8, 512))
    assert few < many < 64 * few
    assert many < 512 * sum(step.calls for step in costs.steps_of("Cascade", shape))


def test_constants_are_found_again(report):
    found = costs.fitted(scaling.runs_of(report))
    assert [found[name] for name in ("worker_task", "client_task")] == pytest.approx([PER_TASK] * 2, rel=1e-3)
    assert [found[name] for name in ("worker_byte", "client_byte")] == pytest.approx([PER_BYTE] * 2, rel=1e-3)
    assert found["client_product"] == pytest.approx(PER_PRODUCT, rel=1e-3)
    for name, (shared, *_) in found["units"].items():
        assert shared == pytest.approx(UNIT, rel=1e-3), name
    assert found["units"]["supports"] == pytest.approx([UNIT] * 3, rel=1e-2)


def test_more_workers_compute_faster_until_columns_are_divided(report):
    constants = costs.fitted(scaling.runs_of(report))
    for model in ("LEML", "Cascade"):
        shape = scaling.large_shapes(model)["Amazon-3M"]
        few, many = (costs.simulated(model, shape, workers, constants) for workers in (8, 512))
        assert few["computing"] == pytest.approx(64 * many["computing"])
        assert few["columns, fewer than workers"] < many["columns, fewer than workers"]
        assert few["results, to the client"] == many["results, to the client"]
        assert costs.alone(model, shape, constants) > few["computing"]


def test_sums_over_supports():
    assert costs.support_sums(np.array([0, 1, 1000]), per_row=10, support=20) == (55 + 210, (1000 + 8000) / 6)
    counts, weight = costs.power_law_counts(1e7, 5e7, most=1000)
    assert weight * counts.sum() == pytest.approx(5e7)
    assert (np.diff(counts) < 0).all()


def test_the_page_has_all_parts(report, tmp_path):
    text = scaling.page(report)
    assert "| made | Cascade | 4 | 10.0 |" in text
    assert "| 0.50 | 30 | 31 | yes |" in text
    assert "| LEML | Amazon-3M | 512 |" in text
    scaling.draw(report, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"scaling.png", "scaling.svg"}
    report["cells"] = []
    assert "Not measured yet" in scaling.page(report)
