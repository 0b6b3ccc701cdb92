"""docs/architecture.md tells the truth: its walks are those of real calls, its layers are those of the contract."""

import ast
import re
import sys
from pathlib import Path

import pytest

import tagwise
from tagwise import baselines, data, distributed, inspection, tuning
from tagwise.registry import MODELS

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tagwise"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
sys.path.insert(0, str(ROOT / "scripts"))
import walks  # noqa: E402


@pytest.fixture(scope="module")
def real_walks():
    return walks.walks()


@pytest.mark.parametrize("name", walks.LIMITS)
def test_a_walk_on_the_page_is_the_real_one(name, real_walks):
    section = PAGE.partition(f"### {name}: ")[2].partition("###")[0]
    shown = set(re.findall(r"^\d+\. `([\w/]+\.py)`", section, flags=re.M))
    files = walks.own_files(real_walks, name)
    assert shown == set(files), "run python scripts/walks.py --write"
    assert len(files) <= walks.LIMITS[name]


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


def test_only_what_users_call_by_keywords_takes_more_than_eight_arguments():
    """Those are models, verbs of the command line and functions of the library; elsewhere a structure has a name."""
    public = {*tagwise.__all__, *data.__all__, *inspection.__all__, *tuning.__all__, *distributed.__all__}
    estimators = {*public, *(info.class_name for info in MODELS)}
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        constructors = {
            method
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and node.name in estimators
            for method in node.body
            if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef) or node in constructors or node.name in public:
                continue
            if any("click" in ast.unparse(decorator) for decorator in node.decorator_list):
                continue
            taken = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            assert len([name for name in taken if name not in ("self", "cls")]) <= 8, f"{path.name}: {node.name}"


def test_no_module_imports_itself_through_others():
    """Imports inside functions and for type checking count too."""
    modules = {
        ".".join(("tagwise", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in SOURCE.rglob("*.py")
    }
    imported: dict[str, set[str]] = {}
    for name, path in modules.items():
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        named = [(node.module or "", alias.name) for node in nodes for alias in node.names]
        imported[name] = {inner if (inner := f"{outer}.{own}") in modules else outer for outer, own in named}
        imported[name] = imported[name] & set(modules) - {name}
    while without := [name for name, others in imported.items() if not others & set(imported)]:
        for name in without:
            del imported[name]
    assert not imported, "these import one another, or are imported by such"


def test_compiled_functions_that_other_files_import_are_kernels():
    """Cached machine code is of its own file and the kernels: a change of any other file would go unnoticed."""
    trees = {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py") if path.parent.name != "kernels"}
    made = {
        (".".join(("tagwise", *path.relative_to(SOURCE).with_suffix("").parts)), node.name)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(d).startswith("compiled(") for d in node.decorator_list)
    }
    imported = {
        (node.module, alias.name)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert made
    assert not made & imported
