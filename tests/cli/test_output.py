"""Output to a terminal, a pipe and a program when names come from strangers."""

import json
import os
import sys

import pytest
from commands import failed, ok, on_terminal, run, some_rows, write_jsonl

TITLE = "\x1b]0;hacked\x07"  # sets the title of a terminal's window
ODD = {"pets": f"pets{TITLE}", "drinks": "dri\nnks", "food": "fo\u202eod\x00", "garden": "gar\tden"}
SHOWN = {r"pets\u001b]0;hacked\u0007", r"dri\nnks", r"fo\u202eod\u0000", r"gar\tden"}


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A tagger with tags that hold what a terminal heeds, as any folder may, and its rows."""
    folder = tmp_path_factory.mktemp("odd")
    rows = [
        {**row, "id": f"{row['id']}\t{TITLE}", "labels": [ODD[tag] for tag in row["labels"]]} for row in some_rows()
    ]
    path = write_jsonl(folder / "rows.jsonl", rows)
    ok("train", path, "--out", folder / "tagger", "--model", "binary-relevance")
    return folder / "tagger", path


def test_plain_answers_are_a_line_per_row_and_a_field_per_tag(odd):
    tagger, rows = odd
    text = run("predict", tagger, "dog and wine")
    assert {line.rpartition(" ")[0] for line in text.stdout.splitlines()} == SHOWN
    lines = run("predict", tagger, rows, "--id", "id").stdout.split("\n")
    assert len(lines) == 81
    for line in lines[:-1]:
        row, *tags = line.split("\t")
        assert row.endswith(r"\t\u001b]0;hacked\u0007")
        assert {tag.rpartition(" ")[0] for tag in tags} == SHOWN


def test_json_keeps_the_exact_tags_and_no_raw_control_character(odd):
    result = run("predict", odd[0], "dog", "--json")
    assert {found["tag"] for found in json.loads(result.stdout)["suggestions"]} == set(ODD.values())
    assert not set("\x1b\x07\x00\u202e") & set(result.stdout)


def test_other_verbs_show_no_raw_control_character(odd, tmp_path):
    # A tag of the other file is new, and named in a warning.
    other = write_jsonl(tmp_path / f"rows{TITLE}.jsonl", [{"text": "dog", "labels": [f"new{TITLE}\u202e"]}])
    for verb, *more in (
        ["inspect"],
        ["inspect", "--tag", ODD["pets"]],
        ["explain", "dog"],
        ["evaluate", other],
        ["evaluate", other, "--json"],
    ):
        result = ok(verb, odd[0], *more)
        assert not set("\x1b\x07\x00\u202e") & set(result.stdout + result.stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_table_on_a_terminal_shows_no_raw_control_character(odd):
    code, shown = on_terminal("inspect", odd[0], stdout_too=True)
    assert code == 0, shown
    assert "\x1b]0;" not in shown
    assert r"pets\u001b]0;hacked\u0007" in shown


def test_errors_name_files_visibly(tmp_path):
    result = run("inspect", f"{tmp_path}/no{TITLE}")
    assert failed(result, 1, r"no\u001b]0;hacked\u0007: the folder does not exist.")
    assert "\x1b" not in result.stderr
    usage = run("predict", "tagger", "dog", f"--{TITLE}")
    assert failed(usage, 2, "No such option", "]0;hacked")
    assert "\x1b" not in usage.stderr


LATIN = os.fsdecode(b"caf\xe9")  # as a file name in another encoding reaches Python


def test_names_and_arguments_that_are_no_utf_8(tmp_path, odd):
    tagger, rows = odd
    copy = tmp_path / f"{LATIN}.jsonl"
    copy.write_bytes(rows.read_bytes())
    folder, report = tmp_path / f"{LATIN}-model", tmp_path / f"{LATIN}.html"
    options = ("--model", "binary-relevance", "--validation", "0.25", "--report", report)
    result = ok("train", copy, "--out", folder, *options)
    assert r"caf\udce9-model" in result.stdout
    assert r"caf\udce9-model" in report.read_text(encoding="utf-8")
    found = run("train", copy, "--out", folder, *options[:2], "--json", "--quiet", "--overwrite")
    assert json.loads(found.stdout)["out"] == str(folder)
    ok("evaluate", folder, copy, "--report", report)
    assert json.loads(run("inspect", folder, "--json").stdout)["folder"] == str(folder)
    ok("predict", tagger, f"the dog {LATIN}")
    ok("explain", tagger, f"the dog {LATIN}", "--json")
    for option in ("--text", "--id"):
        assert failed(run("predict", tagger, copy, option, LATIN), 1, "is missing", "columns found: 'id', 'text'")


def test_identifiers_with_half_a_character(tmp_path, odd):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "dog", "id": "a\\ud800"}\n')
    assert failed(run("predict", odd[0], path, "--id", "id"), 1, "line 1", "half of a surrogate pair")
