from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from training_labels import training_labels

from tagwise.losses import LOSSES

N, L = 30, 6


def make(masked, weighted, seed=0):
    """Labels, and the dense ω and targets that they stand for."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((N, L)) < 0.3).astype(float)
    mask = (rng.random((N, L)) < 0.5).astype(float)
    Y[0], Y[1], mask[:2] = 1, 0, 1  # every label has a known row that is on and one that is off
    weight = rng.uniform(0.5, 4, L) if weighted else None
    labels = training_labels(sp.csr_matrix(Y), sp.csr_matrix(mask) if masked else None, weight)
    omega = mask if masked else np.ones((N, L))
    if weighted:
        omega = omega * np.where(Y > 0, weight, 1)
    return labels, Y, omega


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_the_constant_of_the_rates_minimises_the_loss_and_slope_is_its_derivative_in_the_scores(loss):
    for masked, weighted in product((False, True), repeat=2):
        labels, Y, omega = make(masked, weighted)
        targets = loss.targets(Y)

        def total(b):
            return np.sum(omega * loss.value(targets, np.broadcast_to(b, Y.shape)), axis=0)  # noqa: B023

        b = loss.constant(labels.rates())
        for move in (-1e-3, 1e-3):
            assert (total(b + move) > total(b)).all()
        b = np.linspace(-1, 1, L)
        slope, row = labels.slope_at(loss, b)
        weight = np.ones(N) if labels.full_weight is None else labels.full_weight
        dense = slope.matrix.toarray() + (0 if row is None else np.outer(weight, row))
        np.testing.assert_allclose(dense, omega * loss.first(targets, np.broadcast_to(b, Y.shape)), atol=1e-12)


def test_what_is_outside_the_mask_is_gone_and_labels_of_which_nothing_is_known_are_named():
    mask = np.ones((N, L))
    mask[:, [1, 4]] = 0
    Y = sp.csr_matrix(np.ones((N, L)))
    labels = training_labels(Y, sp.csr_matrix(mask), None)
    np.testing.assert_array_equal(labels.positives.toarray(), mask)
    np.testing.assert_array_equal(labels.unknown_labels(), [1, 4])
    np.testing.assert_array_equal(labels.rates(), mask[0])
    everything = training_labels(Y, None, None)
    assert len(everything.unknown_labels()) == 0
    with pytest.raises(AttributeError, match="no mask"):
        _ = everything.observed_weights
