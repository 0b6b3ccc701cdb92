"""Files of tags and their names."""

import gzip

import pytest

from tagwise.data import read_vocabulary
from tagwise.exceptions import ParseError


def test_tags_with_and_without_names(tmp_path):
    path = tmp_path / "tags.tsv"
    path.write_bytes("\ufeffp1\tchess game\r\n lone tag \nz\t ü \n".encode())
    assert read_vocabulary(path) == {"p1": "chess game", "lone tag": "lone tag", "z": "ü"}
    assert list(read_vocabulary(path)) == ["p1", "lone tag", "z"]
    packed = tmp_path / "tags.txt.gz"
    packed.write_bytes(gzip.compress(b"a\nb"))
    assert read_vocabulary(packed) == {"a": "a", "b": "b"}


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"", 0, "the file is empty"),
        (b"a\n\nb\n", 2, "the tag is empty"),
        (b"\tname\n", 1, "the tag is empty"),
        (b"a\t \n", 1, "the name is empty"),
        (b"a\tb\tc\n", 1, "the line has 2 tabs"),
        (b"a\nb\na\tA\n", 3, "the tag 'a' was there before"),
        (b"a\n\xff\n", 2, "byte 0xff is not valid UTF-8"),
    ],
)
def test_faults_have_a_line(content, line, words, tmp_path):
    (tmp_path / "tags.tsv").write_bytes(content)
    with pytest.raises(ParseError, match=words) as caught:
        read_vocabulary(tmp_path / "tags.tsv")
    assert caught.value.line == line
