"""Pairs of scipy ``.npz`` files, one for the features and one for the labels."""

from __future__ import annotations

import errno
import math
import os
import zipfile
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from tagwise.data.labelled_rows import LabelledRows, checked_pair
from tagwise.data.streams import NUMBER_BYTES, Expansion, atomic_writer, checked_path, open_file
from tagwise.exceptions import InvalidInputError, ParseError, TagwiseError
from tagwise.validation import check_labels

__all__ = ["read_npz", "write_npz"]

# What numpy and scipy write. Python unpacks other methods without a limit, whatever size a member claims.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MEMBERS = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}


class _Malformed(ValueError):
    """What is wrong with the file, for the sentence of the ParseError."""


def read_npz(x_path: str | os.PathLike[str], y_path: str | os.PathLike[str] | None = None) -> LabelledRows:
    """Read features and labels from two files made by ``scipy.sparse.save_npz`` (CSR, CSC or COO).

    Nothing is unpickled, every index is checked, and expansion is limited (see docs/data-formats.md). The files are not
    line-based, so a :class:`ParseError` has line 0 and there is no ``errors="skip"``. Memory is that of the arrays in
    the files and of the matrices.

    Parameters
    ----------
    x_path : str or path
        Features, n×d: finite numbers, converted to float32; explicit zeros are kept.
    y_path : str or path, optional
        Labels, n×L: ones and zeros. Without it, ``Y`` has no columns.

    Returns
    -------
    LabelledRows
        ``X`` and ``Y``; names, texts and ids are None.
    """
    X = _load(x_path)
    with np.errstate(over="ignore", under="ignore"):
        values = X.data.astype(np.float32, copy=False)
    if not np.isfinite(values).all():
        raise ParseError(x_path, 0, 0, "the features hold NaN, infinity or a value too large for float32")
    if X.data.dtype != np.float32 and np.any((values == 0) & (X.data != 0)):
        raise ParseError(x_path, 0, 0, "the features hold a value so small that float32 would make it 0")
    X = sp.csr_matrix((values, X.indices, X.indptr), shape=X.shape)
    X.has_canonical_format = True
    if y_path is None:
        return LabelledRows(X=X, Y=sp.csr_matrix((X.shape[0], 0), dtype=np.float32))
    loaded = _load(y_path)
    if loaded.shape[0] != X.shape[0]:
        reason = f"the labels have {loaded.shape[0]:,} rows, but the features have {X.shape[0]:,}"
        raise ParseError(y_path, 0, 0, reason)
    try:
        Y = check_labels(loaded)
    except InvalidInputError as error:
        raise ParseError(y_path, 0, 0, f"the labels are unusable: {error}") from None
    return LabelledRows(X=X, Y=Y)


def _load(path: str | os.PathLike[str]) -> sp.csr_matrix:
    try:
        with open_file(checked_path(path)) as stream, zipfile.ZipFile(stream) as archive:
            return _read_matrix(_Members(archive, Expansion(stream.name, os.fstat(stream.fileno()).st_size)))
    except TagwiseError:
        raise
    except Exception as error:
        # zipfile and numpy report damage by a dozen types of exceptions. Faults of the disk have a number; EINVAL comes
        # from a damaged directory of the archive that points before the file's start.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        text = str(error).rstrip(".") or type(error).__name__
        raise ParseError(path, 0, 0, f"not a readable scipy .npz file: {text}; write it again") from None


def _read_matrix(members: _Members) -> sp.csr_matrix:
    kind_array = members.array("format")
    if kind_array.ndim or kind_array.dtype.kind not in "SU":
        raise _Malformed("the member 'format' is not a single string")
    kind = kind_array.item()
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else kind
    if kind not in _MEMBERS:
        raise _Malformed(f"the matrix has format {kind[:20]!r}; expected csr, csc or coo")
    shape_array = members.array("shape")
    if shape_array.shape != (2,) or shape_array.dtype.kind not in "iu" or (shape_array < 0).any():
        raise _Malformed("the shape is not two whole numbers")
    rows, columns = map(int, shape_array)
    if max(rows, columns) > np.iinfo(np.int64).max:
        raise _Malformed("the shape is too large")
    data = members.array("data")
    if data.ndim != 1 or data.dtype.kind not in "fiub":
        raise _Malformed(f"the values are not a list of real numbers (type {data.dtype}, {data.ndim} dimensions)")
    if data.dtype not in (np.float32, np.float64):
        # Half and extended precision, and the other byte order, are types that scipy cannot work with.
        data = data.astype(data.dtype.newbyteorder("=") if data.dtype.kind in "iub" else np.float64)
    first, second = (_indices(members, name) for name in _MEMBERS[kind])
    if kind != "csr":
        # Converting it to CSR takes memory for every row, whatever the size of the file.
        members.expansion.count(NUMBER_BYTES * rows)
    if kind == "coo":
        _check_range(first, rows, "row", len(data))
        _check_range(second, columns, "col", len(data))
        matrix = sp.coo_matrix((data, (first, second)), shape=(rows, columns)).tocsr()
    else:
        major, minor = (rows, columns) if kind == "csr" else (columns, rows)
        _check_range(first, minor, "indices", len(data))
        if len(second) != major + 1 or second[0] != 0 or second[-1] != len(data) or (np.diff(second) < 0).any():
            raise _Malformed(f"the row pointer does not fit {major:,} rows and {len(data):,} entries")
        make = sp.csr_matrix if kind == "csr" else sp.csc_matrix
        matrix = sp.csr_matrix(make((data, first, second), shape=(rows, columns)))
    if not matrix.has_canonical_format:
        matrix.sum_duplicates()
    if matrix.nnz != len(data):
        raise _Malformed("an entry is stored twice")
    return matrix


def _check_range(indices: NDArray[Any], size: int, name: str, n_entries: int) -> None:
    if len(indices) != n_entries:
        raise _Malformed(f"there are {n_entries:,} values but {len(indices):,} {name}")
    if len(indices) and (indices.min() < 0 or indices.max() >= size):
        raise _Malformed(f"an index of {name!r} is out of range; it must be from 0 to {size - 1:,}")


def _indices(members: _Members, name: str) -> NDArray[Any]:
    array = members.array(name)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise _Malformed(f"{name!r} is not a list of whole numbers")
    if array.dtype not in (np.int32, np.int64):
        if len(array) and array.max() > np.iinfo(np.int64).max:
            raise _Malformed(f"{name!r} holds an index that is too large")
        array = array.astype(np.int64)
    return array


class _Members:
    """The arrays of an archive, counted as they are read."""

    def __init__(self, archive: zipfile.ZipFile, expansion: Expansion) -> None:
        self._archive, self.expansion = archive, expansion

    def array(self, name: str) -> NDArray[Any]:
        """The array of the member ``name``."""
        try:
            info = self._archive.getinfo(f"{name}.npy")
        except KeyError:
            raise _Malformed(f"the member {name!r} is missing") from None
        if info.compress_type not in _METHODS:
            raise _Malformed(f"the member {name!r} is packed by another method than deflate")
        with self._archive.open(info) as stream:
            shape, dtype = _npy_header(stream, name)
        n_numbers = math.prod(shape)
        size = n_numbers * dtype.itemsize
        if size > info.file_size:
            raise _Malformed(f"the member {name!r} announces {size:,} bytes of numbers but has {info.file_size:,}")
        self.expansion.count(max(info.file_size, NUMBER_BYTES * n_numbers))
        with self._archive.open(info) as stream:
            return npy_format.read_array(stream, allow_pickle=False)


def _npy_header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy_format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = npy_format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, _, dtype = npy_format.read_array_header_2_0(stream)
    else:
        raise _Malformed(f"the member {name!r} has the unknown version {version}")
    if dtype.hasobject:
        raise _Malformed(f"the member {name!r} holds pickled objects, which are never loaded")
    return shape, dtype


def write_npz(x_path: str | os.PathLike[str], y_path: str | os.PathLike[str], X: Any, Y: Any) -> None:
    """Write features and labels as two scipy ``.npz`` files, atomically, neither unless both can be written.

    Parameters
    ----------
    x_path, y_path : str or path
        The files.
    X : sparse matrix or array of shape (n, d)
        Finite features; float32 and float64 keep their type.
    Y : sparse matrix or array of shape (n, L)
        0/1 labels.
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
