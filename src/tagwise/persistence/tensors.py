"""Arrays and CSR matrices as plain arrays in a safetensors file, and their entries in the manifest.

A dense tensor is stored as one array under its own name, a CSR matrix as three (``name/data``, ``name/indices``,
``name/indptr``). Its entry in the manifest gives type, shape and digest of each before a byte is read.

The file has the safetensors layout: 8 bytes with the header's length (unsigned, little-endian), the header (JSON: name
→ dtype, shape, offsets), then the arrays' bytes without gaps. It is written here because the library's writers either
copy all arrays into one more buffer or open the final path themselves, and a save has to go through
:func:`tagwise.persistence.atomic.atomic_write`. It is read here because the library maps the file into memory: the
process would be killed (SIGBUS) where somebody shortens the file meanwhile.

Here and in :mod:`tagwise.persistence.folder`, what cannot be written raises InvalidInputError or InvalidTypeError,
and what was read and cannot be right raises ModelFormatError.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import mmap
import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError
from tagwise.persistence.strict_json import JSON, parse_json, require, require_keys

__all__ = [
    "DTYPE_CODES",
    "Payload",
    "Stored",
    "Tensor",
    "described",
    "digest",
    "open_regular",
    "promised",
    "read_payload",
    "require_digest",
    "restored",
]

Tensor: TypeAlias = np.ndarray | sp.csr_matrix

# An array with the SHA-256 of its bytes.
Digested: TypeAlias = tuple[np.ndarray, str]

# The types that a folder may hold, with their names in safetensors headers.
DTYPE_CODES = {
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "bool": "BOOL",
}
MAX_HEADER_BYTES = 16 * 2**20
_LENGTH_BYTES = 8
_INDEX_DTYPES = ("int32", "int64")
_HEADER_KEYS = ("dtype", "shape", "data_offsets")
_CSR_PARTS = ("data", "indices", "indptr")
_DENSE_KEYS = ("kind", "dtype", "shape", "sha256")
_CSR_KEYS = ("kind", "dtype", "index_dtype", "shape", "nnz", "sha256")
_NO_SPARSE_FLOAT16 = "scipy has no sparse matrices of float16"
_CHECK_BLOCK = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAX_DIMENSIONS = 32


class Stored(NamedTuple):
    """One array of the safetensors file as the manifest promises it."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


# ---------------------------------------------------------------------- writing a tensor


def described(tensor: Tensor, name: str, where: str) -> tuple[JSON, dict[str, Digested]]:
    """A tensor's entry in the manifest, and the arrays to store: C-ordered, little-endian, copied only if need be."""
    if isinstance(tensor, np.ndarray):
        array = _plain(tensor, where)
        entry: JSON = {"kind": "dense", "dtype": array.dtype.name, "shape": list(array.shape), "sha256": digest(array)}
        return entry, {name: (array, entry["sha256"])}
    if not sp.issparse(tensor):
        raise InvalidTypeError(f"{where} must be a numpy array or a CSR matrix; found {type(tensor).__name__}.")
    if tensor.format != "csr" or tensor.ndim != 2:
        raise InvalidTypeError(f"{where} is sparse but not a CSR matrix; call .tocsr() on it first.")
    index_dtype = np.promote_types(tensor.indices.dtype, tensor.indptr.dtype)
    # scipy allows spare room behind the last entry; it is not content of the matrix.
    nnz = max(int(tensor.indptr[-1]), 0) if len(tensor.indptr) else 0
    data = _plain(tensor.data[:nnz], where)
    indices = _plain(tensor.indices[:nnz].astype(index_dtype, copy=False), where)
    indptr = _plain(tensor.indptr.astype(index_dtype, copy=False), where)
    shape = [int(size) for size in tensor.shape]
    fault = _csr_fault(data, indices, indptr, shape)
    if fault:
        raise InvalidInputError(f"{where} is not a valid CSR matrix: {fault}.")
    arrays = {"data": data, "indices": indices, "indptr": indptr}
    digests = {part: digest(array) for part, array in arrays.items()}
    entry = {
        "kind": "csr",
        "dtype": data.dtype.name,
        "index_dtype": indices.dtype.name,
        "shape": shape,
        "nnz": len(data),
        "sha256": digests,
    }
    return entry, {f"{name}/{part}": (array, digests[part]) for part, array in arrays.items()}


def digest(array: np.ndarray) -> str:
    """SHA-256 of a C-ordered array's bytes, in hexadecimal."""
    return hashlib.sha256(_raw_bytes(array)).hexdigest()


def _raw_bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _plain(array: np.ndarray, where: str) -> np.ndarray:
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidTypeError(f"{where} is a masked array, whose mask would be lost; save data and mask separately.")
    if array.dtype.name not in DTYPE_CODES:
        raise InvalidTypeError(
            f"{where} has entries of type {array.dtype}; a model folder holds {', '.join(DTYPE_CODES)}."
        )
    # np.ascontiguousarray would turn 0-d arrays into 1-d ones.
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _csr_fault(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: list[int]) -> str | None:
    """What is wrong with the three arrays of a CSR matrix; temporary memory is O(1)."""
    if data.dtype == np.float16:
        return _NO_SPARSE_FLOAT16
    if indices.dtype.name not in _INDEX_DTYPES:
        return f"indices are of type {indices.dtype.name} instead of int32 or int64"
    if data.ndim != 1 or indices.ndim != 1 or indptr.ndim != 1:
        return "data, indices and indptr must have one dimension each"
    if len(indptr) != shape[0] + 1:
        return f"indptr has {len(indptr):,} entries, but {shape[0]:,} rows need one more than that"
    if indptr[0] != 0:
        return f"indptr starts with {indptr[0]} instead of 0"
    for start in range(0, len(indptr) - 1, _CHECK_BLOCK):
        block = indptr[start : start + _CHECK_BLOCK + 1]
        if (block[1:] < block[:-1]).any():
            return "indptr decreases"
    if indptr[-1] != len(data) or len(data) != len(indices):
        return f"indptr ends with {indptr[-1]}, but there are {len(data):,} values and {len(indices):,} indices"
    if len(indices) and (indices.min() < 0 or indices.max() >= shape[1]):
        return f"an index lies outside the {shape[1]:,} columns"
    return None


# ---------------------------------------------------------------------- reading a tensor that may come from anyone


def promised(entry: JSON, name: str, where: str) -> dict[str, Stored]:
    """The stored arrays that a tensor's entry promises, checked; allocates nothing."""
    kind = entry.get("kind") if isinstance(entry, dict) else None
    require(kind in ("dense", "csr"), f"{where} must be an object whose kind is 'dense' or 'csr'.")
    require_keys(entry, _DENSE_KEYS if kind == "dense" else _CSR_KEYS, where)
    dtype = _require_choice(entry["dtype"], DTYPE_CODES, f"dtype of {where}")
    if kind == "dense":
        shape = _require_shape(entry["shape"], dtype, f"shape of {where}")
        return {name: Stored(dtype, shape, require_digest(entry["sha256"], f"sha256 of {where}"))}
    index_dtype = _require_choice(entry["index_dtype"], _INDEX_DTYPES, f"index_dtype of {where}")
    require(dtype != "float16", f"{where} is not a valid CSR matrix: {_NO_SPARSE_FLOAT16}.")
    # A CSR matrix may have more cells than memory has bytes; only its parts must be possible arrays.
    shape = _require_sizes(entry["shape"], f"shape of {where}")
    require(len(shape) == 2, f"shape of {where} has {len(shape)} numbers; a CSR matrix has two.")
    entries = _require_shape([entry["nnz"]], dtype, f"nnz of {where}")
    boundaries = _require_shape([shape[0] + 1], index_dtype, f"shape of {where}")
    require_keys(entry["sha256"], _CSR_PARTS, f"sha256 of {where}")
    digests = {part: require_digest(entry["sha256"][part], f"sha256 of {where}") for part in _CSR_PARTS}
    return {
        f"{name}/data": Stored(dtype, entries, digests["data"]),
        f"{name}/indices": Stored(index_dtype, entries, digests["indices"]),
        f"{name}/indptr": Stored(index_dtype, boundaries, digests["indptr"]),
    }


def restored(entry: JSON, name: str, arrays: dict[str, np.ndarray]) -> Tensor:
    """The tensor of a checked entry, made of its arrays, which have been compared with it and are taken out."""
    is_csr = entry["kind"] == "csr"
    data = arrays.pop(f"{name}/data" if is_csr else name)
    flags = data.dtype != bool or not data.size or data.view(np.uint8).max() <= 1
    require(flags, f"{name} is of type bool but has bytes other than 0 and 1.")
    if not is_csr:
        return data
    indices, indptr = arrays.pop(f"{name}/indices"), arrays.pop(f"{name}/indptr")
    fault = _csr_fault(data, indices, indptr, entry["shape"])
    require(fault is None, f"{name} is not a valid CSR matrix: {fault}.")
    # The constructor that takes the three arrays would turn 64-bit indices into 32-bit ones where they fit.
    matrix = sp.csr_matrix(tuple(entry["shape"]), dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    return matrix


def require_digest(value: JSON, where: str) -> str:
    """A SHA-256 in hexadecimal."""
    require(isinstance(value, str) and _DIGEST.fullmatch(value) is not None, f"{where} must be 64 digits 0-9a-f.")
    return str(value)


def _require_choice(value: JSON, choices: Iterable[str], where: str) -> str:
    require(isinstance(value, str) and value in choices, f"{where} must be one of {', '.join(choices)}.")
    return str(value)


def _require_sizes(value: JSON, where: str) -> tuple[int, ...]:
    """A list of sizes, each of which a 64-bit index can reach."""
    fits = isinstance(value, list) and all(type(size) is int and 0 <= size < 2**63 - 1 for size in value)
    require(fits, f"{where} must consist of integers from 0 to 2^63 - 2.")
    return tuple(value)


def _require_shape(value: JSON, dtype: str, where: str) -> tuple[int, ...]:
    """A shape that an array of this type can have."""
    sizes = _require_sizes(value, where)
    most = _MAX_DIMENSIONS
    require(len(sizes) <= most, f"{where} has {len(sizes)} dimensions; at most {most} are allowed.")
    # numpy refuses such shapes even when a size of 0 makes the array empty.
    n_bytes = math.prod(max(size, 1) for size in sizes) * np.dtype(dtype).itemsize
    require(n_bytes <= sys.maxsize, f"{where} is too large for any array.")
    return sizes


# ---------------------------------------------------------------------- the file


class Payload:
    """C-ordered, little-endian arrays laid out as a safetensors file of ``size`` bytes that is still to be written.

    Its ``name`` is derived from the content: different content never shares a name, so that old and new file can stand
    side by side until the switch, and the same model makes the same folder, byte for byte.
    """

    def __init__(self, arrays: Mapping[str, Digested]) -> None:
        # Widest entries first: each array then starts at a multiple of its entry size.
        ordered = sorted(arrays.items(), key=lambda item: (-item[1][0].dtype.itemsize, item[0]))
        self._arrays = [array for _, (array, _) in ordered]
        table, offset = {}, 0
        for name, (array, _) in ordered:
            start, offset = offset, offset + array.nbytes
            dtype, shape = DTYPE_CODES[array.dtype.name], list(array.shape)
            table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, offset]}
        header = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
        header += b" " * (-len(header) % _LENGTH_BYTES)
        if len(header) > MAX_HEADER_BYTES:
            raise InvalidInputError(
                f"The model has {len(arrays):,} arrays, too many for one file; join small ones into larger."
            )
        self._header = len(header).to_bytes(_LENGTH_BYTES, "little") + header
        token = hashlib.sha256(self._header + b"".join(bytes.fromhex(sha256) for _, (_, sha256) in ordered))
        self.name = f"tensors-{token.hexdigest()[:32]}.safetensors"
        self.size = len(self._header) + offset

    def write(self, stream: BinaryIO) -> None:
        """Write the file; needs no memory beyond the arrays."""
        stream.write(self._header)
        for array in self._arrays:
            stream.write(_raw_bytes(array))


def read_payload(
    path: Path, size: int, expected: Mapping[str, Stored], *, mapped: bool = False
) -> dict[str, np.ndarray]:
    """All arrays of a safetensors file, each compared with what the manifest promises.

    Memory: the size of the file (the arrays themselves) plus the parsed header; where they are ``mapped``, processes
    that read the same file share it. Time: one read and one SHA-256.

    Raises
    ------
    ModelFormatError
        The file is a link, not a regular file, of another size, damaged, or differs from ``expected`` in any way.
    FileNotFoundError
        There is no such file (a concurrent save may just have removed it).
    """
    try:
        with open_regular(path) as stream:
            found = os.fstat(stream.fileno()).st_size
            require(found == size, f"{path.name} has {found:,} bytes instead of {size:,}; it is incomplete or changed.")
            order = _in_order(*_read_header(stream, size, path.name), expected, path.name)
            if mapped:
                arrays = _mapped(stream, expected, order)
            else:
                arrays = {name: np.empty(expected[name].shape, dtype=expected[name].dtype) for name in order}
                for array in arrays.values():
                    whole = stream.readinto(_raw_bytes(array)) == array.nbytes
                    require(whole, f"{path.name} became shorter while it was read.")
    except (FileNotFoundError, ModelFormatError):
        raise
    except OSError as error:
        raise ModelFormatError(f"{path.name} cannot be read: {error.strerror}.") from error
    except MemoryError:
        raise ModelFormatError(
            f"{path.name}: its tensors need {size:,} bytes of memory, which are not available."
        ) from None
    for name, array in arrays.items():
        same = digest(array) == expected[name].sha256
        require(same, f"{path.name}: the bytes of {name!r} do not have the sha256 of the manifest.")
    return arrays


def _mapped(stream: BufferedReader, expected: Mapping[str, Stored], order: list[str]) -> dict[str, np.ndarray]:
    """The arrays behind the header, in the memory that the file is mapped to; a process that writes gets a copy."""
    at, arrays = stream.tell(), {}
    memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    for name in order:
        dtype, shape = np.dtype(expected[name].dtype), expected[name].shape
        count = math.prod(shape)
        arrays[name] = np.frombuffer(memory, dtype, count, at).reshape(shape) if count else np.empty(shape, dtype)
        at += count * dtype.itemsize
    return arrays


def open_regular(path: Path) -> BufferedReader:
    """A file opened for reading, unless it is a link or a special file; raises ModelFormatError or OSError."""
    # Neither a link (O_NOFOLLOW) nor a pipe (O_NONBLOCK) may lead the reader elsewhere or make it wait.
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
    followed = not hasattr(os, "O_NOFOLLOW") and path.is_symlink()  # Windows has no such flag
    require(not followed, f"{path.name} must be a regular file; links and special files are refused.")
    try:
        stream = os.fdopen(os.open(path, flags), "rb")
    except OSError as error:
        # A socket, or a device that is not there, cannot be opened at all.
        refused = error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR)
        require(not refused, f"{path.name} must be a regular file; links and special files are refused.")
        raise
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise ModelFormatError(f"{path.name} must be a regular file; links and special files are refused.")
    return stream


def _read_header(stream: BufferedReader, size: int, name: str) -> tuple[dict[str, JSON], int]:
    """The table of the arrays, and how many bytes are behind it."""
    length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
    fits = size >= _LENGTH_BYTES and length <= min(size - _LENGTH_BYTES, MAX_HEADER_BYTES)
    require(fits, f"{name} is not a valid safetensors file: its header does not fit.")
    header = parse_json(stream.read(length), f"{name} is not a valid safetensors file: its header")
    require(isinstance(header, dict), f"{name} is not a valid safetensors file: its header is not an object.")
    header.pop("__metadata__", None)  # texts that the format allows, which mean nothing here
    return header, size - _LENGTH_BYTES - length


def _in_order(header: dict[str, JSON], n_bytes: int, expected: Mapping[str, Stored], file: str) -> list[str]:
    """The names of the arrays in the order of their bytes, which follow each other without gaps.

    Every entry has the type and the shape that the manifest promises, and as many bytes: what is allocated next has the
    size of the file.
    """
    missing, unknown = set(expected) - set(header), set(header) - set(expected)
    if missing:
        raise ModelFormatError(f"The safetensors file lacks {min(missing)!r}, which the manifest lists.")
    if unknown:
        raise ModelFormatError(f"The safetensors file holds {min(unknown)[:100]!r}, which the manifest does not list.")
    borders = {}
    for name, stored in expected.items():
        require_keys(header[name], _HEADER_KEYS, f"{file} is not a valid safetensors file: {name!r}")
        dtype, shape, borders[name] = (header[name][key] for key in _HEADER_KEYS)
        require(
            (dtype, shape) == (DTYPE_CODES[stored.dtype], list(stored.shape)),
            f"{file} holds {name!r} as {dtype!s:.60} of shape {shape!s:.200}, but the manifest says {stored.dtype} of "
            f"shape {list(stored.shape)}.",
        )
        whole = isinstance(borders[name], list) and [type(border) for border in borders[name]] == [int, int]
        require(whole, f"{file} is not a valid safetensors file: {name!r} has no two offsets.")
    order, at = sorted(borders, key=lambda name: tuple(borders[name])), 0
    for name in order:
        stored, (start, stop) = expected[name], borders[name]
        fits = start == at and stop - start == math.prod(stored.shape) * np.dtype(stored.dtype).itemsize
        require(fits, f"{file} is not a valid safetensors file: the bytes of {name!r} lie elsewhere than they should.")
        at = stop
    require(at == n_bytes, f"{file} is not a valid safetensors file: bytes belong to no array.")
    return order
