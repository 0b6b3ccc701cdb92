"""Imports of a start, and messages while kernels compile; ``benchmarks/start_up.py`` has the seconds."""

import ast
import os
import subprocess
import sys

import pytest
from commands import COMMAND

import tagwise
import tagwise.data
from tagwise import Tagger

HEAVY = ("numba", "sklearn", "scipy", "numpy")


def loaded_by(*statements, of=HEAVY):
    """The modules among ``of`` that are loaded after each of these statements, run one after the other."""
    code = "import sys\n"
    for statement in statements:
        code += f"{statement}\nprint([name for name in {of} if name in sys.modules], file=sys.stderr)\n"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=300)
    return [ast.literal_eval(line) for line in result.stderr.splitlines()]


def test_nothing_heavy_is_imported():
    """A start is quick whatever the machine does besides."""
    show_help = "from tagwise.cli.main import tagwise as command; command(['--help'], standalone_mode=False)"
    assert loaded_by("import tagwise", "import tagwise.data", show_help) == [[], [], []]


def test_numba_waits_for_the_first_kernel():
    statements = [f"import tagwise.{module}" for module in ("exceptions", "data", "metrics", "store")]
    statements.append("tagwise.data.load_dataset('debtags-sample')")
    statements.append("from tagwise.data import hide_labels, split_rows, make_power_law, make_low_rank_plus_sparse")
    assert loaded_by(*statements, of=("numba",)) == [[]] * 6


def test_the_first_compilation_is_reported_once_and_a_second_run_is_silent(tmp_path):
    model = tmp_path / "model"
    Tagger("binary-relevance").fit(["a red apple", "a green pear"] * 4, [["red"], ["green"]] * 4).save(model)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    first, second = (
        subprocess.run(
            [*COMMAND, "predict", str(model), "a red apple"],
            capture_output=True,
            text=True,
            timeout=600,
            env=environment,
        )
        for _ in range(2)
    )
    assert first.returncode == second.returncode == 0
    assert first.stderr.count("Compiling for this machine") == 1
    assert second.stderr == ""
    assert first.stdout == second.stdout


def test_public_names_are_there_and_listed():
    for package in (tagwise, tagwise.data):
        for name in package.__all__:
            assert getattr(package, name) is not None
        assert set(package.__all__) <= set(dir(package))
        with pytest.raises(AttributeError, match="no attribute 'load_everything'"):
            _ = package.load_everything
    assert set(dir(tagwise.data)) == set(tagwise.data.__all__) == set(tagwise.data._HOME_OF)
