"""Variational inference of labels: against a numpy twin, its bound, and planted labels."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.baselines import label_inference
from tagwise.baselines.label_inference import SparseLabelModel

A, B, SIGMA, CHI = 0.01, 0.02, 0.05, 0.1


def model_of(codes, sweeps=6, **changes):
    given = {"feature_noise": SIGMA, "code_noise": CHI, "prior_shape": A, "prior_rate": B, **changes}
    return SparseLabelModel(codes=codes, sweeps=sweeps, **given)


def slow(p, codes, known, sweeps):
    """Means of y and z, and the negative bound, of one row with ``known`` a dict of label: value."""
    mu, s = np.zeros(len(codes)), np.zeros(len(codes))
    mu[list(known)] = list(known.values())
    alpha = np.full(len(codes), (A + 0.5) / (B + 0.5 * label_inference._START_SQUARE))
    free = [j for j in range(len(codes)) if j not in known and codes[j].any()]

    def z_mean():
        return (p / SIGMA + mu @ codes / CHI) / (1 / SIGMA + 1 / CHI)

    z = z_mean()
    for sweep in range(sweeps):
        for j in free:
            s[j] = 1 / (alpha[j] + codes[j] @ codes[j] / CHI)
            others = mu @ codes - mu[j] * codes[j]
            mu[j] = s[j] * codes[j] @ (z - others) / CHI
            if sweep >= label_inference._FIXED_SWEEPS:
                alpha[j] = (A + 0.5) / (B + 0.5 * (mu[j] ** 2 + s[j]))
        z = z_mean()
    bound = 0.5 * np.sum((z - p) ** 2) / SIGMA + 0.5 * np.sum((z - mu @ codes) ** 2) / CHI
    for j in free:
        bound += 0.5 * s[j] * codes[j] @ codes[j] / CHI - 0.5 * np.log(s[j])
        bound += (A + 0.5) * np.log(B + 0.5 * (mu[j] ** 2 + s[j]))
    return mu, z, bound


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    codes = rng.standard_normal((9, 6)) / np.sqrt(6)
    codes[4] = 0
    known = sp.csr_matrix(rng.random((150, 9)) < 0.4)
    return codes, rng.standard_normal((150, 6)), known, (rng.random(known.nnz) < 0.3).astype(float)


@pytest.mark.parametrize("sweeps", [1, 3, 8])
def test_it_equals_its_twin(problem, sweeps):
    codes, P, known, values = problem
    means, bound = model_of(codes, sweeps, n_threads=2).measurements(P, known, values)
    total = 0.0
    for row in range(len(P)):
        stored = slice(known.indptr[row], known.indptr[row + 1])
        _, z, one = slow(P[row], codes, dict(zip(known.indices[stored], values[stored])), sweeps)
        np.testing.assert_allclose(means[row], z, atol=1e-10)
        total += one
    assert bound == pytest.approx(total, rel=1e-10)
    labels = model_of(codes, sweeps).labels(P)
    np.testing.assert_allclose(labels, [slow(p, codes, {}, sweeps)[0] for p in P], atol=1e-10)
    assert (labels[:, 4] == 0).all()


def test_the_bound_falls_from_sweep_to_sweep(problem):
    codes, P, known, values = problem
    bounds = [model_of(codes, sweeps).measurements(P, known, values)[1] for sweeps in range(4, 30)]
    assert (np.diff(bounds) <= 1e-9).all()
    assert bounds[-1] < bounds[0] - 1


def test_planted_labels_come_back_sparse():
    rng = np.random.default_rng(1)
    codes = rng.standard_normal((60, 40)) / np.sqrt(40)
    truth = np.zeros((20, 60))
    for row in truth:
        row[rng.choice(60, 3, replace=False)] = 1
    noise = {"feature_noise": 1e-3, "code_noise": 1e-3, "prior_shape": 1e-3, "prior_rate": 1e-3}
    found = model_of(codes, 200, **noise).labels(truth @ codes)
    np.testing.assert_allclose(found, truth, atol=0.1)


def test_everything_known_leaves_only_the_compressed_labels(problem):
    codes, P, _, _ = problem
    Y = (np.random.default_rng(2).random((150, 9)) < 0.3).astype(float)
    means, _ = model_of(codes).measurements(P, sp.csr_matrix(np.ones_like(Y)), Y.ravel())
    np.testing.assert_allclose(means, (CHI * P + SIGMA * Y @ codes) / (SIGMA + CHI), atol=1e-12)
