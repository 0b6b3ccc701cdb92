"""Peak memory of the text reader, measured in a process of its own; and what importing the package costs."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.data.sparse_text import _write_lines
from tagwise.data.streams import atomic_writer

MEASURE = """
import json, resource, sys
from tagwise.data import read_xmc

def peak():
    # The kernel's high-water mark can be set back on Linux, so that loading the compiler does not hide the reading.
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

read_xmc(sys.argv[1])
try:
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
except OSError:
    pass
before = peak()
rows = read_xmc(sys.argv[2])
after = peak()
final = sum(a.nbytes for m in (rows.X, rows.Y) for a in (m.data, m.indices, m.indptr))
print(json.dumps({"final": final, "used": after - before}))
"""


@pytest.mark.parametrize(
    ("ending", "shape"),
    [
        pytest.param("", "even", marks=pytest.mark.slow),
        ("", "dense first"),
        pytest.param(".gz", "even", marks=pytest.mark.slow),
    ],
)
def test_peak_memory(tmp_path, ending, shape):
    measured = measure(tmp_path, ending, shape, 40_000)
    assert measured["final"] > 25e6
    # Stricter than promised (64 MB): on matrices of this size the promise would let a second copy pass.
    assert measured["used"] <= 1.5 * measured["final"] + 12e6, measured


@pytest.mark.slow
def test_peak_memory_of_a_large_file(tmp_path):
    measured = measure(tmp_path, "", "even", 400_000)
    assert measured["final"] > 250e6
    assert measured["used"] <= 1.5 * measured["final"] + 64e6, measured


def some_lines(n, length):
    """Lines of n rows with ``length`` features each and three labels."""
    random = np.random.default_rng(0)
    indices = np.concatenate([np.sort(random.choice(1000, length, replace=False)) * 50 for _ in range(n)])
    values = random.random(len(indices), dtype=np.float32).round(4) + np.float32(0.1)
    X = sp.csr_matrix((values, indices, np.arange(n + 1) * length), shape=(n, 50_000))
    Y = sp.csr_matrix((np.ones(n * 3), (np.arange(n * 3) * 7) % 5_000, np.arange(n + 1) * 3), shape=(n, 5_000))
    stream = io.BytesIO()
    _write_lines(stream, X, Y)
    return stream.getvalue()


def measure(tmp_path, ending, shape, n):
    # The same lines over and over take as much memory as different ones, and much less time to make.
    body = some_lines(400, 85) * (n // 400)
    if shape == "dense first":
        body = some_lines(400, 850) * (n // 4000) + some_lines(400, 1) * (n // 400 - n // 4000)
    small, large = tmp_path / f"small.txt{ending}", tmp_path / f"large.txt{ending}"
    for path, rows, lines in ((small, 400, some_lines(400, 85)), (large, n, body)):
        with atomic_writer(path) as stream:
            stream.write(f"{rows} 50000 5000\n".encode() + lines)
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, str(small), str(large)], capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)


def test_importing_the_readers_does_not_import_numba():
    code = "import sys, tagwise.data; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
