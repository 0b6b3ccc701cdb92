"""Scalar products and sums of whole arrays, against numpy."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise import LEML
from tagwise.kernels import csr_matmul, dense_matmul
from tagwise.kernels.blocked_csr import BlockedCSR
from tagwise.kernels.vectors import aligned_copy, aligned_empty, axpy, aypx, dot, take_logarithms
from tagwise.solvers.cg import conjugate_gradient

SHAPES = [(0, 3), (1,), (17,), (40, 3), (300_000, 2)]  # the last in several chunks


@pytest.fixture(params=[np.float32, np.float64])
def dtype(request):
    return request.param


def arrays(shape, dtype):
    rng = np.random.default_rng(0)
    return rng.standard_normal(shape).astype(dtype), rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES)
def test_inner_products_are_summed_in_float64(shape, dtype):
    a, b = arrays(shape, dtype)
    expected = np.sum(a.astype(np.float64) * b)
    found = dot(a, b)
    assert isinstance(found, float)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * a.size)
    assert dot(a, b, n_threads=3) == found


def test_an_inner_product_of_views():
    a, b = arrays((50, 6), np.float32)
    np.testing.assert_allclose(dot(a.T, b.T), np.sum(a.astype(np.float64) * b), rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_sums_in_place(shape, dtype, threads):
    target, source = arrays(shape, dtype)
    factor = dtype(0.3)
    added, scaled = target.copy(), target.copy()
    axpy(added, factor, source, n_threads=threads)
    np.testing.assert_array_equal(added, target + factor * source)
    aypx(scaled, factor, source, n_threads=threads)
    np.testing.assert_array_equal(scaled, factor * target + source)


def test_shapes_that_differ_have_no_dot_product():
    with pytest.raises(ValueError, match="one shape"):
        dot(np.ones(10), np.ones(3))


@pytest.mark.parametrize(
    ("shape", "factor_shape"),
    [((40_000, 3), (1, 1)), ((40_000, 3), (40_000, 1)), ((7, 30_000), (1, 30_000)), ((100_000,), (1,)), ((5, 2), ())],
)
def test_adds_a_multiple_over_block_borders(shape, factor_shape):
    rng = np.random.default_rng(0)
    target, source, factor = (rng.standard_normal(size) for size in (shape, shape, factor_shape))
    factor = np.float64(factor) if factor_shape == () else factor
    expected = target + factor * source
    axpy(target, factor, source)
    np.testing.assert_array_equal(target, expected)


def test_a_source_of_fewer_columns_is_repeated():
    target = np.zeros((4, 3))
    axpy(target, np.float64(2), np.arange(4.0)[:, None])
    np.testing.assert_array_equal(target, np.repeat(2 * np.arange(4.0)[:, None], 3, axis=1))


def test_a_source_of_another_type_is_converted():
    target, source = np.ones((4, 3), dtype=np.float32), np.full((4, 3), 0.5)
    axpy(target, np.float32(2), source)
    np.testing.assert_array_equal(target, 2)
    aypx(target, np.full((1, 1), 3, dtype=np.float32), source)
    np.testing.assert_array_equal(target, 6.5)
    assert target.dtype == np.float32


@pytest.mark.parametrize("factor_shape", [(1, 1), (40_000, 1), (1, 3)])
@pytest.mark.parametrize("threads", [1, 3])
def test_scales_then_adds(factor_shape, threads):
    rng = np.random.default_rng(0)
    target, source, factor = (rng.standard_normal(size) for size in ((40_000, 3), (40_000, 3), factor_shape))
    expected = factor * target + source
    aypx(target, factor, source, n_threads=threads)
    np.testing.assert_array_equal(target, expected)


def test_makes_no_copy():
    target, source = np.zeros((1_000_000, 2), dtype=np.float32), np.ones((1_000_000, 2), dtype=np.float32)
    tracemalloc.start()
    axpy(target, np.float32(3), source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (target == 3).all()
    assert peak < target.nbytes / 20


def test_nothing_stays_nothing():
    target = np.zeros((0, 3))
    axpy(target, np.ones((1, 1)), np.zeros((0, 3)))
    assert target.shape == (0, 3)


def test_a_target_in_another_order_is_changed_in_place():
    target = np.zeros((3, 2))
    axpy(target.T, np.float64(2), np.ones((2, 3)))
    np.testing.assert_array_equal(target, 2)


@pytest.mark.parametrize("shape", [(), (0, 4), (7,), (33, 5)])
def test_aligned_arrays_begin_at_a_cache_line(shape, dtype):
    for _ in range(5):
        array = aligned_empty(shape, dtype)
        assert (array.shape, array.dtype) == (shape, dtype)
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.ctypes.data % 64 == 0 or array.size == 0


@pytest.mark.filterwarnings("ignore:LEML stopped")
def test_what_products_gather_from_is_aligned():
    """The factors of a fit: results of products, the directions of conjugate gradients, and W."""
    matrix = sp.random(60, 40, 0.3, format="csr", dtype=np.float32, random_state=0)
    W, A = np.ones((40, 9), dtype=np.float32), np.ones((60, 9), dtype=np.float32)
    directions = []

    def system(direction):
        directions.append(direction)
        return 2 * direction

    conjugate_gradient(system, W.copy(), tol=1e-3, max_iter=3)
    found = [
        csr_matmul(matrix, W),
        dense_matmul(A, np.eye(9)),
        BlockedCSR(matrix, width=9).rmatmul(A),
        LEML(4, max_iter=1, tol=1).fit(matrix, matrix[:, :5] > 0).feature_factors_,
        *directions,
    ]
    assert [array.ctypes.data % 64 for array in found] == [0] * len(found)


def test_an_aligned_copy_is_equal_and_its_own():
    original = np.arange(12.0).reshape(3, 4).T
    copy = aligned_copy(original)
    np.testing.assert_array_equal(copy, original)
    assert copy.ctypes.data % 64 == 0
    assert not np.shares_memory(copy, original)


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=70))
def test_logarithms_are_those_of_numpy_to_two_units_in_the_last_place(numbers):
    values = np.array(numbers)
    expected = np.log(values)
    take_logarithms(values, np.empty_like(values))
    np.testing.assert_array_less(np.abs(values - expected), 2.5 * np.spacing(np.abs(expected) + 1e-300))


@given(st.lists(st.floats(-0.3, 0.4), min_size=1, max_size=70))
def test_logarithms_near_one_lose_no_digits(numbers):
    values = 1 + np.array(numbers)
    expected = np.log(values)
    take_logarithms(values, np.empty_like(values))
    np.testing.assert_allclose(values, expected, rtol=1e-15, atol=0)
