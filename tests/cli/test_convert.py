"""``tagwise convert``: all formats, both ways; what cannot be kept is said or refused."""

import json

import numpy as np
import pytest
from commands import some_rows, write_jsonl

from tagwise import data
from tagwise.cli.main import tagwise


@pytest.fixture
def convert(capsys):
    """Runs the verb; gives back what it said."""

    def convert(*arguments):
        tagwise.main(["convert", *map(str, arguments)], standalone_mode=False)
        return capsys.readouterr().err

    return convert


@pytest.fixture
def rows_file(tmp_path):
    return write_jsonl(tmp_path / "rows.jsonl", some_rows(20))


def objects(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "jsonl.bz2"])
def test_texts_and_all_columns_survive_the_way_there_and_back(convert, tmp_path, ending):
    rows = some_rows(20)
    rows[3] |= {"text": 'a "quoted", text\nof two lines\tand a tab', "labels": []}
    source = write_jsonl(tmp_path / "rows.jsonl", rows)
    said = convert(source, tmp_path / f"there.{ending}")
    assert "20 rows" in said
    convert(tmp_path / f"there.{ending}", tmp_path / "back.jsonl")
    back = objects(tmp_path / "back.jsonl")
    if "jsonl" not in ending:
        assert "values of 'year' that are not text were written as JSON" in said
        rows = [{**row, "year": str(row["year"])} for row in rows]
    assert back == rows


def test_known_tags_survive(convert, tmp_path):
    rows = [
        {"text": "a", "tags": ["x"], "known": ["x", "y"]},
        {"text": "b", "tags": [], "known": None},
        {"text": "c", "tags": ["y"], "known": []},
    ]
    source = write_jsonl(tmp_path / "rows.jsonl", rows)
    convert(source, tmp_path / "rows.csv", "--known", "known", "--tags", "tags")
    convert(tmp_path / "rows.csv", tmp_path / "back.jsonl", "--known", "known", "--tags", "tags")
    assert objects(tmp_path / "back.jsonl") == rows


def test_tags_that_a_separator_cannot_separate_are_refused(convert, tmp_path):
    source = write_jsonl(tmp_path / "rows.jsonl", [{"text": "a", "tags": ["x;y", "z"]}])
    with pytest.raises(ValueError, match="--out-separator ';' does not separate"):
        convert(source, tmp_path / "rows.csv")
    assert not (tmp_path / "rows.csv").exists()
    convert(source, tmp_path / "rows.csv", "--out-separator", "JSON")
    convert(tmp_path / "rows.csv", tmp_path / "back.jsonl")
    assert objects(tmp_path / "back.jsonl")[0]["tags"] == ["x;y", "z"]


def test_a_field_that_only_the_last_row_has_is_kept(convert, tmp_path):
    rows = [{"text": "a", "tags": ["x"]}] * 150 + [{"text": "b", "tags": ["x"], "note": "late"}]
    source = write_jsonl(tmp_path / "rows.jsonl", rows)
    convert(source, tmp_path / "rows.csv")
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert (lines[0], lines[1], lines[-1]) == ("text,tags,note", "a,x,", "b,x,late")


def test_matrices_keep_numbers_and_names_through_every_format(convert, tmp_path, rows_file):
    convert(rows_file, tmp_path / "a.xmc")
    for before, after in [("a.xmc", "b.arff"), ("b.arff", "c.svm"), ("c.svm", "X.npz"), ("X.npz", "d.xmc")]:
        said = convert(tmp_path / before, tmp_path / after)
        assert "20 rows" in said
    first, last = data.read_xmc(tmp_path / "a.xmc"), data.read_xmc(tmp_path / "d.xmc")
    assert (first.X != last.X).nnz == 0
    assert (first.Y != last.Y).nnz == 0
    for what in ("features", "labels"):
        names = [(tmp_path / f"{name}.{what}.txt").read_text() for name in ("a.xmc", "d.xmc")]
        assert names[0] == names[1]
        assert len(names[0].splitlines()) == (first.X if what == "features" else first.Y).shape[1]


def test_64_bit_numbers_of_text_formats_are_kept(convert, tmp_path):
    (tmp_path / "a.xmc").write_text("2 2 1\n0 0:0.1234567890123 1:1e-300\n 0:3\n")
    convert(tmp_path / "a.xmc", tmp_path / "b.svm")
    read = data.read_svmlight(tmp_path / "b.svm", dtype=np.float64)
    assert read.X.data.tolist() == [0.1234567890123, 1e-300, 3.0]


def test_texts_with_the_words_and_tags_of_a_tagger(convert, tmp_path, rows_file):
    from tagwise import Tagger

    rows = some_rows(40)
    tagger = Tagger("binary-relevance").fit([row["text"] for row in rows], [row["labels"] for row in rows])
    tagger.save(tmp_path / "tagger")
    other = [{"text": "dog and wine", "labels": ["pets", "cars"]}]
    said = convert(write_jsonl(tmp_path / "o.jsonl", other), tmp_path / "o.xmc", "--model", tmp_path / "tagger")
    assert "1 tag that" in said
    assert "'cars' (1)" in said
    read = data.read_xmc(tmp_path / "o.xmc")
    assert (read.X.shape[1], read.Y.shape[1]) == (len(tagger.features_.feature_names), 4)
    assert (tagger.features(["dog and wine"]) != read.X).nnz == 0


def test_what_has_no_place_is_refused_or_said(convert, tmp_path, rows_file):
    with pytest.raises(ValueError, match="--id: a matrix in xmc has no place for it"):
        convert(rows_file, tmp_path / "a.xmc", "--id", "id")
    said = convert(rows_file, tmp_path / "a.xmc")
    assert "the texts themselves and other columns are not in" in said
    with pytest.raises(ValueError, match="is a matrix, which has no texts"):
        convert(tmp_path / "a.xmc", tmp_path / "a.csv")
    assert "Columns without entries at the end are lost" in convert(tmp_path / "a.xmc", tmp_path / "a.svm")
    (tmp_path / "zeros.xmc").write_text("1 2 1\n0 0:0 1:2\n")
    assert "1 zeros that" in convert(tmp_path / "zeros.xmc", tmp_path / "zeros.arff")


def test_nothing_is_overwritten(convert, tmp_path, rows_file):
    target = tmp_path / "out.csv"
    target.write_text("mine")
    with pytest.raises(ValueError, match=r"out\.csv exists; name another file, or pass --overwrite"):
        convert(rows_file, target)
    assert target.read_text() == "mine"
    convert(rows_file, target, "--overwrite")
    assert target.read_text().startswith("id,text,labels,year\n")
    with pytest.raises(ValueError, match="is IN itself"):
        convert(target, target, "--overwrite")
    (tmp_path / "Y.npz").write_text("labels of somebody")
    with pytest.raises(ValueError, match=r"Y\.npz exists"):
        convert(rows_file, tmp_path / "X.npz")
    with pytest.raises(ValueError, match="--out-labels"):
        convert(rows_file, tmp_path / "features.npz")


def test_a_faulty_row_leaves_no_half_file(convert, tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text('{"text": "a", "tags": ["x"]}\n' * 300 + "nonsense\n")
    with pytest.raises(ValueError, match="line 301"):
        convert(source, tmp_path / "out.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]
    said = convert(source, tmp_path / "out.jsonl", "--skip-faulty")
    assert "left out: 1 faulty row; the first: " in said


def test_tags_that_are_changed_are_reported(convert, tmp_path):
    (tmp_path / "rows.csv").write_text("text,tags\nx,a;a\ny,a;;b\n")
    said = convert(tmp_path / "rows.csv", tmp_path / "rows.jsonl")
    assert [row["tags"] for row in objects(tmp_path / "rows.jsonl")] == [["a"], ["a", "b"]]
    assert "warning: 1 row with a repeated tag; it counts once." in said
    assert "warning: 1 row with an empty tag, as in 'a;;b'; it is ignored." in said


def test_no_column_is_lost_to_another_of_its_name(convert, tmp_path):
    (tmp_path / "rows.csv").write_text("text,tags,note,note\nx,a,1,2\n")
    with pytest.raises(ValueError, match="the column 'note' occurs twice; give each its own name"):
        convert(tmp_path / "rows.csv", tmp_path / "rows.jsonl")
    assert not (tmp_path / "rows.jsonl").exists()


def test_the_result_for_programs(rows_file, tmp_path, capsys):
    target = tmp_path / "out.csv"
    tagwise.main(["convert", str(rows_file), str(target), "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert (found["from"], found["to"], found["rows"]) == ("jsonl", "csv", 20)
    assert found["bytes"] == target.stat().st_size
