"""benchmarks/scaling.py: costs follow their formulas, constants are found again, and pages have all parts."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import scaling
import scaling_costs as costs

UNIT = 1e-8
PER_TASK, PER_BYTE, PER_PRODUCT, PER_ENTRY, PER_RANK, FUSION = 2e-3, 1e-9, 1e-7, 1e-6, 1.25, 0.5


def a_cell(model, systems=1e6, n=1e4):
    """A fit of a set on several clusters that keep to the formulas."""
    sizes = {"n": n, "d": 5e3, "L": 3e3, "z": 3e5, "y": 4e4, "k": 20, "rounds": 2, "systems": systems, "cubes": 1e7}
    cell = {"part": "fit", "set": f"made {n:.0f}", "model": model, **sizes, "local_cpu": 10.0, "model_bytes": 10**6}
    least, cg = 1 if model == scaling.DIVIDED else costs.Shape.least, 1 if model == "Cascade" else 3
    shape, runs = costs.shape_of(cell | {"least": least, "cg": cg}), []
    for workers in (2, 4) if model == scaling.DIVIDED else (1, 2, 4):
        steps = {
            step.functions[0]: {"compute": UNIT * sum(step.work(workers))}
            for step in costs.steps_of(model, shape)
            if step.workers(workers)
        }
        rank = costs.low_rank_of_client(model, shape, workers, {"low rank": (UNIT,) * 4})
        tasks, moved = costs.tasks_of(model, shape, workers), 1e7 * workers**1.5
        inside = sum(own["compute"] for own in steps.values())
        run = {"workers": workers, "steps": steps, "tasks": tasks, "bytes_shared": moved, "bytes_returned": 0}
        run |= {"worker_cpu": inside + PER_TASK * tasks, "scheduler_cpu": PER_BYTE * moved, "same": 1.0}
        client = PER_TASK * tasks + PER_BYTE * moved + PER_PRODUCT * costs.client_products(shape)
        client += PER_ENTRY * costs.client_entries(model, shape) + FUSION * (model == "Cascade")
        runs.append(run | {"client_cpu": client + PER_RANK * rank})
    return {**cell, "runs": runs}


@pytest.fixture
def report():
    runs = [{"moment": 0.5, "tasks": 30, "done": 31, "same_bits": True}]
    cells = [
        a_cell("LEML"),
        a_cell(scaling.DIVIDED),
        a_cell(scaling.DIVIDED, n=4e4),
        a_cell("Cascade"),
        a_cell("Cascade", systems=9e6),
        {"part": "killed", "set": "made", "model": "Cascade", "runs": runs},
    ]
    return {"machine": {"cores": 2, "python": "3.11"}, "cells": cells}


def test_tasks_grow_with_workers_at_the_most():
    shape = costs.Shape(n=1e6, d=1e3, L=1e6, z=1e7, y=1e7, k=16, systems=1e9, cubes=1e11)
    few, many = (costs.tasks_of("Cascade", shape, workers) for workers in (8, 512))
    assert few < many < 64 * few
    assert many < 512 * sum(step.calls for step in costs.steps_of("Cascade", shape))


def test_the_client_makes_the_low_rank_of_rows_with_few_entries_per_feature():
    few = costs.Shape(n=1e4, d=1e3, L=1e3, z=2 * 256e3 - 1, y=1e4, k=16, rounds=2, cg=3)
    enough = replace(few, z=2 * 256e3)
    assert costs.tasks_of("LEML", few, 8) == 0
    assert costs.tasks_of("LEML", enough, 8) == 2 * (6 + 2 * 5)
    assert costs.bytes_of_steps("LEML", few, 8) == (8 * (few.z + few.y), 0, 0)
    moved = [costs.bytes_of_steps("LEML", enough, workers)[1] for workers in (2, 8)]
    assert moved[0] == moved[1] > costs.bytes_of_steps("LEML", replace(enough, least=512), 8)[1]


def test_constants_are_found_again(report):
    found = costs.fitted(scaling.runs_of(report))
    assert [found[name] for name in ("worker_task", "client_task")] == pytest.approx([PER_TASK] * 2, rel=1e-3)
    assert [found[name] for name in ("worker_byte", "client_byte")] == pytest.approx([PER_BYTE] * 2, rel=1e-3)
    for name, expected in {"product": PER_PRODUCT, "entry": PER_ENTRY, "rank": PER_RANK, "fusion": FUSION}.items():
        assert found[f"client_{name}"] == pytest.approx(expected, rel=1e-3), name
    assert found["units"]["low rank"][:2] == pytest.approx([UNIT] * 2, rel=1e-3)
    assert found["units"]["supports"] == pytest.approx([UNIT, 0, UNIT, UNIT], rel=1e-2)
    for name in ("wrong proposals", "rankers", "prototypes", "co-occurrence"):
        assert found["units"][name][0] == pytest.approx(UNIT, rel=1e-3), name


def test_more_workers_compute_faster_but_for_the_low_rank(report):
    constants = costs.fitted(scaling.runs_of(report))
    for model in ("LEML", "Cascade"):
        shape = scaling.large_shapes(model)["Amazon-3M"]
        few, many = (costs.simulated(model, shape, workers, constants) for workers in (8, 512))
        assert few["blocks and shards"] == pytest.approx(64 * many["blocks and shards"])
        for same in ("low rank", "results, to the client"):
            assert few[same] == many[same]
        alone, here = costs.alone(model, shape, constants), costs.without_cluster(model, shape, constants)
        assert alone / costs.WORKERS_OF_A_MACHINE <= sum(here.values()) < alone
    larger = scaling.large_shapes("LEML")["10⁸ × 10⁷"]
    few, many = (costs.simulated("LEML", larger, workers, constants) for workers in (8, 512))
    assert few["low rank"] > many["low rank"]
    assert few["results, to the client"] < many["results, to the client"]


def test_sums_over_supports():
    assert costs.support_sums(np.array([0, 1, 1000]), per_row=10, support=20) == (55 + 210, (1000 + 8000) / 6)
    counts, weight = costs.power_law_counts(1e7, 5e7, most=1000)
    assert weight * counts.sum() == pytest.approx(5e7)
    assert (np.diff(counts) < 0).all()


def test_the_page_has_all_parts(report, tmp_path):
    text = scaling.page(report)
    assert "| made 10000 | Cascade | 4 | 10.0 |" in text
    assert "| 0.50 | 30 | 31 | yes |" in text
    assert "| LEML | Amazon-3M | 8 to 512 |" in text
    assert "| Cascade | Amazon-3M | none, 16 threads |" in text
    assert "| Cascade | Amazon-3M | 512 |" in text
    scaling.draw(report, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"scaling.png", "scaling.svg"}
    report["cells"] = []
    assert "Not measured yet" in scaling.page(report)
