"""Kernels over stored (row, label) pairs: curvature products for features, normal equations for labels."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.kernels.compiled import compiled
from tagwise.kernels.sampled import four_products, one_product
from tagwise.parallel import run_chunks, single_threaded_blas, work_chunks

__all__ = ["pair_curvature_product", "solve_row_systems"]

_GATHER_ROWS = 128


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

    def rows(start: int, stop: int) -> None:
        _pair_curvature_product(indptr, indices, weights, left, right, out, start, stop)

    run_chunks(rows, work_chunks(indptr), n_threads)
    return out


@compiled(fastmath={"contract", "reassoc"})
def _pair_curvature_product(indptr, indices, weights, left, right, out, start, stop):
    width = left.shape[1]
    for row in range(start, stop):
        a = left[row]
        target = out[row]
        target[:] = 0
        position, end = indptr[row], indptr[row + 1]
        # Four pairs at a time: a and target are loaded once for all of them (1.4 to 1.9 times as fast).
        while position + 3 < end:
            b, c = right[indices[position]], right[indices[position + 1]]
            d, e = right[indices[position + 2]], right[indices[position + 3]]
            along_b, along_c, along_d, along_e = four_products(a, b, c, d, e)
            along_b *= weights[position]
            along_c *= weights[position + 1]
            along_d *= weights[position + 2]
            along_e *= weights[position + 3]
            for column in range(width):
                target[column] += along_b * b[column] + along_c * c[column] + along_d * d[column] + along_e * e[column]
            position += 4
        while position < end:
            b = right[indices[position]]
            along_b = weights[position] * one_product(a, b)
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
    indptr, indices = pattern.indptr, pattern.indices
    typed = weights.astype(features.dtype, copy=False)

    def labels(start: int, stop: int) -> None:
        _solve_row_systems(indptr, indices, typed, right, features, base, out, start, stop)

    with single_threaded_blas():
        run_chunks(labels, work_chunks(indptr, least_work=1 << 10), n_threads)
    return out


@compiled()
def _solve_row_systems(indptr, indices, weights, right, features, base, out, start, stop):
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
