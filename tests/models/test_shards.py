"""The seams where a cluster comes in: steps are sums or concatenations of what shards of rows give."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import LEML
from tagwise.data import hide_labels, make_low_rank_plus_sparse
from tagwise.kernels import FeatureMatrix


class Shards(FeatureMatrix):
    """A data matrix whose rows are held in parts, none of which sees another."""

    def __init__(self, X, n_parts):
        self.parts = [sp.csr_matrix(X[rows]) for rows in np.array_split(np.arange(X.shape[0]), n_parts)]
        self.bounds = np.cumsum([0, *(part.shape[0] for part in self.parts)])
        self.products = 0

    @property
    def shape(self):
        return int(self.bounds[-1]), self.parts[0].shape[1]

    def matmul(self, right):
        self.products += 1
        return np.concatenate([part @ right for part in self.parts])

    def rmatmul(self, left):
        self.products += 1
        return sum(part.T @ left[a:b] for part, a, b in zip(self.parts, self.bounds, self.bounds[1:]))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_steps_of_leml_see_features_through_products_alone(monkeypatch, loss, masked):
    problem = make_low_rank_plus_sparse(300, 50, 25, rank=4, features_per_row=8, noise=0.5, random_state=0)
    X, Y = problem.X, problem.Y
    observed = hide_labels(Y, 0.5, random_state=1) if masked else None
    model = LEML(rank=4, loss=loss, max_iter=3, tol=1.0)
    expected = model.fit(X, Y, observed).decision_function(X)
    made = []

    def sharded(X, **options):
        made.append(Shards(X, 3))
        return made[-1]

    monkeypatch.setattr("tagwise.models.factor_model.feature_matrix", sharded)
    found = model.fit(X, Y, observed).decision_function(X)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert made[0].products > 10
