"""tagwise's best model by validation, or its only one, beside the best peer on one set, whoever wins."""

from __future__ import annotations

import math
from typing import Any

from peers.measures import ALL, Measure

Cell = dict[str, Any]
TAGWISE = "tagwise"


def comparison(cells: list[Cell]) -> list[str]:
    """A paragraph and a table, or a sentence where one side is missing."""
    measured = [cell for cell in cells if "metrics" in cell]
    peers = [cell for cell in measured if cell["peer"] != TAGWISE]
    ours = next((cell for cell in measured if cell["peer"] == TAGWISE and "choice" in cell), None)
    models = [cell for cell in measured if cell["peer"] == TAGWISE]
    if ours is None and len(models) == 1:  # on the largest sets nothing is chosen
        (ours,) = models
    if ours is None or not peers:
        missing = "tagwise's best by validation" if ours is None else "a peer"
        return [f"No comparison: {missing} has no result here."]
    theirs = max(peers, key=lambda cell: (cell["metrics"]["P@1"], cell["metrics"]["nDCG@5"]))
    lines = [opening(ours, theirs, peers), "", *side_by_side(ours, theirs, peers)]
    return [*lines, "", choice(ours)] if "choice" in ours else lines


def opening(ours: Cell, theirs: Cell, peers: list[Cell]) -> str:
    precision = ALL[0]
    errors = f"standard errors {standard_error(ours):.1f} and {standard_error(theirs):.1f}"
    beside_it = standing(ours, dict.fromkeys(ALL, theirs))
    beside_all = standing(ours, {measure: measure.best_cell(peers) for measure in ALL})
    name = f"tagwise's best by validation ({model_of(ours)})" if "choice" in ours else ours["system"]
    return (
        f"**{name} against the best peer ({theirs['system']}).** "
        f"P@1 {precision.shown(ours)} against {precision.shown(theirs)} ({errors}). Of {len(ALL)} columns tagwise is "
        f"{beside_it}. Against the best of any peer in each column it is {beside_all}. The best peer is the one with "
        "the best P@1 on the test rows themselves, which favours it."
    )


def model_of(ours: Cell) -> str:
    return ours["choice"]["chosen"] if "choice" in ours else ours["settings"]["model"]


def standing(ours: Cell, others: dict[Measure, Cell]) -> str:
    """In which columns a cell is ahead of, behind, or even with another one for each column."""
    found: dict[str, list[str]] = {"ahead": [], "behind": [], "even": []}
    for measure, other in others.items():
        place = "ahead" if is_ahead(measure, ours, other) else "behind" if is_ahead(measure, other, ours) else "even"
        found[place].append(measure.heading)
    parts = [f"{place} in {len(names)} ({'; '.join(names)})" for place, names in found.items() if names]
    return ", ".join(parts)


def side_by_side(ours: Cell, theirs: Cell, peers: list[Cell]) -> list[str]:
    lines = [
        f"| | tagwise ({model_of(ours)}) | {theirs['system']} | ahead | best of any peer |",
        "|---|---|---|---|---|",
    ]
    for measure in ALL:
        best = measure.best_cell(peers)
        lines.append(
            f"| {measure.heading} | {measure.shown(ours)} | {measure.shown(theirs)} | "
            f"{who(measure, ours, theirs)} | {measure.shown(best)} ({best['system']}) |"
        )
    return lines


def who(measure: Measure, ours: Cell, theirs: Cell) -> str:
    """Which of the two is ahead, and by how much."""
    for name, one, other in ((TAGWISE, ours, theirs), (theirs["system"], theirs, ours)):
        if is_ahead(measure, one, other):
            margin = measure.ahead(one, other)
            return f"{name}, {margin:.{measure.digits}f} points" if measure.accuracy else f"{name}, {margin:.1f} times"
    return "even"


def is_ahead(measure: Measure, one: Cell, other: Cell) -> bool:
    return measure.ahead(one, other) > (0.0 if measure.accuracy else 1.0)


def choice(ours: Cell) -> str:
    """What choosing cost, which is not in the training time, and how it came out."""
    found = ours["choice"]
    scores = ", ".join(f"{name} {100 * score:.2f}" for name, score in found["scores"].items())
    left_out = "".join(f" {name} was {reason}." for name, reason in found.get("left_out", {}).items())
    return (
        f"The choice by {found['by']} on {found['validation_rows']:,} validation rows ({scores}) took "
        f"{found['seconds']:.1f} s ({found['cpu_seconds']:.1f} CPU s) beside the training time.{left_out}"
    )


def standard_error(cell: Cell) -> float:
    """Of P@1, in points: that of a share among the test rows."""
    share = cell["metrics"]["P@1"]
    return 100 * math.sqrt(share * (1 - share) / cell["test_rows"])
