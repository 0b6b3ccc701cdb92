"""Multi-label svmlight: a line ``l1,l2 f:v f:v # comment`` per row, without a header."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from tagwise.data.formats.labelled_rows import LabelledRows
from tagwise.data.formats.number_text import check_float_dtype
from tagwise.data.formats.sparse_text import LineRules, checked_pair, read_lines, write_lines
from tagwise.data.formats.streams import ByteSource, atomic_writer
from tagwise.validation import check_choice, check_integer

__all__ = ["read_svmlight", "write_svmlight"]


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

    Lines are as in :func:`tagwise.data.formats.read_xmc`, with two differences. From ``#`` to the end of the
    line is a comment, and a line that starts with ``#`` is no row. An empty line is a fault, since it may be
    an accident: a row without labels and features is a line with a single space, which is what
    :func:`write_svmlight` writes.

    Parameters
    ----------
    path : str or path
        The file.
    n_features, n_labels : int or None
        Numbers of columns of ``X`` and ``Y``; None takes the largest id found plus one. Pass the training
        set's numbers for a test set. An id beyond them is a fault. Without them, ids may go up to 2**31 - 2.
    zero_based : bool
        Whether the first feature is 0 or 1. Label ids always start at 0.
    errors : {"strict", "skip"}
        What to do with a faulty row: raise :class:`ParseError`, or leave it out and count it in
        ``n_skipped``.
    dtype : numpy.float32 or numpy.float64
        The type of the values of ``X``.

    Returns
    -------
    LabelledRows
        ``X`` n×d and ``Y`` n×L; names, texts and ids are None. Time and memory are those of ``read_xmc``.
    """
    rules = LineRules(
        n_rows=None,
        n_features=None if n_features is None else check_integer(n_features, "n_features", minimum=1),
        n_labels=None if n_labels is None else check_integer(n_labels, "n_labels", minimum=1),
        first_feature=0 if zero_based else 1,
        comments=True,
        blank_is_row=False,
        dtype=check_float_dtype(dtype),
        skip=check_choice(errors, "errors", ("strict", "skip")) == "skip",
    )
    with ByteSource(path) as source:
        return read_lines(source, rules)


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
        write_lines(stream, features, labels, first_feature=0 if zero_based else 1)
