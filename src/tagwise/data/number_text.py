"""Numbers as text: strict reading, and the shortest text that reads back as the same float."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tagwise.exceptions import InvalidInputError

__all__ = ["check_float_dtype", "parse_number", "shortest_texts"]

# Decimal floats only: Python's float() would also take "1_000", "nan", other scripts' digits and blanks around it.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


def check_float_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """``dtype`` as float32 or float64, or an error."""
    try:
        checked = np.dtype(dtype)
    except TypeError:
        checked = np.dtype(object)
    if checked not in (np.float32, np.float64):
        raise InvalidInputError(f"dtype must be numpy.float32 or numpy.float64; found {dtype!r}.")
    return checked


def parse_number(token: str, dtype: np.dtype[Any]) -> float:
    """The value of a decimal number, rounded to double and then to ``dtype``.

    Raises ValueError with the reason, for the caller to add the place, when ``token`` is not a finite
    decimal number, or one that ``dtype`` would turn into infinity or from non-zero into zero.
    """
    shown = token if len(token) <= 40 else token[:37] + "..."
    if _NUMBER.fullmatch(token) is None:
        if _NOT_FINITE.fullmatch(token):
            raise ValueError(f"the value {shown!r} is not finite; every value must be a finite number")
        raise ValueError(f"{shown!r} is not a number")
    value = float(token)
    with np.errstate(over="ignore", under="ignore"):
        stored = float(dtype.type(value))
    if not np.isfinite(stored):
        raise ValueError(f"the value {shown!r} is too large for {dtype}")
    if stored == 0 and re.search("[1-9]", re.split("[eE]", token)[0]):
        raise ValueError(f"the value {shown!r} is not zero but so small that {dtype} would make it 0")
    return stored


def shortest_texts(values: NDArray[Any]) -> list[str]:
    """The shortest decimal text of each float32 or float64 that reads back as exactly that value."""
    # Unique by bits, not by value: 0.0 and -0.0 are equal but have different texts.
    bits = np.ascontiguousarray(values).view(np.uint32 if values.dtype == np.float32 else np.uint64)
    unique, inverse = np.unique(bits, return_inverse=True)
    floats = unique.view(values.dtype)
    texts = [str(value).removesuffix(".0") for value in floats]
    if values.dtype == np.float32:
        # Readers round to double first. Should that ever tip the shortest float32 text over a tie, the
        # value's text as a double, which is exact, takes its place.
        back = np.array([float(text) for text in texts], dtype=np.float64).astype(np.float32)
        for position in np.flatnonzero(back != floats):
            texts[position] = repr(float(floats[position]))
    return [texts[position] for position in inverse.ravel().tolist()]
