"""Cells are run once, stored whole, and taken up again where a run stopped."""

import pytest

from reproduction.configuration import cells_of, choice_of, read_studies
from reproduction.pages import make_pages
from reproduction.results import Results
from reproduction.runner import run_cells


def all_bytes(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_quick_is_a_part_of_the_whole(studies):
    quick = [cell.key for cell in cells_of(studies[0], quick=True)]
    assert quick == ["debtags-sample--leml--share-2--seed-0"]
    assert set(quick) < {cell.key for cell in cells_of(studies[0])}


def test_interrupted_resumed_and_shown_again(toy, studies, tmp_path, recorded):
    cells, folder = cells_of(studies[0]), Results(tmp_path / "results")
    first = recorded(stop_after=3)
    with pytest.raises(KeyboardInterrupt):
        run_cells(cells, folder, first, threads=1)
    stored = folder.path(cells[0]).read_bytes()
    assert stored.count(b"\n") == len(first.titles) == 3

    second = recorded()
    outcome = run_cells(cells, folder, second, threads=1)
    assert (second.total, second.before) == (7, 3)
    assert (outcome.ran, outcome.finished_before, outcome.failed) == (4, 3, ())
    assert not set(first.titles) & set(second.titles)
    assert folder.path(cells[0]).read_bytes().startswith(stored), "a finished cell was written again"
    assert run_cells(cells, folder, recorded(), threads=1).ran == 0

    pages = make_pages(toy, folder.root, ("toy",))
    assert [page.name for page in pages] == ["small.md", "summary.md"]
    made = all_bytes(folder.root)
    assert {path.suffix for path in made} == {".jsonl", ".md", ".png", ".svg"}
    make_pages(toy, folder.root, ("toy",))
    assert all_bytes(folder.root) == made


def test_a_result_says_what_it_is_of(studies, tmp_path, recorded):
    folder = Results(tmp_path)
    (cell,) = cells_of(studies[0], quick=True)
    run_cells([cell], folder, recorded(), threads=1)
    result = Results(tmp_path).read(cell)
    assert set(result["values"]) == {"P@1", "P@3", "hamming", "AUC"}
    assert 0.3 < result["values"]["P@1"] <= 1
    assert result["question"]["seed"] == 0
    assert result["parameters"]["rank"] >= 1
    assert result["parameters"]["reg"] == 1.0, "a thousand leaves nothing of the model: validation must see it"
    assert result["choice"] == choice_of(cell).key
    assert {"fit", "predict", "cell"} <= set(result["seconds"])
    assert set(result["machine"]) == {"system", "processor", "cores"}
    assert "numpy" in result["versions"]


def test_same_values_for_any_thread_count(studies, tmp_path, recorded):
    (cell,) = cells_of(studies[0], quick=True)
    values = []
    for threads in (1, 2):
        folder = Results(tmp_path / str(threads))
        run_cells([cell], folder, recorded(), threads=threads)
        values.append(folder.read(cell)["values"])
    assert values[0] == values[1]


def test_another_configuration_is_another_question(toy, studies, tmp_path, recorded):
    folder = Results(tmp_path / "results")
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
    folder = Results(tmp_path / "results")
    outcome = run_cells(cells, folder, recorded(), threads=1)
    assert len(outcome.failed) == 1
    assert "n_neighbors" in outcome.failed[0][1]
    assert "n_neighbors" in Results(folder.root).stored(folder.path(cells[0]))[cells[0].key]["error"]
    assert folder.read(cells[0]) is None
    assert run_cells(cells, folder, recorded(), threads=1).ran == 1
    assert folder.path(cells[0]).read_text().count("\n") == 1, "one line per cell"


@pytest.fixture
def stored(studies, tmp_path):
    """Three results in a file: the file, its cells, and a function that reads it anew."""
    cells, results = cells_of(studies[0])[:3], Results(tmp_path)
    for number, cell in enumerate(cells):
        results.write(cell, {"values": {"P@1": number}})
    return results.path(cells[0]), cells, lambda: [Results(tmp_path).read(cell) for cell in cells]


def test_two_runs_do_not_lose_each_other_s_results(stored, studies, tmp_path):
    cells = stored[1]
    other = cells_of(studies[0])[3:5]
    first, second = Results(tmp_path), Results(tmp_path)
    assert first.read(cells[0]) == second.read(cells[0])
    first.write(other[0], {"values": {}})
    second.write(other[1], {"values": {}})
    first.write(cells[0], {"values": {}})
    second.write(other[0], {"values": {}})
    assert all(Results(tmp_path).read(cell) is not None for cell in [*cells, *other])
