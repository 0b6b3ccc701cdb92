"""No file of the package uses a way of storing objects that can run code when it is read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tagwise

SOURCES = sorted(Path(tagwise.__file__).parent.rglob("*.py"))
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "pickletools",
    "copyreg",
}
BUILTINS = {"eval", "exec"}
JOBLIB = {"dump", "load"}
NUMPY = {"numpy", "np"}


def faults(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        found += [f"line {node.lineno}: {what}" for what in _faults_of(node)]
    return found


def _faults_of(node: ast.AST):
    if isinstance(node, ast.Import):
        for alias in node.names:
            parts = set(alias.name.split("."))
            if parts & MODULES or alias.name.startswith("joblib.numpy_pickle"):
                yield f"import {alias.name}"
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        names = {alias.name for alias in node.names}
        if set(module.split(".")) & MODULES or names & MODULES or "numpy_pickle" in module:
            yield f"from {module} import {', '.join(names)}"
        if module.split(".")[0] == "joblib" and names & JOBLIB:
            yield f"joblib: {names & JOBLIB}"
        if module.split(".")[0] == "numpy" and "load" in names:
            yield "numpy.load under another name, where its arguments cannot be followed"
    elif isinstance(node, ast.Attribute):
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        if owner == "joblib" and node.attr in JOBLIB:
            yield f"joblib.{node.attr}"
        if owner in {"builtins", "__builtins__"} and node.attr in BUILTINS:
            yield f"builtins.{node.attr}"
        if node.attr == "read_pickle" or node.attr == "to_pickle":
            yield node.attr
    elif isinstance(node, ast.Name) and node.id in BUILTINS:
        yield node.id
    elif isinstance(node, ast.Call):
        yield from _faults_of_call(node)


def _faults_of_call(node: ast.Call):
    function = node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        if function.value.id in NUMPY and function.attr == "load":
            flags = [keyword.value for keyword in node.keywords if keyword.arg == "allow_pickle"]
            if len(node.args) > 2 or len(flags) != 1 or not _is_false(flags[0]):
                yield "np.load without allow_pickle=False"
            if any(keyword.arg is None for keyword in node.keywords):
                yield "np.load with unknown keywords"
        if function.value.id == "importlib" and function.attr == "import_module":
            yield from _faults_of_dynamic_import(node)
    if isinstance(function, ast.Name) and function.id in {"__import__", "import_module"}:
        yield from _faults_of_dynamic_import(node)
    for keyword in node.keywords:
        if keyword.arg == "allow_pickle" and not _is_false(keyword.value):
            yield "allow_pickle other than False"


def _faults_of_dynamic_import(node: ast.Call):
    for argument in node.args:
        if isinstance(argument, ast.Constant) and set(str(argument.value).split(".")) & MODULES:
            yield f"import of {argument.value}"


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def test_there_are_sources():
    assert len(SOURCES) > 5


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(SOURCES[0].parent).as_posix())
def test_source_stores_no_objects(path):
    assert not faults(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "import cPickle as c",
        "import dill, os",
        "import cloudpickle.fast",
        "import marshal",
        "import shelve",
        "def f():\n    import pickle",
        "from pickle import loads",
        "from joblib.externals import cloudpickle",
        "from joblib import dump",
        "import joblib\njoblib.load('x')",
        "from joblib.numpy_pickle import load",
        "import numpy as np\nnp.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import numpy as np\nnp.load('x', None, True)",
        "import numpy as np\nnp.load('x', allow_pickle=flag)",
        "import numpy as np\nnp.load('x', **options)",
        "from numpy import load",
        "load('x', allow_pickle=True)",
        "eval('1')",
        "run = exec",
        "import builtins\nbuiltins.exec('1')",
        "__import__('pickle')",
        "import importlib\nimportlib.import_module('pickle')",
        "frame.to_pickle('x')",
    ],
)
def test_the_walk_finds(code):
    assert faults(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "import json\njson.load(stream)",
        "import numpy as np\nnp.load('x', allow_pickle=False)",
        "from joblib import Parallel",
        "from importlib import import_module\nimport_module(name)",
        "model.evaluate()",
        "load('x')",
    ],
)
def test_the_walk_allows(code):
    assert not faults(ast.parse(code))
