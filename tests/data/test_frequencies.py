"""Label frequencies against counting."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.data import load_dataset
from tagwise.data.frequencies import frequency_histogram, label_frequencies
from tagwise.exceptions import InvalidInputError


def random_labels(seed, shape, density=0.2):
    return sp.random(*shape, density, format="csr", random_state=seed, data_rvs=np.ones)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 999), st.integers(1, 12))
def test_frequencies_are_counts(n_rows, n_labels, seed, bins_per_decade):
    Y = random_labels(seed, (n_rows, n_labels))
    expected = sorted((int(count) for count in Y.toarray().sum(axis=0)), reverse=True)
    for given_form in (Y, Y.toarray(), sp.coo_matrix(Y)):
        assert label_frequencies(given_form).tolist() == expected
    histogram = frequency_histogram(label_frequencies(Y), bins_per_decade=bins_per_decade)
    counted = [
        sum(low <= count < high for count in expected) for low, high in zip(histogram.edges[:-1], histogram.edges[1:])
    ]
    assert histogram.n_labels.tolist() == counted
    assert histogram.n_unused == expected.count(0)
    assert sum(counted) + histogram.n_unused == n_labels


def test_stored_zeros_are_no_labels():
    Y = sp.csr_matrix((np.array([1.0, 0.0, 1.0]), np.array([0, 1, 0]), np.array([0, 2, 3])), shape=(2, 3))
    assert label_frequencies(Y).tolist() == [2, 0, 0]


def test_edges_are_whole_and_widen_by_decades():
    histogram = frequency_histogram(np.array([1, 1, 2, 9, 10, 99, 100, 0]), bins_per_decade=2)
    assert histogram.edges.tolist() == [1, 3, 10, 32, 100, 316]
    assert histogram.n_labels.tolist() == [3, 1, 1, 1, 1]
    assert histogram.n_unused == 1
    unused = frequency_histogram(np.zeros(4, dtype=int))
    assert (unused.edges.tolist(), unused.n_labels.tolist(), unused.n_unused) == ([1], [], 4)


@pytest.mark.parametrize("frequencies", [np.ones((2, 2), dtype=int), np.array([0.5]), np.array([-1])])
def test_bad_frequencies(frequencies):
    with pytest.raises(InvalidInputError, match="frequencies must be"):
        frequency_histogram(frequencies)
    with pytest.raises(InvalidInputError, match="bins_per_decade must be at least 1"):
        frequency_histogram(np.array([1]), bins_per_decade=0)


def test_figure_1_on_bibtex(data_folder):
    Y = load_dataset("bibtex").Y_train
    frequencies = label_frequencies(Y)
    assert len(frequencies) == Y.shape[1] == 159
    assert frequencies.sum() == Y.nnz
    assert (frequencies[0], frequencies[-1]) == (691, 28)
    assert (np.diff(frequencies) <= 0).all()
    histogram = frequency_histogram(frequencies)
    assert histogram.n_labels.sum() == 159
    # A heavy tail: most labels are in the lower bins, a single one in the last.
    assert histogram.n_labels[histogram.edges[:-1] < 63].sum() > 90
    assert histogram.n_labels[-1] == 1
