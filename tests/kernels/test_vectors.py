"""Scalar products and sums of whole arrays, against numpy."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import LEML
from tagwise.kernels import csr_times_dense, rows_times
from tagwise.kernels.aligned import aligned_copy, aligned_empty
from tagwise.kernels.streamed import StreamedTwoWay
from tagwise.kernels.vectors import add_multiple, inner_product, scale_and_add
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
    found = inner_product(a, b)
    assert isinstance(found, float)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * a.size)
    assert inner_product(a, b, n_threads=3) == found


def test_an_inner_product_of_views():
    a, b = arrays((50, 6), np.float32)
    np.testing.assert_allclose(inner_product(a.T, b.T), np.sum(a.astype(np.float64) * b), rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_sums_in_place(shape, dtype, threads):
    target, source = arrays(shape, dtype)
    factor = dtype(0.3)
    added, turned = target.copy(), target.copy()
    add_multiple(added, factor, source, n_threads=threads)
    np.testing.assert_array_equal(added, target + factor * source)
    scale_and_add(turned, factor, source, n_threads=threads)
    np.testing.assert_array_equal(turned, factor * target + source)


def test_shapes_and_types_that_differ_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        inner_product(np.ones(10), np.ones(3))
    for source in (np.ones((4, 1)), np.ones((4, 3), dtype=np.float32)):
        with pytest.raises(ValueError, match="one shape and type"):
            add_multiple(np.zeros((4, 3)), 1.0, source)


def test_a_target_that_would_be_copied_is_refused():
    with pytest.raises(ValueError, match="target must be C-ordered"):
        add_multiple(np.zeros((3, 2)).T, 1.0, np.ones((2, 3)))


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
        csr_times_dense(matrix, W),
        rows_times(A, np.eye(9)),
        StreamedTwoWay(matrix, width=9).transposed_times(A),
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
