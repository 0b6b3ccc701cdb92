"""Divide and conquer: parts, their projection, and the same bits from any number of processes and threads."""

import numpy as np
import pytest
import scipy.sparse as sp
from reml_problem import equation_5, problem

from tagwise import REML
from tagwise.exceptions import TagwiseWarning
from tagwise.kernels import CSRWithTranspose
from tagwise.models.reml import partitions
from tagwise.models.reml.partitions import Part, map_parts, project_onto_first, random_parts
from tagwise.solvers.support import SupportFeatures

pytestmark = pytest.mark.filterwarnings("ignore::tagwise.exceptions.ConvergenceWarning")


def test_parts_hold_every_label_once():
    parts = random_parts(np.arange(3, 14), 4, np.random.default_rng(0))
    assert sorted(np.concatenate(parts)) == list(range(3, 14))
    assert {len(part) for part in parts} == {2, 3}
    assert all((np.diff(part) > 0).all() for part in parts)


def test_projection_is_the_nearest_in_the_first_column_space():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 9))
    ids = [np.array([0, 2]), np.array([1, 3, 4])]
    first, second = (
        Part(i, rng.standard_normal((9, 2)), rng.standard_normal((len(i), 2)), i * 0.1, 0.0, True, 0.0) for i in ids
    )
    found = project_onto_first(CSRWithTranspose(sp.csr_matrix(X)), [first, second], np.zeros(5))
    A = X @ first.W
    np.testing.assert_allclose(found.A, A)
    np.testing.assert_allclose(found.b, np.arange(5) * 0.1)
    np.testing.assert_allclose((found.A @ found.H.T)[:, ids[0]], A @ first.H.T)
    target = X @ second.W @ second.H.T
    np.testing.assert_allclose((found.A @ found.H.T)[:, ids[1]], A @ np.linalg.lstsq(A, target, rcond=None)[0])


def test_projection_counts_rows_as_they_weigh():
    rng = np.random.default_rng(1)
    X, times = rng.standard_normal((30, 9)), rng.integers(0, 3, 30)
    ids = [np.array([0, 2]), np.array([1, 3, 4])]
    parts = [Part(i, rng.standard_normal((9, 2)), rng.standard_normal((len(i), 2)), i * 0.1, 0, True, 0) for i in ids]
    weighted, repeated = (
        project_onto_first(CSRWithTranspose(sp.csr_matrix(rows)), parts, np.zeros(5), weights)
        for rows, weights in ((X, times.astype(float)), (np.repeat(X, times, axis=0), None))
    )
    np.testing.assert_allclose(weighted.H, repeated.H)


@pytest.mark.parametrize("masked", [False, True])
def test_any_number_of_processes_gives_the_same_bits(masked):
    X, Y, known = problem(n=200, n_labels=12)
    observed = known if masked else None
    models = [REML(rank=6, partitions=3, n_jobs=jobs).fit(X, Y, observed) for jobs in (1, 2, 3)]
    for model in models[1:]:
        np.testing.assert_array_equal(model.decision_function(X), models[0].decision_function(X))
        assert len(model.history_) == 4
    assert models[0].rank_ == 2
    other = REML(rank=6, partitions=3, random_state=1).fit(X, Y, observed)
    assert not np.array_equal(other.decision_function(X), models[0].decision_function(X))


def test_processes_get_memory_maps_of_x(monkeypatch):
    """A process finds X, its transpose and XᵀX as maps of files, not as copies sent to it."""
    monkeypatch.setattr(partitions, "_WORTH_A_PROCESS", 0)
    X = sp.random(20_000, 60, 0.5, "csr", random_state=0, dtype=np.float32)
    features, prepared = CSRWithTranspose(X), SupportFeatures.build(X, support=5)
    tasks = [(features, prepared), (features, prepared)]
    found = list(map_parts(what_is_mapped, tasks, n_parts=2, n_processes=2, work=1))
    assert found == [[True] * 5] * 2


def what_is_mapped(X, prepared):
    arrays = (X.matrix.data, X.matrix.indices, X.transpose.data, X.transpose.indices, prepared.rows.data)
    return [isinstance(array, np.memmap) or isinstance(array.base, np.memmap) for array in arrays]


def test_processes_and_threads_learn_the_same(monkeypatch):
    X, Y, _ = problem(n=200, n_labels=12)
    threads = REML(rank=6, partitions=3, n_jobs=2).fit(X, Y)
    monkeypatch.setattr(partitions, "_WORTH_A_PROCESS", 0)
    processes = REML(rank=6, partitions=3, n_jobs=2).fit(X, Y)
    np.testing.assert_array_equal(processes.decision_function(X), threads.decision_function(X))
    assert [info["objective"] for info in processes.history_] == [info["objective"] for info in threads.history_]


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
