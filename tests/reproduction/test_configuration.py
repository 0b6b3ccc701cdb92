"""The papers' configurations: they parse, and name data sets, methods and parameters that there are."""

import inspect
from pathlib import Path

import pytest
from sklearn.model_selection import ParameterGrid

from reproduction.configuration import PAPERS, cells_of, choice_of, papers_in, read_studies, read_study
from reproduction.methods import METHOD_CLASSES, make_model, resolve_parameters
from reproduction.pages import compared
from reproduction.results import PaperValues, Results, StudyResults
from tagwise.exceptions import InvalidInputError

FOLDER = Path(__file__).parents[2] / "reproduction"
STUDIES = [study for paper in PAPERS for study in read_studies(FOLDER, paper)]
by_name = pytest.mark.parametrize("study", STUDIES, ids=lambda study: f"{study.paper}-{study.name}")


def test_all_papers_are_there():
    assert papers_in(FOLDER) == PAPERS


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


@pytest.mark.parametrize("paper", PAPERS)
def test_quick_is_a_small_part_of_each_paper(paper):
    quick = [cell for study in STUDIES if study.paper == paper for cell in cells_of(study, quick=True)]
    whole = [cell for study in STUDIES if study.paper == paper for cell in cells_of(study)]
    assert 0 < len(quick) <= len(whole) / 2
    assert {"leml": "LEML SQ", "reml": "REML", "mse": "MSE"}[paper] in {cell.method.name for cell in quick}


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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("table,dataset", "tabel,dataset", "the columns must be"),
        ("12.34", "twelve", "line 2: value must be a number; found 'twelve'"),
        ("share=4%,P@1,98.76", "share=2%,P@1,98.76", "line 3: there is already a value"),
    ],
)
def test_faults_in_the_papers_values(toy, old, new, message):
    path = toy / "toy" / "paper.csv"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(InvalidInputError, match=message):
        PaperValues.read(path)


def test_settings_and_shares_become_numbers():
    given = {"rank": "$share of labels", "n_components": "20% of features", "partitions": "$t", "loss": "squared"}
    found = resolve_parameters(given, {"share": "40%", "t": 3}, n_labels=159, n_features=1836)
    assert found == {"rank": 64, "n_components": 367, "partitions": 3, "loss": "squared"}
    assert resolve_parameters({"rank": "1% of labels"}, {}, n_labels=6, n_features=1)["rank"] == 1
    with pytest.raises(InvalidInputError, match="names a setting that the cell does not have"):
        resolve_parameters({"rank": "$share of labels"}, {}, n_labels=6, n_features=1)
    with pytest.raises(InvalidInputError, match="KNN has no parameter colour"):
        make_model("KNN", {"colour": 1}, seed=0, threads=1)


def test_two_cells_cannot_share_a_key(toy):
    path = toy / "toy" / "small.toml"
    path.write_text(path.read_text().replace('share = ["2%", "4%"]', 'share = ["2%", "2"]'))
    with pytest.raises(InvalidInputError, match="would share the key"):
        cells_of(read_study(path, "toy"))


def test_cells_may_have_a_grid_and_a_rule_of_their_own(tmp_path):
    """Of the same method: the rest of its cells keep the method's."""
    path = tmp_path / "made.toml"
    path.write_text(
        'title = "t"\nmetrics = ["P@1"]\n[selection]\nmetric = "P@1"\n[methods.BR]\nclass = "BinaryRelevance"\n'
        "grid = { reg = [1.0, 3.0] }\n"
        '[[cells]]\ndatasets = ["made"]\nmethods = ["BR"]\nsettings = { known = ["40%"] }\n'
        '[[cells]]\ndatasets = ["made"]\nmethods = ["BR"]\nsettings = { known = ["5%"] }\n'
        'grid = { reg = [0.1, 1.0, 3.0] }\nselection = { rule = "folds", folds = 4 }\n'
    )
    many, few = (choice_of(cell) for cell in cells_of(read_study(path, "toy")))
    assert many.question()["grid"] == {"reg": [1.0, 3.0]}
    assert (many.question()["selection"]["rule"], many.question()["selection"]["metric"]) == ("validation", "P@1")
    assert few.question()["grid"] == {"reg": [0.1, 1.0, 3.0]}
    assert (few.question()["selection"]["rule"], few.question()["selection"]["folds"]) == ("folds", 4)


def test_the_grid_of_some_cells_goes_before_that_of_a_data_set_and_their_rule_is_checked(tmp_path):
    text = (
        'title = "t"\nmetrics = ["P@1"]\n[selection]\nmetric = "P@1"\n[methods.LEML]\nclass = "LEML"\n'
        'grid_by_dataset = { bibtex = { reg = [1.0] } }\n[[cells]]\ndatasets = ["bibtex"]\n'
        'methods = ["LEML"]\ngrid = { reg = [0.1, 3.0] }\n'
    )
    path = tmp_path / "study.toml"
    path.write_text(text)
    (cell,) = cells_of(read_study(path, "toy"))
    assert cell.method.grid_for("bibtex") == {"reg": [0.1, 3.0]}
    path.write_text(text + 'selection = { rule = "fold" }\n')
    with pytest.raises(InvalidInputError, match=r"selection\.rule"):
        read_study(path, "toy")
