"""Documents name modules, functions and files that exist."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Pages that the build of the site copies or generates are not those that people write.
GENERATED = ("api", "gallery", "results", "reproduction", "changelog.md", "contributing.md", "security.md")
WRITTEN = [path for path in (ROOT / "docs").rglob("*.md") if path.relative_to(ROOT / "docs").parts[0] not in GENERATED]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *WRITTEN, *(ROOT / "reproduction").glob("*.md")])
every_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
# The changelog also names what has gone.
of_today = pytest.mark.parametrize(
    "path", [path for path in DOCUMENTS if path.name != "CHANGELOG.md"], ids=lambda path: str(path.relative_to(ROOT))
)


@every_document
def test_links_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", text):
        if target.startswith("http"):
            continue
        page = path.parent / target if target else path
        assert page.exists(), f"no {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{target} has no heading {anchor}"


@of_today
def test_dotted_names_exist(path):
    for name in set(re.findall(r"\btagwise(?:\.\w+)+", path.read_text(encoding="utf-8"))):
        if (ROOT / name).suffix in (".py", ".md", ".toml", ".fish", ".service"):
            continue
        found = import_module("tagwise")
        parts = name.split(".")
        for place, part in enumerate(parts[1:], 1):
            found = getattr(found, part) if hasattr(found, part) else import_module(".".join(parts[: place + 1]))


@of_today
def test_files_in_code_spans_exist(path):
    """Paths from the root of the repository, or from src/tagwise as in `solvers/admm.py`."""
    for name in set(re.findall(r"`((?:\w[\w-]*/)+[\w-]+\.(?:py|json|toml|csv|md))`", path.read_text(encoding="utf-8"))):
        if "NAME" in name:
            continue
        places = (ROOT, ROOT / "src" / "tagwise", path.parent)
        assert any((place / name).exists() for place in places), f"no {name}"
