"""Reports through the command, looked at in a real browser; and when none is written."""

import json
import re
import sys

import pytest
from browser import chromium_page
from commands import failed, ok, run, some_rows, write_jsonl

from tagwise.data.feedback import FeedbackFile, feedback_line

HOSTILE = "<img src=x onerror=alert(1)>"
SHOWN = 'Array.from(document.querySelectorAll("#tag-table tbody tr")).filter((row) => row.getClientRects().length)'


@pytest.fixture(scope="module")
def pages(tmp_path_factory, tagger, rows_file):
    """One report of each kind."""
    folder = tmp_path_factory.mktemp("reports")
    pages = {name: folder / f"{name}.html" for name in ("evaluate", "compare", "drift")}
    test = write_jsonl(folder / "test.jsonl", some_rows(60, seed=5))
    rows = some_rows(300)
    for number, row in enumerate(rows):  # more tags than a text is suggested
        row["labels"].append(HOSTILE if number % 4 == 1 else f"number {number % 4}")
        row["text"] += f" number{number % 4}"
    file = write_jsonl(folder / "rows.jsonl", rows)
    recent = [{"text": f"{row['text']} rocket orbit number1"} for row in some_rows(200, seed=4)]
    kept = folder / "feedback.jsonl"
    FeedbackFile(kept).append(feedback_line({"text": row["text"], "rejected": ["pets", "food"]}) for row in recent)
    recent_file = write_jsonl(folder / "recent.jsonl", recent)
    model = ("--model", "binary-relevance")
    for command in (
        ("evaluate", tagger, test, "--report", pages["evaluate"]),
        ("compare", rows_file, "--model", "knn", "--model", "leml:rank=2", "--report", pages["compare"], "--quiet"),
        ("train", file, "--out", folder / "tagger", *model, "--validation", "0.3", "--quiet"),
        ("drift", folder / "tagger", recent_file, "--report", pages["drift"]),
        # A report is replaced by the next one.
        ("drift", folder / "tagger", recent_file, "--feedback", kept, "--report", pages["drift"]),
    ):
        result = ok(*command)
        assert "--report" not in command or "Report written to " in result.stderr
    return pages


@pytest.fixture(scope="module")
def page():
    with chromium_page() as page:
        page.requests, page.messages = [], []
        page.on("request", lambda request: page.requests.append(request.url))
        page.on("console", lambda message: page.messages.append(message.text))
        page.on("pageerror", lambda error: page.messages.append(str(error)))
        yield page


def test_pages_fit_wide_and_narrow_light_and_dark_and_ask_nobody(page, pages):
    colours = '["backgroundColor", "color"].map((c) => getComputedStyle(document.body)[c].match(/\\d+/g).map(Number))'
    for path in pages.values():
        page.requests.clear()
        page.goto(path.as_uri())
        for width, dark in ((1280, False), (1280, True), (420, False)):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme="dark" if dark else "light")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            ground, ink = page.evaluate(colours)
            assert (sum(ground) < sum(ink)) is dark
        # No text is smaller than 9 pixels on a phone, in plots neither.
        sizes = page.evaluate(
            """Array.from(document.querySelectorAll(".plot svg")).flatMap((svg) => {
              if (!svg.getClientRects().length) return [];
              const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
              const size = (text) => scale * parseFloat(getComputedStyle(text).fontSize);
              return Array.from(svg.querySelectorAll("text")).map(size);
            })"""
        )
        assert min(sizes) >= 9
        assert page.requests == [path.as_uri()]
        assert page.messages == []
        assert page.locator("main img").count() == 0


def test_cards_leave_no_holes(page, pages):
    """Side by side, cards are as tall as each other and fill the width."""
    page.goto(pages["evaluate"].as_uri())
    page.set_viewport_size({"width": 1280, "height": 900})
    for group in (".cards", ".plots"):
        boxes_and_widths = page.evaluate(
            """(group) => Array.from(document.querySelectorAll(group)).map((g) => [
              Array.from(g.children, (c) => c.getBoundingClientRect()).map((b) => [b.top, b.bottom, b.left, b.right]),
              g.getBoundingClientRect().width])""",
            group,
        )
        assert boxes_and_widths
        for boxes, width in boxes_and_widths:
            for top in {round(box[0]) for box in boxes}:
                line = [box for box in boxes if round(box[0]) == top]
                assert max(box[1] for box in line) - min(box[1] for box in line) < 1
                assert max(box[3] for box in line) - min(box[2] for box in line) == pytest.approx(width, abs=1)


def test_the_table_of_a_report_is_searched_and_sorted(page, pages):
    html = pages["evaluate"].read_text(encoding="utf-8")
    assert re.search(r"\d+ \w+ 20\d\d · tagwise [\w.]+ · trained on 60 rows with 4 tags, measured on 60", html)
    page.goto(pages["evaluate"].as_uri())
    names = f"{SHOWN}.map((row) => row.cells[0].textContent)"
    for typed, found in (
        ("gard", ["garden"]),
        ("nothing", []),
        ("wine", ["drinks"]),
        (" ", sorted(["drinks", "food", "garden", "pets"])),
    ):  # wine is one of the words of a tag
        page.evaluate('document.getElementById("tag-search").select()')
        page.keyboard.insert_text(typed)
        assert sorted(page.evaluate(names)) == found
    counts = f"{SHOWN}.map((row) => Number(row.cells[2].dataset.v))"
    for reverse in (True, False):
        page.evaluate('document.querySelectorAll("#tag-table thead button")[2].click()')
        assert page.evaluate(counts) == sorted(page.evaluate(counts), reverse=reverse)
    # A click on a tag colours its words.
    colours = 'Array.from(document.querySelectorAll("#example-1 .body .w")).map((word) => word.dataset.sign || "")'
    before = page.evaluate(colours)
    assert "for" in before
    page.evaluate('document.querySelectorAll("#example-1 button")[3].click()')
    assert page.evaluate(colours) != before


def test_the_page_on_drift_says_what_has_moved(page, pages):
    page.goto(pages["drift"].as_uri())
    lead = page.locator("#figures .lead").text_content()
    assert re.fullmatch(r"Drift: unknown words, .*acceptance\.", lead)
    rows = page.locator("#compared tbody tr")
    assert rows.nth(0).locator("th").text_content() == "unknown words per text"
    assert rows.nth(0).locator("td").all_text_contents()[-1] == "drift"
    assert HOSTILE in page.locator("#moved tbody th").all_text_contents()
    assert page.locator("#words-table tbody th").all_text_contents() == ["orbit", "rocket"]
    assert "0 were accepted" in page.locator("#answers .lead").text_content()
    assert page.locator(".plot svg").count() == 2


def test_reports_that_cannot_be_written_are_refused_before_any_work(tmp_path, tagger, rows_file, monkeypatch):
    mine = tmp_path / "mine.html"
    mine.write_text("<html>my page</html>")
    (tmp_path / "folder.html").mkdir()
    for name, words in (
        ("out.pdf", "must end in .html"),
        ("folder.html", "is a folder"),
        ("no/out.html", "does not exist"),
        ("mine.html", "exists and is not a tagwise report; name another file"),
    ):
        assert failed(run("evaluate", tagger, rows_file, "--report", tmp_path / name), 1, words)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("evaluate", tagger, rows_file, "--report", tmp_path / "out.html")
    assert failed(result, 1, "pip install 'tagwise[plots]'")
    assert mine.read_text() == "<html>my page</html>"
    assert sorted(tmp_path.iterdir()) == [tmp_path / "folder.html", mine]


def test_train_reports_on_validation_rows_and_on_a_test_file(tmp_path, rows_file):
    out = tmp_path / "out.html"
    options = ("--model", "binary-relevance", "--validation", "0.25", "--report", out)
    ok("train", rows_file, "--out", tmp_path / "a", *options)
    html = out.read_text(encoding="utf-8")
    assert f"a, measured on random validation rows of {rows_file}" in html
    assert "measured on 20 rows" in html
    assert "learnt from these same rows" in html
    test = write_jsonl(tmp_path / "test.jsonl", [*some_rows(30, seed=9), {"text": "dog", "labels": ["space"]}])
    tested = ok("train", rows_file, "--out", tmp_path / "b", *options, "--test", test, "--json")
    html = out.read_text(encoding="utf-8")
    assert f"b, measured on {test}" in html
    assert "measured on 31 rows" in html
    assert "learnt from these same rows" not in html
    assert "counted as missed: 1 tag not seen in training, 1 time: 'space' (1)." in tested.stderr
    figures = json.loads(tested.stdout)
    assert (figures["validation"]["rows"], figures["test"]["rows"]) == (20, 31)
    measured = json.loads(run("evaluate", tmp_path / "b", test, "--json").stdout)["metrics"]
    assert figures["test"]["nDCG@5"] == measured["nDCG@5"]
    (tmp_path / "test.jsonl").write_text("nonsense\n")
    refused = run("train", rows_file, "--out", tmp_path / "m", "--test", test)
    assert failed(refused, 1, "test.jsonl, line 1", "invalid JSON")
    assert "iteration" not in refused.stderr


def test_compare_writes_table_json_and_report(tmp_path):
    train = write_jsonl(tmp_path / "train.jsonl", some_rows(80))
    test = write_jsonl(tmp_path / "test.jsonl", some_rows(30, seed=9))
    models = ["--model", "knn", "--model", "binary-relevance", "--model", "leml:rank=2,reg=0.5"]
    table = ok("compare", train, "--test", test, *models, "--report", tmp_path / "out.html", "--quiet")
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
    found = json.loads(run("compare", train, "--validation", "0.25", *models, "--json", "--k", "1", "--k", "2").stdout)
    assert (found["training_rows"] + found["rows"]) <= 80
    assert found["best_by"] == "nDCG@2"
    assert re.match(r"auto \(", found["models"][0]["model"])
    assert found["best"] == max(found["models"], key=lambda model: model["metrics"]["nDCG@2"])["model"]
    assert found["failed"] == {}
    for name in ("fit_seconds", "predict_ms_per_row", "model_megabytes"):
        assert all(model[name] > 0 for model in found["models"])


def test_compare_refuses_what_makes_no_sense(tmp_path, rows_file):
    known = write_jsonl(tmp_path / "known.jsonl", [{**row, "seen": row["labels"]} for row in some_rows(20)])
    for arguments, code, words in (
        ([rows_file], 2, "--model"),
        ([rows_file, "--model", "lemon"], 1, "model must be auto or one of"),
        ([rows_file, "--model", "leml:rang=3"], 1, "no parameter 'rang'"),
        ([rows_file, "--model", "auto:rank=3"], 2, "auto takes no settings"),
        ([rows_file, "--model", "knn", "--model", "knn"], 2, "given twice"),
        ([rows_file, "--model", "knn", "--test", rows_file, "--validation", "0.2"], 2, "exclude each other"),
        ([known, "--known", "seen", "--model", "wsabie"], 1, "wsabie does not support unknown tags"),
    ):
        assert failed(run("compare", *arguments, "--report", tmp_path / "x.html"), code, words)
    assert not (tmp_path / "x.html").exists()
