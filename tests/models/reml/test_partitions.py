"""Divide and conquer: parts, their projection, and the same bits from any number of threads."""

import numpy as np
import pytest
import scipy.sparse as sp
from reml_problem import equation_5, problem

from tagwise import REML
from tagwise.exceptions import TagwiseWarning
from tagwise.kernels import CSRWithTranspose
from tagwise.models.leml.steps import Factors
from tagwise.models.reml.partitions import project_onto_first, random_parts

pytestmark = pytest.mark.filterwarnings("ignore::tagwise.exceptions.ConvergenceWarning")


def test_parts_hold_every_label_once():
    parts = random_parts(np.arange(3, 14), 4, np.random.default_rng(0))
    assert sorted(np.concatenate(parts)) == list(range(3, 14))
    assert {len(part) for part in parts} == {2, 3}
    assert all((np.diff(part) > 0).all() for part in parts)


def random_part(ids, rng):
    return ids, Factors(rng.standard_normal((9, 2)), rng.standard_normal((len(ids), 2)), ids * 0.1)


def test_projection_is_the_nearest_in_the_first_column_space():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 9))
    ids = [np.array([0, 2]), np.array([1, 3, 4])]
    parts = [random_part(i, rng) for i in ids]
    (_, first), (_, second) = parts
    found = project_onto_first(CSRWithTranspose(sp.csr_matrix(X)), parts, np.zeros(5))
    np.testing.assert_array_equal(found.W, first.W)
    A = X @ found.W
    np.testing.assert_allclose(found.b, np.arange(5) * 0.1)
    np.testing.assert_allclose((A @ found.H.T)[:, ids[0]], A @ first.H.T)
    target = X @ second.W @ second.H.T
    np.testing.assert_allclose((A @ found.H.T)[:, ids[1]], A @ np.linalg.lstsq(A, target, rcond=None)[0])
    times = rng.integers(0, 3, 30)  # rows count as they weigh
    weighted, repeated = (
        project_onto_first(CSRWithTranspose(sp.csr_matrix(rows)), parts, np.zeros(5), weights)
        for rows, weights in ((X, times.astype(float)), (np.repeat(X, times, axis=0), None))
    )
    np.testing.assert_allclose(weighted.H, repeated.H)


@pytest.mark.parametrize("masked", [False, True])
def test_any_number_of_threads_gives_the_same_bits(masked):
    X, Y, known = problem(n=200, n_labels=12)
    observed = known if masked else None
    models = [REML(rank=6, partitions=3, n_jobs=jobs).fit(X, Y, observed) for jobs in (1, 2, 3)]
    for model in models[1:]:
        np.testing.assert_array_equal(model.decision_function(X), models[0].decision_function(X))
        assert len(model.history_) == 4
    assert models[0].rank_ == 2
    other = REML(rank=6, partitions=3, random_state=1).fit(X, Y, observed)
    assert not np.array_equal(other.decision_function(X), models[0].decision_function(X))


@pytest.mark.parametrize("part", ["admm", "support"])
def test_labels_of_which_nothing_is_known_take_no_part(part):
    X, Y, known = problem()
    known[:, 1:6] = 0
    model = REML(rank=6, partitions=3, sparse_part=part).fit(X, Y, observed=known)
    assert len(model.history_) == 4
    assert (np.argsort(model.decision_function(X), axis=1)[:, :5] < 6).all()
    assert np.abs(model.feature_factors_).max() > 0


@pytest.mark.parametrize("intercept", [True, False])
def test_parts_that_a_callback_cut_off_keep_the_best_constants(intercept):
    X, Y, _ = problem()
    model = REML(rank=3, partitions=4, fit_intercept=intercept).fit(X, Y, callback=lambda i, _: i == 1)
    alone = np.flatnonzero(np.abs(model.label_factors_).max(axis=1) == 0)
    assert len(alone) == 6
    expected = Y.mean(axis=0)[alone] - 0.5 if intercept else 0.0
    np.testing.assert_allclose(model.intercept_[alone], expected, atol=1e-12)


@pytest.mark.parametrize(("part", "masked"), [("admm", False), ("support", False), ("support", True)])
def test_equation_5_with_parts(part, masked):
    X, Y, known = problem(n_labels=9)
    known = known if masked else np.ones_like(known)
    model = REML(rank=6, partitions=3, sparse_part=part, prune=0).fit(X, Y, observed=known if masked else None)
    assert model.objective_[-1] == pytest.approx(equation_5(model, X, Y, known, 1.0), rel=1e-8)


def test_more_parts_than_labels_are_clipped_with_a_warning():
    X, Y, _ = problem(n_labels=3)
    with pytest.warns(TagwiseWarning, match="partitions=5 is more than the 3 labels"):
        model = REML(rank=3, partitions=5).fit(X, Y)
    assert len(model.history_) == 4
