"""Arrays and CSR matrices as the tensors of a safetensors file.

A CSR matrix is stored as four tensors: its name and ``.data``, ``.indices``, ``.indptr`` and ``.shape``.

The safetensors library writes files. They are read here: the library (0.4 to 0.8) copies every tensor, so that
processes could not share a model in memory, and maps the file, so that a process dies of one that is cut off meanwhile
(so does one that reads with ``mapped=True``, which is why only files of the reader's own are mapped).
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import re
import stat
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError

__all__ = ["Tensor", "digest", "open_regular", "plain_arrays", "read_tensors", "require", "write_tensors"]

Tensor: TypeAlias = np.ndarray | sp.csr_matrix

_DTYPES = {
    f"{letter}{bits}": f"{kind}{bits}"
    for letter, kind in (("F", "float"), ("I", "int"), ("U", "uint"))
    for bits in (8, 16, 32, 64)
    if (letter, bits) != ("F", 8)
} | {"BOOL": "bool"}
"""Types of tensors: name in safetensors → name in numpy."""
_MATRIX = ("data", "indices", "indptr", "shape")
_MOST_AXES = 32


def require(condition: object, fault: str) -> None:
    """Refuse what was read where a condition does not hold."""
    if not condition:
        raise ModelFormatError(f"damaged: {fault}")


# ---------------------------------------------------------------------- writing


def plain_arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """The arrays to store, C-ordered and little-endian; copied only if need be."""
    found: dict[str, np.ndarray] = {}
    tensor: Any
    for name, tensor in tensors.items():
        if sp.issparse(tensor) and tensor.format == "csr":
            nnz = int(tensor.indptr[-1])  # scipy allows spare room behind the last entry
            parts = {"data": tensor.data[:nnz], "indices": tensor.indices[:nnz], "indptr": tensor.indptr}
            found |= {f"{name}.{part}": array for part, array in parts.items()}
            found[f"{name}.shape"] = np.array(tensor.shape, dtype=np.int64)
        elif isinstance(tensor, np.ndarray) and not isinstance(tensor, np.ma.MaskedArray):
            found[name] = tensor
        else:
            raise InvalidTypeError(f"{name} must be a numpy array or a CSR matrix; found {type(tensor).__name__}.")
    for name, array in found.items():
        if array.dtype.name not in _DTYPES.values():
            raise InvalidTypeError(
                f"{name} has entries of type {array.dtype}; a folder holds {', '.join(_DTYPES.values())}."
            )
        # np.ascontiguousarray would turn 0-d arrays into 1-d ones.
        found[name] = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
    return found


def digest(tensor: Tensor) -> str:
    """SHA-256 of type, shape and content of an array or a CSR matrix."""
    found = hashlib.sha256()
    for name, array in plain_arrays({"": tensor}).items():
        found.update(f"{name} {array.dtype.name} {array.shape}".encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Write arrays of :func:`plain_arrays` as a safetensors file; returns the SHA-256 of the file."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(dict(arrays), path)
    except SafetensorError as error:
        # The library tells errors of the system as text.
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise InvalidInputError(f"the arrays cannot be saved: {error}") from error
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
    found = hashlib.sha256()
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
        while block := stream.read(1 << 20):
            found.update(block)
    return found.hexdigest()


# ---------------------------------------------------------------------- reading what may come from anyone


def read_tensors(path: Path, size: int, sha256: str, *, mapped: bool = False) -> dict[str, Tensor]:
    """All tensors of a safetensors file of this size and digest.

    Memory: the size of the file and the parsed header. Where the tensors are ``mapped``, processes that read the same
    file share it, and the digest is not checked. Matrices may hold any numbers: who uses them checks their indices.

    Raises
    ------
    ModelFormatError
        The file is a link, not a regular file, or damaged.
    FileNotFoundError
        There is no such file (a concurrent save may just have removed it).
    """
    try:
        with open_regular(path) as stream:
            found = os.fstat(stream.fileno()).st_size
            require(found == size, f"{path.name} has {found:,} bytes instead of {size:,}.")
            memory: Any = None
            if mapped:
                memory = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_COPY)
            else:
                memory = bytearray(size)
                require(stream.readinto(memory) == size, f"{path.name} became shorter while it was read.")
                same = hashlib.sha256(memory).hexdigest() == sha256
                require(same, f"{path.name} does not have the sha256 of the manifest.")
        return _with_matrices(_arrays(memory))
    except (FileNotFoundError, ModelFormatError):
        raise
    except MemoryError:
        raise ModelFormatError(f"{path.name} needs {size:,} bytes of memory, which are not available.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFormatError(f"damaged: {path.name} cannot be read: {error!s:.200}.") from error


def open_regular(path: Path) -> BufferedReader:
    """A file opened for reading, unless it is a link or a special file; raises ModelFormatError or OSError."""
    regular = stat.S_ISREG(os.lstat(path).st_mode)
    require(regular, f"{path.name} must be a regular file; links and special files are refused.")
    # Should it be replaced meanwhile, neither a link nor a pipe may lead the reader elsewhere or make it wait.
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
    return os.fdopen(os.open(path, flags), "rb")


def _arrays(memory: Any) -> dict[str, np.ndarray]:
    """The arrays of a file, on the memory that holds it; they lie one behind the other, up to its end."""
    at = 8 + int.from_bytes(memory[:8], "little")
    require(at <= len(memory), "the header of the tensors is longer than their file.")
    header, arrays, first = json.loads(bytes(memory[8:at])), {}, at
    header.pop("__metadata__", None)
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
        # The product of many sizes would take time in the square of their number.
        whole = len(shape) <= _MOST_AXES and all(type(size) is int and 0 <= size <= len(memory) for size in shape)
        require(whole, f"{name} has the shape {shape!s:.100}.")
        count = math.prod(shape)
        end = at + count * np.dtype(dtype).itemsize
        require(entry["data_offsets"] == [at - first, end - first], f"{name} does not lie where its size says.")
        # numpy makes no empty array of a buffer's end.
        array = np.frombuffer(memory, dtype, count, at).reshape(shape) if count else np.empty(shape, dtype)
        if dtype == "bool":
            require(array.view(np.uint8).max(initial=0) <= 1, f"{name} is of type bool but has bytes above 1.")
        arrays[name] = array if array.flags.aligned else array.copy()
        at = end
    require(at == len(memory), "the tensors have other bytes than their file.")
    return arrays


def _with_matrices(arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """The arrays, those of a matrix put together."""
    tensors: dict[str, Tensor] = dict(arrays)
    for name in [key.removesuffix(".indptr") for key in arrays if key.endswith(".indptr")]:
        data, indices, indptr, shape = (arrays[f"{name}.{part}"] for part in _MATRIX)
        require(indices.dtype.kind == indptr.dtype.kind == shape.dtype.kind == "i", f"{name} is not a CSR matrix.")
        for part in _MATRIX:
            del tensors[f"{name}.{part}"]
        tensors[name] = sp.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()), copy=False)
    return tensors
