"""Value, gradient and Hessian of both blocks, for every loss × {full, masked} × {plain, weighted}, by differences."""

import numpy as np
import pytest
import scipy.sparse as sp
from training_labels import training_labels

from tagwise.kernels import feature_matrix
from tagwise.losses import LOSSES, get_loss
from tagwise.objectives import pair_losses
from tagwise.objectives.pair_losses import AllPairs, FeatureProblem, LabelProblem, label_side, row_side
from tagwise.objectives.squared import with_intercept

N, D, L, K = 25, 7, 6, 3
REG = 0.6
STEP = 1e-5


class Setting:
    def __init__(self, loss, masked, weighted, dtype=np.float64):
        rng = np.random.default_rng(4)
        self.loss = get_loss(loss)
        self.X = rng.standard_normal((N, D)).astype(dtype)
        self.Y = (rng.random((N, L)) < 0.3).astype(float)
        self.Y[3], self.Y[:, 2] = 0, 0
        mask = (rng.random((N, L)) < 0.5).astype(float)
        mask[5], mask[:, 4] = 0, 0
        weight = rng.uniform(0.5, 4, L) if weighted else None
        self.labels = training_labels(
            sp.csr_matrix(self.Y), sp.csr_matrix(mask) if masked else None, weight, dtype=dtype
        )
        self.omega = mask if masked else np.ones((N, L))
        if weighted:
            self.omega = self.omega * np.where(self.Y > 0, weight, 1)
        self.W = rng.standard_normal((D, K)).astype(dtype)
        self.H = rng.standard_normal((L, K + 1)).astype(dtype)

    def losses(self, W, H):
        scores = self.X @ W @ H[:, :K].T + (H[:, K] if H.shape[1] > K else 0)
        return self.omega * self.loss.value(self.loss.targets(self.Y), scores)


@pytest.fixture(params=[(name, m, w) for name in LOSSES for m in (False, True) for w in (False, True)], ids=str)
def setting(request):
    return Setting(*request.param)


def value_at(problem, x):
    problem.move_to(x)
    return problem.value()


def check_derivatives(problem, x, rng):
    value = value_at(problem, x).copy()
    gradient = problem.gradient()
    for _ in range(4):
        direction = rng.standard_normal(x.shape)
        ahead, behind = value_at(problem, x + STEP * direction).sum(), value_at(problem, x - STEP * direction).sum()
        assert np.sum(gradient * direction) == pytest.approx((ahead - behind) / (2 * STEP), rel=1e-5, abs=1e-6)
        problem.move_to(x + STEP * direction)
        ahead = problem.gradient().copy()
        problem.move_to(x - STEP * direction)
        behind = problem.gradient().copy()
        problem.move_to(x)
        problem.gradient()
        curved = problem.hessian_vector(direction)
        np.testing.assert_allclose(curved, (ahead - behind) / (2 * STEP), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(value_at(problem, x), value)


@pytest.mark.parametrize("intercept", [True, False])
def test_both_blocks(setting, intercept):
    s, rng = setting, np.random.default_rng(0)
    H, A = s.H if intercept else np.ascontiguousarray(s.H[:, :K]), s.X @ s.W
    problem = FeatureProblem(feature_matrix(s.X), row_side(s.labels, s.loss), H, K)
    assert value_at(problem, s.W).item() == pytest.approx(s.losses(s.W, H).sum())
    check_derivatives(problem, s.W, rng)
    problem.move_to(s.W, A)  # at hand already
    assert problem.value().item() == pytest.approx(s.losses(s.W, H).sum())
    problem = LabelProblem(label_side(s.labels, s.loss), with_intercept(A) if intercept else A, K, REG)
    expected = s.losses(s.W, H).sum(axis=0) + 0.5 * REG * np.sum(H[:, :K] ** 2, axis=1)
    np.testing.assert_allclose(value_at(problem, H)[:, 0], expected)
    check_derivatives(problem, H, rng)


@pytest.mark.parametrize("loss", LOSSES)
def test_blocks_and_threads_do_not_change_a_bit_and_float32_stays(loss, monkeypatch):
    monkeypatch.setattr(pair_losses, "_BLOCK_SCORES", 4 * L)
    s = Setting(loss, False, True, dtype=np.float32)
    results = []
    for threads in (1, 2, 3):
        pairs = AllPairs(s.labels.weighted_positives, s.loss, n_threads=threads)
        values = pairs.evaluate(s.X @ s.W, np.ascontiguousarray(s.H[:, :K]))
        results.append((values, pairs.slope(), pairs.curvature(s.X @ s.W)))
    for other in results[1:]:
        for ours, theirs in zip(other, results[0]):
            assert ours.tobytes() == theirs.tobytes()
    assert results[0][1].dtype == results[0][2].dtype == np.float32
    monkeypatch.undo()
    pairs = AllPairs(s.labels.weighted_positives, s.loss)
    np.testing.assert_allclose(pairs.evaluate(s.X @ s.W, np.ascontiguousarray(s.H[:, :K])), results[0][0], rtol=1e-5)
