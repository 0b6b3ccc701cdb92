"""What solvers do to arrays of variables between products: scalar products and sums, on threads.

C-ordered arrays are not copied. Arrays are taken as flat, in fixed chunks, so that no bit depends on the number of
threads. They are limited by memory: one thread alone would not reach its rate.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tagwise.kernels.compiled import compiled
from tagwise.parallel import even_chunks, run_chunks

__all__ = ["add_multiple", "inner_product", "scale_and_add"]

# Numbers that a thread takes at a time.
_CHUNK = 1 << 18


def inner_product(a: np.ndarray, b: np.ndarray, *, n_threads: int = 1) -> float:
    """⟨a, b⟩ of two arrays of one shape, summed in float64 without a float64 copy of either. Time O(size)."""
    if a.shape != b.shape:
        raise ValueError(f"arrays of one shape have an inner product; found {a.shape} and {b.shape}")
    flat_a, flat_b = np.ascontiguousarray(a).reshape(-1), np.ascontiguousarray(b).reshape(-1)
    chunks = even_chunks(len(flat_a), _CHUNK)

    def chunk(start: int, stop: int) -> float:
        return _inner_product(flat_a[start:stop], flat_b[start:stop])

    return sum(run_chunks(chunk, chunks, n_threads), 0.0)


def add_multiple(target: np.ndarray, factor: float | np.floating, source: np.ndarray, *, n_threads: int = 1) -> None:
    """``target += factor · source`` in place, for C-ordered arrays of one shape and type. Time O(size)."""
    _in_chunks(_add_multiple, target, factor, source, n_threads)


def scale_and_add(target: np.ndarray, factor: float | np.floating, source: np.ndarray, *, n_threads: int = 1) -> None:
    """``target = factor · target + source`` in place, for C-ordered arrays of one shape and type. Time O(size)."""
    _in_chunks(_scale_and_add, target, factor, source, n_threads)


def _in_chunks(
    kernel: Callable[..., None], target: np.ndarray, factor: float | np.floating, source: np.ndarray, n_threads: int
) -> None:
    if not target.flags.c_contiguous:
        raise ValueError("target must be C-ordered: it is changed in place")
    if target.shape != source.shape or target.dtype != source.dtype:
        raise ValueError(
            f"target and source must have one shape and type; found {target.shape}, {target.dtype} and {source.shape}, "
            f"{source.dtype}"
        )
    flat, flat_source, number = target.reshape(-1), source.reshape(-1), target.dtype.type(factor)

    def chunk(start: int, stop: int) -> None:
        kernel(flat[start:stop], number, flat_source[start:stop])

    run_chunks(chunk, even_chunks(len(flat), _CHUNK), n_threads)


# The loops below use vector registers because they start at 0: numba would count a start from outside as possibly from
# the end. "reassoc" lets sums do so too; their order is still fixed.
@compiled(fastmath={"reassoc", "nsz", "contract"})
def _inner_product(a, b):
    total = 0.0
    for i in range(len(a)):
        total += np.float64(a[i]) * np.float64(b[i])
    return total


@compiled()
def _add_multiple(target, factor, source):
    for i in range(len(target)):
        target[i] += factor * source[i]


@compiled()
def _scale_and_add(target, factor, source):
    for i in range(len(target)):
        target[i] = factor * target[i] + source[i]
