"""``tagwise convert``: texts and matrices to matrices of every format; what cannot be kept is said or refused."""

import json

import numpy as np
import pytest
from commands import some_rows, write_jsonl

from tagwise import Tagger, data
from tagwise.cli.main import tagwise
from tagwise.data.formats import FORMATS


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


def test_matrices_keep_numbers_and_names_through_every_format(convert, tmp_path, rows_file):
    convert(rows_file, tmp_path / "a.xmc")
    targets = {"arff": "b.arff", "svmlight": "c.svm", "npz": "X.npz", "xmc": "d.xmc"}
    assert set(targets) == {name for name, entry in FORMATS.items() if entry.holds == "matrix"}
    before = "a.xmc"
    for name, after in targets.items():
        assert "20 rows" in convert(tmp_path / before, tmp_path / after, "--to", name)
        before = after
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


def test_texts_with_the_words_and_tags_of_a_tagger(convert, tmp_path):
    rows = some_rows(40)
    tagger = Tagger("binary-relevance").fit([row["text"] for row in rows], [row["labels"] for row in rows])
    tagger.save(tmp_path / "tagger")
    other = [{"text": "dog and wine", "labels": ["pets", "cars"]}]
    said = convert(write_jsonl(tmp_path / "o.jsonl", other), tmp_path / "o.xmc", "--model", tmp_path / "tagger")
    assert "1 tag that" in said
    assert "'cars' (1)" in said
    read = data.read_xmc(tmp_path / "o.xmc")
    assert (read.X.shape[1], read.Y.shape[1]) == (len(tagger.features_.feature_names), 4)
    assert (tagger.transform(["dog and wine"]) != read.X).nnz == 0


def test_what_has_no_place_is_refused_or_said(convert, tmp_path, rows_file):
    with pytest.raises(ValueError, match="--id: a matrix has no place for it"):
        convert(rows_file, tmp_path / "a.xmc", "--id", "id")
    assert "the texts themselves and other columns are not kept" in convert(rows_file, tmp_path / "a.xmc")
    for source in (rows_file, tmp_path / "a.xmc"):
        with pytest.raises(ValueError, match="it cannot make csv of"):
            convert(source, tmp_path / "a.csv")
    assert "empty columns at the end are lost" in convert(tmp_path / "a.xmc", tmp_path / "a.svm")
    (tmp_path / "zeros.xmc").write_text("1 2 1\n0 0:0 1:2\n")
    assert "1 zeros that" in convert(tmp_path / "zeros.xmc", tmp_path / "zeros.arff")
    (tmp_path / "b.xmc").write_text("1 2 1\n0 1:2\n")
    (tmp_path / "b.xmc.features.txt").write_text("red\nblue\n")
    (tmp_path / "b.xmc.labels.txt").write_text("red\n")
    assert "Words and tags share names" in convert(tmp_path / "b.xmc", tmp_path / "b.arff")
    assert data.read_arff(tmp_path / "b.arff").feature_names == ["word:red", "word:blue"]


def test_nothing_is_overwritten(convert, tmp_path, rows_file):
    target = tmp_path / "out.xmc"
    target.write_text("mine")
    with pytest.raises(ValueError, match=r"out\.xmc exists; name another file, or pass --overwrite"):
        convert(rows_file, target)
    assert target.read_text() == "mine"
    convert(rows_file, target, "--overwrite")
    assert target.read_text().startswith("20 ")
    with pytest.raises(ValueError, match="is IN itself"):
        convert(target, target, "--overwrite")
    # Names of the matrix that is replaced are not those of one without names.
    nameless = tmp_path / "nameless.xmc"
    nameless.write_text("1 2 2\n0 1:1\n")
    assert (tmp_path / "out.xmc.labels.txt").exists()
    convert(nameless, target, "--overwrite")
    assert not (tmp_path / "out.xmc.labels.txt").exists()
    assert not (tmp_path / "out.xmc.features.txt").exists()
    (tmp_path / "Y.npz").write_text("labels of somebody")
    with pytest.raises(ValueError, match=r"Y\.npz exists"):
        convert(rows_file, tmp_path / "X.npz")
    with pytest.raises(ValueError, match="--out-labels"):
        convert(rows_file, tmp_path / "features.npz")


def test_a_faulty_row_leaves_no_half_file(convert, tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text('{"text": "a word", "tags": ["x"]}\n' * 300 + "nonsense\n")
    with pytest.raises(ValueError, match="line 301"):
        convert(source, tmp_path / "out.xmc")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]
    assert "left out: 1 faulty row; the first: " in convert(source, tmp_path / "out.xmc", "--skip-faulty")


def test_the_result_for_programs(rows_file, tmp_path, capsys):
    target = tmp_path / "out.xmc"
    tagwise.main(["convert", str(rows_file), str(target), "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert (found["from"], found["to"], found["rows"]) == ("jsonl", "xmc", 20)
    assert found["bytes"] == target.stat().st_size
