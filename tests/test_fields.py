"""Slices of arrays and CSR matrices along an axis, against dense numpy."""

import numpy as np
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.fields import put, take


def dense(array):
    return array.toarray() if sp.issparse(array) else array


@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from([0, 1]), st.data())
def test_take_and_put(n_rows, n_columns, axis, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    array = rng.integers(0, 3, (n_rows, n_columns)).astype(np.float32)
    size = array.shape[axis]
    permuted = data.draw(st.permutations(range(size)))
    source = np.array([place if data.draw(st.booleans()) else -1 for place in permuted] + [-1])
    places = np.array(permuted[: data.draw(st.integers(1, size))])
    new = np.ones((len(places), n_columns) if axis == 0 else (n_rows, len(places)), dtype=np.float32)
    taken = np.take(np.append(array, np.zeros_like(array.take([0], axis)), axis), source, axis)
    replaced = array.copy()
    replaced[(slice(None),) * axis + (places,)] = 1
    for form in (np.asarray, sp.csr_matrix):
        np.testing.assert_array_equal(dense(take(form(array), source, axis)), taken)
        np.testing.assert_array_equal(dense(put(form(array), places, form(new), axis)), replaced)
