"""Scalar products and sums of whole arrays, against numpy."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from inner import from_python

from tagwise import LEML
from tagwise.kernels import csr_matmul, dense_matmul, vectors
from tagwise.kernels.vectors import aligned_empty, axpy, aypx, dot, dot_all, dot_columns, dot_rows
from tagwise.solvers.cg import conjugate_gradient

SHAPES = [(0, 3), (1,), (17,), (40, 3), (300_000, 2)]  # the last in several chunks


@pytest.fixture(params=[np.float32, np.float64])
def dtype(request):
    return request.param


def arrays(shape, dtype):
    rng = np.random.default_rng(0)
    return rng.standard_normal(shape).astype(dtype), rng.standard_normal(shape).astype(dtype)


def test_inner_products_are_summed_in_float64(dtype):
    for shape in SHAPES:
        a, b = arrays(shape, dtype)
        products = a.astype(np.float64) * b
        found = dot(a, b)
        assert isinstance(found, float)
        np.testing.assert_allclose(found, products.sum(), rtol=1e-12, atol=1e-12 * a.size)
        assert dot(a, b, n_threads=3) == dot_all(a, b).item() == found
        if len(shape) == 2:
            error = 1e-5 * len(a)
            np.testing.assert_allclose(dot_rows(a, b), products.sum(axis=1, keepdims=True), atol=1e-5)
            np.testing.assert_allclose(dot_columns(a, b), products.sum(axis=0, keepdims=True), atol=error)
            assert dot_rows(a, b).dtype == dot_columns(a, b).dtype == np.float64


def test_sums_in_place(dtype):
    """Over borders of chunks and for factors per problem, column or row."""
    for shape, factors in [
        *((shape, [()]) for shape in SHAPES),
        ((40_000, 3), [(1, 1), (40_000, 1), (1, 3)]),
        ((7, 30_000), [(1, 30_000)]),
        ((100_000,), [(1,)]),
    ]:
        for factor_shape in factors:
            target, source = arrays(shape, dtype)
            factor = dtype(0.3) if factor_shape == () else arrays(factor_shape, dtype)[0]
            for threads in (1, 3):
                added, scaled = target.copy(), target.copy()
                axpy(added, factor, source, n_threads=threads)
                np.testing.assert_array_equal(added, target + factor * source)
                aypx(scaled, factor, source, n_threads=threads)
                np.testing.assert_array_equal(scaled, factor * target + source)


def test_makes_no_copy():
    target, source = np.zeros((1_000_000, 2), dtype=np.float32), np.ones((1_000_000, 2), dtype=np.float32)
    tracemalloc.start()
    axpy(target, np.float32(3), source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (target == 3).all()
    assert peak < target.nbytes / 20


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
        LEML(4, max_iter=1, tol=1).fit(matrix, matrix[:, :5] > 0).feature_factors_,
        *directions,
    ]
    assert [array.ctypes.data % 64 for array in found] == [0] * len(found)


take_logarithms = from_python(vectors.take_logarithms)


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
