"""``tagwise train --feedback``: exactly the answered pairs are known, as by the library; and what is refused."""

import json
import warnings

import numpy as np
import pytest
from commands import WORDS, failed, run, some_rows, write_jsonl

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
    out = rows.with_name("tagger")
    given = ("--id", "id", "--model", "binary-relevance", "--feedback", feedback, "--overwrite")
    return out, run("train", rows, "--out", out, *given, *more)


def test_it_says_what_was_learnt(files):
    out, done = train(*files)
    assert done.returncode == 0, done.stderr
    assert "Feedback on 1 row of the file and 2 other texts: 3 tags accepted, 3 rejected." in done.stdout
    assert (
        "4 records of feedback on 3 texts: 3 tags accepted, 3 rejected; 0 answers repeated and 1 changed" in done.stderr
    )
    # All five tags of the 60 rows of the file, and two of each other text: one was withdrawn.
    assert "Trained on 62 rows" in done.stdout
    assert load(out).training_["known_pairs"] == 60 * 5 + 2 + 2


def test_the_same_for_programs(files):
    found = json.loads(train(*files, "--json")[1].stdout)
    assert found["feedback"] == {
        "records": 4,
        "texts": 3,
        "accepted": 3,
        "rejected": 3,
        "repeated": 0,
        "contradicted": 1,
        "feedback_rows": 1,
        "feedback_texts": 2,
        "feedback_lost": 0,
    }


def test_the_library_does_the_same(files):
    rows, feedback = files
    out, _ = train(rows, feedback)
    table = with_feedback(read_table(rows, id="id"), read_feedback(feedback))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tagger = Tagger("binary-relevance").fit(table.texts, table.tags, table.known)
    assert table.tags[0] == ["snacks"]
    assert table.known[-2:] == [["pets", "garden"], ["drinks", "pets"]]
    text = ["wine and bread for my cat"]
    assert tagger.suggest(text) == load(out).suggest(text)


def test_pairs_without_an_answer_are_never_used(files, tmp_path):
    """A tag of which the new texts say nothing learns the same with them and without."""
    rows, feedback = files
    ours, _ = train(rows, feedback)
    tagger = load(ours)
    others = [{"text": one["text"], "rejected": ["garden", "pets", "drinks"]} for one in ANSWERS[:2]]
    theirs, _ = train(rows, write_jsonl(tmp_path / "other.jsonl", [*others, ANSWERS[2]]))
    other = load(theirs)
    text = " ".join(WORDS["food"] + WORDS["pets"])
    scores = [
        dict(zip(one.tags_, one.model_.decision_function(one.transform([text])).ravel())) for one in (tagger, other)
    ]
    np.testing.assert_allclose(scores[0]["food"], scores[1]["food"], rtol=1e-5)
    assert abs(scores[0]["pets"] - scores[1]["pets"]) > 1e-3


def test_rows_that_feedback_adds_are_trained_on_and_not_validated_on(files):
    _, done = train(*files, "--validation", "0.25", "--json")
    found = json.loads(done.stdout)
    assert found["rows"] + found["validation"]["rows"] == 62
    assert found["validation"]["rows"] <= 15


def test_an_identifier_that_no_row_has_is_named(files):
    rows, feedback = files
    write_jsonl(feedback, [*ANSWERS, {"id": "nobody", "accepted": ["pets"]}])
    assert "1 identifier that no row of" in train(rows, feedback)[1].stderr


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (["--unlisted", "unknown"], 2, "--feedback says which tags somebody looked at"),
        (["--feedback-tagger", "books"], 1, "no answer on suggestions of 'books'"),
    ],
)
def test_what_contradicts_itself_is_refused(files, more, code, words):
    rows, feedback = files
    write_jsonl(feedback, [{**one, "tagger": "packages"} for one in ANSWERS])
    assert failed(train(rows, feedback, *more)[1], code, words)
    assert not rows.with_name("tagger").exists()


def test_answers_on_two_taggers_and_files_of_something_else_are_refused(files):
    rows, feedback = files
    write_jsonl(feedback, [{**one, "tagger": name} for one, name in zip(ANSWERS, ["a", "b"])])
    assert failed(train(rows, feedback)[1], 1, "--feedback-tagger")
    assert train(rows, feedback, "--feedback-tagger", "a")[1].returncode == 0
    assert failed(train(rows, rows)[1], 1, "line 1", "needs one of accepted, rejected, withdrawn")


def test_a_matrix_has_no_texts(tmp_path, files):
    matrix = tmp_path / "rows.svm"
    matrix.write_text("0 1:1\n1 2:1\n")
    assert failed(train(matrix, files[1], "--format", "svmlight")[1], 2, "--feedback")
