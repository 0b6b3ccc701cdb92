"""Kernels over stored (row, label) pairs: single entries of products, curvatures, normal equations, membership."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.compiled import compiled
from tagwise.parallel import run_chunks, single_threaded_blas, work_chunks

__all__ = [
    "contains_pair",
    "contains_pairs",
    "first_from",
    "pair_curvature_product",
    "sampled_csr_product",
    "sampled_product",
    "sampled_sparse_product",
    "solve_row_systems",
]

_GATHER_ROWS = 128


def contains_pairs(pairs: sp.csr_matrix, labels: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
    """Whether ``pairs`` (CSR n×L) stores each row's ``labels`` (int n×M, −1 for none): bool n×M, False for −1.

    Indices that are not sorted are sorted in a copy. Time O(n·M·log L) at most.
    """
    if labels.shape[0] != pairs.shape[0]:
        raise InvalidInputError(f"labels {labels.shape} and pairs {pairs.shape} must be n×M and n×L.")
    pairs = pairs if pairs.has_sorted_indices else pairs.sorted_indices()
    out = np.empty(labels.shape, dtype=np.bool_)
    run_chunks(
        lambda start, stop: _contains_pairs((pairs.indptr, pairs.indices), labels, out, start, stop),
        work_chunks(np.arange(len(labels) + 1) * max(1, labels.shape[1])),
        n_threads,
    )
    return out


@compiled(inner=True)
def first_from(rising, begin, end, least):
    """The first position from ``begin`` on whose number is ``least`` or more, else ``end``.

    A search of our own, as numba takes a fifth of a second to compile ``searchsorted`` for each type.
    """
    low, high = np.int64(begin), np.int64(end)
    while low < high:
        middle = (low + high) >> 1
        if rising[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low


@compiled(inner=True)
def contains_pair(pairs, row, label):
    """Whether a CSR matrix (indptr, sorted indices) stores a pair; an empty indptr stands for a matrix without any."""
    indptr, indices = pairs
    if len(indptr) == 0:
        return False
    end = indptr[row + 1]
    at = first_from(indices, indptr[row], end, label)
    return at < end and indices[at] == label


@compiled()
def _contains_pairs(pairs, labels, out, start, stop):
    for row in range(start, stop):
        for place in range(labels.shape[1]):
            out[row, place] = contains_pair(pairs, row, labels[row, place])


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
    run_chunks(
        lambda start, stop: _sampled_product(indptr, indices, left, right, out, start, stop),
        work_chunks(indptr),
        n_threads,
    )
    return out


# Reassociation lets a dot product use vector registers; for one compiled kernel the order of its sum is still fixed.
@compiled(inner=True, fastmath={"contract", "reassoc"})
def _four_products(a, b, c, d, e):
    """a·b, a·c, a·d and a·e in one pass, so that a is loaded once for all of them."""
    along_b = along_c = along_d = along_e = a.dtype.type(0)
    for column in range(a.shape[0]):
        value = a[column]
        along_b += value * b[column]
        along_c += value * c[column]
        along_d += value * d[column]
        along_e += value * e[column]
    return along_b, along_c, along_d, along_e


@compiled(inner=True, fastmath={"contract", "reassoc"})
def _one_product(a, b):
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
            b, c = right[indices[position]], right[indices[position + 1]]
            d, e = right[indices[position + 2]], right[indices[position + 3]]
            out[position], out[position + 1], out[position + 2], out[position + 3] = _four_products(a, b, c, d, e)
            position += 4
        while position < end:
            out[position] = _one_product(a, right[indices[position]])
            position += 1


def sampled_csr_product(
    pattern: sp.csr_matrix, left: sp.csr_matrix, right: np.ndarray, *, n_threads: int = 1
) -> np.ndarray:
    """``(left @ right)[i, j]`` for every stored entry (i, j) of ``pattern``, in storage order.

    ``pattern`` is CSR n×L, ``left`` CSR n×d and ``right`` a dense d×L array, whose type the result has; sums are in
    float64.
    Time O(Σ_i stored entries of ``left``_i × those of ``pattern``_i), memory O(nnz(pattern)).
    """
    _check_sampled(pattern, left, right)
    out = np.empty(pattern.nnz, dtype=right.dtype)
    pattern_rows, left_rows = (pattern.indptr, pattern.indices), (left.indptr, left.indices, left.data)
    run_chunks(
        lambda start, stop: _sampled_csr_product(pattern_rows, left_rows, right, out, start, stop),
        work_chunks(pattern.indptr),
        n_threads,
    )
    return out


def _check_sampled(pattern: sp.csr_matrix, left: sp.csr_matrix, right: sp.csr_matrix | np.ndarray) -> None:
    if (left.shape[0], right.shape[1]) != pattern.shape or left.shape[1] != right.shape[0]:
        raise InvalidInputError(
            f"left {left.shape} and right {right.shape} must be n×d and d×L for a pattern of shape {pattern.shape}."
        )


@compiled()
def _sampled_csr_product(pattern, left, right, out, start, stop):
    indptr, labels = pattern
    left_indptr, features, data = left
    longest = 0
    for row in range(start, stop):
        longest = max(longest, indptr[row + 1] - indptr[row])
    sums = np.empty(longest)
    for row in range(start, stop):
        begin, count = indptr[row], indptr[row + 1] - indptr[row]
        sums[:count] = 0
        # Feature by feature: a row of ``right`` is read while it is in the cache.
        for position in range(left_indptr[row], left_indptr[row + 1]):
            weights, value = right[features[position]], np.float64(data[position])
            for place in range(count):
                sums[place] += value * weights[labels[begin + place]]
        for place in range(count):
            out[begin + place] = sums[place]


def sampled_sparse_product(
    pattern: sp.csr_matrix, left: sp.csr_matrix, right: sp.csr_matrix, *, n_threads: int = 1
) -> np.ndarray:
    """``(left @ right)[i, j]`` for every stored entry (i, j) of ``pattern``, in storage order and the type of ``left``.

    ``pattern`` is n×L, ``left`` n×d and ``right`` d×L, all CSR. Each row of the product is summed up in float64 in an
    array of L numbers and read off where the pattern asks for it: time O(nnz(pattern) + products of stored entries),
    memory O(nnz(pattern)) and L float64 per thread.
    """
    _check_sampled(pattern, left, right)
    out = np.empty(pattern.nnz, dtype=left.dtype)
    products = np.concatenate([[0], np.cumsum(np.diff(right.indptr)[left.indices], dtype=np.int64)])[left.indptr]
    pattern_rows, left_rows = (pattern.indptr, pattern.indices), (left.indptr, left.indices, left.data)
    right_rows = right.indptr, right.indices, right.data

    def rows(start: int, stop: int) -> None:
        _sampled_sparse_product(pattern_rows, left_rows, right_rows, np.zeros(right.shape[1]), out, start, stop)

    run_chunks(rows, work_chunks(products + pattern.indptr), n_threads)
    return out


@compiled()
def _sampled_sparse_product(pattern, left, right, sums, out, start, stop):
    indptr, indices = pattern
    left_indptr, left_indices, left_data = left
    right_indptr, right_indices, right_data = right
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


def pair_curvature_product(
    pattern: sp.csr_matrix, weights: np.ndarray, left: np.ndarray, right: np.ndarray, *, n_threads: int = 1
) -> np.ndarray:
    """Σ_{j: (i,j) stored} w_ij (left_i · right_j) right_j for every row i: n×k from n×k and L×k.

    The sampled product and its product with ``right`` in one pass, so the values on the pattern are never stored.
    Time O(nnz·k), memory only the result.
    """
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    out = np.empty_like(left)
    indptr, indices = pattern.indptr, pattern.indices
    run_chunks(
        lambda start, stop: _pair_curvature_product(indptr, indices, weights, left, right, out, start, stop),
        work_chunks(indptr),
        n_threads,
    )
    return out


@compiled(fastmath={"contract", "reassoc"})
def _pair_curvature_product(indptr, indices, weights, left, right, out, start, stop):
    width = left.shape[1]
    for row in range(start, stop):
        a = left[row]
        target = out[row]
        target[:] = 0
        position, end = indptr[row], indptr[row + 1]
        # Four pairs at a time: a and target are loaded once for all of them.
        while position + 3 < end:
            b, c = right[indices[position]], right[indices[position + 1]]
            d, e = right[indices[position + 2]], right[indices[position + 3]]
            along_b, along_c, along_d, along_e = _four_products(a, b, c, d, e)
            along_b *= weights[position]
            along_c *= weights[position + 1]
            along_d *= weights[position + 2]
            along_e *= weights[position + 3]
            for column in range(width):
                target[column] += along_b * b[column] + along_c * c[column] + along_d * d[column] + along_e * e[column]
            position += 4
        while position < end:
            b = right[indices[position]]
            along_b = weights[position] * _one_product(a, b)
            for column in range(width):
                target[column] += along_b * b[column]
            position += 1


def solve_row_systems(
    pattern: sp.csr_matrix,
    weights: np.ndarray,
    right: np.ndarray,
    features: np.ndarray,
    base: np.ndarray,
    *,
    n_threads: int = 1,
) -> np.ndarray:
    """For every row j of ``pattern`` (L×n) solve (base + Σ_i w_ji f_i f_iᵀ) h_j = right_j.

    Parameters
    ----------
    pattern : CSR (L, n)
        Which rows of ``features`` enter the system of which label.
    weights : array (nnz,)
        w, in storage order.
    right : float64 array (L, k)
    features : array (n, k)
        f, float32 or float64; the sums are collected in float64 from blocks of products in the features' type.
    base : float64 array (k, k)
        Symmetric; added to every system (penalty, and whatever all labels share). Systems must be regular.

    Returns
    -------
    float64 array (L, k).

    Notes
    -----
    Time O(nnz·k² + L·k³), done by BLAS and LAPACK inside the compiled loop; memory O(k²) per thread and the result.
    """
    out = np.empty_like(right)
    features = np.ascontiguousarray(features)
    systems = pattern.indptr, pattern.indices, weights.astype(features.dtype, copy=False)
    with single_threaded_blas():
        run_chunks(
            lambda start, stop: _solve_row_systems(systems, right, features, base, out, start, stop),
            work_chunks(pattern.indptr, least_work=1 << 10),
            n_threads,
        )
    return out


@compiled()
def _solve_row_systems(systems, right, features, base, out, start, stop):
    indptr, indices, weights = systems
    width = features.shape[1]
    plain = np.empty((_GATHER_ROWS, width), dtype=features.dtype)
    scaled = np.empty((width, _GATHER_ROWS), dtype=features.dtype)
    block = np.empty((width, width), dtype=features.dtype)
    for label in range(start, stop):
        system = base.copy()
        begin, end = indptr[label], indptr[label + 1]
        for first in range(begin, end, _GATHER_ROWS):
            count = min(_GATHER_ROWS, end - first)
            for i in range(count):
                weight = weights[first + i]
                source = features[indices[first + i]]
                for column in range(width):
                    plain[i, column] = source[column]
                    scaled[column, i] = weight * source[column]
            if count < _GATHER_ROWS:
                plain[count:] = 0
                scaled[:, count:] = 0
            np.dot(scaled, plain, block)
            for a in range(width):
                for b in range(width):
                    system[a, b] += block[a, b]
        out[label] = np.linalg.solve(system, right[label])
