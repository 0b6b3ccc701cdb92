"""A batch of linear models against the plain sum over known pairs that it stands for, for every loss."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from training_labels import training_labels

from tagwise.losses import LOSSES
from tagwise.objectives.linear_block import Design, LinearBlock

N, D, L = 40, 7, 5
REG = 0.7


class Problem:
    """Small dense data, a block of the labels ``ids``, and the objective as one reads it."""

    def __init__(self, loss, masked, weighted, *, fit_intercept=True, storage=sp.csr_matrix, dtype=np.float64):
        rng = np.random.default_rng(3)
        self.loss = LOSSES[loss]
        self.X = rng.standard_normal((N, D)) + 0.5
        Y = (rng.random((N, L)) < 0.3).astype(float)
        mask = (rng.random((N, L)) < 0.5).astype(float)
        weight = rng.uniform(0.5, 4, L) if weighted else None
        self.ids = np.array([3, 0, 4])
        omega = (mask if masked else np.ones((N, L))) * (np.where(Y > 0, weight, 1) if weighted else 1)
        self.omega, self.Y = omega[:, self.ids], Y[:, self.ids]
        labels = training_labels(
            sp.csr_matrix(Y), sp.csr_matrix(mask) if masked else None, weight, dtype=dtype, n_threads=1
        )
        design = Design.build(storage(self.X.astype(dtype)), fit_intercept=fit_intercept, n_threads=2)
        self.batch = labels.batch(self.ids, self.loss, with_start=fit_intercept)
        self.block = LinearBlock(design, self.batch, self.loss, REG)
        self.point = (0.7 * rng.standard_normal(self.block.start().shape)).astype(dtype)

    def objective(self, Z, b):
        targets = self.loss.targets(self.Y)
        losses = self.loss.value(targets, self.X @ Z + b)
        return np.sum(self.omega * losses, axis=0) + 0.5 * REG * np.sum(Z**2, axis=0)


@pytest.fixture(params=product(LOSSES, (False, True), (False, True)), ids=str)
def case(request):
    return request.param


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_value_is_the_sum_over_known_pairs_and_the_start_is_the_best_constant(case, fit_intercept):
    for storage in (sp.csr_matrix, np.asarray):
        p = Problem(*case, fit_intercept=fit_intercept, storage=storage)
        Z, b = p.block.coefficients(p.point)
        p.block.move_to(p.point)
        value = p.block.value()
        assert (value.shape, value.dtype) == ((1, 3), np.float64)
        np.testing.assert_allclose(value[0], p.objective(Z, b), rtol=1e-12)
        assert fit_intercept or (b == 0).all()
    if fit_intercept:
        p.block.move_to(p.block.start())
        Z, b = p.block.coefficients(p.block.start())
        np.testing.assert_array_equal(Z, 0)
        for shift in (-0.01, 0.01):
            assert (p.objective(Z, b + shift) > p.objective(Z, b)).all()
        np.testing.assert_allclose(p.block.gradient()[-1], 0, atol=1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_derivatives_against_differences(case, fit_intercept):
    p = Problem(*case, fit_intercept=fit_intercept)
    p.block.move_to(p.point)
    gradient = p.block.gradient()
    narrow = Problem(*case, fit_intercept=fit_intercept, dtype=np.float32)
    narrow.block.move_to(narrow.point)
    assert narrow.block.gradient().dtype == narrow.block.hessian_vector(narrow.point).dtype == np.float32
    assert narrow.block.coefficients(narrow.point)[0].dtype == np.float32
    rng = np.random.default_rng(1)
    step = 1e-6
    for _ in range(4):
        direction = rng.standard_normal(p.point.shape)
        p.block.move_to(p.point)
        product = p.block.hessian_vector(direction)
        ends = []
        for sign in (1, -1):
            p.block.move_to(p.point + sign * step * direction)
            ends.append((p.block.value(), p.block.gradient()))
        slope = (ends[0][0] - ends[1][0])[0] / (2 * step)
        np.testing.assert_allclose(np.sum(gradient * direction, axis=0), slope, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(product, (ends[0][1] - ends[1][1]) / (2 * step), rtol=1e-5, atol=1e-5)


def test_a_batch_holds_targets_and_weights_of_its_labels():
    positives = sp.csr_matrix(np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1.0]]))
    observed = sp.csr_matrix(np.array([[1, 1, 0], [1, 1, 1], [0, 0, 1.0]]))
    labels = training_labels(positives, observed, np.array([2.0, 3.0, 5.0]))
    batch = labels.batch(np.array([2, 0]), LOSSES["logistic"], with_start=True)
    np.testing.assert_array_equal(batch.targets, [[-1, 1], [-1, -1], [1, -1]])
    np.testing.assert_array_equal(batch.weights, [[0, 2], [1, 1], [5, 0]])
    np.testing.assert_allclose(batch.start, np.log([5, 2]))
