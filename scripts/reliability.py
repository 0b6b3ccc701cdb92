"""Put the figures of the long runs into docs/reliability.md, between its marks.

``python scripts/reliability.py`` prints them; ``--write`` writes the page. They come from the JSON files in
benchmarks/results/reliability, which ``make fuzz-inputs``, ``make fuzz-folders``, ``make crash``, ``make interrupt``
and ``make serving-runs`` write.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "reliability"
PAGE = ROOT / "docs" / "reliability.md"
START, END = "<!-- figures: written by scripts/reliability.py -->", "<!-- end of the figures -->"

WATCHED = {"readers": "mutated data files", "folders": "forged model folders and checkpoints"}
"""Runs of tests/fuzz/run.py: file of results → what was run."""

BY_KIND = {
    "crash": "kills, failing calls, full disks and races",
    "serving": "requests to servers whose models are swapped, that are asked anything, and that are killed",
}
"""Runs of several kinds: file of results → what was run."""


def figures(results: Path = RESULTS) -> str:
    """Tables of all results, in Markdown."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(results.glob("*.json"))}
    parts = [_summary(found), *(_targets(name, found[name]) for name in WATCHED if name in found)]
    parts += [_cases(name, found[name]) for name in BY_KIND if name in found]
    return "\n\n".join(parts)


def _summary(found: dict[str, Any]) -> str:
    rows = []
    for name, what in WATCHED.items():
        if name in found:
            run = found[name]
            more = f"slowest {run['slowest_seconds']:.2f} s of CPU, peak {run['peak_mb']:.0f} MB beyond the start"
            rows.append((f"{run['runs']:,} {what}", _outcomes(run["outcomes"]), more, run))
    for name, what in BY_KIND.items():
        if name in found:
            run = found[name]
            rows.append((f"{run['runs']:,} {what}", f"{len(run['findings'])} findings", "below, by kind", run))
    if "interrupts" in found:
        run = found["interrupts"]
        waited = run["seconds_until_raised"]
        more = f"raised after {waited['median']:.2f} s (median), {waited['slowest']:.1f} s at most"
        rows.append((f"{run['runs']:,} interrupts sent", _outcomes(run["outcomes"]), more, run))
    lines = ["| run | outcomes | | version | seed |", "|---|---|---|---|---|"]
    lines += [f"| {what} | {kinds} | {more} | {run['version']} | {run['seed']} |" for what, kinds, more, run in rows]
    return "\n".join(lines)


def _targets(name: str, run: dict[str, Any]) -> str:
    lines = [f"{WATCHED[name].capitalize()}, by target:", "", "| target | outcomes | slowest, s | peak, MB |"]
    lines.append("|---|---|---|---|")
    for target, found in run["targets"].items():
        lines.append(
            f"| {target} | {_outcomes(found['outcomes'])} | {found['slowest_seconds']:.2f} | {found['peak_mb']:.0f} |"
        )
    return "\n".join(lines)


def _cases(name: str, run: dict[str, Any]) -> str:
    what = BY_KIND[name]
    lines = [f"{what[0].upper()}{what[1:]}:", "", "| what | runs | what was found afterwards |", "|---|---|---|"]
    for kind, case in run["cases"].items():
        more = f"; {case['more']}" if "more" in case else ""
        lines.append(f"| {kind} | {case['runs']:,} | {_outcomes(case['outcomes'])}{more} |")
    return "\n".join(lines)


def _outcomes(kinds: dict[str, int]) -> str:
    shown = {"finding": 0} | kinds
    return "; ".join(f"{count:,} {_SAID.get(kind, kind)}" for kind, count in sorted(shown.items(), key=_rank))


def _rank(outcome: tuple[str, int]) -> tuple[bool, int]:
    """Findings last, the others by how often they came."""
    kind, count = outcome
    return kind == "finding", -count


_SAID = {
    "finding": "findings",
    "documented error": "documented errors",
    "parsed": "read",
    "finished": "without effect, as a rule after the end of the call",
}


def page(text: str, content: str) -> str:
    """The page with this content between its marks."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n\n{content}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the page instead of printing")
    if parser.parse_args().write:
        PAGE.write_text(page(PAGE.read_text(), figures()))
    else:
        print(figures())


if __name__ == "__main__":
    main()
