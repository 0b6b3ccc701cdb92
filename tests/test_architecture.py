"""docs/architecture.md tells the truth: its walks are those of real calls, its layers are those of the contract."""

import ast
import re
import sys
from pathlib import Path

import pytest

import tagwise
from tagwise import baselines
from tagwise.registry import MODELS

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tagwise"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
sys.path.insert(0, str(ROOT / "scripts"))
import walks  # noqa: E402


@pytest.fixture(scope="module")
def real_walks():
    return walks.walks()


@pytest.mark.slow
@pytest.mark.parametrize("name", walks.MOST_FILES)
def test_a_walk_on_the_page_is_the_real_one(name, real_walks):
    section = PAGE.partition(f"### {name}: ")[2].partition("###")[0]
    shown = set(re.findall(r"^\d+\. `([\w/]+\.py)`", section, flags=re.M))
    assert shown == set(real_walks[name]), "run python scripts/walks.py --write"
    assert len(shown) <= walks.MOST_FILES[name]


def test_every_part_of_the_source_has_a_layer_on_the_page():
    layers = PAGE.partition("## Layers")[2].partition("## ")[0]
    for path in SOURCE.iterdir():
        if (
            path.name.startswith("_")
            or path.suffix not in ("", ".py")
            or (path.is_dir() and not (path / "__init__.py").exists())
        ):
            continue
        assert f"`{path.name}`" in layers, path.name


def test_files_that_the_page_names_exist():
    for name in re.findall(r"`([\w/]+\.py)`", PAGE):
        assert any((place / name).is_file() for place in (SOURCE, ROOT)), name


@pytest.mark.parametrize(("module", "expected"), [(tagwise, "tagwise.models"), (baselines, "tagwise.baselines")])
def test_type_checkers_see_the_models_of_the_registry(module, expected):
    """They cannot follow the registry, so that the names stand once more for them alone."""
    checked = next(node for node in ast.parse(Path(module.__file__).read_text()).body if isinstance(node, ast.If))
    named = {alias.name for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    models = {info.class_name for info in MODELS if info.module.startswith(expected)}
    assert models <= named
    assert named <= set(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


def module_of(path):
    return ".".join(("tagwise", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def imported_names(tree):
    """(module, name) of every import that runs, inside functions too."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            waiting += ast.iter_child_nodes(node)


def test_no_module_imports_itself_through_others():
    trees = {module_of(path): ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}
    imported = {}
    for name, tree in trees.items():
        inner = {f"{outer}.{own}" if f"{outer}.{own}" in trees else outer for outer, own in imported_names(tree)}
        imported[name] = inner & set(trees) - {name}
    while without := [name for name, others in imported.items() if not others & set(imported)]:
        for name in without:
            del imported[name]
    assert not imported, "these import one another, or are imported by such"


def test_compiled_functions_call_their_own_file_and_kernels_alone():
    """Cached machine code is of its own file and the kernels: a change of any other file would go unnoticed."""
    trees = {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py") if path.parent.name != "kernels"}
    compiled = {
        path: [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
            and any(ast.unparse(decorator).startswith("compiled(") for decorator in node.decorator_list)
        ]
        for path, tree in trees.items()
    }
    made = {(module_of(path), function.name) for path, functions in compiled.items() for function in functions}
    assert made
    for path, tree in trees.items():
        elsewhere = {name for module, name in imported_names(tree) if (module, name) in made}
        for function in compiled[path]:
            called = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            assert not called & elsewhere, f"{path.name}: {function.name}"
