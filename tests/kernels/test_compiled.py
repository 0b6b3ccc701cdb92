"""The cache of compiled code: damage, full disks and several writers cost time only."""

import ast
import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import config

from tagwise.exceptions import TagwiseWarning
from tagwise.kernels import compiled as module
from tagwise.kernels.compiled import compiled

REPOSITORY = Path(__file__).parents[2]
SOURCE = "def double(x):\n    return x + x\n"


@pytest.fixture
def double(tmp_path, monkeypatch):
    """A function of a file of its own; its cache is the folder ``cache``."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "_warned", set())
    path = tmp_path / "doubling.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("doubling", path)
    loaded = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "doubling", loaded)  # as an import does; numba looks it up there
    spec.loader.exec_module(loaded)
    return loaded.double


def files(tmp_path):
    return sorted((tmp_path / "cache").rglob("*.nbc"))


def hits(function):
    return sum(function.stats.cache_hits.values())


def test_what_was_compiled_is_found_again(double, tmp_path):
    assert compiled()(double)(2) == 4
    assert compiled()(double)(2.5) == 5.0
    assert len(files(tmp_path)) == 2, "one file per signature"
    again = compiled()(double)
    assert (again(3), again(1.5), hits(again)) == (6, 3.0, 2)
    assert not list((tmp_path / "cache").rglob("*.nbi")), "no index that could name another signature's code"


DAMAGES = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "cut in the digest": lambda content: content[:7],
    "one bit": lambda content: content[:-99] + bytes([content[-99] ^ 4]) + content[-98:],
}


def test_a_damaged_file_is_compiled_again_and_replaced(double, tmp_path, monkeypatch):
    for damage, damaged in DAMAGES.items():
        compiled()(double)(2)
        for path in files(tmp_path):
            path.write_bytes(damaged(path.read_bytes()))
        monkeypatch.setattr(module, "_warned", set())
        fresh = compiled()(double)
        with pytest.warns(TagwiseWarning, match=r"some compiled code in .* cannot be read .* compiled again") as caught:
            assert fresh(3) == 6, damage
        assert len(caught) == 1, "once"
        again = compiled()(double)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (again(3), hits(again)) == (6, 1), damage


def test_code_of_other_sources_is_compiled_again(double, tmp_path, monkeypatch):
    compiled()(double)(2)
    monkeypatch.setattr(module, "_sources", lambda file: ("another version",))
    fresh = compiled()(double)
    assert (fresh(3), hits(fresh)) == (6, 0)
    assert len(files(tmp_path)) == 1, "in the place of the old code"
    again = compiled()(double)
    assert (again(3), hits(again)) == (6, 1)


def test_sources_are_those_of_the_kernels_that_a_file_imports():
    """A kernel holds the code of those that it calls, and of those that they call; others may change."""
    kernels = REPOSITORY / "src" / "tagwise" / "kernels"
    found = {path.stem for path, _ in module._closure(kernels / "norm_pruned.py", {})}
    assert {"norm_pruned", "llvm_gather", "sampled_pairs", "top_k", "vectors"} <= found
    assert not {"trees", "supports", "group_lasso", "validation"} & found
    assert {path.stem for path, _ in module._closure(kernels / "random_stream.py", {})} <= {"random_stream", "compiled"}


def test_inner_functions_are_for_compiled_code(double):
    inner = compiled(inner=True)(double)

    @numba.njit
    def outer(x):
        return inner(x) + 1

    for _ in range(2):
        assert outer(2) == 5
        with pytest.raises(TypeError, match="from compiled code only"):
            inner(2)


# ---------------------------------------------------------------------- real processes and limits

_RUN = """
import importlib.util, resource, signal, sys, warnings
limit, folder, *arguments = sys.argv[1:]
from numba.core import config
from tagwise.kernels.compiled import compiled
config.CACHE_DIR = folder
spec = importlib.util.spec_from_file_location("doubling", "doubling.py")
loaded = importlib.util.module_from_spec(spec)
spec.loader.exec_module(loaded)
double = compiled()(loaded.double)
if int(limit):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    answers = [double(eval(argument)) for argument in arguments]
print(answers, len(caught), sum(double.stats.cache_hits.values()))
for warning in caught:
    print(warning.category.__name__, warning.message)
"""


def started(folder, *arguments, limit=0, cache="cache", **environment):
    (folder / "doubling.py").write_text(SOURCE)
    return subprocess.Popen(
        [sys.executable, "-c", _RUN, str(limit), str(folder / cache), *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.splitlines()


def test_a_full_disk_costs_time_only(tmp_path):
    first, warning = said(started(tmp_path, "1", "1.5", limit=100))
    assert first == "[2, 3.0] 1 0"
    assert warning.startswith("TagwiseWarning some compiled code in ")
    assert "cannot be kept" in warning
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()], "nothing half written stays"


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path):
    (tmp_path / "__pycache__").write_text("a file in the place of the folder")
    nowhere = "doubling.py/below-a-file"
    first, warning = said(started(tmp_path, "1", "1.5", cache=nowhere, HOME=nowhere, XDG_CACHE_HOME=nowhere))
    assert first == "[2, 3.0] 1 0"
    assert "no folder for it can be written" in warning


def test_processes_that_compile_at_once_do_not_take_each_others_code(tmp_path):
    """numba's index gave two signatures of two processes one file: one of them found the other's machine code."""
    texts = {"1": "2", "1.5": "3.0", "1j": "2j", "__import__('numpy').ones(2)": "array([2., 2.])"}
    running = [started(tmp_path, argument) for argument in texts]
    for process, text in zip(running, texts.values(), strict=True):
        assert said(process) == [f"[{text}] 0 0"]
    (found,) = said(started(tmp_path, *texts))
    assert found == f"[{', '.join(texts.values())}] 0 4"


# ---------------------------------------------------------------------- other ways to run the kernels

_MODELS = """
import warnings
import numpy as np, scipy.sparse as sp
from tagwise import LEML, REML, Cascade
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = sp.random(60, 20, 0.3, format="csr", random_state=1)
Y = sp.csr_matrix((X @ rng.standard_normal((20, 6)) > 0.6).astype(float))
small = {"rank": 3, "max_iter": 3}
models = [LEML(**small), REML(**small, sparse_part="support", support=5), REML(**small, sparse_part="admm"),
          Cascade(**small, shortlist=4, support=5)]
for model in models:
    model.fit(X, Y)
    model.predict_topk(X[:1], k=2)
    labels, _ = model.predict_topk(X, k=1)
    np.save(f"{len(list(__import__('pathlib').Path('.').glob('*.npy')))}.npy", model.decision_function(X))
"""


def test_models_answer_alike_without_compilation(tmp_path):
    """NUMBA_DISABLE_JIT=1 is for a debugger, or where LLVM cannot run."""
    running = {}
    for choice in "01":
        (tmp_path / choice).mkdir()
        running[choice] = subprocess.Popen(
            [sys.executable, "-c", _MODELS],
            cwd=tmp_path / choice,
            env={**os.environ, "NUMBA_DISABLE_JIT": choice},
            stderr=subprocess.PIPE,
        )
    for process in running.values():
        _, err = process.communicate(timeout=600)
        assert process.returncode == 0, err.decode()
    for number in range(4):
        scores, plain = (np.load(tmp_path / choice / f"{number}.npy") for choice in "01")
        np.testing.assert_allclose(plain, scores, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_kernels_stay_within_their_arrays(tmp_path):
    """The tests of the kernels, and of the fusion, with numba's bounds checks, which raise IndexError."""
    tests = ["tests/kernels", "tests/models/cascade/test_fusion.py"]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=REPOSITORY,
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert found.returncode == 0, found.stdout[-5000:]
    # The checks reach the inner loop of every sparse product, which otherwise is an intrinsic without any.
    outside = (
        "import numpy as np; from tagwise.kernels.gather_sum import sum_rows; "
        "sum_rows(np.array([5]), np.ones(1), np.ones((2, 8)), (0, 1, 1), (0, 8), False, np.zeros(8), 0)"
    )
    found = subprocess.run(
        [sys.executable, "-c", outside],
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "IndexError" in found.stderr


def test_functions_with_fastmath_raise_nothing_to_a_power():
    """numba compiles a power once per process, with the flags of the function that needs it first."""
    faulty = []
    for path in (REPOSITORY / "src" / "tagwise").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
            options = [word.arg for one in decorators if isinstance(one, ast.Call) for word in one.keywords]
            if "fastmath" in options and any(isinstance(part, ast.Pow) for part in ast.walk(node)):
                faulty.append(f"{path.name}: {node.name}")
    assert not faulty
