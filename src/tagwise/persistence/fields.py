"""Checks of single manifest fields, each of which raises ModelFormatError in words of the manifest."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable

import numpy as np

from tagwise.exceptions import ModelFormatError
from tagwise.persistence.record import JSON

__all__ = [
    "is_tensor_name",
    "require_choice",
    "require_digest",
    "require_keys",
    "require_shape",
    "require_sizes",
]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAX_DIMENSIONS = 32
_MAX_NAME = 200


def is_tensor_name(name: object) -> bool:
    """Whether a tensor may have this name: printable, not too long, without ``/`` (it sets parts apart)."""
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME and "/" not in name and name.isprintable()


def require_keys(value: JSON, keys: tuple[str, ...], where: str) -> None:
    """An object with exactly these keys: an unknown key may change the meaning of a known one."""
    if not isinstance(value, dict):
        raise ModelFormatError(f"{where} must be an object with the keys {', '.join(keys)}.")
    missing, unknown = set(keys) - set(value), set(value) - set(keys)
    if missing:
        raise ModelFormatError(f"{where} lacks the key {min(missing)!r}.")
    if unknown:
        raise ModelFormatError(f"{where} has the unknown key {min(unknown)[:100]!r}.")


def require_choice(value: JSON, choices: Iterable[str], where: str) -> str:
    """One of a few strings."""
    if not isinstance(value, str) or value not in choices:
        raise ModelFormatError(f"{where} must be one of {', '.join(choices)}.")
    return value


def require_sizes(value: JSON, where: str) -> tuple[int, ...]:
    """A list of sizes, each of which a 64-bit index can reach."""
    if not isinstance(value, list) or not all(type(size) is int and 0 <= size < 2**63 - 1 for size in value):
        raise ModelFormatError(f"{where} must be made of integers from 0 to 2^63 - 2.")
    return tuple(value)


def require_shape(value: JSON, dtype: str, where: str) -> tuple[int, ...]:
    """A shape that an array of this type can have."""
    sizes = require_sizes(value, where)
    if len(sizes) > _MAX_DIMENSIONS:
        raise ModelFormatError(f"{where} has {len(sizes)} dimensions; at most {_MAX_DIMENSIONS} are allowed.")
    # numpy refuses such shapes even when a size of 0 makes the array empty.
    if math.prod(max(size, 1) for size in sizes) * np.dtype(dtype).itemsize > sys.maxsize:
        raise ModelFormatError(f"{where} is too large for any array.")
    return sizes


def require_digest(value: JSON, where: str) -> str:
    """A SHA-256 in hexadecimal."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ModelFormatError(f"{where} must be 64 digits 0-9a-f.")
    return value
