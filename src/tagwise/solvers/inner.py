"""Inner products that tell a solver how many problems an array holds.

Solvers of tagwise run many independent problems of equal size at once. The array of variables is the same either way;
what differs is over which entries a scalar product runs, and so how many step lengths, residuals and trust regions
there are. Each function returns its sums with the shape kept, so that they broadcast against the array of variables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

__all__ = ["Inner", "per_column", "per_row", "whole"]

Inner: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]

# Numbers converted to float64 at a time: sums are exact enough for step lengths without a float64 copy of the array.
_BLOCK = 1 << 14


def whole(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """One problem: the sum over all entries, shape (1, …, 1)."""
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    total = sum(
        float(np.dot(flat_a[i : i + _BLOCK].astype(np.float64), flat_b[i : i + _BLOCK].astype(np.float64)))
        for i in range(0, len(flat_a), _BLOCK)
    )
    return np.full((1,) * a.ndim, total)


def per_row(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A problem a row: (m, k) and (m, k) to (m, 1)."""
    return np.einsum("ij,ij->i", a, b, dtype=np.float64)[:, None]


def per_column(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A problem a column: (d, p) and (d, p) to (1, p)."""
    return np.einsum("ij,ij->j", a, b, dtype=np.float64)[None, :]
