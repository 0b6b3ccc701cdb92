"""``tagwise reproduce``, as a person runs it."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from commands import COMMAND

CONFIGURATION = """
title = "one method"
metrics = ["P@1"]
assumptions = ["It is a toy."]
[methods.KNN]
class = "KNN"
[[cells]]
datasets = ["debtags-sample"]
methods = ["KNN"]
seeds = [0, 1]
[quick]
seeds = [0]
[[tables]]
number = "table 4"
title = "precision"
metrics = ["P@1"]
rows = ["dataset"]
"""


def run(*arguments, cwd, **environment):
    return subprocess.run(
        [*COMMAND, "reproduce", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
        env={**os.environ, **environment},
    )


@pytest.fixture
def sources(tmp_path):
    folder = tmp_path / "reproduction" / "toy"
    folder.mkdir(parents=True)
    (folder / "small.toml").write_text(CONFIGURATION)
    return tmp_path


def results_in(folder):
    return sorted(path.name for path in folder.rglob("*.json"))


def test_runs_lists_goes_on_and_makes_pages(sources):
    listed = run("toy", "--list", cwd=sources)
    assert listed.stdout == "small: one method: 0 of 2 cells done\n  table 4: precision\n"
    found = json.loads(run("toy", "--list", "--json", cwd=sources).stdout)
    assert found == [
        {
            "name": "small",
            "title": "one method",
            "done": 0,
            "cells": 2,
            "shown": [{"number": "table 4", "title": "precision"}],
        }
    ]
    quick = run("toy", "--quick", "--threads", "1", cwd=sources)
    assert quick.returncode == 0, quick.stderr
    assert "[1/1] debtags-sample: KNN seed=0: P@1 0." in quick.stderr
    assert "left)" in quick.stderr
    reproduction = sources / "reproduction"
    assert results_in(reproduction / "quick-results") == ["debtags-sample--knn--seed-0.json"]
    assert not (reproduction / "results").exists()

    out = sources / "elsewhere"
    deeper = sources / "reproduction" / "toy"
    whole = run("toy", "--table", "4", "--out", out, cwd=deeper)
    assert whole.returncode == 0, whole.stderr
    assert len(results_in(out)) == 2
    assert f"{out / 'toy' / 'small.md'}\n{out / 'summary.md'}\n" == whole.stdout
    for_programs = json.loads(run("toy", "--out", out, "--json", cwd=sources).stdout)
    pages = [str(out / "toy" / "small.md"), str(out / "summary.md")]
    assert for_programs == {"ran": 0, "done_before": 2, "failed": {}, "pages": pages}
    again = run("toy", "--out", out, cwd=sources)
    assert "2 of 2 cells are done already" in again.stderr
    assert "[" not in again.stderr

    page = (out / "toy" / "small.md").read_bytes()
    (out / "toy" / "small.md").unlink()
    assert run("toy", "--out", out, "--pages-only", cwd=sources).returncode == 0
    assert (out / "toy" / "small.md").read_bytes() == page
    assert "2 of 2 cells done" in run("toy", "--list", "--out", out, cwd=sources).stdout


def test_a_failed_cell_is_said_and_is_an_error(sources):
    path = sources / "reproduction" / "toy" / "small.toml"
    path.write_text(CONFIGURATION.replace('class = "KNN"', 'class = "KNN"\nparameters = { n_neighbors = 0 }'))
    result = run("toy", cwd=sources)
    assert result.returncode == 1
    assert "failed: debtags-sample: KNN seed=0: InvalidInputError: n_neighbors must be" in result.stderr
    assert "Traceback" not in result.stderr
    stored = next((sources / "reproduction" / "results").rglob("*.json"))
    assert "error" in json.loads(stored.read_text())


def test_what_is_missing_is_said(sources, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    nothing = run("leml", cwd=elsewhere)
    assert nothing.returncode == 1
    assert "There is no folder reproduction with configurations of leml" in nothing.stderr
    assert "--folder" in nothing.stderr
    wrong = run("leml", "--folder", sources / "reproduction", cwd=elsewhere)
    assert wrong.returncode == 1
    assert "holds no configuration of leml" in wrong.stderr
    unknown = run("toy", "--table", "9", cwd=sources)
    assert unknown.returncode == 2
    assert "there is no '9'; there are table 4" in unknown.stderr
    assert run("toy", "--folder", sources / "reproduction", "--list", cwd=elsewhere).returncode == 0


def test_missing_data_is_said_before_any_work(tmp_path):
    sources = Path(__file__).parents[2]
    result = run("leml", "--quick", "--out", tmp_path, cwd=sources, TAGWISE_DATA="", XDG_CACHE_HOME=str(tmp_path))
    assert result.returncode == 1
    assert "not at hand: bibtex. Set the environment variable TAGWISE_DATA" in result.stderr
    assert not list(tmp_path.rglob("*.json"))


def test_numbers_are_found_in_every_way_they_are_written():
    from tagwise.cli.reproduce import _same
    from tagwise.reproduction.configuration import Table

    def table(number):
        return Table(number=number, title="", metrics=("P@1",), rows=("dataset",))

    for number, asked in [
        ("table 6", "6"),
        ("table 6", "Table 6"),
        ("figure 2b", "figure-2b"),
        ("table 3 (AUC)", "3"),
        ("theory, n", "theory"),
    ]:
        assert _same(table(number), asked)
    for number, asked in [("table 6", "66"), ("table 13", "3"), ("figure 1", "1")]:
        assert not _same(table(number), asked)
