"""A model in memory (:class:`ModelRecord`) and as a folder on disk; ``docs/model-format.md`` specifies the format.

POSIX cannot replace a non-empty folder by a rename, so the switch is the rename of one file, ``manifest.json``: the
tensors are written first, under a name that their content determines, and the old ones are removed last. A folder is
complete if and only if it has a manifest; files that no manifest names are removed by the next save. A reader takes no
lock: if a save removes the tensors under it, it starts again with the manifest that is there now.

The manifest names the tensors' file with its size and describes every tensor with its SHA-256. It also holds its own
SHA-256, computed with that field's digits set to zero, so that a changed byte anywhere is noticed.

JSON has no NaN, infinity, tuple or array. Each is written as an object with one key that starts with ``$``:
``{"$float": "nan"}``, ``{"$tuple": [...]}``, ``{"$array": 0}`` (the first entry of the manifest's ``arrays``). No other
object may have a key that starts with ``$``, so that nothing a user saves can be taken for one of these.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise._version import __version__
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError
from tagwise.persistence.atomic import HAS_LOCKS, atomic_write, final_name, flush_folder, locked
from tagwise.persistence.strict_json import JSON, MAX_ITEMS, count_items, is_text, parse_json, require, require_keys
from tagwise.persistence.tensors import (
    Digested,
    Payload,
    Tensor,
    described,
    open_regular,
    promised,
    read_payload,
    require_digest,
    restored,
)

__all__ = [
    "FORMAT_VERSION",
    "MANIFEST_NAME",
    "ModelRecord",
    "as_path",
    "check_destination",
    "folder_bytes",
    "is_text",
    "parse_manifest",
    "read_manifest",
    "read_model",
    "remove_model",
    "with_prefix",
    "within",
    "write_model",
]

FORMAT_NAME = "tagwise-model"
FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 256 * 2**20
FREE_MANIFEST_BYTES = 32 * 2**20
"""Beyond this, a manifest may have as many bytes as the tensors' file."""
MAX_DEPTH = 64

_PAYLOAD_NAME = re.compile(r"tensors-[0-9a-f]{32}\.safetensors")
# Our manifests start like this, whatever their version: it tells our folders from others without parsing them.
_MANIFEST_START = re.compile(rb'\s*\{\s*"format"\s*:\s*"tagwise-model"')
# Each attempt after the first needs one more save to finish within the same few milliseconds.
_READ_ATTEMPTS = 8
_CLASS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_ZERO_DIGEST = b"0" * 64
_DIGEST_KEY = "manifest_sha256"
_HEAD_KEYS = ("format", "format_version", "tagwise_version", _DIGEST_KEY)
_MODEL_KEYS = ("class", "parameters", "values", "payload", "arrays", "tensors", "label_names")
_MAX_NAME = 200
_MAX_VERSION_TEXT = 100
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


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
        fields = {"class": inner.class_name, "parameters": inner.parameters, "values": inner.values}
        tensors = self.tensors | with_prefix(name, inner.tensors)
        return replace(self, tensors=tensors, values={**self.values, name: fields})

    def split_model(self, name: str) -> tuple[ModelRecord, ModelRecord]:
        """The inverse of :meth:`with_model`: the model, and the record without it."""
        values = dict(self.values)
        fields = values.pop(name)
        if not isinstance(fields, dict) or set(fields) != {"class", "parameters", "values"}:
            raise ValueError(f"{name} must hold class, parameters and values of a model")
        own = within(name, self.tensors)
        rest = {key: tensor for key, tensor in self.tensors.items() if not key.startswith(f"{name}.")}
        inner = ModelRecord(fields["class"], fields["parameters"], own, fields["values"])
        return inner, replace(self, tensors=rest, values=values)


def with_prefix(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of an inner model or state as those of the outer one: with ``name`` and a dot in front."""
    return {f"{name}.{key}": tensor for key, tensor in tensors.items()}


def within(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of :func:`with_prefix`; tensors without that prefix are left out."""
    return {key.removeprefix(f"{name}."): tensor for key, tensor in tensors.items() if key.startswith(f"{name}.")}


def write_model(path: str | os.PathLike[str], record: ModelRecord, *, overwrite: bool = True) -> None:
    """Save a model; at every moment, and after every crash, the folder holds the old model or the new one.

    Parameters
    ----------
    path : path
        The folder, made with its parents if it does not exist. It must be empty, hold a model of tagwise, or what a
        crashed save left.
    record : ModelRecord
        The model. All of it is checked before the disk is touched.
    overwrite : bool, default=True
        Whether a model that is already there may be replaced.

    Raises
    ------
    InvalidInputError, InvalidTypeError
        The format has no place for the record; or the path is a file, a folder with other things in it, or an existing
        model with ``overwrite=False``. Nothing was touched.
    OSError
        The disk is full, the target cannot be written, … (with the system's ``errno``). A model that was there before
        is still there, and the temporaries are gone.

    Notes
    -----
    Memory: nothing beyond the record for C-ordered arrays; others are copied. Time: one SHA-256 and one write of the
    tensors. The same record always makes the same bytes. Concurrent saves into one folder wait for each other.
    """
    folder = as_path(path)
    content, payload = _laid_out(record)
    made: list[Path] = []
    try:
        if not os.path.lexists(folder):
            _make_folder(folder, made)
        _require_folder(folder)
        with _locked(folder):
            _refuse_foreign(folder, overwrite)
            _sweep(folder)
            try:
                if payload is not None:
                    atomic_write(folder / payload.name, payload.write)
                atomic_write(folder / MANIFEST_NAME, lambda stream: stream.write(content))
            finally:
                _sweep(folder)
    except BaseException as error:
        for made_folder in reversed(made):
            with suppress(OSError):
                made_folder.rmdir()
        if not isinstance(error, OSError):
            raise
        raise OSError(
            error.errno or errno.EIO,
            f"The model could not be saved: {error.strerror or error}. A folder that held a model before "
            "the save still holds a whole one",
            str(folder),
        ) from error


def check_destination(path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
    """Refuse a folder that :func:`write_model` would refuse, before hours of work are put into the model."""
    folder = as_path(path)
    if os.path.lexists(folder):
        _require_folder(folder)
        _refuse_foreign(folder, overwrite)
        return
    parent = folder.absolute().parent
    while not os.path.lexists(parent):
        parent = parent.parent
    if not parent.is_dir():
        raise InvalidInputError(f"{folder} cannot be made, since {parent} is a file; choose another path.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InvalidInputError(f"{folder} cannot be made, since {parent} may not be written to; choose another path.")


def folder_bytes(path: str | os.PathLike[str]) -> int:
    """What the files of a folder take on disk."""
    return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())


def read_model(path: str | os.PathLike[str], *, mapped: bool = False) -> ModelRecord:
    """Read a model folder, which may come from anyone: nothing in it is run, or trusted unchecked.

    ``mapped`` leaves the tensors in their file, which processes then share in memory. They are checked once: whoever
    may write into the folder can change them later, while a save replaces the file and leaves this one alone.

    Returns
    -------
    ModelRecord
        Equal to the one that was written: arrays bit by bit, with type and shape; numpy scalars have become Python
        numbers, and arrays are C-ordered.

    Raises
    ------
    ModelFormatError
        The folder is missing, incomplete, damaged, hostile, of a newer format version, or not a model of tagwise.

    Notes
    -----
    Memory: the real size of the tensors' file, whatever the manifest claims, plus the parsed manifest. Time: one read
    and one SHA-256 of the tensors.
    """
    folder = as_path(path)
    try:
        for _ in range(_READ_ATTEMPTS):
            fields = parse_manifest(read_manifest(folder))
            with suppress(FileNotFoundError):
                return _record(folder, fields, mapped)
    except ModelFormatError as error:
        raise ModelFormatError(f"{folder}: {error}") from error.__cause__
    raise ModelFormatError(
        f"{folder}: the tensors that manifest.json names are missing; the folder was copied incompletely or changed."
    )


def remove_model(path: str | os.PathLike[str]) -> None:
    """Remove a model, or what a crashed save left, and the folder if nothing else is in it.

    The manifest goes first: at every moment, and after every crash, the folder holds a whole model or none.

    Raises
    ------
    InvalidInputError
        The folder holds other things than a model; nothing was touched.
    OSError
        The folder or the manifest cannot be changed.
    """
    folder = as_path(path)
    with _locked(folder):
        _refuse_foreign(folder, overwrite=True)
        with suppress(FileNotFoundError):
            os.unlink(folder / MANIFEST_NAME)
            flush_folder(folder)
        _sweep(folder)
    with suppress(OSError):  # other files are in it, or somebody else removed it
        folder.rmdir()


def as_path(path: str | os.PathLike[str]) -> Path:
    """The argument as a path; raises InvalidTypeError or InvalidInputError if it cannot name a folder."""
    try:
        text = os.fspath(path)
    except TypeError:
        raise InvalidTypeError(f"path must be a string or a path; found {type(path).__name__}.") from None
    if not isinstance(text, str):
        raise InvalidTypeError(f"path must be a string or a path; found {type(text).__name__}.")
    if not text or "\0" in text:
        raise InvalidInputError(f"path must name a folder; found {text!r}.")
    return Path(text)


# ---------------------------------------------------------------------- the files of a folder


def _make_folder(folder: Path, made: list[Path]) -> None:
    """Make a folder with its parents, durably; the ones made are appended to ``made``, outermost first."""
    missing = takewhile(lambda path: not os.path.lexists(path), [folder, *folder.parents])
    for new in reversed(list(missing)):
        with suppress(FileExistsError):  # another process saves here too
            os.mkdir(new)
            made.append(new)
        flush_folder(new.parent)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other saves out. The lock is on the folder itself."""
    if not HAS_LOCKS:  # there, folders cannot be opened either
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with locked(descriptor):
            yield
    finally:
        os.close(descriptor)


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise InvalidInputError(f"path must be a folder for the model, but {folder} is a file; choose another path.")


def _refuse_foreign(folder: Path, overwrite: bool) -> None:
    """Refuse a folder whose content is not ours to replace."""
    names = os.listdir(folder)
    if MANIFEST_NAME in names:
        manifest = folder / MANIFEST_NAME
        start = b""
        if stat.S_ISREG(os.lstat(manifest).st_mode):
            with open(manifest, "rb") as stream:
                start = stream.read(4096)
        if not _MANIFEST_START.match(start):
            raise InvalidInputError(f"{manifest} is not a manifest of a tagwise model; choose an empty or new folder.")
        if not overwrite:
            raise InvalidInputError(f"{folder} already holds a model, and overwrite is False; choose another path.")
        return
    foreign = [name for name in names if not _is_leftover(name)]
    if foreign:
        raise InvalidInputError(
            f"{folder} holds {min(foreign)!r} and no model of tagwise; choose an empty or new folder."
        )


def _is_leftover(name: str) -> bool:
    """Whether a file can be what a crashed save left: tensors, or a temporary of tensors or manifest."""
    final = final_name(name) or name
    return _PAYLOAD_NAME.fullmatch(final) is not None or (final == MANIFEST_NAME and final != name)


def _sweep(folder: Path) -> None:
    """Remove our files that the manifest does not name: of the old model, of a failed save, of a crashed one.

    Failures are ignored: a file that could not be removed wastes room until the next save, and breaks nothing.
    """
    with suppress(OSError):
        leftovers = [name for name in os.listdir(folder) if _is_leftover(name)]
        try:
            manifest = (folder / MANIFEST_NAME).read_bytes() if leftovers else b""
        except FileNotFoundError:
            manifest = b""
        for name in leftovers:
            if final_name(name) or name.encode() not in manifest:
                with suppress(OSError):
                    os.unlink(folder / name)


# ---------------------------------------------------------------------- the manifest, written


def _laid_out(record: ModelRecord) -> tuple[bytes, Payload | None]:
    """The manifest and the tensors' file; checks the whole record and does not touch the disk."""
    if not _is_class_name(record.class_name):
        raise InvalidInputError(f"class_name must be the name of a class in ASCII; found {record.class_name!r}.")
    for name in record.tensors:
        if not _is_tensor_name(name):
            raise InvalidInputError(
                f"tensors has the name {name!r}; names must be printable, at most 200 long, and without '/'."
            )
    inline: list[Tensor] = []
    parameters = _encode(dict(record.parameters), "parameters", inline)
    values = _encode(dict(record.values), "values", inline)
    stored: dict[str, Digested] = {}

    def entry(tensor: Tensor, name: str, where: str) -> JSON:
        found, arrays = described(tensor, name, where)
        stored.update(arrays)
        return found

    arrays = [entry(tensor, f"arrays/{i}", "an array in the parameters or values") for i, tensor in enumerate(inline)]
    tensors = {name: entry(tensor, f"tensors/{name}", f"tensors[{name!r}]") for name, tensor in record.tensors.items()}
    payload = Payload(stored) if stored else None
    head = {
        "format": FORMAT_NAME,
        "format_version": FORMAT_VERSION,
        "tagwise_version": __version__,
        _DIGEST_KEY: _ZERO_DIGEST.decode(),
        "class": record.class_name,
        "parameters": parameters,
        "values": values,
        "payload": {"file": payload.name, "size": payload.size} if payload else None,
        "arrays": arrays,
        "tensors": tensors,
    }
    body = json.dumps(head, indent=2, ensure_ascii=False, allow_nan=False).removesuffix("\n}")
    # One name per line, after everything else: a person can read the head and search the names, however many.
    raw = f'{body},\n  "label_names": {_names_text(record.label_names)}\n}}\n'.encode()
    most = _most_manifest_bytes(payload.size if payload else 0)
    if len(raw) > most or count_items(raw) > MAX_ITEMS:
        raise InvalidInputError(
            f"The manifest would have {len(raw):,} bytes and {count_items(raw):,} lists, objects and numbers, more "
            f"than the allowed {most:,} and {MAX_ITEMS:,}; store long lists of numbers as arrays, and shorten label "
            "names."
        )
    # Before its own digest, the manifest holds no string of that length.
    return raw.replace(_ZERO_DIGEST, hashlib.sha256(raw).hexdigest().encode(), 1), payload


def _is_class_name(name: object) -> bool:
    return isinstance(name, str) and _CLASS_NAME.fullmatch(name) is not None


def _is_tensor_name(name: object) -> bool:
    """Printable, not too long, without ``/`` (it sets parts apart)."""
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME and "/" not in name and name.isprintable()


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


# ---------------------------------------------------------------------- the manifest, read from anyone


def read_manifest(folder: Path) -> bytes:
    """The bytes of a folder's manifest; raises ModelFormatError if there is none or it is not a plain file."""
    try:
        with open_regular(folder / MANIFEST_NAME) as stream:
            size = os.fstat(stream.fileno()).st_size
            most = _most_manifest_bytes(_tensor_bytes(folder) if size > FREE_MANIFEST_BYTES else 0)
            allowed = f"{most:,} are allowed, or as many as the tensors' file has, up to {MAX_MANIFEST_BYTES:,}"
            require(size <= most, f"manifest.json has {size:,} bytes; {allowed}.")
            # Not a larger number: read() allocates all that it is asked for.
            return stream.read(size)
    except FileNotFoundError as error:
        missing = "has no manifest.json: it is not a model, or a save was interrupted"
        raise ModelFormatError(f"The folder {missing if folder.is_dir() else 'does not exist'}.") from error
    except NotADirectoryError as error:
        raise ModelFormatError("The path is a file; a model is a folder.") from error
    except OSError as error:
        raise ModelFormatError(f"manifest.json cannot be read ({error.strerror}).") from error


def _most_manifest_bytes(tensor_bytes: int) -> int:
    return min(MAX_MANIFEST_BYTES, max(FREE_MANIFEST_BYTES, tensor_bytes))


def _tensor_bytes(folder: Path) -> int:
    """The size of the largest tensors' file of a folder: label names are few bytes beside the factors of labels."""
    sizes = [entry.stat(follow_symlinks=False).st_size for entry in os.scandir(folder) if _is_leftover(entry.name)]
    return max(sizes, default=0)


def parse_manifest(raw: bytes) -> dict[str, JSON]:
    """The fields of a manifest; checked, except for the entries of tensors and what parameters and values mean."""
    fields = parse_json(raw, MANIFEST_NAME)
    ours = isinstance(fields, dict) and fields.get("format") == FORMAT_NAME
    require(ours, f'manifest.json does not say "format": "{FORMAT_NAME}"; this is not a model of tagwise.')
    version, written_by = fields.get("format_version"), fields.get("tagwise_version")
    require(type(version) is int and version >= 1, "format_version must be a positive integer.")
    require(
        isinstance(written_by, str) and len(written_by) <= _MAX_VERSION_TEXT and written_by.isprintable(),
        f"tagwise_version must be printable text of at most {_MAX_VERSION_TEXT} characters.",
    )
    require(
        version <= FORMAT_VERSION,
        f"The model has format version {version} and was written by tagwise {written_by}; this tagwise "
        f"{__version__} reads versions up to {FORMAT_VERSION}. Upgrade tagwise to read it.",
    )
    require_keys(fields, _HEAD_KEYS + _MODEL_KEYS, "manifest.json")
    promised_digest = require_digest(fields[_DIGEST_KEY], _DIGEST_KEY)
    zeroed = raw.replace(promised_digest.encode(), _ZERO_DIGEST, 1)
    require(
        zeroed != raw and hashlib.sha256(zeroed).hexdigest() == promised_digest,
        f"manifest.json does not have the sha256 that it states ({_DIGEST_KEY}); it was damaged or edited.",
    )
    class_name, names, payload = fields["class"], fields["label_names"], fields["payload"]
    require(
        _is_class_name(class_name), "class must be the name of a class (letters, digits, underscores; at most 100)."
    )
    for key in ("parameters", "values", "tensors"):
        require(isinstance(fields[key], dict), f"{key} must be an object.")
    require(isinstance(fields["arrays"], list), "arrays must be a list.")
    require(
        all(_is_tensor_name(name) for name in fields["tensors"]),
        "tensors has a name that is empty, too long, unprintable or contains '/'.",
    )
    if payload is not None:
        require_keys(payload, ("file", "size"), "payload")
        name, size = payload["file"], payload["size"]
        plain = isinstance(name, str) and _PAYLOAD_NAME.fullmatch(name) is not None
        require(plain, "payload file must be a plain name: tensors-, 32 digits 0-9a-f, .safetensors.")
        require(type(size) is int and 0 <= size < 2**63, "payload size must be an integer from 0 to 2^63 - 1.")
    require(
        (payload is None) == (not fields["arrays"] and not fields["tensors"]),
        "payload must name a file if there are tensors or arrays, and be null if there are none.",
    )
    require(
        names is None or (isinstance(names, list) and all(isinstance(name, str) and is_text(name) for name in names)),
        "label_names must be null or a list of strings of Unicode text.",
    )
    return dict(fields)


def _record(folder: Path, fields: dict[str, JSON], mapped: bool) -> ModelRecord:
    """The model of a checked manifest, with the tensors of its folder."""
    entries = {f"arrays/{i}": (entry, f"arrays[{i}]") for i, entry in enumerate(fields["arrays"])}
    entries |= {f"tensors/{name}": (entry, f"tensor {name!r}") for name, entry in fields["tensors"].items()}
    expected = {
        stored: what
        for name, (entry, where) in entries.items()
        for stored, what in promised(entry, name, where).items()
    }
    payload = fields["payload"]
    arrays = read_payload(folder / payload["file"], payload["size"], expected, mapped=mapped) if payload else {}
    loaded = {name: restored(entry, name, arrays) for name, (entry, _) in entries.items()}
    inline = [loaded[f"arrays/{i}"] for i in range(len(fields["arrays"]))]
    used: set[int] = set()
    # Their own braces are the first container, as in _encode.
    parameters = _decode(fields["parameters"], "parameters", inline, used)
    values = _decode(fields["values"], "values", inline, used)
    plain = isinstance(parameters, dict) and isinstance(values, dict)
    require(plain, "parameters and values must be plain objects.")
    require(len(used) == len(inline), "arrays holds an array that neither parameters nor values refer to.")
    tensors = {name: loaded[f"tensors/{name}"] for name in fields["tensors"]}
    return ModelRecord(fields["class"], parameters, tensors, values, fields["label_names"])


# ---------------------------------------------------------------------- parameters and values as JSON


def _encode(value: Any, where: str, arrays: list[Tensor], depth: int = 0) -> JSON:
    """A value as strict JSON, which refers to arrays and CSR matrices by their position in ``arrays``."""
    if depth > MAX_DEPTH:
        raise InvalidInputError(f"{where} is nested more than {MAX_DEPTH} deep; a model folder cannot hold it.")
    if value is None or isinstance(value, (bool, np.bool_)):
        return None if value is None else bool(value)
    if isinstance(value, (int, np.integer)):
        if not _MIN_INTEGER <= value <= _MAX_INTEGER:
            raise InvalidInputError(f"{where} is an integer of more than 64 bits; a model folder cannot hold it.")
        return int(value)
    if isinstance(value, (float, np.float16, np.float32)):
        number = float(value)
        return number if math.isfinite(number) else {"$float": repr(number)}
    if isinstance(value, str):
        if not is_text(value):
            raise InvalidInputError(f"{where} is not Unicode text (it has a lone surrogate): {value!r}.")
        return str.__str__(value)
    if isinstance(value, np.ndarray) or sp.issparse(value):
        arrays.append(value)
        return {"$array": len(arrays) - 1}
    if isinstance(value, (list, tuple)):
        items = [_encode(item, f"{where}[{i}]", arrays, depth + 1) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, dict):
        return {_key(key, where): _encode(item, f"{where}[{key!r}]", arrays, depth + 1) for key, item in value.items()}
    raise InvalidTypeError(
        f"{where} is of type {type(value).__name__}, which a model folder cannot hold; use None, numbers, "
        "strings, lists, tuples, dicts or numpy arrays."
    )


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise InvalidTypeError(f"{where} has the key {key!r}; keys must be strings.")
    if key.startswith("$") or not is_text(key):
        raise InvalidInputError(f"{where} has the key {key!r}; keys must be Unicode text that does not start with $.")
    return str.__str__(key)


def _decode(value: JSON, where: str, arrays: list[Tensor], used: set[int], depth: int = 0) -> Any:
    """The inverse of :func:`_encode`, for JSON that may come from anyone.

    ``used`` receives the positions of ``arrays`` referred to; a second reference to one is refused, as two names must
    not share memory.
    """
    require(depth <= MAX_DEPTH, f"{where} is nested more than {MAX_DEPTH} deep.")
    if isinstance(value, str):
        require(is_text(value), f"{where} is not Unicode text (it has a lone surrogate).")
    if isinstance(value, int):
        require(_MIN_INTEGER <= value <= _MAX_INTEGER, f"{where} is an integer of more than 64 bits.")
    if isinstance(value, list):
        return [_decode(item, f"{where}[{i}]", arrays, used, depth + 1) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if any(key.startswith("$") for key in value):
        return _decode_tagged(value, where, arrays, used, depth)
    for key in value:
        require(is_text(key), f"{where} has a key that is not Unicode text (it has a lone surrogate).")
    return {key: _decode(item, f"{where}[{key!r}]", arrays, used, depth + 1) for key, item in value.items()}


def _decode_tagged(value: dict[str, JSON], where: str, arrays: list[Tensor], used: set[int], depth: int) -> Any:
    tag, content = next(iter(value.items()))
    if len(value) == 1:
        if tag == "$float" and isinstance(content, str) and content in _NON_FINITE:
            return _NON_FINITE[content]
        if tag == "$tuple" and isinstance(content, list):
            return tuple(_decode(content, where, arrays, used, depth))
        if tag == "$array" and type(content) is int and 0 <= content < len(arrays):
            require(content not in used, f"{where} refers to array {content}, which another value has already.")
            used.add(content)
            return arrays[content]
    raise ModelFormatError(f"{where} has a key that starts with $ but is not a valid $float, $tuple or $array.")
