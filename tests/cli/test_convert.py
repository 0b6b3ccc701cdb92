"""``tagwise convert``: all formats, both ways; what cannot be kept is said or refused."""

import datetime
import decimal
import json

import numpy as np
import pytest
from commands import some_rows, write_jsonl

from tagwise import data
from tagwise.cli.main import tagwise
from tagwise.exceptions import InvalidInputError, ParseError


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


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "jsonl.bz2", "parquet"])
def test_texts_and_all_columns_survive_the_way_there_and_back(convert, tmp_path, ending):
    rows = some_rows(20)
    rows[3] |= {"text": 'a "quoted", text\nof two lines\tand a tab', "labels": []}
    source = write_jsonl(tmp_path / "rows.jsonl", rows)
    said = convert(source, tmp_path / f"there.{ending}")
    assert "20 rows" in said
    convert(tmp_path / f"there.{ending}", tmp_path / "back.jsonl")
    back = objects(tmp_path / "back.jsonl")
    if "sv" in ending:
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
    assert (tagger.transform(["dog and wine"]) != read.X).nnz == 0


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


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), [1.5, float("nan")], {"deep": float("inf")}])
def test_nan_and_infinity_become_null_and_that_is_said(convert, tmp_path, value):
    """In 0.1.0 NaN was written into JSONL, which is no JSON."""
    source = write_jsonl(tmp_path / "rows.jsonl", [{"text": "a", "tags": ["x"], "score": value}])
    said = convert(source, tmp_path / "there.jsonl")
    assert "neither NaN nor infinity: those of 'score' were written as null" in said
    assert "null" in (tmp_path / "there.jsonl").read_text()
    assert "NaN" not in (tmp_path / "there.jsonl").read_text()
    assert "Infinity" not in (tmp_path / "there.jsonl").read_text()
    assert "written as null" in convert(source, tmp_path / "there.csv")
    assert "NaN" not in (tmp_path / "there.csv").read_text()


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_half_of_a_surrogate_pair_in_any_field(convert, tmp_path, ending):
    """In 0.1.0 it was a UnicodeEncodeError."""
    source, target = tmp_path / "rows.jsonl", tmp_path / f"there.{ending}"
    good = '{"text": "a", "tags": ["x"], "other": "b"}\n'
    source.write_text(good + '{"text": "a", "tags": ["x"], "other": "\\ud800"}\n' + good)
    with pytest.raises(ParseError, match="line 2: a string holds half of a surrogate pair"):
        convert(source, target)
    assert not target.exists()
    assert "1 faulty row" in convert(source, target, "--skip-faulty")
    assert target.read_text().count("b") == 2
    source.write_text('{"text": "a", "tags": ["x"], "\\ud800": "b"}\n')
    with pytest.raises((ParseError, InvalidInputError), match="half of a surrogate pair"):
        convert(source, tmp_path / f"other.{ending}")


def test_columns_of_parquet_have_types_of_their_own_and_mixtures_are_json(convert, tmp_path):
    rows = [
        {"text": f"{i}", "tags": ["a", "b"][: i % 3], "n": i, "x": i / 2, "yes": i % 2 == 0, "odd": odd, "big": 2**70}
        for i, odd in enumerate([1, "one", {"one": 1}, [1], None] * 300)
    ]
    rows[7] |= {"tags": [], "n": None, "extra": "only here"}
    source = write_jsonl(tmp_path / "rows.jsonl", rows)
    said = convert(source, tmp_path / "rows.parquet")
    assert "a column of Parquet holds one type: values of 'big', 'odd' were written as JSON" in said
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow, which writes Parquet, is not installed")
    table = pq.read_table(tmp_path / "rows.parquet")
    types = {field.name: str(field.type).replace("element", "item") for field in table.schema}
    assert types == {
        "text": "string",
        "tags": "list<item: string>",
        "n": "int64",
        "x": "double",
        "yes": "bool",
        "odd": "string",
        "big": "string",
        "extra": "string",
    }
    for row in rows:
        row |= {"odd": row["odd"] and json.dumps(row["odd"]), "big": str(2**70), "extra": row.get("extra")}
    assert table.to_pylist() == rows


def test_known_tags_survive_parquet(convert, tmp_path):
    rows = [
        {"text": "dog", "tags": ["pets"], "known": ["pets", "food"]},
        {"text": "wine", "tags": [], "known": []},
        {"text": "bread", "tags": ["food"], "known": None},
    ]
    source = write_jsonl(tmp_path / "rows.jsonl", rows)
    convert(source, tmp_path / "there.parquet", "--known", "known")
    convert(tmp_path / "there.parquet", tmp_path / "back.jsonl", "--known", "known")
    assert objects(tmp_path / "back.jsonl") == rows


def test_what_parquet_cannot_hold_is_refused(convert, tmp_path, rows_file):
    with pytest.raises(InvalidInputError, match="compressed itself; call the file rows"):
        convert(rows_file, tmp_path / "rows.parquet.gz")
    half = tmp_path / "half.jsonl"
    half.write_text('{"text": "a", "tags": ["x"]}\n{"text": "\\ud800", "tags": ["x"]}\n')
    with pytest.raises(ParseError, match=r"line 2.*half of a surrogate pair"):
        convert(half, tmp_path / "rows.parquet")
    assert not (tmp_path / "rows.parquet").exists()


def test_parquet_with_dates_decimals_and_bytes(convert, tmp_path):
    """In 0.1.0 dates and decimals were a TypeError."""
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow, which reads Parquet, is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow, which reads Parquet, is not installed")
    day, price = datetime.date(2020, 1, 2), decimal.Decimal("1.50")
    columns = {
        "text": ["one", "two"],
        "tags": [["a"], ["b"]],
        "day": [day, None],
        "price": [price, price],
        "deep": [{"day": day, "prices": [price]}] * 2,
        "when": pyarrow.array([1, None], pyarrow.timestamp("ns")),
        "missing": [1.5, float("nan")],
    }
    source = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table(columns), source)
    convert(source, tmp_path / "there.csv")
    assert "those of 'missing' were written as null" in convert(source, tmp_path / "there.jsonl")
    first, second = objects(tmp_path / "there.jsonl")
    assert (first["day"], first["price"], first["deep"]) == (
        "2020-01-02",
        "1.50",
        {"day": str(day), "prices": ["1.50"]},
    )
    assert (first["when"], second["when"]) == ("1970-01-01 00:00:00.000000001", None)
    assert (first["missing"], second["missing"]) == (1.5, None)
    parquet.write_table(pyarrow.table({**columns, "image": [b"\xff", b"\x00"]}), source)
    with pytest.raises(ParseError, match="line 1: the column 'image' holds bytes"):
        convert(source, tmp_path / "other.jsonl")
    with pytest.raises(ParseError, match="line 1: the column 'image' holds bytes"):
        convert(source, tmp_path / "other.csv")


def test_a_parquet_column_that_occurs_twice_is_refused(convert, tmp_path):
    """In 0.1.0 it was silently the last one."""
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow, which reads Parquet, is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow, which reads Parquet, is not installed")
    arrays = [pyarrow.array(["one"]), pyarrow.array([["a"]]), pyarrow.array([1]), pyarrow.array([2])]
    parquet.write_table(pyarrow.Table.from_arrays(arrays, ["text", "tags", "n", "n"]), tmp_path / "rows.parquet")
    with pytest.raises(InvalidInputError, match="the column 'n' occurs twice"):
        convert(tmp_path / "rows.parquet", tmp_path / "rows.jsonl")


def test_many_columns_of_which_one_occurs_twice(convert, tmp_path):
    """In 0.1.0 finding it took time in proportion to the square of the number of columns."""
    names = ["text", "tags", *(f"c{number}" for number in range(100_000)), "c99999"]
    (tmp_path / "rows.csv").write_text(",".join(names) + "\n" + "one,a" + ",x" * 100_001 + "\n")
    with pytest.raises(InvalidInputError, match="the column 'c99999' occurs twice"):
        convert(tmp_path / "rows.csv", tmp_path / "rows.jsonl")
