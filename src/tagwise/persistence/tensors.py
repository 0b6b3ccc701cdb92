"""Arrays and CSR matrices as named parts of plain bytes with a description, and back.

A dense tensor is one part; a CSR matrix is three (``data``, ``indices``, ``indptr``). The description of a
tensor (:class:`Spec`) is what the manifest says of it, and is enough to know every part's type, shape and
digest before a byte of it is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError
from tagwise.persistence.fields import (
    require_choice,
    require_digest,
    require_keys,
    require_shape,
    require_sizes,
)
from tagwise.persistence.record import JSON, Tensor

__all__ = ["DTYPE_CODES", "Part", "Spec", "assemble", "digest", "dismantle", "parse_spec", "raw_bytes"]

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
_INDEX_DTYPES = ("int32", "int64")
_CSR_PARTS = ("data", "indices", "indptr")
_CHECK_BLOCK = 1 << 20


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


def dismantle(tensor: Tensor, where: str) -> tuple[Spec, dict[str, np.ndarray]]:
    """The description of a tensor and its parts as C-ordered, little-endian arrays (copied only if need be).

    Raises
    ------
    InvalidTypeError, InvalidInputError
        The tensor is of a type that the format does not hold, or a CSR matrix that contradicts itself.
    """
    if not isinstance(tensor, np.ndarray) and sp.issparse(tensor):
        if tensor.format != "csr" or tensor.ndim != 2:
            raise InvalidTypeError(f"{where} is sparse but no CSR matrix; call .tocsr() on it first.")
        index_dtype = np.promote_types(tensor.indices.dtype, tensor.indptr.dtype)
        stored = int(tensor.indptr[-1]) if len(tensor.indptr) else 0
        # scipy allows spare room behind the last entry; it is no content of the matrix.
        arrays = {
            "data": _plain(tensor.data[: max(stored, 0)], where),
            "indices": _plain(tensor.indices[: max(stored, 0)].astype(index_dtype, copy=False), where),
            "indptr": _plain(tensor.indptr.astype(index_dtype, copy=False), where),
        }
        shape = (int(tensor.shape[0]), int(tensor.shape[1]))
        fault = _dtype_fault(arrays["data"].dtype.name, arrays["indices"].dtype.name)
        fault = fault or _csr_fault(arrays, shape)
        if fault:
            raise InvalidInputError(f"{where} is no valid CSR matrix: {fault}.")
    elif isinstance(tensor, np.ndarray):
        arrays = {"": _plain(tensor, where)}
        shape = arrays[""].shape
    else:
        raise InvalidTypeError(f"{where} must be a numpy array or a CSR matrix; found {type(tensor).__name__}.")
    parts = {name: Part(array.dtype.name, array.shape, digest(array)) for name, array in arrays.items()}
    return Spec(shape, parts), arrays


def _plain(array: np.ndarray, where: str) -> np.ndarray:
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidTypeError(f"{where} is a masked array, whose mask would be lost; save data and mask separately.")
    if array.dtype.name not in DTYPE_CODES:
        raise InvalidTypeError(
            f"{where} has entries of type {array.dtype}; a model folder holds {', '.join(DTYPE_CODES)}."
        )
    # np.ascontiguousarray would turn 0-d arrays into 1-d ones.
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def raw_bytes(array: np.ndarray) -> memoryview:
    """The bytes of a C-ordered array, uncopied."""
    return array.reshape(-1).view(np.uint8).data


def digest(array: np.ndarray) -> str:
    """SHA-256 of a C-ordered array's bytes, in hexadecimal."""
    return hashlib.sha256(raw_bytes(array)).hexdigest()


def parse_spec(entry: JSON, where: str) -> Spec:
    """A tensor's description out of a manifest that may come from anyone; allocates nothing.

    Raises
    ------
    ModelFormatError
        A field is missing, unknown, of the wrong type, or promises what no array can be.
    """
    kind = entry.get("kind") if isinstance(entry, dict) else None
    if kind == "dense":
        require_keys(entry, ("kind", "dtype", "shape", "sha256"), where)
        dtype = require_choice(entry["dtype"], DTYPE_CODES, f"dtype of {where}")
        shape = require_shape(entry["shape"], dtype, f"shape of {where}")
        return Spec(shape, {"": Part(dtype, shape, require_digest(entry["sha256"], f"sha256 of {where}"))})
    if kind == "csr":
        return _parse_csr(entry, where)
    raise ModelFormatError(f"{where} must be an object whose kind is 'dense' or 'csr'.")


def _parse_csr(entry: dict[str, JSON], where: str) -> Spec:
    require_keys(entry, ("kind", "dtype", "index_dtype", "shape", "nnz", "sha256"), where)
    dtype = require_choice(entry["dtype"], DTYPE_CODES, f"dtype of {where}")
    index_dtype = require_choice(entry["index_dtype"], _INDEX_DTYPES, f"index_dtype of {where}")
    fault = _dtype_fault(dtype, index_dtype)
    if fault:
        raise ModelFormatError(f"{where} is no valid CSR matrix: {fault}.")
    # A CSR matrix may have more cells than memory has bytes; only its parts must be possible arrays.
    shape = require_sizes(entry["shape"], f"shape of {where}")
    if len(shape) != 2:
        raise ModelFormatError(f"shape of {where} has {len(shape)} numbers; a CSR matrix has two.")
    entries = require_shape([entry["nnz"]], dtype, f"nnz of {where}")
    boundaries = require_shape([shape[0] + 1], index_dtype, f"shape of {where}")
    require_keys(entry["sha256"], _CSR_PARTS, f"sha256 of {where}")
    digests = {name: require_digest(entry["sha256"][name], f"sha256 of {where}") for name in _CSR_PARTS}
    parts = {
        "data": Part(dtype, entries, digests["data"]),
        "indices": Part(index_dtype, entries, digests["indices"]),
        "indptr": Part(index_dtype, boundaries, digests["indptr"]),
    }
    return Spec(shape, parts)


def assemble(spec: Spec, arrays: Mapping[str, np.ndarray], where: str) -> Tensor:
    """The tensor made of its parts, whose types, shapes and digests have been checked against ``spec``.

    Raises
    ------
    ModelFormatError
        The parts' values make no valid tensor: CSR arrays that contradict each other, truth values beyond 0
        and 1.
    """
    for name, part in spec.parts.items():
        if part.dtype == "bool" and arrays[name].size and arrays[name].view(np.uint8).max() > 1:
            raise ModelFormatError(f"{where} is of type bool but has bytes other than 0 and 1.")
    if not spec.is_csr:
        return arrays[""]
    fault = _csr_fault(arrays, (spec.shape[0], spec.shape[1]))
    if fault:
        raise ModelFormatError(f"{where} is no valid CSR matrix: {fault}.")
    # The constructor that takes the three arrays would turn 64-bit indices into 32-bit ones where they fit.
    matrix = sp.csr_matrix((spec.shape[0], spec.shape[1]), dtype=arrays["data"].dtype)
    matrix.data, matrix.indices, matrix.indptr = (arrays[name] for name in _CSR_PARTS)
    return matrix


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
