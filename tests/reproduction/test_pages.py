"""Pages say what the stored results and the papers' files say, and nothing else."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from reproduction.configuration import cells_of, papers_in, read_studies
from reproduction.pages import _end_mark, make_pages, study_page
from reproduction.results import PaperValues, Results, StudyResults
from reproduction.runner import plan

FAILED = {"error": "it refused"}
FOLDER = Path(__file__).parents[2] / "reproduction"


@pytest.fixture
def results(studies, tmp_path):
    """Made-up results of every cell, by number of the cell."""
    folder = Results(tmp_path / "results")
    for i, cell in enumerate(cells_of(studies[0])):
        values = {"P@1": 0.6 + 0.01 * i, "P@3": 0.5, "hamming": 0.01, "AUC": 0.9}
        circumstances = {"threads": 1, "versions": {"numpy": "1"}, "machine": {}, "seconds": {"cell": 1.0}}
        circumstances["machine"] = {"system": "Linux", "processor": "x86_64", "cores": 2}
        folder.write(cell, {"values": values, **circumstances})
    return folder.root


def keep_results(root, kept):
    """Delete the lines of the other keys."""
    path = root / "toy" / "small.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if kept(json.loads(line)["key"])))


def bracketed(text):
    """Values in brackets in the tables of a page."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return re.findall(r"(?:[\d.]+|–) \(([-\d.]+)\)", "\n".join(rows))


def test_values_of_the_paper_come_from_its_file(toy, results):
    make_pages(toy, results, ("toy",), figures=False)
    text = (results / "toy" / "small.md").read_text()
    with open(toy / "toy" / "paper.csv") as stream:
        values = {row["value"] for row in csv.DictReader(stream)}
    assert set(bracketed(text)) == values


def test_a_table_shows_means_and_marks_what_is_worse(toy, results):
    make_pages(toy, results, ("toy",), figures=False)
    text = (results / "toy" / "small.md").read_text()
    # Cells in order: LEML 2% seeds 0 and 1, LEML 4% seeds 0 and 1, KNN.
    assert "| debtags-sample | 2% | 60.50 ± 0.71 (12.34) | 64.00 (55.55) |" in text
    assert "| debtags-sample | 4% | 62.50 ± 0.71 (98.76) ↓ | 64.00 |" in text
    assert "| dataset | k/L | LEML | KNN |" in text
    assert "2 of 3 cells are within one point" in text
    assert "| LEML | 50.00 ± 0.00 | 0.0100 ± 0.0000 (0.5000) |" in text
    assert "It is a toy." in text


def test_the_summary_counts_and_links(toy, results):
    make_pages(toy, results, ("toy",), figures=False)
    text = (results / "summary.md").read_text()
    assert "[two methods](toy/small.md) | 5 of 5 |" in text
    assert "| | table 1: precision | | 3 | 2 | debtags-sample, 4%, LEML, P@1: 36.26 |" in text
    assert "| | table 2: others | | 1 | 1 |" in text
    assert "A toy falls short of nothing." in text


def test_figures_are_the_same_bytes_again(toy, results):
    make_pages(toy, results, ("toy",))
    names = ("small-figure-1.svg", "small-figure-1.png")
    first = [(results / "toy" / name).read_bytes() for name in names]
    make_pages(toy, results, ("toy",))
    assert [(results / "toy" / name).read_bytes() for name in names] == first
    drawing = first[0].decode()
    assert "LEML, paper" in drawing
    assert "k/L" in drawing


def test_committed_pages_are_what_the_committed_results_make(tmp_path):
    """Text to the byte; plots differ with the version of matplotlib, so only their existence is checked."""
    committed, copy = FOLDER / "results", tmp_path / "results"
    for path in committed.rglob("*.jsonl"):
        target = copy / path.relative_to(committed)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    written = make_pages(FOLDER, copy, papers_in(FOLDER), figures=False)
    expected = {path.relative_to(committed): path.read_bytes() for path in committed.rglob("*.md")}
    assert {page.relative_to(copy): page.read_bytes() for page in written} == expected
    for page, text in expected.items():
        for link in re.findall(r"\]\(([^)]+\.(?:png|svg|jsonl))\)", text.decode()):
            assert (committed / page.parent / link).exists(), f"{page} links to {link}"


def test_every_stored_result_answers_a_cell():
    """A result whose configuration has gone or changed would never be shown: it must not linger."""
    results, expected = Results(FOLDER / "results"), {}
    for paper in papers_in(FOLDER):
        for study in read_studies(FOLDER, paper):
            cells = [cell for cell in plan(cells_of(study)) if results.read(cell) is not None]
            expected |= {results.path(cell): [] for cell in cells}
            for cell in cells:
                expected[results.path(cell)].append(cell.key)
    for path in (FOLDER / "results").rglob("*.jsonl"):
        keys = [json.loads(line)["key"] for line in path.read_text().splitlines()]
        assert sorted(keys) == sorted(expected[path]), path


def committed_results():
    results = Results(FOLDER / "results")
    return [
        (study, StudyResults(results, cells_of(study)), PaperValues.read(FOLDER / paper / "paper.csv"), results)
        for paper in papers_in(FOLDER)
        for study in read_studies(FOLDER, paper)
    ]


def test_every_table_that_falls_short_is_discussed():
    for study, found, paper, results in committed_results():
        _, comparisons = study_page(study, found, paper, results)
        discussed = {table.number for table in study.tables if table.discussion.strip()}
        short = {entry.number for entry in comparisons if entry.reproduced < entry.with_paper}
        assert short <= discussed, f"{study.paper}, {study.name}"


def test_a_choice_at_the_end_of_its_grid_is_marked(toy, studies, results):
    folder = Results(results)
    for cell in plan(cells_of(studies[0])):
        if cell.choice:
            tried = [{"reg": 1.0, "value": 0.5}, {"reg": 1000.0, "value": 0.1}]
            folder.write(cell, {"chosen": {"reg": 1.0}, "tried": tried})
    make_pages(toy, results, ("toy",), figures=False)
    text = (results / "toy" / "small.md").read_text()
    assert "| share = 4%, seed = 1 | reg = 1 | 0.5000 | 2 |" in text, "two values have no inside"
    assert "⊣" not in text
    assert _end_mark("reg", 3.0, {"reg": [0.3, 1.0, 3.0]}) == _end_mark("k", 1, {"k": [1, 2, 3]}) == " ⊣"
    assert _end_mark("reg", 1.0, {"reg": [0.3, 1.0, 3.0]}) == ""
    assert _end_mark("rank", 0.05, {"rank": [1, 3, 0.05]}) == "", "a share and a number do not compare"
    assert _end_mark("threshold", 0.2, {"reg": [0.3, 1.0, 3.0]}) == ""
