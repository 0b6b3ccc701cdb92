"""Sums of gathered rows, Σ value·row: the inner loop of every sparse product.

``sum_rows`` is the version of :mod:`tagwise.kernels.llvm_gather`, which takes half as long for up to 128 columns. That
file spells out vector instructions through numba's internals; where these have changed so that it cannot be imported,
compiled or trusted, ``sum_rows`` is the plain loop below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import config

from tagwise.kernels.compiled import compiled

__all__ = ["sum_rows", "sum_rows_plain"]


@compiled(fastmath={"contract"})
def sum_rows_plain(indices, data, dense, entries, columns, add, target, shift):
    """``target[j + shift]`` = Σ ``data[p]``·``dense[indices[p], j]`` for columns first ≤ j < stop, or += if ``add``.

    ``entries`` = (begin, end, limit): begin ≤ p < end are summed, and those from end to limit are likely to be summed
    next; ``columns`` = (first, stop). ``dense`` (rows×columns) and ``target`` (of any shape, addressed as if it were
    flat: a row of it would be counted as a reference to it, which threads wait for) are C-ordered and of one type.
    Terms are added in the order of p in that type, so that a column's sum has the same bits wherever it stands.
    """
    begin, end, _ = entries
    first, stop = columns
    sums = target.reshape(-1)
    if not add:
        sums[first + shift : stop + shift] = 0
    for position in range(begin, end):
        row, value = dense[indices[position]], dense.dtype.type(data[position])
        for column in range(first, stop):
            sums[column + shift] += value * row[column]


def choose(candidate: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """What ``candidate()`` gives if it compiles and sums two rows of 0, …, 10 rightly, else :func:`sum_rows_plain`.

    Also the latter where numba is to check bounds, as it cannot for intrinsics.
    """
    if getattr(config, "BOUNDSCHECK", None):
        return sum_rows_plain
    dense = np.arange(22, dtype=np.float32).reshape(2, 11)
    indices, values, sums = np.arange(2, dtype=np.int32), np.array([1, 2], dtype=np.float32), np.empty_like(dense[0])
    try:
        found = candidate()
        found(indices, values, dense, (0, 2, 2), (0, 11), 0, sums, 0)
    except Exception:  # numba's internals may fail in any way
        return sum_rows_plain
    return found if (sums == values @ dense).all() else sum_rows_plain


def _vectorised() -> Callable[..., Any]:
    from tagwise.kernels.llvm_gather import sum_rows  # imports what may not be there in another numba

    return sum_rows


sum_rows = choose(_vectorised)
