"""Pages of the site that are made from elsewhere: the API from the public names, and pages that live outside docs/.

``python docs/generated_pages.py`` prints every public name and its page.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))  # the names of this checkout, whatever is installed

PUBLIC = {
    "tagwise": "Models, the tagger, and loading what was saved",
    "tagwise.metrics": "Measuring",
    "tagwise.data": "Files, data sets, masks and splits",
    "tagwise.inspection": "Looking into fitted models",
    "tagwise.tuning": "Searching for settings",
    "tagwise.reports": "Reports",
    "tagwise.baselines": "Published methods to compare with",
    "tagwise.serving": "The HTTP server",
    "tagwise.distributed": "Dask",
    "tagwise.exceptions": "Errors and warnings",
}
"""The packages that people import from; everything else may change. One that is not there yet has no page."""

COPIES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "reproduction/README.md": "reproduction/index.md",
    "reproduction/results/summary.md": "reproduction/results.md",
    **{
        f"benchmarks/results/{path.name}": f"results/{path.name}" for path in (ROOT / "benchmarks/results").glob("*.md")
    },
    **{
        path.relative_to(ROOT).as_posix(): f"reproduction/{path.parent.name}-{path.name}"
        for path in (ROOT / "reproduction/results").glob("*/*.md")
    },
}
"""Pages of the repository, from its root, that the site shows, and where in docs/ they are copied to."""


@cache
def public_names() -> dict[str, list[str]]:
    """Package → the names that it exports, without packages and the version."""
    found = {}
    for package in PUBLIC:
        names = getattr(import_module(package), "__all__", ()) if find_spec(package) is not None else ()
        if names:
            names = sorted(names, key=str.lower)
            found[package] = [name for name in names if f"{package}.{name}" not in PUBLIC and name != "__version__"]
    return found


def page_of(package: str, name: str) -> str:
    """The page of a public name, from the root of the site and no suffix; a name of two packages has one."""
    home = "tagwise" if name in public_names()["tagwise"] else package
    return f"api/names/{home}.{name}"


def api_pages() -> dict[str, str]:
    """Path below docs/ → content: an overview, and a page per package that lists its names and leads to theirs."""
    names = public_names()
    rows = "\n".join(f"   {package}" for package in names)
    index = f"{_title('API')}\n{INTRODUCTION}\n.. toctree::\n   :hidden:\n\n{rows}\n\n"
    pages = {}
    for package, exported in names.items():
        own = [name for name in exported if page_of(package, name) == f"api/names/{package}.{name}"]
        listed = "\n".join(f"   {name}" for name in own)
        also = ", ".join(f":class:`{name} <tagwise.{name}>`" for name in exported if name not in own)
        index += f"{_title(package, '-')}\n{PUBLIC[package]}: :doc:`{package}`.\n\n.. currentmodule:: {package}\n\n"
        index += f".. autosummary::\n   :nosignatures:\n\n{listed}\n\n"
        pages[f"api/{package}.rst"] = (
            f"{_title(package)}\n**{PUBLIC[package]}**\n\n.. automodule:: {package}\n   :no-members:\n\n"
            f".. currentmodule:: {package}\n\n.. autosummary::\n   :toctree: names\n   :nosignatures:\n\n{listed}\n"
            + (f"\nAlso here: {also}.\n" if also else "")
        )
    pages["api/index.rst"] = index
    return pages


INTRODUCTION = """\
Every name that a program may rely on, with its page. What is not listed here may change without notice. Docstrings have
the formula, the shapes, the parameters, and what a call costs; ``help(tagwise.LEML)`` shows the same.
"""


def copied_pages() -> dict[str, str]:
    """Path below docs/ → content of the pages that live elsewhere, with their links as they are seen from docs/."""
    pages = {copy: _seen_from(Path(source), Path(copy)) for source, copy in COPIES.items() if (ROOT / source).exists()}
    studies = "\n".join(
        sorted(name.removeprefix("reproduction/") for name in pages if "reproduction/" in name and "-" in name)
    )
    pages["reproduction/results.md"] += f"\n```{{toctree}}\n:hidden:\n\n{studies}\n```\n"
    return pages


def write(folder: Path) -> None:
    """Write all pages below ``folder``; one whose content is the same keeps its time, so that it is not built again."""
    wanted = {f"{page_of(package, name)}.rst" for package, names in public_names().items() for name in names}
    for path in (folder / "api" / "names").glob("*.rst"):
        if path.relative_to(folder).as_posix() not in wanted:
            path.unlink()
    for name, content in (api_pages() | copied_pages()).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")


def _seen_from(source: Path, copy: Path) -> str:
    """The text of a page with its relative links rewritten for where it is copied to."""

    def link(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        path = (ROOT / source.parent / target).resolve()
        if re.match(r"[a-z]+:|#|/", target) or not path.exists():
            return match[0]
        inside = path.relative_to(ROOT).as_posix()
        if inside in COPIES:
            return f"](/{COPIES[inside]}{anchor})"
        if inside.startswith("docs/"):
            return f"](/{inside.removeprefix('docs/')}{anchor})"
        return f"]({'../' * len(copy.parts)}{inside}{anchor})"

    text = (ROOT / source).read_text(encoding="utf-8")
    # A page that is only named becomes a link too.
    named = re.compile(r"(?<![\w/`(\[])docs/([\w-]+)\.md(?![\w`)\]])")
    text = named.sub(lambda match: f"[{match[0]}]({_way_out(source)}{match[0]})", text)
    return re.sub(r"\]\(([^)#\s]+)(#[^)]*)?\)", link, text)


def _way_out(source: Path) -> str:
    return "../" * len(source.parent.parts)


def _title(text: str, line: str = "=") -> str:
    return f"{text}\n{line * len(text)}\n"


if __name__ == "__main__":
    for package, exported in public_names().items():
        for name in exported:
            print(f"{f'{package}.{name}':45} {page_of(package, name)}.html")
