"""``tagwise train``: what is refused before the fit, and what is left when it ends early or is run again."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from commands import failed, ok, run, some_rows, write_jsonl

from tagwise import Tagger, TextFeatures, load
from tagwise.data import read_feedback, read_table, with_feedback, write_xmc
from tagwise.store import Checkpoint
from tagwise.text import embeddings


@pytest.fixture
def rows_file(tmp_path):
    return write_jsonl(tmp_path / "rows.jsonl", some_rows(40))


def train(path, *more):
    return run("train", path, "--out", path.with_name("m"), "--model", "leml", "--set", "rank=2", *more)


@pytest.fixture
def saved_but_killed(rows_file, monkeypatch):
    """The files of a run that was killed between the save of its model and its end."""
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "discard", lambda self: None)
        assert train(rows_file, "--checkpoint-every", "1").returncode == 0
    assert (rows_file.parent / "m.checkpoint").is_dir()
    return rows_file


def test_resuming_a_fit_that_was_saved_has_nothing_left_to_do(saved_but_killed, tmp_path):
    before = (tmp_path / "m" / "manifest.json").read_text()
    assert failed(train(saved_but_killed, "--resume"), 1, "already holds a model", "nothing is left to do")
    again = train(saved_but_killed, "--resume", "--overwrite")
    assert again.returncode == 0, again.stderr
    assert "iteration 1/" not in again.stderr
    tensors = json.loads(before)["payload"], json.loads((tmp_path / "m" / "manifest.json").read_text())["payload"]
    assert tensors[0] == tensors[1]
    assert not (tmp_path / "m.checkpoint").exists()
    assert "There is no checkpoint in" in train(saved_but_killed, "--resume", "--overwrite").stderr


def test_numbers_that_a_folder_cannot_hold_are_refused_before_the_fit(rows_file):
    for option, code, words in (
        (["--seed", str(2**64)], 2, "64 bits"),
        (["--set", f"max_iter={2**64}"], 1, "max_iter must be at most 2⁶³ − 1; found a number of 65 bits."),
        (["--set", f"positive_weight=[1, {-(2**63) - 1}]"], 1, "positive_weight"),
        (["--set", f"reg={'[' * 100_000}"], 1, "reg must be a number"),
    ):
        result = train(rows_file, *option)
        assert failed(result, code, words)
        assert "iteration" not in result.stderr
    assert not rows_file.with_name("m").exists()


def test_tags_that_nobody_looked_at(rows_file, tmp_path):
    assert train(rows_file, "--unlisted", "unknown").returncode == 0
    assert load(tmp_path / "m").model_.positive_weight == "propensity"
    path = tmp_path / "rows.xmc"
    X = sp.random(40, 5, density=0.5, format="csr", random_state=0, dtype=np.float32)
    write_xmc(path, X, sp.csr_matrix(np.eye(2, dtype=np.float32)[np.arange(40) % 2]))
    result = run("train", path, "--out", tmp_path / "matrix", "--unlisted", "unknown")
    assert "unlisted ones unknown" in result.stdout
    assert load(tmp_path / "matrix").unlisted == "unknown"
    both = train(rows_file, "--overwrite", "--unlisted", "unknown", "--known", "looked_at")
    assert failed(both, 2, "--known (which tags were checked) and --unlisted unknown (none were) exclude each other")
    result = run("train", rows_file, "--out", tmp_path / "knn", "--model", "knn", "--unlisted", "unknown")
    assert failed(result, 1, "unlisted: KNN takes every label that is not listed as off")


def test_names_of_labels_that_are_no_utf_8_are_found_before_the_fit(tmp_path):
    X = sp.random(20, 5, density=0.5, format="csr", random_state=0, dtype=np.float32)
    Y = sp.csr_matrix(np.eye(2, dtype=np.float32)[np.arange(20) % 2])
    path = tmp_path / "rows.xmc"
    write_xmc(path, X, Y)
    for name in ("labels.txt", "rows.xmc.labels.txt"):
        (tmp_path / name).write_bytes(b"pets\ncaf\xe9\n")
        result = train(path)
        assert failed(result, 1, str(tmp_path / name), "line 2", "not valid UTF-8")
        assert "iteration" not in result.stderr
    assert not (tmp_path / "m").exists()


def test_a_test_file_that_is_the_training_file_is_called_that(rows_file):
    result = train(rows_file, "--test", rows_file)
    assert result.returncode == 0, result.stderr
    assert f"warning: --test {rows_file} is the file that is trained on" in result.stderr


def test_what_fails_after_the_save_says_that_the_model_is_there(rows_file, monkeypatch):
    def fails(*arguments, **more):
        raise OSError(28, "No space left on device", "report.html")

    monkeypatch.setattr("tagwise.cli.train.write_findings", fails)
    result = train(rows_file, "--validation", "0.25", "--report", rows_file.with_name("report.html"))
    folder = rows_file.with_name("m")
    assert failed(result, 1, f"The model is saved in {folder}.\ntagwise: report.html: No space left on device.")
    ok("predict", folder, "dog")


# --- features


@pytest.fixture
def unspaced_file(tmp_path):
    """Texts of one long word each: parts of words say what the tags are."""
    rng = np.random.default_rng(0)
    stems = {"fish": "rokav", "bread": "timel", "tea": "susop", "salt": "ganud"}
    rows = []
    for number in range(320):
        mine = rng.choice(list(stems), size=2, replace=False).tolist()
        rows.append({"text": f"xy{stems[mine[0]]}zw{stems[mine[1]]}{number} text", "tags": sorted(mine)})
    return write_jsonl(tmp_path / "unspaced.jsonl", rows)


def test_auto_chooses_features(unspaced_file, tmp_path):
    found = ok("train", unspaced_file, "--out", tmp_path / "m")
    assert "Features are words, character n-grams: nDCG@5" in found.stdout
    assert load(tmp_path / "m").features_.characters
    named = run("train", unspaced_file, "--out", tmp_path / "named", "--model", "cascade")
    assert "Features are" not in named.stdout
    assert not load(tmp_path / "named").features_.characters


def test_features_that_are_asked_for(unspaced_file, tmp_path):
    options = ["--bigrams", "--max-df", "0.9", "--linear-tf", "--min-df", "1", "--max-features", "50"]
    ok("train", unspaced_file, "--out", tmp_path / "m", *options)
    expected = TextFeatures(bigrams=True, max_df=0.9, sublinear_tf=False, min_df=1, max_features=50)
    assert load(tmp_path / "m").features_.get_params() == expected.get_params()


def test_tune_chooses_features_and_says_how_to_train_with_them(unspaced_file, tmp_path):
    options = ["--model", "binary-relevance", "--budget", "0.5", "--out", tmp_path / "t.json"]
    found = ok("tune", unspaced_file, *options)
    assert "Features are words" in found.stderr
    (command,) = (line for line in found.stdout.splitlines() if line.startswith("Train with: "))
    assert "--characters" in command
    given = run("tune", unspaced_file, "--linear-tf", *options[:-1], tmp_path / "u.json")
    assert "Features are" not in given.stderr
    (command,) = (line for line in given.stdout.splitlines() if line.startswith("Train with: "))
    assert "--linear-tf" in command
    assert "--characters" not in command


def test_embeddings_beside_words(rows_file, monkeypatch):
    """Train, predict and evaluate with an embedder by name, and a cache that spares its work."""
    asked = []

    def letters(texts):
        asked.extend(texts)
        return np.array([[text.count(letter) for letter in "aeiou"] + [1] for text in texts], dtype=float)

    monkeypatch.setitem(embeddings.EMBEDDERS, "static", lambda: letters)
    folder, cache = rows_file.with_name("m"), rows_file.with_name("cache")
    result = train(rows_file, "--embedder", "static", "--embedding-cache", cache)
    assert result.returncode == 0, result.stderr
    assert load(folder).model_.n_dense_features_in_ == 6
    before = len(asked)
    for verb, more in (("predict", []), ("evaluate", [])):
        ok(verb, folder, rows_file, *more, "--embedding-cache", cache)
    assert all(text in asked[:before] for text in asked[before:])  # fixed texts of the fingerprint alone
    monkeypatch.setitem(embeddings.EMBEDDERS, "static", lambda: lambda texts: -letters(texts))
    refused = run("predict", folder, rows_file)
    assert failed(refused, 1, "static is not the model static that the tagger was trained with")


def test_tuning_searches_the_weight_of_embeddings(rows_file, monkeypatch, tmp_path):
    def letters(texts):
        return np.array([[text.count(letter) for letter in "aeiou"] for text in texts], dtype=float)

    monkeypatch.setitem(embeddings.EMBEDDERS, "static", lambda: letters)
    options = ["--model", "leml", "--budget", "0.5", "--embedder", "static", "--embedding-cache", tmp_path / "cache"]
    found = ok("tune", rows_file, *options, "--out", tmp_path / "t.json", "--json")
    answer = json.loads(found.stdout)
    assert any("dense_weight" in trial["settings"] for trial in answer["trials"])
    assert "--embedder static" in answer["command"]
    assert f"--embedding-cache {tmp_path / 'cache'}" in answer["command"]
    assert (tmp_path / "cache" / "embeddings.sqlite").exists()


# --- feedback

ANSWERS = [
    {"text": "cat dog tail fur bread", "accepted": ["pets"], "rejected": ["garden"]},
    {"text": "wine beer oven plate", "accepted": ["drinks", "food"], "rejected": ["pets"]},
    {"id": "r0", "accepted": ["snacks"], "rejected": ["garden"]},
    {"text": "wine beer oven plate", "withdrawn": ["food"]},
]


@pytest.fixture
def answered(tmp_path):
    rows = some_rows(60)
    rows[0] |= {"labels": ["garden"]}
    return write_jsonl(tmp_path / "rows.jsonl", rows), write_jsonl(tmp_path / "feedback.jsonl", ANSWERS)


def train_with(rows, feedback, *more):
    given = ("--id", "id", "--model", "binary-relevance", "--feedback", feedback, "--overwrite")
    return run("train", rows, "--out", rows.with_name("tagger"), *given, *more)


def test_answered_pairs_are_learnt_as_by_the_library(answered, tmp_path):
    rows, feedback = answered
    done = train_with(rows, feedback)
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


def test_figures_for_programs_and_validation_rows(answered):
    rows, feedback = answered
    write_jsonl(feedback, [*ANSWERS, {"id": "nobody", "accepted": ["pets"]}])
    done = train_with(rows, feedback, "--validation", "0.25", "--json")
    assert "1 identifier that no row of" in done.stderr
    found = json.loads(done.stdout)
    counts = {"records": 5, "texts": 4, "accepted": 4, "rejected": 3, "repeated": 0, "contradicted": 1}
    assert found["feedback"] == {**counts, "feedback_rows": 1, "feedback_texts": 2, "feedback_lost": 1}
    # Rows that feedback adds are trained on, and not validated on.
    assert found["rows"] + found["validation"]["rows"] == 62
    assert found["validation"]["rows"] <= 15


def test_what_contradicts_itself_is_refused(answered, tmp_path):
    rows, feedback = answered
    unknown = train_with(rows, feedback, "--unlisted", "unknown")
    assert failed(unknown, 2, "--feedback (which tags were checked) and")
    write_jsonl(feedback, [{**one, "tagger": name} for one, name in zip(ANSWERS, ["a", "b"])])
    assert failed(train_with(rows, feedback, "--feedback-tagger", "books"), 1, "no answer on suggestions of 'books'")
    assert failed(train_with(rows, feedback), 1, "--feedback-tagger")
    assert failed(train_with(rows, rows), 1, "line 1", "needs one of accepted, rejected, withdrawn")
    matrix = tmp_path / "rows.svm"
    matrix.write_text("0 1:1\n1 2:1\n")
    assert failed(train_with(matrix, feedback, "--format", "svmlight"), 2, "--feedback")
    assert not (tmp_path / "tagger").exists()
    assert train_with(rows, feedback, "--feedback-tagger", "a").returncode == 0
