"""Decorator of every compiled function: machine code without the GIL, cached on disk where that is possible.

Short inner loops over entries of a sparse matrix use unsigned indices (``numpy.uintp``): numba checks whether a signed
one counts from the end, which costs a third to two thirds of such a loop's time.

numba types and compiles its own functions (``min``, ``np.empty``, operators) anew for each set of options, so there are
few: none, ``contract``, and ``FAST`` where sums may be added in any one order and numbers are never NaN.

Functions with ``fastmath`` multiply instead of raising to a power: numba compiles ``x**2`` once per process, with the
flags of whichever function needs it first, so that the rounding of all others would depend on what came before.

The first compilation in a process is logged to ``tagwise`` (level INFO): it takes a while, and only once where the
result can be cached. Between two passes of the compiler an interrupt may end it.

The cache is ours because numba's has an index of numbered files per function: of two processes that compile two
signatures at once, one finds the other's machine code under its number, and whatever is wrong with a file, or with
writing one, stops the call. Here each signature has one file, replaced as a whole, with a digest and the sources that
it was compiled from; a fault of the cache costs no more than the time to compile.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import numba
from numba import njit
from numba.core import caching, config, event
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.serialize import dumps, loads
from numba.misc.appdirs import AppDirs

from tagwise._version import __version__
from tagwise.exceptions import warn
from tagwise.interrupts import deferred_interrupts, raise_if_interrupted

__all__ = ["FAST", "compiled", "is_compiling", "n_compiled"]

FAST = {"contract", "nnan", "nsz", "reassoc"}

# Of 8 bytes: a little more than half of a piece of 512 KB.
_STACK_SLOTS = 1 << 15

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(*, inner: bool = False, **options: Any) -> Callable[[Function], Function]:
    """``numba.njit`` with ``nogil`` and a cache, plus ``options``.

    An ``inner`` function is for compiled code alone: without the code that converts its arguments from Python, it takes
    half the time to compile.

    The cache is in the folder of the function's file or, where that cannot be written, in the user's cache folder;
    ``NUMBA_CACHE_DIR`` names another one. Where none can be written, a warning says so once, and the function is
    compiled anew in every process.
    """
    options = {"no_cfunc_wrapper": True, "no_cpython_wrapper": inner, **options}

    def decorate(function: Function) -> Function:
        dispatcher = njit(nogil=True, **options)(function)
        if hasattr(dispatcher, "_cache"):  # it has none with NUMBA_DISABLE_JIT, or if a later numba knows no such thing
            dispatcher._cache = _Cache(function)
            dispatcher._compile_for_args = _with_room(dispatcher._compile_for_args)
            if inner:  # there is no code to enter from Python: an error, not a crash
                dispatcher._insert = lambda *_, **__: None
                dispatcher._compile_for_args = _refuse
        return dispatcher

    return decorate


def _with_room(compile_for: Callable[..., Any]) -> Callable[..., Any]:
    """The same function on a piece of the interpreter's stack that all the calls of the compiler fit into.

    Python takes its stack in pieces of 16 KB, and gives each back as soon as the last call in it returns. A loop whose
    calls begin a piece pays for two system calls each time: numba's lookups of types then took several times as long.
    A call that asks for half of a larger piece has the other half for what it calls.
    """

    def compile_with_room(*arguments: Any, **options: Any) -> Any:
        return compile_for(*arguments, **options)

    compile_with_room.__code__ = compile_with_room.__code__.replace(co_stacksize=_STACK_SLOTS)
    return compile_with_room


def _refuse(*_: Any, **__: Any) -> Any:
    raise TypeError("An inner function can be called from compiled code only.")


# ---------------------------------------------------------------------- what happens while numba compiles


class _Compilation(event.Listener):
    """Logs once that kernels are compiled (what is found in the cache causes no event), and lets interrupts through.

    Meanwhile the garbage collector rests: it would look through the compiler's many objects again and again. Functions
    that a function calls are compiled within its compilation, and other threads wait for the compiler's lock.
    """

    said = False
    count = depth = 0
    collects = False

    def on_start(self, event: Any) -> None:
        if event.kind == "numba:compile":
            if self.depth == 0:
                self.collects = gc.isenabled()
                gc.disable()
            self.depth += 1
            self.count += 1
        raise_if_interrupted()  # the end of what began is still an event
        if not self.said:
            self.said = True
            logging.getLogger("tagwise").info(
                "Compiling for this machine, once for each part of tagwise: up to a minute in all; `tagwise warmup` "
                "does it beforehand."
            )

    def on_end(self, event: Any) -> None:
        if event.kind == "numba:compile":
            self.depth -= 1
            if self.depth == 0 and self.collects:
                gc.enable()


def is_compiling() -> bool:
    """Whether a function is being compiled now."""
    return _compilation.depth > 0


def n_compiled() -> int:
    """Number of functions that this process has compiled so far; those that it found in the cache do not count."""
    return _compilation.count


class _CompilerLock(event.Listener):
    """Holds back interrupts while numba holds, or waits for, the lock of its compiler.

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

_DIGEST_BYTES = sha256().digest_size


class _Cache(caching.NullCache):
    """The compiled signatures of one function on disk."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._file, self._name = function.__code__.co_filename, f"{function.__module__}.{function.__qualname__}"
        # Now, not when it is compiled: the file of a long-running process may have been replaced by then.
        self._sources = _sources(self._file)

    @property
    def cache_path(self) -> Any:
        """The folder, or None."""
        return _folder(self._file, getattr(config, "CACHE_DIR", ""))

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The code of a signature; None where there is none, or none that can be trusted."""
        if self.cache_path is None:
            return None
        target_context.refresh()
        path, origin = self._entry(signature, target_context.codegen())
        try:
            content = path.read_bytes()
            if sha256(content[_DIGEST_BYTES:]).digest() != content[:_DIGEST_BYTES]:
                raise EOFError("a file is damaged")
            found, payload = loads(content[_DIGEST_BYTES:])
            return CompileResult._rebuild(target_context, *loads(payload)) if found == origin else None
        except FileNotFoundError:
            return None
        except Exception as error:  # a damaged file may cause any
            _warn_once("be read", self.cache_path, str(error) or type(error).__name__)
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep what was compiled, if that is possible."""
        if self.cache_path is None:
            _warn_once("be kept", None, "no folder for it can be written; NUMBA_CACHE_DIR names another one")
            return
        path, origin = self._entry(signature, result.library.codegen)
        draft = path.with_name(f"{path.name}.{uuid4().hex}")
        try:
            body = dumps((origin, dumps(result._reduce())))
            draft.write_bytes(sha256(body).digest() + body)
            draft.replace(path)
        except Exception as error:
            _warn_once("be kept", self.cache_path, str(error) or type(error).__name__)
        finally:
            draft.unlink(missing_ok=True)

    def _entry(self, signature: Any, codegen: Any) -> tuple[Path, tuple[Any, ...]]:
        """File of a signature on this machine, and what code in it must have been compiled from to be used."""
        origin = self._file, str(signature), codegen.magic_tuple()
        name = sha256(repr(origin).encode()).hexdigest()[:16]
        return self.cache_path / f"{self._name}.{name}.nbc", (*origin, *self._sources)


@cache
def _folder(file: str, chosen: str) -> Path | None:
    """The first folder for the cache that can be written; ``chosen`` is NUMBA_CACHE_DIR, or empty."""
    user = Path(AppDirs(appname="numba", appauthor=False).user_cache_dir)
    for folder in (Path(chosen),) if chosen else (Path(file).parent / "__pycache__", user):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            trial = folder / uuid4().hex
            trial.touch()
            trial.unlink()
        except OSError:
            continue
        return folder
    return None


_warned: set[str] = set()


def _warn_once(what: str, folder: Any, reason: str) -> None:
    if what not in _warned:
        _warned.add(what)
        where = "" if folder is None else f" in {folder}"
        warn(
            f"some compiled code{where} cannot {what} ({reason:.300}); it is compiled again, which takes some seconds."
        )


@cache
def _sources(file: str) -> tuple[str, ...]:
    """Versions, and digests of a file and of the files with compiled functions that it imports, one after the other.

    A function holds the machine code, and the constants, of those files too.
    """
    digests = {path: sha256(content).hexdigest() for path, content in _closure(Path(file), {})}
    bounds = str(getattr(config, "BOUNDSCHECK", None))
    return __version__, numba.__version__, bounds, *(digests[path] for path in sorted(digests))


def _closure(path: Path, seen: dict[Path, bytes]) -> Iterator[tuple[Path, bytes]]:
    try:
        seen[path] = path.read_bytes()
    except OSError:  # a package within an archive is replaced as a whole: the version says enough
        return
    yield path, seen[path]
    package = Path(__file__).parents[1]
    for name in re.findall(rb"^\s*(?:from|import) tagwise\.([\w.]+)", seen[path], re.MULTILINE):
        imported = package / (name.decode().replace(".", "/") + ".py")
        if imported not in seen and imported.is_file() and b"@compiled" in imported.read_bytes():
            yield from _closure(imported, seen)
