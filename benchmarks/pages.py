"""Where figures go: a JSON file that is never half written, and the marked part of a document."""

from __future__ import annotations

import json
from pathlib import Path


def store(path: Path, report: object) -> None:
    """Write figures as JSON; a run that is stopped while it writes keeps those before."""
    path.parent.mkdir(exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


def replace_between(page: Path, begin: str, end: str, text: str) -> None:
    """Put a text between two marker lines of a document, in place of what is there."""
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, also_found, after = rest.partition(end)
    if not (found and also_found):
        raise ValueError(f"{page.name} lacks the lines {begin!r} and {end!r}, between which the text is written")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
