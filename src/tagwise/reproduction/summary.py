"""The summary: for each table, how many cells are within one point of the paper or better."""

from __future__ import annotations

from tagwise.reproduction.configuration import Study
from tagwise.reproduction.results import StudyResults
from tagwise.reproduction.tables import Comparison

__all__ = ["summary_page"]

HEAD = """# Reproduction: the papers against tagwise

Made by `tagwise reproduce` from the JSON files in this folder. A cell counts as reproduced where ours is within one
point of the paper's value or better (a point of percent; 0.01 of AUC; 0.001 of Hamming loss). Seconds are shown on the
pages but not counted: the machines differ.
"""


def summary_page(studies: list[tuple[Study, StudyResults, list[Comparison]]]) -> str:
    """The summary in Markdown."""
    lines = [
        "| paper | what | cells done | compared with the paper | within one point or better | farthest below |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    remarks = []
    for study, results, comparisons in studies:
        page = f"[{study.title}]({study.paper}/{study.name}.md)" if results.done else study.title
        lines.append(f"| {study.paper.upper()} | {page} | {len(results.done)} of {len(results.cells)} | | | |")
        by_number = {comparison.number: comparison for comparison in comparisons}
        for table in study.tables:
            found = by_number.get(table.number, Comparison(table.number))
            worst = found.worst()
            below = "" if worst is None else f"{worst[0]}: {worst[1]:.4g}"
            share = f"{found.reproduced}" if found.with_paper else ""
            lines.append(f"| | {table.number}: {table.title} | | {found.with_paper or ''} | {share} | {below} |")
        remarks += [
            f"## {study.paper.upper()}, {item.number}\n\n{item.discussion.strip()}"
            for item in study.shown
            if item.discussion
        ]
    return "\n\n".join([HEAD.rstrip("\n"), "\n".join(lines), *remarks]) + "\n"
