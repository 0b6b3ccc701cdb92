"""Products of two dense factors, computed only on a sparsity pattern."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import compiled
from tagwise.parallel import run_chunks, work_chunks

__all__ = ["sampled_product"]


def sampled_product(pattern: sp.csr_matrix, left: np.ndarray, right: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
    """``left_i · right_j`` for every stored entry (i, j) of ``pattern`` (n×L), in storage order.

    ``left`` is n×k, ``right`` L×k, both of one type, which the result has too. Time O(nnz·k), memory O(nnz).
    """
    if left.shape[0] != pattern.shape[0] or right.shape[0] != pattern.shape[1] or left.shape[1] != right.shape[1]:
        raise InvalidInputError(
            f"left {left.shape} and right {right.shape} must be n×k and L×k for a pattern of shape {pattern.shape}."
        )
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    out = np.empty(pattern.nnz, dtype=left.dtype)
    indptr, indices = pattern.indptr, pattern.indices

    def rows(start: int, stop: int) -> None:
        _sampled_product(indptr, indices, left, right, out, start, stop)

    run_chunks(rows, work_chunks(indptr), n_threads)
    return out


# Reassociation lets a dot product use vector registers; for one compiled kernel the order of its sum is still fixed.
@compiled(fastmath={"contract", "reassoc"})
def four_products(a, b, c, d, e):
    """a·b, a·c, a·d and a·e in one pass, so that a is loaded once for all of them."""
    along_b = along_c = along_d = along_e = a.dtype.type(0)
    for column in range(a.shape[0]):
        value = a[column]
        along_b += value * b[column]
        along_c += value * c[column]
        along_d += value * d[column]
        along_e += value * e[column]
    return along_b, along_c, along_d, along_e


@compiled(fastmath={"contract", "reassoc"})
def one_product(a, b):
    """a·b."""
    total = a.dtype.type(0)
    for column in range(a.shape[0]):
        total += a[column] * b[column]
    return total


@compiled(fastmath={"contract", "reassoc"})
def _sampled_product(indptr, indices, left, right, out, start, stop):
    for row in range(start, stop):
        a = left[row]
        position, end = indptr[row], indptr[row + 1]
        while position + 3 < end:
            out[position], out[position + 1], out[position + 2], out[position + 3] = four_products(
                a,
                right[indices[position]],
                right[indices[position + 1]],
                right[indices[position + 2]],
                right[indices[position + 3]],
            )
            position += 4
        while position < end:
            out[position] = one_product(a, right[indices[position]])
            position += 1
