import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import tagwise.data.splits
from tagwise.data import hide_labels
from tagwise.exceptions import InvalidInputError, InvalidTypeError


def labels(n_rows, n_labels):
    return sp.csr_matrix((n_rows, n_labels), dtype=np.float32)


@given(st.integers(0, 30), st.integers(1, 30), st.floats(0.001, 1), st.integers(0, 2**32))
def test_mask_is_canonical_and_of_the_shape_of_y(n_rows, n_labels, fraction, seed):
    mask = hide_labels(labels(n_rows, n_labels), fraction, seed)
    assert type(mask) is sp.csr_matrix
    assert mask.shape == (n_rows, n_labels)
    assert mask.dtype == np.float32
    mask.check_format(full_check=True)
    assert (mask.data == 1).all()
    # Strictly rising columns in each row: sorted and without duplicates.
    dense = mask.toarray()
    assert dense.sum() == mask.nnz
    assert mask.has_canonical_format


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_same_seed_same_mask_whatever_y_holds(seed, n_rows):
    Y = sp.random(n_rows, 7, 0.3, format="csr", random_state=0)
    Y.data[:] = 1
    one, other = hide_labels(Y, 0.4, seed), hide_labels(labels(n_rows, 7), 0.4, seed)
    assert (one != other).nnz == 0


def test_different_seeds_differ_and_a_generator_advances():
    Y = labels(50, 50)
    assert (hide_labels(Y, 0.5, 0) != hide_labels(Y, 0.5, 1)).nnz
    rng = np.random.default_rng(0)
    first, second = hide_labels(Y, 0.5, rng), hide_labels(Y, 0.5, rng)
    assert (first != second).nnz
    assert (first != hide_labels(Y, 0.5, 0)).nnz == 0


@pytest.mark.parametrize("fraction", [0.02, 0.2, 0.5, 0.9])
def test_every_entry_is_known_with_the_same_probability(fraction):
    n_rows, n_labels, repeats = 6, 5, 4000
    rng = np.random.default_rng(0)
    known = sum(hide_labels(labels(n_rows, n_labels), fraction, rng).toarray() for _ in range(repeats))
    deviation = np.sqrt(repeats * fraction * (1 - fraction))
    assert abs(known - repeats * fraction).max() < 4.5 * deviation
    # Independent entries: neighbours in the walk are known together with probability p².
    masks = [hide_labels(labels(1, 2), fraction, rng).toarray()[0] for _ in range(repeats)]
    both = sum(mask.all() for mask in masks)
    assert abs(both - repeats * fraction**2) < 4.5 * np.sqrt(repeats * fraction**2)


def test_chunks_join_without_a_seam(monkeypatch):
    monkeypatch.setattr(tagwise.data.splits, "_CHUNK", 7)
    mask = hide_labels(labels(200, 30), 0.3, 0)
    mask.check_format(full_check=True)
    assert mask.has_canonical_format
    assert abs(mask.nnz - 1800) < 4.5 * np.sqrt(6000 * 0.3 * 0.7)
    per_row = np.diff(mask.indptr)
    assert abs(per_row.mean() - 9) < 1
    for form in (labels(20, 3), np.eye(20, 3)):
        assert (hide_labels(form, 1.0, 0).toarray() == 1).all()


def test_many_entries_and_few_known_ones():
    mask = hide_labels(sp.csr_matrix((3_000_000, 3_000_000), dtype=np.float32), 1e-9, 0)
    assert abs(mask.nnz - 9000) < 4.5 * np.sqrt(9000)
    mask.check_format(full_check=True)
    assert hide_labels(sp.csr_matrix((3_000_000, 3_000_000), dtype=np.float32), 1e-300, 0).nnz == 0


def test_bad_arguments():
    for fraction in (0, -0.1, 1.01, np.nan, np.inf, "0.5", None, True):
        with pytest.raises((InvalidInputError, InvalidTypeError), match="fraction_observed"):
            hide_labels(labels(3, 3), fraction)
    for seed in (-1, "a", 1.5, True):
        with pytest.raises((InvalidInputError, InvalidTypeError), match="random_state"):
            hide_labels(labels(3, 3), 0.5, seed)


def test_y_is_checked():
    with pytest.raises(InvalidInputError, match="only 0 and 1"):
        hide_labels(np.full((2, 2), 3), 0.5)
    with pytest.raises(InvalidInputError, match="two dimensions"):
        hide_labels(np.ones(3), 0.5)
