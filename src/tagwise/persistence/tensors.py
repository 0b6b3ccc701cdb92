"""Arrays and CSR matrices as plain arrays in a safetensors file, and their entries in the manifest.

A dense tensor is stored as one array under its own name, a CSR matrix as three (``name/data``, ``name/indices``,
``name/indptr``). Its entry in the manifest gives type, shape and digest of each before a byte is read.

The file has the safetensors layout: 8 bytes with the header's length (unsigned, little-endian), the header (JSON: name
→ dtype, shape, offsets), then the arrays' bytes without gaps. It is written here because the library's writers either
copy all arrays into one more buffer or open the final path themselves, and a save has to go through
:func:`tagwise.persistence.atomic.atomic_write`. Reading hostile bytes is left to the library, whose checks of the
header (offsets within the file, no overlaps, no gaps) bound the memory.

Here and in :mod:`tagwise.persistence.folder`, what cannot be written raises InvalidInputError or InvalidTypeError,
and what was read and cannot be right raises ModelFormatError.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from safetensors import safe_open

from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError

__all__ = [
    "DTYPE_CODES",
    "JSON",
    "Payload",
    "Stored",
    "Tensor",
    "described",
    "digest",
    "promised",
    "read_payload",
    "require",
    "require_digest",
    "require_keys",
    "restored",
]

# None, bool, int (64 bits), float, str, list, dict with str keys; and, beyond JSON, tuple and Tensor. With a recursive
# alias every reader of a record would have to cast at every step.
JSON: TypeAlias = Any

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


def require(condition: bool, sentence: str) -> None:
    """Refuse what was read where a condition does not hold."""
    if not condition:
        raise ModelFormatError(sentence)


def require_keys(value: JSON, keys: tuple[str, ...], where: str) -> None:
    """An object with exactly these keys: an unknown key may change the meaning of a known one."""
    require(isinstance(value, dict), f"{where} must be an object with the keys {', '.join(keys)}.")
    missing, unknown = set(keys) - set(value), set(value) - set(keys)
    if missing:
        raise ModelFormatError(f"{where} lacks the key {min(missing)!r}.")
    if unknown:
        raise ModelFormatError(f"{where} has the unknown key {min(unknown)[:100]!r}.")


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


def read_payload(path: Path, size: int, expected: Mapping[str, Stored]) -> dict[str, np.ndarray]:
    """All arrays of a safetensors file, each compared with what the manifest promises.

    Memory: the size of the file (the arrays themselves) plus the parsed header. Time: one read and one SHA-256.

    Raises
    ------
    ModelFormatError
        The file is a link, not a regular file, of another size, damaged, or differs from ``expected`` in any way.
    FileNotFoundError
        There is no such file (a concurrent save may just have removed it).
    """
    _check_container(path, size)
    try:
        with safe_open(path, framework="np") as file:
            missing, unknown = set(expected) - set(file.keys()), set(file.keys()) - set(expected)
            if missing:
                raise ModelFormatError(f"The safetensors file lacks {min(missing)!r}, which the manifest lists.")
            if unknown:
                raise ModelFormatError(
                    f"The safetensors file holds {min(unknown)!r}, which the manifest does not list."
                )
            for name, stored in expected.items():
                piece = file.get_slice(name)
                require(
                    (piece.get_dtype(), tuple(piece.get_shape())) == (DTYPE_CODES[stored.dtype], stored.shape),
                    f"{path.name} holds {name!r} as {piece.get_dtype()} of shape {piece.get_shape()}, "
                    f"but the manifest says {stored.dtype} of shape {list(stored.shape)}.",
                )
            # Nothing is allocated before every shape has been compared.
            arrays = {name: file.get_tensor(name) for name in expected}
    except (FileNotFoundError, ModelFormatError):
        raise
    except MemoryError:
        raise ModelFormatError(
            f"{path.name}: its tensors need {size:,} bytes of memory, which are not available."
        ) from None
    except Exception as error:  # whatever another library's parser raises is a fault of the file
        raise ModelFormatError(f"{path.name} is not a valid safetensors file: {error}.") from error
    for name, array in arrays.items():
        same = digest(array) == expected[name].sha256
        require(same, f"{path.name}: the bytes of {name!r} do not have the sha256 of the manifest.")
    return arrays


def _check_container(path: Path, size: int) -> None:
    """Look at the file from outside, so that the library never meets a pipe, a link or a giant header."""
    try:
        status = os.lstat(path)
        regular, found = stat.S_ISREG(status.st_mode), status.st_size
        require(regular, f"{path.name} must be a regular file; links and special files are refused.")
        require(found == size, f"{path.name} has {found:,} bytes instead of {size:,}; it is incomplete or changed.")
        with open(path, "rb") as stream:
            header_bytes = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ModelFormatError(f"{path.name} cannot be read: {error.strerror}.") from error
    fits = size >= _LENGTH_BYTES and header_bytes <= min(size - _LENGTH_BYTES, MAX_HEADER_BYTES)
    require(fits, f"{path.name} is not a valid safetensors file: its header does not fit.")
