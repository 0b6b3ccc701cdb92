"""The report as a file: complete, self-contained, and harmless whatever the data holds."""

import base64
import hashlib
import os
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from tagwise import Tagger, __version__
from tagwise.exceptions import TagwiseWarning
from tagwise.metrics import example_f1, macro_f1, micro_f1
from tagwise.reports import ComparedModel, Comparison, gather_findings, write_report
from tagwise.reports.figures import Confusion
from tagwise.reports.findings import pieces_of, telling_parts
from tagwise.reports.pages import report_html
from tagwise.text.suggestion import Suggestion, WordShare

pytestmark = pytest.mark.filterwarnings("ignore:rank=100 is more than")
HOSTILE = "</script><script>alert(1)</script>"
QUOTES = "\"' onmouseover=alert(2) x='"
VOID = {"meta", "link", "br", "input", "img", "hr"}


class Page(HTMLParser):
    """Checks nesting, and keeps what tests ask for."""

    def __init__(self, html):
        super().__init__()
        self.open, self.elements, self.words, self.scripts = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        (self.scripts if inside == "script" else self.words).append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    words = {HOSTILE: ["scripts", "alerts"], QUOTES: ["quote", "hover"], "plain": ["plain", "simple"], "rare": ["rare"]}
    names = [HOSTILE, QUOTES, "plain", HOSTILE, HOSTILE, QUOTES, "rare"]
    texts, tags = [], []
    for place in range(140):
        chosen = list(dict.fromkeys([names[place % 7], names[(place // 7) % 7]]))
        text_words = [rng.choice(words[name]) for name in chosen for _ in range(3)]
        texts.append(" ".join(text_words) + f" <img src=x onerror=alert(3)> & {HOSTILE} \x07")
        tags.append(chosen)
    tags[-1] = [*tags[-1], f"never {HOSTILE}"]
    return texts, tags


@pytest.fixture(scope="module")
def tagger(rows):
    """A tagger that has seen the first 80 rows, and is calibrated with the next 30."""
    texts, tags = rows
    return Tagger("leml").fit(texts[:80], tags[:80]).calibrate(texts[80:110], tags[80:110])


@pytest.fixture(scope="module")
def findings(rows, tagger):
    texts, tags = rows
    return gather_findings(tagger, texts[110:], tags[110:])


@pytest.fixture(scope="module")
def html(findings):
    return report_html(findings, title=f"T {HOSTILE}", source=QUOTES)


def test_all_parts_are_there(html, findings):
    page = Page(html)
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    assert {"headline", "confidence", "frequency", "mistakes", "tags", "examples", "model"} <= set(identifiers)
    assert sum(name.startswith("example-") for name in identifiers) == 20
    assert len(page.all("svg")) == 6  # one of them the objective of LEML, folded away
    assert {attributes["href"] for attributes in page.all("a")} <= {f"#{name}" for name in identifiers}
    words = "".join(page.words)
    for name, value in findings.evaluation.metrics.items():
        if name.startswith(("P@", "nDCG@", "PSP@", "R@")) or name.endswith("F1"):
            assert f"{100 * value:.1f}" in words
    assert "Never seen in training: 1 tag of these rows" in words
    assert "leml was asked for" in words
    assert "by calibrated thresholds" in words
    assert "Rows to check first" in words
    assert html.index("<details") < html.index("<summary>Settings") < html.index("max_iter")
    for suggestion in findings.examples[0].suggestions:
        assert sum(abs(part.share) for part in suggestion.why) == pytest.approx(1)


@pytest.mark.parametrize("name", ["leml", "binary-relevance"])
def test_the_work_of_a_report_is_that_of_an_evaluation(rows, name, monkeypatch):
    """Beside one ranking of the rows and a timed one, look-ups come in blocks: not one by one for rows or tags."""
    texts, tags = rows
    tagger = Tagger(name).fit(texts, tags)
    ranked, looked_up = [], []
    rank, weights = type(tagger.model_).predict_topk, type(tagger.model_).label_weights
    monkeypatch.setattr(
        type(tagger.model_),
        "predict_topk",
        lambda self, X, *args, **more: ranked.append(X.shape[0]) or rank(self, X, *args, **more),
    )
    monkeypatch.setattr(
        type(tagger.model_), "label_weights", lambda self, ids: looked_up.append(len(ids)) or weights(self, ids)
    )
    calls = []
    for n_rows in (30, 120):
        ranked.clear()
        looked_up.clear()
        gather_findings(tagger, texts[:n_rows], tags[:n_rows])
        calls.append((len(ranked), len(looked_up)))
        assert sum(ranked) <= 2 * n_rows + 1 + 20  # the timed ones begin with one row, and 20 are examples
    assert calls[0] == calls[1]
    assert calls[0][1] <= 3


def test_rows_that_calibrated_do_not_judge_the_probabilities(rows, tagger, findings, html):
    texts, tags = rows
    same = gather_findings(tagger, texts[80:110], tags[80:110], calibrated_on_them=True)
    assert same.reliability is tagger.calibration_.reliability
    assert "learnt from these same rows" in report_html(same)
    assert findings.reliability is not tagger.calibration_.reliability
    assert "learnt from these same rows" not in html


def test_nothing_is_loaded_from_anywhere_and_data_is_only_ever_text(html):
    page = Page(html)
    for name, attributes in page.elements:
        for attribute in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
            value = attributes.get(attribute) or "#"
            assert value.startswith(("#", "data:")), (name, value)
        assert not re.search(r"url\((?!#)", attributes.get("style") or "")
        assert not any(attribute.startswith("on") for attribute in attributes)
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    (script,) = page.scripts
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy
    assert "alert(" not in script
    assert not page.all("img")
    assert HOSTILE in "".join(page.words)
    assert "\x07" not in html
    for drawing in re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL):  # in the colours of the style sheet
        assert not re.findall(r"#[0-9a-f]{6}", drawing)
        assert "var(--" in drawing
    assert not re.search(r"[-+]0 %", html)  # no part of a score is shown as nothing
    assert "base rate" in html


def test_the_table_adds_up_to_the_decisions(rows, findings):
    """Summed and averaged, the figures of tags are the F1 that evaluate gives; unseen tags aside."""
    texts, tags = rows
    tagger = Tagger("leml").fit(texts[:80], tags[:80])
    found = gather_findings(tagger, texts[110:-1], tags[110:-1])
    f1 = [tag.f1 or 0.0 for tag in found.tags]
    assert np.mean(f1) == pytest.approx(found.evaluation.metrics["macro-F1"])
    assert [tag.training_rows for tag in found.tags] == sorted((tag.training_rows for tag in found.tags), reverse=True)
    assert found.reliability is None
    assert "The tagger has no probabilities" in report_html(found)
    probable = gather_findings(Tagger().fit(texts[:80], tags[:80]), texts[110:-1], tags[110:-1])
    assert probable.reliability is not None
    assert "The average error is" in report_html(probable)
    truth, _ = tagger.label_matrix(tags[110:-1])
    decided, _ = tagger.label_matrix(tagger.predict(texts[110:-1]))
    metrics = found.evaluation.metrics
    assert metrics["micro-F1"] == pytest.approx(float(micro_f1(truth, decided)))
    assert metrics["macro-F1"] == pytest.approx(float(macro_f1(truth, decided)))
    assert metrics["example-F1"] == pytest.approx(float(example_f1(truth, decided)))


def test_models_without_explanations_say_so(rows):
    texts, tags = rows
    found = gather_findings(Tagger("knn").fit(texts[:110], tags[:110]), texts[110:], tags[110:], n_examples=3)
    assert found.unexplained
    words = "".join(Page(report_html(found)).words)
    assert "KNN has no exact explanations" in words
    assert "3 examples" in words
    assert "Objective over time" not in words


def test_a_comparison_comes_first(findings, tmp_path, monkeypatch):
    history = [{"objective": 2.0, "seconds": 0.1}, {"objective": 1.0, "seconds": 0.2}]
    metrics = findings.evaluation.metrics
    models = [
        ComparedModel("one", {**metrics, "nDCG@5": 0.5}, 1.0, 0.1, 2.0, "", history),
        ComparedModel(HOSTILE, {**metrics, "nDCG@5": 0.6}, 10.0, 0.2, 3.0),
    ]
    comparison = Comparison(models, "nDCG@5", (1, 3, 5), 100, 20)
    assert comparison.best == 1
    path = tmp_path / "out.html"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "951868800")
    write_report(findings, path, comparison=comparison)
    page = Page(path.read_text(encoding="utf-8"))
    assert len(page.all("svg")) == 9
    assert f"1 March 2000 · tagwise {__version__} · trained on 80 rows" in "".join(page.words)
    assert len(page.scripts) == 1
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    assert identifiers.index("comparison") < identifiers.index("headline")
    before = path.read_bytes()
    write_report(findings, path, comparison=comparison)
    assert path.read_bytes() == before


def test_characters_that_are_not_seen_are_shown_as_escapes(tmp_path):
    """Overrides of the direction and lone surrogates, in tags, texts and the title."""
    names = ["a\u202eb", "c\x1b[2Jd", "e\nf"]
    texts = [f"word{place % 3} all\x00 texts\nof two lines" for place in range(30)]
    tags = [[names[place % 3]] for place in range(30)]
    tagger = Tagger("binary-relevance").fit(texts, tags)
    path = tmp_path / "out.html"
    title, source = os.fsdecode(b"caf\xe9"), "\ud800"
    write_report(gather_findings(tagger, texts, tags), path, title=title, source=source)
    words = "".join(Page(path.read_text(encoding="utf-8")).words)
    assert "texts\nof two lines" in words
    for shown in (r"a\u202eb", r"c\u001b[2Jd", r"e\nf", r"caf\udce9", r"\ud800", r"all\u0000 texts"):
        assert shown in words
    assert not set("\u202e\x1b\x00") & set(words)


def test_an_objective_is_drawn_only_where_its_values_can_be_compared(findings):
    """Not for one step, nor for batches of labels, nor for stages, each with an objective of its own."""
    history = [{"objective": 2.0, "seconds": 0.1}, {"objective": 1.0, "seconds": 0.2}]
    staged = [history[0], {**history[1], "stage": "rankers"}]
    batches = [{**info, "labels": 3} for info in history]
    for other, drawn in ((history, True), (history[:1], False), ([], False), (staged, False), (batches, False)):
        assert ("Objective over time" in report_html(replace(findings, history=other))) is drawn
    judged = [{**info, "validation": 0.25} for info in history]
    shown = report_html(replace(findings, history=judged))
    assert "nDCG@5, 25.0 %, on validation rows set aside by the fit. Rare tags were kept in training" in shown


def test_yardsticks_are_what_is_easy_and_what_is_possible(rows):
    texts, tags = rows
    tagger = Tagger("binary-relevance").fit(texts[:80], tags[:80])
    found = gather_findings(tagger, texts[110:], tags[110:])
    lists = tags[110:]
    counts = Counter(tag for row in tags[:80] for tag in row)
    usual = sorted(counts, key=lambda tag: (-counts[tag], tag))
    seen = [[tag for tag in row if tag in counts] for row in lists]
    for k in (1, 3, 5):
        hits = [len(set(usual[:k]) & set(row)) for row in lists]
        assert found.frequent[f"P@{k}"] == pytest.approx(np.mean(hits) / k)
        assert found.reachable[f"P@{k}"] == pytest.approx(np.mean([min(k, len(row)) for row in seen]) / k)
        recalls = [min(k, len(known)) / len(row) for known, row in zip(seen, lists)]
        assert found.reachable[f"R@{k}"] == pytest.approx(np.mean(recalls))
    for name, value in found.evaluation.metrics.items():
        if name in found.reachable:
            assert value <= found.reachable[name] + 1e-9
    # One row has a tag not seen in training: all is not reachable.
    assert found.reachable["R@5"] < 1
    html = report_html(found)
    assert "always the most frequent tags" in html
    assert f"<td>{100 * found.frequent['P@3']:.1f}</td>" in html
    known = [None if place % 2 else ["plain"] for place in range(30)]
    masked = gather_findings(tagger, texts[110:], tags[110:], known)
    assert masked.frequent["P@1"] > found.frequent["P@1"]
    # Where only a row's own tags and "rare" were looked at, no other tag can be wrong.
    masked = gather_findings(tagger, texts[110:], tags[110:], [["rare"] for _ in lists])
    assert {tag.tag: tag for tag in masked.tags}["plain"].precision == 1.0


def test_thresholds_confusions_and_rows_to_check_are_shown(findings, html):
    words = "".join(Page(html).words)
    place = findings.acceptance.at(0.8)
    share = f"{100 * findings.acceptance.accepted[place]:.0f}%"
    assert f"Accept automatically at 80% precision: {share} of suggestions" in words
    row = findings.to_check[0]
    assert row.tag not in row.tags
    assert f"Row {row.row} has" in words
    never = replace(findings.acceptance, precision=0 * findings.acceptance.precision)
    assert "none can be accepted automatically" in report_html(replace(findings, acceptance=never))
    confused = [Confusion("<b>", "plain", 7, 14)]
    assert "<td>7</td><td>50</td>" in report_html(replace(findings, confused=confused))


def test_rows_without_any_known_pair_have_no_suggestion_to_judge(rows):
    texts, tags = rows
    tagger = Tagger("binary-relevance").fit(texts[:80], tags[:80])
    empty = [[] for _ in texts[110:]]
    with pytest.warns(TagwiseWarning, match="the figures are meaningless"):
        found = gather_findings(tagger, texts[110:], empty, empty)
    assert len(found.acceptance.count) == 0
    words = "".join(Page(report_html(found)).words)
    assert "none can be accepted automatically" in words
    assert "No suggestion is wrong." in words
    assert "No two tags are confused" in words


def test_long_texts_are_cut_to_what_explains_them():
    """The telling word is far from the beginning, and another one at the very end."""
    written = " ".join([*["filler"] * 500, "telling", *["filler"] * 500, "last"])
    pieces = pieces_of(written, {"telling", "last"})
    why = (WordShare("telling", 1.0, 0.6), WordShare("last", 1.0, 0.4))
    parts = telling_parts(pieces, [Suggestion("a", 1.0, why=why)])
    shown = ["".join(piece.text for piece in part) for part in parts]
    assert ["telling" in part for part in shown] == [True, False]
    assert shown[1].endswith("last")
    assert all(part in written and len(part) < 400 for part in shown)
    # Without an explanation the beginning is shown, and a text that is not long is shown whole.
    (beginning,) = telling_parts(pieces, [Suggestion("a", 1.0)])
    assert written.startswith("".join(piece.text for piece in beginning))
    assert telling_parts(pieces_of("short telling", {"telling"}), []) == [pieces_of("short telling", {"telling"})]
    # Words everywhere: about as much as is shown of any text.
    many = pieces_of("telling " * 2000, {"telling"})
    assert (
        sum(len(piece.text) for part in telling_parts(many, [Suggestion("a", 1.0, why=why)]) for piece in part) < 1600
    )


def test_pieces_are_the_text_again():
    written = "The Cat, a cat: CATALOGUE über-cat"
    pieces = pieces_of(written, {"cat", "über"})
    assert "".join(piece.text for piece in pieces) == written
    assert [piece.word for piece in pieces if piece.word] == ["cat", "cat", "über", "cat"]
