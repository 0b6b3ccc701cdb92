"""Inference of labels: both posteriors against slow twins, their bounds, planted labels, limits."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.baselines import label_inference
from tagwise.baselines.label_inference import JointLabelModel, LabelPrior, SparseLabelModel

A, B, SIGMA, CHI = 0.01, 0.02, 0.05, 0.1


def prior(sweeps, **changes):
    return LabelPrior(SIGMA, CHI, A, B, n_sweeps=sweeps)._replace(**changes)


def factored_twin(p, codes, known, sweeps):
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


def joint_twin(p, codes, known, sweeps):
    """Means of y and Φy, and the negative bound, from the L×L covariance itself and each term of the bound."""
    v = SIGMA + CHI
    free = [j for j in range(len(codes)) if j not in known and codes[j].any()]
    y = np.zeros(len(codes))
    y[list(known)] = list(known.values())
    Phi, r = codes[free].T, p - y @ codes
    square = np.full(len(free), label_inference._START_SQUARE)
    for _ in range(sweeps):
        alpha = (A + 0.5) / (B + 0.5 * square)
        covariance = np.linalg.inv(np.diag(alpha) + Phi.T @ Phi / v)
        mu = covariance @ Phi.T @ r / v
        square = mu**2 + np.diag(covariance)
    y[free] = mu
    bound = 0.5 * (np.sum((r - Phi @ mu) ** 2) + np.trace(Phi @ covariance @ Phi.T)) / v + 0.5 * len(p) * np.log(v)
    bound += (A + 0.5) * np.sum(np.log(B + 0.5 * square)) - 0.5 * np.linalg.slogdet(covariance)[1]
    return y, y @ codes, bound


# The joint posterior computes in float32.
POSTERIORS = pytest.mark.parametrize(
    ("model", "twin", "error"),
    [(SparseLabelModel, factored_twin, 1e-10), (JointLabelModel, joint_twin, 1e-4)],
    ids=["factored", "joint"],
)


@pytest.fixture
def rows():
    """Codes, one of them zeros, predicted measurements, known pairs and their labels."""
    rng = np.random.default_rng(0)
    codes = rng.standard_normal((9, 6)) / np.sqrt(6)
    codes[4] = 0
    known = sp.csr_matrix(rng.random((150, 9)) < 0.4)
    return codes, rng.standard_normal((150, 6)), known, (rng.random(known.nnz) < 0.3).astype(float)


@POSTERIORS
def test_inference_equals_its_twin(rows, model, twin, error):
    codes, P, known, values = rows
    for sweeps in (1, 2, 5):
        means, bound = model(codes, prior(sweeps), 2).measurements(P, known, values)
        again, same_bound = model(codes, prior(sweeps)).measurements(P, known, values)
        np.testing.assert_array_equal(means, again)
        assert bound == same_bound
        pairs = zip(np.split(known.indices, known.indptr[1:-1]), np.split(values, known.indptr[1:-1]))
        expected = [twin(p, codes, dict(zip(*stored)), sweeps) for p, stored in zip(P, pairs)]
        np.testing.assert_allclose(means, [z for _, z, _ in expected], atol=error)
        assert bound == pytest.approx(sum(one for _, _, one in expected), rel=error)
        labels = model(codes, prior(sweeps)).labels(P)
        np.testing.assert_allclose(labels, [twin(p, codes, {}, sweeps)[0] for p in P], atol=error)
        assert (labels[:, 4] == 0).all()


@POSTERIORS
def test_the_bound_falls_from_sweep_to_sweep(rows, model, twin, error):
    codes, P, known, values = rows
    first = 4 if model is SparseLabelModel else 1  # while precisions stay, the bound is another one
    bounds = [model(codes, prior(sweeps)).measurements(P, known, values)[1] for sweeps in range(first, 20)]
    assert (np.diff(bounds) <= 10 * error).all()
    assert bounds[-1] < bounds[0] - 1


def test_planted_labels_come_back_sparse():
    rng = np.random.default_rng(1)
    codes = rng.standard_normal((60, 40)) / np.sqrt(40)
    truth = np.zeros((20, 60))
    for row in truth:
        row[rng.choice(60, 3, replace=False)] = 1
    noise = {"feature_noise": 1e-3, "code_noise": 1e-3, "shape": 1e-3, "rate": 1e-3}
    found = SparseLabelModel(codes, prior(200, **noise)).labels(truth @ codes)
    np.testing.assert_allclose(found, truth, atol=0.1)


def test_everything_known_leaves_only_the_compressed_labels(rows):
    codes, P, _, _ = rows
    Y = (np.random.default_rng(2).random((150, 9)) < 0.3).astype(float)
    means, _ = SparseLabelModel(codes, prior(6)).measurements(P, sp.csr_matrix(np.ones_like(Y)), Y.ravel())
    np.testing.assert_allclose(means, (CHI * P + SIGMA * Y @ codes) / (SIGMA + CHI), atol=1e-12)


def test_the_joint_bound_is_below_the_factored_one(rows):
    """A posterior with covariances can only be nearer to the exact one. Sums of z's part are constants apart."""
    codes, P, known, values = rows
    joint = JointLabelModel(codes, prior(60)).measurements(P, known, values)[1]
    factored = SparseLabelModel(codes, prior(200)).measurements(P, known, values)[1]
    # q(z) of the factored bound leaves out ½m·log of its variance and the potentials' constants: with z eliminated by
    # hand, ½ log v appears and the determinant of q(z), σ²χ²/v, goes.
    assert joint < factored + 0.5 * len(P) * P.shape[1] * np.log(SIGMA + CHI)


def test_labels_that_codes_cannot_tell_apart_share_a_row_equally():
    """Two labels of one code: the joint posterior keeps them equal, the factored one gives all to the first."""
    code = np.array([[1.0, 0.5]])
    codes = np.vstack([code, code])
    first, second = JointLabelModel(codes, prior(30)).labels(code)[0]
    assert first == pytest.approx(second, rel=1e-4)
    assert first + second > 0.5
    one, other = SparseLabelModel(codes, prior(30)).labels(code)[0]
    assert one > 2 * other
