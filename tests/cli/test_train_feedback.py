"""``tagwise train --feedback``: exactly the answered pairs are known, as by the library; and what is refused."""

import json

import pytest
from commands import failed, run, some_rows, write_jsonl

from tagwise import Tagger, load
from tagwise.data import read_feedback, read_table, with_feedback

ANSWERS = [
    {"text": "cat dog tail fur bread", "accepted": ["pets"], "rejected": ["garden"]},
    {"text": "wine beer oven plate", "accepted": ["drinks", "food"], "rejected": ["pets"]},
    {"id": "r0", "accepted": ["snacks"], "rejected": ["garden"]},
    {"text": "wine beer oven plate", "withdrawn": ["food"]},
]


@pytest.fixture
def files(tmp_path):
    rows = some_rows(60)
    rows[0] |= {"labels": ["garden"]}
    return write_jsonl(tmp_path / "rows.jsonl", rows), write_jsonl(tmp_path / "feedback.jsonl", ANSWERS)


def train(rows, feedback, *more):
    given = ("--id", "id", "--model", "binary-relevance", "--feedback", feedback, "--overwrite")
    return run("train", rows, "--out", rows.with_name("tagger"), *given, *more)


def test_answered_pairs_are_learnt_as_by_the_library(files, tmp_path):
    rows, feedback = files
    done = train(rows, feedback)
    assert done.returncode == 0, done.stderr
    assert "Feedback on 1 row of the file and 2 other texts: 3 tags accepted, 3 rejected." in done.stdout
    answers = "4 records of feedback on 3 texts: 3 tags accepted, 3 rejected; 0 answers repeated and 1 changed"
    assert answers in done.stderr
    assert "Trained on 62 rows" in done.stdout
    tagger = load(tmp_path / "tagger")
    # All five tags of the 60 rows of the file, and two of each other text: one was withdrawn.
    assert tagger.training_["known_pairs"] == 60 * 5 + 2 + 2
    table = with_feedback(read_table(rows, id="id"), read_feedback(feedback))
    assert table.tags[0] == ["snacks"]
    assert table.known[-2:] == [["pets", "garden"], ["drinks", "pets"]]
    other = Tagger("binary-relevance").fit(table.texts, table.tags, table.known)
    text = ["wine and bread for my cat"]
    assert other.suggest(text) == tagger.suggest(text)


def test_figures_for_programs_and_validation_rows(files):
    rows, feedback = files
    write_jsonl(feedback, [*ANSWERS, {"id": "nobody", "accepted": ["pets"]}])
    done = train(rows, feedback, "--validation", "0.25", "--json")
    assert "1 identifier that no row of" in done.stderr
    found = json.loads(done.stdout)
    counts = {"records": 5, "texts": 4, "accepted": 4, "rejected": 3, "repeated": 0, "contradicted": 1}
    assert found["feedback"] == {**counts, "feedback_rows": 1, "feedback_texts": 2, "feedback_lost": 1}
    # Rows that feedback adds are trained on, and not validated on.
    assert found["rows"] + found["validation"]["rows"] == 62
    assert found["validation"]["rows"] <= 15


def test_what_contradicts_itself_is_refused(files, tmp_path):
    rows, feedback = files
    unknown = train(rows, feedback, "--unlisted", "unknown")
    assert failed(unknown, 2, "--feedback says which tags somebody looked at")
    write_jsonl(feedback, [{**one, "tagger": name} for one, name in zip(ANSWERS, ["a", "b"])])
    assert failed(train(rows, feedback, "--feedback-tagger", "books"), 1, "no answer on suggestions of 'books'")
    assert failed(train(rows, feedback), 1, "--feedback-tagger")
    assert failed(train(rows, rows), 1, "line 1", "needs one of accepted, rejected, withdrawn")
    matrix = tmp_path / "rows.svm"
    matrix.write_text("0 1:1\n1 2:1\n")
    assert failed(train(matrix, feedback, "--format", "svmlight"), 2, "--feedback")
    assert not (tmp_path / "tagger").exists()
    assert train(rows, feedback, "--feedback-tagger", "a").returncode == 0
