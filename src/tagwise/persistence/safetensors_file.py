"""The safetensors file of a model folder: written as a stream, read through the safetensors library.

Layout (the safetensors format): 8 bytes with the header's length (unsigned, little-endian), the header
(JSON: name → dtype, shape, offsets), then the arrays' bytes without gaps. It is written here and not by the
library because the library's writers either copy all arrays into one more buffer or open the final path
themselves, and the save has to go through :func:`tagwise.persistence.atomic.atomic_write`. Reading hostile
bytes is left to the library, whose checks of the header (offsets within the file, no overlaps, no gaps) are
what bounds the memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
from safetensors import safe_open

from tagwise.exceptions import InvalidInputError, ModelFormatError
from tagwise.persistence.tensors import DTYPE_CODES, Part, digest, raw_bytes

__all__ = ["Payload", "read_payload"]

MAX_HEADER_BYTES = 16 * 2**20
_LENGTH_BYTES = 8


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
        File name. It is derived from the content, so different content never shares a name (that is what
        lets old and new file stand side by side until the switch) and the same model makes the same folder,
        byte for byte.
    size : int
        Bytes of the file.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], digests: Mapping[str, str]) -> None:
        # Widest entries first: each array then starts at a multiple of its entry size.
        self._arrays = dict(sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])))
        table, offset = {}, 0
        for name, array in self._arrays.items():
            offsets = [offset, offset + array.nbytes]
            table[name] = {
                "dtype": DTYPE_CODES[array.dtype.name],
                "shape": list(array.shape),
                "data_offsets": offsets,
            }
            offset += array.nbytes
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
            stream.write(raw_bytes(array))


def read_payload(path: Path, size: int, expected: Mapping[str, Part]) -> dict[str, np.ndarray]:
    """All arrays of a safetensors file, each compared with what the manifest promises.

    Memory is the size of the file (the arrays themselves) plus the parsed header. Time is one read and one
    SHA-256.

    Raises
    ------
    ModelFormatError
        The file is a link, no regular file, of another size, damaged, or differs from ``expected`` in any
        way.
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
    except (
        Exception
    ) as error:  # a parser in other hands, on bytes in other hands: whatever it finds is a fault of the file
        raise ModelFormatError(f"{path.name} is no valid safetensors file: {error}.") from error
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
        raise ModelFormatError(f"{path.name} is no valid safetensors file: its header does not fit.")


def _compare_names(found: set[str], expected: set[str]) -> None:
    missing, unknown = expected - found, found - expected
    if missing:
        raise ModelFormatError(f"The safetensors file lacks {min(missing)!r}, which the manifest lists.")
    if unknown:
        raise ModelFormatError(f"The safetensors file holds {min(unknown)!r}, which the manifest does not list.")
