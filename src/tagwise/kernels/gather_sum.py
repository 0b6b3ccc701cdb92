"""Sums of gathered rows, Σ value·row: the inner loop of every sparse product; and hints of what is read next.

``sum_rows`` is the version of :mod:`tagwise.kernels.llvm_gather`, which takes half as long for up to 128 columns, and
``fetch`` its hint. That file spells out instructions through numba's internals; where these have changed so that it
cannot be imported, compiled or trusted, ``sum_rows`` is the plain loop below and ``fetch`` does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import config

from tagwise.kernels.compiled import compiled

__all__ = ["fetch", "sum_rows", "sum_rows_plain"]


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


@compiled()
def fetch_nothing(names, values, begin, end):
    """No hint."""


def choose(name: str, is_right: Callable[[Callable[..., Any]], bool], plain: Callable[..., Any]) -> Callable[..., Any]:
    """A function of :mod:`tagwise.kernels.llvm_gather` if it can be imported and compiled and is right, else ``plain``.

    Also the latter where numba is to check bounds, as it cannot for intrinsics.
    """
    if getattr(config, "BOUNDSCHECK", None):
        return plain
    try:
        import tagwise.kernels.llvm_gather as vectorised  # which another numba may refuse

        found: Callable[..., Any] = getattr(vectorised, name)
        return found if is_right(found) else plain
    except Exception:  # numba's internals may fail in any way
        return plain


def sums_rightly(candidate: Callable[..., Any]) -> bool:
    """Whether two rows of 0, …, 10 are summed as numpy sums them."""
    dense = np.arange(22, dtype=np.float32).reshape(2, 11)
    indices, values, sums = np.arange(2, dtype=np.int32), np.array([1, 2], dtype=np.float32), np.empty_like(dense[0])
    candidate(indices, values, dense, (0, 2, 2), (0, 11), 0, sums, 0)
    return bool((sums == values @ dense).all())


def _compiles(candidate: Callable[..., Any]) -> bool:
    candidate(np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.float32), np.int32(0), np.int32(1))
    return True


sum_rows = choose("sum_rows", sums_rightly, sum_rows_plain)
fetch = choose("fetch", _compiles, fetch_nothing)
"""``fetch(names, values, begin, end)``: entries ``begin`` to ``end`` of two contiguous arrays are needed soon.

Lists of a sparse matrix are short and read in no order that hardware could foresee: the first lines of each are waited
for, unless they were asked for before. At most 16 lines are fetched; positions beyond the array do no harm, and results
never depend on the hint.
"""
