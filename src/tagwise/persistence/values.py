"""Parameters and small fitted values as JSON and back.

JSON has no NaN, infinity, tuple or array. Each is written as an object with one key that starts with ``$``:
``{"$float": "nan"}``, ``{"$tuple": [...]}``, ``{"$array": 0}`` (the first entry of the manifest's
``arrays``). No other object may have a key that starts with ``$``, so that nothing a user saves can be
taken for one of these.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError
from tagwise.persistence.record import JSON, Tensor

__all__ = ["MAX_DEPTH", "decode_value", "encode_value", "is_text"]

MAX_DEPTH = 64
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def is_text(value: str) -> bool:
    """Whether a string is Unicode text: lone surrogates, which UTF-8 cannot hold, are none."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def encode_value(value: Any, where: str, arrays: list[Tensor], depth: int = 0) -> JSON:
    """A value as strict JSON; arrays found in it are appended to ``arrays``.

    Parameters
    ----------
    value : object
        What to encode.
    where : str
        Its place, such as ``parameters['reg']``, for messages.
    arrays : list
        Receives the arrays and CSR matrices that the result refers to by position.
    depth : int
        How many containers are around the value.

    Raises
    ------
    InvalidTypeError, InvalidInputError
        The value is of a kind, size or depth that the format has no place for.
    """
    if depth > MAX_DEPTH:
        raise InvalidInputError(f"{where} is nested more than {MAX_DEPTH} deep; a model folder cannot hold it.")
    if value is None or isinstance(value, (bool, np.bool_)):
        return None if value is None else bool(value)
    if isinstance(value, (int, np.integer)):
        if not _MIN_INTEGER <= value <= _MAX_INTEGER:
            raise InvalidInputError(f"{where} is an integer of more than 64 bits; a model folder cannot hold it.")
        return int(value)
    if isinstance(value, (float, np.float16, np.float32)):
        return _encode_float(float(value))
    if isinstance(value, str):
        if not is_text(value):
            raise InvalidInputError(f"{where} is no Unicode text (it has a lone surrogate): {value!r}.")
        return str.__str__(value)
    if isinstance(value, np.ndarray) or sp.issparse(value):
        arrays.append(value)
        return {"$array": len(arrays) - 1}
    if isinstance(value, (list, tuple)):
        items = [encode_value(item, f"{where}[{i}]", arrays, depth + 1) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, dict):
        return {
            _key(key, where): encode_value(item, f"{where}[{key!r}]", arrays, depth + 1) for key, item in value.items()
        }
    raise InvalidTypeError(
        f"{where} is of type {type(value).__name__}, which a model folder cannot hold; use None, numbers, "
        "strings, lists, tuples, dicts or numpy arrays."
    )


def _encode_float(number: float) -> JSON:
    if math.isfinite(number):
        return number
    return {"$float": "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"}


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise InvalidTypeError(f"{where} has the key {key!r}; keys must be strings.")
    if key.startswith("$") or not is_text(key):
        raise InvalidInputError(f"{where} has the key {key!r}; keys must be Unicode text that does not start with $.")
    return str.__str__(key)


def decode_value(value: JSON, where: str, arrays: list[Tensor], used: set[int], depth: int = 0) -> Any:
    """The inverse of :func:`encode_value`, for JSON that may come from anyone.

    Parameters
    ----------
    value : JSON
        What the manifest holds.
    where : str
        Its place, for messages.
    arrays : list
        The tensors that ``$array`` refers to.
    used : set of int
        Receives the positions referred to; a second reference to one is refused, as two names must not
        share memory.
    depth : int
        How many containers are around the value.

    Raises
    ------
    ModelFormatError
        The value is none that :func:`encode_value` makes.
    """
    if depth > MAX_DEPTH:
        raise ModelFormatError(f"{where} is nested more than {MAX_DEPTH} deep.")
    if isinstance(value, str):
        if not is_text(value):
            raise ModelFormatError(f"{where} is no Unicode text (it has a lone surrogate).")
        return value
    if isinstance(value, int) and not _MIN_INTEGER <= value <= _MAX_INTEGER:
        raise ModelFormatError(f"{where} is an integer of more than 64 bits.")
    if isinstance(value, list):
        return [decode_value(item, f"{where}[{i}]", arrays, used, depth + 1) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if any(key.startswith("$") for key in value):
        return _decode_tagged(value, where, arrays, used, depth)
    result = {}
    for key, item in value.items():
        if not is_text(key):
            raise ModelFormatError(f"{where} has a key that is no Unicode text (it has a lone surrogate).")
        result[key] = decode_value(item, f"{where}[{key!r}]", arrays, used, depth + 1)
    return result


def _decode_tagged(value: dict[str, JSON], where: str, arrays: list[Tensor], used: set[int], depth: int) -> Any:
    tag, content = next(iter(value.items()))
    if len(value) == 1:
        if tag == "$float" and isinstance(content, str) and content in _NON_FINITE:
            return _NON_FINITE[content]
        if tag == "$tuple" and isinstance(content, list):
            return tuple(decode_value(content, where, arrays, used, depth))
        if tag == "$array" and type(content) is int and 0 <= content < len(arrays):
            if content in used:
                raise ModelFormatError(f"{where} refers to array {content}, which another value has already.")
            used.add(content)
            return arrays[content]
    raise ModelFormatError(f"{where} has a key that starts with $ but is none of $float, $tuple, $array in order.")
