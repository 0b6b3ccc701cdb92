"""A hint that entries of an array are needed soon, so that memory is read while something else is computed.

Lists of a sparse matrix are short and read in no order that hardware could foresee: the first lines of each are waited
for, unless they were asked for before. The hint is in :mod:`tagwise.kernels.llvm_gather`; where numba's internals have
changed so that it cannot be imported or compiled, :func:`fetch` does nothing. Results never depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tagwise.kernels.compiled import compiled

__all__ = ["fetch", "fetch_nothing"]


@compiled()
def fetch_nothing(array, begin, end):
    """What :func:`fetch` is where LLVM's hint cannot be built."""


def choose(candidate: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """What ``candidate()`` gives if it compiles, else :func:`fetch_nothing`."""
    try:
        found = candidate()
        found(np.zeros(1, dtype=np.float32), 0, 1)
    except Exception:  # numba's internals may fail in any way
        return fetch_nothing
    return found


def _by_llvm() -> Callable[..., Any]:
    from tagwise.kernels.llvm_gather import fetch  # imports what may not be there in another numba

    return fetch


fetch = choose(_by_llvm)
"""``fetch(array, begin, end)``: entries ``begin`` to ``end`` of a contiguous array are needed soon, or the first 16
lines of them. Positions beyond the array do no harm."""
