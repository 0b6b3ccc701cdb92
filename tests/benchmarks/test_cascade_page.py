"""The page of benchmarks/cascade.py: the best constants are those of each column, and what is behind is said."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import cascade


@pytest.fixture
def report():
    def cell(seed, known=1.0):
        shown = {
            cascade.FUSED: 0.60 + 0.01 * seed,
            cascade.PROPOSER: 0.50,
            cascade.RANKERS: 0.61 + 0.01 * seed,
            cascade.CONSTANTS: 0.55,
            cascade.WITHOUT: 0.56,
            "slope 2, exponent 1, prototypes 0": 0.58,
        }
        systems = {name: dict.fromkeys(cascade.METRICS, value) for name, value in shown.items()}
        for name in cascade.CALIBRATED:
            systems[name]["reliability"] = {"error": 0.02}
        costs = dict.fromkeys(
            ("seconds", "cpu_seconds", "predict_us_per_row", "one_row_us", "peak_gb", "model_mb"), 1.0
        )
        return {"dataset": "bibtex", "known": known, "seed": seed, "systems": systems, **costs}

    return {"machine": {"cores": 2}, "threads": 2, "cells": [cell(seed) for seed in (2, 0, 1)]}


def test_rows_have_mean_and_standard_error_and_the_best_constants(report, monkeypatch):
    monkeypatch.setattr(cascade, "best_peers", dict)
    lines = cascade.page(report).splitlines()
    # The standard error of 60, 61 and 62 is 1/√3.
    assert any(
        line.startswith("| bibtex | Cascade | 61.0 ± 0.58 |") and line.endswith("2.0 ± 0.00 |") for line in lines
    )
    (best,) = [line for line in lines if line.startswith(f"| bibtex | {cascade.BEST} ")]
    assert "58.0 ± 0.00" in best


def test_who_is_ahead_by_more_than_a_standard_error_is_listed(report):
    peers = {("bibtex", 1.0): dict.fromkeys(cascade.METRICS, 0.614)}
    (line,) = cascade.shortfalls(report, peers)
    assert line.startswith("- bibtex, rankers alone: P@1 1.00, P@3 1.00")
    # 0.4 points are within the standard error of the seeds, 0.58; 0.7 are not.
    peers["bibtex", 1.0]["PSP@5"] = 0.617
    assert list(cascade.shortfalls(report, peers))[1] == "- bibtex, best peer: PSP@5 0.70"
    assert cascade.standard_error(np.array([0.5])) == 0
