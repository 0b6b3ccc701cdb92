"""Bytes from and to plain, ``.gz`` and ``.bz2`` files, and from standard input: streamed reads, atomic writes.

Two limits hold for every reader, so that a small file cannot take all memory. A line, or whatever else is one record,
has at most :data:`LONGEST_LINE` bytes. A file that is packed in any way expands to at most :data:`LARGEST_EXPANSION`
times its own size, or to one longest line if that is more. The environment variables ``TAGWISE_LONGEST_LINE`` and
``TAGWISE_LARGEST_EXPANSION`` set others.
"""

from __future__ import annotations

import bz2
import codecs
import errno
import gzip
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedIOBase, BufferedReader, TextIOWrapper
from pathlib import Path
from typing import IO, cast

from tagwise.exceptions import InvalidInputError, InvalidTypeError, ParseError
from tagwise.store.atomic import atomic_stream

__all__ = [
    "LARGEST_EXPANSION",
    "LONGEST_LINE",
    "ByteSource",
    "Expansion",
    "UnskippableError",
    "atomic_writer",
    "checked_encoding",
    "checked_path",
    "damage_as_parse_error",
    "guess_encoding",
    "is_compressed",
    "longest_line",
    "open_file",
    "read_name_lines",
    "suffix_without_compression",
]

_COMPRESSED = (".gz", ".bz2")
_BYTE_ORDER_MARK = "\ufeff"

LONGEST_LINE = 16 * 2**20
"""Bytes of a line, a record or a row; a book has one million."""

LARGEST_EXPANSION = 100
"""Largest ratio of the content of a packed file to its size. Texts are packed 3 to 10 times, hardly ever 50 times."""

# What the shortest line and the smallest number cost in memory: a file may hold one for every so many bytes allowed.
LINE_BYTES = 64
NUMBER_BYTES = 8

# Bytes of a file that a guess at its encoding looks at.
_GUESSED_BYTES = 2**18


def is_compressed(path: str | os.PathLike[str]) -> bool:
    """Whether a file is compressed, by the extension of its name."""
    return Path(path).suffix.lower() in _COMPRESSED


def suffix_without_compression(path: str | os.PathLike[str]) -> str:
    """The lower-case extension that says what a file holds: ``.csv`` for ``rows.csv.gz``."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


class UnskippableError(ParseError):
    """A fault that affects more than its row, such as a damaged stream, and cannot be skipped."""


def longest_line() -> int:
    """Maximum number of bytes of a line or record."""
    return _limit("TAGWISE_LONGEST_LINE", LONGEST_LINE)


def _limit(variable: str, usual: int) -> int:
    given = os.environ.get(variable, "")
    if not given:
        return usual
    if not (given.isascii() and given.isdigit()) or len(given) > 18 or int(given) == 0:
        raise InvalidInputError(
            f"The environment variable {variable} must be a positive whole number of at most 18 digits; found "
            f"{given!r:.60}."
        )
    return int(given)


class Expansion:
    """Content of a compressed file, counted while it is read: too much is an error before the memory is taken."""

    def __init__(self, path: str, file_size: int) -> None:
        self.path, self.file_size = path, file_size
        self._times = _limit("TAGWISE_LARGEST_EXPANSION", LARGEST_EXPANSION)
        # A pipe, whose size is unknown, may hold as much as it likes.
        self.allowed: float = max(longest_line(), self._times * file_size) if file_size else math.inf
        self.used = 0

    def count(self, n_bytes: int, line: int = 0) -> None:
        """Count bytes that are about to be taken, or were in small pieces."""
        self.used += n_bytes
        if self.used > self.allowed:
            reason = (
                f"the file has {self.file_size:,} bytes and expands to more than {int(self.allowed):,}; a file that is "
                "packed so tightly may be made to exhaust the memory. If you trust it, raise the environment variable "
                f"TAGWISE_LARGEST_EXPANSION (now {self._times} times the size of the file)"
            )
            raise UnskippableError(self.path, line, 0, reason)


class ByteSource:
    """A data file opened for reading, decompressed on the way by its extension.

    Lines are in UTF-8 or in another ``encoding``. Where they are not, messages propose the one that they seem to be in,
    by the argument that ``propose`` makes of its name. A damaged or truncated compressed stream is a
    :class:`ParseError` at the line after the last one that was consumed. A ``stream`` that is open already, which
    ``path`` is the name of in messages, is left open.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        encoding: str | None = None,
        *,
        propose: Callable[[str], str] | None = None,
        stream: BufferedReader | None = None,
    ) -> None:
        self.path, self.line = checked_path(path), 0
        self._propose, self._longest = propose, longest_line()
        self._encoding = checked_encoding(encoding or "utf-8")
        # Where the byte of a line feed is one wherever it stands, lines are told before they are decoded.
        self._by_lines = "\n".encode(self._encoding) == b"\n"
        self._transcoder: TextIOWrapper | None = None
        self._is_own = stream is None
        self._raw = open_file(self.path) if stream is None else stream
        self._size = os.fstat(self._raw.fileno()).st_size if stream is None else 0
        self._file: BufferedIOBase = self._raw
        self._expansion: Expansion | None = None
        if stream is None and is_compressed(self.path):
            self._expansion = Expansion(self.path, self._size)
            is_gzip = self.path.lower().endswith(".gz")
            self._file = gzip.GzipFile(fileobj=self._raw, mode="rb") if is_gzip else bz2.BZ2File(self._raw, "rb")

    def __enter__(self) -> ByteSource:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._transcoder is not None:  # which would close the file
            self._transcoder.detach()
            self._transcoder = None
        if self._is_own:
            self._file.close()
            self._raw.close()

    def fraction_read(self) -> float:
        """The part of the file consumed so far, in [0, 1]; 0 when its size is unknown (a pipe)."""
        return min(1.0, self._raw.tell() / self._size) if self._size else 0.0

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end of the file."""
        with self._damage_as_parse_error():
            block = self._file.read(size)
        if self._expansion is not None:
            self._expansion.count(len(block), self.line)
        return block

    def content(self) -> bytes:
        """The rest of the file."""
        return b"".join(iter(partial(self.read, 2**20), b""))

    def readline(self, limit: int) -> bytes:
        """One line with its newline; at most ``limit`` bytes of it."""
        with self._damage_as_parse_error():
            return self._file.readline(limit)

    def lines(self) -> Iterator[bytes]:
        """The remaining lines, with their newlines; ``line`` is the number of the last one that was given."""
        with self._damage_as_parse_error():
            while line := self._next_line():
                self.line += 1
                self.check_length(len(line))
                if self._expansion is not None:
                    self._expansion.count(max(len(line), LINE_BYTES), self.line)
                yield line

    def _next_line(self) -> bytes:
        if self._by_lines:
            return self._file.readline(self._longest + 1)
        if self._transcoder is None:
            self._transcoder = TextIOWrapper(cast(BufferedReader, self._file), encoding=self._encoding, newline="\n")
        try:
            return self._transcoder.readline(self._longest + 1).encode("utf-8", "surrogatepass")
        except UnicodeError as error:
            reason = f"the bytes from here on are not valid {self._encoding}: {getattr(error, 'reason', error)}"
            raise UnskippableError(self.path, self.line + 1, 0, reason) from None

    def check_length(self, n_bytes: int, line: int | None = None) -> None:
        """Refuse a line, or a record that started on ``line``, that is too long."""
        if n_bytes > self._longest:
            reason = (
                f"the line is longer than {self._longest:,} bytes; break it up, or raise the environment variable "
                "TAGWISE_LONGEST_LINE"
            )
            raise UnskippableError(self.path, self.line if line is None else line, 0, reason)

    def fault(self, reason: str, column: int = 0) -> ParseError:
        """The error for a fault in the current line."""
        return ParseError(self.path, self.line, column, reason)

    def decoded(self, raw: bytes) -> str:
        """The current line as text, without its line end (LF or CRLF), and without a byte order mark on line 1."""
        encoding = self._encoding if self._transcoder is None else "utf-8"
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError as error:
            reason = f"byte 0x{raw[error.start]:02x} is not valid {encoding.upper()}; {self._advice(raw)}"
            raise self.fault(reason, error.start + 1) from None
        if self.line == 1:
            if raw.count(0) > len(raw) // 5:  # of two bytes per character one is 0, which UTF-8 allows
                raise self.fault(f"every other byte is 0, as in no text in {encoding.upper()}; {self._advice(raw)}")
            text = text.removeprefix(_BYTE_ORDER_MARK)
        return text.removesuffix("\n").removesuffix("\r")

    def _advice(self, raw: bytes) -> str:
        """Advice on a line that does not decode: the encoding that the file seems to have."""
        beginning = b""
        if self._size:
            # What comes later in the file may be damaged, and is not what is wrong here.
            with suppress(ParseError), ByteSource(self.path) as again:
                beginning = again.read(_GUESSED_BYTES)
        guess = guess_encoding(beginning + b"\n" + raw)
        if guess is None:
            return "the file holds zero bytes and may not be text; check what it is"
        if self._propose is None:
            return f"the file may be in {guess}; convert it to UTF-8 first: iconv -f {guess} -t utf-8"
        return f"the file may be in {guess}; if so, pass {self._propose(guess)}"

    @contextmanager
    def _damage_as_parse_error(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError, zlib.error) as error:
            # Decompressors raise OSError without an errno for damage; with one it is a fault of the disk.
            if getattr(error, "errno", None) is not None:
                raise
            reason = f"the compressed stream is truncated or damaged ({error}); get the file again"
            raise UnskippableError(self.path, self.line + 1, 0, reason) from None


@contextmanager
def damage_as_parse_error(
    path: str | os.PathLike[str], kind: str, line: Callable[[], int] = lambda: 0
) -> Iterator[None]:
    """Turn the dozen exception types that libraries raise for damaged files into one error."""
    try:
        yield
    except ParseError:
        raise
    except Exception as error:
        # Faults of the disk have a number; a damaged archive whose directory points before its start has EINVAL.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        what = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        reason = f"not a readable {kind}: {what[:300]}; get or write the file again"
        raise UnskippableError(path, line(), 0, reason) from None


def read_name_lines(path: str | os.PathLike[str]) -> list[str]:
    """The names of a file, one per line."""
    # Not str.splitlines: a name may hold one of the rarer characters that Unicode counts as a line end.
    with ByteSource(path) as source:
        return [source.decoded(raw) for raw in source.lines()]


def open_file(path: str) -> BufferedReader:
    """Open a file for reading; a folder is named as one."""
    try:
        return open(path, "rb")
    except IsADirectoryError:
        raise InvalidInputError(f"{path} is a folder; name a file in it.") from None


def checked_path(path: str | os.PathLike[str]) -> str:
    """The path as text; raises for invalid paths."""
    try:
        text = os.fspath(path)
    except TypeError:
        raise InvalidTypeError(f"path must be a path; found {path!r}.") from None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidInputError(f"path must be a path of text without NUL; found {path!r}.")
    return text


@contextmanager
def atomic_writer(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open ``path`` for writing atomically; compressed if it ends in .gz or .bz2."""
    target = Path(checked_path(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "The folder to write into does not exist", str(target.parent))
    with atomic_stream(target) as raw:
        if not is_compressed(target):
            yield raw
            return
        is_gzip = target.suffix.lower() == ".gz"
        # No name and no time in the header, so that equal content gives equal files.
        with gzip.GzipFile("", "wb", 6, raw, mtime=0) if is_gzip else bz2.BZ2File(raw, "wb") as packed:
            yield cast(IO[bytes], packed)


# ---------------------------------------------------------------------- encodings

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Encodings of other scripts, the characters that texts in them consist of, and typical ones, which are more than the
# given share. A text in another encoding hardly ever decodes by chance, and then to characters that nobody uses; of
# Cyrillic letters, capitals and small ones change places.
_KANA, _HAN, _SIGNS = "\u3041-\u30fe", "\u4e00-\u9fff", "\u3001\u3002\uff01-\uff5e"
_SCRIPTS = (
    ("shift_jis", f"[{_KANA}{_HAN}{_SIGNS}\u300c\u300d]", f"[{_KANA}]", 0),
    ("euc_jp", f"[{_KANA}{_HAN}{_SIGNS}\u300c\u300d]", f"[{_KANA}]", 0),
    ("cp949", "[\uac00-\ud7a3]", "[\uac00-\ud7a3]", 0),
    ("big5", f"[{_HAN}{_SIGNS}]", "[\u7684\u662f\u4e0d\u70ba\u5728\u4e86\u6703]", 0),
    ("gb18030", f"[{_HAN}{_SIGNS}]", f"[{_HAN}]", 0),
    ("cp1251", "[\u0410-\u044f\u0401\u0451]", "[\u0430-\u044f]", 0.5),
    ("koi8_r", "[\u0410-\u044f\u0401\u0451]", "[\u0430-\u044f]", 0.5),
)
_MOSTLY = 0.9
_IN_RUNS = 0.6


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


def guess_encoding(content: bytes) -> str | None:
    """Likely encoding of bytes that are not UTF-8; None if they are not text.

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
    for name, characters, typical, share in _SCRIPTS:
        text = _decoded(lines, name) if in_runs or name == "shift_jis" else ""
        n_of_script, n_typical = len(re.findall(characters, text)), len(re.findall(typical, text))
        if n_of_script >= _MOSTLY * len(text) and n_typical > share * len(text):
            return name
    return "cp1252" if _decoded(lines, "cp1252") else "latin-1"


def _decoded(lines: list[bytes], encoding: str) -> str:
    """The characters beyond ASCII of the lines that decode; none where more than one in twenty does not."""
    found = []
    for line in lines:
        with suppress(UnicodeDecodeError):
            found.append(line.decode(encoding))
    if len(found) < 0.95 * len(lines):
        return ""
    return re.sub("[\x00-\x7f]", "", "".join(found))
