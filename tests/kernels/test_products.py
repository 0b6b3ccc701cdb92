"""Every kernel against its slow twin, on whatever CSR matrices hypothesis can think of."""

import numpy as np
import pytest
import reference_kernels as reference
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise import kernels
from tagwise.exceptions import InvalidInputError
from tagwise.kernels.products import add_scaled_rows

FLOATS = [np.float32, np.float64]
TOLERANCE = {np.float32: 2e-5, np.float64: 1e-12}


@st.composite
def raw_csr(draw, max_rows=12, max_columns=9):
    """Any CSR: empty rows and columns, duplicates, unsorted indices, explicit zeros, 32- or 64-bit indices."""
    n_rows, n_columns = draw(st.integers(0, max_rows)), draw(st.integers(1, max_columns))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = rng.integers(0, 7, size=n_rows) * rng.integers(0, 2, size=n_rows)
    index_type = draw(st.sampled_from([np.int32, np.int64]))
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(index_type)
    indices = rng.integers(0, n_columns, size=indptr[-1]).astype(index_type)
    data = rng.integers(-3, 4, size=indptr[-1]) * 0.5
    matrix = sp.csr_matrix((n_rows, n_columns), dtype=draw(st.sampled_from(FLOATS)))
    # Set directly: scipy's constructor would narrow the index type.
    matrix.indptr, matrix.indices, matrix.data = indptr, indices, data.astype(matrix.dtype)
    return matrix


@given(raw_csr(), st.integers(1, 20), st.sampled_from(FLOATS), st.integers(0, 999), st.integers(1, 3))
def test_products_equal_their_twins(pattern, width, dtype, seed, n_threads):
    rng = np.random.default_rng(seed)
    left, right = (rng.standard_normal((size, width)).astype(dtype) for size in pattern.shape)
    weights = rng.uniform(0, 3, size=pattern.nnz).astype(dtype)
    wide, base, error = left.astype(np.float64), np.eye(width) + 0.1, TOLERANCE[dtype]
    for kernel, arguments, tolerance in [
        ("csr_matmul", (pattern, right), error),
        ("sampled_product", (pattern, left, right), error),
        ("pair_curvature_product", (pattern, weights, left, right), 20 * error),
        ("solve_row_systems", (pattern, weights, wide, right, base), 100 * error),
    ]:
        result = getattr(kernels, kernel)(*arguments, n_threads=n_threads)
        assert kernel == "solve_row_systems" or result.dtype == dtype
        expected = getattr(reference, kernel)(*arguments)
        np.testing.assert_allclose(result, expected, atol=tolerance, rtol=tolerance, err_msg=kernel)


def test_long_rows_keep_the_digits_that_a_float32_sum_would_lose():
    n = 200_000
    matrix = sp.csr_matrix(np.full((1, n), 0.1, dtype=np.float32))
    result = kernels.csr_matmul(matrix, np.ones((n, 1), dtype=np.float32))
    exact = n * float(np.float32(0.1))
    error = abs(float(result[0, 0]) - exact)
    naive = np.cumsum(np.full(n, 0.1, dtype=np.float32), dtype=np.float32)[-1]
    assert error < 0.05 * abs(float(naive) - exact)
    assert error < 1e-5 * exact


@given(raw_csr(), st.sampled_from([1e-300, 1e-40, 1.0, 1e30, 1e300]), st.integers(1, 3))
def test_unit_rows(matrix, scale, n_threads):
    with np.errstate(over="ignore", under="ignore"):
        data = (matrix.data.astype(np.float64) * scale).astype(matrix.dtype)
    data[~np.isfinite(data)] = np.finfo(data.dtype).max
    scaled = sp.csr_matrix(matrix.shape, dtype=data.dtype)
    scaled.data, scaled.indices, scaled.indptr = data, matrix.indices, matrix.indptr
    result = kernels.unit_rows(scaled, n_threads=n_threads).data
    assert result.dtype == data.dtype
    np.testing.assert_allclose(result, reference.unit_rows(matrix.indptr, data).astype(np.float64), rtol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows", [0, 1, 2047, 2049, 9000])
def test_gram_and_dense_matmul_over_block_borders(rows, dtype):
    rng = np.random.default_rng(rows)
    tall, other = (rng.standard_normal((rows, 5)).astype(dtype) for _ in range(2))
    small = rng.standard_normal((5, 3)).astype(dtype)
    scale = TOLERANCE[dtype] * max(1, rows) ** 0.5
    np.testing.assert_allclose(kernels.gram(tall), reference.gram(tall), atol=scale)
    np.testing.assert_allclose(kernels.gram(tall, other, n_threads=2), reference.gram(tall, other), atol=scale)
    np.testing.assert_allclose(kernels.dense_matmul(tall, small), reference.dense_matmul(tall, small), atol=scale)


@pytest.mark.parametrize("dtype", FLOATS)
def test_matmul_and_matmul_in_order_and_transposed_products(dtype):
    for form in (np.asarray, sp.csr_matrix):
        for width in (0, 1, 4, 7, 300):
            rng = np.random.default_rng(width)
            rows = (rng.standard_normal((150, width)) * (rng.random((150, width)) < 0.5)).astype(dtype)
            matrix, tall = (rng.standard_normal((size, 9)).astype(dtype) for size in (width, 150))
            expected, error = reference.dense_matmul(rows, matrix), TOLERANCE[dtype] * max(1, width) ** 0.5
            plain = kernels.matmul(form(rows), matrix, n_threads=2)
            assert plain.dtype == dtype
            np.testing.assert_allclose(plain, expected, atol=error)
            features = kernels.feature_matrix(form(rows))
            assert features.shape == rows.shape
            np.testing.assert_allclose(features.matmul(matrix), expected, atol=error)
            np.testing.assert_allclose(features.rmatmul(tall), rows.T.astype(np.float64) @ tall, atol=20 * error)
            ordered = kernels.matmul_in_order(form(rows), matrix, n_threads=2)
            assert ordered.dtype == np.float64
            np.testing.assert_allclose(ordered, expected, atol=1e-12)
            for row in range(0, 150, 7):
                alone = kernels.matmul_in_order(form(rows[row : row + 1]), matrix)
                np.testing.assert_array_equal(alone[0], ordered[row])
            twice = kernels.matmul_in_order(form(rows), np.column_stack([matrix, matrix]))
            np.testing.assert_array_equal(twice[:, :9], twice[:, 9:])


@st.composite
def factors(draw):
    """Small whole numbers, so that products are exact and ties are common."""
    n_rows, n_labels, rank = draw(st.integers(0, 6)), draw(st.integers(1, 80)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from(FLOATS))
    left, right = (rng.integers(-2, 3, size=(size, rank)).astype(dtype) for size in (n_rows, n_labels))
    intercept = rng.integers(-2, 3, size=n_labels).astype(dtype) if draw(st.booleans()) else None
    exclude = None
    if draw(st.booleans()):
        exclude = sp.csr_matrix(rng.random((n_rows, n_labels)) < draw(st.sampled_from([0.1, 0.5, 1.0])))
    return left, right, intercept, exclude


@given(factors(), st.sampled_from([1, 2, 5, 100]), st.integers(1, 3))
def test_top_k_of_factors(problem, k, n_threads):
    left, right, intercept, exclude = problem
    expected = reference.top_k_of_factors(left, right, k, intercept, exclude)
    found = kernels.top_k_of_factors(left, right, k, intercept=intercept, exclude=exclude, n_threads=n_threads)
    for ours, theirs in zip(found, expected):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


@given(factors(), st.sampled_from([1, 3, 100]))
def test_top_k_of_scores_leaves_the_block_alone(problem, k):
    left, right, _, exclude = problem
    block = left @ right.T
    before = block.copy()
    for ours, theirs in zip(
        kernels.top_k_of_scores(block, k, exclude=exclude), reference.top_k_of_scores(block, k, exclude)
    ):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(block, before)


@pytest.mark.parametrize("dtype", FLOATS)
def test_bit_identical_for_one_two_and_three_threads(dtype):
    rng = np.random.default_rng(1)
    matrix = sp.random(5000, 700, 0.05, format="csr", dtype=dtype, random_state=2)
    pattern = sp.random(5000, 60, 0.2, "csr", random_state=2)
    sparse = sp.random(700, 60, 0.3, "csr", random_state=1, dtype=dtype)
    dense, tall, labels = (rng.standard_normal((size, 33)).astype(dtype) for size in (700, 5000, 700))
    wide = tall.astype(np.float64)

    def everything(n):
        return [
            kernels.csr_matmul(matrix, dense, n_threads=n),
            kernels.feature_matrix(matrix, n_threads=n).rmatmul(tall),
            kernels.feature_matrix(tall, n_threads=n).rmatmul(tall),
            kernels.sampled_product(matrix, tall, labels, n_threads=n),
            kernels.sampled_sparse_product(pattern, matrix, sparse, n_threads=n),
            kernels.pair_curvature_product(matrix, matrix.data, tall, labels, n_threads=n),
            kernels.solve_row_systems(matrix, matrix.data, wide, labels, np.eye(33), n_threads=n),
            kernels.unit_rows(matrix, n_threads=n).data,
            kernels.gram(tall, n_threads=n),
            kernels.dense_matmul(tall, dense.T[:, :9], n_threads=n),
            *kernels.top_k_of_factors(tall, labels, 5, n_threads=n),
        ]

    one = everything(1)
    for n_threads in (2, 3):
        for ours, theirs in zip(everything(n_threads), one):
            assert ours.tobytes() == theirs.tobytes()


def test_read_only_inputs():
    matrix = sp.random(20, 10, 0.3, format="csr", dtype=np.float32, random_state=0)
    dense = np.ones((10, 3), dtype=np.float32)
    for array in (matrix.data, matrix.indices, matrix.indptr, dense):
        array.setflags(write=False)
    np.testing.assert_allclose(kernels.csr_matmul(matrix, dense), matrix @ dense, rtol=1e-6)
    labels, _ = kernels.top_k_of_factors(dense, dense, 2)
    np.testing.assert_array_equal(labels, [[0, 1]] * 10)


def test_shapes_that_do_not_fit_are_named():
    matrix, one, narrow = sp.csr_matrix((4, 3)), np.ones((4, 2)), np.ones((3, 2))
    for call, words in [
        (lambda: kernels.csr_matmul(matrix, one), "dense must have 3 rows"),
        (lambda: kernels.csr_matmul(matrix, narrow.astype(int)), "must hold floating numbers; found type int64"),
        (lambda: kernels.sampled_product(matrix, one, one), "n×k and L×k"),
        (lambda: kernels.top_k_of_factors(one, narrow, 0), "k must be at least 1"),
        (lambda: kernels.top_k_of_factors(one, narrow, 1, exclude=sp.csr_matrix((3, 4))), "exclude has shape"),
        (
            lambda: kernels.matmul_in_order(np.ones((2, 3)), np.ones((4, 5))),
            r"rows of shape \(2, 3\) cannot be multiplied .* \(4, 5\)",
        ),
    ]:
        with pytest.raises(InvalidInputError, match=words):
            call()


# Scaled rows of a matrix, added to a dense block.


@given(raw_csr(), st.integers(0, 999), st.integers(1, 3))
def test_scaled_rows_are_added_as_dense_arithmetic_adds_them(matrix, seed, n_threads):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, max(1, matrix.shape[0]), 700 * (matrix.shape[0] > 0))
    scale, target = rng.standard_normal(len(rows)), rng.standard_normal((len(rows), matrix.shape[1]))
    target = target.astype(matrix.dtype)
    expected, from_dense = target + scale[:, None] * matrix.toarray()[rows], target.copy()
    add_scaled_rows(target, matrix, rows, scale, n_threads=n_threads)
    add_scaled_rows(from_dense, matrix.toarray(), rows, scale, n_threads=n_threads)
    np.testing.assert_allclose(target, expected, atol=TOLERANCE[matrix.dtype.type])
    np.testing.assert_allclose(from_dense, expected, atol=TOLERANCE[matrix.dtype.type])
