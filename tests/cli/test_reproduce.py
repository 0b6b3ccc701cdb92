"""``tagwise reproduce``: it finds the folder, passes options on, resumes, and says what is missing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run

import tagwise

FOLDER = Path(__file__).parents[2] / "reproduction"
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


@pytest.fixture
def toy(tmp_path):
    """A folder with a configuration and no code."""
    folder = tmp_path / "configurations"
    (folder / "toy").mkdir(parents=True)
    (folder / "toy" / "small.toml").write_text(CONFIGURATION)
    return folder


def reproduce(*arguments):
    """Exit code, standard output and error of the verb."""
    done = run("reproduce", *arguments)
    return done.returncode, done.stdout, done.stderr


def keys_in(folder):
    return [json.loads(line)["key"] for path in folder.rglob("*.jsonl") for line in path.read_text().splitlines()]


def test_runs_lists_resumes_and_makes_pages(toy, tmp_path):
    verb = ("toy", "--folder", toy)
    assert reproduce(*verb, "--list") == (0, "small: one method: 0 of 2 cells done\n  table 4: precision\n", "")
    shown = [{"number": "table 4", "title": "precision"}]
    listed = [{"name": "small", "title": "one method", "done": 0, "cells": 2, "shown": shown}]
    assert json.loads(reproduce(*verb, "--list", "--json")[1]) == listed

    code, _, told = reproduce(*verb, "--quick", "--threads", "1")
    assert code == 0, told
    assert "[1/1] debtags-sample: KNN seed=0: P@1 0." in told
    assert "left)" in told
    assert keys_in(toy / "quick-results") == ["debtags-sample--knn--seed-0"]
    assert not (toy / "results").exists()

    out = tmp_path / "elsewhere"
    pages = [str(out / "toy" / "small.md"), str(out / "summary.md")]
    code, printed, told = reproduce(*verb, "--table", "4", "--out", out)
    assert code == 0, told
    assert printed.splitlines() == pages
    assert len(keys_in(out)) == 2
    code, printed, told = reproduce(*verb, "--out", out, "--json")
    assert json.loads(printed) == {"ran": 0, "done_before": 2, "failed": {}, "pages": pages}
    assert told == "2 of 2 cells are done already\n"

    page = (out / "toy" / "small.md").read_bytes()
    (out / "toy" / "small.md").unlink()
    assert reproduce(*verb, "--out", out, "--pages-only")[0] == 0
    assert (out / "toy" / "small.md").read_bytes() == page
    assert "2 of 2 cells done" in reproduce(*verb, "--list", "--out", out)[1]


def test_what_fails_or_is_unknown_is_said(toy):
    assert "has no configuration of leml (leml/*.toml); it has toy." in reproduce("leml", "--folder", toy)[2]
    code, _, told = reproduce("toy", "--folder", toy, "--table", "9")
    assert code == 2
    assert "there is no '9'; there are table 4" in told
    path = toy / "toy" / "small.toml"
    path.write_text(CONFIGURATION.replace('class = "KNN"', 'class = "KNN"\nparameters = { n_neighbors = 0 }'))
    code, _, told = reproduce("toy", "--folder", toy)
    assert code == 1
    assert "failed: debtags-sample: KNN seed=0: InvalidInputError: n_neighbors must be" in told
    first = (toy / "results" / "toy" / "small.jsonl").read_text().splitlines()[0]
    assert "n_neighbors" in json.loads(first)["error"]


def test_missing_data_is_reported_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setenv("TAGWISE_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code, _, told = reproduce("leml", "--quick", "--out", tmp_path)
    assert code == 1
    assert "Data sets not found: bibtex. Set the environment variable TAGWISE_DATA" in told
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_missing_folder_is_reported_with_where_to_get_it(tmp_path, monkeypatch):
    """As installed from a wheel: no folder beside the package."""
    monkeypatch.setattr(tagwise, "__file__", str(tmp_path / "site-packages" / "tagwise" / "__init__.py"))
    monkeypatch.chdir(tmp_path)
    code, _, told = reproduce("leml", "--list")
    assert code == 1
    assert "There is no folder `reproduction`" in told
    assert "comes with the sources of tagwise" in told
    assert "--folder" in told
    assert reproduce("leml", "--list", "--folder", FOLDER)[0] == 0
    monkeypatch.chdir(FOLDER / "leml")
    assert reproduce("leml", "--list")[0] == 0


def test_the_module_is_the_same_command():
    start = [sys.executable, "-m", "reproduction", "nothing"]
    result = subprocess.run(start, capture_output=True, text=True, timeout=300, cwd=FOLDER.parent)
    assert result.returncode == 1
    assert "has no configuration of nothing" in result.stderr
    assert "Traceback" not in result.stderr
