"""Pairs of scipy ``.npz`` files, one for the features and one for the labels."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.data.labelled_rows import LabelledRows, checked_pair, narrowed
from tagwise.data.streams import NUMBER_BYTES, Expansion, atomic_writer, checked_path, damage_as_parse_error, open_file
from tagwise.exceptions import InvalidInputError, ParseError
from tagwise.validation import canonical_csr, check_labels, checked_csr

__all__ = ["labels_beside", "read_npz", "write_npz"]

# What numpy and scipy write. Python unpacks other methods without a limit, whatever size a member claims.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_npz(x_path: str | os.PathLike[str], labels: str | os.PathLike[str] | None = None) -> LabelledRows:
    """Read features and labels from two files made by ``scipy.sparse.save_npz`` (CSR, CSC or COO).

    Nothing is unpickled, every index is checked, and expansion is limited (see docs/data-formats.md). The files are not
    line-based, so a :class:`ParseError` has line 0 and there is no ``errors="skip"``. Memory is that of the arrays in
    the files and of the matrices.

    Parameters
    ----------
    x_path : str or path
        Features, n×d: finite numbers, converted to float32; explicit zeros are kept.
    labels : str or path, optional
        Labels, n×L: ones and zeros. Without it, ``Y`` has no columns.

    Returns
    -------
    LabelledRows
        ``X`` and ``Y``; names, texts and ids are None.
    """
    X = _load(x_path)
    try:
        X.data = narrowed(X.data, np.float32)
    except ValueError as error:
        raise ParseError(x_path, 0, 0, f"the features are unusable: {error}") from None
    if labels is None:
        return LabelledRows(X=X, Y=sp.csr_matrix((X.shape[0], 0), dtype=np.float32))
    Y = _load(labels)
    if Y.shape[0] != X.shape[0]:
        reason = f"the labels have {Y.shape[0]:,} rows, but the features have {X.shape[0]:,}"
        raise ParseError(labels, 0, 0, reason)
    try:
        return LabelledRows(X=X, Y=check_labels(Y))
    except InvalidInputError as error:
        raise ParseError(labels, 0, 0, f"the labels are unusable: {error}") from None


def labels_beside(path: str) -> str:
    """The file of the labels: ``Y…`` for ``X…``."""
    name = Path(path).name
    beside = Path(path).with_name("Y" + name[1:])
    if not name.startswith("X") or not beside.is_file():
        raise InvalidInputError(f"{path} holds features only; name the .npz file of the labels with --labels.")
    return str(beside)


def _load(path: str | os.PathLike[str]) -> sp.csr_matrix:
    with open_file(checked_path(path)) as stream:
        expansion = Expansion(stream.name, os.fstat(stream.fileno()).st_size)
        with damage_as_parse_error(path, "scipy .npz file"):
            with zipfile.ZipFile(stream) as archive:
                if any(member.compress_type not in _METHODS for member in archive.infolist()):
                    raise ValueError("a member is packed by another method than deflate")
                expansion.count(sum(member.file_size for member in archive.infolist()))
            stream.seek(0)
            matrix = sp.load_npz(stream)
            kind = matrix.data.dtype.kind
            if matrix.format not in ("csr", "csc", "coo") or kind not in "fiub":
                raise ValueError("the matrix must be csr, csc or coo, of real numbers")
            if matrix.format != "csr":
                # Converting it takes memory for every row, whatever the size of the file.
                expansion.count(NUMBER_BYTES * matrix.shape[0])
            if matrix.data.dtype not in (np.float32, np.float64):
                # Half and extended precision are types that scipy cannot work with.
                matrix.data = matrix.data.astype(np.float64 if kind == "f" else np.float32)
            canonical = canonical_csr(checked_csr(matrix, "the matrix"))
            if canonical.nnz != matrix.nnz:
                raise ValueError("an entry is stored twice")
    return canonical


def write_npz(x_path: str | os.PathLike[str], y_path: str | os.PathLike[str], X: Any, Y: Any) -> None:
    """Write features and labels as two scipy ``.npz`` files, atomically, neither unless both can be written.

    Parameters
    ----------
    x_path, y_path : str or path
        The files.
    X, Y : sparse matrices or arrays of shapes (n, d) and (n, L)
        Finite features, of which float32 and float64 keep their type; 0/1 labels.
    """
    features, labels = checked_pair(X, Y)
    if os.path.abspath(os.fspath(x_path)) == os.path.abspath(os.fspath(y_path)):
        raise InvalidInputError(f"x_path and y_path are the same file ({os.fspath(x_path)!r}); pass two.")
    for argument, path in (("x_path", x_path), ("y_path", y_path)):
        if not os.fspath(path).lower().endswith(".npz"):
            raise InvalidInputError(f"{argument} must end in .npz (it is compressed already); found {path!r}.")
    with atomic_writer(x_path) as x_stream, atomic_writer(y_path) as y_stream:
        sp.save_npz(x_stream, features)
        sp.save_npz(y_stream, labels)
