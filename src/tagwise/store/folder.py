"""A model in memory (:class:`ModelRecord`) and as a folder on disk; ``docs/model-format.md`` specifies the format.

POSIX cannot replace a non-empty folder by a rename, so the switch is the rename of one file, ``manifest.json``: the
tensors are written first, under a name that their content determines, and the old ones are removed last. A folder is
complete if and only if it has a manifest; files that no manifest names are removed by the next save. A reader takes no
lock: if a save removes the tensors under it, it starts again with the manifest that is there now.

JSON has no NaN, infinity or array: these are written as an object with one key that starts with ``$``, as
``{"$float": "nan"}`` and ``{"$array": "parameters.positive_weight"}``, the name of a tensor.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise._version import __version__
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError
from tagwise.registry import MODELS, SAVED_CLASSES
from tagwise.store.atomic import atomic_write, flush_folder, locked
from tagwise.store.tensors import Tensor, open_regular, plain_arrays, read_tensors, require, write_tensors

__all__ = [
    "FORMAT_VERSION",
    "JSON",
    "MANIFEST_NAME",
    "MISFITS",
    "ModelRecord",
    "as_path",
    "check_destination",
    "folder_bytes",
    "is_text",
    "load",
    "model_from_parts",
    "parse_manifest",
    "read_manifest",
    "read_model",
    "remove_model",
    "require_same",
    "storable_parameters",
    "write_model",
]

JSON: TypeAlias = Any
"""None, bool, int, float, str, list, dict with str keys; and, in a record, arrays and CSR matrices."""

FORMAT_NAME = "tagwise-model"
FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 256 * 2**20

_PAYLOAD_NAME = re.compile(r"model-[0-9a-f]{32}\.safetensors")
# Left by a crashed save, or of the model that a save replaces. safetensors writes to .tmp and six letters or digits.
_LEFTOVER = re.compile(
    rf"{_PAYLOAD_NAME.pattern}|\.(manifest\.json|{_PAYLOAD_NAME.pattern})\.[0-9a-f]{{16}}\.tmp|\.tmp[0-9A-Za-z]{{6}}"
)
# Each attempt after the first needs one more save to finish within the same few milliseconds.
_READ_ATTEMPTS = 8
_CLASS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_NO_DIGEST = b"0" * 64
_KEYS = {"format", "format_version", "tagwise_version", "sha256", "class"}
_KEYS |= {"parameters", "values", "payload", "label_names"}
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class ModelRecord:
    """Everything needed to rebuild a fitted model.

    The class is a name, such as ``"LEML"``: reading a folder never imports or calls it, whoever reads looks it up in
    the registry. Parameters and values are JSON; tuples (which become lists), numpy scalars (which become Python
    numbers), arrays and CSR matrices (stored as tensors) are allowed at any depth; NaN and infinities are kept.
    """

    class_name: str
    parameters: dict[str, JSON] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, JSON] = field(default_factory=dict)
    label_names: list[str] | None = None

    def with_model(self, name: str, inner: ModelRecord) -> ModelRecord:
        """The record with a fitted model in it; its tensors have ``name`` and a dot in front of their names."""
        fields = {"class": inner.class_name, "parameters": inner.parameters, "values": inner.values}
        tensors = self.tensors | {f"{name}.{key}": tensor for key, tensor in inner.tensors.items()}
        return replace(self, tensors=tensors, values={**self.values, name: fields})

    def split_model(self, name: str) -> tuple[ModelRecord, ModelRecord]:
        """The inverse of :meth:`with_model`: the model, and the record without it."""
        values = dict(self.values)
        fields = values.pop(name)
        if not isinstance(fields, dict) or set(fields) != {"class", "parameters", "values"}:
            raise ValueError(f"{name} must hold class, parameters and values of a model")
        own = {key: tensor for key, tensor in self.tensors.items() if key.startswith(f"{name}.")}
        rest = {key: tensor for key, tensor in self.tensors.items() if key not in own}
        own = {key.removeprefix(f"{name}."): tensor for key, tensor in own.items()}
        inner = ModelRecord(fields["class"], fields["parameters"], own, fields["values"])
        return inner, replace(self, tensors=rest, values=values)


# ---------------------------------------------------------------------- writing


def write_model(path: str | os.PathLike[str], record: ModelRecord, *, overwrite: bool = True) -> None:
    """Save a model; at any time, even after a crash, the folder holds the old model or the new one.

    The folder is made with its parents if it does not exist; it must be empty, hold a model of tagwise, or what a
    crashed save left. The same record always makes the same bytes, and concurrent saves wait for each other.

    Raises
    ------
    InvalidInputError, InvalidTypeError
        The format has no place for the record, the path is not ours to replace, or ``overwrite`` is False and there is
        a model. Nothing was touched.
    OSError
        The disk is full, the target cannot be written, … (with the system's ``errno``). A model that was there before
        is still there, and the temporaries are gone.
    """
    folder = as_path(path)
    arrays, fields = _laid_out(record)
    made = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    try:
        if made:
            folder.mkdir(parents=True, exist_ok=True)
        for place in made:
            flush_folder(place.parent)
        with locked(folder):
            _refuse_foreign(folder, overwrite)
            _sweep(folder)
            try:
                if arrays:
                    fields["payload"] = _write_payload(folder, arrays)
                manifest = _manifest_bytes(fields)
                atomic_write(folder / MANIFEST_NAME, lambda stream: stream.write(manifest))
            finally:
                _sweep(folder)
    except BaseException as error:
        for place in made:
            with suppress(OSError):
                place.rmdir()
        if not isinstance(error, OSError):
            raise
        raise OSError(
            error.errno or errno.EIO,
            f"The model could not be saved: {error.strerror or error}. A folder that held a model before "
            "the save still holds a whole one",
            str(folder),
        ) from error


def _laid_out(record: ModelRecord) -> tuple[dict[str, np.ndarray], dict[str, JSON]]:
    """The arrays to store and the fields of the manifest; checks the whole record and does not touch the disk."""
    if not _CLASS_NAME.fullmatch(record.class_name):
        raise InvalidInputError(f"class_name must be the name of a class in ASCII; found {record.class_name!r}.")
    tensors: dict[str, Tensor] = dict(record.tensors)
    try:
        fields = {
            "format": FORMAT_NAME,
            "format_version": FORMAT_VERSION,
            "tagwise_version": __version__,
            "sha256": _NO_DIGEST.decode(),
            "class": record.class_name,
            "parameters": _encode(record.parameters, "parameters", tensors),
            "values": _encode(record.values, "values", tensors),
            "payload": None,
            "label_names": _encode(record.label_names, "label_names", tensors),
        }
        size = len(_manifest_bytes(fields))
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"a name or text is not Unicode (it has a lone surrogate): {error}.") from None
    except RecursionError:
        raise InvalidInputError("parameters or values are nested too deep for a model folder.") from None
    if size > MAX_MANIFEST_BYTES:
        raise InvalidInputError(
            f"The manifest would have {size:,} bytes, and {MAX_MANIFEST_BYTES:,} are allowed; store long lists of "
            "numbers as arrays, and shorten label names."
        )
    return plain_arrays(tensors), fields


def _encode(value: Any, where: str, tensors: dict[str, Tensor]) -> JSON:
    """A value as strict JSON; arrays in it are added to ``tensors``, by where they stand."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.ndarray) or sp.issparse(value):
        if where in tensors:
            raise InvalidInputError(f"{where} is the name of two arrays.")
        tensors[where] = value
        return {"$array": where}
    if isinstance(value, (list, tuple)):
        return [_encode(item, f"{where}.{place}", tensors) for place, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str) or key.startswith("$"):
                raise InvalidInputError(f"{where} has the key {key!r}; keys must be text that does not start with $.")
        return {key: _encode(item, f"{where}.{key}", tensors) for key, item in value.items()}
    raise InvalidTypeError(
        f"{where} is of type {type(value).__name__}, which a model folder cannot hold; use None, numbers, strings, "
        "lists, dicts or numpy arrays."
    )


def _manifest_bytes(fields: dict[str, JSON]) -> bytes:
    """The manifest, with its digest; label names stand at its end, one per line."""
    raw = f"{json.dumps(fields, indent=1, ensure_ascii=False, allow_nan=False)}\n".encode()
    # Before its own digest, the manifest holds no string of that length.
    return raw.replace(_NO_DIGEST, hashlib.sha256(raw).hexdigest().encode(), 1)


def _write_payload(folder: Path, arrays: dict[str, np.ndarray]) -> dict[str, JSON]:
    """Write the tensors under the name that their content gives them; returns the manifest's entry of the file."""
    temporary = folder / f".model-{'0' * 32}.safetensors.{secrets.token_hex(8)}.tmp"
    sha256 = write_tensors(temporary, arrays)
    name, size = f"model-{sha256[:32]}.safetensors", temporary.stat().st_size
    os.replace(temporary, folder / name)
    flush_folder(folder)
    return {"file": name, "size": size, "sha256": sha256}


def _refuse_foreign(folder: Path, overwrite: bool = True) -> None:
    """Refuse a path that must not be replaced: a file, or a folder with other content."""
    if not folder.is_dir():
        raise InvalidInputError(f"path must be a folder for the model, but {folder} is a file; choose another path.")
    names = os.listdir(folder)
    foreign = [] if MANIFEST_NAME in names else [name for name in names if not _LEFTOVER.fullmatch(name)]
    if foreign:
        raise InvalidInputError(
            f"{folder} holds {min(foreign)!r} and no model of tagwise; choose an empty or new folder."
        )
    if MANIFEST_NAME not in names:
        return
    start = b""
    with suppress(ModelFormatError), open_regular(folder / MANIFEST_NAME) as stream:
        start = stream.read(4096)
    # Our manifests start like this, whatever their version.
    if not re.match(rb'\s*\{\s*"format"\s*:\s*"tagwise-model"', start):
        raise InvalidInputError(
            f"{folder / MANIFEST_NAME} is not a manifest of a tagwise model; choose an empty or new folder."
        )
    if not overwrite:
        raise InvalidInputError(f"{folder} already holds a model, and overwrite is False; choose another path.")


def _sweep(folder: Path) -> None:
    """Remove our files that the manifest does not name: of the old model, of a failed save, of a crashed one.

    Failures are ignored: a file that could not be removed wastes room until the next save, and breaks nothing.
    """
    with suppress(OSError):
        leftovers = [name for name in os.listdir(folder) if _LEFTOVER.fullmatch(name)]
        path = folder / MANIFEST_NAME
        manifest = path.read_bytes() if leftovers and path.exists() else b""
        for name in leftovers:
            if name.startswith(".") or name.encode() not in manifest:
                with suppress(OSError):
                    os.unlink(folder / name)


def remove_model(path: str | os.PathLike[str]) -> None:
    """Remove a model, or what a crashed save left, and the folder if nothing else is in it.

    The manifest goes first: at every moment, and after every crash, the folder holds a whole model or none. A folder
    with other things than a model is an InvalidInputError.
    """
    folder = as_path(path)
    with locked(folder):
        _refuse_foreign(folder)
        with suppress(FileNotFoundError):
            os.unlink(folder / MANIFEST_NAME)
            flush_folder(folder)
        _sweep(folder)
    with suppress(OSError):  # other files are in it, or somebody else removed it
        folder.rmdir()


def check_destination(path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
    """Refuse a folder that :func:`write_model` would refuse, before hours of training."""
    folder = as_path(path)
    there = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
    if there == folder:
        _refuse_foreign(folder, overwrite)
    elif not there.is_dir():
        raise InvalidInputError(f"{folder} cannot be made, since {there} is a file; choose another path.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InvalidInputError(f"{folder} cannot be written: {there} may not be written to; choose another path.")


def folder_bytes(path: str | os.PathLike[str]) -> int:
    """Size of a folder's files on disk in bytes."""
    return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())


def as_path(path: str | os.PathLike[str]) -> Path:
    """The argument as a path; raises InvalidTypeError or InvalidInputError if it cannot name a folder."""
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidTypeError(f"path must be a string or a path; found {type(path).__name__}.")
    if not os.fspath(path) or "\0" in str(path):
        raise InvalidInputError(f"path must name a folder; found {path!r}.")
    return Path(path)


# ---------------------------------------------------------------------- reading what may come from anyone


def read_model(path: str | os.PathLike[str], *, mapped: bool = False) -> ModelRecord:
    """Read a model folder, which may come from anyone: nothing in it is run, or it is a ModelFormatError.

    The record equals the one that was written, but for numpy scalars, which have become Python numbers, tuples, lists,
    and the order of arrays, C. Indices of matrices are still to be checked. ``mapped`` leaves the tensors in their
    file, which processes then share in memory; their digest is not checked. Whoever may write into the folder can
    change them later, while a save replaces the file and leaves this one alone.

    Memory: the real size of the tensors' file, whatever the manifest claims, plus the parsed manifest.
    """
    folder = as_path(path)
    try:
        for _ in range(_READ_ATTEMPTS):
            fields = parse_manifest(read_manifest(folder))
            payload, tensors = fields["payload"], {}
            if payload is not None:
                try:
                    tensors = read_tensors(folder / payload["file"], payload["size"], payload["sha256"], mapped=mapped)
                except FileNotFoundError:
                    continue
            parameters, values = (_decode(fields[key], tensors) for key in ("parameters", "values"))
            require(isinstance(parameters, dict) and isinstance(values, dict), "parameters or values are no objects.")
            return ModelRecord(fields["class"], parameters, tensors, values, fields["label_names"])
    except ModelFormatError as error:
        raise ModelFormatError(f"{folder}: {error}") from error.__cause__
    except (KeyError, TypeError, RecursionError) as error:
        raise ModelFormatError(f"{folder}: damaged: a value of manifest.json cannot be read: {error!s:.100}") from None
    raise ModelFormatError(f"{folder}: damaged: the tensors that manifest.json names are missing.")


def read_manifest(folder: Path) -> bytes:
    """The bytes of a folder's manifest; raises ModelFormatError if there is none or it is not a plain file."""
    try:
        with open_regular(folder / MANIFEST_NAME) as stream:
            size = os.fstat(stream.fileno()).st_size
            require(size <= MAX_MANIFEST_BYTES, f"manifest.json has {size:,} bytes.")
            # Not a larger number: read() allocates all that it is asked for.
            return stream.read(size)
    except FileNotFoundError as error:
        missing = "is not a model of tagwise: it has no manifest.json" if folder.is_dir() else "does not exist"
        raise ModelFormatError(f"the folder {missing}.") from error
    except NotADirectoryError as error:
        raise ModelFormatError("the path is a file; a model is a folder.") from error
    except OSError as error:
        raise ModelFormatError(f"manifest.json cannot be read ({error.strerror}).") from error


def parse_manifest(raw: bytes) -> dict[str, JSON]:
    """The fields of a manifest; parameters and values are still to be checked."""
    try:
        fields = json.loads(raw)
        if _SURROGATE.search(raw):  # of which half may be missing
            json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError, MemoryError) as error:
        raise ModelFormatError(f"damaged: manifest.json is not JSON: {error!s:.200}.") from None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT_NAME:
        raise ModelFormatError(f'not a model of tagwise: manifest.json does not say "format": "{FORMAT_NAME}".')
    version = fields.get("format_version")
    if type(version) is int and version > FORMAT_VERSION:
        raise ModelFormatError(
            f"the model has format version {version}, and tagwise {__version__} reads version {FORMAT_VERSION}; "
            "upgrade tagwise to read it."
        )
    require(version == FORMAT_VERSION and set(fields) == _KEYS, "manifest.json does not have the keys of its format.")
    sha256, names, payload = fields["sha256"], fields["label_names"], fields["payload"]
    require(isinstance(sha256, str) and sha256.isascii(), "sha256 is not a digest.")
    zeroed = raw.replace(sha256.encode(), _NO_DIGEST, 1)
    require(hashlib.sha256(zeroed).hexdigest() == sha256, "manifest.json does not have the sha256 that it states.")
    require(isinstance(fields["class"], str) and _CLASS_NAME.fullmatch(fields["class"]), "class is not a name.")
    if payload is not None:
        known = isinstance(payload, dict) and set(payload) == {"file", "size", "sha256"}
        named = known and isinstance(payload["file"], str) and _PAYLOAD_NAME.fullmatch(payload["file"])
        require(named and type(payload["size"]) is int, "payload must name a file of tensors.")
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    require(names is None or texts, "label_names must be null or a list of strings.")
    return fields


def _decode(value: JSON, tensors: dict[str, Tensor]) -> Any:
    """The inverse of :func:`_encode`, which takes arrays out of ``tensors``; KeyError for unknown names."""
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    if isinstance(value, dict):
        if set(value) == {"$float"}:
            return _NON_FINITE[value["$float"]]
        if set(value) == {"$array"}:
            return tensors.pop(value["$array"])
        return {key: _decode(item, tensors) for key, item in value.items()}
    return value


def is_text(value: str) -> bool:
    """Whether a string is Unicode text: UTF-8 cannot hold lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


# ---------------------------------------------------------------------- back to a model


MISFITS = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
"""Errors of undamaged content that no fit can have written."""


def load(path: str | PathLike[str], *, mapped: bool = False) -> Any:
    """Read a model or a tagger that was written by its ``save``.

    Parameters
    ----------
    path : path
        The model folder.
    mapped : bool
        Leave the tensors in their file, of which processes that load the same folder share one copy in memory. Their
        digest is not checked, and the file must not be modified while the model is used (``save`` does not).

    Returns
    -------
    The fitted model, of the class it had, or the :class:`tagwise.Tagger`; it predicts bit-identically to the saved one.

    Raises
    ------
    ModelFormatError
        The folder is missing, incomplete, damaged or not a model of tagwise. No code from the folder is ever run.
    """
    record = read_model(path, mapped=mapped)
    try:
        # Checks of numbers may overflow: the result says what is wrong with them, and no warning need to.
        with np.errstate(over="ignore", invalid="ignore"):
            if record.class_name in SAVED_CLASSES:
                module = import_module(SAVED_CLASSES[record.class_name])
                return getattr(module, record.class_name).from_parts(record)
            return model_from_parts(record)
    except ModelFormatError as error:
        raise ModelFormatError(f"{path}: {error}") from None
    except (*MISFITS, MemoryError) as error:
        raise ModelFormatError(f"{path}: the content does not fit {record.class_name}: {error}") from None


def model_from_parts(record: ModelRecord) -> Any:
    """The fitted model that a record describes, by ``from_parts`` (and with its errors) of the registered class."""
    known = {info.class_name: info for info in MODELS}
    if record.class_name not in known:
        raise ModelFormatError(
            f"the manifest names the class {record.class_name!r}, which this version of tagwise does not "
            f"know; it knows {', '.join(sorted(known))}."
        )
    return known[record.class_name].load_class().from_parts(record)


def require_same(what: str, found: set[str], expected: set[str]) -> None:
    """Raise ValueError unless two sets of names are equal."""
    if found != expected:
        missing, extra = sorted(expected - found), sorted(found - expected)
        raise ValueError(f"{what} missing: {missing}, unexpected: {extra}")


def storable_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Constructor parameters as JSON values and arrays; InvalidInputError for what a model folder cannot hold."""
    stored: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, np.generic):
            stored[name] = value.item()
        elif isinstance(value, (type(None), bool, int, float, str, np.ndarray)):
            stored[name] = value
        elif isinstance(value, (list, tuple)):
            stored[name] = np.asarray(value).tolist()
        else:
            what = "function" if callable(value) else type(value).__name__
            raise InvalidInputError(
                f"{name} is a {what}, which a model folder cannot hold; call set_params({name}=…) with a number, text, "
                "list or array, or the name of a function, before the fit."
            )
    return stored
