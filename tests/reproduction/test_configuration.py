"""The papers' configurations: they parse, and name data sets, methods and parameters that there are."""

import inspect
from pathlib import Path

import pytest
from sklearn.model_selection import ParameterGrid

from reproduction.configuration import PAPERS, cells_of, choice_of, read_studies, read_study
from reproduction.methods import METHOD_CLASSES, make_model, resolve_parameters
from reproduction.pages import compared
from reproduction.results import PaperValues, Results, StudyResults
from tagwise.exceptions import InvalidInputError

FOLDER = Path(__file__).parents[2] / "reproduction"
STUDIES = [study for paper in PAPERS for study in read_studies(FOLDER, paper)]
by_name = pytest.mark.parametrize("study", STUDIES, ids=lambda study: f"{study.paper}-{study.name}")


@by_name
def test_data_sets_are_those_of_the_list(study):
    listed = (FOLDER / "README.md").read_text().split("## Data sets")[1]
    (line,) = (line for line in listed.splitlines() if line.startswith(f"| {study.paper} |"))
    known = {name.strip() for name in line.split("|")[2].split(",")} | set(study.generated) | {"isotropic", "planted"}
    assert {cell.dataset for cell in cells_of(study)} <= known


@by_name
def test_parameters_are_those_of_the_method(study):
    for cell in cells_of(study):
        if cell.method.kind is None:
            continue
        fixed = resolve_parameters(cell.method.fixed(cell.dataset), cell.settings, n_labels=50, n_features=40)
        assert not any(isinstance(value, str) and ("$" in value or "%" in value) for value in fixed.values())
        for point in ParameterGrid(cell.method.grid_for(cell.dataset)):
            assert not set(point) & set(fixed), "chosen and given at once"
            model = make_model(cell.method.kind, {**fixed, **point}, seed=cell.seed, threads=1)
            model._check_parameters()


@by_name
def test_choices_are_made_on_a_setting_that_there_is(study):
    keys = {cell.key for cell in cells_of(study)}
    for cell in cells_of(study):
        choice = choice_of(cell)
        assert choice is None or choice.key.removeprefix("choice--") in keys


@by_name
def test_everything_is_explained(study):
    assert study.assumptions
    assert study.tables
    for method in study.methods:
        assert any(method == cell.method.name for cell in cells_of(study)), f"{method} is never run"


@pytest.mark.parametrize("paper", PAPERS)
def test_every_value_of_the_paper_is_shown_somewhere(paper, tmp_path):
    values = PaperValues.read(FOLDER / paper / "paper.csv")
    shown = set()
    for study in (study for study in STUDIES if study.paper == paper):
        results = StudyResults(Results(tmp_path), cells_of(study))
        for table in study.tables:
            printed = sum(entry[3] is not None for entry in compared(table, results, values))
            there = sum(key[0] == table.number for key in values.values)
            assert printed == there, f"{table.number}: {there} values, {printed} shown"
            shown.add(table.number)
        shown |= {figure.number for figure in study.figures if figure.slopes}
    assert {key[0] for key in values.values} <= shown


def test_figures_of_the_papers_are_as_printed():
    """Spot checks against the papers, one of each table's corners."""
    leml, reml, mse = (PaperValues.read(FOLDER / paper / "paper.csv") for paper in PAPERS)
    assert leml.text("table 6", "bibtex", "LEML SQ", {"share": "20%"}, "P@1") == "58.33"
    assert leml.text("table 10", "delicious", "WSABIE", {"share": "100%"}, "AUC") == "0.8557"
    assert leml.text("table 15", "bibtex", "BR SH", {"known": "40%", "share": "60%"}, "AUC") == "0.8530"
    assert leml.text("table 5", "bibtex", "BCS", {"known": "20%", "share": "40%"}, "hamming") == "0.2496"
    assert leml.text("table 3 (AUC)", "delicious", "LEML SH", {"share": "60%"}, "AUC") == "0.8852"
    assert reml.text("table 2", "bibtex", "REML", {}, "nDCG@5") == "62.46"
    assert reml.text("table 2", "delicious", "KNN", {}, "nDCG@1") == "64.80"
    assert reml.text("table 3 (Wiki10)", "wiki10-shape", "REML", {"partitions": 10}, "fit seconds") == "764"
    assert mse.text("table 2", "yahoo-business", "MSE", {}, "accuracy") == "78"
    assert mse.text("table 3", "corel5k", "ML-kNN", {}, "accuracy") == "0.9"


def test_methods_take_seed_and_threads():
    for kind in {method.kind for study in STUDIES for method in study.methods.values() if method.kind}:
        assert "n_jobs" in inspect.signature(METHOD_CLASSES[kind].load_class()).parameters


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "two methods"', "title = ", "not valid TOML"),
        ('title = "two methods"', 'title = "two"\ncolour = 1', "unknown entries: colour"),
        ('title = "two methods"\n', "", "lacks title"),
        ('class = "KNN"', 'class = "SVM"', r"methods\.KNN\.class must be one of .*found 'SVM'"),
        ('class = "KNN"', "", "methods.KNN lacks class"),
        ('methods = ["KNN"]', 'methods = ["RAKEL"]', "cells.methods must be one of"),
        (
            'datasets = ["debtags-sample"]\nmethods = ["KNN"]',
            'datasets = "debtags-sample"\nmethods = ["KNN"]',
            "a list",
        ),
        ('metrics = ["P@1"]\nrows', 'metrics = ["P@2"]\nrows', "table 1: metrics must be one of"),
        ('metrics = ["P@1"]\nrows', 'metrics = ["P@1", "P@3"]\nrows', "table 1: one metric is needed"),
        ('rows = ["dataset", "share"]', 'rows = ["dataset", "known"]', "table 1: rows must be one of"),
        ('x = "share"', 'x = "known"', "figure 1: x must be one of"),
        ('rule = "validation"', 'rule = "test rows"', "rule must be one of"),
        ('[selection]\nrule = "validation"', '[unused]\nrule = "validation"', "unknown entries: unused"),
        ('rows = ["method"]', 'rows = ["share"]', "table 2: one method must be named"),
        ('rows = ["dataset", "share"]', 'rows = ["share"]', "table 1: one data set must be named"),
        ('axes = { share = "k/L" }', 'axes = { rank = "k/L" }', "axes must be one of"),
        ("[methods.KNN]", "[methods]\nKNN = 3\n[methods.other]", "must be a table"),
    ],
)
def test_faults_name_the_file_and_the_entry(toy, old, new, message):
    path = toy / "toy" / "small.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(InvalidInputError, match=message) as caught:
        read_study(path, "toy")
    assert str(path) in str(caught.value)
