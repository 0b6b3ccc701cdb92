"""Encodings of text files: what a name means, and a guess at what bytes are that are not UTF-8."""

from __future__ import annotations

import codecs
import re

from tagwise.exceptions import InvalidInputError

__all__ = ["checked_encoding", "guess_encoding", "is_line_based"]

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Encodings of scripts that have several bytes per character, and the characters that texts in them consist of. A text
# in another encoding hardly ever decodes by chance, and then to characters that nobody uses.
_SEVERAL_BYTES = (
    ("shift_jis", re.compile("[\u3041-\u30fe\u4e00-\u9fff\u3001\u3002\uff01-\uff5e\u300c\u300d]"), "[\u3041-\u30fe]"),
    ("euc_jp", re.compile("[\u3041-\u30fe\u4e00-\u9fff\u3001\u3002\uff01-\uff5e\u300c\u300d]"), "[\u3041-\u30fe]"),
    ("cp949", re.compile("[\uac00-\ud7a3]"), "[\uac00-\ud7a3]"),
    ("big5", re.compile("[\u4e00-\u9fff\u3001\u3002\uff01-\uff5e]"), "[\u7684\u662f\u4e0d\u70ba\u5728\u4e86\u6703]"),
    ("gb18030", re.compile("[\u4e00-\u9fff\u3001\u3002\uff01-\uff5e]"), "[\u4e00-\u9fff]"),
)
_MOSTLY = 0.9
_IN_RUNS = 0.6
_CYRILLIC = ("cp1251", "koi8_r")
_LOWER = re.compile("[\u0430-\u044f]")
_CYRILLIC_LETTER = re.compile("[\u0410-\u044f\u0401\u0451]")


def checked_encoding(name: str, option: str = "encoding") -> str:
    """The encoding as Python calls it; one that is unknown, or not of texts, is an error. ``option`` names it there."""
    try:
        found = codecs.lookup(name)
        "".encode(found.name)  # hex, zlib and the like are no encodings of texts
    except (LookupError, ValueError, TypeError):
        raise InvalidInputError(
            f"{option}: {name!r:.60} is not the name of one; give a name such as utf-8, cp1252, latin-1 or utf-16."
        ) from None
    return found.name


def is_line_based(encoding: str) -> bool:
    """Whether the byte of a line feed is a line feed wherever it stands, so that lines can be told before decoding."""
    return "\n".encode(encoding) == b"\n"


def guess_encoding(content: bytes) -> str | None:
    """What bytes that are not UTF-8 may be; None where they are no text.

    Marks of byte orders and zeros decide for UTF-16 and UTF-32; then East Asian encodings, if nearly all that they
    decode to is of their scripts; then Cyrillic ones, if lower-case letters come out; else Western European.
    """
    for mark, name in _MARKS:
        if content.startswith(mark):
            return name
    zeros = content.count(0)
    if zeros > len(content) // 5:
        return "utf-16-le" if content[1::2].count(0) >= content[0::2].count(0) else "utf-16-be"
    if zeros:
        return None
    lines = [line for line in content.split(b"\n") if not line.isascii()]
    runs = re.findall(b"[\x80-\xff]+", b"\n".join(lines))
    # In a Western text most of these bytes stand alone, within words.
    in_runs = sum(len(run) for run in runs if len(run) > 1) > _IN_RUNS * sum(map(len, runs))
    for name, characters, typical in _SEVERAL_BYTES:
        if name != "shift_jis" and not in_runs:
            continue
        text = _decoded(lines, name)
        if text and len(characters.findall(text)) >= _MOSTLY * len(text) and re.search(typical, text):
            return name
    if in_runs:
        lower, name = max((len(_LOWER.findall(_decoded(lines, name))), name) for name in _CYRILLIC)
        text = _decoded(lines, name)
        if lower > len(text) / 2 and len(_CYRILLIC_LETTER.findall(text)) > _MOSTLY * len(text):
            return name
    return "cp1252" if _decoded(lines, "cp1252") else "latin-1"


def _decoded(lines: list[bytes], encoding: str) -> str:
    """The characters beyond ASCII of the lines that decode; none where more than one in twenty does not."""
    found = []
    for line in lines:
        try:
            found.append(line.decode(encoding))
        except UnicodeDecodeError:
            continue
    if len(found) < 0.95 * len(lines):
        return ""
    return re.sub("[\x00-\x7f]", "", "".join(found))
