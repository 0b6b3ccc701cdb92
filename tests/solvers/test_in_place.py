import tracemalloc

import numpy as np
import pytest

from tagwise.solvers.in_place import add_scaled, scale_then_add


@pytest.mark.parametrize(
    ("shape", "factor_shape"),
    [((40_000, 3), (1, 1)), ((40_000, 3), (40_000, 1)), ((7, 30_000), (1, 30_000)), ((100_000,), (1,)), ((5, 2), ())],
)
def test_adds_a_multiple_over_block_borders(shape, factor_shape):
    rng = np.random.default_rng(0)
    target, source, factor = (rng.standard_normal(size) for size in (shape, shape, factor_shape))
    factor = np.float64(factor) if factor_shape == () else factor
    expected = target + factor * source
    add_scaled(target, factor, source)
    np.testing.assert_array_equal(target, expected)


def test_a_source_of_fewer_columns_is_repeated():
    target = np.zeros((4, 3))
    add_scaled(target, np.float64(2), np.arange(4.0)[:, None])
    np.testing.assert_array_equal(target, np.repeat(2 * np.arange(4.0)[:, None], 3, axis=1))


def test_a_source_of_another_type_is_converted():
    target, source = np.ones((4, 3), dtype=np.float32), np.full((4, 3), 0.5)
    add_scaled(target, np.float32(2), source)
    np.testing.assert_array_equal(target, 2)
    scale_then_add(target, np.full((1, 1), 3, dtype=np.float32), source)
    np.testing.assert_array_equal(target, 6.5)
    assert target.dtype == np.float32


@pytest.mark.parametrize("factor_shape", [(1, 1), (40_000, 1), (1, 3)])
@pytest.mark.parametrize("threads", [1, 3])
def test_scales_then_adds(factor_shape, threads):
    rng = np.random.default_rng(0)
    target, source, factor = (rng.standard_normal(size) for size in ((40_000, 3), (40_000, 3), factor_shape))
    expected = factor * target + source
    scale_then_add(target, factor, source, n_threads=threads)
    np.testing.assert_array_equal(target, expected)


def test_makes_no_copy():
    target, source = np.zeros((1_000_000, 2), dtype=np.float32), np.ones((1_000_000, 2), dtype=np.float32)
    tracemalloc.start()
    add_scaled(target, np.float32(3), source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (target == 3).all()
    assert peak < target.nbytes / 20


def test_nothing_stays_nothing():
    target = np.zeros((0, 3))
    add_scaled(target, np.ones((1, 1)), np.zeros((0, 3)))
    assert target.shape == (0, 3)
