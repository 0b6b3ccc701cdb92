"""The verbs of the installed command, from a file of texts to tags, and what they say."""

import json
import os
import signal
import subprocess
import sys

import pytest
from commands import WORDS, failed, run, some_rows, write_jsonl


def test_train_says_what_it_read_what_it_chose_and_how_large_it_is(trained):
    folder, result = trained
    assert "texts from 'text' (guessed), tags from 'labels' (guessed)" in result.stderr
    assert "BinaryRelevance: iteration 1/" in result.stderr
    assert "Model: binary-relevance was asked for." in result.stdout
    assert "Trained on 60 rows, " in result.stdout
    assert "4 tags" in result.stdout
    assert "On 20 held-out rows" in result.stdout
    assert f"Saved in {folder}: " in result.stdout


def test_train_picks_a_model_and_says_why_as_json(tmp_path, rows_file):
    result = run("train", rows_file, "--out", tmp_path / "m", "--json", "--quiet")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["reason"].startswith(f"{report['model']}: 80 rows, ")
    assert (report["rows"], report["tags"]) == (80, 4)
    assert report["bytes"] == sum(path.stat().st_size for path in (tmp_path / "m").iterdir())
    assert result.stderr == ""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_terminal_gets_a_bar_in_the_place_of_lines(tmp_path, rows_file):
    import pty

    terminal, end = pty.openpty()
    with open(terminal, "rb", buffering=0) as screen, open(end, "wb", buffering=0) as stderr:
        result = subprocess.run(
            [sys.executable, "-m", "tagwise", "train", str(rows_file), "--out", str(tmp_path / "m")]
            + ["--model", "binary-relevance"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            timeout=600,
            env={**os.environ, "TERM": "xterm"},
        )
        shown = screen.read(1 << 16).decode()
    assert result.returncode == 0, shown
    assert "fitting BinaryRelevance" in shown
    assert "1/1" in shown
    assert "iteration 1/" not in shown


def test_predict_a_text_lines_and_a_file(tagger, rows_file):
    text = run("predict", tagger, "the dog and the cat", "--top", "1", "--explain", "2")
    assert text.returncode == 0, text.stderr
    assert text.stdout.startswith("pets ")
    assert "dog +" in text.stdout
    assert "cat +" in text.stdout

    lines = run("predict", tagger, "-", "--json", "--top", "2", stdin="wine in a glass\n\nbread and cheese\n")
    assert lines.returncode == 0, lines.stderr
    answers = [json.loads(line) for line in lines.stdout.splitlines()]
    assert [answer["line"] for answer in answers] == [1, 2, 3]
    assert [len(answer["suggestions"]) for answer in answers] == [2, 0, 2]
    assert [answers[place]["suggestions"][0]["tag"] for place in (0, 2)] == ["drinks", "food"]
    assert 0 <= answers[0]["suggestions"][0]["probability"] <= 1
    assert "1 of 3 rows have no text; they got no tags" in lines.stderr

    rows = run("predict", tagger, rows_file, "--id", "id", "--threshold", "calibrated")
    assert rows.returncode == 0, rows.stderr
    truth = {row["id"]: set(row["labels"]) for row in some_rows()}
    right = 0
    for line in rows.stdout.splitlines():
        row_id, *tags = line.split("\t")
        right += {tag.split(" ")[0] for tag in tags} == truth[row_id]
    assert right >= 70
    assert len(rows.stdout.splitlines()) == 80


def test_predict_answers_line_by_line_through_a_pipe(tagger):
    with subprocess.Popen(
        [sys.executable, "-m", "tagwise", "predict", str(tagger), "-", "--line-by-line", "--top", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        for tag in ("pets", "garden"):
            process.stdin.write(" ".join(WORDS[tag]) + "\n")
            process.stdin.flush()
            assert process.stdout.readline().startswith(tag)
        process.stdin.close()
        assert process.wait(timeout=600) == 0


def test_predict_ends_quietly_when_its_reader_goes_away(tagger, tmp_path):
    path = tmp_path / "many.txt"
    path.write_text("a dog\n" * 50_000)
    with subprocess.Popen(
        [sys.executable, "-m", "tagwise", "predict", str(tagger), str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline().startswith("pets")
        process.stdout.close()
        assert process.wait(timeout=600) == 1
        assert process.stderr.read() == ""


def test_evaluate_measures_and_counts_tags_that_training_never_saw(tagger, tmp_path):
    rows = some_rows(40, seed=1)
    rows[0]["labels"] = [*rows[0]["labels"], "space travel"]
    path = write_jsonl(tmp_path / "test.jsonl", rows)
    result = run("evaluate", tagger, path, "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["rows"] == 40
    assert found["metrics"]["P@1"] >= 0.95
    assert {"nDCG@5", "PSP@5", "micro-F1", "macro-F1", "example-F1"} <= set(found["metrics"])
    assert found["decided_by"] == "calibrated thresholds"
    assert found["unseen_tags"] == {"space travel": 1}
    assert "1 tags, in 1 places, were never seen in training and count as missed: 'space travel' (1)." in result.stderr
    plain = run("evaluate", tagger, path, "--k", "2")
    assert "P: precision of the first k tags" in plain.stdout
    assert "@2" in plain.stdout
    assert "micro-F1" in plain.stdout


def test_inspect_shows_the_model_and_a_tag(tagger):
    overview = run("inspect", tagger)
    for words in ("BinaryRelevance", "Trained on 60 rows", "Most frequent tags", "Calibrated on 20", "Objective over"):
        assert words in overview.stdout
    tag = json.loads(run("inspect", tagger, "--tag", "pets", "--json").stdout)
    assert {word["word"] for word in tag["words"][:4]} == set(WORDS["pets"])
    assert {near["tag"] for near in tag["nearest"]} == {"drinks", "food", "garden"}
    assert tag["rows"] > 0
    assert failed(run("inspect", tagger, "--tag", "pet"), 1, "is none of the 4 tags", "Did you mean 'pets'?")


def test_explain_adds_up_to_the_score(tagger):
    result = run("explain", tagger, "the dog drinks wine", "--tag", "pets", "--tag", "drinks", "--words", "1", "--json")
    assert result.returncode == 0, result.stderr
    for tag, word in zip(json.loads(result.stdout)["tags"], ("dog", "wine")):
        assert [part["word"] for part in tag["words"]] == [word]
        total = tag["intercept"] + tag["words"][0]["contribution"] + tag["others"]
        assert total == pytest.approx(tag["score"], abs=1e-5)
    people = run("explain", tagger, "-", stdin="the dog\n")
    assert "dog" in people.stdout
    assert "without any word" in people.stdout
    assert failed(run("explain", tagger, "dog", "--tag", "cars"), 1, "--tag 'cars' is none of the 4")


def test_a_matrix_gives_a_plain_model(tmp_path, rows_file):
    assert run("convert", rows_file, tmp_path / "X.npz").returncode == 0
    trained = run("train", tmp_path / "X.npz", "--out", tmp_path / "m", "--model", "leml", "--set", "rank=3", "--json")
    assert trained.returncode == 0, trained.stderr
    assert f"labels from {tmp_path / 'Y.npz'} (guessed)" in trained.stderr
    found = run("evaluate", tmp_path / "m", tmp_path / "X.npz", "--json")
    assert json.loads(found.stdout)["metrics"]["P@1"] >= 0.95
    answers = run("predict", tmp_path / "m", tmp_path / "X.npz", "--top", "1")
    assert len(answers.stdout.splitlines()) == 80
    assert failed(run("predict", tmp_path / "m", "a dog"), 1, "knows no words")
    assert failed(run("evaluate", tmp_path / "m", rows_file), 1, "knows no words")


def test_known_tags_are_learnt_from_and_the_rest_is_unknown(tmp_path):
    path = tmp_path / "checked.csv"
    lines = ["text,tags,looked_at"]
    for row in some_rows():
        looked_at = "*" if row["year"] % 2 else "pets|food"
        lines.append(f"{row['text']},{'|'.join(row['labels'])},{looked_at}")
    path.write_text("\n".join(lines) + "\n")
    result = run(
        "train", path, "--known", "looked_at", "--out", tmp_path / "m", "--model", "binary-relevance", "--quiet"
    )
    assert result.returncode == 0, result.stderr
    assert "Known are " in result.stdout
    all_known = some_rows()
    pairs = sum(4 if row["year"] % 2 else len({"pets", "food", *row["labels"]}) for row in all_known)
    assert f"Known are {pairs:,} pairs" in result.stdout


# A fit that takes a while: real texts, and rounds that do not end by themselves.
LONG_FIT = ["--text", "text", "--tags", "labels", "--model", "leml", "--set", "rank=10", "--set", "tol=0"]


@pytest.fixture(scope="module")
def sample_file(tmp_path_factory):
    """The first texts of the bundled sample as JSON lines."""
    from tagwise.data import load_dataset

    data = load_dataset("debtags-sample")
    rows = [
        {"text": text, "labels": [data.label_names[label] for label in data.Y_train[place].indices]}
        for place, text in enumerate(data.texts_train[:800])
    ]
    return write_jsonl(tmp_path_factory.mktemp("sample") / "sample.jsonl", rows)


def start(*arguments):
    command = [sys.executable, "-m", "tagwise", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_interrupts
    )


def _heed_interrupts():
    # Tests that run in the background of a shell ignore Ctrl-C, and so would what they start.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_killed_training_goes_on_to_the_same_bits(tmp_path, sample_file):
    arguments = ["train", sample_file, *LONG_FIT, "--set", "max_iter=30"]
    whole = run(*arguments, "--out", tmp_path / "whole", "--quiet")
    assert whole.returncode == 0, whole.stderr
    with start(*arguments, "--out", tmp_path / "cut", "--checkpoint-every", "1") as process:
        for line in process.stderr:
            if "iteration 5/" in line:
                process.kill()
                break
        process.wait(timeout=600)
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "cut").exists()
    again = run(*arguments, "--out", tmp_path / "cut", "--checkpoint-every", "1")
    assert failed(again, 1, "holds the state of an earlier run; pass --resume to go on")
    resumed = run(*arguments, "--out", tmp_path / "cut", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "goes on from the checkpoint" in resumed.stderr
    assert "iteration 1/" not in resumed.stderr
    assert not (tmp_path / "cut.checkpoint").exists()
    tensors = [sorted(path.name for path in (tmp_path / name).glob("tensors-*")) for name in ("whole", "cut")]
    assert tensors[0] == tensors[1]  # named by the digest of what they hold


def test_control_c_is_130_and_says_how_to_go_on(tmp_path, sample_file):
    arguments = ["train", sample_file, *LONG_FIT, "--set", "max_iter=100000", "--checkpoint-every", "1"]
    said = ""
    with start(*arguments, "--out", tmp_path / "m") as process:
        for line in process.stderr:
            said += line
            if "iteration 3/" in line:
                process.send_signal(signal.SIGINT)
        process.wait(timeout=600)
    assert process.returncode == 130
    assert "the same command with --resume goes on" in said
    assert "Traceback" not in said
    assert os.listdir(tmp_path) == ["m.checkpoint"]
