"""The recipes of CONTRIBUTING.md, followed literally in a copy of the tree."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECIPES = dict(re.findall(r"^### (Add [^\n]*)\n(.*?)(?=^##)", (ROOT / "CONTRIBUTING.md").read_text(), re.M | re.S))
BLOCK = re.compile(r"^(?P<indent> *)```(?P<kind>\w+)\n(?P<code>.*?)^ *```$", re.M | re.S)


def steps(recipe):
    """File, kind and code of each block; "Try it" is the file of what is run."""
    end = 0
    for block in BLOCK.finditer(recipe):
        said, end = recipe[end : block.start()], block.end()
        place = "Try it" if said.rstrip().endswith("Try it:") else re.findall(r"`([\w/.]+/[\w/.]+)`:?", said)[-1]
        yield place, block["kind"], textwrap.dedent(block["code"])


def apply(path, diff):
    """Each run of lines is found once in the file, and replaced."""
    text = path.read_text()
    pieces = [""]
    for line in diff.splitlines(keepends=True):
        if pieces[-1] and line[0] != "+" and pieces[-1].splitlines()[-1][0] == "+":
            pieces.append("")
        pieces[-1] += line
    for piece in join_additions(pieces):
        lines = piece.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] != "+")
        assert text.count(old) == 1, f"{path.name} has not once: {old}"
        text = text.replace(old, "".join(line[1:] for line in lines if line[0] != "-"))
    path.write_text(text)


def join_additions(pieces):
    """Lines that are only added belong to the lines that follow them."""
    ahead = ""
    for piece in pieces:
        if all(line[0] == "+" for line in piece.splitlines()):
            ahead += piece
        else:
            yield ahead + piece
            ahead = ""
    assert not ahead, "lines that are added must stand beside some that are there"


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_followed_literally_works(name, tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src")  # with what is compiled
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "PYTHONWARNINGS": "ignore"}
    tried = 0
    for place, kind, code in steps(RECIPES[name]):
        if place == "Try it":
            run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True)
            assert run.returncode == 0, run.stderr.decode()
            tried += 1
        elif kind == "diff":
            apply(tmp_path / place, code)
        else:
            assert not (tmp_path / place).exists()
            (tmp_path / place).write_text(code)
    assert tried


def test_there_is_a_recipe_for_whatever_is_a_table():
    kinds = "a loss", "a model or a baseline", "an opinion of Cascade", "a file format", "a metric", "a verb"
    assert {f"Add {kind}" for kind in kinds} == set(RECIPES)
