"""Tables: columns and separators that are guessed, faults that name their line, nothing dropped in silence."""

import io
import json
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagwise.data import read_csv, read_jsonl
from tagwise.data.columns import TAG_NAMES, TEXT_NAMES, Dialect
from tagwise.data.formats import file_format
from tagwise.data.tables import TableReader, read_table
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ParseError, TagwiseWarning


def rows_of(path, **dialect):
    return read_table(path, Dialect(**dialect))


def test_columns_are_guessed_by_their_names_in_any_case(write):
    for text, tags in [(text, "tags") for text in TEXT_NAMES] + [("text", tags) for tags in TAG_NAMES]:
        path = write("rows.csv", f"id,{tags.upper()},{text.title()}\n1,a;b,some words\n")
        rows = rows_of(path)
        assert (rows.texts, rows.tags) == (["some words"], [["a", "b"]])
        assert rows.guess == (
            f"{path}: guessed column `{text.title()}` for texts, column `{tags.upper()}` for tags, ';' between tags."
        )


def test_separators_are_guessed(write):
    for cells, expected in (
        (['"a;b, c"', "d"], [["a", "b, c"], ["d"]]),
        (['"a|b,c"', "d"], [["a", "b,c"], ["d"]]),
        (['"a,b"', "d"], [["a", "b"], ["d"]]),
        (['"[""a"", ""b;c""]"', "[]"], [["a", "b;c"], []]),
        (["a", ""], [["a"], []]),
        (["", ""], [[], []]),
        (["a;", ";b;;c"], [["a"], ["b", "c"]]),
    ):
        path = write("rows.csv", "text,tags\n" + "".join(f"words,{cell}\n" for cell in cells))
        assert rows_of(path).tags == expected
    for content, guess in (
        ('text;tags\n"a; b";x,y\n', "guessed ';' between columns, column"),
        ('"text";"tags"\n"a; b";"x,y"\n', "guessed ';' between columns, column"),
        ("text\ttags\na; b\tx,y\n", "guessed '\\t' between columns, column"),
        ('text,tags\na; b,"x,y"\n', "guessed column"),
    ):
        rows = rows_of(write("rows.csv", content))
        assert (rows.texts, rows.tags) == (["a; b"], [["x", "y"]])
        assert guess in rows.guess


def test_a_json_list_is_told_from_json_lines(write):
    for content in ('[{"text": "a", "tags": ["x"]}]', '\ufeff[\n {"text": "a", "tags": []}\n]\n'):
        with pytest.raises(ParseError, match=r"line 1: .* but the file holds one JSON list.* jq -c '\.\[\]'"):
            rows_of(write("rows.json", content), skip_faulty=True)


def test_lines_without_tags_are_no_rows_to_train_on(write):
    with pytest.raises(InvalidInputError, match=r"read as one text per line, without tags.* format="):
        rows_of(write("lines.txt", "some words\n"))


def test_given_columns_and_separators_win_over_guesses(write):
    rows = rows_of(
        write("rows.csv", "text,tags,other,topics\nno,no,yes,right\n"), text="other", tags="topics", tag_separator=";"
    )
    assert (rows.texts, rows.tags, rows.guess) == (["yes"], [["right"]], None)
    assert rows_of(write("rows.csv", "text,tags\nwords,a;b c\n"), tag_separator=" ").tags == [["a;b", "c"]]
    assert rows_of(write("rows.jsonl", '{"text": "words", "tags": "a/b"}\n'), tag_separator="/").tags == [["a", "b"]]
    with pytest.raises(InvalidInputError, match="tag_separator= must not be empty"):
        rows_of(write("rows.csv", "text,tags\nwords,a\n"), tag_separator="")


def test_known_tags(write):
    table = write("rows.csv", "text,tags,known\nwords,a,b;c\nwords,a,*\nwords,a,\n")
    assert rows_of(table, known="known").known == [["b", "c"], None, []]
    lines = write(
        "rows.jsonl", '{"text": "t", "tags": ["a"], "seen": ["b"]}\n{"text": "t", "tags": [], "seen": null}\n'
    )
    assert rows_of(lines, known="seen").known == [["b"], None]
    assert rows_of(lines).known is None


def test_faults_name_their_line_and_can_be_skipped(write):
    for line, reason in (
        ("nonsense", "invalid JSON"),
        ('{"text": "t", "tags": null}', r"must be a list of strings; found null; write \[\]"),
        ('{"text": "", "tags": []}', "the row has no text"),
        ('{"text": null, "tags": []}', "the row has no text"),
        ('{"text": "half \\ud800", "tags": ["a", "a", ""]}', "half of a surrogate pair"),
    ):
        path = write("rows.jsonl", f'{{"text": "first", "tags": ["a"]}}\n{line}\n{{"text": "last", "tags": ["a"]}}\n')
        with pytest.raises(ParseError, match=reason) as caught:
            rows_of(path)
        assert caught.value.line == 2
        rows = rows_of(path, skip_faulty=True)
        assert (rows.texts, rows.skipped) == (["first", "last"], 1)
        assert rows.notes[0].startswith("left out: 1 faulty row; the first: ")
        assert not any("repeated tag" in note or "empty tag" in note for note in rows.notes)


def test_where_all_rows_are_faulty_nothing_is_left(write):
    with pytest.raises(ParseError, match="no row is left; 2 rows faulty"):
        rows_of(write("rows.csv", "text,tags\n,a\n,b\n"), skip_faulty=True)


def test_what_looks_wrong_is_reported(write):
    rows = rows_of(write("rows.csv", "text,tags\nx,a;a\nx,a\nx,a\n"))
    assert rows.tags == [["a"], ["a"], ["a"]]
    assert rows.notes[0] == "1 row with a repeated tag; it counts once."
    assert rows.notes[1].startswith("2 of 3 rows repeat an earlier row")
    assert rows.duplicates == 2
    rows = rows_of(write("empty.csv", "text,tags\nx,a;\ny,a;;b\nz,a;b\n"))
    assert rows.notes == ["2 rows with an empty tag, as in 'a;;b'; it is ignored."]
    lonely = rows_of(write("lonely.csv", "text,tags\nx,some words\ny,other words\n"))
    assert lonely.notes == ["none of the 2 tags is in two rows; is 'tags' the column of the tags?"]


@given(tags=st.lists(st.sampled_from(["a", "b", "c", "", " ", "\t"]), max_size=5))
def test_one_rule_for_repeated_and_empty_tags_in_all_readers(tmp_path_factory, tags):
    folder = tmp_path_factory.mktemp("rows")
    filled = [tag for tag in tags if tag.strip()]
    expected = list(dict.fromkeys(filled))
    files = [
        ("rows.jsonl", json.dumps({"text": "x", "tags": tags}), read_jsonl, {}),
        ("joined.jsonl", json.dumps({"text": "x", "tags": ";".join(tags)}), read_jsonl, {"tag_separator": ";"}),
        ("rows.csv", "text,tags\nx," + ";".join(tags), read_csv, {"tag_separator": ";"}),
        ("rows.tsv", "text\ttags\nx\t" + json.dumps(tags), read_csv, {"tag_separator": "JSON"}),
    ]
    for name, content, read, separator in files:
        (folder / name).write_text(content + "\n")
        # An empty cell has no tags; it does not hold an empty one.
        is_list = separator.get("tag_separator") != ";"
        noted = (len(expected) < len(filled), len(filled) < len(tags) and (is_list or bool(";".join(tags).strip())))
        with TableReader(str(folder / name), Dialect(**separator)) as reader:
            assert [row.tags for row in reader] == [expected]
        assert (reader.tally().repeated_tags, reader.tally().empty_tags) == noted
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = read(folder / name, **separator)
        assert found.label_names == sorted(expected)
        assert found.Y.toarray().tolist() == [[1] * len(expected)]
        assert [warning.category for warning in caught] == [TagwiseWarning] * sum(noted)
        assert all(warning.filename == __file__ for warning in caught)


def test_null_texts(write):
    path = write("rows.jsonl", '{"text": null, "tags": ["a"]}\n')
    with pytest.warns(TagwiseWarning, match="1 row with null for a text; it is read as an empty one"):
        assert read_jsonl(path).texts == [""]


def test_messages_name_arguments_or_flags(write):
    path = write("rows.csv", "body,labels\n,a\n")
    with pytest.raises(ParseError, match=r"line 1: the column 'x' is missing \(text=\); columns found: 'body', "):
        rows_of(path, text="x")
    with pytest.raises(ParseError, match=r"the column 'x' is missing \(--known\)"):
        rows_of(path, known="x", flags=True)
    with pytest.raises(ParseError, match=r'line 2: the row has no text.* or pass errors="skip"'):
        rows_of(path)
    with pytest.raises(ParseError, match=r"line 2: the row has no text.* or pass --skip-faulty"):
        rows_of(path, flags=True)
    with pytest.raises(InvalidInputError, match="no column looks like one of texts; name it with --text"):
        rows_of(write("other.csv", "a,b\nc,d\n"), flags=True)
    with pytest.raises(InvalidInputError, match=r"or pass --no-header if the first line is a row\. .*'lo+ …\.$"):
        rows_of(write("long.csv", f"l{'o' * 400}ng words,b\nc,d\n"), flags=True)
    with pytest.raises(InvalidInputError, match=r"is not a known format; name the format with format="):
        rows_of(write("rows.data", "text,tags\n"))
    with pytest.raises(ParseError, match=r"must be a list of strings; found a string, 'a/b'.*--tag-separator"):
        rows_of(write("rows.jsonl", '{"text": "t", "tags": "a/b"}\n'), flags=True)


def test_columns_that_are_not_read_may_share_a_name(write):
    path = write("rows.csv", "text,,tags,\nx,1,a,2\n")
    assert rows_of(path).tags == [["a"]]
    assert read_csv(path).label_names == ["a"]


def test_plain_lines_need_no_guess(write):
    with TableReader(write("lines.txt", "one\n\ntwo\n"), Dialect(), with_tags=False, empty_texts=True) as reader:
        assert [(row.line, row.text) for row in reader] == [(1, "one"), (2, ""), (3, "two")]
        assert reader.guess is None


def test_a_pipe_is_guessed_like_a_file(monkeypatch):
    content = b"body;labels\nsome words;a|b\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    rows = rows_of("-", format="csv")
    assert (rows.texts, rows.tags) == (["some words"], [["a", "b"]])
    assert rows.guess.startswith("standard input: guessed ';' between columns, column `body` for texts")


def test_formats_go_by_endings_headers_and_what_is_said(write):
    assert file_format(write("a.txt", "some text\n")).name == "text"
    assert file_format(write("b.txt", "3 4 5\n")).name == "xmc"
    assert file_format(write("c.data", ""), "csv").name == "csv"
    assert file_format("-").name == "text"
    with pytest.raises(InvalidInputError, match="name the format with format="):
        file_format(write("d.data", ""))
    with pytest.raises(InvalidInputError, match=r"is a spreadsheet.* save it as CSV"):
        file_format("rows.xlsx")


def test_parquet_without_pyarrow_says_what_to_install(write, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(InvalidInputError, match=r"pip install 'tagwise\[parquet\]'"):
        rows_of(write("rows.parquet", b"PAR1"))


def test_a_stream_holds_a_few_records_only(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "words", "tags": ["a"]}\n' * 5000)
    with TableReader(str(path), Dialect()) as reader:
        rows = iter(reader)
        for _ in range(50):
            next(rows)
        # The first hundred were looked at; of the rest no more than a buffer of the file was.
        assert reader.records.line == 100
        assert sum(1 for _ in rows) == 4950


# --- one of several files of a table


def test_a_part_is_read_by_the_columns_of_another(write):
    """Nothing is guessed again, and a part may have no rows."""
    first = write("a.csv", "body,keywords\none,a|b\ntwo,b\n")
    with TableReader(str(first), Dialect()) as reader:
        columns = reader.columns
    second = read_table(write("b.csv", "keywords,body\na;c,three\n"), columns=columns)
    assert (second.texts, second.tags, second.guess) == (["three"], [["a;c"]], reader.guess.replace("a.csv", "b.csv"))
    assert read_table(write("c.csv", "body,keywords\n"), columns=columns).texts == []
    with pytest.raises(ParseError, match=r"c2.csv, line 1: the column 'keywords' is missing \(tags=\)"):
        read_table(write("c2.csv", "body,tags\n1,2\n"), columns=columns)


def test_tallies_of_parts_add_up(write):
    dialect = Dialect(skip_faulty=True)
    rows = ["one,a;a", "two,b;;", ",c", '"three\nfour",a', "five"]
    whole = read_table(write("all.csv", "\n".join(["text,tags", *rows]) + "\n"), dialect)
    parts = [
        read_table(write(f"{place}.csv", f"text,tags\n{row}\n"), dialect, columns=columns_of(write))
        for place, row in enumerate(rows)
    ]
    tally = parts[0].tally.plus(*(part.tally for part in parts[1:]))
    assert tally.counts() == {**whole.counts, "header_lines": 5, "lines": whole.counts["lines"] + 4}
    assert tally.notes()[1:] == whole.notes[1:3]
    assert tally.notes()[0].startswith("left out: 2 faulty rows; the first:")
    assert "2.csv, line 2: the row has no text" in tally.notes()[0]
    assert tally.account("5 files") == (
        "5 files: 3 rows read, 2 refused, 5 lines of headers, 1 further line of 1 row with a field that spans lines: "
        "11 lines."
    )


def columns_of(write):
    with TableReader(str(write("like.csv", "text,tags\none,a;b\n")), Dialect()) as reader:
        return reader.columns


# ---------------------------------------------------------------------- JSON lines and CSV as LabelledRows


GOOD_JSON = b'{"text": "one", "tags": ["b", "a"], "id": 7}\n'
BAD_JSON = [
    (b"", "line is empty"),
    (b"  ", "line is empty"),
    (b"{", "invalid JSON"),
    (b'{"text": "\xc3\xa9", "tags": [}', "column 25: invalid JSON: Expecting value"),
    (b'{"text": "a", "tags": [], "id": 1} x', "invalid JSON: Extra data"),
    (b"\xff", "byte 0xff is not valid UTF-8"),
    (b"[1]", "JSON object; found a list"),
    (b"null", "found null"),
    (b'{"text": "a", "id": 1, "labels": []}', "'tags' is missing .* found: 'text', 'id', 'labels'"),
    (b"{}", "missing .* none"),
    (b'{"text": 1, "tags": [], "id": 1}', "'text' must be a string; found a number"),
    (b'{"text": "a", "tags": "b", "id": 1}', "'tags' must be a list of strings; found a string"),
    (b'{"text": "a", "tags": {}, "id": 1}', "found an object"),
    (b'{"text": "a", "tags": [1], "id": 1}', "strings only, in quotes; found a number"),
    (b'{"text": "a", "text": "b", "tags": [], "id": 1}', "'text' occurs twice in one object"),
    (b'{"text": "a", "tags": []}', "'id' is missing"),
    (b'{"text": "a", "tags": [], "id": 1.5}', "'id' must be a string or a whole number"),
    (b'{"text": "a", "tags": [], "id": false}', "'id' .* found false"),
    (b'{"text": "\\ud800", "tags": [], "id": 1}', "surrogate"),
    (b'{"text": "a", "tags": ["\\udc00"], "id": 1}', "surrogate"),
    (b'{"text": "a", "tags": [], "id": ' + b"1" * 5000 + b"}", "digits"),
    (b"[" * 200_000, "nested too deeply"),
]


def test_bad_json_rows(tmp_path):
    path = tmp_path / "a.jsonl"
    for row, words in BAD_JSON:
        path.write_bytes(GOOD_JSON + row + b"\r\n" + GOOD_JSON)
        with pytest.raises(ParseError, match=f"a.jsonl, line 2.*{words}"):
            read_jsonl(path, id="id")
        found = read_jsonl(path, id="id", errors="skip")
        assert (found.n_skipped, found.texts, found.row_ids) == (1, ["one", "one"], ["7", "7"])
        assert found.Y.toarray().tolist() == [[1, 1], [1, 1]]


def test_jsonl_bom_crlf_no_newline_and_other_fields(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"body": "x", "topics": [], "more": 1}\r\n{"body": "", "topics": ["t"]}')
    found = read_jsonl(path, text="body", tags="topics")
    assert (found.texts, found.label_names, found.row_ids) == (["x", ""], ["t"], None)
    path.write_bytes(b"")
    with pytest.raises(ParseError, match="no rows"):
        read_jsonl(path)
    path.write_bytes(GOOD_JSON)
    with pytest.raises(InvalidInputError, match="named for two things"):
        read_jsonl(path, text="tags")
    with pytest.raises(InvalidTypeError, match="must be the names of columns"):
        read_jsonl(path, text=None)


GOOD_CSV = b"id,text,tags\n1,one,b;a\n"


def test_bad_csv_rows(tmp_path):
    path = tmp_path / "a.csv"
    for row, words in (
        (b"", "line 3: the line is empty"),
        (b"2,two", "line 3: the record has 2 fields, but the header names 3"),
        (b"2,two,a,b", "line 3: the record has 4 fields"),
        (b'2,"tw"o,a', "line 3: the quotes do not enclose fields"),
        (b'2,"\xc3\xa9\n"x,a', "line 4: the quotes do not enclose fields"),
        (b"2,\xff,a", "line 3, column 3: byte 0xff is not valid UTF-8"),
    ):
        path.write_bytes(GOOD_CSV + row + b"\n3,three,c\n")
        with pytest.raises(ParseError, match=words):
            read_csv(path)
        found = read_csv(path, id="id", errors="skip")
        assert (found.n_skipped, found.texts, found.row_ids) == (1, ["one", "three"], ["1", "3"])
        assert found.Y.toarray().tolist() == [[1, 1, 0], [0, 0, 1]]


def test_bad_csv_files(tmp_path):
    path = tmp_path / "a.csv"
    for content, words in (
        (b"", "the file is empty; the first line must name the columns"),
        (b"text,labels\na,b\n", "line 1: the column 'tags' is missing .* 'text', 'labels'"),
        (b"text;tags\na;b\n", "line 1: the column 'text' is missing .* 'text;tags'"),
        (b"text,tags,text\na,b,c\n", "line 1: the column 'text' occurs 2 times"),
        (b"text,tags\n", "line 1: the file holds no rows"),
        (b'text,tags\na,b\n"c,d\ne,f\n', "line 3: a quote opened here is never closed"),
        (b'text,tags\na,b\nc,"d""', "line 3: a quote opened here is never closed"),
    ):
        path.write_bytes(content)
        for errors in ("strict", "skip"):
            with pytest.raises(ParseError, match=words):
                read_csv(path, errors=errors)


def test_csv_dialect(tmp_path):
    path = tmp_path / "a.csv"
    long_text = "x" * 200_000
    path.write_bytes(
        b'\xef\xbb\xbftags,"te""xt",n\r\n"a; b",say "hi",1\r\n"","two\r\nlines, ""quoted""\n",2\r\n  ,'
        + long_text.encode()
        + b",\r\nb,,3"
    )
    found = read_csv(path, text='te"xt')
    assert found.texts == ['say "hi"', 'two\r\nlines, "quoted"\n', long_text, ""]
    assert found.label_names == ["a", "b"]
    assert found.Y.toarray().tolist() == [[1, 1], [0, 0], [0, 0], [0, 1]]
    path = tmp_path / "a.txt"
    path.write_text("text|tags\na,b|x y\n")
    assert read_csv(path, delimiter="|", tag_separator=" ").label_names == ["x", "y"]
    for wrong, words in (
        ({}, r"neither \.csv nor"),
        ({"delimiter": "|", "tag_separator": ""}, "tag_separator= must not be empty"),
        ({"delimiter": "ab"}, "delimiter must be one"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            read_csv(path, **wrong)
