"""The decorator of every compiled function: machine code without the GIL, cached on disk where that is possible.

Short inner loops over entries of a sparse matrix use unsigned indices (``numpy.uintp``): numba checks whether a signed
one counts from the end, which costs a third to two thirds of such a loop's time.

The first compilation in a process is logged to ``tagwise`` (level INFO): it takes a while, and only once where the
result can be cached.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit
from numba.core import event

__all__ = ["compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])


class _FirstCompilation(event.Listener):
    """Logs once that kernels are compiled; functions found in the cache cause no event."""

    said = False

    def on_start(self, event: Any) -> None:
        if not self.said:
            self.said = True
            logging.getLogger("tagwise").info(
                "Compiling for this machine: some seconds, once; the result is kept for later runs."
            )

    def on_end(self, event: Any) -> None:
        """Nothing to say."""


event.register("numba:compile", _FirstCompilation())


def compiled(**options: Any) -> Callable[[Function], Function]:
    """``numba.njit`` with ``nogil`` and ``cache``, plus ``options``.

    Where neither the package's folder nor the user's cache folder can be written, numba refuses to cache; the function
    is then compiled anew in every process, which is slow but works (``NUMBA_CACHE_DIR`` names another folder).
    """

    def decorate(function: Function) -> Function:
        try:
            return njit(nogil=True, cache=True, **options)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            return njit(nogil=True, **options)(function)

    return decorate
