"""Algorithm 1 of MSE: constraints, monotone objective, a plain dense twin, planted parts, and the edges."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagwise import MSE
from tagwise.validation import check_features, check_labels


def decompose(X, Y, ranks, n_outliers, *, on_round=lambda objective: False, max_iter=20, tol=1e-3, **parameters):
    """MSE's own loop, on rows as they are."""
    objectives = []

    def keep(objective):
        objectives.append(objective)
        return on_round(objective)

    model = MSE(max_iter=max_iter, tol=tol, **parameters)
    parts, status = model._decompose(check_features(X), check_labels(Y), ranks, n_outliers, keep)
    return SimpleNamespace(
        coefficients=parts.Z,
        subspaces=parts.V,
        starts=parts.starts,
        outliers=parts.S,
        objective=np.array(objectives),
        status=status,
    )


def random_problem(seed, n=40, p=15, labels=6):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * (rng.random((n, p)) < 0.5)
    Y = (rng.random((n, labels)) < 0.35).astype(float)
    return X, Y


def part(found, label):
    """L of one label, dense."""
    group = slice(found.starts[label], found.starts[label + 1])
    return found.coefficients.toarray()[:, group] @ found.subspaces[group]


def plain_alternation(X, Y, ranks, n_outliers, rounds):
    """Algorithm 1 with singular value decompositions, on k dense matrices; the objective after each round."""
    n_labels = np.maximum(Y.sum(axis=1), 1)[:, None]
    parts = [X * Y[:, [j]] / n_labels for j in range(Y.shape[1])]
    S = np.zeros_like(X)
    objective = []
    for _ in range(rounds):
        for j in range(Y.shape[1]):
            rows = Y[:, j] > 0
            N = (X - sum(parts) + parts[j] - S)[rows]
            U, s, V = np.linalg.svd(N, full_matrices=False)
            parts[j] = np.zeros_like(X)
            parts[j][rows] = (U[:, : ranks[j]] * s[: ranks[j]]) @ V[: ranks[j]]
        rest = X - sum(parts)
        S = np.zeros_like(X)
        if n_outliers:
            S = np.where(np.abs(rest) >= np.sort(np.abs(rest).ravel())[-n_outliers], rest, 0)
        objective.append(np.sum((rest - S) ** 2))
    return parts, S, objective


@pytest.mark.parametrize("n_outliers", [0, 25])
def test_svd_agrees_with_the_plain_dense_algorithm(n_outliers):
    X, Y = random_problem(3)
    ranks = np.array([1, 2, 3, 1, 2, 4])
    parts, S, objective = plain_alternation(X, Y, ranks, n_outliers, 5)
    found = decompose(X, Y, ranks, n_outliers, decomposition="svd", max_iter=5, tol=0)
    np.testing.assert_allclose(found.objective, objective, rtol=1e-9)
    np.testing.assert_allclose(found.outliers.toarray(), S, atol=1e-7)
    for j in range(6):
        np.testing.assert_allclose(part(found, j), parts[j], atol=1e-7)


@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["svd", "brp"]),
    st.integers(0, 60),
    st.lists(st.integers(1, 20), min_size=6, max_size=6),
    st.booleans(),
)
def test_theorem_1_the_objective_never_rises_and_every_constraint_holds(seed, decomposition, n_outliers, ranks, tall):
    X, Y = random_problem(seed, n=60 if tall else 12, p=9 if tall else 30)
    found = decompose(
        X, Y, np.array(ranks), n_outliers, decomposition=decomposition, max_iter=8, tol=0, random_state=seed
    )
    scale = np.sum(X**2)
    assert (np.diff(found.objective) <= 1e-10 * scale).all()
    rest = X - found.coefficients @ found.subspaces - found.outliers.toarray()
    assert found.objective[-1] == pytest.approx(np.sum(rest**2), abs=1e-9 * scale)
    assert found.outliers.nnz <= n_outliers
    for j, rank in enumerate(ranks):
        L = part(found, j)
        assert found.starts[j + 1] - found.starts[j] == min(rank, Y[:, j].sum(), X.shape[1])
        assert (L[Y[:, j] == 0] == 0).all()
        V = found.subspaces[found.starts[j] : found.starts[j + 1]]
        np.testing.assert_allclose(V @ V.T, np.eye(len(V)), atol=1e-9)


@pytest.mark.parametrize("decomposition", ["svd", "brp"])
def test_planted_parts_and_outliers_are_found(decomposition):
    rng = np.random.default_rng(1)
    Y = np.kron(np.eye(3), np.ones((40, 1)))
    bases = [np.linalg.qr(rng.standard_normal((20, 2)))[0].T for _ in range(3)]
    planted = sum(Y[:, [j]] * (rng.standard_normal((120, 2)) @ bases[j]) for j in range(3))
    S = np.zeros((120, 20))
    S.ravel()[rng.choice(2400, 12, replace=False)] = 3.0 * rng.choice([-1, 1], 12)
    found = decompose(planted + S, Y, np.full(3, 2), 12, decomposition=decomposition, max_iter=200, tol=1e-9)
    np.testing.assert_allclose(found.outliers.toarray(), S, atol=1e-3)
    for j in range(3):
        V = found.subspaces[found.starts[j] : found.starts[j + 1]]
        np.testing.assert_allclose(V.T @ V, bases[j].T @ bases[j], atol=1e-3)


@pytest.mark.parametrize("decomposition", ["svd", "brp"])
def test_forms_of_x_and_threads_give_the_same_bits(decomposition):
    rng = np.random.default_rng(0)
    X = sp.random(6000, 40, 0.3, format="csr", random_state=1)
    Y = (rng.random((6000, 5)) < 0.6).astype(float)
    make = lambda X, threads: decompose(  # noqa: E731
        X, Y, np.full(5, 3), 100, decomposition=decomposition, max_iter=3, n_jobs=threads
    )
    one = make(X, 1)
    for other in (make(X, 3), make(X.toarray(), 1)):
        np.testing.assert_array_equal(other.subspaces, one.subspaces)
        np.testing.assert_array_equal(other.coefficients.data, one.coefficients.data)
        np.testing.assert_array_equal(other.objective, one.objective)


def test_it_stops_when_told_and_when_converged():
    X, Y = random_problem(4)
    seen = []
    found = decompose(X, Y, np.full(6, 2), 0, tol=0, on_round=lambda value: bool(seen.append(value)))
    assert seen == list(found.objective)
    assert found.status == "max_iter"
    stopped = decompose(X, Y, np.full(6, 2), 0, tol=0, on_round=lambda value: True)
    assert stopped.status == "stopped"
    assert len(stopped.objective) == 1
    loose = decompose(X, Y, np.full(6, 2), 0, tol=0.5)
    assert loose.status == "converged"
    assert len(loose.objective) == 2


@pytest.mark.parametrize(
    ("X", "n_labels", "rank", "n_outliers", "limit"),
    [
        # Residuals would be 144 MB; half of that is the limit, a good part of which is a block of rows.
        (sp.random(30_000, 600, 0.01, format="csr", random_state=0), 50, 2, 1000, 72_000_000),
        # A copy of X would be 32 MB, its CSR form 48 MB.
        (np.random.default_rng(0).standard_normal((10_000, 400)), 100, 1, 0, 24_000_000),
    ],
    ids=["sparse", "dense"],
)
def test_the_residual_is_never_stored_whole_and_dense_rows_are_used_as_they_are(X, n_labels, rank, n_outliers, limit):
    n = X.shape[0]
    Y = sp.csr_matrix((np.ones(n), (np.arange(n), np.arange(n) % n_labels)), shape=(n, n_labels))
    ranks = np.full(n_labels, rank)
    decompose(X[:100], Y[:100], ranks, 10, max_iter=1)  # compiles before memory is measured
    tracemalloc.start()
    decompose(X, Y, ranks, n_outliers, max_iter=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < limit
