"""The quadratic of full, weighted and masked labels against the plain sum over pairs that it stands for."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from training_labels import training_labels

from tagwise.kernels import CSRWithTranspose, feature_matrix
from tagwise.kernels.vectors import dot_rows
from tagwise.losses import get_loss
from tagwise.objectives.labels import SpectralSides, subspace_iteration
from tagwise.objectives.squared import LinearScores, SquaredFeatureProblem, SquaredLabelProblem, SquaredTerms
from tagwise.solvers.cg import quadratic_step

N, D, L, K = 30, 8, 6, 3
REG = 0.7


class Problem:
    """Small dense data, and the objective as one reads it in the paper."""

    def __init__(self, masked, weighted, rows_weighted=False, seed=0):
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((N, D))
        self.Y = (rng.random((N, L)) < 0.3).astype(float)
        mask = (rng.random((N, L)) < 0.5).astype(float)
        self.omega = mask if masked else np.ones((N, L))
        self.weight = rng.uniform(0.5, 4, L) if weighted else None
        if weighted:
            self.omega = self.omega * np.where(self.Y > 0, self.weight, 1)
        rows = rng.uniform(0.2, 3, N) if rows_weighted else None
        if rows is not None:
            self.omega = self.omega * rows[:, None]
        self.labels = training_labels(
            sp.csr_matrix(self.Y), sp.csr_matrix(mask) if masked else None, self.weight, row_weight=rows
        )
        self.terms = SquaredTerms.build(self.labels)
        self.W, self.H = rng.standard_normal((D, K)), rng.standard_normal((L, K))
        self.b = rng.standard_normal(L)

    def loss(self, W, H, b):
        return 0.5 * np.sum(self.omega * (self.Y - self.X @ W @ H.T - b) ** 2)


def gradient_at(problem, W, A=None):
    problem.move_to(W, A)
    return problem.gradient()


@pytest.fixture(params=list(product([False, True], repeat=3)), ids=str)
def problem(request):
    return Problem(*request.param)


@pytest.mark.parametrize("storage", [sp.csr_matrix, np.asarray])
def test_gradient_and_hessian_against_differences(problem, storage):
    p = problem
    block = SquaredFeatureProblem(feature_matrix(storage(p.X)), p.terms, p.H, p.b)
    rng = np.random.default_rng(1)
    assert p.terms.value(p.X @ p.W, p.H, p.b) == pytest.approx(p.loss(p.W, p.H, p.b))
    gradient = gradient_at(block, p.W, p.X @ p.W)
    np.testing.assert_allclose(block.gradient(), gradient, atol=1e-12)  # A is made again
    assert block.value().item() == pytest.approx(p.loss(p.W, p.H, p.b))
    for _ in range(5):
        direction = rng.standard_normal((D, K))
        step = 1e-5

        def objective(t, direction=direction):
            return p.loss(p.W + t * direction, p.H, p.b)

        slope = (objective(step) - objective(-step)) / (2 * step)
        assert np.sum(gradient * direction) == pytest.approx(slope, rel=1e-6)
        ahead = gradient_at(block, p.W + direction)
        np.testing.assert_allclose(block.hessian_vector(direction), ahead - gradient, atol=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_labels_are_solved_to_the_minimum(problem, fit_intercept):
    p = problem
    H, b, value = p.terms.solve_labels(p.X @ p.W, REG, fit_intercept=fit_intercept)

    def objective(H, b):
        return p.loss(p.W, H, b) + 0.5 * REG * np.sum(H**2)

    best = objective(H, b)
    assert value == pytest.approx(best, rel=1e-8)
    rng = np.random.default_rng(2)
    for _ in range(20):
        move_H = 1e-3 * rng.standard_normal((L, K))
        move_b = 1e-3 * rng.standard_normal(L) * fit_intercept
        assert objective(H + move_H, b + move_b) > best
    assert fit_intercept or not b.any()


def test_spectral_start_spans_the_top_singular_vectors_of_the_gradient(problem):
    p = problem
    p.X = p.X @ np.diag(0.3 ** np.arange(D))  # singular values that fall fast, so that the top ones are well defined
    slope, row = p.labels.slope_at(get_loss("squared"), p.labels.rates())
    weight = p.labels.full_weight
    dense = slope.matrix.toarray() + (0 if row is None else np.outer(np.ones(N) if weight is None else weight, row))
    sides = SpectralSides(feature_matrix(p.X), slope, row, weight)
    noise = sides.of_noise(np.random.default_rng(0), 2)
    H = subspace_iteration(noise, sides.feature_side, sides.label_side, np.dtype(np.float64))
    np.testing.assert_allclose(H.T @ H, np.eye(2), atol=1e-12)
    values = np.linalg.svd(p.X.T @ dense, compute_uv=False)
    captured = np.linalg.norm(p.X.T @ dense @ H) ** 2
    assert captured > 0.9999 * np.sum(values[:2] ** 2)
    # Shards of rows draw the noise that all rows together do.
    cut = [(slice(0, 11), 0), (slice(11, N), 11)]
    shards = [SpectralSides(feature_matrix(p.X[rows]), slope, row, None, first) for rows, first in cut]
    np.testing.assert_allclose(sum(shard.of_noise(np.random.default_rng(0), 2) for shard in shards), noise)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("case", [(False, True), (True, False), (True, True)], ids=str)
def test_steps_of_the_labels_approach_the_solved_ones_without_ever_rising(case, fit_intercept):
    p = Problem(*case)
    A, b = p.X @ p.W, p.b * fit_intercept
    *_, least = p.terms.solve_labels(A, REG, fit_intercept=fit_intercept)
    problem = SquaredLabelProblem(p.terms, A, REG, fit_intercept=fit_intercept)
    start = np.column_stack([p.H, b]) if fit_intercept else p.H
    problem.move_to(start)
    at_start = p.terms.constant + problem.value().sum()
    values = [p.loss(p.W, p.H, b) + 0.5 * REG * np.sum(p.H**2)]
    assert at_start == pytest.approx(values[0], rel=1e-8)
    for steps in (1, 2, 4, 30):
        found = quadratic_step(problem, tol=1e-3, max_iter=steps, inner=dot_rows)
        H, b = (start + found.solution)[:, :K], (start + found.solution)[:, K:].ravel() if fit_intercept else 0
        stated = p.loss(p.W, H, b) + 0.5 * REG * np.sum(H**2)
        assert at_start - found.fall.sum() == pytest.approx(stated, rel=1e-8)
        values.append(stated)
    assert (np.diff(values) <= 1e-9).all()
    assert values[-1] == pytest.approx(least, rel=1e-5)


@pytest.mark.parametrize("storage", [sp.csr_matrix, np.asarray], ids=["sparse", "dense"])
def test_fixed_scores_beside_the_low_rank(problem, storage):
    """Values up to a constant, gradients and the labels' minimiser with F = XS + offset added to every score."""
    p = problem
    rng = np.random.default_rng(2)
    S = rng.standard_normal((D, L)) * (rng.random((D, L)) < 0.4)
    fixed = p.X @ S + 0.3
    X = CSRWithTranspose(sp.csr_matrix(p.X))
    terms = p.terms.around(LinearScores(X, storage(S), offset=0.3))

    def loss(W, H, b):
        return 0.5 * np.sum(p.omega * (p.Y - p.X @ W @ H.T - b - fixed) ** 2)

    zero = np.zeros_like(p.W), np.zeros_like(p.H), np.zeros_like(p.b)
    constant = loss(*zero) - terms.value(p.X @ zero[0], *zero[1:])
    assert terms.value(p.X @ p.W, p.H, p.b) + constant == pytest.approx(loss(p.W, p.H, p.b))

    gradient = gradient_at(SquaredFeatureProblem(X, terms, p.H, p.b), p.W)
    expected = p.X.T @ (p.omega * (p.X @ p.W @ p.H.T + p.b + fixed - p.Y)) @ p.H
    np.testing.assert_allclose(gradient, expected, atol=1e-10)

    H, b, _ = terms.solve_labels(p.X @ p.W, REG, fit_intercept=True)
    residual = p.omega * (p.X @ p.W @ H.T + b + fixed - p.Y)
    np.testing.assert_allclose(residual.T @ (p.X @ p.W) + REG * H, 0, atol=1e-6)
    np.testing.assert_allclose(residual.sum(axis=0), 0, atol=1e-6)


@pytest.mark.parametrize("storage", [sp.csr_matrix, np.asarray], ids=["sparse", "dense"])
def test_linear_scores_are_products_and_entries_of_one_matrix(storage):
    rng = np.random.default_rng(0)
    X, S = sp.random(20, 7, 0.5, "csr", random_state=0), rng.standard_normal((7, 5)) * (rng.random((7, 5)) < 0.6)
    F = X.toarray() @ S - 0.2
    scores = LinearScores(CSRWithTranspose(X), storage(S), offset=-0.2)
    right, left = rng.standard_normal((5, 3)), rng.standard_normal((20, 3))
    assert scores.shape == (20, 5)
    np.testing.assert_allclose(scores.matmul(right), F @ right)
    np.testing.assert_allclose(scores.rmatmul(left), F.T @ left)
    pairs = sp.random(20, 5, 0.5, "csr", random_state=1)
    rows, columns = pairs.nonzero()
    np.testing.assert_allclose(scores.on(pairs), F[rows, columns])
