"""No file of the package uses a way of storing objects that can run code when it is read."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import tagwise

SOURCES = sorted(Path(tagwise.__file__).parent.rglob("*.py"))
FORBIDDEN = re.compile(
    r"(^|\.)(c?pickle|_pickle|cPickle|dill|cloudpickle|marshal|shelve|pickletools|copyreg|numpy_pickle\w*)(\.|$)"
    r"|^(joblib\.(dump|load)|numpy\.load|((__)?builtins(__)?\.)?(eval|exec))$|\.(read|to)_pickle$"
)


def names(node: ast.AST) -> list[str]:
    """The dotted names that a node imports or uses; ``np.load`` is looked at where it is called."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Attribute | ast.Name):
        return [ast.unparse(node)]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("__import__", "import_module")):
        return [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]
    return []


def faults(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        found += [f"line {node.lineno}: {name}" for name in names(node) if FORBIDDEN.search(name)]
        if isinstance(node, ast.Call):
            flags = [ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "allow_pickle"]
            if flags != ["False"] and (flags or ast.unparse(node.func) in ("np.load", "numpy.load")):
                found.append(f"line {node.lineno}: objects may be read")
    return found


def test_no_source_stores_objects():
    assert len(SOURCES) > 100
    found = {path.name: faults(ast.parse(path.read_text(encoding="utf-8"))) for path in SOURCES}
    assert not {name: what for name, what in found.items() if what}


def test_the_walk_finds_what_it_looks_for_and_allows_the_rest():
    for code in (
        "import pickle",
        "import cPickle as c",
        "import dill, os",
        "import cloudpickle.fast",
        "import marshal",
        "def f():\n    import pickle",
        "from pickle import loads",
        "from joblib.externals import cloudpickle",
        "from joblib import dump",
        "import joblib\njoblib.load('x')",
        "from joblib.numpy_pickle import load",
        "import numpy as np\nnp.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import numpy as np\nnp.load('x', None, True)",
        "import numpy as np\nnp.load('x', **options)",
        "from numpy import load",
        "load('x', allow_pickle=True)",
        "eval('1')",
        "run = exec",
        "import builtins\nbuiltins.exec('1')",
        "__import__('pickle')",
        "import importlib\nimportlib.import_module('pickle')",
        "frame.to_pickle('x')",
    ):
        assert faults(ast.parse(code)), code
    for code in (
        "import json\njson.load(stream)",
        "import numpy as np\nnp.load('x', allow_pickle=False)",
        "from joblib import Parallel",
        "from importlib import import_module\nimport_module(name)",
        "model.evaluate()",
    ):
        assert not faults(ast.parse(code)), code
