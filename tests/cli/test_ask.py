"""``tagwise ask``: a queue of questions, and what becomes of them."""

import json

import pytest
from commands import failed, ok, run, some_rows, write_jsonl

from tagwise.data import read_feedback
from tagwise.data.feedback import FeedbackFile, feedback_line
from tagwise.serving.feedback import read_queue


@pytest.fixture
def texts(tmp_path):
    rows = [{"id": f"r{n}", "text": row["text"]} for n, row in enumerate(some_rows(40, seed=3))]
    return write_jsonl(tmp_path / "texts.jsonl", rows)


def questions(stdout):
    return [json.loads(line) for line in stdout.splitlines()]


def test_a_queue_is_written_that_the_server_reads(tagger, texts, tmp_path):
    out = tmp_path / "queue.jsonl"
    result = ok("ask", tagger, texts, "--top", "10", "--per-tag", "4", "--out", out)
    assert "Queue written to" in result.stderr
    assert result.stdout == ""
    queue = read_queue(str(out))
    assert sum(len(one.asked) for one in queue) <= 10
    assert all(one.asked and one.id.startswith("r") for one in queue)
    asked = [tag for one in queue for tag in one.asked]
    assert set(asked) <= {"pets", "drinks", "food", "garden"}
    assert max(map(asked.count, asked)) <= 4
    shown = run("ask", tagger, texts, "--top", "10", "--per-tag", "4")
    assert shown.stdout == out.read_text(encoding="utf-8")
    assert all(0 < p < 1 for one in questions(shown.stdout) for p in one["probability"])


def test_answers_are_not_asked_for_again(tagger, texts, tmp_path):
    before = questions(run("ask", tagger, texts, "--top", "8", "--strategy", "top").stdout)
    records = [{"id": one["id"], "text": one["text"], "accepted": [], "rejected": one["asked"]} for one in before]
    kept = tmp_path / "feedback.jsonl"
    FeedbackFile(kept).append(map(feedback_line, records))
    assert read_feedback(kept).counts()["rejected"] == 8
    after = questions(run("ask", tagger, texts, "--top", "500", "--strategy", "random", "--feedback", kept).stdout)
    given = {(one["id"], tag) for one in before for tag in one["asked"]}
    found = {(one["id"], tag) for one in after for tag in one["asked"]}
    assert given.isdisjoint(found)


def test_answers_of_several_taggers_must_be_told_apart(tagger, texts, tmp_path):
    kept = tmp_path / "feedback.jsonl"
    records = [{"text": "a dog", "tagger": name, "accepted": ["pets"]} for name in ("one", "two")]
    FeedbackFile(kept).append(map(feedback_line, records))
    for verb in ("ask", "drift"):
        assert failed(run(verb, tagger, texts, "--feedback", kept), 1, "'one' (1 record), 'two'", "--feedback-tagger")
        ok(verb, tagger, texts, "--feedback", kept, "--feedback-tagger", "one")


def test_what_cannot_be_asked_about_is_left_out_and_said(tagger, tmp_path):
    rows = [{"text": "dog tail"}, {"text": " dog tail"}, {"text": ""}, {"text": "zzz"}, {"text": "wine dog glass"}]
    result = ok("ask", tagger, write_jsonl(tmp_path / "t.jsonl", rows), "--top", "99", "--strategy", "random")
    assert {one["text"] for one in questions(result.stdout)} == {"dog tail", "wine dog glass"}
    for words in ("1 row that repeat", "1 row without text", "1 text without a known word"):
        assert words in result.stderr
    assert "8 questions on 2 texts and 4 tags; 99 were requested, but the limits leave no more." in result.stderr


def test_bad_input_is_one_sentence(tagger, texts, tmp_path):
    unknown = write_jsonl(tmp_path / "u.jsonl", [{"text": "zzz yyy"}])
    plain = tmp_path / "plain"
    rows = write_jsonl(tmp_path / "rows.jsonl", some_rows(40))
    run("train", rows, "--out", plain, "--model", "binary-relevance", "--quiet")
    for arguments, code, words in (
        ((tagger, tmp_path / "none.jsonl"), 1, ["none.jsonl", "No such file"]),
        ((tagger, texts, "--top", "0"), 2, ["--top"]),
        ((tagger, texts, "--strategy", "best"), 2, ["--strategy"]),
        ((tagger, texts, "--out", tmp_path / "queue.csv"), 1, ["must end in .jsonl"]),
        ((tagger, texts, "--out", tmp_path / "no" / "queue.jsonl"), 1, ["does not exist"]),
        ((tagger, texts, "--feedback", tmp_path / "none.jsonl"), 1, ["none.jsonl"]),
        ((tagger, unknown), 1, ["no text of", "has a known word"]),
        ((plain, texts), 1, ["needs probabilities", "calibrate"]),
    ):
        assert failed(run("ask", *arguments), code, *words)
