"""The extreme-classification text format: a header ``n d L``, then a line ``l1,l2 f:v f:v`` per row."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from tagwise.data.formats.labelled_rows import LabelledRows
from tagwise.data.formats.number_text import check_float_dtype
from tagwise.data.formats.sparse_text import LineRules, checked_pair, read_lines, write_lines
from tagwise.data.formats.streams import ByteSource, atomic_writer
from tagwise.exceptions import ParseError
from tagwise.validation import check_choice

__all__ = ["read_xmc", "write_xmc"]

_LONGEST_HEADER = 4096
_HEADER_WORDS = ("rows", "features", "labels")


def read_xmc(path: str | os.PathLike[str], *, errors: str = "strict", dtype: DTypeLike = np.float32) -> LabelledRows:
    """Read an extreme-classification text file, plain, ``.gz`` or ``.bz2``.

    The first line is ``n d L`` (rows, features, labels). Each of the n lines behind it is ``l1,l2 f:v f:v``
    with ids from 0. A line that starts with a space, or whose first word holds a colon, has no labels; a row
    may have no features, and an empty line is a row with neither. Ids need not be sorted. Explicit zeros are
    kept. A value is rounded to double and then to ``dtype``.

    Parameters
    ----------
    path : str or path
        The file.
    errors : {"strict", "skip"}
        What to do with a faulty row: raise :class:`ParseError`, or leave it out and count it in
        ``n_skipped``. A wrong header, damaged compression, and a number of rows that skipped lines do not
        explain are always errors.
    dtype : numpy.float32 or numpy.float64
        The type of the values of ``X``.

    Returns
    -------
    LabelledRows
        ``X`` n×d and ``Y`` n×L; names, texts and ids are None.

    Notes
    -----
    Time is linear in the size of the file. Memory is that of the two matrices plus a few MB: the file is
    read in blocks, and the arrays grow in place.
    """
    skip = check_choice(errors, "errors", ("strict", "skip")) == "skip"
    value_type = check_float_dtype(dtype)
    with ByteSource(path) as source:
        n_rows, n_features, n_labels = _read_header(source)
        rules = LineRules(
            n_rows=n_rows,
            n_features=n_features,
            n_labels=n_labels,
            first_feature=0,
            comments=False,
            blank_is_row=True,
            dtype=value_type,
            skip=skip,
        )
        return read_lines(source, rules)


def _read_header(source: ByteSource) -> tuple[int, int, int]:
    line = source.readline(_LONGEST_HEADER)
    if not line:
        raise ParseError(source.path, 0, 0, "the file is empty; the first line must be 'rows features labels'")
    sizes: list[int] = []
    for word in re.finditer(rb"[^ \t\r\n]+", line):
        column, text = word.start() + 1, word.group().decode("utf-8", "backslashreplace")
        if len(sizes) == 3:
            raise ParseError(source.path, 1, column, f"the header has more than three numbers; found {text[:40]!r}")
        if not re.fullmatch("[0-9]{1,18}", text):
            hint = " (a file without header is svmlight: see read_svmlight)" if b":" in line or b"," in line else ""
            raise ParseError(
                source.path,
                1,
                column,
                f"the header must be three whole numbers 'rows features labels'; found {text[:40]!r} for the "
                f"number of {_HEADER_WORDS[len(sizes)]}{hint}",
            )
        sizes.append(int(text))
    if len(sizes) < 3:
        raise ParseError(
            source.path,
            1,
            0,
            f"the header must be three whole numbers 'rows features labels'; found only {len(sizes)}",
        )
    if not line.endswith(b"\n") and len(line) == _LONGEST_HEADER:
        raise ParseError(source.path, 1, 0, f"the header is longer than {_LONGEST_HEADER} bytes")
    source.line = 1
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
        write_lines(stream, features, labels)
