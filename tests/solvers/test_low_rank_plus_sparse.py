"""The decomposition against planted parts and a dense twin."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagwise.data import load_dataset
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.solvers.low_rank_plus_sparse import largest_residuals, low_rank_plus_sparse


def planted(seed, shape=(80, 60), rank=3, outliers=200):
    rng = np.random.default_rng(seed)
    low = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))
    S = np.zeros(shape)
    S.flat[rng.choice(S.size, outliers, replace=False)] = rng.choice([-1, 1], outliers) * rng.uniform(4, 9, outliers)
    return low, S


def dense_largest(Y, U, V, cardinality):
    """All residuals sorted by falling size, equal ones in row-major order."""
    residual = np.asarray(Y - U @ V.T)
    order = np.argsort(-np.abs(residual).ravel(), kind="stable")[:cardinality]
    S = np.zeros_like(residual)
    S.flat[order] = residual.flat[order]
    return S, np.sum((residual - S) ** 2)


def random_labels(seed, shape, density=0.2):
    return sp.random(*shape, density, format="csr", random_state=seed, data_rvs=np.ones)


def test_recovers_planted_parts():
    for seed in range(3):
        low, S = planted(seed)
        result = low_rank_plus_sparse(low + S, 3, 200, max_iter=200, tol=1e-15)
        assert result.status == "converged"
        np.testing.assert_allclose(result.U @ result.V.T, low, atol=1e-4)
        np.testing.assert_allclose(result.S.toarray(), S, atol=1e-4)
        np.testing.assert_array_equal(result.S.toarray() != 0, S != 0)
    narrow = low_rank_plus_sparse((low + S).astype(np.float32), 3, 200)
    assert {narrow.U.dtype, narrow.V.dtype, narrow.S.dtype} == {np.dtype(np.float32)}
    np.testing.assert_allclose(narrow.S.toarray(), S, atol=0.1)
    short = low_rank_plus_sparse(low + S, 3, 200, max_iter=2, tol=0)
    assert (short.status, len(short.objective)) == ("max_iter", 2)


@settings(max_examples=40)
@given(st.integers(1, 25), st.integers(1, 25), st.integers(1, 6), st.integers(0, 60), st.integers(0, 999))
def test_objective_falls_and_is_what_it_says(n_rows, n_columns, rank, cardinality, seed):
    Y = random_labels(seed, (n_rows, n_columns), 0.4)
    result = low_rank_plus_sparse(Y, rank, cardinality, max_iter=8, tol=0)
    total = np.sum(Y.data**2)
    history = np.concatenate([[total], result.objective])
    assert (np.diff(history) <= 1e-9 * max(total, 1)).all()
    left = Y.toarray() - result.U @ result.V.T - result.S.toarray()
    assert result.objective[-1] == pytest.approx(np.sum(left**2), abs=1e-9 * max(total, 1))
    assert result.S.nnz <= cardinality
    assert result.U.shape == (n_rows, min(rank, n_rows, n_columns))
    np.testing.assert_allclose(result.V.T @ result.V, np.eye(result.V.shape[1]), atol=1e-10)


def test_objective_falls_where_the_decomposition_is_not_exact():
    # 150 columns against a subspace of 15: the spectrum of random labels is flat, the hardest for power steps.
    Y = random_labels(0, (200, 150), 0.1)
    result = low_rank_plus_sparse(Y, 5, 300, max_iter=25, tol=0)
    assert len(result.objective) > 10
    assert (np.diff(result.objective) <= 1e-9 * result.objective[0]).all()


@pytest.mark.parametrize("cardinality", [10, 17, 10**6])
def test_rank_and_cardinality_may_cover_everything(cardinality):
    Y = random_labels(1, (6, 5), 0.5)
    result = low_rank_plus_sparse(Y, 100, cardinality)
    assert result.U.shape == (6, 5)
    assert result.objective[-1] == pytest.approx(0, abs=1e-20)
    nothing = low_rank_plus_sparse(sp.csr_matrix((4, 3)), 2, cardinality)
    assert (nothing.S.nnz, nothing.objective.tolist(), nothing.status) == (0, [0.0], "converged")


@settings(max_examples=60)
@given(st.integers(1, 20), st.integers(1, 12), st.integers(0, 80), st.integers(1, 60), st.integers(0, 999))
def test_streaming_agrees_with_sorting_everything(n_rows, n_columns, cardinality, block, seed):
    rng = np.random.default_rng(seed)
    Y = random_labels(seed, (n_rows, n_columns), 0.3)
    # Small whole numbers: many equal residuals, and no rounding to tell them apart.
    U, V = rng.integers(-1, 2, (n_rows, 2)).astype(float), rng.integers(-1, 2, (n_columns, 2)).astype(float)
    expected, left = dense_largest(Y.toarray(), U, V, cardinality)
    for given_form in (Y, Y.toarray()):
        S, value = largest_residuals(given_form, U, V, cardinality, block=block)
        np.testing.assert_array_equal(S.toarray(), expected)
        assert value == pytest.approx(left, abs=1e-12)
        assert S.nnz == np.count_nonzero(expected)
        assert S.has_canonical_format
        assert type(S) is sp.csr_matrix


def test_never_holds_the_whole_matrix():
    Y = random_labels(0, (4000, 3000), 0.001)
    rng = np.random.default_rng(0)
    U, V = rng.standard_normal((4000, 3)), rng.standard_normal((3000, 3))
    tracemalloc.start()
    S, _ = largest_residuals(Y, U, V, 1000, block=1 << 17)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert S.nnz == 1000
    assert peak < 0.1 * 8 * 4000 * 3000


def test_sparse_and_dense_input_agree_and_a_seed_repeats():
    Y = random_labels(3, (60, 40))
    first = low_rank_plus_sparse(Y, 4, 50, random_state=7)
    for other in (Y.toarray(), sp.csc_array(Y), Y.toarray().astype(int)):
        second = low_rank_plus_sparse(other, 4, 50, random_state=7)
        np.testing.assert_allclose(second.U @ second.V.T, first.U @ first.V.T, atol=1e-9)
        np.testing.assert_allclose(second.S.toarray(), first.S.toarray(), atol=1e-9)
    again = low_rank_plus_sparse(Y, 4, 50, random_state=7)
    np.testing.assert_array_equal(again.U, first.U)
    np.testing.assert_array_equal(again.S.toarray(), first.S.toarray())


BAD = [
    ({"Y": np.ones(3)}, "Y must have two dimensions"),
    ({"Y": np.array([[np.nan]])}, "Y contains NaN"),
    ({"rank": 0}, "rank must be at least 1"),
    ({"rank": 1.5}, "rank must be a whole number"),
    ({"cardinality": -1}, "cardinality must be at least 0"),
    ({"max_iter": 0}, "max_iter must be at least 1"),
    ({"tol": -1.0}, "tol must be"),
    ({"random_state": "a"}, "random_state must be"),
]


def test_bad_input():
    for changes, words in BAD:
        with pytest.raises((InvalidInputError, InvalidTypeError), match=words):
            low_rank_plus_sparse(**{"Y": np.eye(3), "rank": 1, "cardinality": 1, **changes})


def test_a_sparse_part_helps_more_on_bibtex_than_as_many_numbers_of_rank(data_folder):
    Y = load_dataset("bibtex").Y_train
    plain = low_rank_plus_sparse(Y, 21, 0).objective[-1]
    # One rank fewer frees n + L numbers; each entry of S takes one and its place.
    both = low_rank_plus_sparse(Y, 20, (Y.shape[0] + Y.shape[1]) // 2).objective[-1]
    assert both < plain
