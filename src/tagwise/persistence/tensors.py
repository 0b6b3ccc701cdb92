"""Arrays and CSR matrices as described parts of plain bytes, and the safetensors file that holds them.

A dense tensor is one part; a CSR matrix is three (``data``, ``indices``, ``indptr``). The description of a tensor
(:class:`Spec`) is its entry in the manifest: it gives type, shape and digest of every part before a byte is read.

The file has the safetensors layout: 8 bytes with the header's length (unsigned, little-endian), the header (JSON: name
→ dtype, shape, offsets), then the arrays' bytes without gaps. It is written here because the library's writers either
copy all arrays into one more buffer or open the final path themselves, and a save has to go through
:func:`tagwise.persistence.atomic.atomic_write`. Reading hostile bytes is left to the library, whose checks of the
header (offsets within the file, no overlaps, no gaps) bound the memory.

Here and in :mod:`tagwise.persistence.manifest`, what cannot be written raises InvalidInputError or InvalidTypeError,
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import scipy.sparse as sp
from safetensors import safe_open

from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError

__all__ = [
    "DTYPE_CODES",
    "JSON",
    "Payload",
    "Spec",
    "Tensor",
    "digest",
    "from_parts",
    "parse_spec",
    "read_payload",
    "require_digest",
    "require_keys",
    "to_parts",
]

# None, bool, int (64 bits), float, str, list, dict with str keys; and, beyond JSON, tuple and Tensor. With a recursive
# alias every reader of a record would have to cast at every step.
JSON: TypeAlias = Any

Tensor: TypeAlias = np.ndarray | sp.csr_matrix

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
_CHECK_BLOCK = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAX_DIMENSIONS = 32


@dataclass(frozen=True)
class Part:
    """One array of the safetensors file as the manifest promises it."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class Spec:
    """One tensor as the manifest describes it.

    ``parts`` has the single key ``""`` for a dense tensor and the three parts' names for a CSR matrix.
    """

    shape: tuple[int, ...]
    parts: Mapping[str, Part]

    @property
    def is_csr(self) -> bool:
        """Whether the tensor is a CSR matrix."""
        return "" not in self.parts

    def entry(self) -> JSON:
        """The description as the manifest holds it."""
        if not self.is_csr:
            part = self.parts[""]
            return {"kind": "dense", "dtype": part.dtype, "shape": list(part.shape), "sha256": part.sha256}
        return {
            "kind": "csr",
            "dtype": self.parts["data"].dtype,
            "index_dtype": self.parts["indices"].dtype,
            "shape": list(self.shape),
            "nnz": self.parts["data"].shape[0],
            "sha256": {name: self.parts[name].sha256 for name in _CSR_PARTS},
        }


# ---------------------------------------------------------------------- tensors and their parts


def to_parts(tensor: Tensor, where: str) -> tuple[Spec, dict[str, np.ndarray]]:
    """The description of a tensor and its parts as C-ordered, little-endian arrays, copied only if need be."""
    if not isinstance(tensor, np.ndarray) and sp.issparse(tensor):
        if tensor.format != "csr" or tensor.ndim != 2:
            raise InvalidTypeError(f"{where} is sparse but not a CSR matrix; call .tocsr() on it first.")
        index_dtype = np.promote_types(tensor.indices.dtype, tensor.indptr.dtype)
        stored = int(tensor.indptr[-1]) if len(tensor.indptr) else 0
        # scipy allows spare room behind the last entry; it is not content of the matrix.
        arrays = {
            "data": _plain(tensor.data[: max(stored, 0)], where),
            "indices": _plain(tensor.indices[: max(stored, 0)].astype(index_dtype, copy=False), where),
            "indptr": _plain(tensor.indptr.astype(index_dtype, copy=False), where),
        }
        shape = (int(tensor.shape[0]), int(tensor.shape[1]))
        fault = _dtype_fault(arrays["data"].dtype.name, arrays["indices"].dtype.name)
        fault = fault or _csr_fault(arrays, shape)
        if fault:
            raise InvalidInputError(f"{where} is not a valid CSR matrix: {fault}.")
    elif isinstance(tensor, np.ndarray):
        arrays = {"": _plain(tensor, where)}
        shape = arrays[""].shape
    else:
        raise InvalidTypeError(f"{where} must be a numpy array or a CSR matrix; found {type(tensor).__name__}.")
    parts = {name: Part(array.dtype.name, array.shape, digest(array)) for name, array in arrays.items()}
    return Spec(shape, parts), arrays


def from_parts(spec: Spec, arrays: Mapping[str, np.ndarray], where: str) -> Tensor:
    """The tensor made of its parts, whose types, shapes and digests have been checked against ``spec``."""
    for name, part in spec.parts.items():
        if part.dtype == "bool" and arrays[name].size and arrays[name].view(np.uint8).max() > 1:
            raise ModelFormatError(f"{where} is of type bool but has bytes other than 0 and 1.")
    if not spec.is_csr:
        return arrays[""]
    fault = _csr_fault(arrays, (spec.shape[0], spec.shape[1]))
    if fault:
        raise ModelFormatError(f"{where} is not a valid CSR matrix: {fault}.")
    # The constructor that takes the three arrays would turn 64-bit indices into 32-bit ones where they fit.
    matrix = sp.csr_matrix((spec.shape[0], spec.shape[1]), dtype=arrays["data"].dtype)
    matrix.data, matrix.indices, matrix.indptr = (arrays[name] for name in _CSR_PARTS)
    return matrix


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


def _csr_fault(arrays: Mapping[str, np.ndarray], shape: tuple[int, int]) -> str | None:
    """What is wrong with the three arrays of a CSR matrix; temporary memory is O(1)."""
    data, indices, indptr = (arrays[name] for name in _CSR_PARTS)
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


def _dtype_fault(dtype: str, index_dtype: str) -> str | None:
    if dtype == "float16":
        return "scipy has no sparse matrices of float16"
    if index_dtype not in _INDEX_DTYPES:
        return f"indices are of type {index_dtype} instead of int32 or int64"
    return None


# ---------------------------------------------------------------------- descriptions that may come from anyone


def parse_spec(entry: JSON, where: str) -> Spec:
    """A tensor's description in a manifest that may come from anyone; allocates nothing."""
    kind = entry.get("kind") if isinstance(entry, dict) else None
    if kind == "dense":
        require_keys(entry, ("kind", "dtype", "shape", "sha256"), where)
        dtype = _require_choice(entry["dtype"], DTYPE_CODES, f"dtype of {where}")
        shape = _require_shape(entry["shape"], dtype, f"shape of {where}")
        return Spec(shape, {"": Part(dtype, shape, require_digest(entry["sha256"], f"sha256 of {where}"))})
    if kind == "csr":
        return _parse_csr(entry, where)
    raise ModelFormatError(f"{where} must be an object whose kind is 'dense' or 'csr'.")


def _parse_csr(entry: dict[str, JSON], where: str) -> Spec:
    require_keys(entry, ("kind", "dtype", "index_dtype", "shape", "nnz", "sha256"), where)
    dtype = _require_choice(entry["dtype"], DTYPE_CODES, f"dtype of {where}")
    index_dtype = _require_choice(entry["index_dtype"], _INDEX_DTYPES, f"index_dtype of {where}")
    fault = _dtype_fault(dtype, index_dtype)
    if fault:
        raise ModelFormatError(f"{where} is not a valid CSR matrix: {fault}.")
    # A CSR matrix may have more cells than memory has bytes; only its parts must be possible arrays.
    shape = _require_sizes(entry["shape"], f"shape of {where}")
    if len(shape) != 2:
        raise ModelFormatError(f"shape of {where} has {len(shape)} numbers; a CSR matrix has two.")
    entries = _require_shape([entry["nnz"]], dtype, f"nnz of {where}")
    boundaries = _require_shape([shape[0] + 1], index_dtype, f"shape of {where}")
    require_keys(entry["sha256"], _CSR_PARTS, f"sha256 of {where}")
    digests = {name: require_digest(entry["sha256"][name], f"sha256 of {where}") for name in _CSR_PARTS}
    parts = {
        "data": Part(dtype, entries, digests["data"]),
        "indices": Part(index_dtype, entries, digests["indices"]),
        "indptr": Part(index_dtype, boundaries, digests["indptr"]),
    }
    return Spec(shape, parts)


def require_keys(value: JSON, keys: tuple[str, ...], where: str) -> None:
    """An object with exactly these keys: an unknown key may change the meaning of a known one."""
    if not isinstance(value, dict):
        raise ModelFormatError(f"{where} must be an object with the keys {', '.join(keys)}.")
    missing, unknown = set(keys) - set(value), set(value) - set(keys)
    if missing:
        raise ModelFormatError(f"{where} lacks the key {min(missing)!r}.")
    if unknown:
        raise ModelFormatError(f"{where} has the unknown key {min(unknown)[:100]!r}.")


def require_digest(value: JSON, where: str) -> str:
    """A SHA-256 in hexadecimal."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ModelFormatError(f"{where} must be 64 digits 0-9a-f.")
    return value


def _require_choice(value: JSON, choices: Iterable[str], where: str) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ModelFormatError(f"{where} must be one of {', '.join(choices)}.")
    return value


def _require_sizes(value: JSON, where: str) -> tuple[int, ...]:
    """A list of sizes, each of which a 64-bit index can reach."""
    if not isinstance(value, list) or not all(type(size) is int and 0 <= size < 2**63 - 1 for size in value):
        raise ModelFormatError(f"{where} must consist of integers from 0 to 2^63 - 2.")
    return tuple(value)


def _require_shape(value: JSON, dtype: str, where: str) -> tuple[int, ...]:
    """A shape that an array of this type can have."""
    sizes = _require_sizes(value, where)
    if len(sizes) > _MAX_DIMENSIONS:
        raise ModelFormatError(f"{where} has {len(sizes)} dimensions; at most {_MAX_DIMENSIONS} are allowed.")
    # numpy refuses such shapes even when a size of 0 makes the array empty.
    if math.prod(max(size, 1) for size in sizes) * np.dtype(dtype).itemsize > sys.maxsize:
        raise ModelFormatError(f"{where} is too large for any array.")
    return sizes


# ---------------------------------------------------------------------- the file


class Payload:
    """Arrays laid out as a safetensors file that is still to be written.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        C-ordered, little-endian arrays by name.
    digests : mapping of str to str
        Their SHA-256.

    Attributes
    ----------
    name : str
        File name, derived from the content: different content never shares a name, so that old and new file can stand
        side by side until the switch, and the same model makes the same folder, byte for byte.
    size : int
        Bytes of the file.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], digests: Mapping[str, str]) -> None:
        # Widest entries first: each array then starts at a multiple of its entry size.
        self._arrays = dict(sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])))
        table, offset = {}, 0
        for name, array in self._arrays.items():
            end = offset + array.nbytes
            dtype, shape = DTYPE_CODES[array.dtype.name], list(array.shape)
            table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
            offset = end
        header = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
        header += b" " * (-len(header) % _LENGTH_BYTES)
        if len(header) > MAX_HEADER_BYTES:
            raise InvalidInputError(
                f"The model has {len(arrays):,} arrays, too many for one file; join small ones into larger."
            )
        self._header = len(header).to_bytes(_LENGTH_BYTES, "little") + header
        token = hashlib.sha256(self._header)
        for name in self._arrays:
            token.update(bytes.fromhex(digests[name]))
        self.name = f"tensors-{token.hexdigest()[:32]}.safetensors"
        self.size = len(self._header) + offset

    def write(self, stream: BinaryIO) -> None:
        """Write the file; needs no memory beyond the arrays."""
        stream.write(self._header)
        for array in self._arrays.values():
            stream.write(_raw_bytes(array))


def read_payload(path: Path, size: int, expected: Mapping[str, Part]) -> dict[str, np.ndarray]:
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
    arrays = {}
    try:
        with safe_open(path, framework="np") as file:
            _compare_names(set(file.keys()), set(expected))
            for name, part in expected.items():
                piece = file.get_slice(name)
                if (piece.get_dtype(), tuple(piece.get_shape())) != (DTYPE_CODES[part.dtype], part.shape):
                    raise ModelFormatError(
                        f"{path.name} holds {name!r} as {piece.get_dtype()} of shape {piece.get_shape()}, "
                        f"but the manifest says {part.dtype} of shape {list(part.shape)}."
                    )
            for name, part in expected.items():
                arrays[name] = file.get_tensor(name)
                if digest(arrays[name]) != part.sha256:
                    raise ModelFormatError(
                        f"{path.name}: the bytes of {name!r} do not have the sha256 of the manifest."
                    )
    except (FileNotFoundError, ModelFormatError):
        raise
    except MemoryError:
        raise ModelFormatError(
            f"{path.name}: its tensors need {size:,} bytes of memory, which are not available."
        ) from None
    except Exception as error:  # whatever another library's parser raises is a fault of the file
        raise ModelFormatError(f"{path.name} is not a valid safetensors file: {error}.") from error
    return arrays


def _check_container(path: Path, size: int) -> None:
    """Look at the file from outside, so that the library never meets a pipe, a link or a giant header."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            raise ModelFormatError(f"{path.name} must be a regular file; links and special files are refused.")
        if status.st_size != size:
            raise ModelFormatError(
                f"{path.name} has {status.st_size:,} bytes instead of {size:,}; it is incomplete or changed."
            )
        with open(path, "rb") as stream:
            header_bytes = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ModelFormatError(f"{path.name} cannot be read: {error.strerror}.") from error
    if size < _LENGTH_BYTES or header_bytes > min(size - _LENGTH_BYTES, MAX_HEADER_BYTES):
        raise ModelFormatError(f"{path.name} is not a valid safetensors file: its header does not fit.")


def _compare_names(found: set[str], expected: set[str]) -> None:
    missing, unknown = expected - found, found - expected
    if missing:
        raise ModelFormatError(f"The safetensors file lacks {min(missing)!r}, which the manifest lists.")
    if unknown:
        raise ModelFormatError(f"The safetensors file holds {min(unknown)!r}, which the manifest does not list.")
