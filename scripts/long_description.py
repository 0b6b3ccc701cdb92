"""The README as a package index shows it: links and pictures lead to the repository (a metadata hook of hatchling)."""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?![a-z]+:|#|/)([^)\s]+)\)")


def absolute(text: str, source: str) -> str:
    """The text with its relative links as addresses below that of the repository."""
    return LINK.sub(lambda m: f"{m[1]}[{m[2]}]({source}/{'raw' if m[1] else 'blob'}/main/{m[3]})", text)


class LongDescription(MetadataHookInterface):
    def update(self, metadata: dict) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, metadata["urls"]["Source"]),
        }
