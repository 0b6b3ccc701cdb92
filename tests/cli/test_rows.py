"""Rows of files: columns and separators that are guessed, faults that name their line, nothing dropped in silence."""

import bz2
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagwise.cli.columns import TAG_NAMES, TEXT_NAMES, cell_tags
from tagwise.cli.options import RowOptions
from tagwise.cli.records import file_format
from tagwise.cli.rows import RowStream, read_rows
from tagwise.exceptions import InvalidInputError, ParseError


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def rows_of(path, **options):
    return read_rows(path, RowOptions(**options), quiet=True)


@pytest.mark.parametrize("text", TEXT_NAMES)
@pytest.mark.parametrize("tags", TAG_NAMES)
def test_columns_are_guessed_by_their_names_in_any_case(write, text, tags):
    if text == tags:
        return
    path = write("rows.csv", f"id,{tags.upper()},{text.title()}\n1,a;b,some words\n")
    rows = rows_of(path)
    assert (rows.texts, rows.tags) == (["some words"], [["a", "b"]])
    assert f"texts from {text.title()!r} (guessed)" in rows.said[0]
    assert f"tags from {tags.upper()!r} (guessed)" in rows.said[0]


def test_given_columns_win_over_guesses(write):
    path = write("rows.csv", "text,tags,other,topics\nno,no,yes,right\n")
    rows = rows_of(path, text="other", tags="topics")
    assert (rows.texts, rows.tags) == (["yes"], [["right"]])
    assert "texts from 'other', tags from 'topics'" in rows.said[0]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (['"a;b, c"', "d"], [["a", "b, c"], ["d"]]),
        (['"a|b,c"', "d"], [["a", "b,c"], ["d"]]),
        (['"a,b"', "d"], [["a", "b"], ["d"]]),
        (['"[""a"", ""b;c""]"', "[]"], [["a", "b;c"], []]),
        (["a", ""], [["a"], []]),
        (["", ""], [[], []]),
        (["a;", ";b;;c"], [["a"], ["b", "c"]]),
    ],
)
def test_separators_are_guessed(write, cells, expected):
    path = write("rows.csv", "text,tags\n" + "".join(f"words,{cell}\n" for cell in cells))
    assert rows_of(path).tags == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('text;tags\n"a; b";x,y\n', "columns separated by ';' (guessed), texts from"),
        ('"text";"tags"\n"a; b";"x,y"\n', "columns separated by ';' (guessed), texts from"),
        ("text\ttags\na; b\tx,y\n", "columns separated by '\\t' (guessed), texts from"),
        ('text,tags\na; b,"x,y"\n', "rows.csv: texts from"),
    ],
)
def test_columns_of_a_table_may_be_separated_by_semicolons_or_tabs(write, content, said):
    rows = rows_of(write("rows.csv", content))
    assert (rows.texts, rows.tags) == (["a; b"], [["x", "y"]])
    assert said in rows.said[0]


@pytest.mark.parametrize("content", ['[{"text": "a", "tags": ["x"]}]', '\ufeff[\n {"text": "a", "tags": []}\n]\n'])
def test_a_json_list_is_told_from_json_lines(write, content):
    path = write("rows.json", content)
    with pytest.raises(InvalidInputError, match=r"holds one JSON list.* jq -c '\.\[\]'"):
        rows_of(path, skip_faulty=True)


def test_lines_without_tags_are_no_rows_to_train_on(write):
    with pytest.raises(InvalidInputError, match=r"read as a text a line, without tags.* --format"):
        rows_of(write("lines.txt", "some words\n"))


def test_a_given_separator_wins(write):
    assert rows_of(write("rows.csv", "text,tags\nwords,a;b c\n"), tag_separator=" ").tags == [["a;b", "c"]]
    assert rows_of(write("rows.jsonl", '{"text": "words", "tags": "a/b"}\n'), tag_separator="/").tags == [["a", "b"]]
    with pytest.raises(InvalidInputError, match="--tag-separator must not be empty"):
        rows_of(write("rows.csv", "text,tags\nwords,a\n"), tag_separator="")


def test_known_tags(write):
    table = write("rows.csv", "text,tags,known\nwords,a,b;c\nwords,a,*\nwords,a,\n")
    assert rows_of(table, known="known").known == [["b", "c"], None, []]
    lines = write(
        "rows.jsonl", '{"text": "t", "tags": ["a"], "seen": ["b"]}\n{"text": "t", "tags": [], "seen": null}\n'
    )
    assert rows_of(lines, known="seen").known == [["b"], None]
    assert rows_of(lines).known is None


@pytest.mark.parametrize(("ending", "pack"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)])
def test_compressed_files_are_read(write, ending, pack):
    path = write(f"rows.tsv{ending}", pack(b"text\ttags\nsome, words\ta;b\n"))
    assert rows_of(path).texts == ["some, words"]


def test_a_truncated_stream_is_an_error_even_when_skipping(write):
    whole = "".join(json.dumps({"text": f"words {place * 7919}", "tags": ["a"]}) + "\n" for place in range(500))
    path = write("rows.jsonl.gz", gzip.compress(whole.encode())[:-200])
    with pytest.raises(ParseError, match="truncated or damaged"):
        rows_of(path, skip_faulty=True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nonsense", "invalid JSON"),
        ('["a"]', "every line must hold a JSON object; found a list"),
        ('{"text": 3, "tags": []}', "must hold text; found 3"),
        ('{"tags": []}', "the field 'text' is missing"),
        ('{"text": "t", "tags": [3]}', "must hold tags as text, in quotes; found a number"),
        ('{"text": "t", "tags": [" "]}', "holds an empty tag"),
        ('{"text": "t", "tags": null}', r"must be a list of tags; found null; write \[\]"),
        ('{"text": "\\ud800", "tags": []}', "half of a surrogate pair"),
        ('{"text": "", "tags": []}', "the row has no text"),
    ],
)
def test_faults_name_their_line_and_can_be_skipped(write, line, reason):
    path = write("rows.jsonl", f'{{"text": "first", "tags": ["a"]}}\n{line}\n{{"text": "last", "tags": ["a"]}}\n')
    with pytest.raises(ParseError, match=reason) as caught:
        rows_of(path)
    assert caught.value.line == 2
    rows = rows_of(path, skip_faulty=True)
    assert (rows.texts, rows.skipped, rows.lines) == (["first", "last"], 1, [1, 3])
    assert "left out: 1 faulty row; the first: " in rows.said[1]


def test_where_all_rows_are_faulty_nothing_is_left(write):
    with pytest.raises(ParseError, match="no row is left; 2 rows faulty"):
        rows_of(write("rows.csv", "text,tags\n,a\n,b\n"), skip_faulty=True)


def test_what_looks_wrong_is_said(write, capsys):
    path = write("rows.csv", "text,tags\nx,a;a\nx,a\nx,a\n")
    rows = read_rows(path, RowOptions())
    said = capsys.readouterr().err
    assert "warning: 1 row with a tag that is listed twice; it counts once." in said
    assert "warning: of 3 rows, 2 repeat an earlier row" in said
    assert rows.repeats == 2
    read_rows(write("stray.csv", "text,tags\nx,a;\ny,a;;b\nz,a;b\n"), RowOptions())
    assert "warning: 2 rows with ';' that no tag stands beside; it is passed over." in capsys.readouterr().err
    lonely = read_rows(write("lonely.csv", "text,tags\nx,some words\ny,other words\n"), RowOptions())
    assert "none of the 2 tags is in two rows; is 'tags' the column of the tags?" in lonely.said[-1]


def test_a_column_can_be_one_thing_only(write):
    path = write("rows.csv", "text,tags\nx,a\n")
    with pytest.raises(InvalidInputError, match="the column 'text' is named for two things"):
        rows_of(path, tags="text")
    with pytest.raises(ParseError, match="the column 'text' occurs twice"):
        rows_of(write("twice.csv", "text,text,tags\nx,y,a\n"))


def test_formats_go_by_endings_headers_and_what_is_said(write):
    assert file_format(write("a.txt", "some text\n")) == "text"
    assert file_format(write("b.txt", "3 4 5\n")) == "xmc"
    assert file_format(write("c.data", ""), "csv") == "csv"
    assert file_format("-") == "text"
    with pytest.raises(InvalidInputError, match="say it with --format"):
        file_format(write("d.data", ""))
    with pytest.raises(InvalidInputError, match=r"is a spreadsheet.* save it as CSV"):
        file_format("rows.xlsx")


def test_parquet_without_pyarrow_says_what_to_install(write, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(InvalidInputError, match=r"pip install 'tagwise\[parquet\]'"):
        rows_of(write("rows.parquet", b"PAR1"))


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    table = pyarrow.table({"text": ["one", None, "two"], "tags": [["a", "b"], [], ["c"]]})
    parquet.write_table(table, path)
    with pytest.raises(ParseError, match="line 2: the row has no text"):
        rows_of(str(path))
    rows = rows_of(str(path), skip_faulty=True)
    assert (rows.texts, rows.tags) == (["one", "two"], [["a", "b"], ["c"]])
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ParseError, match="not a readable Parquet file"):
        rows_of(str(damaged))


def test_a_stream_holds_a_few_records_only(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "words", "tags": ["a"]}\n' * 5000)
    with RowStream(str(path), RowOptions()) as stream:
        rows = iter(stream)
        for _ in range(50):
            next(rows)
        # The first hundred were looked at; of the rest no more than a buffer of the file was.
        assert stream._reader.line == 100
        assert sum(1 for _ in rows) == 4950


@given(st.lists(st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters=";"), min_size=1), max_size=4))
def test_joined_tags_split_into_what_they_were(tags):
    tags = [tag.strip() for tag in tags if tag.strip()]
    assert cell_tags(";".join(tags), "tags", ";") == tags
    assert cell_tags(json.dumps(tags), "tags", "JSON") == tags
