"""Documents name modules, functions and files that exist."""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Pages that the build of the site copies or generates are not those that people write.
GENERATED = ("api", "gallery", "results", "reproduction", "changelog.md", "contributing.md", "security.md")
WRITTEN = [path for path in (ROOT / "docs").rglob("*.md") if path.relative_to(ROOT / "docs").parts[0] not in GENERATED]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *WRITTEN, *(ROOT / "reproduction").glob("*.md")])
# The changelog also names what has gone.
OF_TODAY = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]


def texts(paths):
    return [(path, path.read_text(encoding="utf-8")) for path in paths]


def test_links_lead_somewhere():
    for path, text in texts(DOCUMENTS):
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", re.sub(r"```.*?```", "", text, flags=re.S)):
            if target.startswith("http"):
                continue
            page = path.parent / target if target else path
            assert page.exists(), f"{path}: no {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
                anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
                assert anchor in anchors, f"{path}: {target} has no heading {anchor}"


def test_dotted_names_exist():
    for path, text in texts(OF_TODAY):
        # Recipes name modules to write.
        text = re.sub(r"```.*?```", "", text, flags=re.S) if path.name == "CONTRIBUTING.md" else text
        for name in set(re.findall(r"\btagwise(?:\.\w+)+", text)):
            if (ROOT / name).suffix in (".py", ".md", ".toml", ".fish", ".service"):
                continue
            found, parts = import_module("tagwise"), name.split(".")
            for place, part in enumerate(parts[1:], 1):
                here = ".".join(parts[: place + 1])
                assert hasattr(found, part) or find_spec(here), f"{path}: no {name}"
                found = getattr(found, part) if hasattr(found, part) else import_module(here)


def test_files_in_code_spans_exist():
    """Paths from the root of the repository, or from src/tagwise as in `solvers/admm.py`."""
    for path, text in texts(OF_TODAY):
        # Recipes name files to write.
        text = re.sub(r"\bAs\s+`[^`]*`", "", text)
        for name in set(re.findall(r"`((?:\w[\w-]*/)+[\w-]+\.(?:py|json|toml|csv|md))`", text)):
            if "NAME" not in name:
                places = (ROOT, ROOT / "src" / "tagwise", path.parent)
                assert any((place / name).exists() for place in places), f"{path}: no {name}"
