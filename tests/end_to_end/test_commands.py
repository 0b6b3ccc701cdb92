"""The verbs of the installed command, from a file of texts to tags, and what they say."""

import json
import os
import random
import re
import signal
import subprocess
import sys

import pytest
from commands import COMMAND, WORDS, failed, lines_of, ok, on_terminal, run, some_rows, write_jsonl
from systems import needs_signals

from tagwise import load


def test_train_says_what_it_read_what_it_chose_and_how_large_it_is(trained):
    folder, result = trained
    assert "guessed column `text` for texts, column `labels` for tags." in result.stderr
    assert "BinaryRelevance: block 1/" in result.stderr
    assert "Model: binary-relevance was asked for." in result.stdout
    assert "Trained on 60 rows, " in result.stdout
    assert "4 tags" in result.stdout
    assert "On 20 validation rows" in result.stdout
    assert f"Saved in {folder}: " in result.stdout


def test_train_picks_a_model_and_says_why_as_json(tmp_path, rows_file):
    result = ok("train", rows_file, "--out", tmp_path / "m", "--json", "--quiet")
    report = json.loads(result.stdout)
    assert report["reason"].startswith(f"{report['model']}: 80 rows, ")
    assert (report["rows"], report["tags"]) == (80, 4)
    assert report["bytes"] == sum(path.stat().st_size for path in (tmp_path / "m").iterdir())
    assert result.stderr == ""


on_posix = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")


@on_posix
def test_a_terminal_gets_a_bar_in_the_place_of_lines(tmp_path, rows_file):
    code, shown = on_terminal("train", rows_file, "--out", tmp_path / "m", "--model", "binary-relevance")
    assert code == 0, shown
    assert "reading rows.jsonl" in shown
    assert "fitting BinaryRelevance, block" in shown
    assert "1/1" in shown
    assert "block 1/" not in shown


@on_posix
def test_sentences_stand_above_bars_and_not_in_them(tmp_path, rows_file):
    code, shown = on_terminal("train", rows_file, "--out", tmp_path / "m", "--model", "leml", "--set", "rank=9")
    assert code == 0, shown
    # Said while the bar of the fit is shown.
    assert "warning: rank=9 is more than 16 features and 4 labels allow; using 4." in lines_of(shown)
    out = tmp_path / "tune.json"
    options = ("--model", "leml", "--budget", "1", "--min-rows", "20", "--jobs", "1", "--out", out)
    code, shown = on_terminal("tune", rows_file, *options)
    assert code == 0, shown
    trials = [line for line in lines_of(shown) if "nDCG@5" in line]
    assert [line.split(":")[0] for line in trials] == ["1/4", "2/4", "3/4", "4/4"]
    assert "4 of at most 4 fits" in shown


@on_posix
def test_answers_on_a_terminal_are_not_mixed_with_a_bar(tagger, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("the dog\nthe wine\n")
    code, shown = on_terminal("predict", tagger, path, "--top", "1", stdout_too=True)
    assert code == 0, shown
    assert [line.split(" ")[0] for line in lines_of(shown) if line] == ["pets", "drinks"]
    assert "predicting" in on_terminal("predict", tagger, path)[1]


@on_posix
@pytest.mark.parametrize("columns", [40, 120])
def test_tables_on_a_terminal_show_every_number(tagger, rows_file, columns):
    code, shown = on_terminal("evaluate", tagger, rows_file, columns=columns, stdout_too=True)
    assert code == 0, shown
    numbers = [line.split()[-1] for line in lines_of(shown) if line.startswith("nDCG: ")]
    assert len(numbers) == 1
    assert float(numbers[0]) > 90


def test_predict_a_text_lines_and_a_file(tagger, rows_file):
    text = ok("predict", tagger, "the dog and the cat", "--top", "1", "--explain", "2")
    assert text.stdout.startswith("pets ")
    assert "dog +" in text.stdout
    assert "cat +" in text.stdout

    lines = ok("predict", tagger, "-", "--json", "--top", "2", stdin="wine in a glass\n\nbread and cheese\n")
    answers = [json.loads(line) for line in lines.stdout.splitlines()]
    assert [answer["line"] for answer in answers] == [1, 2, 3]
    assert [len(answer["suggestions"]) for answer in answers] == [2, 0, 2]
    assert [answers[place]["suggestions"][0]["tag"] for place in (0, 2)] == ["drinks", "food"]
    assert 0 <= answers[0]["suggestions"][0]["probability"] <= 1
    assert "1 of 3 rows without text got no tags" in lines.stderr

    rows = ok("predict", tagger, rows_file, "--id", "id", "--threshold", "calibrated")
    truth = {row["id"]: set(row["labels"]) for row in some_rows()}
    right = 0
    for line in rows.stdout.splitlines():
        row_id, *tags = line.split("\t")
        right += {tag.split(" ")[0] for tag in tags} == truth[row_id]
    assert right >= 70
    assert len(rows.stdout.splitlines()) == 80


def test_predict_for_a_purpose(tagger, rows_file, tmp_path):
    """The choice is that of the library for all rows together, though the command reads blocks of rows."""
    texts = [row["text"] for row in some_rows()]
    write_jsonl(tmp_path / "many.jsonl", [{"text": text} for text in texts * 10])
    answers = ok("predict", tagger, tmp_path / "many.jsonl", "--optimise", "macro_f1", "--top", "1", "--json")
    expected = load(tagger).suggest(texts * 10, top=1, optimise="macro_f1")
    found = [json.loads(line)["suggestions"][0]["tag"] for line in answers.stdout.splitlines()]
    assert found == [suggestion.tag for (suggestion,) in expected]
    assert failed(run("predict", tagger, "-", "--optimise", "macro_f1", "--line-by-line"), 2, "all rows together")
    ok("train", rows_file, "--out", tmp_path / "m", "--model", "binary-relevance")
    refused = run("predict", tmp_path / "m", "the dog", "--optimise", "psp")
    assert failed(refused, 1, "optimise needs probabilities, but the scores of BinaryRelevance are not", "--validation")


def test_a_cascade_predicts_probabilities_without_validation_rows(rows_file, tmp_path):
    ok("train", rows_file, "--out", tmp_path / "m")
    found = run("predict", tmp_path / "m", "the dog and the cat", "--json", "--min-probability", "0.5")
    assert [suggestion["tag"] for suggestion in json.loads(found.stdout)["suggestions"]] == ["pets"]
    probability = json.loads(found.stdout)["suggestions"][0]["probability"]
    assert f"pets {100 * probability:.0f}%" in run("predict", tmp_path / "m", "the dog and the cat").stdout
    assert f"probability {100 * probability:.0f}%" in run("explain", tmp_path / "m", "the dog and the cat").stdout
    assert "Not calibrated: probabilities of its own, no thresholds" in run("inspect", tmp_path / "m").stdout
    refused = run("predict", tmp_path / "m", "the dog", "--threshold", "calibrated")
    assert failed(refused, 1, "needs a calibrated tagger", "tagwise train --validation")


def test_a_vocabulary_names_tags_and_adds_new_ones(rows_file, tmp_path):
    vocabulary = tmp_path / "tags.tsv"
    vocabulary.write_text("pets\tdog\ncheeses\tcheese\ndrinks\n")
    trained = ok("train", rows_file, "--vocabulary", vocabulary, "--out", tmp_path / "m")
    assert "Learnt from the names of 2 tags.\n1 tag of the vocabulary that no row has.\n" in trained.stdout
    assert load(tmp_path / "m").vocabulary == {"pets": "dog", "cheeses": "cheese", "drinks": "drinks"}
    assert json.loads(run("inspect", tmp_path / "m", "--json").stdout)["frequencies"][0] == {"rows": "0", "tags": 1}

    rows = [{**row, "labels": [*row["labels"], "cheeses", "other"]} for row in some_rows() if "cheese" in row["text"]]
    test = write_jsonl(tmp_path / "test.jsonl", rows)
    shown = run("evaluate", tmp_path / "m", test)
    assert f"{len(rows)} rows have 1 tag of the vocabulary that no training row has: new-R@1 " in shown.stdout
    found = json.loads(run("evaluate", tmp_path / "m", test, "--json", "--k", "5").stdout)
    assert found["new_tags"] == {"cheeses": len(rows)}
    assert found["rows_with_new_tags"] == len(rows)
    assert found["unseen_tags"] == {"other": len(rows)}
    assert 0 <= found["metrics"]["new-R@5"] <= 1
    models = ("--model", "binary-relevance", "--model", "cascade")
    compared = ok("compare", rows_file, "--test", test, "--vocabulary", vocabulary, *models)
    assert "new-R@5" in compared.stdout

    vocabulary.write_text("a\na\n")
    refused = run("train", rows_file, "--vocabulary", vocabulary, "--out", tmp_path / "n")
    assert failed(refused, 1, "tags.tsv, line 2: the tag 'a' occurred before")


def test_an_empty_text_gets_no_tags(tagger):
    for text in ("", "  "):
        result = ok("predict", tagger, text, "--json")
        assert json.loads(result.stdout) == {"suggestions": []}
        assert result.stderr == "warning: the text is empty: it gets no tags.\n"


def test_output_that_has_no_bytes_for_a_character(tmp_path):
    rows = [{"text": f"the {word}", "tags": [tag]} for word, tag in (("dog", "töl"), ("wine", "питьё"))] * 5
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    ok("train", path, "--out", tmp_path / "m", "--model", "binary-relevance")
    plain = ok("predict", tmp_path / "m", "the wine", encoding="latin-1")
    assert plain.stdout.startswith(r"\u043f\u0438\u0442\u044c\u0451 ")
    found = run("predict", tmp_path / "m", "the dog", "--json", encoding="latin-1")
    assert found.stdout.isascii()
    assert json.loads(found.stdout)["suggestions"][0]["tag"] == "töl"


def test_predict_answers_line_by_line_through_a_pipe(tagger):
    options = ["--line-by-line", "--top", "1", "--format", "jsonl", "--json"]
    with subprocess.Popen(
        [*COMMAND, "predict", str(tagger), "-", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        for tag in ("pets", "garden"):
            process.stdin.write(json.dumps({"text": " ".join(WORDS[tag])}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["suggestions"][0]["tag"] == tag
        process.stdin.close()
        assert process.wait(timeout=600) == 0


def test_predict_ends_quietly_when_its_reader_goes_away(tagger, tmp_path):
    path = tmp_path / "many.txt"
    path.write_text("a dog\n" * 50_000)
    with subprocess.Popen(
        [*COMMAND, "predict", str(tagger), str(path)],
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
    result = ok("evaluate", tagger, path, "--json")
    found = json.loads(result.stdout)
    assert found["rows"] == 40
    assert found["metrics"]["P@1"] >= 0.95
    assert {"nDCG@5", "PSP@5", "micro-F1", "macro-F1", "example-F1"} <= set(found["metrics"])
    assert found["decided_by"] == "calibrated thresholds"
    assert found["unseen_tags"] == {"space travel": 1}
    assert "counted as missed: 1 tag not seen in training, 1 time: 'space travel' (1)." in result.stderr
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
    assert failed(run("inspect", tagger, "--tag", "pet"), 1, "is not one of the 4 tags", "Did you mean 'pets'?")


def test_explain_adds_up_to_the_score(tagger):
    result = ok("explain", tagger, "the dog drinks wine", "--tag", "pets", "--tag", "drinks", "--words", "1", "--json")
    for tag, word in zip(json.loads(result.stdout)["tags"], ("dog", "wine")):
        assert [part["word"] for part in tag["words"]] == [word]
        total = tag["intercept"] + tag["words"][0]["contribution"] + tag["others"]
        assert total == pytest.approx(tag["score"], abs=1e-5)
    people = run("explain", tagger, "-", stdin="the dog\n")
    assert "dog" in people.stdout
    assert re.search(r"base rate, without any word +[-+][0-9.]+\n", people.stdout)
    assert failed(run("explain", tagger, "dog", "--tag", "cars"), 1, "--tag 'cars' is not one of the 4")


def test_words_that_say_next_to_nothing_are_shown_together(tmp_path):
    """Where one word decides and sixty do nearly nothing, only the one is worth a line."""
    rng = random.Random(0)
    noise = [f"noise{number}" for number in range(60)]
    rows = [{"text": f"{'dog' if n % 2 else 'wine'} {' '.join(noise)}", "labels": ["ab"[n % 2]]} for n in range(80)]
    rng.shuffle(rows)
    model = tmp_path / "m"
    ok("train", write_jsonl(tmp_path / "rows.jsonl", rows), "--out", model, "--model", "binary-relevance")
    text = " ".join(["dog", *noise])
    (tag,) = json.loads(run("explain", model, text, "--tag", "b", "--words", "100", "--json").stdout)["tags"]
    assert tag["words"][0]["word"] == "dog"
    assert all(abs(word["share"]) >= 0.005 for word in tag["words"])
    assert len(tag["words"]) + tag["other_words"] == 61
    parts = [word["contribution"] for word in tag["words"]]
    assert sum(parts) + tag["others"] + tag["intercept"] == pytest.approx(tag["score"], abs=1e-5)
    shown = run("predict", model, text, "--explain", "100").stdout
    assert "+0%" not in shown
    assert "-0%" not in shown


def test_a_kernel_has_no_explanations_and_says_so(tmp_path, rows_file):
    model, settings = tmp_path / "m", ("--set", "kernel=rbf", "--set", "rank=3", "--set", "early_stopping=true")
    ok("train", rows_file, "--out", model, "--model", "leml", *settings)
    assert failed(run("explain", model, "the dog"), 1, "LEML with a kernel has no exact explanations")
    assert failed(run("predict", model, "the dog", "--explain", "2"), 1, "has no exact explanations")
    assert "has no exact explanations" in run("inspect", model, "--tag", "pets").stdout
    assert "nDCG@5, %, rare tags kept in training" in run("inspect", model).stdout
    refused = run("train", rows_file, "--out", tmp_path / "n", "--model", "cascade", "--set", "C=much")
    assert failed(refused, 1, "C must be")


def test_a_matrix_gives_a_plain_model(tmp_path, rows_file):
    ok("convert", rows_file, tmp_path / "X.npz")
    ok("train", tmp_path / "X.npz", "--out", tmp_path / "cascade")
    found = run("predict", tmp_path / "cascade", tmp_path / "X.npz", "--json", "--min-probability", "0.5")
    answers = [json.loads(line)["suggestions"] for line in found.stdout.splitlines()]
    assert sum(bool(row) for row in answers) > 70
    assert answers[0][0]["probability"] == pytest.approx(answers[0][0]["score"] + 0.5)
    for option in (["--vocabulary", rows_file], ["--bigrams"], ["--validation", "0.2"], ["--embedder", "static"]):
        refused = run("train", tmp_path / "X.npz", *option, "--out", tmp_path / "n")
        assert failed(refused, 2, f"{option[0]} is for texts, but {tmp_path / 'X.npz'} holds a matrix")
    trained = ok("train", tmp_path / "X.npz", "--out", tmp_path / "m", "--model", "leml", "--set", "rank=3", "--json")
    assert f"labels from {tmp_path / 'Y.npz'} (guessed)" in trained.stderr
    found = run("evaluate", tmp_path / "m", tmp_path / "X.npz", "--json")
    assert json.loads(found.stdout)["metrics"]["P@1"] >= 0.95
    answers = run("predict", tmp_path / "m", tmp_path / "X.npz", "--top", "1")
    assert len(answers.stdout.splitlines()) == 80
    (tmp_path / "Y.npz").unlink()  # who asks for labels has none
    assert run("predict", tmp_path / "m", tmp_path / "X.npz", "--top", "1").stdout == answers.stdout
    assert failed(run("evaluate", tmp_path / "m", tmp_path / "X.npz"), 1, "name the .npz file of the labels")
    assert failed(run("predict", tmp_path / "m", "a dog"), 1, "knows no words")
    assert failed(run("evaluate", tmp_path / "m", rows_file), 1, "knows no words")


def test_known_tags_are_learnt_from_and_the_rest_is_unknown(tmp_path):
    path = tmp_path / "checked.csv"
    lines, pairs = ["text,tags,looked_at"], 0
    for row in some_rows():
        looked_at = "*" if row["year"] % 2 else "pets|food"
        pairs += 4 if row["year"] % 2 else len({"pets", "food", *row["labels"]})
        lines.append(f"{row['text']},{'|'.join(row['labels'])},{looked_at}")
    path.write_text("\n".join(lines) + "\n")
    options = ("--known", "looked_at", "--model", "binary-relevance", "--quiet", "--out")
    result = run("train", path, *options, tmp_path / "m")
    assert f"{pairs:,} pairs of row and tag are known" in result.stdout
    rows = write_jsonl(tmp_path / "rows.jsonl", [{**row, "looked_at": []} for row in some_rows()])
    result = run("train", rows, *options, tmp_path / "n")
    assert result.stderr.count("contains no negatives") == 1
    assert "--unlisted unknown" in result.stderr
    measured = run("evaluate", tmp_path / "n", rows, "--known", "looked_at")
    assert "the figures are meaningless; leave known out" in measured.stderr


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
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_interrupts
    )


def _heed_interrupts():
    # Tests that run in the background of a shell ignore Ctrl-C, and so would what they start.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@needs_signals
def test_a_killed_training_goes_on_to_the_same_bits(tmp_path, sample_file):
    arguments = ["train", sample_file, *LONG_FIT, "--set", "max_iter=30"]
    whole = ok(*arguments, "--out", tmp_path / "whole", "--quiet")
    with start(*arguments, "--out", tmp_path / "cut", "--checkpoint-every", "1") as process:
        for line in process.stderr:
            if "iteration 5/" in line:
                process.kill()
                break
        process.wait(timeout=600)
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "cut").exists()
    again = run(*arguments, "--out", tmp_path / "cut", "--checkpoint-every", "1")
    assert failed(again, 1, "holds the state of an earlier run; pass --resume to continue it")
    resumed = ok(*arguments, "--out", tmp_path / "cut", "--resume")
    assert "resumes from the checkpoint" in resumed.stderr
    assert "iteration 1/" not in resumed.stderr
    assert not (tmp_path / "cut.checkpoint").exists()
    # Named by the digest of what they hold.
    (whole,), (cut,) = (list((tmp_path / name).glob("*.safetensors")) for name in ("whole", "cut"))
    assert whole.name == cut.name


@needs_signals
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
    assert "add --resume to the same command" in said
    assert "Traceback" not in said
    assert os.listdir(tmp_path) == ["m.checkpoint"]
