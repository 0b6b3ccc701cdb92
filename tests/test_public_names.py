"""Every public name has its page: the API is generated from what the public packages export. Pages use no others."""

import ast
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import generated_pages  # noqa: E402

NAMES = [
    (package, name)
    for package in generated_pages.PUBLIC
    if (ROOT / "src" / package.replace(".", "/")).with_suffix("").exists() or package == "tagwise.exceptions"
    for name in getattr(import_module(package), "__all__", [])
    if f"{package}.{name}" not in generated_pages.PUBLIC and name != "__version__"
]


DOCS = ROOT / "docs"
# Pages about the inside, and those that the build of the site makes.
INSIDE = {"architecture.md", "checkpoints.md", "notes", "papers", "api", "gallery", "results", "reproduction"}
COPIED = {"changelog.md", "contributing.md", "security.md"}
TAUGHT = sorted(
    [
        ROOT / "README.md",
        *(path for path in DOCS.rglob("*.md") if path.relative_to(DOCS).parts[0] not in INSIDE | COPIED),
        *(DOCS / "examples").glob("*.py"),
    ]
)


@pytest.fixture(scope="module")
def pages():
    return generated_pages.api_pages()


def test_every_public_name_has_its_page(pages):
    assert len(NAMES) > 100
    for package, name in NAMES:
        home = generated_pages.page_of(package, name).removeprefix("api/names/").removesuffix(f".{name}")
        toctree = re.search(r":toctree: names\n.*?\n\n((?:   \w+\n)+)", pages[f"api/{home}.rst"], flags=re.DOTALL)
        assert name in toctree[1].split(), name
        value = getattr(import_module(package), name)
        assert value.__doc__ or not callable(value), name


def test_every_public_package_is_in_the_table_of_contents(pages):
    for package in {package for package, _ in NAMES}:
        assert f"\n   {package}\n" in pages["api/index.rst"]


def programs(path):
    text = path.read_text(encoding="utf-8")
    return [text] if path.suffix == ".py" else re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.DOTALL)


def imported(code):
    """(module, name) of what a program imports of tagwise; the name is None where the module itself is imported."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "tagwise":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name.partition(".")[0] == "tagwise")


def test_pages_import_public_names_only():
    for path in TAUGHT:
        for module, name in [found for code in programs(path) for found in imported(code)]:
            if f"{module}.{name}" not in generated_pages.PUBLIC:
                assert module in generated_pages.PUBLIC, f"{path}: {module} is not public"
                assert name is None or (module, name) in NAMES, f"{path}: {module}.{name} is not public"


def test_pages_name_public_names_only():
    """In sentences too; a class is followed by what it has."""
    for path in [path for path in TAUGHT if path.suffix == ".md"]:
        for name in set(re.findall(r"`(tagwise(?:\.\w+)+)(?:\(.*?\))?`", path.read_text(encoding="utf-8"))):
            parts = name.split(".")
            packages = [".".join(parts[:n]) for n in (2, 1) if ".".join(parts[:n]) in generated_pages.PUBLIC]
            if name not in generated_pages.PUBLIC:
                assert (packages[0], parts[packages[0].count(".") + 1]) in NAMES, f"{path}: {name} is not public"
