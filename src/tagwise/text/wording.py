"""Numbers in sentences for people. Imports nothing: the command line says things before anything heavy is loaded."""

from __future__ import annotations

__all__ = ["counted", "size_text"]


def counted(number: int, noun: str) -> str:
    """A number with what it counts: "1 row", "2,000 rows"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size_text(n_bytes: int) -> str:
    """A number of bytes: "850 B", "7.5 kB", "10.5 MB"."""
    size, unit = float(n_bytes), "B"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:,.0f} B" if unit == "B" else f"{size:,.1f} {unit}"
