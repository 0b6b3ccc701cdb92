"""Inner functions of the kernels, called from tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def from_python(inner: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls an inner one, as only compiled code may."""

    @numba.njit
    def call(*arguments: Any) -> Any:
        return inner(*arguments)

    return call
