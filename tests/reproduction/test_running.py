"""Cells are run once, stored whole, and taken up again where a run stopped."""

import json

import pytest

from tagwise.exceptions import InvalidInputError
from tagwise.reproduction.cells import cells_of, choice_of
from tagwise.reproduction.configuration import read_studies
from tagwise.reproduction.pages import make_pages
from tagwise.reproduction.results import ResultFolder
from tagwise.reproduction.runner import plan, run_cells


def all_bytes(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_choices_come_first_and_once(studies):
    planned = plan(cells_of(studies[0]))
    names = [cell.file_name for cell in planned]
    assert len(names) == len(set(names)) == 4 + 1 + 2  # LEML, KNN, and a choice a seed
    for cell in planned:
        choice = choice_of(cell)
        if not cell.choice and choice is not None:
            assert names.index(choice.file_name) < names.index(cell.file_name)
            assert choice.settings == {"share": "4%"}


def test_quick_is_a_part_of_the_whole(studies):
    quick = [cell.file_name for cell in cells_of(studies[0], quick=True)]
    assert quick == ["debtags-sample--leml--share-2--seed-0.json"]
    assert set(quick) < {cell.file_name for cell in cells_of(studies[0])}


def test_interrupted_resumed_and_shown_again(toy, studies, tmp_path, recorded):
    cells, folder = cells_of(studies[0]), ResultFolder(tmp_path / "results")
    first = recorded(stop_after=3)
    with pytest.raises(KeyboardInterrupt):
        run_cells(cells, folder, first, threads=1)
    stored = all_bytes(folder.root)
    assert len(stored) == len(first.titles) == 3

    second = recorded()
    outcome = run_cells(cells, folder, second, threads=1)
    assert (second.total, second.before) == (7, 3)
    assert (outcome.ran, outcome.finished_before, outcome.failed) == (4, 3, ())
    assert not set(first.titles) & set(second.titles)
    now = all_bytes(folder.root)
    assert {path: now[path] for path in stored} == stored, "a finished cell was written again"
    assert run_cells(cells, folder, recorded(), threads=1).ran == 0

    pages = make_pages(toy, folder.root, ("toy",))
    assert [page.name for page in pages] == ["small.md", "summary.md"]
    made = all_bytes(folder.root)
    assert {path.suffix for path in made} == {".json", ".md", ".png", ".svg"}
    make_pages(toy, folder.root, ("toy",))
    assert all_bytes(folder.root) == made


def test_a_result_says_what_it_is_of(studies, tmp_path, recorded):
    folder = ResultFolder(tmp_path)
    (cell,) = cells_of(studies[0], quick=True)
    run_cells([cell], folder, recorded(), threads=1)
    result = json.loads(folder.path(cell).read_text())
    assert set(result["values"]) == {"P@1", "P@3", "hamming", "AUC"}
    assert 0.3 < result["values"]["P@1"] <= 1
    assert result["question"]["seed"] == 0
    assert result["parameters"]["rank"] >= 1
    assert result["parameters"]["reg"] == 1.0, "a thousand leaves nothing of the model: validation must see it"
    assert result["choice"] == choice_of(cell).file_name
    assert {"fit", "predict", "cell"} <= set(result["seconds"])
    assert set(result["machine"]) == {"system", "processor", "cores"}
    assert "numpy" in result["versions"]


def test_same_values_for_any_thread_count(studies, tmp_path, recorded):
    (cell,) = cells_of(studies[0], quick=True)
    values = []
    for threads in (1, 2):
        folder = ResultFolder(tmp_path / str(threads))
        run_cells([cell], folder, recorded(), threads=threads)
        values.append(folder.read(cell)["values"])
    assert values[0] == values[1]


def test_another_configuration_is_another_question(toy, studies, tmp_path, recorded):
    folder = ResultFolder(tmp_path / "results")
    run_cells(cells_of(studies[0], quick=True), folder, recorded(), threads=1)
    path = toy / "toy" / "small.toml"
    path.write_text(path.read_text().replace("max_iter = 2", "max_iter = 3"))
    (cell,) = cells_of(read_studies(toy, "toy")[0], quick=True)
    assert folder.read(cell) is None
    assert run_cells([cell], folder, recorded(), threads=1).ran == 2


def test_a_cell_that_fails_is_noted_and_tried_again(toy, tmp_path, recorded):
    path = toy / "toy" / "small.toml"
    good = path.read_text()
    path.write_text(good.replace('class = "KNN"', 'class = "KNN"\nparameters = { n_neighbors = 0 }'))
    cells = [cell for cell in cells_of(read_studies(toy, "toy")[0]) if cell.method.name == "KNN"]
    folder = ResultFolder(tmp_path / "results")
    outcome = run_cells(cells, folder, recorded(), threads=1)
    assert len(outcome.failed) == 1
    assert "n_neighbors" in outcome.failed[0][1]
    assert "n_neighbors" in json.loads(folder.path(cells[0]).read_text())["error"]
    assert folder.read(cells[0]) is None
    assert run_cells(cells, folder, recorded(), threads=1).ran == 1


def test_a_damaged_result_is_named(studies, tmp_path):
    folder = ResultFolder(tmp_path)
    (cell,) = cells_of(studies[0], quick=True)
    folder.path(cell).parent.mkdir(parents=True)
    folder.path(cell).write_text("{")
    with pytest.raises(InvalidInputError, match=r"seed-0\.json is no valid JSON"):
        folder.read(cell)
