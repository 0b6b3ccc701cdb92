"""Hints to the processor change no result, and are left out where numba cannot build them."""

import numpy as np
import pytest
from numba import njit

from tagwise.kernels import prefetch


def not_there():
    raise ImportError("cannot import name 'intrinsic' from 'numba.extending'")


@njit
def no_such_function(array, begin, end):
    return np.no_such_function(array)


@pytest.mark.parametrize("broken", [not_there, lambda: no_such_function])
def test_what_cannot_be_built_is_not_used(broken):
    assert prefetch.choose(broken) is prefetch.fetch_nothing


def test_the_hint_is_built_with_this_numba():
    assert prefetch.fetch is not prefetch.fetch_nothing


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64, np.uint16])
@pytest.mark.parametrize(("begin", "end"), [(0, 0), (3, 40), (0, 100), (90, 1 << 20), (5, 2)])
def test_any_part_of_an_array_can_be_asked_for(dtype, begin, end):
    """Also what lies beyond it: an address is a hint, not a read."""
    array = np.arange(100, dtype=dtype)
    prefetch.fetch(array, begin, end)
    np.testing.assert_array_equal(array, np.arange(100, dtype=dtype))
