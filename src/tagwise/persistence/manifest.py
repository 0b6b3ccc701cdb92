"""``manifest.json``: the one file that says what a model folder holds, and that it is complete.

The manifest names the payload file with its size, and describes every tensor with its SHA-256. It also
holds its own SHA-256, computed with that field's digits set to zero, so that a changed byte anywhere is
noticed.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from tagwise._version import __version__
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError
from tagwise.persistence.fields import is_tensor_name, require_digest, require_keys
from tagwise.persistence.record import JSON
from tagwise.persistence.tensors import Spec, parse_spec
from tagwise.persistence.values import is_text

__all__ = ["FORMAT_VERSION", "MAX_MANIFEST_BYTES", "PAYLOAD_NAME", "Manifest", "is_class_name"]

FORMAT_NAME = "tagwise-model"
FORMAT_VERSION = 1
MAX_MANIFEST_BYTES = 256 * 2**20
PAYLOAD_NAME = re.compile(r"tensors-[0-9a-f]{32}\.safetensors")
# Our manifests start like this, whatever their version; it tells our folders from others without parsing
# them.
MANIFEST_START = re.compile(rb'\s*\{\s*"format"\s*:\s*"tagwise-model"')

_CLASS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_ZERO_DIGEST = "0" * 64
_DIGEST_KEY = "manifest_sha256"
_MAX_VERSION_TEXT = 100
_MAX_INTEGER_TEXT = 20  # digits and sign of any integer of 64 bits
_KEYS = (
    "format",
    "format_version",
    "tagwise_version",
    _DIGEST_KEY,
    "class",
    "parameters",
    "values",
    "payload",
    "arrays",
    "tensors",
    "label_names",
)


def is_class_name(name: object) -> bool:
    """Whether a string can be the name of an estimator class."""
    return isinstance(name, str) and _CLASS_NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class Manifest:
    """A manifest with every field checked, except for what the encoded parameters and values mean.

    Attributes
    ----------
    class_name : str
    parameters, values : dict
        Encoded as :mod:`tagwise.persistence.values` describes.
    payload : tuple of (str, int), optional
        Name and size of the safetensors file; None if the model has no arrays.
    arrays : list of Spec
        The arrays that parameters and values refer to, by position.
    tensors : dict of str to Spec
    label_names : list of str, optional
    """

    class_name: str
    parameters: dict[str, JSON]
    values: dict[str, JSON]
    payload: tuple[str, int] | None
    arrays: list[Spec]
    tensors: dict[str, Spec]
    label_names: list[str] | None

    def to_bytes(self) -> bytes:
        """The manifest as a file's content.

        Raises
        ------
        InvalidTypeError, InvalidInputError
            A label name is no text, or the manifest would be too large to be read again.
        """
        head = {
            "format": FORMAT_NAME,
            "format_version": FORMAT_VERSION,
            "tagwise_version": __version__,
            _DIGEST_KEY: _ZERO_DIGEST,
            "class": self.class_name,
            "parameters": self.parameters,
            "values": self.values,
            "payload": {"file": self.payload[0], "size": self.payload[1]} if self.payload else None,
            "arrays": [spec.entry() for spec in self.arrays],
            "tensors": {name: spec.entry() for name, spec in self.tensors.items()},
        }
        body = json.dumps(head, indent=2, ensure_ascii=False, allow_nan=False).removesuffix("\n}")
        # One name a line and after everything else: a person can read the head and search the names,
        # however many.
        raw = f'{body},\n  "label_names": {_names_text(self.label_names)}\n}}\n'.encode()
        if len(raw) > MAX_MANIFEST_BYTES:
            raise InvalidInputError(
                f"The manifest would have {len(raw):,} bytes, more than the allowed {MAX_MANIFEST_BYTES:,}; "
                "store long lists of numbers as arrays, and shorten label names."
            )
        # Before its own digest, the manifest holds no string of that length.
        start = raw.index(_ZERO_DIGEST.encode())
        return raw[:start] + _digest_around(raw, start).encode() + raw[start + len(_ZERO_DIGEST) :]

    @classmethod
    def from_bytes(cls, raw: bytes) -> Manifest:
        """Check and take apart a manifest that may come from anyone.

        Raises
        ------
        ModelFormatError
            It is no manifest of this format version, or not as it was written.
        """
        fields = _parse_json(raw)
        if not isinstance(fields, dict) or fields.get("format") != FORMAT_NAME:
            raise ModelFormatError(
                f'manifest.json does not say "format": "{FORMAT_NAME}"; this is no model of tagwise.'
            )
        _check_version(fields)
        require_keys(fields, _KEYS, "manifest.json")
        _check_digest(raw, require_digest(fields[_DIGEST_KEY], _DIGEST_KEY))
        if not is_class_name(fields["class"]):
            raise ModelFormatError("class must be the name of a class (letters, digits, underscores; at most 100).")
        for key in ("parameters", "values", "tensors"):
            if not isinstance(fields[key], dict):
                raise ModelFormatError(f"{key} must be an object.")
        if not isinstance(fields["arrays"], list):
            raise ModelFormatError("arrays must be a list.")
        if not all(is_tensor_name(name) for name in fields["tensors"]):
            raise ModelFormatError("tensors has a name that is empty, too long, unprintable or contains '/'.")
        arrays = [parse_spec(entry, f"arrays[{i}]") for i, entry in enumerate(fields["arrays"])]
        tensors = {name: parse_spec(entry, f"tensor {name!r}") for name, entry in fields["tensors"].items()}
        payload = _parse_payload(fields["payload"])
        if (payload is None) != (not arrays and not tensors):
            raise ModelFormatError(
                "payload must name a file if there are tensors or arrays, and be null if there are none."
            )
        names = _parse_names(fields["label_names"])
        return cls(fields["class"], fields["parameters"], fields["values"], payload, arrays, tensors, names)


def _names_text(names: Iterable[str] | None) -> str:
    if names is None:
        return "null"
    lines = []
    for position, name in enumerate(names):
        if not isinstance(name, str):
            raise InvalidTypeError(f"label_names[{position}] must be a string; found {name!r}.")
        if not is_text(name):
            raise InvalidInputError(f"label_names[{position}] is no Unicode text (it has a lone surrogate): {name!r}.")
        lines.append("    " + json.dumps(name, ensure_ascii=False))
    return "[\n" + ",\n".join(lines) + "\n  ]" if lines else "[]"


def _digest_around(raw: bytes, start: int) -> str:
    """SHA-256 of the manifest with the 64 digits at ``start`` read as zeros."""
    view = memoryview(raw)
    result = hashlib.sha256(view[:start])
    result.update(_ZERO_DIGEST.encode())
    result.update(view[start + len(_ZERO_DIGEST) :])
    return result.hexdigest()


def _check_digest(raw: bytes, promised: str) -> None:
    start = raw.find(promised.encode())
    if start < 0 or _digest_around(raw, start) != promised:
        raise ModelFormatError(
            f"manifest.json does not have the sha256 that it says ({_DIGEST_KEY}); it was damaged or edited."
        )


def _check_version(fields: dict[str, JSON]) -> None:
    version = fields.get("format_version")
    if type(version) is not int or version < 1:
        raise ModelFormatError("format_version must be a positive integer.")
    written_by = fields.get("tagwise_version")
    if not isinstance(written_by, str) or len(written_by) > _MAX_VERSION_TEXT or not written_by.isprintable():
        raise ModelFormatError(f"tagwise_version must be printable text of at most {_MAX_VERSION_TEXT} characters.")
    if version > FORMAT_VERSION:
        raise ModelFormatError(
            f"The model has format version {version} and was written by tagwise {written_by}; this tagwise "
            f"{__version__} reads versions up to {FORMAT_VERSION}. Upgrade tagwise to read it."
        )


def _parse_payload(value: JSON) -> tuple[str, int] | None:
    if value is None:
        return None
    require_keys(value, ("file", "size"), "payload")
    name, size = value["file"], value["size"]
    if not isinstance(name, str) or not PAYLOAD_NAME.fullmatch(name):
        raise ModelFormatError("payload file must be a plain name: tensors-, 32 digits 0-9a-f, .safetensors.")
    if type(size) is not int or not 0 <= size < 2**63:
        raise ModelFormatError("payload size must be an integer from 0 to 2^63 - 1.")
    return name, size


def _parse_names(value: JSON) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) and is_text(name) for name in value):
        raise ModelFormatError("label_names must be null or a list of strings of Unicode text.")
    return value


def _parse_json(raw: bytes) -> JSON:
    """Strict JSON: UTF-8, no duplicate keys, no NaN or infinity in any spelling, no endless integers."""
    try:
        return json.loads(
            raw.decode(),
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_int=_parse_integer,
            parse_float=_parse_float,
        )
    except UnicodeDecodeError as error:
        raise ModelFormatError(f"manifest.json is no UTF-8 text: {error.reason} at byte {error.start}.") from None
    except json.JSONDecodeError as error:
        raise ModelFormatError(f"manifest.json is no valid JSON, perhaps cut off: {error}.") from None
    except RecursionError:
        raise ModelFormatError("manifest.json is nested too deep.") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ModelFormatError(f"manifest.json has the key {twice[:100]!r} twice in one object.")
    return result


def _refuse_constant(text: str) -> NoReturn:
    raise ModelFormatError(f"manifest.json holds {text}, which is no JSON.")


def _parse_integer(text: str) -> int:
    if len(text) > _MAX_INTEGER_TEXT:
        raise ModelFormatError(f"manifest.json holds an integer of {len(text):,} digits; 64 bits are allowed.")
    return int(text)


def _parse_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ModelFormatError("manifest.json holds a number too large for a 64-bit float.")
    return number
