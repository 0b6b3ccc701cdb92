"""A row is what it holds: its weight, its container and zeros that are stored make no other model of it."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import LEML, REML, BinaryRelevance, Cascade
from tagwise.metrics import inverse_propensity
from tagwise.models.factor_model import resolve_positive_weight

MODELS = [LEML(rank=4), REML(rank=4), BinaryRelevance(), Cascade(rank=4)]
RNG = np.random.default_rng(0)
WORDS = sp.random(300, 200, 0.05, format="csr", random_state=0)
EMBEDDING = RNG.standard_normal((300, 40))
Y = sp.csr_matrix((np.hstack([EMBEDDING[:, :3], WORDS[:, :5].toarray()]) > 0).astype(np.float64))


def scores_of(model, X, labels, **given):
    fitted = model.fit(X, labels, **given)
    return fitted.n_dense_features_in_, fitted.decision_function(sp.csr_matrix(X)[-200:])


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_row_of_weight_0_is_no_row_when_dense_features_are_looked_for(model):
    embedding = EMBEDDING.copy()
    embedding[:80] = 0
    X, weight = sp.csr_matrix(sp.hstack([WORDS, embedding])), np.repeat([0.0, 1.0], [80, 220])
    n_dense, scores = scores_of(model, X, Y, sample_weight=weight)
    expected = scores_of(model, X[80:], Y[80:])
    assert (n_dense, expected[0]) == (40, 40)
    np.testing.assert_array_equal(scores, expected[1])


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_dense_features_are_found_in_arrays_as_in_sparse_matrices(model):
    wide = sp.csr_matrix(sp.hstack([sp.random(300, 20_000, 1e-3, random_state=1), EMBEDDING]))
    n_dense, scores = scores_of(model, wide, Y)
    of_array = scores_of(model, wide.toarray(), Y)
    assert (n_dense, of_array[0]) == (40, 40)
    np.testing.assert_allclose(scores, of_array[1], atol=1e-9)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_stored_zeros_do_not_count(model):
    names = {"label_features": sp.csr_matrix(np.eye(8, 200))} if isinstance(model, Cascade) else {}
    places = sp.random(300, 200, 0.05, format="csr", random_state=2)
    stored = sp.csr_matrix(WORDS + places.astype(bool) * 1e-30)
    stored.data[np.abs(stored.data) < 1e-20] = 0
    assert stored.nnz > WORDS.nnz
    found, expected = (scores_of(model, X, Y, **names)[1] for X in (stored, WORDS))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert stored.nnz > WORDS.nnz  # the caller's matrix is as it was


def test_propensities_count_rows_as_they_weigh():
    weight = np.repeat([2.0, 1.0], [100, 200])
    found = resolve_positive_weight("propensity", Y, weight)
    np.testing.assert_allclose(found, inverse_propensity(sp.vstack([Y, Y[:100]])))
    model = BinaryRelevance(positive_weight="propensity", tol=1e-8, max_iter=1000)
    weighted = model.fit(WORDS, Y, sample_weight=weight).decision_function(WORDS)
    twice = model.fit(sp.vstack([WORDS, WORDS[:100]]), sp.vstack([Y, Y[:100]])).decision_function(WORDS)
    np.testing.assert_allclose(weighted, twice, atol=1e-5)
