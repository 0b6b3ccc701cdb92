"""Sums of large arrays without temporary copies of them."""

from __future__ import annotations

import numpy as np

from tagwise.kernels.vectors import add_multiple, scale_and_add

__all__ = ["add_scaled", "scale_then_add"]

# Numbers added at a time: a temporary of a quarter of a megabyte at the most, which stays in the cache.
_BLOCK = 1 << 15


def add_scaled(target: np.ndarray, factor: np.ndarray | np.floating, source: np.ndarray, *, n_threads: int = 1) -> None:
    """``target += factor * source`` in place, for a number or for factors of a row, a column or everything."""
    if target.size == 0:
        return
    if np.size(factor) == 1 and _alike(target, source):
        add_multiple(target, np.asarray(factor).item(), source, n_threads=n_threads)
        return
    rows = max(1, _BLOCK * len(target) // target.size)
    by_row = factor.ndim == target.ndim and factor.shape[0] > 1
    for start in range(0, len(target), rows):
        part = slice(start, start + rows)
        target[part] += (factor[part] if isinstance(factor, np.ndarray) and by_row else factor) * source[part]


def scale_then_add(target: np.ndarray, factor: np.ndarray, source: np.ndarray, *, n_threads: int = 1) -> None:
    """``target = factor * target + source`` in place, factors as in :func:`add_scaled`."""
    if factor.size == 1 and _alike(target, source):
        scale_and_add(target, factor.item(), source, n_threads=n_threads)
        return
    target *= factor
    target += source


def _alike(target: np.ndarray, source: np.ndarray) -> bool:
    """Whether the kernels take them; numpy repeats and converts what they do not."""
    return target.flags.c_contiguous and (target.shape, target.dtype) == (source.shape, source.dtype)
