"""A pass of WARP: its sampled steps against a plain twin, the ball, and rows that have nothing to learn."""

import numpy as np
import pytest
import scipy.sparse as sp
from inner import from_python

from tagwise.kernels import random_stream as streams
from tagwise.kernels.warp import WarpFactors, WarpSteps, warp_pass

N, D, L, K = 12, 6, 9, 4


def problem(dtype=np.float64):
    rng = np.random.default_rng(0)
    X = sp.random(N, D, 0.5, format="csr", random_state=0).astype(dtype)
    Y = sp.csr_matrix((rng.random((N, L)) < 0.3).astype(dtype))
    W, H = (rng.standard_normal((size, K)).astype(dtype) for size in (D + 1, L))
    return X, Y, W, H, np.zeros(D + 1), np.zeros(L)


def run(X, Y, W, H, W_squares, H_squares, *, rate=0.1, radius=np.inf, trials=50, order=None, seed=3, number=0):
    order = np.arange(X.shape[0]) if order is None else order
    harmonic = np.concatenate([[0], np.cumsum(1 / np.arange(1, L + 1))])
    factors, steps = WarpFactors(W, H, W_squares, H_squares), WarpSteps(harmonic, rate, radius, trials)
    return warp_pass((X.indptr, X.indices, X.data), (Y.indptr, Y.indices), order, factors, steps, seed, number)


def twin(X, Y, W, H, W_squares, H_squares, *, rate=0.1, radius=np.inf, trials=50):
    """The same in plain Python: row by row, label by label."""
    stream, next_below = from_python(streams.random_stream)(3, 0), from_python(streams.next_below)
    total, visited = 0.0, 0

    def step(factors, squares, which, gradient):
        squares[which] += gradient @ gradient / K
        factors[which] -= rate * gradient / np.sqrt(squares[which] + 1e-12)
        factors[which] *= min(1, radius / np.linalg.norm(factors[which]))

    for x, y in zip(X.toarray(), Y.toarray()):
        extended = np.append(x, 1.0)
        embedded, slope = extended @ W, np.zeros(K)
        for positive in np.flatnonzero(y):
            visited += 1
            score = embedded @ H[positive]
            for count in range(1, trials + 1):
                other = next_below(stream, L)
                while y[other]:
                    other = next_below(stream, L)
                if embedded @ H[other] > score - 1:
                    weight = sum(1 / r for r in range(1, max(1, int(L - y.sum()) // count) + 1))
                    total += weight * (1 - score + embedded @ H[other])
                    slope += weight * (H[other] - H[positive])
                    step(H, H_squares, positive, -weight * embedded)
                    step(H, H_squares, other, weight * embedded)
                    break
        if slope.any():
            for feature in np.flatnonzero(extended):
                step(W, W_squares, feature, extended[feature] * slope)
    return total, visited


@pytest.mark.parametrize("radius", [np.inf, 1.5])
def test_against_the_twin(radius):
    ours, theirs = problem(), problem()
    found, expected = run(*ours, radius=radius), twin(*theirs, radius=radius)
    assert found[1] == expected[1] == ours[1].nnz
    assert found[0] == pytest.approx(expected[0], rel=1e-9)
    for one, two in zip(ours[2:], theirs[2:]):
        np.testing.assert_allclose(one, two, atol=1e-9)


def test_factors_stay_in_the_ball():
    X, Y, W, *others = problem()
    run(X, Y, W, *others, rate=5.0, radius=0.7)
    touched = np.append(np.diff(X.tocsc().indptr) > 0, True)
    assert (np.linalg.norm(W[touched], axis=1) <= 0.7 + 1e-9).all()


def test_rows_with_no_label_or_all_labels_teach_nothing():
    X, _, W, H, *squares = problem()
    before = W.copy(), H.copy()
    for labels in (np.zeros((N, L)), np.ones((N, L))):
        assert run(X, sp.csr_matrix(labels), W, H, *squares) == (0.0, 0)
    np.testing.assert_array_equal(W, before[0])
    np.testing.assert_array_equal(H, before[1])


def test_the_seed_and_the_number_choose_the_negatives():
    results = []
    for seed, number in ((3, 0), (3, 0), (4, 0), (3, 1)):
        X, Y, W, H, *squares = problem()
        run(X, Y, W, H, *squares, seed=seed, number=number)
        results.append(H)
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0] != results[2]).any()
    assert (results[0] != results[3]).any()
