"""Pages: one per study, with the paper's value in brackets behind ours, and a summary; from stored results alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reproduction.configuration import (
    Cell,
    Figure,
    Selection,
    Study,
    Table,
    cells_of,
    choice_of,
    needed_by,
    read_studies,
)
from reproduction.figures import draw, fitted_slope, in_order, lines_of, panels_of
from reproduction.metrics import SHOWN
from reproduction.results import PaperValues, Results, StudyResults
from tagwise.persistence.atomic import atomic_write

__all__ = ["Comparison", "compared", "make_pages", "markdown_table", "study_page", "summary_page"]

LEGEND = (
    "Ours, and in brackets the paper's value. ↓ marks what is more than one point below the paper (of percent; 0.01 of "
    "AUC; 0.001 of Hamming loss); – is not run yet. Every figure of ours is in a JSON file of the folder "
    "[{name}/]({name}/), every one of the paper's in `reproduction/{paper}/paper.csv`."
)
SUMMARY_HEAD = """# Reproduction: the papers against tagwise

Made by `tagwise reproduce` from the JSON files in this folder. A cell counts as reproduced where ours is within one
point of the paper's value or better (a point of percent; 0.01 of AUC; 0.001 of Hamming loss). Seconds are shown on the
pages but not counted: the machines differ.
"""
WORSE = "↓"
END_OF_GRID = "⊣"


@dataclass
class Comparison:
    """How a table's cells stand against the paper's."""

    number: str
    with_paper: int = 0
    reproduced: int = 0
    worse: list[tuple[str, float]] = field(default_factory=list)
    by_metric: dict[str, list[int]] = field(default_factory=dict)

    def count(self, metric: str, reproduced: bool) -> None:
        """Add a cell that the paper has a value for."""
        entry = self.by_metric.setdefault(metric, [0, 0])
        entry[0] += reproduced
        entry[1] += 1
        self.with_paper += 1
        self.reproduced += reproduced

    def sentence(self) -> str:
        """How many cells agree, by metric where there are several."""
        parts = ", ".join(f"{metric} {yes} of {all_}" for metric, (yes, all_) in self.by_metric.items())
        beside = f" ({parts})" if len(self.by_metric) > 1 else ""
        return f"{self.reproduced} of {self.with_paper} cells are within one point of the paper or better{beside}."

    def worst(self) -> tuple[str, float] | None:
        """The cell that is farthest below the paper, and by how much in the paper's unit."""
        return max(self.worse, key=lambda entry: entry[1]) if self.worse else None


def make_pages(folder: Path, out: Path, papers: tuple[str, ...], *, figures: bool = True) -> list[Path]:
    """Write the page of every study that has a result, its figures, and the summary.

    Parameters
    ----------
    folder : path
        With the configurations.
    out : path
        With the results; pages go there, too.
    papers : tuple of str
    figures : bool
        Whether to draw; text needs no matplotlib.

    Returns
    -------
    list of paths
        The pages written.
    """
    results = Results(out)
    written, compared, drawings = [], [], []
    for paper in papers:
        values = PaperValues.read(folder / paper / "paper.csv")
        for study in read_studies(folder, paper):
            found = StudyResults(results, cells_of(study))
            comparisons: list[Comparison] = []
            if found.done:
                text, comparisons = study_page(study, found, values, results)
                target = out / paper / f"{study.name}.md"
                _write(target, text)
                written.append(target)
                drawings += [(study, figure, found, values) for figure in study.figures]
            compared.append((study, found, comparisons))
    target = out / "summary.md"
    _write(target, summary_page(compared))
    # Last, so that all text is there where matplotlib is not.
    for study, figure, found, values in drawings if figures else ():
        draw(study, figure, found, values, out / study.paper / _figure_name(study, figure))
    return [*written, target]


def study_page(
    study: Study, results: StudyResults, paper: PaperValues, folder: Results
) -> tuple[str, list[Comparison]]:
    """The page in Markdown, and how its tables compare with the paper."""
    parts = [f"# {study.paper.upper()}: {study.title}", LEGEND.format(name=study.name, paper=study.paper)]
    parts.append(f"{len(results.done)} of {len(results.cells)} cells are done.")
    if study.assumptions:
        parts.append("What the paper leaves open, and where we differ from it:")
        parts.append("\n".join(f"- {text}" for text in study.assumptions))
    comparisons = []
    for table in study.tables:
        text, comparison = markdown_table(study, table, results, paper)
        comparisons.append(comparison)
        parts += [f"## {_headline(table)}", text.rstrip("\n")]
        if comparison.with_paper:
            parts.append(comparison.sentence())
        if table.discussion:
            parts.append(table.discussion.strip())
    for figure in study.figures:
        parts += _figure_part(study, figure, results, paper)
    parts += _choices(study, results, folder)
    parts += _circumstances(results)
    return "\n\n".join(parts) + "\n", comparisons


def _headline(item: Table | Figure) -> str:
    return f"{item.number[0].upper()}{item.number[1:]}: {item.title}"


def _figure_name(study: Study, figure: Figure) -> str:
    return f"{study.name}-{re.sub('[^A-Za-z0-9]+', '-', figure.number).strip('-')}"


def _figure_part(study: Study, figure: Figure, results: StudyResults, paper: PaperValues) -> list[str]:
    name = _figure_name(study, figure)
    parts = [f"## {_headline(figure)}"]
    if not panels_of(figure, results):
        return [*parts, "Not run yet."]
    parts.append(f"[![{figure.title}]({name}.png)]({name}.svg)")
    if figure.slopes:
        parts += _slopes(study, figure, results, paper)
    if figure.discussion:
        parts.append(figure.discussion.strip())
    return parts


def _slopes(study: Study, figure: Figure, results: StudyResults, paper: PaperValues) -> list[str]:
    axis = study.axis_title(figure.x)
    limits = [None] if figure.slope_limit is None else [None, figure.slope_limit]
    heads = ["all" if limit is None else f"{axis} ≤ {limit:g}" for limit in limits]
    lines = [f"| data | method | {' | '.join(heads)} |", "| --- | --- |" + " ---: |" * len(limits)]
    for dataset, metric in panels_of(figure, results):
        for method, line in lines_of(figure, results, dataset, metric).items():
            printed = paper.text(figure.number, dataset, method, {}, f"slope over {figure.x}")
            beside = "" if printed is None else f" ({printed})"
            slopes = [fitted_slope(line, limit) for limit in limits]
            texts = [("–" if slope is None else f"{slope:.2f}") + beside for slope in slopes]
            lines.append(f"| {dataset} | {method} | {' | '.join(texts)} |")
    return [f"Slopes of log {figure.metrics[0]} over log {axis}, the paper's bound in brackets:", "\n".join(lines)]


def _choices(study: Study, results: StudyResults, folder: Results) -> list[str]:
    """The rule in words, and what it chose."""
    rules: dict[str, None] = {}
    rows: dict[str, str] = {}
    several_seeds = len({cell.seed for cell in results.cells}) > 1
    for cell, _ in results.done:
        choice, rule = choice_of(cell), study.selection_of(cell.method)
        stored = None if choice is None else folder.read(choice)
        if choice is None or stored is None or rule is None:
            continue
        rules.setdefault(_rule_text(rule))
        chosen = ", ".join(
            f"{name} = {_short(value)}{_end_mark(name, value, stored['question']['grid'])}"
            for name, value in sorted(stored["chosen"].items())
        )
        places = {**choice.settings, **({"seed": choice.seed} if several_seeds else {})}
        settings = ", ".join(f"{axis} = {value}" for axis, value in places.items())
        value = f"{max(entry['value'] for entry in stored['tried']):.4f}"
        rows[choice.key] = (
            f"| {choice.dataset} | {choice.method.name} | {settings} | {chosen} | {value} | {len(stored['tried'])} |"
        )
    if not rows:
        return []
    head = (
        "| data set | method | chosen at | chosen | held-out metric | tried |\n| --- | --- | --- | --- | ---: | ---: |"
    )
    notes = list(rules)
    if any(END_OF_GRID in row for row in rows.values()):
        notes.append(f"{END_OF_GRID} marks a choice at an end of its grid: the best value may lie beyond it.")
    return ["## Hyper-parameters", " ".join(notes), head + "\n" + "\n".join(rows.values())]


def _end_mark(name: str, chosen: Any, grid: Any) -> str:
    """The mark of a number at an end of a grid of at least three; counts and shares in one grid do not compare."""
    values = grid.get(name, []) if isinstance(grid, dict) else []
    alike = {type(value) for value in values} in ({int}, {float})
    return f" {END_OF_GRID}" if alike and len(values) > 2 and chosen in (min(values), max(values)) else ""


def _rule_text(rule: Selection) -> str:
    if rule.rule == "validation":
        how = f"{100 * rule.fraction:g}% of the training rows, held out,"
    elif rule.rule == "folds":
        how = f"{rule.folds}-fold cross-validation on the training rows"
    else:
        how = f"`MSE.select` ({rule.folds}-fold cross-validation on the training rows, threshold included)"
    limit = "" if rule.rows is None else f" At most {rule.rows:,} training rows take part."
    at = ", ".join(f"{axis} = {value}" for axis, value in rule.at.items())
    once = f" Chosen once, at {at}, for all settings." if at else ""
    return f"Chosen by {how} with {rule.metric} deciding; test rows are never looked at.{limit}{once}"


def _circumstances(results: StudyResults) -> list[str]:
    """Versions, machines, threads, seeds and seconds of the cells, each once."""
    machines: dict[str, None] = {}
    for _, result in results.done:
        machine, versions = result["machine"], result["versions"]
        named = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        kind = f"{machine['system']} {machine['processor']}, {machine['cores']} cores"
        machines.setdefault(f"{kind}, {result['threads']} thread(s); {named}")
    seeds = ", ".join(str(seed) for seed in sorted({cell.seed for cell, _ in results.done}))
    total = sum(result["seconds"]["cell"] for _, result in results.done)
    lines = [f"- {text}" for text in machines]
    lines.append(f"- seeds {seeds}; the cells took {total:.0f} s in all, the choice of parameters not included")
    return ["## Circumstances", "\n".join(lines)]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _row_keys(table: Table, cells: list[Cell]) -> list[dict[str, Any]]:
    """The rows: combinations of the axes that some cell has, in the order of the configuration."""
    keys: dict[tuple[Any, ...], None] = {}
    for cell in cells:
        if needed_by(table, cell):
            places = {"dataset": cell.dataset, "method": cell.method.name, **cell.settings}
            key = tuple(places.get(axis) for axis in table.rows)
            if None not in key:
                keys.setdefault(key)
    return [dict(zip(table.rows, key)) for key in keys]


def _columns(table: Table, cells: list[Cell]) -> list[str]:
    if table.columns == "metric":
        return list(table.metrics)
    return list(table.methods or in_order(cell.method.name for cell in cells if needed_by(table, cell)))


def compared(
    table: Table, results: StudyResults, paper: PaperValues
) -> Iterator[tuple[dict[str, Any], str, list[float], str | None]]:
    """Row by row and column by column: the row, the metric, ours (one a seed) and the paper's value as printed."""
    for row in _row_keys(table, results.cells):
        for column in _columns(table, results.cells):
            metric = column if table.columns == "metric" else table.metrics[0]
            # An axis that is neither in the rows nor the columns has one value, which the table names.
            method = str(row.get("method", column if table.columns == "method" else (table.methods or ("",))[0]))
            dataset = str(row.get("dataset", (table.datasets or ("",))[0]))
            settings = {**table.where, **{a: v for a, v in row.items() if a not in ("dataset", "method")}}
            ours = results.values(metric, dataset, method, settings)
            printed = paper.text(table.number, dataset, method, settings, metric)
            yield {**row, "column": column}, metric, ours, printed


def markdown_table(study: Study, table: Table, results: StudyResults, paper: PaperValues) -> tuple[str, Comparison]:
    """The table in Markdown, and how it compares."""
    comparison = Comparison(table.number)
    columns = _columns(table, results.cells)
    head = [*(study.axis_title(axis) for axis in table.rows), *columns]
    lines = [_line(head), _line(["---"] * len(table.rows) + ["---:"] * len(columns))]
    texts: list[str] = []
    for place, metric, ours, printed in compared(table, results, paper):
        texts.append(_cell(ours, printed, metric, place, comparison if table.counts else None))
        if len(texts) == len(columns):
            lines.append(_line([*(str(place[axis]) for axis in table.rows), *texts]))
            texts = []
    return "\n".join(lines) + "\n", comparison


def _cell(
    ours: list[float], printed: str | None, metric: str, place: dict[str, Any], comparison: Comparison | None
) -> str:
    shown = SHOWN[metric]
    beside = "" if printed is None else f" ({printed})"
    if not ours:
        return f"–{beside}"
    mean = sum(ours) / len(ours)
    text = shown.text(mean)
    if len(ours) > 1:
        spread = (sum((value - mean) ** 2 for value in ours) / (len(ours) - 1)) ** 0.5
        text += f" ± {shown.text(spread)}"
    if printed is None or not shown.better or comparison is None:
        return text + beside
    reproduced = shown.reproduces(mean, float(printed))
    comparison.count(metric, reproduced)
    if reproduced:
        return text + beside
    name = ", ".join(str(value) for value in place.values())
    comparison.worse.append(
        (f"{name}, {metric}" if metric not in name else name, abs(shown.value(mean) - float(printed)))
    )
    return f"{text}{beside} {WORSE}"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


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
    return "\n\n".join([SUMMARY_HEAD.rstrip("\n"), "\n".join(lines), *remarks]) + "\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, lambda stream: stream.write(text.encode("utf-8")))
