"""Start-up is a promise: people notice a command that thinks before it says anything."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

HEAVY = ("numba", "sklearn", "scipy", "numpy")


def seconds_of(command):
    """The best of five: start-up is a property of the program, the rest is the machine's load."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


def test_import_is_quick():
    assert seconds_of([sys.executable, "-c", "import tagwise"]) <= 0.3


def test_help_is_quick():
    command = Path(sys.executable).with_name("tagwise")
    assert seconds_of([str(command), "--help"]) <= 0.4


@pytest.mark.parametrize(
    "statement", ["import tagwise", "from tagwise.cli.main import tagwise; tagwise(['--help'], standalone_mode=False)"]
)
def test_nothing_heavy_is_imported(statement):
    code = f"import sys; {statement}; print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stderr.strip() == "[]"


@pytest.mark.parametrize("module", ["tagwise.data", "tagwise.metrics", "tagwise.exceptions", "tagwise.persistence"])
def test_numba_waits_for_the_first_kernel(module):
    code = f"import sys, {module}; print('numba' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "False"


def test_public_names_are_there_and_listed():
    import tagwise

    for name in tagwise.__all__:
        assert getattr(tagwise, name) is not None
    assert set(tagwise.__all__) <= set(dir(tagwise))
    with pytest.raises(AttributeError, match="no attribute 'leml'"):
        _ = tagwise.leml
