"""Mistakes of people: a sentence that says what to do, the right exit code, and nothing overwritten or lost."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import failed, ok, run, some_rows, write_jsonl
from systems import needs_limits


def train(path, out, *more):
    return run("train", path, "--out", out, "--model", "binary-relevance", *more)


def content(folder):
    """Every file of a folder with its bytes."""
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


# Name, content, words of the error, options: nothing is trained. Further faults are those of tests/data.
DOG = "text,tags\na dog,pets\n"
FAULTY = [
    ("empty.csv", "", "the file is empty"),
    ("rows.txt", "a dog", "is read as one text per line, without tags"),
    ("rows.dat", "a dog", "is not a known format; name the format with --format"),
    ("odd.csv", "text,things\na dog,pets\n", "no column looks like one of tags; name it with --tags"),
    ("rows.csv", DOG, "the column 'body' is missing (--text); columns found: 'text', 'tags'", "--text", "body"),
    ("rows.jsonl", '{"text": "a dog", "tags": ["pets"]}\n{"text": "a cat"}\n', "line 2: the column 'tags' is missing"),
    (
        "rows.jsonl",
        '{"text": "a dog", "tags": "pets;home"}\n' * 10,
        ("line 1: the column 'tags' must be a list of strings; found a string, 'pets;home'", "--tag-separator"),
    ),
    ("rows.jsonl", '{"text": " ", "tags": ["pets"]}\n', ("line 1: the row has no text", "--skip-faulty")),
    (
        "rows.csv",
        b"text,tags\na dog,pets\ncaf\xe9,drinks\n",
        ("line 3, column 4: byte 0xe9 is not valid UTF-8; the file may be in cp1252", "pass --encoding cp1252"),
    ),
    ("rows.csv", DOG, "--encoding: 'foo' is not the name of one", "--encoding", "foo"),
    (
        "rows.jsonl",
        '{"id": 1, "text": "a dog", "tags": ["pets"]}\n' * 2,
        "line 2: the identifier '1' is also that of line 1; identifiers must differ",
        "--id",
        "id",
    ),
    (
        "rows.jsonl",
        '{"text": "a dog", "tags": ["x"]}\n' * 9,
        "there is only one tag, 'x', in all 9 rows: every text would get it",
    ),
    ("rows.jsonl", '{"text": "a dog", "tags": []}\n' * 4, "tags holds no tag in any of the 4 rows"),
]


def test_faulty_files(tmp_path):
    for number, (name, written, words, *options) in enumerate(FAULTY):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / name).write_bytes(written if isinstance(written, bytes) else written.encode())
        words = [words] if isinstance(words, str) else words
        assert failed(train(folder / name, folder / "m", *options), 1, *words)
        assert os.listdir(folder) == [name]


def test_names_of_files_and_folders(tmp_path, tagger, rows_file):
    assert failed(train(tmp_path / "no.csv", tmp_path / "m"), 1, f"{tmp_path / 'no.csv'}: No such file or directory.")
    assert failed(run("predict", tagger, "articels.csv"), 2, "looks like a file name, but there is no such file")
    assert failed(run("predict", tmp_path / "no-model", "a dog"), 1, "does not exist")
    assert failed(train(tmp_path, tmp_path / "m"), 1, f"{tmp_path} is a folder; name a file")
    assert failed(run("predict", tagger, tmp_path), 1, f"{tmp_path} is a folder; name a file")
    names = write_jsonl(tmp_path / "names.jsonl", [{"id": "pets", "label_fi": "eläimet"}])
    result = train(rows_file, tmp_path / "m", "--vocabulary", names, "--language", "sv")
    assert failed(result, 1, "(--language): the vocabulary has no names in 'sv'; it has fi.")


def test_faulty_rows_are_skipped_on_demand(tmp_path, tagger):
    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"a dog\ncaf\xe9\na cat\n")
    assert failed(run("predict", tagger, lines), 1, "line 2", "not valid UTF-8")
    skipped = run("predict", tagger, lines, "--skip-faulty", "--json")
    assert [line[:10] for line in skipped.stdout.splitlines()] == ['{"line": 1', '{"line": 3']
    assert "skipped 1 faulty row; the first: " in skipped.stderr


def test_odd_rows_are_reported(tmp_path):
    rows = some_rows(40)
    result = train(write_jsonl(tmp_path / "rows.jsonl", rows + rows[:3]), tmp_path / "m")
    assert "warning: 3 of 43 rows repeat an earlier row, text and tags alike; each counts." in result.stderr
    assert "Trained on 43 rows" in result.stdout
    path = tmp_path / "rows.csv"
    path.write_text("text,tags\n" + "the dog,pets;\nthe wine,drinks;food\nthe cat,pets;pets\n" * 5)
    result = train(path, tmp_path / "n", "--quiet")
    assert "warning: 5 rows with an empty tag, as in 'a;;b'; it is ignored." in result.stderr
    assert "warning: 5 rows with a repeated tag; it counts once." in result.stderr
    assert "3 tags" in result.stdout


def test_validation_rows_that_teach_nothing_do_not_lose_the_tagger(tmp_path):
    # The rows that are drawn have no tags, or such as training then lacks.
    rows = [{"text": "the dog", "tags": ["pets"]}, {"text": "the wine", "tags": ["drinks"]}]
    rows += [{"text": f"the rest {place}", "tags": []} for place in range(8)]
    result = train(write_jsonl(tmp_path / "rows.jsonl", rows), tmp_path / "m", "--validation", "0.3")
    assert "warning: the tagger is not calibrated: " in result.stderr
    assert "On 3 validation rows drawn at random: P@1 0.0%" in result.stdout
    ok("predict", tmp_path / "m", "the dog")


def test_an_output_folder_that_exists(tmp_path, rows_file, tagger):
    model = tmp_path / "model"
    shutil.copytree(tagger, model)
    before = content(model)
    assert failed(train(rows_file, model), 1, "already holds a model", "pass --overwrite to replace it")
    assert content(model) == before
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letters.txt").write_text("dear")
    refused = train(rows_file, mine, "--overwrite")
    assert failed(refused, 1, "holds 'letters.txt' and no model of tagwise; choose an empty or new")
    assert content(mine) == {"letters.txt": b"dear"}
    assert failed(train(rows_file, mine / "letters.txt"), 1, "is a file; choose another path")
    inside = train(rows_file, rows_file / "m")
    assert failed(inside, 1, f"since {rows_file} is a file; choose another path")
    assert "iteration" not in inside.stderr
    assert train(rows_file, model, "--overwrite", "--quiet").returncode == 0
    assert content(model) != before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="a superuser may write anywhere")
def test_an_output_folder_that_may_not_be_written_is_refused_before_the_fit(tmp_path, rows_file):
    (tmp_path / "closed").mkdir(mode=0o500)
    result = train(rows_file, tmp_path / "closed" / "m")
    assert failed(result, 1, "may not be written to")
    assert "iteration" not in result.stderr


@contextmanager
def small_files_only():
    """As on a full disk: no file can grow beyond this."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@needs_limits
def test_a_disk_that_is_full_while_saving(tmp_path, rows_file, tagger):
    model = tmp_path / "model"
    shutil.copytree(tagger, model)
    before = content(model)
    with small_files_only():
        full, new = train(rows_file, model, "--overwrite"), train(rows_file, tmp_path / "new")
    assert failed(full, 1, str(model), "The model could not be saved: File too large", "still holds a whole one")
    assert content(model) == before
    assert failed(new, 1, "The model could not be saved")
    assert not (tmp_path / "new").exists()


def test_calls_that_make_no_sense_are_2(tmp_path, rows_file, tagger):
    to = ("--out", tmp_path / "m")
    for arguments, words in (
        (("train", rows_file), ["Missing option '--out'"]),
        (("train", rows_file, *to, "--set", "rank=3"), ["--model auto may pick any"]),
        (("predict", tagger, "a dog", "--threshold", "high"), ['must be a number or "calibrated"']),
        (("train", rows_file, *to, "--validation", "2"), ["--validation"]),
        (
            ("train", rows_file, *to, "--report", tmp_path / "out.html"),
            ["--report needs rows that the tagger was not trained on", "--test", "--validation"],
        ),
    ):
        assert failed(run(*arguments), 2, *words)
    assert failed(run("train", rows_file, *to, "--model", "magic"), 1, "model must be auto or one of ")
