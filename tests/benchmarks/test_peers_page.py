"""benchmarks/peers: the page says what the JSON says, whoever wins."""

import copy
import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from peers import run
from peers.page import full_page

METRICS = [f"{kind}@{k}" for kind in ("P", "nDCG", "PSP") for k in (1, 3, 5)]
CHOICE = {
    "chosen": "Cascade",
    "by": "P@1",
    "validation_rows": 976,
    "scores": {"Cascade": 0.64, "LEML": 0.6237},
    "left_out": {"BinaryRelevance": "left out: too many weights"},
    "seconds": 1.26,
    "cpu_seconds": 2.04,
}


def cell(system, peer, accuracy, cost, **more):
    return {
        "set": "bibtex",
        "peer": peer,
        "system": system,
        "settings": {"depth": 3, "parameters": {}},
        "threads": 2,
        "rows": 4880,
        "test_rows": 2500,
        "features": 1836,
        "labels": 159,
        "date": "2026-01-02",
        "version": "1.5",
        "metrics": dict.fromkeys(METRICS, accuracy),
        "train_seconds": cost,
        "train_cpu_seconds": 2 * cost,
        "batch_ms_per_row": cost / 100,
        "one_row_ms": cost / 10,
        "peak_mb": 100 * cost,
        "model_mb": cost,
        **more,
    }


@pytest.fixture
def report():
    failed = cell("broken", "broken", 0.9, 1.0, error="does not install: ERROR: nothing | found")
    left_out = cell("large", "slow", 0.9, 1.0, left_out="left out: one model for each of 159 labels")
    for without in (failed, left_out):
        for key in ("metrics", "train_seconds", "version"):
            del without[key]
    return {
        "machine": {"cores": 2, "machine": "x86_64"},
        "cells": [
            failed,
            cell("slow", "slow", 0.64, 8.0),
            cell("tagwise, best by validation", "tagwise", 0.65, 2.0, choice=CHOICE),
            left_out,
            cell("quick", "quick", 0.5, 1.0),
        ],
    }


def rows_of(page):
    """The first table's rows by system."""
    part = page.split("|---|", 1)[1].split("\n\n", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return {line.split(" | ")[0].strip("| "): line for line in lines}


def test_systems_are_sorted_by_precision_and_the_best_of_each_column_is_bold(report):
    rows = rows_of(full_page(report))
    assert list(rows) == ["tagwise, best by validation (Cascade)", "slow", "quick", "broken", "large"]
    assert rows["tagwise, best by validation (Cascade)"].count("**65.00**") == 8
    assert rows["slow"].count("**") == 0
    assert "| **1.00** | **2.00** | **0.010** | **0.10** | **100** | **1.0** |" in rows["quick"]


def test_a_system_without_a_result_is_a_row_that_says_why(report):
    rows = rows_of(full_page(report))
    assert rows["broken"].startswith("| broken | no result: does not install: ERROR: nothing \\| found |")
    assert rows["large"].startswith("| large | left out: one model for each of 159 labels |")
    columns = rows["slow"].count("|")
    assert {line.replace("\\|", "").count("|") for line in rows.values()} == {columns}


def test_tagwises_best_is_compared_with_the_peer_of_best_precision(report):
    page = full_page(report)
    assert "best by validation (Cascade) against the best peer (slow).** P@1 65.00 against 64.00" in page
    # √(0.65·0.35/2500) = 0.95%, √(0.64·0.36/2500) = 0.96%.
    assert "(standard errors 1.0 and 1.0)" in page
    assert "Of 14 columns tagwise is ahead in 14 (P@1; P@3;" in page
    assert "Against the best of any peer in each column it is ahead in 8 (P@1;" in page
    assert "behind in 6 (train, s; train, CPU s; batch, ms/row; one row, ms; peak, MB; model, MB)" in page
    assert "| P@1 | 65.00 | 64.00 | tagwise, 1.00 points | 64.00 (slow) |" in page
    assert "| train, s | 2.00 | 8.00 | tagwise, 4.0 times | 1.00 (quick) |" in page
    assert "on 976 validation rows (Cascade 64.00, LEML 62.37) took 1.3 s (2.0 CPU s)" in page
    assert "BinaryRelevance was left out: too many weights." in page


def test_sets_are_in_the_usual_order_with_shape_date_and_settings(report):
    later = copy.deepcopy(report["cells"][1])
    later |= {"set": "debtags-20", "date": "2026-01-05"}
    report["cells"].insert(0, later)
    page = full_page(report)
    assert page.index("## bibtex") < page.index("## debtags, 20% of the labels known")
    assert "measured 2026-01-02 to 2026-01-05 on 2 cores (x86_64)" in page
    assert "4,880 training and 2,500 test rows, 1,836 features, 159 labels." in page
    assert "- slow (slow 1.5): depth 3, parameters (defaults)\n" in page
    assert "- broken: depth 3, parameters (defaults)\n" in page


def test_the_page_is_made_from_the_stored_json_alone(report, tmp_path, capsys):
    (tmp_path / "peers.json").write_text(json.dumps(report))
    run.main(["--pages-only", "--out", str(tmp_path)])
    assert (tmp_path / "peers.md").read_text(encoding="utf-8") == full_page(report)
    assert full_page(report) in capsys.readouterr().out
    assert "Nothing has been measured yet." in full_page({"cells": []})
