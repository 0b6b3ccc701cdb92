"""Tables as people have them: several columns, quotes as text, no header, a column or a row per tag, encodings."""

import csv
import gzip
import io
import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagwise.data import read_csv, read_jsonl, read_table
from tagwise.data.columns import Dialect
from tagwise.data.streams import guess_encoding
from tagwise.data.tables import TableReader
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ParseError


def adds_up(table):
    counts = table.counts
    assert sum(count for what, count in counts.items() if what != "lines") == counts["lines"]
    return counts


# ---------------------------------------------------------------------- several columns


def test_texts_of_several_columns_are_joined(write):
    path = write("rows.csv", "title,abstract,tags\nOne,first,a\n,second,b\nThree,,c\n")
    rows = read_table(path, text=["title", "abstract"], tag_separator=";")
    assert rows.texts == ["One\nfirst", "second", "Three"]
    lines = write("rows.jsonl", '{"title": "One", "abstract": null, "tags": ["a"]}\n')
    assert read_table(lines, text=("title", "abstract")).texts == ["One"]
    assert read_csv(path, text=["title", "abstract"]).texts == rows.texts
    assert read_jsonl(lines, text=["title", "abstract"]).texts == ["One"]


def test_a_row_without_any_of_its_texts_is_a_fault(write):
    path = write("rows.csv", "title,abstract,tags\nOne,first,a\n, ,b\n")
    with pytest.raises(ParseError, match="line 3: the row has no text: the columns 'title', 'abstract' are empty"):
        read_table(path, text=["title", "abstract"])
    rows = read_table(path, text=["title", "abstract"], skip_faulty=True)
    assert rows.texts == ["One\nfirst"]
    assert "skip" not in rows.notes[0]


def test_tags_of_several_columns_are_put_together(write):
    path = write("rows.csv", "text,people,places\nx,a;b,c\ny,,c|d\nz,a,a\n")
    rows = read_table(path, tags=["people", "places"])
    assert rows.tags == [["a", "b", "c"], ["c", "d"], ["a"]]
    assert read_csv(path, tags=["people", "places"]).label_names == ["a", "b", "c", "c|d"]


def test_columns_that_are_no_names(write):
    path = write("rows.csv", "text,tags\nx,a\n")
    with pytest.raises(InvalidTypeError, match="must be the name"):
        read_table(path, text=[3])
    with pytest.raises(InvalidInputError, match="names no column"):
        read_table(path, text=[])
    with pytest.raises(InvalidInputError, match="text= names a column twice"):
        read_table(path, text=["text", "text"])
    with pytest.raises(InvalidInputError, match="quoting"):
        read_table(path, quoting="double")


# ---------------------------------------------------------------------- quotes


PLAIN = 'text\ttags\n"Zauberlehrling" of 1797\ta\n5" pipes and "more\tb\n"unclosed\tc\nlast "word"\ta;b\n'


def test_in_tab_separated_values_quotes_are_text(write):
    rows = read_table(write("rows.tsv", PLAIN), skip_faulty=True)
    assert rows.texts == ['"Zauberlehrling" of 1797', '5" pipes and "more', '"unclosed', 'last "word"']
    counts = {"rows": 4, "refused": 0, "header_lines": 1, "further_lines": 0, "blank_lines": 0, "lines": 5}
    assert adds_up(rows) == counts
    assert "quotes as a part of the text" in rows.guess


def test_a_quote_that_opens_and_closes_a_field_encloses_it(write):
    rows = read_table(write("rows.tsv", 'text\ttags\n"say ""hi""\tall"\ta\nplain\tb\n'))
    assert rows.texts == ['say "hi"\tall', "plain"]
    assert 'quotes around fields (quoting="none" if not)' in rows.guess
    rows = read_table(write("lines.tsv", 'text\ttags\n"two\nlines"\ta\nplain\tb\n'))
    assert rows.texts == ["two\nlines", "plain"]
    assert adds_up(rows)["further_lines"] == 1
    assert "1 further line of 1 row with a field that spans lines, the first at line 2: 4 lines." in rows.account


def test_quoting_that_is_stated_wins(write):
    content = 'text\ttags\n"title"\ta\nplain\tb\n'
    assert read_table(write("rows.tsv", content), quoting="none").texts == ['"title"', "plain"]
    assert read_table(write("rows.tsv", content), quoting="standard").texts == ["title", "plain"]
    rows = read_table(write("rows.csv", 'text,tags\n"one,a\ntwo",b\n'), quoting="none")
    assert (rows.texts, rows.tags) == (['"one', 'two"'], [["a"], ["b"]])


def test_faults_of_quotes_propose_that_they_are_text(write):
    for content, reason in (('"a"b,x\n', "do not enclose"), ('"a,x\n', "never closed")):
        with pytest.raises(ParseError, match=rf'{reason}.*quoting="none"'):
            read_table(write("rows.csv", "text,tags\n" + content))
    with pytest.raises(ParseError, match=r'line 3: the record has 1 fields.* quoting="standard"'):
        read_table(write("rows.tsv", "text\ttags\none\ta\nhalf\n"))


def test_fields_over_several_lines_behind_the_first_lines_are_reported(write):
    """Quotes are taken for text by then: one half of the field is a row, the other one is refused."""
    many = [["text", "tags"], *([f"row {number}", "a"] for number in range(150))]
    for text_first in (True, False):
        lines = ["\t".join(row if text_first else row[::-1]) for row in many]
        lines += ['"one', 'two"\tb'] if text_first else ['b\t"one', 'two"']
        path = write("rows.tsv", "\n".join([*lines, "last\tc", '"unclosed\tc', ""]))
        rows = read_table(path, skip_faulty=True)
        assert (rows.skipped, adds_up(rows)["lines"]) == (1, 155)
        (note,) = (found for found in rows.notes if "1 line with a quote that opens a field" in found)
        assert "the first at line 152" in note
        assert note.endswith('which may then span lines, pass quoting="standard".')
        assert "one\ntwo" in read_table(write("sound.tsv", "\n".join([*lines, ""])), quoting="standard").texts


def test_blank_lines_at_the_end_are_no_rows(write):
    for (name, mark), end in product((("rows.csv", ","), ("rows.tsv", "\t")), ("\n", "\r\n")):
        content = end.join([f"text{mark}tags", f"x{mark}a", f"y{mark}b", ""])
        rows = read_table(write(name, content + 3 * end))
        assert (rows.texts, adds_up(rows)["blank_lines"]) == (["x", "y"], 3)
        assert rows.account.endswith("2 rows read, 0 refused, 1 header, 3 blank lines at the end: 6 lines.")
        with pytest.raises(ParseError, match="holds no rows"):
            read_table(write(name, f"text{mark}tags{end}{end}"))
        within = write(name, content + 2 * end + f"z{mark}c{end}{end}")
        with pytest.raises(ParseError, match='line 4: the line is empty; remove it, or pass errors="skip"'):
            read_table(within)
        rows = read_table(within, skip_faulty=True)
        assert (rows.texts, rows.skipped, adds_up(rows)["blank_lines"]) == (["x", "y", "z"], 2, 1)
        assert rows.notes[0].endswith("line 4: the line is empty; remove it.")


def test_very_many_blank_lines(write):
    """Time is in proportion to them, and nothing nests."""
    rows = read_table(write("rows.csv", "text,tags\n" + "x,a\n\n" * 20_000 + "\n" * 50_000 + "y,b\n"), skip_faulty=True)
    assert (adds_up(rows)["rows"], rows.skipped) == (20_001, 70_000)


TITLES = ['"Faust', 'the "Iliad"', "plain", '"A whole title"', 'ends with"', "Emil's", '" "', '""']


@given(titles=st.lists(st.sampled_from(TITLES), min_size=20, max_size=60))
def test_every_line_of_a_plain_file_is_a_row_or_refused(titles, tmp_path_factory):
    """The rows of a plain TSV with stray quotes, as from a catalogue: none is swallowed."""
    path = tmp_path_factory.mktemp("rows") / "rows.tsv"
    lines = [f"{title} {number}\ta;b" for number, title in enumerate(titles)]
    for faulty in (0, 3):
        path.write_text("\n".join(["text\ttags", *lines, *["half"] * faulty]) + "\n")
        rows = read_table(path, skip_faulty=True)
        assert (len(rows.texts), rows.skipped) == (len(lines), faulty)
        assert adds_up(rows)["lines"] == len(lines) + faulty + 1


FIELD = st.text(st.sampled_from('ab"\t\n, '), max_size=6)


@given(rows=st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=12), delimiter=st.sampled_from(",\t"))
def test_what_python_writes_with_quotes_is_read(rows, delimiter, tmp_path_factory):
    written = io.StringIO()
    csv.writer(written, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(
        [("text", "tags"), *rows]
    )
    path = tmp_path_factory.mktemp("rows") / ("rows.csv" if delimiter == "," else "rows.tsv")
    path.write_bytes(written.getvalue().encode())
    with TableReader(str(path), Dialect(), empty_texts=True) as reader:
        assert [row.text for row in reader] == [text for text, _ in rows]
        counts = reader.tally().counts()
    assert counts["lines"] == written.getvalue().count("\n")
    assert sum(counts.values()) == 2 * counts["lines"]


# ---------------------------------------------------------------------- without a header


def test_columns_by_number(write):
    path = write("rows.csv", "1,some words,a;b,x\n2,other,b,y\n")
    rows = read_table(path, header=False, text="2", tags="3", id="1")
    assert (rows.texts, rows.tags, rows.ids) == (["some words", "other"], [["a", "b"], ["b"]], ["1", "2"])
    counts = {"rows": 2, "refused": 0, "header_lines": 0, "further_lines": 0, "blank_lines": 0, "lines": 2}
    assert adds_up(rows) == counts
    with pytest.raises(InvalidInputError, match=r"no column looks like one of texts.*found: '1', '2', '3', '4'"):
        read_table(path, header=False)
    with pytest.raises(ParseError, match="the column '5' is missing"):
        read_table(path, header=False, text="5", tags="3")
    assert read_table(write("two.tsv", "words\ta\nmore\tb\n"), header=False).texts == ["words", "more"]
    spanning = read_table(write("spanning.csv", '"two\nlines",a\nmore,b\n'), header=False)
    assert (spanning.texts, adds_up(spanning)["lines"]) == (["two\nlines", "more"], 3)
    with pytest.raises(ParseError, match="line 2: the record has 3 fields, but the first has 2"):
        read_table(write("uneven.csv", "words,a\nmore,b,c\n"), header=False)
    with pytest.raises(InvalidInputError, match="header=False is for CSV and TSV"):
        read_table(write("rows.jsonl", '{"text": "a", "tags": []}\n'), header=False)


def test_corpora_of_annif_are_recognised(write):
    content = "A book of tea\t<http://yso.fi/p1> <http://yso.fi/p2>\nAn "
    content += '"other" book\t<http://yso.fi/p2>\nwithout subjects\t\n'
    for path in (write("corpus.tsv.gz", gzip.compress(content.encode())), write("corpus.tsv", content)):
        rows = read_table(path)
        assert rows.texts == ["A book of tea", 'An "other" book', "without subjects"]
        assert rows.tags == [["http://yso.fi/p1", "http://yso.fi/p2"], ["http://yso.fi/p2"], []]
        assert "two columns without names, texts and <…> of subjects, as in Annif's corpora" in rows.guess
        assert adds_up(rows)["lines"] == 3


def test_corpora_whose_first_rows_have_no_subjects(write):
    content = "A book\t\nanother\t \na third\t<u:1>\t<u:2> <u:3>\n"
    rows = read_table(write("corpus.tsv", content))
    assert rows.texts == ["A book", "another", "a third"]
    assert rows.tags == [[], [], ["u:1", "u:2", "u:3"]]
    assert "as in Annif's corpora" in rows.guess
    assert adds_up(rows)["header_lines"] == 0
    # Nothing says that the first line is a row where others are of another kind, or none has a subject.
    for other in ("A book\t\nx\tplain\n", "A book\t\nx\t\n"):
        with pytest.raises(InvalidInputError, match="no column looks like one of texts"):
            read_table(write("other.tsv", other))


def test_a_table_of_addresses_with_a_header(write):
    rows = read_table(write("corpus.csv", "text,subject_uris\nx,http://a/1 http://a/2\ny,<http://a/1>\n"))
    assert rows.tags == [["http://a/1", "http://a/2"], ["http://a/1"]]
    assert read_table(write("rows.tsv", "text\ttags\nx\t<u:1>\n")).texts == ["x"]


# ---------------------------------------------------------------------- a column per tag


def test_a_column_per_tag(write):
    path = write("rows.csv", "id,text,joy,anger,fear\n7,ha,1,0,0\n8,oh,0,1,1\n9,hm,0,0,0\n")
    rows = read_table(path)
    assert (rows.texts, rows.tags, rows.known) == (["ha", "oh", "hm"], [["joy"], ["anger", "fear"], []], None)
    assert "3 columns of 0 and 1 for tags, `joy` to `fear`" in rows.guess
    assert read_table(path, tags=["joy", "fear"], tags_wide=True).tags == [["joy"], ["fear"], []]
    with pytest.raises(InvalidInputError, match=r"no column looks like one of tags.* tags_wide= if each tag"):
        read_table(path, tags_wide=False)
    lines = write("rows.jsonl", '{"text": "ha", "joy": true, "anger": 0}\n{"text": "oh", "anger": 1}\n')
    assert read_table(lines).tags == [["joy"], ["anger"]]


def test_an_empty_cell_of_a_wide_table_is_unknown(write):
    rows = read_table(write("rows.csv", "text,a,b\nx,1,0\ny,,1\n"))
    assert (rows.tags, rows.known) == ([["a"], ["b"]], [None, ["b"]])
    assert "1 empty cell in the columns of the tags: whether these rows have these tags is unknown." in rows.notes
    # Where nobody wrote a zero, what is empty is off.
    rows = read_table(write("ones.csv", "text,a,b\nx,1,\ny,,1\n"))
    assert (rows.tags, rows.known) == ([["a"], ["b"]], None)


def test_a_wide_table_that_is_declared_may_have_words(write):
    words = write("words.csv", "text,a,b\nx,Yes,no\ny,N,y\nz,yes,\n")
    rows = read_table(words, tags_wide=True)
    assert (rows.tags, rows.known) == ([["a"], ["b"], ["a"]], [None, None, ["a"]])
    crosses = read_table(write("crosses.csv", "text,a,b\nx,X,\ny, ,x\nz,,\n"), tags_wide=True)
    assert (crosses.tags, crosses.known) == ([["a"], ["b"], []], None)
    with pytest.raises(InvalidInputError, match="no column looks like one of tags"):
        read_table(words)


def test_the_advice_on_a_cell_does_not_repeat_what_was_done(write):
    path = write("rows.csv", "text,a,b\nx,1,0\ny,maybe,1\n")
    advice = r"'a' holds 'maybe', .*; correct the cell, or leave the column out of tags=, or pass errors=\"skip\""
    with pytest.raises(ParseError, match=advice):
        read_table(path, tags_wide=True, tags=["a", "b"])


def test_faults_of_wide_tables(write):
    many = "x,0,1\n" * 120
    path = write("rows.csv", f"text,views,good\n{many}y,17,1\n")
    with pytest.raises(ParseError, match=r"line 122: the column 'views' holds '17', where 0 or 1 .* with tags="):
        read_table(path)
    assert read_table(path, skip_faulty=True).skipped == 1
    with pytest.raises(InvalidInputError, match=r"no column holds only 0 and 1 in the first 1 rows.*: 'text', 'year'"):
        read_table(write("none.csv", "text,year\nx,1999\n"), tags_wide=True)
    with pytest.raises(InvalidInputError, match=r"no column looks like one of tags.*found: 'text', 'subject area'"):
        read_table(write("rows.csv", "text,subject area\nx,a\n"))
    records = [{"text": "x", "a": 1, "b": 0}] * 120 + [{"text": "y", "c": 1}]
    lines = write("rows.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(ParseError, match="line 121: the field 'c' is 1, but is in none of the first rows"):
        read_table(lines)
    with pytest.raises(InvalidInputError, match=r"known= has no meaning for .* an empty cell"):
        read_table(write("known.csv", "text,a,b,seen\nx,1,0,a\n"), known="seen", tags_wide=True, tags=["a", "b"])


def test_very_many_columns_of_tags(write):
    """Time is in proportion to the columns, not to their square."""
    names = [f"t{number}" for number in range(50_000)]
    content = ",".join(["text", *names]) + "\n" + "one" + ",0" * 49_999 + ",1\n"
    rows = read_table(write("rows.csv", content))
    assert rows.tags == [["t49999"]]
    with pytest.raises(ParseError, match="the column 't0' occurs 2 times"):
        read_table(write("twice.csv", content.replace("t49999", "t0")))


def test_a_wide_parquet_file(tmp_path):
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"text": ["x", "y"], "a": [True, False], "b": [0.0, 1.0], "c": [1, None]})
    parquet.write_table(table, tmp_path / "rows.parquet")
    rows = read_table(tmp_path / "rows.parquet")
    assert (rows.tags, rows.known) == ([["a", "c"], ["b"]], [None, ["a", "b"]])
    assert rows.account.endswith("rows.parquet: 2 rows read, 0 refused.")
    with pytest.raises(InvalidInputError, match="encoding= is for lines of text"):
        read_table(tmp_path / "rows.parquet", encoding="cp1252")


# ---------------------------------------------------------------------- a row per tag


def test_a_row_per_tag(write):
    path = write("rows.csv", "doc,text,tag,by\n1,x,a,me\n2,y,b,me\n1,x,c,you\n1,,d,me\n")
    rows = read_table(path, group_by="doc")
    assert (rows.texts, rows.tags, rows.ids) == (["x", "y"], [["a", "c", "d"], ["b"]], ["1", "2"])
    assert adds_up(rows)["rows"] == 4
    assert rows.account.endswith(": 5 lines. Put together, they are 2 rows of different 'doc'.")
    assert "rows that were put together differ in 'by'; the first of each is kept." in rows.notes


def test_a_row_per_tag_is_recognised(write):
    content = "text,tag\n" + "".join(f"text {number},{tag}\n" for number in range(9) for tag in "abc"[number % 2 :])
    rows = read_table(write("rows.csv", content))
    assert (len(rows.texts), rows.tags[:2]) == (9, [["a", "b", "c"], ["b", "c"]])
    assert "one row per tag: rows with the same text are one" in rows.guess
    apart = read_table(write("rows.csv", content), group_by="")
    assert len(apart.texts) == 23
    assert any("If the table has one row per tag" in note for note in apart.notes)
    lines = "".join(json.dumps({"text": f"t{n}", "tag": tag}) + "\n" for n in range(4) for tag in ("a", "b;c"))
    assert read_table(write("rows.jsonl", lines.replace("b;c", "b"))).tags == [["a", "b"]] * 4
    assert read_table(write("rows.jsonl", lines), group_by="text").tags == [["a", "b;c"]] * 4


def test_texts_that_differ_within_a_group_are_faults(write):
    path = write("rows.csv", "doc,text,tag\n1,x,a\n1,other,b\n")
    with pytest.raises(ParseError, match="line 3: the text is not that of line 2, which has the same 'doc'"):
        read_table(path, group_by="doc")
    rows = read_table(path, group_by="doc", skip_faulty=True)
    assert (rows.tags, rows.skipped, adds_up(rows)["rows"]) == ([["a"]], 1, 1)


# ---------------------------------------------------------------------- encodings


SAMPLES = {
    "cp1252": "Le café est très bon, déjà vu à l’été",
    "cp949": "안녕하세요 한국어 텍스트입니다",
    "shift_jis": "これは日本語のテキストです。漢字",
    "euc_jp": "これは日本語のテキストです。漢字",
    "gb18030": "这是中文文本，在这里",
    "big5": "這是中文文本，不在這裡",
    "cp1251": "Это русский текст про садоводство",
    "koi8_r": "Это русский текст про садоводство",
    "utf-16": "Größe",
    "utf-16-be": "hello there",
}


def test_the_encoding_is_guessed_in_the_message_and_read_when_stated(write):
    for encoding, sample in SAMPLES.items():
        content = f"text;tags\n{sample};a\nplain;b\n"
        assert guess_encoding(content.encode(encoding)) == encoding
        path = write("rows.csv", content, encoding)
        with pytest.raises(ParseError, match=f'UTF-8; the file may be in {encoding}; if so, pass encoding="'):
            read_table(path)
        rows = read_table(path, encoding=encoding)
        assert (rows.texts, adds_up(rows)["lines"]) == ([sample, "plain"], 3)
        assert read_csv(path, delimiter=";", encoding=encoding).texts == rows.texts


def test_encodings_that_are_none_or_wrong(write):
    path = write("rows.csv", "text,tags\nx,a\n")
    for name in ("no-such", "zlib", "rot13", "\0"):
        with pytest.raises(InvalidInputError, match="is not the name of one; give a name such as utf-8"):
            read_table(path, encoding=name)
    with pytest.raises(ParseError, match="line 1: the bytes from here on are not valid utf-16"):
        read_table(write("odd.csv", b"\xff\xfet\x00\x00\xd8x\x00"), encoding="utf-16")
    with pytest.raises(ParseError, match="line 2, column 4: byte 0x81 is not valid CP1252; the file may be in"):
        read_table(write("undefined.csv", b"text,tags\ncaf\x81,a\n"), encoding="cp1252")
    packed = write("rows.csv.gz", gzip.compress("text,tags\nGröße,a\n".encode("utf-16")))
    assert read_table(packed, encoding="utf-16").texts == ["Größe"]
