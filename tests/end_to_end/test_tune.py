"""``tagwise tune`` through the command: the result, kill and go on, and what is refused."""

import json
import os
import shlex
import signal
import subprocess
import time

import pytest
from commands import COMMAND, failed, ok, run, some_rows, write_jsonl
from systems import needs_signals

OPTIONS = ("--model", "leml", "--budget", "2", "--min-rows", "20", "--validation", "0.25", "--jobs", "1")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A search that nothing interrupted: its folder, file and output."""
    folder = tmp_path_factory.mktemp("tune")
    rows = write_jsonl(folder / "rows.jsonl", some_rows(120, seed=2))
    result = ok("tune", rows, *OPTIONS, "--out", folder / "whole.json")
    return folder, rows, result


def untimed(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    return [{key: value for key, value in trial.items() if key != "seconds"} for trial in content["trials"]]


def test_the_best_settings_and_the_command_to_train_with_them(finished, monkeypatch):
    folder, rows, result = finished
    content = json.loads((folder / "whole.json").read_text(encoding="utf-8"))
    assert content["finished"]
    assert {trial["rung"] for trial in content["trials"]} == {0, 1}
    finals = [trial["score"] for trial in content["trials"] if trial["rung"] == 1]
    assert content["result"]["score"] == max(finals)
    command = next(line for line in result.stdout.splitlines() if line.startswith("Train with: "))
    words = shlex.split(command.removeprefix("Train with: "))
    assert words[:3] == ["tagwise", "train", str(rows)]
    monkeypatch.chdir(folder)
    ok(*words[1:])
    manifest = json.loads((folder / "model" / "manifest.json").read_text(encoding="utf-8"))
    text = json.dumps(manifest)
    for name, value in content["result"]["settings"].items():
        assert f'"{name}": {json.dumps(value)}' in text


@needs_signals
def test_a_killed_search_goes_on_and_ends_the_same(finished, tmp_path):
    folder, rows, _ = finished
    out = tmp_path / "killed.json"
    arguments = [*COMMAND, "tune", str(rows), *OPTIONS, "--out", str(out)]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 300
    while not out.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = len(untimed(out))
    assert done >= 1
    again = ok("tune", rows, *OPTIONS, "--out", out, "--json", "--quiet")
    assert json.loads(again.stdout)["resumed"] == done
    assert untimed(out) == untimed(folder / "whole.json")


def test_what_cannot_be_searched_is_refused(finished, tmp_path):
    folder, rows, _ = finished
    before = (folder / "whole.json").read_bytes()
    for more, words in (
        ((*OPTIONS, "--seed", "1", "--out", folder / "whole.json"), "holds another search"),
        ((*OPTIONS, "--out", tmp_path / "no" / "x.json"), "does not exist"),
        (("--model", "lemon", "--out", tmp_path / "x.json"), "model must be auto"),
        (("--metric", "best", "--out", tmp_path / "x.json"), "metric must be one of"),
    ):
        assert failed(run("tune", rows, *more), 1, words)
    assert (folder / "whole.json").read_bytes() == before
    assert not list(tmp_path.iterdir())


def test_tags_are_read_as_by_train(tmp_path):
    """Several columns, ways of writing, a vocabulary and what is not listed: all are in the command to train with."""
    rows = some_rows(100, seed=5)
    for number, row in enumerate(rows):
        row["labels"] = [tag.upper() if number % 4 == 0 else tag for tag in row["labels"]]
        row["more"], row["title"] = [], None
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    vocabulary = tmp_path / "tags.tsv"
    vocabulary.write_text("pets\tcat and dog\tfur\ngarden\nchess\tthe game of chess\n")
    columns = ["--text", "title", "--text", "text", "--tags", "labels", "--tags", "more"]
    tags = ["--vocabulary", vocabulary, "--normalise-tags", "--unlisted", "unknown"]
    search = ("--model", "binary-relevance", "--budget", "1", "--min-rows", "20", "--jobs", "1")
    result = ok("tune", path, *search, *columns, *tags, "--out", tmp_path / "best.json", "--json")
    found = json.loads(result.stdout)
    words = shlex.split(found["command"])
    for option in (*columns, *map(str, tags)):
        assert option in words
    assert words.count("--text") == words.count("--tags") == 2
    assert json.loads((tmp_path / "best.json").read_text())["search"]["parameters"]["unlisted"] == "unknown"
    again = run("tune", path, *search, *columns, "--out", tmp_path / "best.json")
    assert failed(again, 1, "another search")
    known = run("tune", path, "--known", "more", "--unlisted", "unknown", "--out", tmp_path / "other.json")
    assert failed(known, 2, "--known (which tags were checked) and")
