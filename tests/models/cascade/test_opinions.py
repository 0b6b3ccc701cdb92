"""Prototypes of labels against sums of dense rows, executors with several blocks, and an opinion of one's own."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import Cascade
from tagwise.data import FeatureBlocks, hide_labels, make_low_rank_plus_sparse
from tagwise.executor import Threads, running_on
from tagwise.fields import Fields, dense
from tagwise.kernels import unit_rows
from tagwise.models.cascade import cascade as cascade_module
from tagwise.models.cascade.opinion import Opinion, rows_by_label
from tagwise.models.cascade.prototype import label_prototypes


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X = sp.random(300, 40, density=0.2, format="csr", dtype=np.float32, random_state=1)
    X.data -= 0.3
    Y = (rng.random((300, 25)) < 0.1).astype(np.float32)
    Y[:, 7] = 0
    return unit_rows(X), sp.csr_matrix(Y)


@pytest.mark.parametrize("most", [1, 5, 100])
def test_against_dense_sums(problem, most):
    rows, Y = problem
    found = label_prototypes(rows_by_label(Y), rows, most, None)
    sums = Y.toarray().T.astype(np.float64) @ rows.toarray()
    expected = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-300)
    for label in range(25):
        expected[label, np.argsort(-np.abs(expected[label]), kind="stable")[most:]] = 0
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-6)
    assert found.dtype == np.float32
    assert found.has_sorted_indices
    assert np.diff(found.indptr).max() <= most
    assert found[7].nnz == 0


def test_equal_weights_stay_by_feature():
    rows = unit_rows(sp.csr_matrix(np.ones((1, 6), dtype=np.float32)))
    found = label_prototypes(sp.csr_matrix(np.ones((1, 1))), rows, 2, None)
    np.testing.assert_array_equal(found.indices, [0, 1])
    np.testing.assert_allclose(found.data, 6**-0.5, rtol=1e-6)


def test_the_same_for_any_number_of_threads_and_stored_values(problem):
    rows, Y = problem
    wide = sp.csr_matrix(sp.hstack([Y] * 40))  # several chunks
    first = label_prototypes(rows_by_label(wide), rows, 50, None)
    second = label_prototypes(rows_by_label(sp.csr_matrix(3 * wide)), rows, 50, 2)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_rows_by_label_are_the_transpose_in_rising_order(problem):
    _, Y = problem
    found = rows_by_label(Y)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found.toarray(), Y.toarray().T)
    assert all((np.diff(found[label].indices) > 0).all() for label in range(25))


class Blocks(Threads):
    """As a cluster would run a fit: three blocks, and nothing but copies of arguments reaches a function."""

    n_blocks = 3

    def map(self, function, blocks, *common):
        assert function is pickle.loads(pickle.dumps(function))  # a function of a module
        return [function(*pickle.loads(pickle.dumps((block, *common)))) for block in blocks]


@pytest.mark.parametrize("masked", [False, True])
def test_a_fit_in_blocks_is_the_same(masked):
    made = make_low_rank_plus_sparse(300, 50, 25, rank=4, features_per_row=8, noise=0.5, random_state=0)
    X, Y = FeatureBlocks([made.X, np.random.default_rng(0).normal(size=(300, 3))]), made.Y
    observed = hide_labels(Y, 0.5, random_state=1) if masked else None
    names = FeatureBlocks([sp.csr_matrix(np.eye(25, 50)), np.random.default_rng(1).normal(size=(25, 3))])
    weight = np.random.default_rng(2).uniform(0.5, 2, 300)
    whole, parts = (Cascade(rank=4, support=10, shortlist=6, hard_negatives=6) for _ in range(2))
    whole.fit(X, Y, observed, label_features=names, sample_weight=weight)
    with running_on(Blocks()):
        parts.fit(X, Y, observed, label_features=names, sample_weight=weight)
    for name in whole.fields.arrays():
        ours, theirs = (getattr(model, name) for model in (whole, parts))
        np.testing.assert_allclose(*(part.toarray() if sp.issparse(part) else part for part in (ours, theirs)), 1e-9)


class Even(Opinion):
    """An opinion of one's own: whether a label is even."""

    name = "even"
    fields = Fields(even_=dense("L", meaning="1 for even labels."))

    @classmethod
    def fit(cls, side):
        return {"even_": (np.arange(side.problem.n_labels) % 2 == 0).astype(side.dtype)}

    def __init__(self, model):
        self.even = model.even_

    def write(self, rows, labels, proposed, out):
        out[:] = self.even[np.maximum(labels, 0)]


def test_an_opinion_is_a_class_and_a_line_of_the_list(monkeypatch, tmp_path):
    """Here with labels of which only even ones are right, which no other opinion can know."""
    monkeypatch.setattr(cascade_module, "OPINIONS", (*cascade_module.OPINIONS, Even))
    monkeypatch.setattr(Cascade, "fields", Cascade.fields | Even.fields)
    rng = np.random.default_rng(0)
    X = sp.csr_matrix((rng.random((600, 30)) < 0.2).astype(np.float32))
    Y = np.zeros((600, 20), dtype=np.float32)
    Y[:, ::2] = rng.random((600, 10)) < 0.3
    Y[:, 1::2] = rng.random((600, 10)) < 0.03
    model = Cascade(rank=2, shortlist=20).fit(X, sp.csr_matrix(Y))
    assert model.opinions_[-1] == "even"
    assert len(model.fusion_own_) == 21
    assert model.fusion_own_[4] != 0
    assert (model.predict_topk(X, 3)[0] % 2 == 0).mean() > 0.9
