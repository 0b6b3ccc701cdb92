"""One page a study and a summary, made from stored results and the papers' values alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tagwise.persistence.atomic import atomic_write
from tagwise.reproduction.cells import cells_of, choice_of
from tagwise.reproduction.configuration import Figure, Selection, Study, Table, read_studies
from tagwise.reproduction.figures import draw, fitted_slope, lines_of, panels_of
from tagwise.reproduction.papers import PaperValues
from tagwise.reproduction.results import ResultFolder, StudyResults
from tagwise.reproduction.summary import summary_page
from tagwise.reproduction.tables import Comparison, markdown_table

__all__ = ["make_pages", "study_page"]

LEGEND = (
    "Ours, and in brackets the paper's value. ↓ marks what is more than one point below the paper (of percent; 0.01 of "
    "AUC; 0.001 of Hamming loss); – is not run yet. Every figure of ours is in a JSON file of the folder "
    "[{name}/]({name}/), every one of the paper's in `reproduction/{paper}/paper.csv`."
)
END_OF_GRID = "⊣"


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
    results = ResultFolder(out)
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
    study: Study, results: StudyResults, paper: PaperValues, folder: ResultFolder
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


def _choices(study: Study, results: StudyResults, folder: ResultFolder) -> list[str]:
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
        rows[choice.file_name] = (
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


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, lambda stream: stream.write(text.encode("utf-8")))
