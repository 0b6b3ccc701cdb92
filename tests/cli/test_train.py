"""``tagwise train``: what is refused before the fit, and what is left when it ends early or is run again."""

import json
import shutil

import numpy as np
import pytest
import scipy.sparse as sp
from commands import failed, run, some_rows, write_jsonl

from tagwise import TextFeatures, load
from tagwise.data import write_xmc
from tagwise.persistence import Checkpoint
from tagwise.text import embeddings


@pytest.fixture
def rows_file(tmp_path):
    return write_jsonl(tmp_path / "rows.jsonl", some_rows(40))


def train(path, *more):
    return run("train", path, "--out", path.with_name("m"), "--model", "leml", "--set", "rank=2", *more)


@pytest.fixture
def saved_but_killed(rows_file, monkeypatch):
    """What a run leaves that was killed between the save of its model and its end."""
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "discard", lambda self: None)
        assert train(rows_file, "--checkpoint-every", "1").returncode == 0
    assert (rows_file.parent / "m.checkpoint").is_dir()
    return rows_file


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
def test_resuming_a_fit_that_was_saved_says_that_it_is_complete(saved_but_killed, overwrite):
    """In 0.1.0 it only said that there is a model already."""
    folder = saved_but_killed.parent
    before = (folder / "m" / "manifest.json").stat()
    again = train(saved_but_killed, "--resume", *overwrite)
    assert again.returncode == 0, again.stderr
    assert again.stdout.startswith(f"The fit is complete: {folder / 'm'} holds its model.")
    assert "iteration" not in again.stderr
    after = (folder / "m" / "manifest.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert not (folder / "m.checkpoint").exists()
    third = train(saved_but_killed, "--resume")
    assert failed(third, 1, "no unfinished fit", "it is complete and nothing is left to do")


def test_the_same_for_programs(saved_but_killed):
    found = json.loads(train(saved_but_killed, "--resume", "--json").stdout)
    assert found["complete"] is True
    assert found["out"] == str(saved_but_killed.parent / "m")


def test_another_model_in_the_folder_is_not_taken_for_that_of_the_fit(saved_but_killed, tmp_path):
    shutil.rmtree(tmp_path / "m")
    other = write_jsonl(tmp_path / "other.jsonl", some_rows(30, seed=3))
    assert train(other).returncode == 0
    assert failed(train(saved_but_killed, "--resume"), 1, "already holds a model")
    assert (tmp_path / "m.checkpoint").is_dir()
    resumed = train(saved_but_killed, "--resume", "--overwrite")
    assert resumed.returncode == 0, resumed.stderr
    assert "Trained on 40 rows" in resumed.stdout


def test_numbers_that_a_folder_cannot_hold_are_refused_before_the_fit(rows_file):
    """In 0.1.0 they were refused only when the fitted model was to be saved."""
    for option in (["--seed", str(2**64)], ["--set", f"rank={2**64}"]):
        result = train(rows_file, *option)
        assert failed(result, 2, "64 bits")
        assert "iteration" not in result.stderr
    nested = train(rows_file, "--set", f"positive_weight=[1, {-(2**63) - 1}]")
    assert failed(nested, 2, "Invalid value for --set: positive_weight is a number of more than 64 bits.")
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
    assert failed(both, 2, "--known says which tags somebody looked at, --unlisted unknown that nobody did.")
    result = run("train", rows_file, "--out", tmp_path / "knn", "--model", "knn", "--unlisted", "unknown")
    assert failed(result, 1, "unlisted: KNN takes every label that is not listed as off")


@pytest.mark.parametrize("value", ["[" * 100_000, '{"a":' * 100_000])
def test_settings_that_are_nested_deep(rows_file, value):
    """In 0.1.0 they were a traceback."""
    assert failed(train(rows_file, "--set", f"reg={value}"), 2, "Invalid value for --set: reg is nested too deep.")


@pytest.mark.parametrize("name", ["labels.txt", "rows.xmc.labels.txt"])
def test_names_of_labels_that_are_no_utf_8_are_found_before_the_fit(tmp_path, name):
    """In 0.1.0 the fit was over, and its model lost."""
    X = sp.random(20, 5, density=0.5, format="csr", random_state=0, dtype=np.float32)
    Y = sp.csr_matrix(np.eye(2, dtype=np.float32)[np.arange(20) % 2])
    path = tmp_path / "rows.xmc"
    write_xmc(path, X, Y)
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
    assert run("predict", folder, "dog").returncode == 0


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
    found = run("train", unspaced_file, "--out", tmp_path / "m")
    assert found.returncode == 0, found.stderr
    assert "Features are words, character n-grams: nDCG@5" in found.stdout
    assert load(tmp_path / "m").features_.characters
    named = run("train", unspaced_file, "--out", tmp_path / "named", "--model", "cascade")
    assert "Features are" not in named.stdout
    assert not load(tmp_path / "named").features_.characters


def test_features_that_are_asked_for(unspaced_file, tmp_path):
    options = ["--bigrams", "--max-df", "0.9", "--linear-tf", "--min-df", "1", "--max-features", "50"]
    found = run("train", unspaced_file, "--out", tmp_path / "m", *options)
    assert found.returncode == 0, found.stderr
    expected = TextFeatures(bigrams=True, max_df=0.9, sublinear_tf=False, min_df=1, max_features=50)
    assert load(tmp_path / "m").features_.get_params() == expected.get_params()


def test_tune_chooses_features_and_says_how_to_train_with_them(unspaced_file, tmp_path):
    options = ["--model", "binary-relevance", "--budget", "0.5", "--out", tmp_path / "t.json"]
    found = run("tune", unspaced_file, *options)
    assert found.returncode == 0, found.stderr
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
        answered = run(verb, folder, rows_file, *more, "--embedding-cache", cache)
        assert answered.returncode == 0, answered.stderr
    assert all(text in asked[:before] for text in asked[before:])  # fixed texts of the fingerprint alone
    monkeypatch.setitem(embeddings.EMBEDDERS, "static", lambda: lambda texts: -letters(texts))
    refused = run("predict", folder, rows_file)
    assert failed(refused, 1, "static is not the model static that the tagger was trained with")


def test_tuning_searches_the_weight_of_embeddings(rows_file, monkeypatch, tmp_path):
    monkeypatch.setitem(
        embeddings.EMBEDDERS,
        "static",
        lambda: lambda texts: np.array([[text.count(letter) for letter in "aeiou"] for text in texts], dtype=float),
    )
    options = ["--model", "leml", "--budget", "0.5", "--embedder", "static", "--embedding-cache", tmp_path / "cache"]
    found = run("tune", rows_file, *options, "--out", tmp_path / "t.json", "--json")
    assert found.returncode == 0, found.stderr
    answer = json.loads(found.stdout)
    assert any("dense_weight" in trial["settings"] for trial in answer["trials"])
    assert f"--embedder static --embedding-cache {tmp_path / 'cache'}" in answer["command"]
    assert (tmp_path / "cache" / "embeddings.sqlite").exists()


def test_embedders_are_for_texts(tmp_path):
    matrix = tmp_path / "rows.txt"
    write_xmc(matrix, sp.csr_matrix(np.eye(4)), sp.csr_matrix(np.eye(4)))
    assert failed(run("train", matrix, "--out", tmp_path / "m", "--embedder", "static"), 2, "is for texts")
    assert failed(run("tune", matrix, "--out", tmp_path / "t.json", "--embedder", "static"), 2, "is for texts")
