"""The page in a real browser: what people do with it, by mouse, by touch and by keyboard alone."""

import json
import re
import shutil
from pathlib import Path

import httpx
import pytest
from browser import PATIENCE, chromium_page
from commands import some_rows, write_jsonl
from playwright.sync_api import expect
from serving import served, until

from tagwise import Tagger, TextFeatures, load
from tagwise.data.feedback import read_feedback, with_feedback
from tagwise.data.tables import Table
from tagwise.progress import visible
from tagwise.serving import create_app

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "'\"--></title><script>alert(2)</script>",
    "javascript:alert(3)&amp;<b>b</b>",
]
LONG = "a-tag::" + "of-very-many-letters" * 8
TEXT = "My dog has fur. 😀 The DOG drinks wine."
KEY = "a-key-of-the-browser-test"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rows = some_rows()
    texts, tags = [row["text"] for row in rows], [row["labels"] for row in rows]
    for word, tag in zip(("zebra", "yacht", "xylophone", "quartz"), [*HOSTILE, LONG]):
        texts += [f"{word} {text}" for text in texts[:4]]
        tags += [[tag]] * 4
    folder = tmp_path_factory.mktemp("page") / "tagger"
    tagger = Tagger("binary-relevance", features=TextFeatures(min_df=1)).fit(texts, tags)
    tagger.calibrate(texts, tags)
    tagger.save(folder)
    return folder


@pytest.fixture(scope="module")
def browser():
    with chromium_page() as page:
        yield page.context.browser


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "feedback.jsonl"


@pytest.fixture
def address(folder, kept):
    with served(create_app({"animals": folder}, feedback=str(kept))) as address:
        yield address


@pytest.fixture
def visit(browser):
    """Opens pages that may neither show an alert nor complain in the console."""
    faults, contexts = [], []

    def opened(address, *, width=1280, height=900, allowed=(), **settings):
        context = browser.new_context(viewport={"width": width, "height": height}, **settings)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("dialog", lambda dialog: (faults.append(dialog.message), dialog.dismiss()))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: request.url.startswith("http://127.0.0.1:") or faults.append(request.url))
        # A server that has ended its test before the page was closed is no fault.
        expected = (*allowed, "ERR_CONNECTION", "ERR_EMPTY_RESPONSE")
        page.on("console", lambda one: any(word in one.text for word in expected) or faults.append(one.text))
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def page(visit, address):
    return visit(address)


def write(page, text):
    page.get_by_role("textbox", name="Text").fill(text)
    expect(page.locator(".row").first).to_be_visible()


def row(page, tag):
    return page.locator(".row", has=page.locator("bdi", has_text=re.compile(f"^{re.escape(visible(tag))}$")))


def answers_in(path):
    found = read_feedback(path)
    given = {
        key: {tag: answer.right for tag, answer in answers.tags.items() if answer.right is not None}
        for key, answers in [*found.by_text.items(), *found.by_id.items()]
    }
    return {key: tags for key, tags in given.items() if tags}


def lit(page):
    return page.eval_on_selector_all("#behind .w[data-sign=for]", "words => words.map((word) => word.textContent)")


# ------------------------------------------------------------------ files


def test_every_part_is_there_and_nothing_comes_from_elsewhere(folder, client_of):
    with client_of({"animals": str(folder)}) as client:
        page = client.get("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert "unsafe" not in page.headers["content-security-policy"]
        wanted, seen = re.findall(r'(?:href|src)="(page/[^"]+)"', page.text), {}
        while wanted:
            name = wanted.pop()
            found = seen[name] = client.get(f"/{name}")
            assert found.status_code == 200, name
            wanted += [
                f"page/{part}" for part in re.findall(r'from "\./([^"]+)"', found.text) if f"page/{part}" not in seen
            ]
        assert len(seen) == 9
        for found in [page, *seen.values()]:
            assert "://" not in found.text.replace("http://www.w3.org/2000/svg", "")
            again = client.get(found.url, headers={"If-None-Match": found.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        assert "on" not in {attribute[:2] for attribute in re.findall(r" (on\w+)=", page.text)}
        for path in ("page/../app.py", "page/..%2fapp.py", "page/", "page/none.js"):
            found = client.get(f"/{path}")
            assert found.status_code == 404, path
            assert found.headers["content-type"] == "application/problem+json"


# ------------------------------------------------------------------ answers


def test_suggest_accept_reject_undo(page, kept):
    text, learnt = page.get_by_role("textbox", name="Text"), page.locator("#learnt")
    accept, undo = page.get_by_role("button", name="Accept pets"), page.get_by_role("button", name="Undo")
    expect(page.get_by_role("heading", name="animals")).to_be_visible()
    expect(page.locator("#about")).to_have_text(re.compile(r"^8 tags, learnt from \d+ texts by binary-relevance$"))
    expect(learnt).to_contain_text("No answers yet.")
    write(page, "unheard-of")
    expect(page.get_by_text("The model knows none of the words of this text")).to_be_visible()
    write(page, TEXT)
    expect(page.get_by_text("The model knows none of the words of this text")).to_be_hidden()
    assert re.fullmatch(r"(> )?\d+%", row(page, "pets").locator(".sure").inner_text())
    expect(page.get_by_role("button", name="Reject the rest")).to_be_hidden()
    accept.click()
    page.get_by_role("button", name="Reject garden").click()
    expect(learnt).to_contain_text("2 answers kept: 1 accepted, 1 rejected, on 1 text.")
    expect(accept).to_have_attribute("aria-pressed", "true")
    assert answers_in(kept) == {TEXT: {"pets": True, "garden": False}}
    # All others in one step, and back.
    page.get_by_role("button", name="Reject the rest").click()
    expect(learnt).to_contain_text("8 answers kept: 1 accepted, 7 rejected")
    undo.click()
    expect(learnt).to_contain_text("2 answers kept")
    # To change one's mind, to take an answer back, and to undo that.
    page.get_by_role("button", name="Accept garden").click()
    accept.click()
    expect(learnt).to_contain_text("1 answer kept: 1 accepted, 0 rejected")
    assert answers_in(kept) == {TEXT: {"garden": True}}
    expect(page.get_by_role("status").last).to_have_text("pets taken back.")
    for expected in ({"garden": True, "pets": True}, {"garden": False, "pets": True}, {"pets": True}, {}):
        undo.click()
        right = sum(expected.values())
        words = f"{right} accepted, {len(expected) - right} rejected" if expected else "No answers yet."
        expect(learnt).to_contain_text(words)
        assert answers_in(kept).get(TEXT, {}) == expected
    expect(undo).to_be_hidden()
    assert {json.loads(line)["tagger"] for line in kept.read_text().splitlines()} == {"animals"}
    # Answers are there again when one comes back to a text.
    accept.click()
    text.fill("some wine")
    expect(accept).to_have_attribute("aria-pressed", "false")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#empty")).to_be_visible()
    assert page.locator(".row").count() == 0
    write(page, TEXT)
    expect(accept).to_have_attribute("aria-pressed", "true")


def test_what_cannot_be_stored_is_taken_back_and_said(visit, address, kept):
    page = visit(address, allowed=["507"])
    write(page, TEXT)
    accept, reject = (page.get_by_role("button", name=f"{verb} pets") for verb in ("Accept", "Reject"))
    sentence = "The answer could not be stored: No space left on device. Nothing was kept."
    page.route("**/feedback", lambda route: route.fulfill(status=507, json={"detail": sentence}), times=1)
    accept.click()
    expect(page.get_by_role("alert")).to_have_text(sentence)
    expect(accept).to_have_attribute("aria-pressed", "false")
    expect(page.get_by_role("button", name="Undo")).to_be_hidden()
    accept.click()
    expect(page.locator("#learnt")).to_contain_text("1 answer kept")
    expect(page.locator("#trouble")).to_be_hidden()
    # A late refusal does not take a later answer back.
    held = []
    page.route("**/feedback", lambda route: held.append(route), times=1)
    accept.click()
    reject.click()  # waits until the first is done
    held[0].fulfill(status=507, json={"detail": sentence})
    expect(page.locator("#learnt")).to_contain_text("1 answer kept: 0 accepted, 1 rejected")
    expect(reject).to_have_attribute("aria-pressed", "true")
    assert answers_in(kept) == {TEXT: {"pets": False}}


def test_missing_tags_are_added_known_ones_and_new_ones(page, kept):
    def without_food(route):  # as of a large vocabulary, of which ten are suggested
        answer = route.fetch().json()
        answer["suggestions"] = [one for one in answer["suggestions"] if one["tag"] != "food"]
        route.fulfill(json=answer)

    page.route("**/suggest", without_food)
    write(page, TEXT)
    search, options = page.get_by_role("combobox", name="Add a missing tag"), page.get_by_role("option")
    search.fill("oo")
    expect(options).to_have_text(["food", "oo new tag, learnt by the next training"])
    page.get_by_role("option", name="food").click()
    expect(row(page, "food")).to_have_attribute("data-answer", "accepted")
    expect(search).to_have_value("")
    expect(page.locator("#learnt")).to_contain_text("1 answer kept: 1 accepted")
    assert answers_in(kept) == {TEXT: {"food": True}}
    page.get_by_role("button", name="Undo").click()
    expect(row(page, "food")).to_have_count(0)
    # Tags that the model does not know.
    search.fill("PETS")
    expect(options).to_have_text(["pets"])
    search.fill(f"  {HOSTILE[0]}!")
    expect(options).to_have_text([f"{HOSTILE[0]}! new tag, learnt by the next training"])
    search.press("Enter")  # nobody makes a new tag by a slip
    expect(search).to_have_value(f"  {HOSTILE[0]}!")
    search.press("Escape")
    expect(options).to_have_count(0)
    search.fill("wine dogs")
    expect(options).to_have_count(1)
    search.press("ArrowUp")
    search.press("Enter")
    expect(row(page, "wine dogs")).to_have_attribute("data-answer", "accepted")
    expect(page.locator("#learnt")).to_contain_text("1 answer kept: 1 accepted")
    assert answers_in(kept) == {TEXT: {"wine dogs": True}}
    rows = some_rows()
    table = Table([one["text"] for one in rows], [one["labels"] for one in rows])
    learnt = with_feedback(table, read_feedback(kept))
    newer = Tagger("binary-relevance", features=TextFeatures(min_df=1)).fit(learnt.texts, learnt.tags, learnt.known)
    assert "wine dogs" in newer.tags_


def test_a_vocabulary_that_is_given_takes_no_new_tags(visit, kept, tmp_path):
    rows = some_rows()
    tagger = Tagger("binary-relevance", features=TextFeatures(min_df=1), vocabulary={"pets": "animals at home"})
    tagger.fit([one["text"] for one in rows], [one["labels"] for one in rows]).save(tmp_path / "tagger")
    with served(create_app({"animals": tmp_path / "tagger"}, feedback=str(kept))) as address:
        page = visit(address)
        write(page, TEXT)
        search = page.get_by_role("combobox", name="Add a missing tag")
        search.fill("at home")
        expect(page.get_by_role("option")).to_have_text(["animals at home pets"])
        search.fill("nothing like it")
        expect(page.get_by_role("option")).to_have_text(["No tag of the vocabulary contains this."])
        search.press("Enter")
        assert not kept.read_text()


# ------------------------------------------------------------------ words


def test_the_words_of_a_tag_light_up(page):
    write(page, TEXT)
    assert lit(page) == []
    row(page, "pets").hover()
    assert lit(page) == ["dog", "fur", "DOG"]
    row(page, "drinks").hover()
    assert lit(page) == ["wine"]
    page.get_by_role("heading", name="animals").hover()
    assert lit(page) == []
    page.get_by_role("button", name="pets", exact=True).click()
    page.get_by_role("heading", name="animals").hover()
    assert lit(page) == ["dog", "fur", "DOG"]
    assert page.locator("#behind").text_content().rstrip("\u200b") == TEXT
    places = "(part) => { const {x, y, width} = part.getBoundingClientRect(); return [x, y, width] }"
    assert page.eval_on_selector("#behind", places) == page.eval_on_selector("#text", places)
    # Written text is never lit at the places of the text before it.
    page.get_by_role("textbox", name="Text").press("Home")
    page.keyboard.type("x")
    assert lit(page) == []


def test_a_long_text_lights_up_where_its_words_are(page):
    """It is shown in blocks, of which only those change that must: a browser takes seconds to lay out a megabyte."""
    line = "\tمرحبا بالعالم, some other words 😀\n\n" + "and " * 60 + "\n"
    text = "\n" + line * 400 + "a dog\n" + line * 400 + "more fur\n\n"
    write(page, text)
    blocks = page.locator("#behind > div")
    assert blocks.count() > 50
    assert "\n".join(one.rstrip("\u200b") for one in blocks.all_text_contents()) == text
    assert (
        page.evaluate("document.getElementById('behind').offsetHeight - document.getElementById('text').scrollHeight")
        == 0
    )
    page.evaluate("document.querySelectorAll('#behind > div').forEach((block) => (block.dataset.old = true))")
    page.get_by_role("button", name="pets", exact=True).click()
    assert lit(page) == ["dog", "fur"]
    inside = "(word) => word.getBoundingClientRect().top - document.getElementById('sheet').getBoundingClientRect().top"
    assert 0 <= page.eval_on_selector("#behind .w", inside) <= 200
    page.get_by_role("textbox", name="Text").focus()
    page.keyboard.press("Control+Home")
    page.keyboard.type("x")
    assert lit(page) == []
    assert page.locator("#behind > div:not([data-old])").count() == 1
    assert "\n".join(one.rstrip("\u200b") for one in blocks.all_text_contents()) == "x" + text
    expect(page.locator("#dark")).to_be_hidden()
    write(page, "dog " * 30_000)
    expect(page.get_by_text("Lines of more than 100,000 characters are not highlighted")).to_be_visible()
    row(page, "pets").hover()
    assert lit(page) == []


def test_a_text_that_was_there_before_the_server_answered(visit, address):
    page = visit("about:blank", allowed=["typed"])
    held = []
    page.route("**/v1/taggers", lambda route: held.append(route))
    page.goto(address)
    text = page.get_by_role("textbox", name="Text")
    with page.expect_event("console", lambda message: message.text == "typed"):
        page.evaluate("setTimeout(() => console.info('typed'), 600)")  # longer than the page waits for the next key
        text.fill(TEXT)
    held[0].continue_()
    expect(row(page, "pets")).to_be_visible()
    expect(text).to_have_value(TEXT)


# ------------------------------------------------------------------ without a mouse


def test_by_keyboard_alone(page, kept):
    expect(page.locator("#learnt")).to_be_visible()
    for _ in range(5):
        if page.evaluate("document.activeElement.id") == "text":
            break
        page.keyboard.press("Tab")
    page.keyboard.insert_text(TEXT)
    page.keyboard.press("Control+Enter")
    expect(page.locator(".row .name").first).to_be_focused()
    tags = page.locator(".row bdi").all_inner_texts()
    assert tags[:2] == ["pets", "drinks"]
    assert lit(page) == ["dog", "fur", "DOG"]
    page.keyboard.press("a")  # and on to the next
    expect(page.locator(".row .name").nth(1)).to_be_focused()
    assert lit(page) == ["wine"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("r")
    expect(page.locator("#learnt")).to_contain_text("2 answers kept: 1 accepted, 1 rejected")
    assert answers_in(kept) == {TEXT: {"pets": True, tags[2]: False}}
    page.keyboard.press("u")
    expect(page.locator("#learnt")).to_contain_text("1 answer kept")
    page.keyboard.press("Home")
    page.keyboard.press("Tab")  # its buttons
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(page.locator("#learnt")).to_contain_text("1 answer kept: 0 accepted, 1 rejected")
    page.keyboard.press("/")
    expect(page.get_by_role("combobox")).to_be_focused()
    page.keyboard.type("d")
    expect(page.get_by_role("option").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    chosen = page.get_by_role("option", selected=True)
    expect(chosen).to_have_attribute("id", page.get_by_role("combobox").get_attribute("aria-activedescendant"))
    added = chosen.locator("bdi").inner_text()
    page.keyboard.press("Enter")
    expect(row(page, added)).to_have_attribute("data-answer", "accepted")
    page.keyboard.press("Escape")
    expect(page.locator(".row .name").first).to_be_focused()
    page.keyboard.press("Control+z")
    expect(row(page, added)).not_to_have_attribute("data-answer", "accepted")


def test_everything_has_a_name(page):
    write(page, TEXT)
    unnamed = page.evaluate(
        """Array.from(document.querySelectorAll("button, input:not([hidden]), textarea, select"))
        .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length
                           || document.getElementById(one.getAttribute("aria-labelledby"))))
        .map((one) => one.outerHTML)"""
    )
    assert unnamed == []
    assert page.locator("[id]").evaluate_all("all => all.length === new Set(all.map((one) => one.id)).size")
    pets = page.get_by_role("button", name="pets", exact=True)
    sure, why = (page.locator(f"#{part}") for part in pets.get_attribute("aria-describedby").split())
    assert re.fullmatch(r"(> )?\d+%", sure.inner_text())
    assert why.inner_text() == "dog · fur"
    expect(page.get_by_role("list", name="Suggested tags").get_by_role("listitem")).to_have_count(8)
    expect(page.locator("#said")).to_have_text("8 tags suggested.")


# ------------------------------------------------------------------ texts and tags are text


def test_markup_is_shown_as_text(page, kept):
    text = f"zebra yacht xylophone {' '.join(HOSTILE)} <svg onload=alert(4)> \u202e dog"
    write(page, text)
    shown = page.locator(".row bdi").all_inner_texts()
    assert {visible(tag) for tag in HOSTILE} <= set(shown)
    for tag in HOSTILE:
        row(page, tag).hover()
        row(page, tag).locator(".accept").click()
    expect(page.locator("#learnt")).to_contain_text("3 answers kept")
    assert answers_in(kept) == {text: dict.fromkeys(HOSTILE, True)}
    assert page.get_by_role("button", name=f"Accept {HOSTILE[0]}", exact=True).count() == 1
    page.get_by_role("combobox").fill("<")
    expect(page.get_by_role("option")).to_have_count(4)  # the last is a new tag
    expect(page.locator("#said")).to_have_text(f"{visible(HOSTILE[2])} accepted.")
    page.get_by_role("button", name="Undo").hover()
    assert page.locator("main img, main script, main b:not(#learnt b), main iframe").count() == 0
    assert page.locator("#behind").text_content().rstrip("\u200b") == text


def test_queues_with_markup_and_with_tags_that_are_asked_about(visit, folder, kept, tmp_path):
    """Markup is shown as text; tags of the column ``asked`` come first."""
    rows = [
        {"id": HOSTILE[0], "text": f"dog {HOSTILE[1]}\r\nand\rfur"},
        {"text": "my dog", "asked": ["drinks", "novel"]},
        {"text": "some wine", "asked": "pets"},
    ]
    queue = write_jsonl(tmp_path / "queue.jsonl", rows)
    with served(create_app({"animals": folder}, feedback=str(kept), queue=str(queue))) as address:
        page = visit(address, allowed=["500"])
        learnt, names = page.locator("#learnt"), page.locator(".row .name bdi")
        page.get_by_role("button", name="pets", exact=True).click()
        assert lit(page) == ["dog", "fur"]
        page.get_by_role("button", name="Accept pets").click()
        expect(learnt).to_contain_text("1 answer kept")
        kept_record = json.loads(kept.read_text())
        assert (kept_record["id"], kept_record["text"]) == (rows[0]["id"], rows[0]["text"])
        page.route("**/feedback", lambda route: route.fulfill(status=500, json={"detail": HOSTILE[0]}), times=1)
        page.get_by_role("button", name="Reject pets").click()
        expect(page.get_by_role("alert")).to_have_text(HOSTILE[0])
        page.get_by_role("button", name="Next text").click()
        expect(names.first).to_have_text("drinks")
        assert names.all_text_contents()[:2] == ["drinks", "novel"]
        assert page.locator(".row .sure").all_text_contents()[1] == "asked"
        expect(page.locator(".row .sure").first).to_contain_text("asked · ")
        assert page.locator(".row.asked").count() == 2
        names.first.focus()
        page.get_by_role("button", name="Reject drinks").click()
        page.get_by_role("button", name="Accept novel").click()
        expect(learnt).to_contain_text("3 answers kept")
        assert names.all_text_contents()[:2] == ["drinks", "novel"]
        assert answers_in(kept)["my dog"] == {"drinks": False, "novel": True}
        page.get_by_role("button", name="Next text").click()
        expect(page.get_by_role("textbox", name="Text")).to_have_value("some wine")
        expect(names.first).to_have_text("drinks")  # a column of that name that holds no list is somebody else's
        assert page.locator(".row.asked").count() == 0


# ------------------------------------------------------------------ widths and colours

CONTRAST = """(selectors) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const painted = (...colours) => {
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    const linear = [...canvas.getImageData(0, 0, 1, 1).data].map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  return Object.fromEntries(selectors.map((selector) => {
    const grounds = [];
    const element = document.querySelector(selector);
    for (let one = element; one; one = one.parentElement) grounds.unshift(getComputedStyle(one).backgroundColor);
    const tones = [painted(...grounds), painted(...grounds, getComputedStyle(element).color)].sort((a, b) => a - b);
    return [selector, (tones[1] + 0.05) / (tones[0] + 0.05)];
  }));
}"""


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_wide_and_narrow_and_can_be_read(visit, address, dark):
    page = visit(address, color_scheme="dark" if dark else "light", reduced_motion="reduce")
    write(page, "quartz and " + "dog" * 300)
    expect(row(page, LONG)).to_be_visible()
    for width in (420, 900, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        beside = page.locator(".text-card").bounding_box()["x"] < page.locator(".tag-card").bounding_box()["x"]
        assert beside is (width == 1400)
    ground, ink = page.evaluate(
        '["backgroundColor", "color"].map((name) => getComputedStyle(document.body)[name].match(/\\d+/g).map(Number))'
    )
    assert (sum(ground) < sum(ink)) is dark
    page.reload()
    write(page, TEXT)
    page.locator(".reject").first.click()
    page.locator(".accept").nth(1).click()
    page.locator(".row .name").nth(2).click()
    expect(page.locator("#learnt")).to_contain_text("2 answers kept")
    parts = [".lit .sure", ".lit .name bdi", "[data-answer=rejected] bdi", "#about", "#learnt", "kbd", "#clear"]
    contrasts = page.evaluate(CONTRAST, [*parts, ".legend", "#text", "#rest", ".add label", ".row .why"])
    assert min(contrasts.values()) >= 4.5, contrasts
    # Words that say all there is to say.
    page.evaluate("document.querySelectorAll('.legend .w').forEach((word) => word.style.setProperty('--s', 1))")
    words = page.evaluate(CONTRAST, [".legend .w[data-sign=for]", ".legend .w[data-sign=against]"])
    assert min(words.values()) >= 4.5, words
    marks = page.evaluate(CONTRAST, [".accept", ".accept[aria-pressed=true]", ".reject[aria-pressed=true]"])
    assert min(marks.values()) >= 3, marks


def test_by_touch_on_a_phone(visit, address, kept):
    page = visit(address, width=420, height=800, has_touch=True, is_mobile=True)
    write(page, TEXT)
    last = page.locator(".row").last
    last.scroll_into_view_if_needed()
    page.evaluate("scrollBy(0, 200)")
    # The text stays in sight above its tags.
    assert page.locator("#text").bounding_box()["y"] >= 0
    pets = page.get_by_role("button", name="pets", exact=True)
    pets.tap()
    assert lit(page) == ["dog", "fur", "DOG"]
    expect(pets).to_have_attribute("aria-pressed", "true")
    pets.tap()
    assert lit(page) == []
    accept = page.get_by_role("button", name="Accept pets")
    assert min(accept.bounding_box()["width"], accept.bounding_box()["height"]) >= 32
    accept.tap()
    expect(page.locator("#learnt")).to_contain_text("1 answer kept")
    assert answers_in(kept) == {TEXT: {"pets": True}}


# ------------------------------------------------------------------ keys, queues, files


def test_a_wrong_key_is_asked_for_again(visit, folder, kept):
    with served(create_app({"animals": folder}, feedback=str(kept), keys=(KEY,))) as address:
        page = visit(address, allowed=["401"])
        field = page.get_by_label("Key", exact=True)
        expect(field).to_be_focused()
        expect(page.get_by_role("dialog", name="A key is needed")).to_be_visible()
        field.fill("a-wrong-one")
        field.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("This key is wrong.")
        field.fill(KEY)
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        write(page, TEXT)
        page.reload()
        expect(page.locator("#learnt")).to_be_visible()
        expect(page.get_by_role("dialog")).to_have_count(0)
        other = visit(address, allowed=["401"])
        expect(other.get_by_role("dialog")).to_be_visible()
        other.keyboard.press("Escape")
        expect(other.get_by_role("alert")).to_contain_text("This server needs a key.")


def test_a_queue_is_worked_through(visit, folder, kept, tmp_path):
    texts = ["my dog", "some wine", "a tree"]
    queue = write_jsonl(tmp_path / "queue.jsonl", [{"id": n, "text": text} for n, text in enumerate(texts)])
    with served(create_app({"animals": folder}, feedback=str(kept), queue=str(queue))) as address:
        page = visit(address)
        text = page.get_by_role("textbox", name="Text")
        expect(text).to_have_value("my dog")
        expect(text).not_to_be_editable()
        expect(page.get_by_role("button", name="Previous text")).to_be_disabled()
        expect(page.locator(".row .name").first).to_be_focused()
        page.keyboard.press("a")
        page.keyboard.press("n")
        expect(text).to_have_value("some wine")
        expect(page.locator("#place")).to_have_text("Text 2 of 3")
        expect(page.locator("#answered")).to_have_text("1 answered")
        expect(page.locator(".row .name").first).to_be_focused()
        page.keyboard.press("u")  # on the text before
        expect(page.locator("#said")).to_have_text("Undone: pets accepted, on an earlier text.")
        expect(page.locator("#answered")).to_have_text("0 answered")
        page.keyboard.press("p")
        expect(text).to_have_value("my dog")
        expect(page.get_by_role("button", name="Accept pets")).to_have_attribute("aria-pressed", "false")
        page.get_by_role("button", name="Accept pets").click()
        expect(page.locator("#answered")).to_have_text("1 answered")
        assert answers_in(kept) == {"0": {"pets": True}}
        # Another visit starts at the first text without an answer, and shows the answers of the others.
        other = visit(address)
        expect(other.get_by_role("textbox", name="Text")).to_have_value("some wine")
        other.get_by_role("button", name="Previous text").click()
        expect(other.get_by_role("button", name="Accept pets")).to_have_attribute("aria-pressed", "true")
        # A text of one's own, and back.
        other.get_by_role("button", name="Your own text").click()
        write(other, "a cat")
        other.get_by_role("button", name="Accept pets").click()
        expect(other.locator("#learnt")).to_contain_text("2 answers kept")
        other.get_by_role("button", name="Back to the queue").click()
        expect(other.get_by_role("textbox", name="Text")).to_have_value("some wine")
        assert answers_in(kept) == {"0": {"pets": True}, "a cat": {"pets": True}}


@pytest.fixture
def queued(folder, kept, tmp_path):
    """The address of a server with a queue."""
    rows = [{"id": n, "text": text} for n, text in enumerate(["my dog", "some wine", "a tree", "a cat"], 1)]
    queue = write_jsonl(tmp_path / "queue.jsonl", rows)
    with served(create_app({"animals": folder}, feedback=str(kept), queue=str(queue))) as address:
        yield address


def refuse(route):
    route.fulfill(status=503, json={"detail": "Too many texts wait for their answers; try again in a second."})


def hold(page, pattern, count):
    """Holds the next requests; what is returned waits for them."""
    found = []
    page.route(pattern, lambda route: found.append(route) if len(found) < count else route.continue_())
    return lambda: until(lambda: page.wait_for_timeout(20) or (len(found) == count and found), "the request")


def test_a_text_gets_no_answers_of_the_one_before(visit, queued, kept):
    page = visit(queued, allowed=["503", "507"])
    text, alert, learnt = page.get_by_role("textbox", name="Text"), page.locator("#trouble"), page.locator("#learnt")
    pets, drinks = (page.get_by_role("button", name=f"Accept {tag}") for tag in ("pets", "drinks"))
    expect(pets).to_be_visible()
    # The tags of the next text do not come.
    page.route("**/suggest", refuse)
    pets.focus()
    page.keyboard.press("n")
    expect(text).to_have_value("some wine")
    expect(alert).to_contain_text("Too many texts wait")
    expect(page.locator(".row")).to_have_count(0)
    expect(page.locator("#empty")).to_be_hidden()
    page.keyboard.press("a")
    # An answer on another text that is kept does not mend it.
    page.unroute("**/suggest")
    page.keyboard.press("p")
    pets.click()
    expect(learnt).to_contain_text("1 answer kept")
    page.route("**/suggest", refuse)
    page.keyboard.press("n")
    expect(alert).to_contain_text("Too many texts wait")
    page.get_by_role("button", name="Undo").click()
    expect(learnt).to_contain_text("No answers yet.")
    expect(alert).to_contain_text("Too many texts wait")
    page.unroute("**/suggest")
    text.press("Control+Enter")
    expect(drinks).to_be_visible()
    expect(alert).to_be_hidden()
    with page.expect_response("**/suggest"):  # else "hold" may catch that of the text before
        page.keyboard.press("p")
    expect(text).not_to_have_value("some wine")
    expect(pets).to_be_visible()
    # The tags of the next text are on their way.
    held = hold(page, "**/suggest", 1)
    page.get_by_role("button", name="Next text").click()
    expect(text).to_have_value("some wine")
    expect(page.locator(".row")).to_have_count(0)
    held()[0].continue_()
    # What was not stored is said until something is.
    page.route("**/feedback", lambda route: route.fulfill(status=507, json={"detail": "No room."}), times=1)
    drinks.click()
    expect(alert).to_have_text("No room.")
    page.get_by_role("button", name="Previous text").click()
    expect(pets).to_be_visible()
    expect(page.get_by_role("alert")).to_have_text("No room.")
    page.get_by_role("button", name="Next text").click()
    drinks.click()
    expect(learnt).to_contain_text("1 answer kept")
    expect(alert).to_be_hidden()
    assert answers_in(kept) == {"2": {"drinks": True}}
    # A text of one's own is edited.
    page.get_by_role("button", name="Your own text").click()
    write(page, "a dog")
    held = hold(page, "**/suggest", 1)
    text.fill("a dog and wine")
    pets.click()
    expect(page.locator("#said")).to_have_text("Not recorded: the tags of this text are still loading.")
    expect(pets).to_have_attribute("aria-pressed", "false")
    page.get_by_role("button", name="pets", exact=True).press("r")
    expect(page.get_by_role("button", name="pets", exact=True)).to_be_focused()
    refuse(held()[0])
    expect(alert).to_contain_text("Too many texts wait")
    expect(page.locator(".row")).to_have_count(0)
    write(page, "a dog and more wine")
    pets.click()
    expect(learnt).to_contain_text("2 answers kept")
    assert answers_in(kept) == {"2": {"drinks": True}, "a dog and more wine": {"pets": True}}


def test_every_press_of_a_key_moves_by_one_text(visit, queued):
    page = visit(queued)
    expect(page.locator(".row .name").first).to_be_focused()
    held = hold(page, "**/queue/*", 3)
    page.evaluate(
        """() => {
          for (let count = 0; count < 3; count += 1)
            document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "n", bubbles: true }));
        }"""
    )
    for route in reversed(held()):  # the answer that comes last is not that which counts
        route.continue_()
    expect(page.locator("#place")).to_have_text("Text 4 of 4")
    expect(page.get_by_role("textbox", name="Text")).to_have_value("a cat")
    expect(page.locator(".row .name").first).to_be_focused()
    for _ in range(2):
        page.keyboard.press("p")
    expect(page.get_by_role("textbox", name="Text")).to_have_value("some wine")
    expect(page.locator(".row bdi").first).to_have_text("drinks")


def test_files_are_opened_and_dropped(page, tmp_path):
    expect(page.locator("#learnt")).to_be_visible()
    (tmp_path / "text.txt").write_text("a dog with für", encoding="utf-8")
    (tmp_path / "other.txt").write_bytes("für".encode("latin-1"))
    page.locator("#file").set_input_files(tmp_path / "text.txt")
    text = page.get_by_role("textbox", name="Text")
    expect(text).to_have_value("a dog with für")
    expect(row(page, "pets")).to_be_visible()
    page.locator("#file").set_input_files(tmp_path / "other.txt")
    expect(page.get_by_role("alert")).to_contain_text("other.txt is not UTF-8 text")
    (tmp_path / "large.txt").write_bytes(b"x" * (2**22 + 1))
    page.locator("#file").set_input_files(tmp_path / "large.txt")
    expect(page.get_by_role("alert")).to_have_text(
        "large.txt has 4,194,305 bytes; the limit is 4,194,304, including JSON escapes."
    )
    page.evaluate(
        """() => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File(["some wine"], "wine.txt", { type: "text/plain" }));
          const options = { bubbles: true, cancelable: true, dataTransfer };
          document.getElementById("text").dispatchEvent(new DragEvent("drop", options));
        }"""
    )
    expect(text).to_have_value("some wine")
    expect(page.locator(".row bdi").first).to_have_text("drinks")


def test_without_feedback_nothing_is_to_be_answered(visit, folder):
    with served(create_app({"animals": folder, "others": folder})) as address:
        page = visit(address)
        write(page, TEXT)
        expect(page.locator("#learnt")).to_contain_text("Answers are not kept.")
        expect(page.locator(".accept").first).to_be_hidden()
        expect(page.get_by_role("combobox", name="Add a missing tag")).to_be_hidden()
        row(page, "pets").hover()
        assert lit(page) == ["dog", "fur", "DOG"]
        page.keyboard.press("a")
        # Several taggers can be chosen from.
        page.get_by_role("combobox", name="Tagger").select_option("others")
        expect(page.get_by_role("heading", name="others")).to_be_visible()
        expect(row(page, "pets")).to_be_visible()


def test_a_new_model_is_noticed(visit, folder, kept, tmp_path):
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    with served(create_app({"animals": own}, feedback=str(kept), watch_seconds=0)) as address:
        page = visit(address)
        write(page, TEXT)
        newer = load(own)
        newer.fit(["a cow", "a cow", "a sheep"], [["cows"], ["cows"], ["sheep"]])
        newer.save(own)
        assert httpx.post(f"{address}/v1/taggers/animals/reload", timeout=60).status_code == 200
        write(page, "a cow")
        expect(page.locator("#about")).to_have_text("2 tags, learnt from 3 texts by binary-relevance")
        expect(row(page, "cows")).to_be_visible()
