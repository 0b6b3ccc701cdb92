"""Check the built site: every public name has its page, every link, anchor and picture inside the site is there,
no page loads anything from elsewhere, and no formula has the two digits of ``\\frac12`` in its numerator. Examples of
the gallery that took more than 20 seconds are reported.

python scripts/check_site.py build/docs/html [--names]    --names also prints each public name and its page

Addresses outside the site are counted, not asked; `make docs-links` asks them.
"""

from __future__ import annotations

import html
import json
import re
import sys
from pathlib import Path
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))

from generated_pages import page_of, public_names

LINK = re.compile(r'<(?:a|img|link|script|source)\b[^>]*?\s(?:href|src)="([^"]+)"')
LOADED = re.compile(r'<(?:img|link|script|source|iframe)\b[^>]*?\s(?:href|src)="((?:https?:)?//[^"]+)"')
ANCHOR = re.compile(r'\s(?:id|name)="([^"]+)"')
WRONG_FRACTION = re.compile(r"<mfrac[^>]*>\s*<mn>(\d\d+)</mn>")
GALLERY = Path(__file__).resolve().parents[1] / "docs" / "gallery"
MOST_SECONDS = 20
"""What an example of the gallery should take, once the kernels are compiled."""


def names_without_page(site: Path) -> list[str]:
    """Public names whose page is missing, or does not define them."""
    missing = []
    for package, names in public_names().items():
        for name in names:
            page = site / f"{page_of(package, name)}.html"
            home = page_of(package, name).removeprefix("api/names/")
            if not page.exists() or f'id="{home}"' not in page.read_text(encoding="utf-8"):
                missing.append(f"{package}.{name}")
    return missing


def dead_links(site: Path) -> tuple[list[str], int, set[str]]:
    """Links that lead nowhere, how many were looked at, and the addresses outside."""
    pages = {
        path.resolve(): path.read_text(encoding="utf-8") for path in site.rglob("*.html") if "_static" not in path.parts
    }
    anchors = {path: {html.unescape(anchor) for anchor in ANCHOR.findall(text)} for path, text in pages.items()}
    dead, looked_at, outside = [], 0, set()
    for path, text in pages.items():
        dead += [
            f"{path.relative_to(site.resolve())} loads {link}: it needs a network" for link in LOADED.findall(text)
        ]
        for link in {html.unescape(link) for link in LINK.findall(text)}:
            if re.match(r"[a-z]+:|//", link):
                outside.add(link)
                continue
            looked_at += 1
            target, _, anchor = link.partition("#")
            found = (path.parent / unquote(target.partition("?")[0])).resolve() if target else path
            if not found.exists():
                dead.append(f"{path.relative_to(site.resolve())}: no {target}")
            elif anchor and found in anchors and unquote(anchor) not in anchors[found]:
                dead.append(f"{path.relative_to(site.resolve())}: {target or 'the page'} has no #{anchor}")
    return sorted(dead), looked_at, outside


def wrong_fractions(site: Path) -> list[str]:
    """Formulas in which the digits of ``\\frac12`` have become one number."""
    return sorted(
        f"{path.relative_to(site)} draws {number} as the numerator of a fraction: write \\frac{{1}}{{2}} for \\frac12"
        for path in site.rglob("*.html")
        if "_static" not in path.parts
        for number in set(WRONG_FRACTION.findall(path.read_text(encoding="utf-8")))
    )


def slow_examples(gallery: Path) -> list[str]:
    """Examples that took longer than they should when they last ran, the slowest first; none where none has run."""
    seconds = {
        path.name.removesuffix(".cost.json"): json.loads(path.read_text(encoding="utf-8"))["time"]
        for path in gallery.glob("*.cost.json")
    }
    slowest_first = sorted(seconds.items(), key=lambda item: -item[1])
    return [f"{name} took {took:.0f} s" for name, took in slowest_first if took > MOST_SECONDS]


def main() -> None:
    site = Path(sys.argv[1])
    missing = names_without_page(site)
    dead, looked_at, outside = dead_links(site)
    fractions = wrong_fractions(site)
    slow = slow_examples(GALLERY)
    for name in missing:
        print(f"no page for {name}")
    for line in dead + fractions:
        print(line)
    if "--names" in sys.argv:
        for package, names in public_names().items():
            for name in names:
                print(f"{f'{package}.{name}':45} {page_of(package, name)}.html")
    names = sum(map(len, public_names().values()))
    hosts = sorted({link.split("/")[2] for link in outside if "//" in link})
    print(f"{names - len(missing)} of {names} public names have their page.")
    print(f"{len(dead)} of {looked_at:,} links inside the site are dead.")
    print(f"{len(outside)} addresses outside, of {', '.join(hosts)}.")
    if slow:
        print(f"Examples over {MOST_SECONDS} s (a busy machine, or kernels not yet compiled?): {', '.join(slow)}.")
    sys.exit(1 if missing or dead or fractions else 0)


if __name__ == "__main__":
    main()
