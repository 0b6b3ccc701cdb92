"""What people get wrong: a sentence that says what to do, the right exit code, and nothing overwritten or lost."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import failed, run, some_rows, write_jsonl
from systems import needs_limits


def train(path, out, *more):
    return run("train", path, "--out", out, "--model", "binary-relevance", *more)


def content(folder):
    """Every file of a folder with its bytes."""
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


@pytest.mark.parametrize("name", ["empty.jsonl", "empty.csv", "only-header.csv"])
def test_an_empty_file(tmp_path, name):
    path = tmp_path / name
    path.write_text("text,tags\n" if name.startswith("only") else "")
    result = train(path, tmp_path / "m")
    assert failed(result, 1, str(path), "the file is empty" if name == "empty.csv" else "the file holds no rows")
    assert not (tmp_path / "m").exists()


def test_a_file_that_is_not_there(tmp_path, tagger):
    assert failed(train(tmp_path / "no.csv", tmp_path / "m"), 1, f"{tmp_path / 'no.csv'}: No such file or directory.")
    assert failed(run("predict", tagger, "articels.csv"), 2, "looks like a file name, but there is no such file")
    assert failed(run("predict", tmp_path / "no-model", "a dog"), 1, "does not exist")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows.json", '[{"text": "a dog", "tags": ["pets"]}]', "holds one JSON list"),
        ("rows.xlsx", "PK", "is a spreadsheet, which tagwise does not read; save it as CSV"),
        ("rows.txt", "a dog", "is read as one text per line, without tags"),
        ("rows.dat", "a dog", "does not tell what the file holds; name the format with --format"),
    ],
)
def test_a_file_of_another_kind(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    assert failed(train(tmp_path / name, tmp_path / "m"), 1, str(tmp_path / name), words)
    assert os.listdir(tmp_path) == [name]


def test_a_folder_in_the_place_of_a_file(tmp_path, tagger):
    assert failed(train(tmp_path, tmp_path / "m"), 1, f"{tmp_path} is a folder; name a file")
    assert failed(run("predict", tagger, tmp_path), 1, f"{tmp_path} is a folder; name a file")


def test_a_missing_column(tmp_path, rows_file):
    assert failed(
        train(rows_file, tmp_path / "m", "--text", "body"),
        1,
        "line 1: the column 'body' is missing (--text); columns found: 'id', 'text', 'labels', 'year'",
    )
    path = tmp_path / "odd.csv"
    path.write_text("text,things\na dog,pets\n")
    assert failed(train(path, tmp_path / "m"), 1, "no column looks like one of tags; name it with --tags")
    assert not (tmp_path / "m").exists()


def test_a_field_that_one_row_lacks_names_its_line(tmp_path):
    rows = some_rows(10)
    del rows[6]["labels"]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    assert failed(train(path, tmp_path / "m"), 1, "line 7: the column 'labels' is missing")


def test_tags_that_are_no_list(tmp_path):
    rows = [{"text": "a dog", "tags": "pets;home"}, {"text": "wine", "tags": "drinks"}] * 10
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    result = train(path, tmp_path / "m")
    assert failed(result, 1, "line 1: the column 'tags' must be a list of strings; found a string, 'pets;home'")
    assert "--tag-separator" in result.stderr
    assert train(path, tmp_path / "m", "--tag-separator", ";").returncode == 0
    number = write_jsonl(tmp_path / "numbers.jsonl", [{"text": "a dog", "tags": 3}])
    assert failed(train(number, tmp_path / "n"), 1, "must be a list of strings; found a number")


def test_bytes_that_are_no_utf_8(tmp_path, tagger):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"text,tags\na dog,pets\ncaf\xe9,drinks\n")
    result = train(path, tmp_path / "m")
    assert failed(result, 1, "line 3, column 4: byte 0xe9 is not valid UTF-8; the file may be in cp1252")
    assert failed(result, 1, "if so, pass --encoding cp1252")
    assert failed(train(path, tmp_path / "m", "--encoding", "foo"), 1, "--encoding: 'foo' is not the name of one")
    names = write_jsonl(tmp_path / "names.jsonl", [{"id": "pets", "label_fi": "eläimet"}])
    result = train(path, tmp_path / "m", "--encoding", "cp1252", "--vocabulary", names, "--language", "sv")
    assert failed(result, 1, "(--language): the vocabulary has no names in 'sv'; it has fi.")
    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"a dog\ncaf\xe9\na cat\n")
    assert failed(run("predict", tagger, lines), 1, "line 2", "not valid UTF-8")
    skipped = run("predict", tagger, lines, "--skip-faulty", "--json")
    assert skipped.returncode == 0
    assert [line[:10] for line in skipped.stdout.splitlines()] == ['{"line": 1', '{"line": 3']
    assert "skipped 1 faulty row; the first: " in skipped.stderr


@pytest.mark.parametrize("empty", ["", "  ", None])
def test_a_row_without_text(tmp_path, empty):
    rows = some_rows(40)
    rows[4]["text"] = empty
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    assert failed(train(path, tmp_path / "m"), 1, "line 5: the row has no text", "--skip-faulty")
    result = train(path, tmp_path / "m", "--skip-faulty")
    assert result.returncode == 0, result.stderr
    assert "left out: 1 faulty row; the first: " in result.stderr
    assert "Trained on 39 rows" in result.stdout


def test_rows_that_repeat_others(tmp_path):
    rows = some_rows(40)
    path = write_jsonl(tmp_path / "rows.jsonl", rows + rows[:3])
    result = train(path, tmp_path / "m")
    assert result.returncode == 0, result.stderr
    assert "warning: 3 of 43 rows repeat an earlier row, text and tags alike; each counts." in result.stderr
    assert "Trained on 43 rows" in result.stdout
    named = train(path, tmp_path / "n", "--id", "id")
    assert failed(named, 1, "line 41: the identifier 'r0' is also that of line 1; identifiers must differ")


def test_one_tag_only(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", [{"text": f"text {place}", "tags": ["x"]} for place in range(9)])
    result = train(path, tmp_path / "m")
    assert failed(result, 1, "there is only one tag, 'x', in all 9 rows: every text would get it")
    none = write_jsonl(tmp_path / "none.jsonl", [{"text": "some text", "tags": []}] * 4)
    assert failed(train(none, tmp_path / "m"), 1, "tags holds no tag in any of the 4 rows")


def test_empty_and_repeated_tags_are_reported(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text,tags\n" + "the dog,pets;\nthe wine,drinks;food\nthe cat,pets;pets\n" * 5)
    result = train(path, tmp_path / "m", "--quiet")
    assert result.returncode == 0, result.stderr
    assert "warning: 5 rows with an empty tag, as in 'a;;b'; it is ignored." in result.stderr
    assert "warning: 5 rows with a repeated tag; it counts once." in result.stderr
    assert "3 tags" in result.stdout


def test_validation_rows_that_teach_nothing_do_not_lose_the_tagger(tmp_path):
    # The rows that are drawn have no tags, or such as training then lacks.
    rows = [{"text": "the dog", "tags": ["pets"]}, {"text": "the wine", "tags": ["drinks"]}]
    rows += [{"text": f"the rest {place}", "tags": []} for place in range(8)]
    result = train(write_jsonl(tmp_path / "rows.jsonl", rows), tmp_path / "m", "--validation", "0.3")
    assert result.returncode == 0, result.stderr
    assert "warning: the tagger is not calibrated: " in result.stderr
    assert "On 3 validation rows drawn at random: P@1 0.0%" in result.stdout
    assert run("predict", tmp_path / "m", "the dog").returncode == 0


def test_a_tag_that_training_never_saw_is_counted(tmp_path, tagger):
    rows = [{"text": "a dog", "tags": ["pets", "space"]}, {"text": "wine", "tags": ["space"]}]
    result = run("evaluate", tagger, write_jsonl(tmp_path / "rows.jsonl", rows))
    assert result.returncode == 0, result.stderr
    assert "warning: counted as missed: 1 tag that training never saw, 2 times: 'space' (2)." in result.stderr


def test_an_output_folder_that_exists(tmp_path, rows_file, tagger):
    model = tmp_path / "model"
    shutil.copytree(tagger, model)
    before = content(model)
    assert failed(train(rows_file, model), 1, "already holds a model", "pass --overwrite to replace it")
    assert content(model) == before
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letters.txt").write_text("dear")
    assert failed(
        train(rows_file, mine, "--overwrite"), 1, "holds 'letters.txt' and no model of tagwise; choose an empty or new"
    )
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
    assert failed(run("train", rows_file), 2, "Missing option '--out'")
    assert failed(run("train", rows_file, "--out", tmp_path / "m", "--set", "rank=3"), 2, "--model auto may pick any")
    assert failed(run("predict", tagger, "a dog", "--threshold", "high"), 2, 'must be a number or "calibrated"')
    assert failed(train(rows_file, tmp_path / "m", "--validation", "2"), 2, "--validation")
    report = train(rows_file, tmp_path / "m", "--report", tmp_path / "out.html")
    assert failed(report, 2, "--report needs rows that the tagger was not trained on", "--test", "--validation")
    unknown = run("train", rows_file, "--out", tmp_path / "m", "--model", "magic")
    assert failed(unknown, 1, "model must be auto or one of ")
