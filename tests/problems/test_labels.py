import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.losses import LOSSES, get_loss
from tagwise.problems.labels import TrainingLabels

N, L = 30, 6


def make(masked, weighted, seed=0):
    """Labels, and the dense ω and targets that they stand for."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((N, L)) < 0.3).astype(float)
    mask = (rng.random((N, L)) < 0.5).astype(float)
    Y[0], Y[1], mask[:2] = 1, 0, 1  # every label has a known row that is on and one that is off
    weight = rng.uniform(0.5, 4, L) if weighted else None
    labels = TrainingLabels.build(sp.csr_matrix(Y), sp.csr_matrix(mask) if masked else None, weight)
    omega = mask if masked else np.ones((N, L))
    if weighted:
        omega = omega * np.where(Y > 0, weight, 1)
    return labels, Y, omega


CASES = [(False, False), (False, True), (True, False), (True, True)]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("masked", "weighted"), CASES)
def test_the_constant_of_the_rates_minimises_the_loss(loss, masked, weighted):
    labels, Y, omega = make(masked, weighted)
    loss = get_loss(loss)
    targets = loss.targets(Y)

    def total(b):
        return np.sum(omega * loss.value(targets, np.broadcast_to(b, Y.shape)), axis=0)

    b = loss.constant(labels.rates())
    for move in (-1e-3, 1e-3):
        assert (total(b + move) > total(b)).all()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("masked", "weighted"), CASES)
def test_slope_is_the_derivative_in_the_scores(loss, masked, weighted):
    labels, Y, omega = make(masked, weighted)
    loss = get_loss(loss)
    b = np.linspace(-1, 1, L)
    slope, row = labels.slope_at(loss, b)
    dense = slope.matrix.toarray() + (0 if row is None else row)
    np.testing.assert_allclose(dense, omega * loss.first(loss.targets(Y), np.broadcast_to(b, Y.shape)), atol=1e-12)


def test_what_is_outside_the_mask_is_gone():
    mask = sp.csr_matrix(np.eye(N, L))
    labels = TrainingLabels.build(sp.csr_matrix(np.ones((N, L))), mask, None)
    np.testing.assert_array_equal(labels.positives.toarray(), mask.toarray())


def test_labels_of_which_nothing_is_known():
    mask = np.ones((N, L))
    mask[:, [1, 4]] = 0
    Y = sp.csr_matrix(np.eye(N, L))
    labels = TrainingLabels.build(Y, sp.csr_matrix(mask), None)
    np.testing.assert_array_equal(labels.unknown_labels(), [1, 4])
    assert labels.rates()[1] == 0
    everything = TrainingLabels.build(Y, None, None)
    assert len(everything.unknown_labels()) == 0
    with pytest.raises(AttributeError, match="no mask"):
        _ = everything.observed_weights
