"""Lines ``l1,l2 f:v f:v``: the extreme-classification format (with a header ``n d L``) and multi-label svmlight."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from tagwise.data import byte_parser
from tagwise.data.labelled_rows import LabelledRows, checked_pair
from tagwise.data.number_text import check_float_dtype, parse_number, shortest_texts
from tagwise.data.streams import LINE_BYTES, ByteSource, atomic_writer
from tagwise.exceptions import InvalidInputError, ParseError
from tagwise.interrupts import deferring_interrupts
from tagwise.validation import check_choice, check_integer

__all__ = ["read_svmlight", "read_xmc", "write_svmlight", "write_xmc"]

# Bytes taken from the file at a time: large against the cost of a call, small against the matrices.
BLOCK_BYTES = 1 << 20
# Of features and labels: ids are 32-bit numbers. Each width of ids would be another compilation of the parser.
MOST_COLUMNS = 2**31 - 1
_ROWS_PER_WRITE = 4096
_LARGEST_GROWTH = 1.35  # a file may be denser at its start than the prediction says
_SPARE = 1.01
_LONGEST_HEADER = 4096
_HEADER_WORDS = ("rows", "features", "labels")


def read_xmc(path: str | os.PathLike[str], *, errors: str = "strict", dtype: DTypeLike = np.float32) -> LabelledRows:
    """Read an extreme-classification text file, plain, ``.gz`` or ``.bz2``.

    The first line is ``n d L`` (rows, features, labels; d and L are below 2**31). Each of the n lines after it is
    ``l1,l2 f:v f:v`` with ids from 0. A line that starts with a space, or whose first word holds a colon, has no
    labels; a row may have no features, and an empty line is a row with neither. Ids need not be sorted. Explicit zeros
    are kept. A value is rounded to double and then to ``dtype``.

    Parameters
    ----------
    path : str or path
        The file.
    errors : {"strict", "skip"}
        What to do with a faulty row: raise :class:`ParseError`, or leave it out and count it in ``n_skipped``. A wrong
        header, damaged compression, and a number of rows that skipped lines do not explain are always errors.
    dtype : numpy.float32 or numpy.float64
        The type of the values of ``X``.

    Returns
    -------
    LabelledRows
        ``X`` n×d and ``Y`` n×L; names, texts and ids are None.

    Notes
    -----
    Time is linear in the size of the file. Memory is that of the two matrices plus a few MB: the file is read in
    blocks, and the arrays grow in place. That is 8 bytes per feature and label and 16 per row; what the header
    announces takes none. Lines and expansions are limited (see docs/data-formats.md).
    """
    skip = check_choice(errors, "errors", ("strict", "skip")) == "skip"
    value_type = check_float_dtype(dtype)
    with ByteSource(path) as source:
        n_rows, n_features, n_labels = _read_header(source)
        return _Reader(source, n_rows, n_features, n_labels, value_type, skip).read()


def _read_header(source: ByteSource) -> tuple[int, int, int]:
    line = source.readline(_LONGEST_HEADER)
    if not line:
        raise source.fault("the file is empty; the first line must be 'rows features labels'")
    source.line = 1
    expected = "the header must be three whole numbers 'rows features labels'"
    sizes: list[int] = []
    for word in re.finditer(rb"[^ \t\r\n]+", line):
        column, text = word.start() + 1, word.group().decode("utf-8", "backslashreplace")
        if len(sizes) == 3:
            raise source.fault(f"the header has more than three numbers; found {text[:40]!r}", column)
        if not re.fullmatch("[0-9]{1,18}", text):
            hint = " (a file without header is svmlight: see read_svmlight)" if b":" in line or b"," in line else ""
            what = _HEADER_WORDS[len(sizes)]
            raise source.fault(f"{expected}; found {text[:40]!r} for the number of {what}{hint}", column)
        sizes.append(int(text))
        if len(sizes) > 1 and sizes[-1] > MOST_COLUMNS:
            what = _HEADER_WORDS[len(sizes) - 1]
            raise source.fault(f"there may be at most {MOST_COLUMNS:,} {what}; found {sizes[-1]:,}", column)
    if len(sizes) < 3:
        raise source.fault(f"{expected}; found only {len(sizes)}")
    if not line.endswith(b"\n") and len(line) == _LONGEST_HEADER:
        raise source.fault(f"the header is longer than {_LONGEST_HEADER} bytes")
    return sizes[0], sizes[1], sizes[2]


def write_xmc(path: str | os.PathLike[str], X: Any, Y: Any) -> None:
    """Write features and labels as an extreme-classification text file, atomically.

    Values are written as the shortest text that reads back as the same float32 (or float64), so that
    ``read_xmc(path, dtype=X.dtype)`` returns the same matrices.

    Parameters
    ----------
    path : str or path
        The file; compressed if it ends in ``.gz`` or ``.bz2``.
    X : sparse matrix or array of shape (n, d)
        Finite features.
    Y : sparse matrix or array of shape (n, L)
        0/1 labels.
    """
    features, labels = checked_pair(X, Y)
    with atomic_writer(path) as stream:
        stream.write(f"{features.shape[0]} {features.shape[1]} {labels.shape[1]}\n".encode("ascii"))
        _write_lines(stream, features, labels)


def read_svmlight(
    path: str | os.PathLike[str],
    *,
    n_features: int | None = None,
    n_labels: int | None = None,
    zero_based: bool = True,
    errors: str = "strict",
    dtype: DTypeLike = np.float32,
) -> LabelledRows:
    """Read a multi-label svmlight file, plain, ``.gz`` or ``.bz2``.

    Lines are as in :func:`read_xmc`, with two differences. From ``#`` to the end of the line is a comment, and a line
    that starts with ``#`` is not a row. An empty line is a fault, since it may be an accident: a row without labels and
    features is a line with a single space, which is what :func:`write_svmlight` writes.

    Parameters
    ----------
    path : str or path
        The file.
    n_features, n_labels : int or None
        Numbers of columns of ``X`` and ``Y``; None takes the largest id found plus one. Pass the training
        set's numbers for a test set. An id beyond them is a fault. At most 2**31 - 1 each.
    zero_based : bool
        Whether the first feature is 0 or 1. Label ids always start at 0.
    errors : {"strict", "skip"}
        What to do with a faulty row: raise :class:`ParseError`, or leave it out and count it in ``n_skipped``.
    dtype : numpy.float32 or numpy.float64
        The type of the values of ``X``.

    Returns
    -------
    LabelledRows
        ``X`` n×d and ``Y`` n×L; names, texts and ids are None. Time and memory are those of ``read_xmc``.
    """
    n_features, n_labels = _checked_size(n_features, "n_features"), _checked_size(n_labels, "n_labels")
    value_type = check_float_dtype(dtype)
    skip = check_choice(errors, "errors", ("strict", "skip")) == "skip"
    with ByteSource(path) as source:
        first_feature = 0 if zero_based else 1
        return _Reader(source, None, n_features, n_labels, value_type, skip, first_feature).read()


def _checked_size(size: int | None, name: str) -> int | None:
    if size is not None and check_integer(size, name, minimum=1) > MOST_COLUMNS:
        raise InvalidInputError(f"{name} must be at most {MOST_COLUMNS:,}; found {size:,}.")
    return None if size is None else int(size)


def write_svmlight(path: str | os.PathLike[str], X: Any, Y: Any, *, zero_based: bool = True) -> None:
    """Write features and labels as a multi-label svmlight file, atomically.

    The format does not store d and L: pass ``n_features`` and ``n_labels`` to :func:`read_svmlight` to get
    back matrices of the same shape when the last columns are empty.

    Parameters
    ----------
    path : str or path
        The file; compressed if it ends in ``.gz`` or ``.bz2``.
    X : sparse matrix or array of shape (n, d)
        Finite features, written as the shortest text that reads back as the same float.
    Y : sparse matrix or array of shape (n, L)
        0/1 labels.
    zero_based : bool
        Whether to number features from 0 or from 1.
    """
    features, labels = checked_pair(X, Y)
    with atomic_writer(path) as stream:
        _write_lines(stream, features, labels, first_feature=0 if zero_based else 1)


class _CsrArrays:
    """CSR arrays that grow in place: ``ndarray.resize`` is a realloc, which copies large arrays only where it must."""

    def __init__(self, dtype: np.dtype[Any] | None) -> None:
        self.indptr: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self.indices: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self.values: NDArray[Any] | None = None if dtype is None else np.zeros(0, dtype=dtype)

    def reserve(self, n_rows: int, more_rows: int, more_entries: int, fraction: float) -> None:
        used = int(self.indptr[n_rows])
        _grow(self.indptr, n_rows + 1, more_rows, fraction)
        _grow(self.indices, used, more_entries, fraction)
        if self.values is not None:
            _grow(self.values, used, more_entries, fraction)

    def finish(self, n_rows: int, size: int | None) -> sp.csr_matrix:
        used = int(self.indptr[n_rows])
        self.indptr.resize(n_rows + 1, refcheck=False)
        self.indices.resize(used, refcheck=False)
        if self.values is None:
            values = np.ones(used, dtype=np.float32)
        else:
            self.values.resize(used, refcheck=False)
            values = self.values
        if size is None:
            size = int(self.indices.max()) + 1 if used else 0
        # scipy wants one type for both index arrays.
        index_type = np.int64 if used > np.iinfo(np.int32).max else np.int32
        indices, indptr = (array.astype(index_type, copy=False) for array in (self.indices, self.indptr))
        matrix = sp.csr_matrix((values, indices, indptr), shape=(n_rows, size), copy=False)
        matrix.has_canonical_format = True
        return matrix


def _grow(array: NDArray[Any], used: int, more: int, fraction: float) -> None:
    """Make room for ``more`` entries, aiming at the size that the fraction of the file read so far predicts."""
    needed = used + more
    if needed > len(array):
        predicted = used / fraction * _SPARE if fraction > 0 else np.inf
        array.resize(max(needed, int(min(predicted, used * _LARGEST_GROWTH))), refcheck=False)


class _Reader:
    """One pass over a file: blocks in, CSR arrays out.

    The number of rows is declared by a header; without one the file is svmlight. A number of features or labels of None
    follows from the largest id.
    """

    def __init__(
        self,
        source: ByteSource,
        declared_rows: int | None,
        n_features: int | None,
        n_labels: int | None,
        dtype: np.dtype[Any],
        skip: bool,
        first_feature: int = 0,
    ) -> None:
        self.source, self.skip, self.dtype = source, skip, dtype
        self.declared_rows, self.n_features, self.n_labels = declared_rows, n_features, n_labels
        self.first_feature, self.is_svmlight = first_feature, declared_rows is None
        self.line_format = byte_parser.LineFormat(
            first_feature=first_feature,
            n_features=MOST_COLUMNS if n_features is None else n_features,
            n_labels=MOST_COLUMNS if n_labels is None else n_labels,
            row_limit=np.iinfo(np.int64).max if declared_rows is None else declared_rows,
            comments=self.is_svmlight,
            narrow=dtype == np.float32,
        )
        self.x = _CsrArrays(dtype)
        self.y = _CsrArrays(None)
        self.n_rows = 0
        self.n_skipped = 0

    def read(self) -> LabelledRows:
        for block in _whole_lines(self.source):
            self._parse(block)
        self._check_row_count()
        return LabelledRows(
            X=self.x.finish(self.n_rows, self.n_features),
            Y=self.y.finish(self.n_rows, self.n_labels),
            n_skipped=self.n_skipped,
        )

    @deferring_interrupts
    def _parse(self, block: bytes) -> None:
        x, y = self.x, self.y
        lines = block.count(b"\n") + 1
        colons = block.count(b":")
        self.source.count(max(0, LINE_BYTES * lines - len(block)))
        fraction = self.source.fraction_read()
        # A feature needs a colon; a label needs a comma or ends the labels of its line.
        x.reserve(self.n_rows, lines, colons, fraction)
        y.reserve(self.n_rows, lines, lines + block.count(b","), fraction)
        buffer = np.frombuffer(block, dtype=np.uint8)
        # Room for every number of the block; pages that no slow number touches cost nothing.
        slow_tokens = np.empty((colons, 3), dtype=np.int64)
        arrays = byte_parser.RowArrays(x.indptr, x.indices, x.values, y.indptr, y.indices, slow_tokens)
        position = 0
        while position < len(block):
            code, line_start, fault, self.n_rows, n_lines, n_slow = byte_parser.parse_rows(
                buffer, position, self.n_rows, self.line_format, arrays
            )
            self.source.line += n_lines
            if code == byte_parser.OK:
                return
            error = (
                self._finish_row(block, line_start, slow_tokens[:n_slow])
                if code == byte_parser.SLOW_NUMBERS
                else self._error(block, code, line_start, fault)
            )
            self.source.line += 1
            if error is not None:
                if not self.skip or code == byte_parser.TOO_MANY_ROWS:
                    raise error
                self.n_skipped += 1
            newline = block.find(b"\n", line_start)
            position = len(block) if newline < 0 else newline + 1

    def _finish_row(self, block: bytes, line_start: int, tokens: NDArray[np.int64]) -> ParseError | None:
        """Convert the numbers that the compiled parser left over, then sort and commit the row."""
        values = self.x.values
        assert values is not None
        for place, start, stop in tokens.tolist():
            try:
                values[place] = parse_number(block[start:stop].decode("ascii"), self.dtype)
            except ValueError:
                return self._error(block, byte_parser.BAD_VALUE, line_start, start)
        low, high = self.x.indptr[self.n_rows : self.n_rows + 2].tolist()
        duplicate = byte_parser.sort_row(self.x.indices, values, low, high)
        if duplicate >= 0:
            return self._error(block, byte_parser.DUPLICATE_FEATURE, line_start, duplicate)
        if self.n_rows == self.declared_rows:
            # Even when skipping: the row itself is good.
            raise self._error(block, byte_parser.TOO_MANY_ROWS, line_start, line_start)
        self.n_rows += 1
        return None

    def _error(self, block: bytes, code: int, line_start: int, fault: int) -> ParseError:
        newline = block.find(b"\n", line_start)
        line = block[line_start : len(block) if newline < 0 else newline]
        if self.is_svmlight:
            line = line.partition(b"#")[0]
        if code in (byte_parser.DUPLICATE_LABEL, byte_parser.DUPLICATE_FEATURE):
            is_label = code == byte_parser.DUPLICATE_LABEL
            id_in_file = int(fault) + (0 if is_label else self.first_feature)
            # A number before a colon is a feature, and the first numbers of the line are its labels.
            ids = re.finditer(rb"[0-9]+(?=[,\s]|$)" if is_label else rb"[0-9]+(?=:)", line)
            column = next(islice((found.start() for found in ids if int(found[0]) == id_in_file), 1, None))
            token = str(id_in_file)
        elif code in (byte_parser.TOO_MANY_ROWS, byte_parser.BLANK_LINE):
            column, token = -1, ""
        else:
            column = int(fault) - line_start
            words = line[column : column + 200].split(maxsplit=1)
            ends_here = line[column : column + 1] in b" \t"
            token = "" if ends_here or not words else words[0].decode("utf-8", "backslashreplace")
        return ParseError(self.source.path, self.source.line + 1, column + 1, self._reason(code, token))

    def _reason(self, code: int, token: str) -> str:
        """The sentence for a fault."""
        shown = repr(token if len(token) <= 40 else token[:37] + "...")
        if code == byte_parser.BLANK_LINE:
            return "the line is empty; a row without labels and features is a line with a single space"
        if code == byte_parser.BAD_LABEL:
            if token.startswith(","):
                return f"a label id is missing at {shown}; labels are whole numbers with commas between them"
            if token == "":
                return "a label id is missing after the comma (is the line truncated?)"
            return f"{shown} is not a label id; labels are whole numbers with commas between them"
        if code == byte_parser.NEGATIVE_LABEL:
            return f"the label id at {shown} is negative; ids start at 0"
        if code == byte_parser.LABEL_RANGE:
            return f"the label id at {shown} is out of range; {_range('labels', self.n_labels, 0)}"
        if code == byte_parser.DUPLICATE_LABEL:
            return f"label {token} is listed twice in this row"
        if code == byte_parser.BAD_FEATURE:
            if ":" not in token:
                return f"{shown} is not a feature:value pair; the colon is missing (is the line truncated?)"
            return f"{shown} is not a feature:value pair; the feature id must be a whole number"
        if code == byte_parser.NEGATIVE_FEATURE:
            return f"the feature id in {shown} is negative; ids start at {self.first_feature}"
        if code == byte_parser.FEATURE_RANGE:
            return (
                f"the feature id in {shown} is out of range; {_range('features', self.n_features, self.first_feature)}"
            )
        if code == byte_parser.DUPLICATE_FEATURE:
            return f"feature {token} is listed twice in this row"
        if code == byte_parser.BAD_VALUE:
            if token == "":
                return "the value after the colon is missing (is the line truncated?)"
            try:
                parse_number(token, self.dtype)
            except ValueError as error:
                return str(error)
            return f"{shown} is not a number"
        return f"there are more rows than the header announces ({self.declared_rows:,})"

    def _check_row_count(self) -> None:
        expected = self.declared_rows
        if expected is None:
            if self.n_rows == 0 and self.n_skipped == 0:
                raise ParseError(self.source.path, 0, 0, "the file holds no rows")
        elif self.n_rows + self.n_skipped < expected:
            skipped = f" and {self.n_skipped:,} were skipped" if self.n_skipped else ""
            reason = (
                f"the file ends after {self.n_rows:,} rows{skipped}, but the header announces {expected:,} "
                "(is the file truncated?)"
            )
            raise ParseError(self.source.path, self.source.line + 1, 0, reason)


def _whole_lines(source: ByteSource) -> Iterator[bytes]:
    """The rest of the file in blocks that end with a newline (except, perhaps, the last one)."""
    parts: list[bytes] = []
    held = 0
    # A line longer than what is held needs a read as large, or joining would be quadratic in its length.
    while block := source.read(max(BLOCK_BYTES, held)):
        cut = block.rfind(b"\n") + 1
        if cut == 0:
            parts.append(block)
            held += len(block)
            source.check_length(held, source.line + 1)
            continue
        source.check_length(held + block.find(b"\n"), source.line + 1)
        parts.append(block[:cut])
        rest = block[cut:]
        del block
        yield parts[0] if len(parts) == 1 else b"".join(parts)
        parts = [rest] if rest else []
        held = len(rest)
    if parts:
        yield b"".join(parts)


def _write_lines(stream: IO[bytes], X: sp.csr_matrix, Y: sp.csr_matrix, *, first_feature: int = 0) -> None:
    """Write each row as ``l1,l2 f:v f:v``; a row without labels starts with a space."""
    for start in range(0, X.shape[0], _ROWS_PER_WRITE):
        stop = min(start + _ROWS_PER_WRITE, X.shape[0])
        x_ends, y_ends = X.indptr[start : stop + 1].tolist(), Y.indptr[start : stop + 1].tolist()
        x_low, y_low = x_ends[0], y_ends[0]
        values = shortest_texts(X.data[x_low : x_ends[-1]])
        features = (X.indices[x_low : x_ends[-1]].astype(np.int64) + first_feature).tolist()
        labels = list(map(str, Y.indices[y_low : y_ends[-1]].tolist()))
        pairs = [f"{feature}:{value}" for feature, value in zip(features, values)]
        lines = [
            ",".join(labels[y_ends[row] - y_low : y_ends[row + 1] - y_low])
            + " "
            + " ".join(pairs[x_ends[row] - x_low : x_ends[row + 1] - x_low])
            for row in range(stop - start)
        ]
        stream.write(("\n".join(lines) + "\n").encode("ascii"))


def _range(what: str, size: int | None, first: int) -> str:
    if size is None:
        return f"ids may go up to {MOST_COLUMNS - 1 + first:,}"
    if size == 0:
        return f"the file has no {what}"
    return f"with {size:,} {what} ids go from {first} to {size - 1 + first:,}"
