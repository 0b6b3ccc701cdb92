"""``tagwise drift``: recent texts against reference texts."""

import json
import random

import pytest
from commands import WORDS, failed, ok, on_terminal, run, some_rows, write_jsonl

from tagwise import Tagger, load
from tagwise.data.feedback import FeedbackFile, feedback_line


def other_rows(n_rows=100, seed=5):
    """Half of the words are new, and one tag is rare."""
    chance = random.Random(seed)
    words = [*WORDS["pets"], *WORDS["drinks"], *WORDS["food"], "rocket", "orbit", "moon", "comet"]
    return [{"text": " ".join(chance.choices([*words, *words[-4:] * 3], k=8))} for _ in range(n_rows)]


@pytest.fixture
def recent(tmp_path):
    return write_jsonl(tmp_path / "recent.jsonl", [{"text": row["text"]} for row in some_rows(200, seed=9)])


@pytest.fixture
def moved(tmp_path):
    return write_jsonl(tmp_path / "moved.jsonl", other_rows())


def test_texts_of_the_same_kind_have_not_moved(tagger, recent):
    result = ok("drift", tagger, recent)
    assert "200 recent texts, compared with 97 reference texts" in result.stdout
    assert result.stdout.splitlines()[-1] == "No drift: no difference is significant (p ≤ 0.05)."
    found = json.loads(run("drift", tagger, recent, "--json").stdout)
    assert found["drifted"] is False
    assert found["tags"] == {"compared": 4, "moved": []}
    assert found["answers"] is None
    assert found["rows"] == {"reference": 97, "recent": 200}


def test_texts_of_another_kind_have(tagger, moved):
    shown = run("drift", tagger, moved).stdout
    assert "unknown words per text" in shown
    assert "Words not seen in training (number of texts): " in shown
    assert "orbit (" in shown
    assert "Drift: unknown words" in shown
    found = json.loads(run("drift", tagger, moved, "--json").stdout)
    assert found["drifted"] is True
    assert found["unknown_words"]["reference"] == 0
    assert 0.4 < found["unknown_words"]["recent"] < 0.6
    assert found["unknown_words"]["p"] < 1e-6
    assert set(found["new_words"]) == {"rocket", "orbit", "moon", "comet"}


def test_another_reference(tagger, moved):
    others = write_jsonl(moved.with_name("others.jsonl"), other_rows(300, seed=6))
    found = json.loads(run("drift", tagger, moved, "--reference", others, "--json").stdout)
    assert found["drifted"] is False
    assert found["rows"]["reference"] == 300


def test_answers_are_compared_with_probabilities(tagger, recent, tmp_path):
    rows = some_rows(200, seed=9)
    suggested = [row[0].tag for row in load(tagger).suggest([row["text"] for row in rows], top=1)]
    for name, answer in (("right", "accepted"), ("wrong", "rejected")):
        kept = tmp_path / f"{name}.jsonl"
        records = [{"text": row["text"], answer: [tag]} for row, tag in zip(rows, suggested)]
        records.append({"text": "a text of its own about wine", "accepted": ["drinks", "never seen"]})
        records.append({"id": "gone", "accepted": ["drinks"]})
        FeedbackFile(kept).append(map(feedback_line, records))
        result = run("drift", tagger, recent, "--feedback", kept, "--json")
        assert "answers on 1 tag that the tagger does not know" in result.stderr
        assert "1 identifier in the feedback that no text has" in result.stderr
        found = json.loads(result.stdout)["answers"]
        distinct = len({row["text"] for row in rows})
        assert found["answered"] >= distinct  # of texts that are there twice, both rows count
        assert found["accepted"] == (found["answered"] if name == "right" else 1)
        assert (found["p"] < 1e-6) == (name == "wrong")
    shown = run("drift", tagger, recent, "--feedback", kept).stdout
    assert "suggestions accepted: expected, observed" in shown
    assert "acceptance" in shown.splitlines()[-1]


def test_a_terminal_sees_progress(tagger, recent):
    code, shown = on_terminal("drift", tagger, recent)
    assert code == 0
    assert "comparing 200 texts" in shown
    code, shown = on_terminal("ask", tagger, recent, "--top", "5")
    assert code == 0
    assert "choosing questions" in shown


def test_bad_input_is_one_sentence(tagger, recent, tmp_path):
    plain, empty = tmp_path / "plain", write_jsonl(tmp_path / "empty.jsonl", [{"text": " "}])
    Tagger("binary-relevance").fit(*([row[name] for row in some_rows(40)] for name in ("text", "labels"))).save(plain)
    kept = tmp_path / "feedback.jsonl"
    FeedbackFile(kept).append([feedback_line({"text": "dog", "accepted": ["pets"]})])
    sentence = "has no reference to compare with"
    for arguments, words in (
        ((tagger, tmp_path / "none.jsonl"), ["none.jsonl", "No such file"]),
        ((tagger, empty), ["holds no text"]),
        ((tagger, recent, "--feedback", tmp_path / "none.jsonl"), ["none.jsonl"]),
        ((tagger, recent, "--report", tmp_path / "d.pdf"), ["must end in .html"]),
        ((plain, recent), [sentence, "--validation", "--reference FILE"]),
        ((plain, recent, "--reference", recent, "--feedback", kept), ["--feedback", "has no probabilities"]),
    ):
        assert failed(run("drift", *arguments), 1, *words)
    ok("drift", plain, recent, "--reference", recent)
