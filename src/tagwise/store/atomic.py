"""Atomic file replacement: at any time, even after a crash, a file holds the old content or the new one.

The new content goes to a temporary sibling (same folder, so that the rename stays within one file system), is
flushed to the device, and takes the name by one ``rename``, which POSIX makes atomic. The folder is flushed
last: without that, the rename itself may be lost with the power.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tagwise.exceptions import InvalidInputError

try:
    from fcntl import LOCK_EX, LOCK_UN, flock
except ImportError:  # Windows has no such locks: there, only one process may write
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

__all__ = ["HAS_LOCKS", "atomic_stream", "atomic_write", "check_target", "flush_folder", "locked"]

_PAUSES = (0.01, 0.03, 0.1, 0.3, 0.6)


def check_target(path: str | os.PathLike[str], name: str, *endings: str) -> None:
    """Refuse a file that could not be written, before any work; ``name`` is that of the argument."""
    target = Path(path)
    if endings and target.suffix.lower() not in endings:
        raise InvalidInputError(f"{name}: {str(path)!r} must end in {' or '.join(endings)}.")
    if target.is_dir():
        raise InvalidInputError(f"{name}: {str(path)!r} is a folder; name a file.")
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
        raise InvalidInputError(
            f"{name}: the folder {str(target.parent)!r} does not exist or may not be written to; name another."
        )


def atomic_write(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Replace the content of a file, or make it, in one step; ``write`` gets a stream for the whole new content.

    Raises
    ------
    OSError
        The content could not be written, flushed or renamed; what ``write`` raises passes through too. The file is as
        it was, unless only the last step failed (flushing the folder: the new content then has the name, but may not
        survive a power failure). The temporary sibling is removed; only a killed process leaves it behind.

    Notes
    -----
    A symbolic link at ``path`` is replaced by the file, not followed. Permissions are those of a new file.
    """
    with atomic_stream(path) as stream:
        write(stream)


@contextmanager
def atomic_stream(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """:func:`atomic_write` as a context: the file takes its name when the block ends without an exception."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        _take_name(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    flush_folder(target.parent)


def _take_name(temporary: Path, target: Path) -> None:
    """Rename; on Windows, which refuses while another process reads the target, retry for up to a second."""
    for pause in _PAUSES if os.name == "nt" else ():
        try:
            os.replace(temporary, target)
        except PermissionError:
            time.sleep(pause)
        else:
            return
    os.replace(temporary, target)


def flush_folder(folder: str | os.PathLike[str]) -> None:
    """Make the creations, renames and deletions in a folder survive a power failure."""
    if os.name == "nt":  # Windows cannot open folders, and flushes its directory entries itself.
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such operation; there is nothing more that could be done there.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


@contextmanager
def locked(file: BinaryIO | Path) -> Iterator[None]:
    """Keep other processes from an open file, or from a folder; the system drops the lock when a process dies.

    Without locks in the system or file system, nothing is prevented.
    """
    if not HAS_LOCKS:
        yield
        return
    descriptor = os.open(file, os.O_RDONLY) if isinstance(file, Path) else file.fileno()
    try:
        with suppress(OSError):
            flock(descriptor, LOCK_EX)
        yield
    finally:
        with suppress(OSError):
            flock(descriptor, LOCK_UN)
        if isinstance(file, Path):
            os.close(descriptor)
