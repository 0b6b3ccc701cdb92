"""The product of two sparse matrices, computed only on a sparsity pattern."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import compiled
from tagwise.parallel import run_chunks, work_chunks

__all__ = ["sampled_sparse_product"]


def sampled_sparse_product(
    pattern: sp.csr_matrix, left: sp.csr_matrix, right: sp.csr_matrix, *, n_threads: int = 1
) -> np.ndarray:
    """``(left @ right)[i, j]`` for every stored entry (i, j) of ``pattern``, in storage order and the type of ``left``.

    ``pattern`` is n×L, ``left`` n×d and ``right`` d×L, all CSR. Each row of the product is summed up in float64 in an
    array of L numbers and read off where the pattern asks for it: time O(nnz(pattern) + products of stored entries),
    memory O(nnz(pattern)) and L float64 a thread.
    """
    if (left.shape[0], right.shape[1]) != pattern.shape or left.shape[1] != right.shape[0]:
        raise InvalidInputError(
            f"left {left.shape} and right {right.shape} must be n×d and d×L for a pattern of shape {pattern.shape}."
        )
    out = np.empty(pattern.nnz, dtype=left.dtype)
    products = np.concatenate([[0], np.cumsum(np.diff(right.indptr)[left.indices], dtype=np.int64)])[left.indptr]

    def rows(start: int, stop: int) -> None:
        _sampled_sparse_product(
            pattern.indptr, pattern.indices, left.indptr, left.indices, left.data, right.indptr, right.indices,
            right.data, np.zeros(right.shape[1]), out, start, stop,
        )  # fmt: skip

    run_chunks(rows, work_chunks(products + pattern.indptr), n_threads)
    return out


@compiled()
def _sampled_sparse_product(
    indptr,
    indices,
    left_indptr,
    left_indices,
    left_data,
    right_indptr,
    right_indices,
    right_data,
    sums,
    out,
    start,
    stop,
):
    for row in range(start, stop):
        if indptr[row] == indptr[row + 1]:
            continue
        for entry in range(left_indptr[row], left_indptr[row + 1]):
            value = np.float64(left_data[entry])
            inner = left_indices[entry]
            for place in range(right_indptr[inner], right_indptr[inner + 1]):
                sums[right_indices[place]] += value * right_data[place]
        for position in range(indptr[row], indptr[row + 1]):
            out[position] = sums[indices[position]]
        for entry in range(left_indptr[row], left_indptr[row + 1]):
            inner = left_indices[entry]
            for place in range(right_indptr[inner], right_indptr[inner + 1]):
                sums[right_indices[place]] = 0
