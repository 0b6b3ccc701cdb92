"""Label frequencies against counting."""

import numpy as np
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise import label_frequencies
from tagwise.data import load_dataset


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 999))
def test_frequencies_are_counts(n_rows, n_labels, seed):
    Y = sp.random(n_rows, n_labels, 0.2, format="csr", random_state=seed, data_rvs=np.ones)
    expected = sorted((int(count) for count in Y.toarray().sum(axis=0)), reverse=True)
    for given_form in (Y, Y.toarray(), sp.coo_matrix(Y)):
        assert label_frequencies(given_form).tolist() == expected


def test_stored_zeros_are_no_labels():
    Y = sp.csr_matrix((np.array([1.0, 0.0, 1.0]), np.array([0, 1, 0]), np.array([0, 2, 3])), shape=(2, 3))
    assert label_frequencies(Y).tolist() == [2, 0, 0]


def test_figure_1_on_bibtex(data_folder):
    Y = load_dataset("bibtex").Y_train
    frequencies = label_frequencies(Y)
    assert len(frequencies) == Y.shape[1] == 159
    assert frequencies.sum() == Y.nnz
    assert (frequencies[0], frequencies[-1]) == (691, 28)
    assert (np.diff(frequencies) <= 0).all()
    # A heavy tail: most labels have few rows.
    assert (frequencies < 63).sum() > 90
