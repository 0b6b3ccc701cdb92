"""benchmarks/scaling.py: what agrees is counted, costs follow their formulas, and constants are found again."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import scaling
import scaling_costs as costs
import scaling_page

UNITS = {"W: conjugate gradients": 1e-9, "adding up": 2e-9}


def test_rows_agree_by_labels_and_by_order():
    ours = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]]), np.array([[3.0, 2, 1]] * 3)
    theirs = np.array([[1, 2, 3], [5, 4, 6], [7, 9, 8]]), np.array([[3.0, 2.5, 1], [3, 2, 1], [3, 2, 1]])
    found = scaling.agreement(ours, theirs, 2)
    assert found["same"] == pytest.approx(2 / 3)
    assert found["same_order"] == pytest.approx(1 / 3)
    assert (found["different"], found["widest_gap"], found["score_difference"]) == (1, 1.0, 0.5)


def test_differences_of_factors_are_those_of_their_product():
    rng = np.random.default_rng(0)
    W, H, more = (rng.standard_normal((size, 3)) for size in (20, 15, 20))
    local = SimpleNamespace(feature_factors_=W, label_factors_=H)
    turned = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    same = scaling.factor_differences(SimpleNamespace(feature_factors_=W @ turned, label_factors_=H @ turned), local)
    assert same["WH"] < 1e-7
    assert same["W"] > 0.1
    other = scaling.factor_differences(SimpleNamespace(feature_factors_=W + 0.01 * more, label_factors_=H), local)
    expected = 0.01 * np.linalg.norm(more @ H.T) / np.linalg.norm(W @ H.T)
    assert other["WH"] == pytest.approx(expected, rel=1e-6)
    assert other["H"] == 0


def test_digests_tell_arrays_apart():
    def model(value):
        inside = SimpleNamespace(_saved_arrays=("b",), b=np.array([value]))
        return SimpleNamespace(
            _saved_arrays=("a",), a=sp.csr_matrix(np.eye(2)), _saved_models={"inside": ()}, inside=inside
        )

    assert scaling.digest(model(1.0)) == scaling.digest(model(1.0)) != scaling.digest(model(2.0))


def test_parts_cover_all_rows_and_differ():
    cuts = scaling.cuts_of(1001, scaling.CUTS)
    sizes = np.diff(cuts)
    assert (cuts[0], cuts[-1], len(sizes)) == (0, 1001, 7)
    assert sizes.min() < sizes.max() / 10


@pytest.mark.parametrize(
    ("p", "tasks", "levels"), [(1, 0, 0), (2, 1, 1), (8, 1, 1), (9, 2, 2), (16, 3, 2), (64, 9, 2), (65, 10, 3)]
)
def test_trees_have_as_many_tasks_as_the_cluster_makes(p, tasks, levels):
    from tagwise.distributed.cluster import Cluster

    submitted = []
    cluster = Cluster(None)
    cluster.submit = lambda *given: submitted.append(given) or object()
    cluster.tree([object() for _ in range(p)])
    assert costs.tree_tasks(p) == len(submitted) == tasks
    assert costs.tree_levels(p) == levels


def test_constants_of_the_costs_are_those_of_the_library():
    from tagwise.distributed import cascade, cluster, leml, reml

    assert costs.FAN_IN == cluster._FAN_IN
    assert costs.COLUMN_BYTES == leml._COLUMN_BYTES
    assert costs.RANKER_BYTES == cascade._BLOCK_BYTES
    assert costs.SYSTEM_NUMBERS == reml._BLOCK_NUMBERS


def test_one_worker_sends_nothing_and_more_send_more():
    shape = costs.Shape(n=1e5, d=1e4, L=1e4, z=1e6, y=3e5, k=50, systems=1e7, cubes=1e8)
    for model in ("LEML", "REML", "Cascade"):
        moved = [sum(step.moved for step in costs.steps_of(model, shape, 64, w)) for w in (1, 2, 16, 64)]
        assert moved[0] == 0
        assert moved == sorted(moved)
        units = {sum(step.units for step in costs.steps_of(model, shape, 64, w)) for w in (1, 64)}
        assert len(units) == 1
    with pytest.raises(ValueError, match="no costs"):
        costs.steps_of("PLST", shape, 1, 1)


def test_more_blocks_of_columns_are_held_by_more_workers():
    one, many = (costs.broadcast(1e9, 64, holders) for holders in (1, 64))
    assert one["received"] == many["received"]
    assert one["busiest"] == pytest.approx(64 * many["busiest"])
    one, many = (costs.reduction(1e9, 64, 64, blocks) for blocks in (1, 64))
    assert one["received"] > 5 * many["received"]


def test_larger_blocks_of_systems_are_fewer_tasks_and_blocks_of_labels_spread_what_is_received():
    shape = costs.Shape(n=1e6, d=1e5, L=1e6, z=1e7, y=1e7, k=50, systems=1e10, cubes=1e11)
    few, many = (
        sum(step.tasks for step in costs.steps_of("REML", shape, 64, 64, system_numbers=size))
        for size in (32 * costs.SYSTEM_NUMBERS, costs.SYSTEM_NUMBERS)
    )
    assert many > 10 * few
    one, cut = (
        costs.by_name(costs.steps_of("LEML", shape, 64, 64, label_bytes=size))["H"] for size in (np.inf, 1 << 24)
    )
    assert one.received > 3 * cut.received
    assert cut.tasks > one.tasks


def test_sums_over_supports():
    assert costs.support_sums(np.array([0, 1, 1000]), per_row=10, support=20) == (55 + 210, (1000 + 8000) / 6)
    counts, weight = costs.power_law_counts(1e7, 5e7, most=1000)
    assert weight * counts.sum() == pytest.approx(5e7)
    assert (np.diff(counts) < 0).all()


def a_run(model, share, workers):
    """What a cluster would measure that keeps to the formulas."""
    n = 1000 * share
    sizes = {"n": n, "d": 500, "L": 300, "z": 10 * n, "y": 3 * n, "k": 8, "p": 4 * share, "rounds": 2}
    cell = {
        "part": "scaling",
        "model": model,
        "share": share,
        "workers": workers,
        **sizes,
        "systems": 1e4,
        "cubes": 1e5,
    }
    cell |= {"set": "made", "load_before": 0.0}
    moves = 2 * 5 if model == "LEML" else 1
    cell["steps"] = {"column_move": {"tasks": moves, "compute": 0.0}}
    cell["rounds"] = 2 if model == "LEML" else 1
    steps = costs.by_name(costs.steps_of(model, costs.shape_of(cell), cell["p"], workers))
    for number, step in enumerate(steps.values()):
        first, *_ = step.functions
        cell["steps"].setdefault(first, {"tasks": 0})["compute"] = (number + 1) * 1e-6 * step.units
    compute = sum(own["compute"] for own in cell["steps"].values())
    cell["tasks"] = sum(step.tasks for step in costs.steps_of(model, costs.shape_of(cell), cell["p"], workers))
    cell |= {"from_client": 1e6 * share, "from_scheduler": 2e6 * share**1.5, "between_workers": 1e6 * (workers - 1)}
    cell["from_workers"] = cell["between_workers"]
    passed = cell["from_client"] + cell["from_scheduler"]
    cell["scheduler_cpu"], cell["client_cpu"] = (a * cell["tasks"] + 1e-9 * passed for a in (1e-3, 2e-3))
    handled = 3e-3 * cell["tasks"] + 5e-8 * cell["from_workers"]
    cell["worker_cpu"] = compute + handled
    waits = sum(step.waits for step in costs.steps_of(model, costs.shape_of(cell), cell["p"], workers))
    serial = cell["scheduler_cpu"] + cell["client_cpu"]
    cell["seconds"] = (compute + handled) / min(workers, 2) + serial + 0.01 * waits
    return cell


@pytest.fixture
def report():
    cells = [
        a_run(model, share, workers) for model in ("LEML", "Cascade") for share in (1, 2, 4) for workers in (1, 2, 4)
    ]
    return {"machine": {"cores": 2, "python": "3.11"}, "cells": cells}


def test_constants_are_found_again(report):
    found = costs.fitted(report["cells"], 2)
    tasks = [found[f"{who}_task"] for who in ("scheduler", "client", "worker")]
    assert tasks == pytest.approx([1e-3, 2e-3, 3e-3])
    assert [found[f"{who}_byte"] for who in ("client", "worker")] == pytest.approx([1e-9, 5e-8])
    assert found["wait"] == pytest.approx(0.01)
    for expected, measured in (("expected", "seconds"), ("cpu_expected", "cpu"), ("tasks_expected", "tasks")):
        assert [one[expected] for one in found["runs"]] == pytest.approx([one[measured] for one in found["runs"]])


def test_the_page_has_all_parts(report, tmp_path):
    runs = [
        {"workers": w, "seconds": 1.0, "sha256": "a" * w, "same": 1.0, "same_order": 0.9, "score_difference": 0.0}
        for w in (1, 2)
    ]
    equality = {
        "part": "equality",
        "set": "made",
        "model": "REML",
        "dtype": "float32",
        "local_seconds": 2.0,
        "runs": runs,
    }
    report["cells"].append(equality)
    report["cells"].append({"part": "memory", "set": "texts", "error": "exit code 1"})
    text = scaling_page.page(report)
    assert "| made | REML | float32 | 100.00 | 90.00 | 0e+00 |  | DIFFERENT | 1, 2 |" in text
    assert "Not measured: texts, : exit code 1." in text
    assert "## Larger clusters" in text
    assert "LEML, Amazon-3M" in scaling_page.section(report)
    scaling_page.draw(report, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"scaling.png", "scaling.svg"}
    report["cells"] = report["cells"][-2:]
    assert "## Larger clusters" not in scaling_page.page(report)
    assert "Not measured yet" in scaling_page.section(report)


def test_rows_that_are_worth_a_part():
    shape = costs.Shape(n=1e6, d=1e5, L=1e4, z=1e7, y=1e6, k=50)
    few = costs.rows_worth_a_part(shape, {"units": UNITS, "worker_byte": 0.0}, link=4e9)
    # d·(2 + 1) ns against 4·10·1 ns per row.
    assert few == pytest.approx(1e5 * 3 / 40)
