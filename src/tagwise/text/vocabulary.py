"""Lists of terms as arrays of bytes and back: how a vocabulary lies in a model folder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tagwise.exceptions import InvalidInputError

__all__ = ["joined_terms", "split_terms"]

_SEPARATOR = "\n"


def joined_terms(terms: Sequence[str]) -> np.ndarray:
    """The terms as UTF-8 text, joined by line feeds: a uint8 array that any program can read.

    Raises
    ------
    InvalidInputError
        A term is no Unicode text.
    """
    try:
        return np.frombuffer(_SEPARATOR.join(terms).encode(), dtype=np.uint8)
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            "texts hold a lone surrogate, which is no Unicode character: they were read from bytes that are no UTF-8. "
            f"Read the file in its own encoding ({error.reason})."
        ) from None


def split_terms(joined: object, name: str) -> list[str]:
    """The terms again, from an array that may come from anyone.

    Raises
    ------
    ValueError
        The array is no UTF-8 text, or a term is empty or comes twice.
    """
    if not isinstance(joined, np.ndarray) or joined.dtype != np.uint8 or joined.ndim != 1:
        raise ValueError(f"{name} must be a list of bytes")
    try:
        terms = joined.tobytes().decode().split(_SEPARATOR)
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is no UTF-8 text: {error.reason} at byte {error.start}") from None
    if "" in terms:
        raise ValueError(f"{name} holds an empty term")
    if len(set(terms)) != len(terms):
        raise ValueError(f"{name} holds a term twice")
    return terms
