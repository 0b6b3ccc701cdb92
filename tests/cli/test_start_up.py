"""What a start imports, and what is said while kernels compile; ``benchmarks/start_up.py`` has the seconds."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import COMMAND

HEAVY = ("numba", "sklearn", "scipy", "numpy")


def loaded_by(*statements, of=HEAVY):
    """The modules among ``of`` that are loaded after each of these statements, run one after the other."""
    code = "import sys\n"
    for statement in statements:
        code += f"{statement}\nprint([name for name in {of} if name in sys.modules], file=sys.stderr)\n"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=300)
    return [ast.literal_eval(line) for line in result.stderr.splitlines()]


def test_nothing_heavy_is_imported():
    """What makes a start quick, whatever the machine does besides."""
    show_help = "from tagwise.cli.main import tagwise as command; command(['--help'], standalone_mode=False)"
    assert loaded_by("import tagwise", show_help) == [[], []]


def test_numba_waits_for_the_first_kernel():
    modules = ("tagwise.exceptions", "tagwise.data", "tagwise.metrics", "tagwise.persistence")
    assert loaded_by(*(f"import {module}" for module in modules), of=("numba",)) == [[]] * 4


def test_the_first_compilation_is_reported_once_and_a_second_run_is_silent(tmp_path):
    model = Path(__file__).parents[1] / "persistence" / "golden" / "0.1.0" / "Tagger-binary-relevance"
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
    import tagwise

    for name in tagwise.__all__:
        assert getattr(tagwise, name) is not None
    assert set(tagwise.__all__) <= set(dir(tagwise))
    with pytest.raises(AttributeError, match="no attribute 'leml'"):
        _ = tagwise.leml
