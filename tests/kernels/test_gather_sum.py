"""CSR × dense at the borders of vectors, of long rows and of stripes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from numba import njit
from numba.core import config

from tagwise.kernels import csr_matmul, gather_sum, llvm_gather, products


@pytest.fixture(scope="module")
def matrix() -> sp.csr_matrix:
    """Rows without entries, with one, with many, and with more than are summed in one go."""
    rng = np.random.default_rng(0)
    lengths = np.array([0, 1, 2, 7, 8, 9, 40, 255, 256, 257, 600, 0])
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    indices = rng.integers(0, 90, indptr[-1]).astype(np.int32)
    return sp.csr_matrix((rng.standard_normal(indptr[-1]).astype(np.float32), indices, indptr), shape=(12, 90))


def by_definition(matrix: sp.csr_matrix, dense: np.ndarray) -> np.ndarray:
    out = np.zeros((matrix.shape[0], dense.shape[1]))
    for row in range(matrix.shape[0]):
        for position in range(matrix.indptr[row], matrix.indptr[row + 1]):
            out[row] += matrix.data[position] * dense[matrix.indices[position]].astype(np.float64)
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_width_agrees_with_the_definition_and_a_column_has_the_same_bits_wherever_it_stands(
    matrix, dtype
) -> None:
    column = np.random.default_rng(1).standard_normal((90, 1)).astype(dtype)
    alone = csr_matmul(matrix, column)
    for width in (1, 3, 4, 5, 7, 8, 9, 11, 15, 16, 17, 31, 33, 50, 63, 64, 65, 71, 77, 100, 128, 131):
        dense = np.random.default_rng(width).standard_normal((90, width)).astype(dtype)
        tolerance = 1e-4 if dtype == np.float32 else 1e-12
        np.testing.assert_allclose(csr_matmul(matrix, dense), by_definition(matrix, dense), rtol=0, atol=tolerance)
        repeated = csr_matmul(matrix, np.repeat(column, width, axis=1))
        np.testing.assert_array_equal(repeated, np.repeat(alone, width, axis=1))


@pytest.mark.parametrize("width", [64, 150])
def test_stripes_change_no_bit(matrix, width, monkeypatch) -> None:
    dense = np.random.default_rng(2).standard_normal((90, width)).astype(np.float32)
    whole = csr_matmul(matrix, dense)
    monkeypatch.setattr(products, "_CACHED_BYTES", 0)
    monkeypatch.setattr(products, "_OFTEN", 1)
    calls = []
    matmul_columns = products._matmul_columns
    monkeypatch.setattr(products, "_matmul_columns", lambda *a: (calls.append(a[3]), matmul_columns(*a)))
    np.testing.assert_array_equal(csr_matmul(matrix, dense, n_threads=2), whole)
    assert calls == list(range(0, width, 64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 7, 8, 9, 33, 64, 71, 131])
@pytest.mark.parametrize("add", [0, 1])
def test_the_plain_loop_and_the_vectors_agree(matrix, width, dtype, add) -> None:
    """Both add in the order of the entries; only the rounding of single products may differ."""
    assert config.BOUNDSCHECK or gather_sum.sum_rows is llvm_gather.sum_rows
    rng = np.random.default_rng(width)
    dense, start = rng.standard_normal((90, width)).astype(dtype), rng.standard_normal((3, width)).astype(dtype)
    vectors, plain = start.copy(), start.copy()
    first, stop, end = width // 3, width, int(matrix.indptr[7])
    for sum_rows, out in ((llvm_gather.sum_rows, vectors), (gather_sum.sum_rows_plain, plain)):
        sum_rows(matrix.indices, matrix.data, dense, (3, end, matrix.nnz), (first, stop), add, out, width)
    np.testing.assert_allclose(vectors, plain, rtol=0, atol=1e-5 if dtype == np.float32 else 1e-13)
    np.testing.assert_array_equal(vectors[[0, 2]], start[[0, 2]])
    np.testing.assert_array_equal(vectors[1, :first], start[1, :first])


def test_what_cannot_be_built_or_sums_wrongly_is_not_used(monkeypatch) -> None:
    @njit
    def no_such_function(*arguments):
        return np.no_such_function(*arguments)

    def wrong_sums(indices, data, dense, entries, columns, add, target, shift) -> None:
        target[:] = 0

    plain = gather_sum.sum_rows_plain
    assert gather_sum.choose("not_there", gather_sum.sums_rightly, plain) is plain
    for broken in (no_such_function, wrong_sums):
        monkeypatch.setattr(llvm_gather, "sum_rows", broken)
        assert gather_sum.choose("sum_rows", gather_sum.sums_rightly, plain) is plain


def test_any_part_of_an_array_can_be_fetched() -> None:
    """Also what lies beyond it: an address is a hint, not a read."""
    assert config.BOUNDSCHECK or gather_sum.fetch is llvm_gather.fetch
    names, values = np.arange(100, dtype=np.int32), np.arange(100, dtype=np.float32)
    for begin, end in ((0, 0), (3, 40), (0, 100), (90, 1 << 20), (5, 2)):
        gather_sum.fetch(names, values, begin, end)
    np.testing.assert_array_equal(names, values)


def test_products_work_without_the_intrinsic(tmp_path) -> None:
    """In a process of its own, where numba has no intrinsics, and with a cache of its own."""
    script = """
import numba.extending
del numba.extending.intrinsic
import numpy as np, scipy.sparse as sp
from tagwise.kernels import csr_matmul, gather_sum
assert gather_sum.sum_rows is gather_sum.sum_rows_plain
matrix = sp.random(30, 20, 0.3, "csr", dtype=np.float32, random_state=0)
dense = np.ones((20, 9), dtype=np.float32)
np.testing.assert_allclose(csr_matmul(matrix, dense), matrix @ dense, rtol=1e-6)
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=300)
