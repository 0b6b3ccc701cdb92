"""Save a :class:`ModelRecord` as a folder, and read one back; ``docs/model-format.md`` ("Saving") explains the steps.

POSIX cannot replace a non-empty folder by a rename, so the switch is the rename of one file, ``manifest.json``: the
tensors are written first, under a name that their content determines, and the old ones are removed last. A folder is
complete if and only if it has a manifest; files that no manifest names are removed by the next save. A reader takes no
lock: if a save removes the tensors under it, it starts again with the manifest that is there now.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path

from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError
from tagwise.persistence.atomic import atomic_write, final_name, flush_folder
from tagwise.persistence.manifest import (
    MANIFEST_START,
    MAX_MANIFEST_BYTES,
    PAYLOAD_NAME,
    Manifest,
    ModelRecord,
    decode_value,
    encode_value,
    is_class_name,
    is_tensor_name,
)
from tagwise.persistence.tensors import Payload, Spec, Tensor, from_parts, read_payload, to_parts

try:
    from fcntl import LOCK_EX, flock
except ImportError:  # Windows has no such locks: there, concurrent saves into one folder are up to the caller
    _HAS_LOCKS = False
else:
    _HAS_LOCKS = True

__all__ = ["MANIFEST_NAME", "as_path", "read_manifest", "read_model", "remove_model", "write_model"]

MANIFEST_NAME = "manifest.json"
_START_BYTES = 4096
# Each attempt after the first needs one more save to finish within the same few milliseconds.
_READ_ATTEMPTS = 8


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
    manifest, payload = _prepare(record)
    content = manifest.to_bytes()
    made: list[Path] = []
    try:
        if not os.path.lexists(folder):
            _make_folder(folder, made)
        elif not folder.is_dir():
            raise InvalidInputError(
                f"path must be a folder for the model, but {folder} is a file; choose another path."
            )
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
        code = error.errno or errno.EIO
        raise OSError(
            code,
            f"The model could not be saved: {error.strerror or error}. A folder that held a model before "
            "the save still holds a whole one",
            str(folder),
        ) from error


def read_model(path: str | os.PathLike[str]) -> ModelRecord:
    """Read a model folder, which may come from anyone: nothing in it is run, or trusted unchecked.

    Parameters
    ----------
    path : path
        A folder written by :func:`write_model`.

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
            manifest = Manifest.from_bytes(read_manifest(folder))
            with suppress(FileNotFoundError):
                return _load(folder, manifest)
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


def _prepare(record: ModelRecord) -> tuple[Manifest, Payload | None]:
    """Check the whole record and lay it out without touching the disk."""
    if not is_class_name(record.class_name):
        raise InvalidInputError(f"class_name must be the name of a class in ASCII; found {record.class_name!r}.")
    for name in record.tensors:
        if not is_tensor_name(name):
            raise InvalidInputError(
                f"tensors has the name {name!r}; names must be printable, at most 200 long, and without '/'."
            )
    inline: list[Tensor] = []
    parameters = encode_value(dict(record.parameters), "parameters", inline)
    values = encode_value(dict(record.values), "values", inline)
    parts, digests = {}, {}

    def lay_out(tensor: Tensor, prefix: str, where: str) -> Spec:
        spec, arrays = to_parts(tensor, where)
        for part, array in arrays.items():
            parts[_stored_name(prefix, part)] = array
            digests[_stored_name(prefix, part)] = spec.parts[part].sha256
        return spec

    arrays = [lay_out(tensor, f"arrays/{i}", "an array in the parameters or values") for i, tensor in enumerate(inline)]
    tensors = {
        name: lay_out(tensor, f"tensors/{name}", f"tensors[{name!r}]") for name, tensor in record.tensors.items()
    }
    payload = Payload(parts, digests) if parts else None
    where = (payload.name, payload.size) if payload else None
    names = None if record.label_names is None else list(record.label_names)
    return Manifest(record.class_name, parameters, values, where, arrays, tensors, names), payload


def _load(folder: Path, manifest: Manifest) -> ModelRecord:
    specs = {f"arrays/{i}": spec for i, spec in enumerate(manifest.arrays)}
    specs |= {f"tensors/{name}": spec for name, spec in manifest.tensors.items()}
    expected = {_stored_name(name, part): what for name, spec in specs.items() for part, what in spec.parts.items()}
    parts = read_payload(folder / manifest.payload[0], manifest.payload[1], expected) if manifest.payload else {}
    loaded = {
        name: from_parts(spec, {part: parts.pop(_stored_name(name, part)) for part in spec.parts}, name)
        for name, spec in specs.items()
    }
    inline = [loaded[f"arrays/{i}"] for i in range(len(manifest.arrays))]
    used: set[int] = set()
    # Their own braces are the first container, as in encode_value.
    parameters = decode_value(manifest.parameters, "parameters", inline, used)
    values = decode_value(manifest.values, "values", inline, used)
    if not isinstance(parameters, dict) or not isinstance(values, dict):
        raise ModelFormatError("parameters and values must be plain objects.")
    if len(used) != len(inline):
        raise ModelFormatError("arrays holds an array that neither parameters nor values refer to.")
    tensors = {name: loaded[f"tensors/{name}"] for name in manifest.tensors}
    return ModelRecord(manifest.class_name, parameters, tensors, values, manifest.label_names)


def _stored_name(prefix: str, part: str) -> str:
    return f"{prefix}/{part}" if part else prefix


def read_manifest(folder: Path) -> bytes:
    """The bytes of a folder's manifest; raises ModelFormatError if there is none or it is not a plain file."""
    # Neither a link (O_NOFOLLOW) nor a pipe (O_NONBLOCK) may lead the reader elsewhere or make it wait.
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
    try:
        descriptor = os.open(folder / MANIFEST_NAME, flags)
        with open(descriptor, "rb") as stream:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ModelFormatError("manifest.json must be a regular file.")
            if status.st_size > MAX_MANIFEST_BYTES:
                raise ModelFormatError(
                    f"manifest.json has {status.st_size:,} bytes; {MAX_MANIFEST_BYTES:,} are allowed."
                )
            # Not a larger number: read() allocates all that it is asked for.
            return stream.read(status.st_size)
    except FileNotFoundError as error:
        missing = "has no manifest.json: it is not a model, or a save was interrupted"
        raise ModelFormatError(f"The folder {missing if folder.is_dir() else 'does not exist'}.") from error
    except NotADirectoryError as error:
        raise ModelFormatError("The path is a file; a model is a folder.") from error
    except OSError as error:
        link = "; links are refused" if error.errno == errno.ELOOP else ""
        raise ModelFormatError(f"manifest.json cannot be read ({error.strerror}){link}.") from error


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
    """Keep other saves out. The lock is on the folder itself; the system drops it when a process dies."""
    if not _HAS_LOCKS:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # A file system without locks must not keep a model from being saved.
        with suppress(OSError):
            flock(descriptor, LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _refuse_foreign(folder: Path, overwrite: bool) -> None:
    """Refuse a folder whose content is not ours to replace."""
    names = os.listdir(folder)
    if MANIFEST_NAME in names:
        manifest = folder / MANIFEST_NAME
        start = b""
        if stat.S_ISREG(os.lstat(manifest).st_mode):
            with open(manifest, "rb") as stream:
                start = stream.read(_START_BYTES)
        if not MANIFEST_START.match(start):
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
    return PAYLOAD_NAME.fullmatch(final) is not None or (final == MANIFEST_NAME and final != name)


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
