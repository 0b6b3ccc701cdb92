"""KNN: agreement with scikit-learn, closed forms, bad input and the published figures."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.neighbors import KNeighborsClassifier

from tagwise.baselines import KNN
from tagwise.baselines.neighbor_votes import vote_weights


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X = rng.random((120, 8))
    Y = (X @ rng.standard_normal((8, 5)) > 0.3).astype(int)
    return X, Y, rng.random((40, 8))


@pytest.mark.parametrize(("normalize", "metric"), [(True, "cosine"), (False, "euclidean")])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_plain_votes_agree_with_scikit_learn(problem, normalize, metric, form):
    X, Y, queries = problem
    model = KNN(n_neighbors=6, similarity_power=0, normalize=normalize).fit(form(X), Y)
    theirs = KNeighborsClassifier(n_neighbors=6, metric=metric, algorithm="brute").fit(X, Y).predict_proba(queries)
    shares = np.stack([share[:, 1] if share.shape[1] == 2 else 0 * share[:, 0] for share in theirs], axis=1)
    np.testing.assert_allclose(model.decision_function(form(queries)), shares - 0.5, atol=1e-12)


def test_weights_are_powers_of_cosines(problem):
    X, Y, queries = problem
    model = KNN(n_neighbors=7, similarity_power=3).fit(X, Y)
    unit, asked = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (X, queries))
    cosines = asked @ unit.T
    for row, scores in enumerate(model.decision_function(queries)):
        nearest = np.argsort(-cosines[row])[:7]
        weights = cosines[row, nearest] ** 3
        np.testing.assert_allclose(scores, weights @ Y[nearest] / weights.sum() - 0.5)


def test_weights_without_a_positive_cosine_are_equal():
    weights = vote_weights(np.array([[0.5, 0.25], [0.0, -0.2], [1.0, -1.0]]), 1)
    np.testing.assert_allclose(weights, [[2 / 3, 1 / 3], [0.5, 0.5], [1, 0]])
    np.testing.assert_allclose(vote_weights(np.array([[0.5, 0.25, 0.0, -1]]), 0), np.full((1, 4), 0.25))


def test_labels_that_no_neighbor_has_score_minus_a_half_and_rank_by_id(problem):
    X, _, _ = problem
    Y = np.zeros((120, 6))
    Y[:, 4] = 1
    labels, scores = KNN(n_neighbors=3).fit(X, Y).predict_topk(X[:2], 4)
    np.testing.assert_array_equal(labels, [[4, 0, 1, 2]] * 2)
    np.testing.assert_allclose(scores, [[0.5, -0.5, -0.5, -0.5]] * 2)


def test_more_neighbors_than_rows_are_all_rows(problem):
    X, Y, queries = problem
    all_rows, more = (KNN(n_neighbors=k, similarity_power=0).fit(X, Y) for k in (120, 500))
    np.testing.assert_array_equal(more.decision_function(queries), all_rows.decision_function(queries))
    np.testing.assert_allclose(more.decision_function(queries), np.tile(Y.mean(axis=0) - 0.5, (40, 1)), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_half_of_the_votes_is_on_for_every_even_number_of_neighbors(dtype):
    """Sums of 1/k miss ½ by rounding for some k, 14 and 22 among them."""
    for k in range(2, 202, 2):
        Y = np.zeros((k, 3))
        Y[: k // 2, 0] = 1
        Y[: k // 2 - 1, 1] = 1
        Y[: k // 2 + 1, 2] = 1
        for power in (0, 4):
            model = KNN(n_neighbors=k, similarity_power=power).fit(np.ones((k, 1), dtype=dtype), Y)
            scores = model.decision_function(np.ones((1, 1), dtype=dtype))[0]
            assert scores[0] == 0
            assert scores[1] < 0 < scores[2]


def test_blocks_of_rows_stay_small_however_few_labels_there_are(problem):
    """One label would allow a million rows per block, and the votes of each take far more than one score."""
    X, Y, _ = problem
    model = KNN(n_neighbors=3).fit(X, Y[:, :1])
    sizes = [stop - start for start, stop in model._row_blocks(np.empty((20_000, 8)))]
    assert sum(sizes) == 20_000
    assert max(sizes) <= 4096
    many = np.tile(X, (50, 1))
    np.testing.assert_array_equal(model.decision_function(many), np.tile(model.decision_function(X), (50, 1)))
