"""Which labels of a shortlist a matrix stores."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.shortlist import pairs_listed


def problem(n=200, n_labels=30, width=8):
    rng = np.random.default_rng(0)
    Y = rng.random((n, n_labels)) < 0.3
    Y[7] = False
    labels = np.array([rng.permutation(n_labels)[:width] for _ in range(n)])
    labels[rng.random(labels.shape) < 0.1] = -1
    return Y, labels


@pytest.mark.parametrize("n_threads", [1, 3])
def test_each_label_is_looked_up_in_its_row(n_threads):
    Y, labels = problem()
    found = pairs_listed(labels, sp.csr_matrix(Y.astype(np.float32)), n_threads=n_threads)
    expected = [[bool(label >= 0 and Y[row, label]) for label in listed] for row, listed in enumerate(labels)]
    np.testing.assert_array_equal(found, expected)
    assert found.any()
    assert not found[7].any()


def test_shapes_that_do_not_fit_are_named():
    Y, labels = problem()
    with pytest.raises(InvalidInputError, match="must be n×M and n×L"):
        pairs_listed(labels[:5], sp.csr_matrix(Y.astype(np.float32)))
