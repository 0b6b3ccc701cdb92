"""Lines ``l1,l2 f:v f:v``: the extreme-classification format (with a header ``n d L``) and multi-label svmlight.

scikit-learn's ``load_svmlight_file`` parses the features, at most 1 MB of lines at a time. What it lacks is here: the
header, rows with neither labels nor features (it drops them), ids that are not sorted, the line of a fault, and labels
as numbers (it makes a tuple of floats per row, 40 bytes per label). It takes nine tenths of the time, whatever the size
of a block (0.74 to 0.83 s for 55 MB, in blocks from 64 KB to all at once), and reads 35 to 65 MB/s; a parser compiled
by numba read 140 to 190 MB/s, after 5 s of compiling on its first use, which files of less than 250 MB do not win back.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from io import BytesIO
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from tagwise.data.labelled_rows import GrowingRows, LabelledRows, checked_pair, narrowed, shortest_texts
from tagwise.data.streams import LINE_BYTES, ByteSource, atomic_writer
from tagwise.exceptions import InvalidInputError, ParseError
from tagwise.validation import check_choice, check_integer

__all__ = ["read_svmlight", "read_xmc", "write_svmlight", "write_xmc"]

MOST_COLUMNS = 2**31 - 1
"""Features, and labels, that a file may have: ids are 32-bit numbers."""

BLOCK_BYTES = 1 << 20
_ROWS_PER_WRITE = 4096
# Of numbers and what separates them: Python's float would also take 1_000, nan and blanks of other kinds, and a lone
# carriage return would put two rows of an old Mac's file together.
_CHARACTERS = b"0123456789+-.eE:, \t"


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
        Treatment of a faulty row: raise :class:`ParseError`, or leave it out and count it in ``n_skipped``. A wrong
        header, damaged compression, and a number of rows that skipped lines do not explain are always errors.
    dtype : numpy.float32 or numpy.float64
        The type of the values of ``X``.

    Returns
    -------
    LabelledRows
        ``X`` n×d and ``Y`` n×L; names, texts and ids are None.

    Notes
    -----
    Time is linear in the size of the file. Memory is that of the two matrices plus that of a block of lines; what the
    header announces takes none. Lines and expansions are limited (see docs/data-formats.md).
    """
    _check_arguments(dtype, errors)
    with ByteSource(path) as source:
        words = next(source.lines(), b"").split()
        if len(words) != 3 or not all(word.isdigit() and len(word) <= 18 for word in words):
            reason = "the first line must be three whole numbers, 'rows features labels'; a file without is svmlight"
            raise ParseError(source.path, 1, 0, reason)
        n_rows, n_features, n_labels = map(int, words)
        if max(n_features, n_labels) > MOST_COLUMNS:
            raise ParseError(source.path, 1, 0, f"there may be at most {MOST_COLUMNS:,} features and as many labels")
        rows = _Reader(source, dtype, errors, n_features, n_labels).read()
        if not rows.n_rows <= n_rows <= rows.n_rows + rows.n_skipped:
            skipped = f" and {rows.n_skipped:,} that were skipped" if rows.n_skipped else ""
            reason = f"the header announces {n_rows:,} rows, but the file holds {rows.n_rows:,}{skipped}"
            raise ParseError(source.path, source.line, 0, reason)
    return rows


def write_xmc(path: str | os.PathLike[str], X: Any, Y: Any) -> None:
    """Write features and labels as an extreme-classification text file, atomically.

    Values are written as the shortest text that reads back as the same float32 (or float64), so that
    ``read_xmc(path, dtype=X.dtype)`` returns the same matrices.

    Parameters
    ----------
    path : str or path
        The file; compressed if it ends in ``.gz`` or ``.bz2``.
    X, Y : sparse matrices or arrays of shapes (n, d) and (n, L)
        Finite features, and 0/1 labels.
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
    path, errors, dtype
        As of :func:`read_xmc`.
    n_features, n_labels : int or None
        Numbers of columns of ``X`` and ``Y``; None takes the largest id found plus one. Pass the training
        set's numbers for a test set. An id beyond them is a fault. At most 2**31 - 1 each.
    zero_based : bool
        Whether the first feature is 0 or 1. Label ids always start at 0.

    Returns
    -------
    LabelledRows
        ``X`` n×d and ``Y`` n×L; names, texts and ids are None. Time and memory are those of ``read_xmc``.
    """
    for name, size in (("n_features", n_features), ("n_labels", n_labels)):
        if size is not None:
            check_integer(size, name, minimum=1, maximum=MOST_COLUMNS)
    _check_arguments(dtype, errors)
    with ByteSource(path) as source:
        rows = _Reader(source, dtype, errors, n_features, n_labels, is_svmlight=True, zero_based=zero_based).read()
        if not rows.n_rows and not rows.n_skipped:
            raise ParseError(source.path, 0, 0, "the file holds no rows")
    return rows


def write_svmlight(path: str | os.PathLike[str], X: Any, Y: Any, *, zero_based: bool = True) -> None:
    """Write features and labels as a multi-label svmlight file, atomically.

    The format does not store d and L: pass ``n_features`` and ``n_labels`` to :func:`read_svmlight` to get
    back matrices of the same shape when the last columns are empty.

    Parameters
    ----------
    path, X, Y
        As of :func:`write_xmc`.
    zero_based : bool
        Whether to number features from 0 or from 1.
    """
    features, labels = checked_pair(X, Y)
    with atomic_writer(path) as stream:
        _write_lines(stream, features, labels, first_feature=0 if zero_based else 1)


def _check_arguments(dtype: DTypeLike, errors: str) -> None:
    check_choice(errors, "errors", ("strict", "skip"))
    if dtype not in (np.float32, np.float64, "float32", "float64"):
        raise InvalidInputError(f"dtype must be numpy.float32 or numpy.float64; found {dtype!r}.")


@dataclass
class _Reader:
    """Lines in, CSR matrices out; a number of features or labels of None follows from the largest id."""

    source: ByteSource
    dtype: DTypeLike
    errors: str
    n_features: int | None
    n_labels: int | None
    is_svmlight: bool = False
    zero_based: bool = True

    def read(self) -> LabelledRows:
        self.X, self.Y, self.n_skipped = GrowingRows(np.dtype(self.dtype)), GrowingRows(), 0
        block: list[tuple[int, bytes]] = []
        size = 0
        for raw in self.source.lines():
            line = raw.rstrip(b"\r\n")
            if self.is_svmlight:
                if line.startswith(b"#"):
                    continue
                line = line.partition(b"#")[0]
            block.append((self.source.line, line))
            size += max(len(raw), LINE_BYTES)
            if size >= BLOCK_BYTES:
                self._add(block)
                block, size = [], 0
        self._add(block)
        return LabelledRows(self.X.matrix(self.n_features), self.Y.matrix(self.n_labels), n_skipped=self.n_skipped)

    def _add(self, block: list[tuple[int, bytes]]) -> None:
        """Parse lines together; where that fails, in halves, which finds the faulty ones."""
        try:
            X, Y = self._parsed([line for _, line in block])
        except (ValueError, OverflowError) as error:
            if len(block) > 1:
                self._add(block[: len(block) // 2])
                self._add(block[len(block) // 2 :])
                return
            number, line = block[0]
            if self.errors == "strict":
                shown = line[:60].decode("ascii", "backslashreplace")
                reason = f"{shown!r} is not a row 'label,label id:value': {error}"
                raise ParseError(self.source.path, number, 0, reason) from None
            self.n_skipped += 1
            return
        self.X.extend(X)
        self.Y.extend(Y)

    def _parsed(self, lines: list[bytes]) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """The features and labels of lines; a ValueError says what is wrong in one of them."""
        strange = b"".join(lines).translate(None, _CHARACTERS)
        if strange:
            raise ValueError(f"{strange[:20]!r} is not part of a finite number")
        if self.is_svmlight and b"" in lines:
            raise ValueError("the line is empty; a row without labels and features is a line with a single space")
        heads, tails = [], []
        for line in lines:
            head, *tail = [b""] if line[:1] in b" \t" else line.split(None, 1)
            if not head or b":" in head:  # no labels
                head, tail = b"", [line]
            heads.append(head)
            tails.append(b"".join(tail))
        return self._features(tails), self._labels(heads)

    def _features(self, lines: list[bytes]) -> sp.csr_matrix:
        from sklearn.datasets import load_svmlight_file

        def load(pairs: list[bytes]) -> sp.csr_matrix:
            stream = BytesIO(b"".join(b"0 %b\n" % text for text in pairs))
            size = MOST_COLUMNS if self.n_features is None else max(self.n_features, 1)
            return load_svmlight_file(stream, n_features=size, zero_based=self.zero_based)[0]

        try:
            matrix = load(lines)
        except ValueError:
            matrix = load([_sorted_by_id(line) for line in lines])
        if self.n_features == 0 and matrix.nnz:
            raise ValueError("there are no features")
        matrix.data = narrowed(matrix.data, self.X.dtype)
        return matrix

    def _labels(self, lists: list[bytes]) -> sp.csr_matrix:
        listed = b",".join(filter(None, lists))
        if listed.translate(None, b"0123456789,") or (listed and b",," in b",%b," % listed):
            raise ValueError("labels are whole numbers with commas between them")
        ids = np.fromstring(listed, dtype=np.int64, sep=",")
        size = MOST_COLUMNS if self.n_labels is None else self.n_labels
        if len(ids) and ids.max() >= size:
            raise ValueError(f"there are {size:,} labels, with ids from 0" if size else "there are no labels")
        ends = np.cumsum([0, *(labels.count(b",") + bool(labels) for labels in lists)])
        matrix = sp.csr_matrix((np.ones(len(ids), dtype=np.float32), ids, ends), shape=(len(lists), size))
        matrix.sort_indices()
        if not matrix.has_canonical_format:
            raise ValueError("a label is listed twice")
        return matrix


def _sorted_by_id(pairs: bytes) -> bytes:
    numbered = [(int(pair.partition(b":")[0]), pair) for pair in pairs.split()]
    return b" ".join(pair for _, pair in sorted(numbered))


def _write_lines(stream: IO[bytes], X: sp.csr_matrix, Y: sp.csr_matrix, *, first_feature: int = 0) -> None:
    """Write each row as ``l1,l2 f:v f:v``; a row without labels starts with a space."""
    for start in range(0, X.shape[0], _ROWS_PER_WRITE):
        x, y = X[start : start + _ROWS_PER_WRITE], Y[start : start + _ROWS_PER_WRITE]
        pairs = [
            f"{feature}:{value}"
            for feature, value in zip((x.indices.astype(np.int64) + first_feature).tolist(), shortest_texts(x.data))
        ]
        labels = list(map(str, y.indices.tolist()))
        x_ends, y_ends = x.indptr.tolist(), y.indptr.tolist()
        for row in range(x.shape[0]):
            listed = ",".join(labels[y_ends[row] : y_ends[row + 1]])
            stream.write(f"{listed} {' '.join(pairs[x_ends[row] : x_ends[row + 1]])}\n".encode("ascii"))
