"""Check what `make package` has built: what the wheel holds, that both archives agree, that the long description has no
relative links, and how large they are.

python scripts/check_package.py dist
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

ALLOWED = (".py", ".typed", ".css", ".js", ".svg", ".html", ".json", ".npz", ".gz", ".txt", ".md")
"""What a package of the library may hold besides its metadata."""
RELATIVE = re.compile(r"\]\((?![a-z]+:|#)([^)\s]*)\)|(?:src|href)=\"(?![a-z]+:|#)([^\"]*)\"")


def faults(wheel: Path, sdist: Path) -> list[str]:
    found = []
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata_name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(metadata_name))
    own = [name for name in names if ".dist-info/" not in name]
    found += [f"{name} is not part of the package" for name in own if not name.startswith("tagwise/")]
    found += [f"{name} does not belong into a wheel" for name in own if not name.endswith(ALLOWED)]
    found += [f"{name}: tests, oracles and reproduction stay out" for name in own if _is_of_the_repository(name)]
    if "tagwise/py.typed" not in own:
        found.append("py.typed is missing")
    urls = {line.split(",")[0] for line in metadata.get_all("Project-URL", [])}
    found += [
        f"the metadata has no link {name}" for name in ("Documentation", "Source", "Changelog") if name not in urls
    ]
    links = [one or other for one, other in RELATIVE.findall(_without_code(str(metadata.get_payload())))]
    found += [f"{link} in the long description leads nowhere on an index" for link in links]
    with tarfile.open(sdist) as archive:
        there = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    found += [f"{name} is in the wheel and not in the sdist" for name in own if f"src/{name}" not in there]
    found += [
        f"{name} is missing in the sdist"
        for name in ("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "tests/conftest.py", "docs/conf.py")
        if name not in there
    ]
    return found


def _without_code(text: str) -> str:
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)


def _is_of_the_repository(name: str) -> bool:
    parts = set(Path(name).parts)
    return bool(parts & {"tests", "reproduction", "benchmarks", "helpers", "fuzz"}) or "reference" in name


def main() -> None:
    folder = Path(sys.argv[1])
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    found = faults(wheel, sdist)
    for line in found:
        print(line)
    for path in (wheel, sdist):
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
