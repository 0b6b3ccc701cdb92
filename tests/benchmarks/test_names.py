"""Benchmarks and scripts, which no test runs, name modules, functions and parameters of tagwise that exist."""

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest

from tagwise.registry import MODELS

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")])
CLASSES = {info.class_name: info for info in MODELS}


def imported_from(tree):
    """(module, name or None) of all imports from tagwise, also those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tagwise":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name.split(".")[0] == "tagwise")


def exists(module, name):
    if name is None or hasattr(import_module(module), name):
        return import_module(module) is not None
    return import_module(f"{module}.{name}") is not None


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imported_names_exist(path):
    for module, name in imported_from(ast.parse(path.read_text(encoding="utf-8"))):
        assert exists(module, name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_parameters_of_models_exist(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES:
            accepted = inspect.signature(CLASSES[node.func.id].load_class()).parameters
            unknown = {keyword.arg for keyword in node.keywords if keyword.arg} - set(accepted)
            assert not unknown, f"line {node.lineno}: {node.func.id} has no parameter {', '.join(sorted(unknown))}"
