"""Files of feedback: what is read, what wins, what is lost when a writer dies, and what becomes of the rows."""

import errno
import json
import os
import shutil
import subprocess
import sys

import pytest
from commands import write_jsonl
from hypothesis import given
from hypothesis import strategies as st

from tagwise.data import Table, read_feedback, with_feedback
from tagwise.data.feedback import ANSWERS, FeedbackFile, feedback_line
from tagwise.exceptions import InvalidInputError, ParseError

GOOD = {"text": "a cat", "accepted": ["pets"], "rejected": ["food"]}


def latest(feedback):
    """(id or text, tag) → whether it is right."""
    return {
        (key, tag): answer.right
        for part in (feedback.by_id, feedback.by_text)
        for key, answers in part.items()
        for tag, answer in answers.tags.items()
        if answer.right is not None
    }


def read(tmp_path, *records):
    return read_feedback(write_jsonl(tmp_path / "feedback.jsonl", records))


def test_the_latest_answer_counts_and_the_others_are_counted(tmp_path):
    found = read(
        tmp_path,
        {"text": "a", "accepted": ["x", "y"], "rejected": ["z"]},
        {"text": "a", "accepted": ["x"], "rejected": ["y"]},
        {"text": "a", "withdrawn": ["z", "never answered"]},
        {"id": "7", "text": "a", "rejected": ["x"]},
        {"text": "b", "accepted": ["x", "x"]},
    )
    assert latest(found) == {("a", "x"): True, ("a", "y"): False, ("7", "x"): False, ("b", "x"): True}
    counts = {"records": 5, "texts": 3, "accepted": 2, "rejected": 2, "repeated": 1, "contradicted": 2}
    assert found.counts() == counts
    assert found.account == (
        "5 records of feedback on 3 texts: 2 tags accepted, 2 rejected; 1 answer repeated and 2 changed, of which the "
        "latest counts."
    )


def record_of(text, answers):
    return {"text": text} | {name: [tag for tag, given in answers.items() if given == name] for name in ANSWERS}


records = st.builds(
    record_of,
    st.sampled_from(["a", "b"]),
    st.dictionaries(st.sampled_from(["x", "y", "z"]), st.sampled_from(ANSWERS), min_size=1),
)


@given(st.lists(records, max_size=12))
def test_the_latest_answer_counts_as_in_a_dictionary(tmp_path_factory, given_records):
    expected, repeated, changed = {}, 0, 0
    for record in given_records:
        for name, right in zip(ANSWERS, (True, False, None)):
            for tag in record[name]:
                before = expected.get((record["text"], tag))
                repeated += before is not None and before is right
                changed += before is not None and before is not right
                expected[record["text"], tag] = right
    found = read(tmp_path_factory.mktemp("feedback"), *given_records)
    assert latest(found) == {key: right for key, right in expected.items() if right is not None}
    assert (found.repeated, found.contradicted) == (repeated, changed)


def test_a_line_that_is_no_record_is_named(tmp_path):
    for record, words in (
        ({"accepted": ["x"]}, "needs text or id"),
        ({"text": "a corpus", "labels": ["x"]}, "needs one of accepted, rejected, withdrawn"),
        ({"text": 3, "accepted": ["x"]}, "text must be a string; found a number"),
        ({"id": ["3"], "accepted": ["x"]}, "id must be a string; found a list"),
        ({"text": "a", "accepted": "x"}, "accepted must be a list of tags"),
        ({"text": "a", "accepted": [""]}, "none of them empty"),
        ({"text": "a", "accepted": [3]}, "accepted must be a list of tags"),
        ({"text": "a", "accepted": ["x"], "rejected": ["x"]}, "one record answers 'x' in two ways"),
    ):
        with pytest.raises(ParseError, match="line 2") as error:
            read(tmp_path, GOOD, record)
        assert words in str(error.value)
        with pytest.raises(InvalidInputError, match="cannot be kept"):
            feedback_line(record)
    with pytest.raises(InvalidInputError, match="surrogate"):
        feedback_line({"text": "\ud800", "accepted": ["x"]})


def test_a_last_line_that_was_cut_off_is_left_out_and_then_removed(tmp_path):
    path = tmp_path / "feedback.jsonl"
    whole, line = feedback_line(GOOD), feedback_line({**GOOD, "text": "größer"})  # also cut within a character
    for cut in range(1, len(line)):
        path.write_bytes(whole + line[:cut])
        is_whole = cut == len(line) - 1  # nothing but its end is missing
        assert read_feedback(path).records == 1 + is_whole
        FeedbackFile(path).append([line])
        assert path.read_bytes() == whole + (line if is_whole else b"") + line


def test_a_long_line_that_was_cut_off_is_removed_whole(tmp_path):
    path = tmp_path / "feedback.jsonl"
    path.write_bytes(feedback_line(GOOD) + feedback_line({**GOOD, "text": "long " * 50_000})[:-5])
    FeedbackFile(path).close()
    assert path.read_bytes() == feedback_line(GOOD)


def test_a_fault_before_a_line_that_was_cut_off_is_not_passed_over(tmp_path):
    path = tmp_path / "feedback.jsonl"
    for between in (feedback_line(GOOD), b""):
        path.write_bytes(feedback_line(GOOD) + b"nonsense\n" + between + b'{"text"')
        with pytest.raises(ParseError, match="line 2"):
            read_feedback(path)


def test_answers_on_several_taggers_are_told_apart(tmp_path):
    path = write_jsonl(
        tmp_path / "feedback.jsonl",
        [{**GOOD, "tagger": "packages"}, {**GOOD, "text": "b", "tagger": "books"}, {**GOOD, "text": "c"}],
    )
    with pytest.raises(InvalidInputError, match=r"'books' \(1 record\), 'packages' \(1 record\)"):
        read_feedback(path)
    assert set(read_feedback(path, tagger="books").by_text) == {"b", "c"}
    one = write_jsonl(tmp_path / "one.jsonl", [{**GOOD, "tagger": "packages"}])
    assert read_feedback(one).records == 1
    with pytest.raises(InvalidInputError, match="no answer on suggestions of 'books'"):
        read_feedback(one, tagger="books")


pieces = st.sampled_from(
    [feedback_line(GOOD), b'{"text": "a", ', b'"accepted": ["x"]}', b"\n", b"\xff", b"{}", b"[]", b"\0"]
)


@given(st.lists(pieces | st.binary(max_size=5), max_size=8).map(b"".join))
def test_any_bytes_are_read_or_refused_and_a_writer_keeps_every_whole_record(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("feedback") / "feedback.jsonl"
    path.write_bytes(content)
    try:
        before = read_feedback(path)
    except (ParseError, InvalidInputError):
        before = None
    try:
        file = FeedbackFile(path)
    except InvalidInputError:
        assert path.read_bytes() == content
        return
    file.append([feedback_line({**GOOD, "text": "the last"})])
    if before is not None:
        after = read_feedback(path)
        assert after.records == before.records + 1
        assert list(after.by_text)[-1] == "the last"


# ---------------------------------------------------------------------- rows


def test_rows_learn_what_was_answered_and_nothing_else(tmp_path):
    table = Table(
        ["a cat", "a dog", "red wine", "beer"],
        [["pets"], ["food"], ["drinks"], []],
        [["pets", "food"], None, ["drinks"], ["food"]],
        ["1", "2", "3", "4"],
    )
    found = with_feedback(
        table,
        read(
            tmp_path,
            {"id": "1", "accepted": ["cats"], "rejected": ["pets"]},
            {"text": " a dog\n", "accepted": ["pets"], "rejected": ["food"]},
            {"id": "unknown here", "text": "beer", "accepted": ["drinks"]},
            {"text": "a new text", "accepted": ["pets"], "rejected": ["drinks"]},
            {"text": "only rejected", "rejected": ["drinks"]},
            {"text": "taken back", "accepted": ["x"]},
            {"text": "taken back", "withdrawn": ["x"]},
            {"id": "9", "rejected": ["pets"]},
        ),
    )
    assert found.texts == ["a cat", "a dog", "red wine", "beer", "a new text", "only rejected"]
    assert found.tags == [["cats"], ["pets"], ["drinks"], ["drinks"], ["pets"], []]
    of_table = [["pets", "food", "cats"], None, ["drinks"], ["food", "drinks"]]
    assert found.known == [*of_table, ["pets", "drinks"], ["drinks"]]
    assert found.ids == ["1", "2", "3", "4", "feedback 1", "feedback 2"]
    assert found.counts == {"feedback_rows": 3, "feedback_texts": 2, "feedback_lost": 1}
    assert found.account == (
        "Feedback on 3 rows of the file and on 2 other texts. 1 identifier in the feedback that no row has, without a "
        "text: left out."
    )
    assert (table.texts[-1], table.tags[0], table.known[0]) == ("beer", ["pets"], ["pets", "food"])


def test_of_answers_with_and_without_an_identifier_the_latest_counts(tmp_path):
    table = Table(["a cat"], [[]], None, ["1"])
    first, second = {"id": "1", "accepted": ["x"]}, {"text": "a cat", "rejected": ["x"]}
    assert with_feedback(table, read(tmp_path, first, second)).tags == [[]]
    assert with_feedback(table, read(tmp_path, second, first)).tags == [["x"]]
    both = {"id": "5", "text": "new", "accepted": ["x"]}, {"text": "new", "rejected": ["x"], "accepted": ["y"]}
    found = with_feedback(table, read(tmp_path, *both))
    assert (found.texts, found.tags[1], found.known) == (["a cat", "new"], ["y"], [None, ["x", "y"]])


def test_every_row_of_a_text_learns_its_answers(tmp_path):
    found = with_feedback(Table(["a", "b", "a"], [["x"], [], []]), read(tmp_path, {"text": "a", "accepted": ["y"]}))
    assert found.tags == [["x", "y"], [], ["y"]]
    assert found.known is None


def test_without_answers_a_table_stays_as_it_is(tmp_path):
    (tmp_path / "feedback.jsonl").touch()
    table = Table(["a"], [["x"]])
    nothing = read_feedback(tmp_path / "feedback.jsonl")
    found = with_feedback(table, nothing)
    assert nothing.records == 0
    assert (found.texts, found.tags, found.known) == (table.texts, table.tags, None)


# ---------------------------------------------------------------------- the file


def test_something_else_than_feedback_is_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes\nwithout an end")
    with pytest.raises(InvalidInputError, match="something else than feedback"):
        FeedbackFile(path)
    assert path.read_text() == "my notes\nwithout an end"
    for content in ("one line", '{"a": "configuration"}', '{\n"a": 1}', "[]", '{"text": "a", "labels": []}\n'):
        path.write_text(content)
        with pytest.raises(InvalidInputError, match="something else than feedback"):
            FeedbackFile(path)
        assert path.read_text() == content
    with pytest.raises(InvalidInputError, match="is not a folder"):
        FeedbackFile(tmp_path / "nowhere" / "feedback.jsonl")
    with pytest.raises(InvalidInputError, match="is not a file"):
        FeedbackFile(tmp_path)


def test_a_file_that_was_moved_away_is_made_again(tmp_path):
    path = tmp_path / "feedback.jsonl"
    file = FeedbackFile(path)
    file.append([feedback_line(GOOD)])
    path.rename(tmp_path / "feedback.1.jsonl")
    file.append([feedback_line({**GOOD, "text": "later"})])
    path.unlink()
    file.append([feedback_line({**GOOD, "text": "last"})])
    assert list(read_feedback(tmp_path / "feedback.1.jsonl").by_text) == ["a cat"]
    assert list(read_feedback(path).by_text) == ["last"]


def test_several_writers_do_not_mix_their_lines(tmp_path):
    path = tmp_path / "feedback.jsonl"
    files = [FeedbackFile(path) for _ in range(3)]
    for number in range(30):
        files[number % 3].append([feedback_line({**GOOD, "text": f"{number}.{part}"}) for part in range(4)])
    assert list(read_feedback(path).by_text) == [f"{number}.{part}" for number in range(30) for part in range(4)]


class FullDevice:
    """A file on a device that takes a few bytes more."""

    def __init__(self, file, left):
        self._file, self._left = file, left

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, data):
        if not self._left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = min(self._left, len(data))
        self._left -= taken
        return self._file.write(bytes(data[:taken]))


def fails(descriptor):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("left", [0, 1, 50, 100, None])
def test_on_a_full_device_and_where_flushing_fails_nothing_of_a_record_stays(tmp_path, left, monkeypatch):
    path = tmp_path / "feedback.jsonl"
    file = FeedbackFile(path)
    file.append([feedback_line(GOOD)])
    with monkeypatch.context() as patched:
        if left is None:
            patched.setattr(os, "fsync", fails)
        else:
            patched.setattr(file, "_file", FullDevice(file._file, left))
        with pytest.raises(OSError, match="Input/output error" if left is None else "No space left"):
            file.append([feedback_line(GOOD), feedback_line({**GOOD, "text": "longer " * 20})])
    assert path.read_bytes() == feedback_line(GOOD)
    file.append([feedback_line({**GOOD, "text": "there is space again"})])
    assert [json.loads(line)["text"] for line in path.read_text().splitlines()] == ["a cat", "there is space again"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_beyond_the_size_that_the_system_allows_nothing_of_a_record_stays(tmp_path):
    """A process of its own, which may write 1,000 bytes: a real failure of a real write."""
    path = tmp_path / "feedback.jsonl"
    program = f"""
import resource
from tagwise.data.feedback import FeedbackFile, feedback_line
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
file, kept = FeedbackFile({str(path)!r}), 0
try:
    while True:
        file.append([feedback_line({{"text": f"text {{kept}} and more", "accepted": ["x"]}})])
        kept += 1
except OSError as error:
    print(kept, error.strerror)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", timeout=600)
    kept, reason = done.stdout.strip().split(" ", 1)
    assert reason == "File too large", done.stderr
    assert int(kept) > 10
    assert len(read_feedback(path).by_text) == int(kept)
    assert path.read_bytes().endswith(b"\n")


def test_a_folder_that_has_gone_is_an_error_until_it_is_there_again(tmp_path):
    path = tmp_path / "folder" / "feedback.jsonl"
    path.parent.mkdir()
    file = FeedbackFile(path)
    shutil.rmtree(path.parent)
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            file.append([feedback_line(GOOD)])
    path.parent.mkdir()
    file.append([feedback_line(GOOD)])
    assert read_feedback(path).records == 1
