"""The principal label directions are the right singular vectors of the centred labels, dense or by Lanczos."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.baselines import label_directions
from tagwise.baselines.label_directions import (
    label_rates,
    principal_label_directions,
    times_centred,
    transposed_times_centred,
)


def labels():
    rng = np.random.default_rng(3)
    Y = (rng.random((50, 12)) < np.linspace(0.1, 0.6, 12)).astype(float)
    Y[:, 2], Y[:, 5] = 0, 1
    return sp.csr_matrix(Y)


@pytest.mark.parametrize("largest_dense", [2000, 0], ids=["dense", "lanczos"])
def test_they_span_what_the_svd_spans(monkeypatch, largest_dense):
    monkeypatch.setattr(label_directions, "_LARGEST_DENSE", largest_dense)
    Y = labels()
    V = principal_label_directions(Y, 4, np.random.default_rng(0))
    centred = Y.toarray() - Y.toarray().mean(axis=0)
    _, values, right = np.linalg.svd(centred)
    np.testing.assert_allclose(np.abs(np.sum(V * right[:4].T, axis=0)), 1, atol=1e-8)
    np.testing.assert_allclose(np.linalg.norm(centred @ V, axis=0), values[:4], rtol=1e-8)
    np.testing.assert_allclose(V[[2, 5]], 0)


def test_no_more_directions_than_labels_that_vary():
    assert principal_label_directions(labels(), 12, np.random.default_rng(0)).shape == (12, 10)
    nothing = principal_label_directions(sp.csr_matrix((5, 3)), 2, np.random.default_rng(0))
    np.testing.assert_array_equal(nothing, np.zeros((3, 1)))


def test_centred_products():
    Y, rng = labels(), np.random.default_rng(1)
    rates, centred = label_rates(Y), Y.toarray() - Y.toarray().mean(axis=0)
    right, left = rng.standard_normal((12, 3)), rng.standard_normal((50, 3))
    np.testing.assert_allclose(times_centred(Y, rates, right), centred @ right, atol=1e-12)
    np.testing.assert_allclose(transposed_times_centred(Y, rates, left), centred.T @ left, atol=1e-12)
