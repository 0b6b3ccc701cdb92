"""The first things that people paste: README's commands and its Python, as they stand there, one after the other."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_run_as_pasted(folder):
    block = re.search(r"^On the command line:\n\n((?:    tagwise .*\n)+)", README, flags=re.MULTILINE)
    commands = [shlex.split(line)[1:] for line in block[1].splitlines()]
    assert [command[0] for command in commands] == ["sample", "train", "predict", "evaluate"]
    answers = []
    for command in commands:
        result = run(*command)
        assert result.returncode == 0, f"{command}\n{result.stderr}"
        answers.append(result.stdout)
    assert "network::server" in answers[2] or "web::server" in answers[2]
    assert (folder / "report.html").stat().st_size > 10_000


def first_example(page):
    """The first block of Python on a page, and what it prints."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        re.search(rf"^```{kind}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)[1] for kind in ("python", "text")
    ]


def test_the_python_prints_what_is_shown(folder):
    code, shown = first_example("README.md")
    assert first_example("docs/index.md") == [code, shown]
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "TAGWISE_DATA": ""},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == shown.splitlines()


def test_the_model_of_the_start_runs_as_pasted(folder):
    page = (ROOT / "docs" / "start" / "first-model.md").read_text(encoding="utf-8")
    code = re.search(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)[1]
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "TAGWISE_DATA": ""},
    )
    assert result.returncode == 0, result.stderr
    assert float(re.search(r"\d\.\d+", result.stdout)[0]) > 0.6
    assert (folder / "leml" / "manifest.json").exists()
