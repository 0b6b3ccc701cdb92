"""Reading and writing lines ``l1,l2 f:v f:v``: what the extreme-classification and svmlight formats share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from tagwise.data.formats import faults
from tagwise.data.formats.labelled_rows import LabelledRows
from tagwise.data.formats.number_text import parse_number, shortest_texts
from tagwise.data.formats.streams import ByteSource
from tagwise.exceptions import ParseError
from tagwise.validation import check_features, check_labels

__all__ = ["LineRules", "checked_pair", "read_lines", "write_lines"]

# Bytes taken from the file at a time: large against the cost of a call, small against the matrices.
BLOCK_BYTES = 1 << 20
LARGEST_INT32_SIZE = 2**31 - 1
_ROWS_PER_WRITE = 4096
_LARGEST_GROWTH = 1.35
_SPARE = 1.01


@dataclass(frozen=True)
class LineRules:
    """How one format reads its lines; a size of None is not declared and follows from the largest id."""

    n_rows: int | None
    n_features: int | None
    n_labels: int | None
    first_feature: int
    comments: bool
    blank_is_row: bool
    dtype: np.dtype[Any]
    skip: bool


class _CsrArrays:
    """CSR arrays that grow in place.

    ``ndarray.resize`` is a realloc, which moves large arrays without copying them where the system can. A
    growth aims at the final size foretold by the part of the file read so far, but is at most
    ``_LARGEST_GROWTH``, since a file may be denser at its start.
    """

    def __init__(self, size: int | None, dtype: np.dtype[Any] | None) -> None:
        wide = size is not None and size > LARGEST_INT32_SIZE
        self.indptr: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self.indices: NDArray[Any] = np.zeros(0, dtype=np.int64 if wide else np.int32)
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
        if self.indices.dtype == np.int64 or used > LARGEST_INT32_SIZE:
            indices, indptr = self.indices.astype(np.int64, copy=False), self.indptr
        else:
            indices, indptr = self.indices, self.indptr.astype(np.int32)
        matrix = sp.csr_matrix((values, indices, indptr), shape=(n_rows, size), copy=False)
        matrix.has_canonical_format = True
        return matrix


def _grow(array: NDArray[Any], used: int, more: int, fraction: float) -> None:
    needed = used + more
    if needed > len(array):
        foretold = used / fraction * _SPARE if fraction > 0 else np.inf
        array.resize(max(needed, int(min(foretold, used * _LARGEST_GROWTH))), refcheck=False)


class _Reader:
    """One pass over a file: blocks in, CSR arrays out."""

    def __init__(self, source: ByteSource, rules: LineRules) -> None:
        self.source = source
        self.rules = rules
        self.x = _CsrArrays(rules.n_features, rules.dtype)
        self.y = _CsrArrays(rules.n_labels, None)
        self.n_rows = 0
        self.n_skipped = 0

    def read(self) -> LabelledRows:
        for block in _whole_lines(self.source):
            self._parse(block)
        self._check_row_count()
        return LabelledRows(
            X=self.x.finish(self.n_rows, self.rules.n_features),
            Y=self.y.finish(self.n_rows, self.rules.n_labels),
            n_skipped=self.n_skipped,
        )

    def _parse(self, block: bytes) -> None:
        # Imported on use: numba takes longer to import than a small file takes to read.
        from tagwise.data.formats.byte_parser import parse_rows

        rules, x, y = self.rules, self.x, self.y
        lines = block.count(b"\n") + 1
        colons = block.count(b":")
        fraction = self.source.fraction_read()
        # A feature needs a colon; a label needs a comma or ends the labels of its line.
        x.reserve(self.n_rows, lines, colons, fraction)
        y.reserve(self.n_rows, lines, lines + block.count(b","), fraction)
        buffer = np.frombuffer(block, dtype=np.uint8)
        # Room for every number of the block; pages that no slow number touches cost nothing.
        slow_tokens = np.empty((colons, 3), dtype=np.int64)
        position = 0
        while position < len(block):
            code, line_start, fault, self.n_rows, n_lines, n_slow = parse_rows(
                buffer,
                position,
                rules.first_feature,
                LARGEST_INT32_SIZE if rules.n_features is None else rules.n_features,
                LARGEST_INT32_SIZE if rules.n_labels is None else rules.n_labels,
                np.iinfo(np.int64).max if rules.n_rows is None else rules.n_rows,
                rules.comments,
                rules.blank_is_row,
                rules.dtype == np.float32,
                x.indptr,
                x.indices,
                x.values,
                y.indptr,
                y.indices,
                slow_tokens,
                self.n_rows,
            )
            self.source.line += n_lines
            if code == faults.OK:
                return
            error = (
                self._finish_row(block, line_start, slow_tokens[:n_slow])
                if code == faults.SLOW_NUMBERS
                else self._error(block, code, line_start, fault)
            )
            self.source.line += 1
            if error is not None:
                if not rules.skip or code == faults.TOO_MANY_ROWS:
                    raise error
                self.n_skipped += 1
            newline = block.find(b"\n", line_start)
            position = len(block) if newline < 0 else newline + 1

    def _finish_row(self, block: bytes, line_start: int, tokens: NDArray[np.int64]) -> ParseError | None:
        """Convert the numbers that the compiled parser left over, then sort and commit the row."""
        from tagwise.data.formats.byte_parser import sort_row

        values = self.x.values
        assert values is not None
        for place, start, stop in tokens.tolist():
            try:
                values[place] = parse_number(block[start:stop].decode("ascii"), self.rules.dtype)
            except ValueError:
                return self._error(block, faults.BAD_VALUE, line_start, start)
        low, high = self.x.indptr[self.n_rows : self.n_rows + 2].tolist()
        duplicate = sort_row(self.x.indices, values, low, high)
        if duplicate >= 0:
            return self._error(block, faults.DUPLICATE_FEATURE, line_start, duplicate)
        if self.n_rows == self.rules.n_rows:
            # Even when skipping: the row itself is good.
            raise self._error(block, faults.TOO_MANY_ROWS, line_start, line_start)
        self.n_rows += 1
        return None

    def _error(self, block: bytes, code: int, line_start: int, fault: int) -> ParseError:
        rules = self.rules
        newline = block.find(b"\n", line_start)
        line = block[line_start : len(block) if newline < 0 else newline]
        if rules.comments:
            line = line.partition(b"#")[0]
        if code in (faults.DUPLICATE_LABEL, faults.DUPLICATE_FEATURE):
            is_label = code == faults.DUPLICATE_LABEL
            id_in_file = int(fault) + (0 if is_label else rules.first_feature)
            column = _second_place(line, id_in_file, is_label)
            token = str(id_in_file)
        elif code in (faults.TOO_MANY_ROWS, faults.BLANK_LINE):
            column, token = -1, ""
        else:
            column = int(fault) - line_start
            words = line[column : column + 200].split(maxsplit=1)
            ends_here = line[column : column + 1] in b" \t"
            token = "" if ends_here or not words else words[0].decode("utf-8", "backslashreplace")
        reason = faults.explain(
            code,
            token,
            n_features=rules.n_features,
            n_labels=rules.n_labels,
            first=rules.first_feature,
            dtype=rules.dtype,
        )
        if code == faults.TOO_MANY_ROWS:
            reason += f" ({rules.n_rows:,})"
        return ParseError(self.source.path, self.source.line + 1, column + 1, reason)

    def _check_row_count(self) -> None:
        expected = self.rules.n_rows
        if expected is None:
            if self.n_rows == 0 and self.n_skipped == 0:
                raise ParseError(self.source.path, 0, 0, "the file holds no rows")
        elif self.n_rows + self.n_skipped < expected:
            skipped = f" and {self.n_skipped:,} were skipped" if self.n_skipped else ""
            raise ParseError(
                self.source.path,
                self.source.line + 1,
                0,
                f"the file ends after {self.n_rows:,} rows{skipped}, but the header announces {expected:,} "
                "(is the file truncated?)",
            )


def _second_place(line: bytes, wanted: int, is_label: bool) -> int:
    """Byte position in ``line`` where an id that the parser found twice stands for the second time."""
    has_labels = line[:1] not in b" \t" and b":" not in line.split(maxsplit=1)[0]
    label_end = len(line.split(maxsplit=1)[0]) if has_labels else 0
    position, stop, separator = (0, label_end, b",") if is_label else (label_end, len(line), b":")
    seen = False
    while position < stop:
        token_stop = position
        while token_stop < stop and line[token_stop : token_stop + 1] not in (b",", b" ", b"\t"):
            token_stop += 1
        number = line[position:token_stop].partition(separator)[0]
        if number.isdigit() and len(number) <= 18 and int(number) == wanted:
            if seen:
                return position
            seen = True
        position = token_stop + 1
    return 0


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
            continue
        parts.append(block[:cut])
        rest = block[cut:]
        del block
        yield parts[0] if len(parts) == 1 else b"".join(parts)
        parts = [rest] if rest else []
        held = len(rest)
    if parts:
        yield b"".join(parts)


def read_lines(source: ByteSource, rules: LineRules) -> LabelledRows:
    """Read the remaining lines of ``source`` under ``rules``."""
    return _Reader(source, rules).read()


def checked_pair(X: Any, Y: Any) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Features and labels for a writer: canonical CSR, finite, with equal numbers of rows."""
    features = check_features(X)
    rows = features if sp.issparse(features) else sp.csr_matrix(features)
    return rows, check_labels(Y, n_rows=rows.shape[0])


def write_lines(stream: IO[bytes], X: sp.csr_matrix, Y: sp.csr_matrix, *, first_feature: int = 0) -> None:
    """Write each row as ``l1,l2 f:v f:v``; a row without labels starts with the space."""
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
