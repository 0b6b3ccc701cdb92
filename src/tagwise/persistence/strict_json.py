"""JSON of files that may come from anyone: strict, and bounded before it is parsed.

What was read and cannot be right raises ModelFormatError.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn, TypeAlias

from tagwise.exceptions import ModelFormatError

__all__ = ["JSON", "MAX_ITEMS", "count_items", "is_text", "parse_json", "require", "require_keys"]

# None, bool, int (64 bits), float, str, list, dict with str keys; and, beyond JSON, tuple and Tensor. With a recursive
# alias every reader of a record would have to cast at every step.
JSON: TypeAlias = Any

MAX_ITEMS = 10**6
"""Lists, objects and numbers that a file may hold, not counting lists of strings: names may be many."""

_MAX_INTEGER_TEXT = 20  # digits and sign of any integer of 64 bits


def parse_json(raw: bytes, name: str) -> JSON:
    """Strict JSON: UTF-8, no duplicate keys, no NaN or infinity in any spelling, no integers beyond 64 bits.

    ``name`` is the file's, for messages. Each list or object takes thirty times its two bytes in memory, and a
    microsecond or more to check: beyond :data:`MAX_ITEMS` the file is refused before it is parsed.
    """

    def refuse_constant(text: str) -> NoReturn:
        raise ModelFormatError(f"{name} holds {text}, which is not JSON.")

    def integer(text: str) -> int:
        fits = len(text) <= _MAX_INTEGER_TEXT
        require(fits, f"{name} holds an integer of {len(text):,} digits; 64 bits are allowed.")
        return int(text)

    def number(text: str) -> float:
        value = float(text)
        require(math.isfinite(value), f"{name} holds a number too large for a 64-bit float.")
        return value

    def plain_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
            raise ModelFormatError(f"{name} has the key {twice[:100]!r} twice in one object.")
        return result

    found = count_items(raw)
    require(found <= MAX_ITEMS, f"{name} holds {found:,} lists, objects and numbers; {MAX_ITEMS:,} are allowed.")
    try:
        return json.loads(
            raw.decode(),
            object_pairs_hook=plain_object,
            parse_constant=refuse_constant,
            parse_int=integer,
            parse_float=number,
        )
    except UnicodeDecodeError as error:
        raise ModelFormatError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}.") from None
    except json.JSONDecodeError as error:
        raise ModelFormatError(f"{name} is not valid JSON, perhaps cut off: {error}.") from None
    except RecursionError:
        raise ModelFormatError(f"{name} is nested too deep.") from None


def count_items(raw: bytes) -> int:
    """A bound on the lists, objects and numbers of JSON, without those in strings if there are too many with them."""
    found = sum(raw.count(sign) for sign in (b",", b"[", b"{"))
    if found <= MAX_ITEMS:
        return found
    # Names may be many, and hold such signs: what is left has a quote in the place of each string, and no spaces.
    outside = b'"'.join(raw.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]).translate(None, b" \t\r\n")
    return sum(outside.count(sign) for sign in (b",", b"[", b"{")) - outside.count(b'",')


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


def is_text(value: str) -> bool:
    """Whether a string is Unicode text: UTF-8 cannot hold lone surrogates."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
