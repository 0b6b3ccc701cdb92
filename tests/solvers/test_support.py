"""The sparse part on the residual: exact on its support, and the right support."""

import numpy as np
import pytest
import reference_kernels as reference
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from training_labels import training_labels

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.supports import feature_sums, indexed_csr
from tagwise.solvers import support as module
from tagwise.solvers.support import SupportFeatures, SupportRidge
from tagwise.validation import canonical_csr, check_labels, check_observed


def problem(seed=0, n=60, d=25, n_labels=9, rank=3, density=0.3, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) * (rng.random((n, d)) < density)).astype(dtype)
    Y = (rng.random((n, n_labels)) < rng.uniform(0, 0.3, size=n_labels)).astype(dtype)
    U, V = rng.standard_normal((d, rank)).astype(dtype), 0.1 * rng.standard_normal((n_labels, rank)).astype(dtype)
    return X, Y, U, V, rng.standard_normal(n_labels) * 0.1, rng.uniform(0.5, 4, size=n_labels)


def support_ridge(
    X, Y, *, observed=None, reg=1.0, support=200, positive_weight=None, row_weight=None, memory_limit=2**31, n_threads=1
):
    """The solver for labels in any form, checked as a model checks them."""
    features = SupportFeatures.build(
        canonical_csr(sp.csr_matrix(X)),
        support=support,
        with_gram=observed is None,
        row_weight=row_weight,
        memory_limit=memory_limit,
        n_threads=n_threads,
    )
    Y = check_labels(Y, n_rows=X.shape[0])
    known = None if observed is None else check_observed(observed, shape=Y.shape, may_be_empty=True)
    labels = training_labels(Y, known, None)
    return SupportRidge(
        features, labels.positives, known=labels.observed, reg=reg, support=support, positive_weight=positive_weight,
        n_threads=n_threads,
    )  # fmt: skip


@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64]))
def test_rows_and_features_list_the_same_entries(seed, dtype):
    rng = np.random.default_rng(seed)
    dense = problem(seed, n=rng.integers(1, 12), d=rng.integers(1, 9), dtype=dtype)[0]
    X, root = sp.csr_matrix(dense), rng.uniform(0.5, 2, size=len(dense))
    for row in range(len(dense)):  # in any order within a row
        own, mixed = slice(X.indptr[row], X.indptr[row + 1]), rng.permutation(X.indptr[row + 1] - X.indptr[row])
        X.indices[own], X.data[own] = X.indices[own][mixed], X.data[own][mixed]
    rows, expected = indexed_csr(X, root), sp.csr_matrix(dense)
    for found, wanted in zip(rows[:3], (expected.indptr, expected.indices, expected.data)):
        np.testing.assert_array_equal(found, wanted)
    for feature in range(dense.shape[1]):
        places = slice(rows.feature_indptr[feature], rows.feature_indptr[feature + 1])
        np.testing.assert_array_equal(rows.feature_rows[places], np.flatnonzero(dense[:, feature]))
        np.testing.assert_array_equal(
            rows.data[rows.feature_positions[places]], dense[rows.feature_rows[places], feature]
        )
    found, there = feature_sums(rows), dense != 0
    walks = (there * np.cumsum(there[:, ::-1], axis=1)[:, ::-1]).sum(axis=0)
    np.testing.assert_array_equal(found.walks, walks)
    np.testing.assert_allclose(found.squares, (dense.astype(float) ** 2).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.sums, (dense * root[:, None]).sum(axis=0), rtol=1e-6, atol=1e-9)


def support_least_squares(X, Y, *, low_rank=None, intercept=None, **settings):
    low_rank = (np.zeros((X.shape[1], 1)), np.zeros((Y.shape[1], 1))) if low_rank is None else low_rank
    intercept = np.zeros(Y.shape[1]) if intercept is None else intercept
    return support_ridge(X, Y, **settings).solve(*low_rank, intercept).weights


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.integers(1, 15),
    st.integers(0, 3),
    st.sampled_from([1, 3, 100]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([2**13, 2**20, 2**31]),
    st.sampled_from([0, 10**6]),
)
def test_equals_the_slow_twin(seed, n, d, rank, support, weighted, masked, memory_limit, column_step):
    X, Y, U, V, intercept, weights = problem(seed, n=n, d=d, n_labels=5, rank=rank)
    known = np.ones(Y.shape)
    if masked:
        known = (np.random.default_rng(seed).random(Y.shape) < 0.6).astype(float)
        known[0, 0] = 1
    weights = weights if weighted else np.ones(5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LEAST_WALK", 4)
        patch.setattr(module, "_WALK_PER_GATHER", 1)
        patch.setattr(module, "_COLUMN_STEP", column_step)
        found = support_least_squares(
            sp.csr_matrix(X), sp.csr_matrix(Y), low_rank=(U, V), reg=0.7, support=support, intercept=intercept,
            positive_weight=weights if weighted else None, memory_limit=memory_limit,
            observed=sp.csr_matrix(known) if masked else None,
        )  # fmt: skip
    assert isinstance(found, sp.csr_matrix)
    assert found.dtype == X.dtype
    assert found.has_canonical_format
    assert found.shape == (d, 5)
    expected = reference.support_least_squares(X, Y, U, V, 0.7, support, weights, intercept, known)
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-5, atol=1e-6)


def objective(X, Y, U, V, intercept, weights, known, S, reg):
    residual = Y - X @ U @ V.T - intercept - X @ S
    return 0.5 * np.sum(np.where(Y == 1, weights, 1.0) * known * residual**2, axis=0) + 0.5 * reg * np.sum(S**2, axis=0)


@pytest.mark.parametrize("masked", [False, True])
def test_a_gain_is_the_fall_of_the_objective_and_an_old_support_can_only_gain(masked):
    X, Y, U, V, intercept, weights = problem(3)
    known = (np.random.default_rng(1).random(Y.shape) < (0.5 if masked else 2)).astype(float)
    ridge = support_ridge(X, Y, observed=known if masked else None, reg=0.7, support=5, positive_weight=weights)
    first = ridge.solve(U, V, intercept)

    def value(V, S):
        return objective(X, Y, U, V, intercept, weights, known, S, 0.7)

    at_zero = value(V, np.zeros((25, 9)))
    np.testing.assert_allclose(at_zero - first.gain, value(V, first.weights.toarray()), rtol=1e-10)

    second = ridge.solve(U, 0.5 * V, intercept, pattern=first.weights)
    assert (second.weights.astype(bool) != first.weights.astype(bool)).nnz == 0
    assert (value(0.5 * V, second.weights.toarray()) <= value(0.5 * V, first.weights.toarray())).all()
    half = objective(X, Y, U, 0.5 * V, intercept, weights, known, np.zeros((25, 9)), 0.7)
    np.testing.assert_allclose(half - second.gain, value(0.5 * V, second.weights.toarray()), rtol=1e-10)


@pytest.mark.parametrize("masked", [False, True])
def test_a_support_that_no_solve_has_made_is_refused(masked):
    X, Y, U, V, intercept, _ = problem(3)
    ridge = support_ridge(X, Y, observed=np.ones(Y.shape) if masked else None, reg=0.7, support=5)
    full = sp.csr_matrix(np.ones((25, 9)))  # of which a system of 5 features has no room
    with pytest.raises(InvalidInputError, match=r"column 0 has more features .* support = 5"):
        ridge.solve(U, V, intercept, pattern=full)


def test_what_y_says_outside_the_mask_is_not_seen():
    X, Y, *_ = problem()
    known = np.random.default_rng(1).random(Y.shape) < 0.5
    one = support_least_squares(X, Y, observed=known)
    two = support_least_squares(X, np.where(known, Y, 1 - Y), observed=known)
    assert (one != two).nnz == 0


def test_with_all_features_it_is_the_ridge_regression_of_what_the_low_rank_and_the_intercept_leave(monkeypatch):
    monkeypatch.setattr(module, "LEAST_SHARE", 0.0)
    X, Y, U, V, intercept, _ = problem(n=200, density=0.9)
    Y[0] = 1  # every label has positives, and 0.9 of the features in each
    found = support_least_squares(X, Y, low_rank=(U, V), intercept=intercept, reg=0.5).toarray()
    residual = Y - X @ U @ V.T - intercept
    np.testing.assert_allclose(found, np.linalg.solve(X.T @ X + 0.5 * np.eye(25), X.T @ residual), atol=1e-5)


def test_a_planted_sparse_truth_is_recovered():
    rng = np.random.default_rng(0)
    n, d, n_labels = 3000, 400, 30
    X = sp.random(n, d, 0.02, format="csr", random_state=1)
    X.data[:] = 1
    planted = np.array([rng.choice(d, size=3, replace=False) for _ in range(n_labels)])
    Y = sp.csr_matrix(np.array([X[:, features].sum(axis=1).A1 > 0 for features in planted]).T.astype(float))
    found = support_least_squares(X, Y, reg=0.1, support=3).tocsc()
    for label, features in enumerate(planted):
        column = found[:, label]
        assert set(column.indices) == set(features)
        assert column.data.min() > 0.8


@pytest.mark.parametrize("column_step", [0, 10**6])
def test_whole_weights_of_positives_and_rows_are_copies(column_step, monkeypatch):
    monkeypatch.setattr(module, "_COLUMN_STEP", column_step)
    X, Y, U, V, intercept, _ = problem(n=80)
    rng = np.random.default_rng(1)
    weights, times = np.array([1, 2, 3, 1, 4, 2, 1, 5, 2]), rng.integers(0, 4, len(X))
    for known in (None, (rng.random(Y.shape) < 0.6).astype(float)):
        found = support_least_squares(
            X, Y, low_rank=(U, V), intercept=intercept, support=6, observed=known,
            positive_weight=weights.astype(float), row_weight=times.astype(float),
        )  # fmt: skip
        assert found.nnz > 20
        for label, weight in enumerate(weights):
            rows = np.repeat(np.arange(len(X)), times * np.where(Y[:, label] == 1, weight, 1))
            one = support_least_squares(
                X[rows], Y[rows][:, [label]], low_rank=(U, V[[label]]), intercept=intercept[[label]], support=6,
                observed=None if known is None else known[rows][:, [label]],
            )  # fmt: skip
            np.testing.assert_allclose(found[:, [label]].toarray(), one.toarray(), rtol=1e-5, atol=1e-7)


def power_law(dtype=np.float32):
    from tagwise.data import make_power_law

    X, Y = make_power_law(3000, 800, 300, features_per_row=15, labels_per_row=3, random_state=0)
    rng = np.random.default_rng(1)
    low_rank = tuple(0.1 * rng.standard_normal((size, 7)).astype(dtype) for size in (800, 300))
    return X.astype(dtype), Y, low_rank


def test_bit_identical_for_one_two_and_three_threads():
    X, Y, low_rank = power_law()
    weights = np.where(np.arange(300) % 2, 3.0, 1.0)
    one, two, three = (
        support_least_squares(X, Y, low_rank=low_rank, positive_weight=weights, support=40, n_threads=n)
        for n in (1, 2, 3)
    )
    for other in (two, three):
        assert one.data.tobytes() == other.data.tobytes()
        np.testing.assert_array_equal(one.indices, other.indices)
        np.testing.assert_array_equal(one.indptr, other.indptr)


def test_the_memory_limit_changes_how_much_is_stored_but_not_the_result(monkeypatch):
    X, Y, low_rank = power_law(np.float64)
    kept = []
    original = module.gram_of_last
    monkeypatch.setattr(
        module, "gram_of_last", lambda rows, count, **kw: kept.append(count) or original(rows, count, **kw)
    )
    monkeypatch.setattr(module, "_LEAST_WALK", 0)
    monkeypatch.setattr(module, "_WALK_PER_GATHER", 0)
    least = 16 * 50**2 + 48 * 800
    results = [
        support_least_squares(X, Y, low_rank=low_rank, support=50, memory_limit=limit)
        for limit in (least, least + 8 * 100 * 101 // 2, 2**31)
    ]
    assert kept[0] == 0
    assert kept[1] == 100
    assert kept[2] == np.count_nonzero(X.getnnz(axis=0))
    for other in results[1:]:
        np.testing.assert_allclose(results[0].toarray(), other.toarray(), rtol=1e-5, atol=1e-7)


def test_what_is_kept_of_the_gram_matrix_stays_in_proportion_to_the_features(monkeypatch):
    X, _, _ = power_law(np.float32)
    monkeypatch.setattr(module, "_LEAST_WALK", 0)
    monkeypatch.setattr(module, "_WALK_PER_GATHER", 0)
    whole = SupportFeatures.build(X, support=50)
    assert whole.kept == np.count_nonzero(X.getnnz(axis=0))
    monkeypatch.setattr(module, "_LITTLE_MEMORY", 0)
    monkeypatch.setattr(module, "_KEPT_PER_X", 0.5)
    part = SupportFeatures.build(X, support=50)
    most = 0.5 * 8 * X.nnz
    assert part.triangle.nbytes <= most < part.triangle.nbytes + 4 * (part.kept + 1)


def test_labels_without_positives_and_rows_without_features_give_empty_columns():
    X = sp.csr_matrix(np.array([[1.0, 0, 2], [0, 0, 0], [0, 3, 0]]))
    Y = sp.csr_matrix(np.array([[0, 1, 0], [1, 0, 0], [0, 1, 0]], dtype=float))
    found = support_least_squares(X, Y)
    np.testing.assert_array_equal(found.getnnz(axis=0), [0, 3, 0])
    assert support_least_squares(X, sp.csr_matrix((3, 4))).shape == (3, 4)


def test_explicit_zeros_are_no_occurrences_and_inputs_are_left_alone():
    X = sp.csr_matrix(np.array([[1.0, 5, 2], [0, 1, 1]]))
    X.data[1] = 0
    before = X.copy()
    found = support_least_squares(X, sp.csr_matrix(np.array([[1.0], [0]])))
    np.testing.assert_array_equal(found.tocsc().indices, [0, 2])
    np.testing.assert_array_equal(X.data, before.data)
    np.testing.assert_array_equal(X.indices, before.indices)


def test_what_cannot_be_solved_is_named():
    X, Y, *_ = problem()
    with pytest.raises(InvalidInputError, match="low_rank contains NaN"):
        support_least_squares(X, Y, low_rank=(np.full((25, 2), np.inf), np.ones((9, 2))))
    with pytest.raises(InvalidInputError, match="memory_limit is 1,000 bytes, but systems of 25 features need 11,200"):
        support_least_squares(X, Y, memory_limit=1000)
    with pytest.raises(InvalidInputError, match="reg=1e-10 is too small beside the features"):
        support_least_squares(np.full((50, 2), 1e8), np.ones((50, 1)), reg=1e-10)
