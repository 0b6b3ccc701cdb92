"""Arrays between products: cache-aligned allocation, and the axpys and dot products of solvers, on threads.

Solvers run many independent problems of equal size at once. The array of variables is the same either way; over which
entries a dot product runs decides how many step lengths, residuals and trust regions there are. ``dot_all``,
``dot_rows`` and ``dot_columns`` keep the number of dimensions, so that their results broadcast against the variables.

Arrays are cut into fixed chunks, so that no bit depends on the number of threads. All of it is limited by memory: one
thread alone would not reach its rate.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from tagwise.kernels.compiled import FAST, compiled
from tagwise.parallel import even_chunks, run_chunks

__all__ = [
    "Inner",
    "aligned_copy",
    "aligned_empty",
    "aligned_zeros",
    "axpy",
    "aypx",
    "dot",
    "dot_all",
    "dot_columns",
    "dot_rows",
    "scratch",
    "sigmoid",
    "take_logarithms",
]

Inner: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]

_CACHE_LINE_BYTES = 64
# Numbers that a thread takes at a time.
_CHUNK = 1 << 18
# Of float64: √½, sign and exponent, and log 2 in two parts.
_BITS_OF_ROOT_HALF, _EXPONENT_BITS = 0x3FE6A09E667F3BCD, -(1 << 52)
_LOG_2, _LOG_2_REST = 0.693147180369123816490, 1.90821492927058770002e-10
# Numbers added at a time where factors differ: a temporary of a quarter of a megabyte, which stays in the cache.
_BLOCK = 1 << 15


def aligned_empty(shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """``numpy.empty``, C-ordered, starting at a cache line.

    numpy's own arrays start 16 bytes after one, so that every second vector loaded from them crosses two lines:
    products that gather from such an array take up to 1.4 times as long.
    """
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + _CACHE_LINE_BYTES, dtype=np.uint8)
    start = -room.__array_interface__["data"][0] % _CACHE_LINE_BYTES  # ``ctypes`` takes several times as long
    return room[start : start + size].view(dtype).reshape(shape)


def aligned_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """``numpy.zeros``, starting at a cache line."""
    zeros = aligned_empty(shape, dtype)
    zeros[...] = 0
    return zeros


class _Kept(threading.local):
    def __init__(self) -> None:
        self.arrays: dict[tuple[str, np.dtype], np.ndarray] = {}


_kept = _Kept()


def scratch(purpose: str, size: int, dtype: DTypeLike) -> np.ndarray:
    """An array that each thread keeps for a purpose: zeros the first time, then what its last user left there.

    Memory that is given back and taken anew comes page by page, which takes as long as the rest of an answer to one
    row. The largest size that was asked for is kept.
    """
    key = purpose, np.dtype(dtype)
    array = _kept.arrays.get(key)
    if array is None or len(array) < size:
        array = _kept.arrays[key] = np.zeros(size, dtype=key[1])
    return array[:size]


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """A C-ordered copy that starts at a cache line."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def dot(a: np.ndarray, b: np.ndarray, *, n_threads: int = 1) -> float:
    """⟨a, b⟩ of two arrays of one shape, summed in float64 without a float64 copy of either. Time O(size)."""
    if a.shape != b.shape:
        raise ValueError(f"a and b must have one shape; found {a.shape} and {b.shape}")
    flat_a, flat_b = np.ascontiguousarray(a).reshape(-1), np.ascontiguousarray(b).reshape(-1)

    def chunk(start: int, stop: int) -> float:
        return _dot(flat_a[start:stop], flat_b[start:stop])

    return sum(run_chunks(chunk, even_chunks(len(flat_a), _CHUNK), n_threads), 0.0)


def dot_all(a: np.ndarray, b: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
    """One problem: the sum over all entries, shape (1, …, 1)."""
    return np.full((1,) * a.ndim, dot(a, b, n_threads=n_threads))


def dot_rows(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """One problem per row: (m, k) and (m, k) to (m, 1)."""
    return np.einsum("ij,ij->i", a, b, dtype=np.float64)[:, None]


def dot_columns(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """One problem per column: (d, p) and (d, p) to (1, p)."""
    return np.einsum("ij,ij->j", a, b, dtype=np.float64)[None, :]


def axpy(target: np.ndarray, factor: np.ndarray | np.floating, source: np.ndarray, *, n_threads: int = 1) -> None:
    """``target += factor * source`` in place; ``factor`` is a number, or one per row, per column or per entry.

    A number and C-ordered arrays of one shape and type run on threads; numpy broadcasts and converts everything else,
    in blocks of rows. Time O(size).
    """
    if target.size == 0:
        return
    if np.size(factor) == 1 and _alike(target, source):
        _in_chunks(_axpy, target, np.asarray(factor).item(), source, n_threads)
        return
    rows = max(1, _BLOCK * len(target) // target.size)
    by_row = factor.ndim == target.ndim and factor.shape[0] > 1
    for start in range(0, len(target), rows):
        part = slice(start, start + rows)
        target[part] += (factor[part] if isinstance(factor, np.ndarray) and by_row else factor) * source[part]


def aypx(target: np.ndarray, factor: np.ndarray, source: np.ndarray, *, n_threads: int = 1) -> None:
    """``target = factor * target + source`` in place; factors as in :func:`axpy`. Time O(size)."""
    if factor.size == 1 and _alike(target, source):
        _in_chunks(_aypx, target, factor.item(), source, n_threads)
        return
    target *= factor
    target += source


def _alike(target: np.ndarray, source: np.ndarray) -> bool:
    return target.flags.c_contiguous and (target.shape, target.dtype) == (source.shape, source.dtype)


def _in_chunks(
    kernel: Callable[..., None], target: np.ndarray, factor: float, source: np.ndarray, n_threads: int
) -> None:
    flat, flat_source, number = target.reshape(-1), source.reshape(-1), target.dtype.type(factor)

    def chunk(start: int, stop: int) -> None:
        kernel(flat[start:stop], number, flat_source[start:stop])

    run_chunks(chunk, even_chunks(len(flat), _CHUNK), n_threads)


# The loops below use vector registers because they start at 0: numba would count a start from outside as possibly from
# the end. "reassoc" lets sums do so too; their order is still fixed.
@compiled(fastmath=FAST)
def _dot(a, b):
    total = 0.0
    for i in range(len(a)):
        total += np.float64(a[i]) * np.float64(b[i])
    return total


@compiled()
def _axpy(target, factor, source):
    for i in range(len(target)):
        target[i] += factor * source[i]


@compiled()
def _aypx(target, factor, source):
    for i in range(len(target)):
        target[i] = factor * target[i] + source[i]


# numba's own error model looks for a division by 0 at every number, one by one.
@compiled(inner=True, fastmath={"contract"}, error_model="numpy")
def take_logarithms(values, exponents):
    """The natural logarithms of an array of positive normal numbers in float64, in their place; in compiled code.

    ``exponents`` is workspace of the same length. Several numbers at once, where ``math.log`` takes one by one: a third
    of its time. At most two units in the last place from the exact logarithm.

    A number is 2^k·z with z from √½ to √2, and log z = 2(s + s³/3 + s⁵/5 + …) with s = (z − 1)/(z + 1), |s| < 0.172.
    """
    bits = values.view(np.int64)
    for i in range(len(values)):
        above = bits[i] - _BITS_OF_ROOT_HALF
        exponents[i] = above >> 52
        bits[i] -= above & _EXPONENT_BITS
    for i in range(len(values)):
        s = (values[i] - 1) / (values[i] + 1)
        square = s * s
        tail = 2 / 19 + square * (2 / 21)
        tail = 2 / 15 + square * (2 / 17 + square * tail)
        tail = 2 / 11 + square * (2 / 13 + square * tail)
        tail = 2 / 7 + square * (2 / 9 + square * tail)
        tail = 2 / 3 + square * (2 / 5 + square * tail)
        # log 2 in two parts, the first so short that its multiples are exact.
        values[i] = exponents[i] * _LOG_2 + (2 * s + (s * square * tail + exponents[i] * _LOG_2_REST))


@compiled(inner=True)
def sigmoid(value):
    """1 / (1 + e^{−value}) of one number, without overflow, in compiled code.

    :func:`tagwise.losses.sigmoid` is the one for arrays: numpy's tanh, several times as fast there. They differ in the
    last bit, so that writing one by the other would change fitted models.
    """
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    power = math.exp(value)
    return power / (1 + power)
