"""ML-kNN against a twin that follows the publication label by label."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.baselines import MLKNN, ml_knn


def published_posterior(X, Y, queries, k, s):
    """P(label on | its votes), by loops; distances of whole numbers, so ties are exact and go to the lower id."""
    n, n_labels = Y.shape

    def nearest(x, skip=None):
        distances = np.sum((X - x) ** 2, axis=1)
        order = [i for i in np.argsort(distances, kind="stable") if i != skip]
        return order[:k]

    k = min(k, n - 1)
    votes = [Y[nearest(X[i], skip=i)].sum(axis=0) for i in range(n)]
    posterior = np.empty((len(queries), n_labels))
    for label in range(n_labels):
        prior = (s + Y[:, label].sum()) / (2 * s + n)
        with_label, without = np.zeros(k + 1), np.zeros(k + 1)
        for i in range(n):
            (with_label if Y[i, label] else without)[int(votes[i][label])] += 1
        for row, x in enumerate(queries):
            count = int(Y[nearest(x), label].sum())
            on = prior * (s + with_label[count]) / (s * (k + 1) + with_label.sum())
            off = (1 - prior) * (s + without[count]) / (s * (k + 1) + without.sum())
            posterior[row, label] = on / (on + off)
    return posterior


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 25),
    st.integers(1, 6),
    st.sampled_from([0.3, 1.0]),
    st.sampled_from([np.asarray, sp.csr_matrix]),
)
def test_scores_are_the_published_posterior(seed, n_rows, k, smoothing, form):
    rng = np.random.default_rng(seed)
    X, queries = rng.integers(0, 4, (n_rows, 3)).astype(float), rng.integers(0, 4, (5, 3)).astype(float)
    Y = (rng.random((n_rows, 4)) < [0, 0.2, 0.6, 1]).astype(int)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ml_knn, "_BLOCK_ROWS", 4)
        model = MLKNN(n_neighbors=k, smoothing=smoothing, normalize=False).fit(form(X), Y)
    expected = published_posterior(X, Y, queries, k, smoothing)
    np.testing.assert_allclose(1 / (1 + np.exp(-model.decision_function(form(queries)))), expected, atol=1e-12)


def test_the_objective_is_the_mean_log_loss_of_the_training_labels():
    rng = np.random.default_rng(3)
    X = rng.integers(0, 5, (30, 3)).astype(float)
    Y = (rng.random((30, 4)) < 0.4).astype(int)
    model = MLKNN(n_neighbors=4, normalize=False).fit(X, Y)
    losses = []
    for row in range(30):
        order = np.argsort(np.sum((X - X[row]) ** 2, axis=1), kind="stable")
        votes = Y[order[order != row][:4]].sum(axis=0)
        odds = model.log_odds_[np.arange(4), votes]
        losses.append(np.where(Y[row] == 1, np.log1p(np.exp(-odds)), np.log1p(np.exp(odds))))
    np.testing.assert_allclose(model.objective_, [np.mean(losses)])


def test_labels_without_votes_keep_their_own_base_score():
    """No neighbor has either of the last two labels: their order is that of their log odds without a vote."""
    X = np.repeat(np.eye(3), 20, axis=0)
    Y = np.zeros((60, 3))
    Y[:20, 0], Y[20:22, 1], Y[40:60, 2] = 1, 1, 1
    model = MLKNN(n_neighbors=5).fit(X, Y)
    labels, scores = model.predict_topk(X[:1], 3)
    np.testing.assert_array_equal(labels, [[0, 2, 1]])
    assert scores[0, 0] > 0 > scores[0, 1] > scores[0, 2]
    np.testing.assert_array_equal(scores[0, 1:], model.log_odds_[[2, 1], 0])
