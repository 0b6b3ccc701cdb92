"""``--report`` through the command, looked at in a real browser."""

import json
import re
import struct
import sys
from pathlib import Path

import pytest
from browser import chromium_page
from commands import failed, run, some_rows, write_jsonl

SHOWN = 'Array.from(document.querySelectorAll("#tag-table tbody tr")).filter((row) => row.getClientRects().length)'


@pytest.fixture(scope="module")
def report(tmp_path_factory, tagger):
    folder = tmp_path_factory.mktemp("report")
    test = write_jsonl(folder / "test.jsonl", some_rows(60, seed=5))
    result = run("evaluate", tagger, test, "--report", folder / "out.html")
    assert result.returncode == 0, result.stderr
    assert f"Report written to {folder / 'out.html'}." in result.stderr
    return folder / "out.html"


@pytest.fixture(scope="module")
def browser(report):
    with chromium_page() as page:
        page.requests, page.messages = [], []
        page.on("request", lambda request: page.requests.append(request.url))
        page.on("console", lambda message: page.messages.append(message.text))
        page.on("pageerror", lambda error: page.messages.append(str(error)))
        page.goto(report.as_uri())
        yield page


def test_the_report_has_its_parts(report):
    html = report.read_text(encoding="utf-8")
    for name in ("headline", "confidence", "frequency", "mistakes", "tags", "examples", "example-20", "model"):
        assert f'id="{name}"' in html
    assert "calibrated thresholds" in html
    assert re.search(r"Accept automatically at 80% precision: \d+% of suggestions", html)
    assert "always the most frequent tags" in html
    assert "Rows to check first" in html
    assert re.search(r"\d+ \w+ 20\d\d · tagwise [\w.]+ · trained on 60 rows with 4 tags, measured on 60", html)


def test_the_search_box_filters_the_table(browser):
    names = f"{SHOWN}.map((row) => row.cells[0].textContent)"
    assert sorted(browser.evaluate(names)) == ["drinks", "food", "garden", "pets"]
    browser.evaluate('document.getElementById("tag-search").focus()')
    browser.keyboard.insert_text("gard")
    assert browser.evaluate(names) == ["garden"]
    assert browser.evaluate('document.getElementById("tag-count").textContent') == "1 of 4 tags"
    browser.keyboard.insert_text(" nothing")
    assert browser.evaluate(names) == []
    browser.evaluate('document.getElementById("tag-search").select()')
    browser.keyboard.insert_text("wine")  # one of the words of a tag
    assert browser.evaluate(names) == ["drinks"]
    browser.evaluate('document.getElementById("tag-search").select()')
    browser.keyboard.insert_text(" ")
    assert len(browser.evaluate(names)) == 4


def test_columns_sort(browser):
    counts = f"{SHOWN}.map((row) => Number(row.cells[2].dataset.v))"
    click = 'document.querySelectorAll("#tag-table thead button")[2].click()'
    browser.evaluate(click)
    assert browser.evaluate(counts) == sorted(browser.evaluate(counts), reverse=True)
    browser.evaluate(click)
    assert browser.evaluate(counts) == sorted(browser.evaluate(counts))
    browser.evaluate('document.querySelectorAll("#tag-table thead button")[0].click()')
    assert browser.evaluate(f"{SHOWN}.map((row) => row.cells[0].textContent)") == ["drinks", "food", "garden", "pets"]


def test_choosing_a_tag_colours_its_words(browser):
    colours = 'Array.from(document.querySelectorAll("#example-1 .body .w")).map((word) => word.dataset.sign || "")'
    before = browser.evaluate(colours)
    assert "for" in before
    browser.evaluate('document.querySelectorAll("#example-1 button")[3].click()')
    assert browser.evaluate(colours) != before
    browser.evaluate('document.querySelectorAll("#example-1 button")[0].click()')
    assert browser.evaluate(colours) == before


def test_nothing_is_asked_of_the_network(browser, report):
    assert browser.requests == [report.as_uri()]
    assert browser.messages == []


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (420, False)])
def test_it_fits_wide_and_narrow_light_and_dark(browser, width, dark):
    browser.set_viewport_size({"width": width, "height": 900})
    browser.emulate_media(color_scheme="dark" if dark else "light")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    ground, ink = browser.evaluate(
        '["backgroundColor", "color"].map((name) => getComputedStyle(document.body)[name].match(/\\d+/g).map(Number))'
    )
    assert (sum(ground) < sum(ink)) is dark
    picture = browser.screenshot()
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", picture[16:24]) == (width, 900)


def test_it_is_legible_on_a_phone(browser):
    """No text is smaller than 9 pixels, in plots neither, and cards use the width."""
    browser.set_viewport_size({"width": 420, "height": 900})
    sizes = browser.evaluate(
        """Array.from(document.querySelectorAll(".plot svg")).flatMap((svg) => {
          if (!svg.getClientRects().length) return [];
          const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
          return Array.from(svg.querySelectorAll("text")).map((t) => scale * parseFloat(getComputedStyle(t).fontSize));
        })"""
    )
    assert min(sizes) >= 9
    cards = browser.evaluate(
        'Array.from(document.querySelectorAll(".metric")).map((c) => c.getBoundingClientRect().width)'
    )
    assert min(cards) > 380


def test_cards_leave_no_holes(browser):
    """Side by side, cards are as tall as each other and fill the width."""
    browser.set_viewport_size({"width": 1280, "height": 900})
    for group in (".cards", ".plots"):
        for boxes, width in browser.evaluate(
            """(group) => Array.from(document.querySelectorAll(group)).map((g) => [
              Array.from(g.children, (c) => c.getBoundingClientRect()).map((b) => [b.top, b.bottom, b.left, b.right]),
              g.getBoundingClientRect().width])""",
            group,
        ):
            for top in {round(box[0]) for box in boxes}:
                line = [box for box in boxes if round(box[0]) == top]
                assert max(box[1] for box in line) - min(box[1] for box in line) < 1
                assert max(box[3] for box in line) - min(box[2] for box in line) == pytest.approx(width, abs=1)


def test_a_report_that_cannot_be_written_is_refused_before_any_work(tmp_path, tagger, rows_file):
    for name, words in (("out.pdf", "must end in .html"), ("no/out.html", "does not exist")):
        assert failed(run("evaluate", tagger, rows_file, "--report", tmp_path / name), 1, words)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_report_is_never_replaced(tmp_path, tagger, rows_file):
    mine = tmp_path / "mine.html"
    mine.write_text("<html>my page</html>")
    refused = run("evaluate", tagger, rows_file, "--report", mine)
    assert failed(refused, 1, "exists and is not a tagwise report; name another file")
    assert mine.read_text() == "<html>my page</html>"
    for _ in range(2):  # a report is replaced by the next one
        assert run("evaluate", tagger, rows_file, "--report", tmp_path / "out.html").returncode == 0


def test_train_reports_on_validation_rows_and_on_a_test_file(tmp_path, rows_file):
    out = tmp_path / "out.html"
    options = ("--model", "binary-relevance", "--validation", "0.25", "--report", out)
    validated = run("train", rows_file, "--out", tmp_path / "a", *options)
    assert validated.returncode == 0, validated.stderr
    html = out.read_text(encoding="utf-8")
    assert f"a, measured on random validation rows of {rows_file}" in html
    assert "measured on 20 rows" in html
    assert "learnt from these same rows" in html
    test = write_jsonl(tmp_path / "test.jsonl", [*some_rows(30, seed=9), {"text": "dog", "labels": ["space"]}])
    tested = run("train", rows_file, "--out", tmp_path / "b", *options, "--test", test, "--json")
    assert tested.returncode == 0, tested.stderr
    html = out.read_text(encoding="utf-8")
    assert f"b, measured on {test}" in html
    assert "measured on 31 rows" in html
    assert "learnt from these same rows" not in html
    assert "counted as missed: 1 tag that training never saw, 1 time: 'space' (1)." in tested.stderr
    figures = json.loads(tested.stdout)
    assert (figures["validation"]["rows"], figures["test"]["rows"]) == (20, 31)
    measured = json.loads(run("evaluate", tmp_path / "b", test, "--json").stdout)["metrics"]
    assert {name: figures["test"][name] for name in ("P@1", "nDCG@5")} == {
        name: measured[name] for name in ("P@1", "nDCG@5")
    }


def test_a_faulty_test_file_is_found_before_the_fit(tmp_path, rows_file):
    (tmp_path / "test.jsonl").write_text("nonsense\n")
    result = run("train", rows_file, "--out", tmp_path / "m", "--test", tmp_path / "test.jsonl")
    assert failed(result, 1, "test.jsonl, line 1", "invalid JSON")
    assert "iteration" not in result.stderr
    assert not (tmp_path / "m").exists()


def test_without_matplotlib_a_sentence_says_what_to_install(tmp_path, tagger, rows_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("evaluate", tagger, rows_file, "--report", tmp_path / "out.html")
    assert failed(result, 1, "pip install 'tagwise[plots]'")
    assert not list(tmp_path.iterdir())


def test_compare_writes_table_json_and_report(tmp_path):
    train = write_jsonl(tmp_path / "train.jsonl", some_rows(80))
    test = write_jsonl(tmp_path / "test.jsonl", some_rows(30, seed=9))
    models = ["--model", "knn", "--model", "binary-relevance", "--model", "leml:rank=2,reg=0.5"]
    table = run("compare", train, "--test", test, *models, "--report", tmp_path / "out.html", "--quiet")
    assert table.returncode == 0, table.stderr
    lines = table.stdout.splitlines()
    assert lines[0] == "Trained on 80 rows, measured on 30 others, metrics in percent"
    assert lines[1].split() == ["model", "P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "fit", "s", "ms/row", "MB"]
    assert table.stderr.splitlines() == [f"Report written to {tmp_path / 'out.html'}."]
    assert [line.split()[0] for line in lines[2:5]] == ["knn", "binary-relevance", "leml:rank=2,reg=0.5"]
    assert lines[5].startswith("Best by nDCG@5: ")
    html = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert 'id="comparison"' in html
    assert "leml:rank=2,reg=0.5" in html
    models[1] = "auto"
    result = run("compare", train, "--validation", "0.25", *models, "--json", "--k", "1", "--k", "2")
    found = json.loads(result.stdout)
    assert (found["training_rows"] + found["rows"]) <= 80
    assert found["best_by"] == "nDCG@2"
    names = [model["model"] for model in found["models"]]
    assert names[0].startswith("auto (")
    assert names[1:] == ["binary-relevance", "leml:rank=2,reg=0.5"]
    assert found["best"] == max(found["models"], key=lambda model: model["metrics"]["nDCG@2"])["model"]
    assert found["failed"] == {}
    for model in found["models"]:
        assert model["fit_seconds"] > 0
        assert model["predict_ms_per_row"] > 0
        assert model["model_megabytes"] > 0


def test_compare_refuses_what_makes_no_sense(tmp_path, rows_file):
    out = Path(tmp_path / "x.html")
    assert failed(run("compare", rows_file), 2, "--model")
    assert failed(run("compare", rows_file, "--model", "lemon"), 1, "model must be auto or one of")
    assert failed(run("compare", rows_file, "--model", "leml:rang=3"), 1, "no parameter 'rang'")
    assert failed(run("compare", rows_file, "--model", "auto:rank=3"), 2, "auto takes no settings")
    assert failed(run("compare", rows_file, "--model", "knn", "--model", "knn"), 2, "given twice")
    both = ("--test", rows_file, "--validation", "0.2")
    assert failed(run("compare", rows_file, "--model", "knn", *both), 2, "exclude each other")
    known = write_jsonl(tmp_path / "known.jsonl", [{**row, "seen": row["labels"]} for row in some_rows(20)])
    masked = run("compare", known, "--known", "seen", "--model", "wsabie", "--report", out)
    assert failed(masked, 1, "wsabie has no notion of unknown tags")
    assert not out.exists()


def test_a_comparison_fits_a_phone(browser, tmp_path, rows_file):
    out = tmp_path / "models.html"
    compared = run("compare", rows_file, "--model", "knn", "--model", "leml:rank=2", "--report", out, "--quiet")
    assert compared.returncode == 0, compared.stderr
    browser.set_viewport_size({"width": 420, "height": 900})
    browser.goto(out.as_uri())
    assert browser.evaluate("document.documentElement.scrollWidth") <= 420
