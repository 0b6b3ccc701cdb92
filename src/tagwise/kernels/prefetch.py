"""A hint that entries of an array are needed soon, so that memory is read while something else is computed.

Lists of a sparse matrix are short and read in no order that hardware could foresee: the first lines of each are waited
for, unless they were asked for before. It is LLVM's ``prefetch``, through numba's ``intrinsic``; where the internals of
numba have changed so that it cannot be imported or compiled, :func:`fetch` does nothing. Results never depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tagwise.kernels.compiled import compiled

__all__ = ["fetch", "fetch_nothing"]

_CACHE_LINE_BYTES = 64
# Hardware notices by then that lines are read one after the other.
_MOST_LINES = 16


@compiled()
def fetch_nothing(array, begin, end):
    """In the place of :func:`fetch`."""


def choose(candidate: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """What ``candidate()`` gives if it compiles, else :func:`fetch_nothing`."""
    try:
        found = candidate()
        found(np.zeros(1, dtype=np.float32), 0, 1)
    except Exception:  # numba's internals may fail in any way
        return fetch_nothing
    return found


def _by_llvm() -> Callable[..., Any]:
    from numba import types
    from numba.extending import intrinsic

    from tagwise.kernels.llvm_gather import fetch_lines

    def fetch_line_in_ir(typing, array, position):
        def generate(context, builder, signature, arguments):
            values = context.make_array(signature.args[0])(context, builder, arguments[0])
            fetch_lines(builder, builder.gep(values.data, [arguments[1]]), 1)
            return context.get_dummy_value()

        return types.void(array, types.int64), generate

    fetch_line: Callable[..., None] = intrinsic(fetch_line_in_ir)

    @compiled()
    def fetch(array, begin, end):
        step = _CACHE_LINE_BYTES // array.itemsize
        for position in range(begin, min(end, begin + _MOST_LINES * step), step):
            fetch_line(array, position)

    return fetch


fetch = choose(_by_llvm)
"""``fetch(array, begin, end)``: entries ``begin`` to ``end`` of a contiguous array are needed soon, or the first 16
lines of them. Positions beyond the array do no harm."""
