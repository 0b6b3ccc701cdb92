"""The decorator of every compiled function: machine code without the GIL, cached on disk where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

__all__ = ["compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])


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
