"""What a model folder holds: :class:`ModelRecord` in memory, ``manifest.json`` on disk.

The manifest names the payload file with its size and describes every tensor with its SHA-256. It also holds its own
SHA-256, computed with that field's digits set to zero, so that a changed byte anywhere is noticed.

JSON has no NaN, infinity, tuple or array. Each is written as an object with one key that starts with ``$``:
``{"$float": "nan"}``, ``{"$tuple": [...]}``, ``{"$array": 0}`` (the first entry of the manifest's ``arrays``). No other
object may have a key that starts with ``$``, so that nothing a user saves can be taken for one of these.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from tagwise._version import __version__
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError
from tagwise.persistence.tensors import JSON, Spec, Tensor, parse_spec, require_digest, require_keys

__all__ = [
    "FORMAT_VERSION",
    "MAX_DEPTH",
    "MAX_MANIFEST_BYTES",
    "PAYLOAD_NAME",
    "Manifest",
    "ModelRecord",
    "decode_value",
    "encode_value",
    "is_class_name",
    "is_tensor_name",
    "is_text",
]

FORMAT_NAME = "tagwise-model"
FORMAT_VERSION = 1
MAX_MANIFEST_BYTES = 256 * 2**20
PAYLOAD_NAME = re.compile(r"tensors-[0-9a-f]{32}\.safetensors")
# Our manifests start like this, whatever their version: it tells our folders from others without parsing them.
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

MAX_DEPTH = 64
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_MAX_NAME = 200


@dataclass(frozen=True)
class ModelRecord:
    """Everything that is needed to build a fitted model again.

    Parameters
    ----------
    class_name : str
        Name of the class, such as ``"LEML"``. Reading a folder never imports or calls it: whoever reads looks the name
        up in the registry.
    parameters : dict of str to JSON
        Constructor parameters. Beside JSON values, tuples, numpy scalars (which become Python numbers), arrays and CSR
        matrices (stored as tensors) are allowed at any depth; NaN and infinities are kept.
    tensors : dict of str to ndarray or csr_matrix
        Fitted arrays.
    values : dict of str to JSON
        Small fitted values, of the same kinds as ``parameters``.
    label_names : list of str, optional
        One name per label, in label order.
    """

    class_name: str
    parameters: dict[str, JSON] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, JSON] = field(default_factory=dict)
    label_names: list[str] | None = None

    def with_model(self, name: str, inner: ModelRecord) -> ModelRecord:
        """The record with a fitted model in it; its tensors have ``name`` and a dot in front of their names."""
        tensors = {f"{name}.{key}": tensor for key, tensor in inner.tensors.items()}
        described = {"class": inner.class_name, "parameters": inner.parameters, "values": inner.values}
        return replace(self, tensors={**self.tensors, **tensors}, values={**self.values, name: described})

    def split_model(self, name: str) -> tuple[ModelRecord, ModelRecord]:
        """The inverse of :meth:`with_model`: the model, and the record without it."""
        values = dict(self.values)
        described = values.pop(name)
        if not isinstance(described, dict) or set(described) != {"class", "parameters", "values"}:
            raise ValueError(f"{name} must hold class, parameters and values of a model")
        own, rest = {}, {}
        for key, tensor in self.tensors.items():
            prefix, dot, inner_name = key.partition(".")
            if dot and prefix == name:
                own[inner_name] = tensor
            else:
                rest[key] = tensor
        inner = ModelRecord(described["class"], described["parameters"], own, described["values"])
        return inner, replace(self, tensors=rest, values=values)


def is_class_name(name: object) -> bool:
    """Whether a string can be the name of an estimator class."""
    return isinstance(name, str) and _CLASS_NAME.fullmatch(name) is not None


def is_tensor_name(name: object) -> bool:
    """Whether a tensor may have this name: printable, not too long, without ``/`` (it sets parts apart)."""
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME and "/" not in name and name.isprintable()


@dataclass(frozen=True)
class Manifest:
    """A manifest with every field checked, except for what parameters and values (see :func:`encode_value`) mean.

    ``payload`` is name and size of the safetensors file, None if the model has no arrays; parameters and values refer
    to ``arrays`` by position.
    """

    class_name: str
    parameters: dict[str, JSON]
    values: dict[str, JSON]
    payload: tuple[str, int] | None
    arrays: list[Spec]
    tensors: dict[str, Spec]
    label_names: list[str] | None

    def to_bytes(self) -> bytes:
        """The manifest as a file's content."""
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
        # One name per line, after everything else: a person can read the head and search the names, however many.
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
        """Check and parse a manifest that may come from anyone."""
        fields = _parse_json(raw)
        if not isinstance(fields, dict) or fields.get("format") != FORMAT_NAME:
            raise ModelFormatError(
                f'manifest.json does not say "format": "{FORMAT_NAME}"; this is not a model of tagwise.'
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
            raise InvalidInputError(f"label_names[{position}] is not Unicode text (it has a lone surrogate): {name!r}.")
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
            f"manifest.json does not have the sha256 that it states ({_DIGEST_KEY}); it was damaged or edited."
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
    """Strict JSON: UTF-8, no duplicate keys, no NaN or infinity in any spelling, no integers beyond 64 bits."""
    try:
        return json.loads(
            raw.decode(),
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_int=_parse_integer,
            parse_float=_parse_float,
        )
    except UnicodeDecodeError as error:
        raise ModelFormatError(f"manifest.json is not UTF-8 text: {error.reason} at byte {error.start}.") from None
    except json.JSONDecodeError as error:
        raise ModelFormatError(f"manifest.json is not valid JSON, perhaps cut off: {error}.") from None
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
    raise ModelFormatError(f"manifest.json holds {text}, which is not JSON.")


def _parse_integer(text: str) -> int:
    if len(text) > _MAX_INTEGER_TEXT:
        raise ModelFormatError(f"manifest.json holds an integer of {len(text):,} digits; 64 bits are allowed.")
    return int(text)


def _parse_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ModelFormatError("manifest.json holds a number too large for a 64-bit float.")
    return number


# ---------------------------------------------------------------------- parameters and values


def is_text(value: str) -> bool:
    """Whether a string is Unicode text: UTF-8 cannot hold lone surrogates."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def encode_value(value: Any, where: str, arrays: list[Tensor], depth: int = 0) -> JSON:
    """A value as strict JSON.

    ``where`` is its place, such as ``parameters['reg']``, for error messages. Arrays and CSR matrices in it are
    appended to ``arrays``, and the result refers to them by position.
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
            raise InvalidInputError(f"{where} is not Unicode text (it has a lone surrogate): {value!r}.")
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

    ``used`` receives the positions of ``arrays`` referred to; a second reference to one is refused, as two names must
    not share memory.
    """
    if depth > MAX_DEPTH:
        raise ModelFormatError(f"{where} is nested more than {MAX_DEPTH} deep.")
    if isinstance(value, str):
        if not is_text(value):
            raise ModelFormatError(f"{where} is not Unicode text (it has a lone surrogate).")
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
            raise ModelFormatError(f"{where} has a key that is not Unicode text (it has a lone surrogate).")
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
    raise ModelFormatError(f"{where} has a key that starts with $ but is not a valid $float, $tuple or $array.")
