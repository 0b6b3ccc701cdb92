"""``tagwise drift --report`` through the command, looked at in a real browser."""

import re

import pytest
from browser import chromium_page
from commands import run, some_rows, write_jsonl

from tagwise.data.feedback import FeedbackFile, feedback_line

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drift")
    rows = some_rows(300)
    for number, row in enumerate(rows):  # more tags than a text is suggested
        row["labels"].append(HOSTILE if number % 4 == 1 else f"number {number % 4}")
        row["text"] += f" number{number % 4}"
    file = write_jsonl(folder / "rows.jsonl", rows)
    options = ("--model", "binary-relevance", "--validation", "0.3", "--quiet")
    assert run("train", file, "--out", folder / "tagger", *options).returncode == 0
    recent = [{"text": f"{row['text']} rocket orbit number1"} for row in some_rows(200, seed=4)]
    kept = folder / "feedback.jsonl"
    FeedbackFile(kept).append(feedback_line({"text": row["text"], "rejected": ["pets", "food"]}) for row in recent)
    file = write_jsonl(folder / "recent.jsonl", recent)
    out = folder / "drift.html"
    result = run("drift", folder / "tagger", file, "--feedback", kept, "--report", out)
    assert result.returncode == 0, result.stderr
    assert f"Report written to {out}." in result.stderr
    again = run("drift", folder / "tagger", file, "--report", out)  # a report is replaced by the next one
    assert again.returncode == 0, again.stderr
    assert 'id="answers"' not in out.read_text(encoding="utf-8")
    assert run("drift", folder / "tagger", file, "--feedback", kept, "--report", out).returncode == 0
    return out


@pytest.fixture(scope="module")
def browser(report):
    with chromium_page() as page:
        page.requests, page.messages = [], []
        page.on("request", lambda request: page.requests.append(request.url))
        page.on("console", lambda message: page.messages.append(message.text))
        page.on("pageerror", lambda error: page.messages.append(str(error)))
        page.goto(report.as_uri())
        yield page


def test_the_page_says_what_has_moved(browser):
    lead = browser.locator("#figures .lead").text_content()
    assert re.fullmatch(r"Moved by more than chance: unknown words, .*acceptance\.", lead)
    rows = browser.locator("#compared tbody tr")
    assert rows.nth(0).locator("th").text_content() == "unknown words of a text"
    assert rows.nth(0).locator("td").all_text_contents()[-1] == "moved"
    assert HOSTILE in browser.locator("#moved tbody th").all_text_contents()
    assert browser.locator("#words-table tbody th").all_text_contents() == ["orbit", "rocket"]
    assert "0 were accepted" in browser.locator("#answers .lead").text_content()
    assert browser.locator(".plot svg").count() == 2


def test_nothing_is_asked_of_the_network_and_no_text_is_code(browser, report):
    assert browser.requests == [report.as_uri()]
    assert browser.messages == []
    assert browser.locator("main img").count() == 0


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (420, False)])
def test_it_fits_wide_and_narrow_light_and_dark(browser, width, dark):
    browser.set_viewport_size({"width": width, "height": 900})
    browser.emulate_media(color_scheme="dark" if dark else "light")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    ground, ink = browser.evaluate(
        '["backgroundColor", "color"].map((name) => getComputedStyle(document.body)[name].match(/\\d+/g).map(Number))'
    )
    assert (sum(ground) < sum(ink)) is dark
