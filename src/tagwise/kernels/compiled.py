"""The decorator of every compiled function: machine code without the GIL, cached on disk where that is possible.

Short inner loops over entries of a sparse matrix use unsigned indices (``numpy.uintp``): numba checks whether a signed
one counts from the end, which costs a third to two thirds of such a loop's time.

Functions with ``fastmath`` multiply instead of raising to a power: numba compiles ``x**2`` once per process, with the
flags of whichever function needs it first, so that the rounding of all others would depend on what came before.

The first compilation in a process is logged to ``tagwise`` (level INFO): it takes a while, and only once where the
result can be cached. Between two passes of the compiler an interrupt may end it.

numba's own cache has an index of numbered files per function. Two processes that compile two signatures at once both
take the next number, and one finds the other's machine code under it; so does a process that comes between the writing
of the index and that of the code, or any later one if the writing was cut off there. And whatever is wrong with a file,
or with writing one, stops the call. Here each signature has one file, which is replaced as a whole and says what it was
compiled from, and a fault of the cache costs no more than the time to compile.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from numba import njit
from numba.core import caching, config, event
from numba.core.compiler_lock import global_compiler_lock
from numba.core.serialize import dumps, loads

from tagwise._version import __version__
from tagwise.exceptions import warn
from tagwise.interrupts import deferred_interrupts, raise_if_interrupted

__all__ = ["compiled", "n_compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[Function], Function]:
    """``numba.njit`` with ``nogil`` and a cache, plus ``options``.

    The cache is in the folder of the function's file or, where that cannot be written, in the user's cache folder;
    ``NUMBA_CACHE_DIR`` names another one. Where none can be written, a warning says so once, and the function is
    compiled anew in every process.
    """

    def decorate(function: Function) -> Function:
        dispatcher = njit(nogil=True, **options)(function)
        if hasattr(dispatcher, "_cache"):  # it has none with NUMBA_DISABLE_JIT, or if a later numba knows no such thing
            dispatcher._cache = _FunctionCache(function)
        return dispatcher

    return decorate


# ---------------------------------------------------------------------- what happens while numba compiles


class _Compilation(event.Listener):
    """Logs once that kernels are compiled (what is found in the cache causes no event), and lets interrupts through."""

    said = False
    count = 0

    def on_start(self, event: Any) -> None:
        raise_if_interrupted()
        self.count += event.kind == "numba:compile"
        if not self.said:
            self.said = True
            logging.getLogger("tagwise").info(
                "Compiling for this machine: some seconds, once for each part of tagwise; `tagwise warmup` does it "
                "beforehand."
            )

    def on_end(self, event: Any) -> None:
        """Nothing to say."""


def n_compiled() -> int:
    """How many functions this process has compiled so far, those that it found in the cache apart."""
    return _compilation.count


class _CompilerLock(event.Listener):
    """Holds interrupts back from before numba takes the lock of its compiler until after it is released.

    Compiled code is also loaded under this lock, and llvmlite takes its own within. Calls of models hold interrupts
    back anyhow, except those that are answered in microseconds.
    """

    def __init__(self) -> None:
        self._held = threading.local()

    def on_start(self, event: Any) -> None:
        held = deferred_interrupts()
        held.__enter__()
        self._held.__dict__.setdefault("stack", []).append(held)

    def on_end(self, event: Any) -> None:
        self._held.stack.pop().__exit__(None, None, None)


_compilation = _Compilation()
event.register("numba:compiler_lock", _CompilerLock())
event.register("numba:compile", _compilation)
event.register("numba:run_pass", _compilation)

if hasattr(os, "register_at_fork"):
    # A child that is forked while another thread compiles would wait forever for the lock that this thread holds.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )


# ---------------------------------------------------------------------- the cache


class _FunctionCache(caching.NullCache):
    """The compiled signatures of one function on disk: as numba's ``FunctionCache``, but it never fails a call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        # Now, not when it is compiled: the file of a long-running process may have been replaced by then.
        self._sources = _KERNELS, _digest(function.__code__.co_filename)

    @cached_property
    def _opened(self) -> caching.FunctionCache | None:
        """Not before the function is compiled: most processes use few of the functions."""
        try:
            opened = _OpenedCache(self._function)
        except RuntimeError:  # numba finds no folder that it may write
            return None
        opened._cache_file = _SignatureFiles(opened.cache_path, opened._impl.filename_base, self._sources)
        return opened

    @property
    def cache_path(self) -> Any:
        """The folder, or None."""
        return None if self._opened is None else self._opened.cache_path

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """What was compiled for a signature; None where there is nothing, or nothing that can be trusted."""
        if self._opened is None:
            return None
        try:
            return self._opened.load_overload(signature, target_context)
        except Exception as error:  # a damaged file may cause any
            _warn_once("be read", self.cache_path, str(error) or type(error).__name__)
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep what was compiled, if that is possible."""
        if self._opened is None:
            _warn_once("be kept", None, "no folder for it can be written; NUMBA_CACHE_DIR names another one")
            return
        try:
            self._opened.save_overload(signature, result)
        except Exception as error:
            _warn_once("be kept", self.cache_path, str(error) or type(error).__name__)


_warned: set[str] = set()


def _warn_once(what: str, folder: Any, reason: str) -> None:
    if what not in _warned:
        _warned.add(what)
        where = "" if folder is None else f" in {folder}"
        warn(
            f"some compiled code{where} cannot {what} ({reason:.300}); it is compiled again, which takes some seconds."
        )


@cache
def _digest(path: str) -> str:
    try:
        return sha256(Path(path).read_bytes()).hexdigest()
    except OSError:  # a package within an archive is replaced as a whole: the version says enough
        return ""


# A function holds the machine code of those that it calls, in other files too.
_KERNELS = [
    __version__,
    str(getattr(config, "BOUNDSCHECK", None)),
    *(_digest(str(path)) for path in sorted(Path(__file__).parent.glob("*.py"))),
]


class _SignatureFiles(caching.IndexDataCacheFile):
    """In the place of numba's index and numbered files: one file per signature, with a digest, its origin and code."""

    def load(self, key: Any) -> Any:
        """What :meth:`save` was given for this key, if it was compiled from the same sources."""
        try:
            content = Path(self._path(key)).read_bytes()
        except FileNotFoundError:
            return None
        digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if sha256(body).digest() != digest:
            raise EOFError("a file is damaged")
        origin, data = loads(body)
        return data if origin == self._origin(key) else None

    def save(self, key: Any, data: Any) -> None:
        """Write the file as a whole, in the place of an older one."""
        body = dumps((self._origin(key), data))
        with self._open_for_write(self._path(key)) as file:
            file.write(sha256(body).digest() + body)

    def _origin(self, key: Any) -> tuple[Any, ...]:
        return self._version, self._source_stamp, key

    def _path(self, key: Any) -> str:
        signature, machine, _ = key
        name = sha256(repr((signature, machine)).encode()).hexdigest()[:16]
        return os.path.join(self._cache_path, self._index_name.removesuffix(".nbi") + f".{name}.nbc")


_DIGEST_BYTES = sha256().digest_size


_LOCATORS: Any = caching.CacheImpl._locator_classes


class _LookingOnce:
    """Mixin of numba's classes that find a cache folder: asks once whether it can be written, not for each function."""

    _writable: ClassVar[set[str]] = set()

    def ensure_cache_path(self: Any) -> None:
        """Raise OSError where the folder cannot be written."""
        folder = self.get_cache_path()
        if folder not in self._writable:
            super().ensure_cache_path()  # type: ignore[misc]
            self._writable.add(folder)


class _CompileResults(caching.CompileResultCacheImpl):
    _locator_classes: Any = tuple(type(base.__name__, (_LookingOnce, base), {}) for base in _LOCATORS)


class _OpenedCache(caching.FunctionCache):
    _impl_class = _CompileResults
