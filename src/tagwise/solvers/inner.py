"""Inner products that tell a solver how many problems an array holds.

Solvers of tagwise run many independent problems of equal size at once. The array of variables is the same either way;
what differs is over which entries a scalar product runs, and so how many step lengths, residuals and trust regions
there are. Each function returns its sums with the shape kept, so that they broadcast against the array of variables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from tagwise.kernels.vectors import inner_product

__all__ = ["Inner", "per_column", "per_row", "whole"]

Inner: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]


def whole(a: np.ndarray, b: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
    """One problem: the sum over all entries, shape (1, …, 1)."""
    return np.full((1,) * a.ndim, inner_product(a, b, n_threads=n_threads))


def per_row(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A problem a row: (m, k) and (m, k) to (m, 1)."""
    return np.einsum("ij,ij->i", a, b, dtype=np.float64)[:, None]


def per_column(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A problem a column: (d, p) and (d, p) to (1, p)."""
    return np.einsum("ij,ij->j", a, b, dtype=np.float64)[None, :]
