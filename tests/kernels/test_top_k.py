"""Scores of low rank plus an inverted index against their slow twins."""

from itertools import product

import numpy as np
import pytest
import reference_kernels as reference
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from inner import from_python

from tagwise import kernels
from tagwise.exceptions import InvalidInputError
from tagwise.kernels import top_k
from tagwise.kernels.sampled_pairs import first_from

FLOATS = [np.float32, np.float64]
count_above, kth_largest = from_python(top_k.count_above), from_python(top_k.kth_largest)
sort_names, first = from_python(top_k.sort_names), from_python(first_from)


def whole_numbers(rng, shape, density, dtype, index_type=np.int32):
    """Sparse small whole numbers, so that sums are exact and ties common."""
    dense = rng.integers(-2, 3, size=shape) * (rng.random(shape) < density)
    matrix = sp.csr_matrix(dense.astype(dtype))
    # Set directly: scipy's constructor would narrow the index type.
    matrix.indptr, matrix.indices = matrix.indptr.astype(index_type), matrix.indices.astype(index_type)
    return matrix


@st.composite
def problems(draw):
    n_rows, n_features, n_labels = draw(st.integers(0, 7)), draw(st.integers(1, 9)), draw(st.integers(1, 60))
    rank = draw(st.integers(0, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype, other = draw(st.sampled_from(FLOATS)), draw(st.sampled_from(FLOATS))
    index_type = draw(st.sampled_from([np.int32, np.int64]))
    density = draw(st.sampled_from([0.0, 0.1, 0.6, 1.0]))
    left, right = (rng.integers(-2, 3, size=(size, rank)).astype(dtype) for size in (n_rows, n_labels))
    parts = {
        "intercept": rng.integers(-2, 3, size=n_labels).astype(other) if draw(st.booleans()) else None,
        "rows": whole_numbers(rng, (n_rows, n_features), 0.5, other, index_type),
        "sparse": whole_numbers(rng, (n_features, n_labels), density, np.float32, index_type),
    }
    exclude = None
    if draw(st.booleans()):
        exclude = sp.csr_matrix(rng.random((n_rows, n_labels)) < draw(st.sampled_from([0.1, 0.5, 1.0])))
    return left, right, parts, exclude


@given(problems(), st.sampled_from([1, 2, 5, 12, 30, 100]), st.integers(1, 3), st.sampled_from([1, 7, 150, 1 << 20]))
def test_top_k_equals_the_twin_for_any_tile(problem, k, n_threads, tile_scores):
    left, right, parts, exclude = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(top_k, "_SPARSE_TILE_SCORES", max(tile_scores, len(left)))
        patch.setattr(top_k, "_ROWS_WITH_FACTORS", 3)
        patch.setattr(top_k, "_ROWS_WITHOUT_FACTORS", 2)
        found = kernels.top_k_of_factors_and_sparse(left, right, k, **parts, exclude=exclude, n_threads=n_threads)
    expected = reference.top_k_of_factors_and_sparse(left, right, k, **parts, exclude=exclude)
    for ours, theirs in zip(found, expected):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


@given(problems(), st.integers(1, 3))
def test_dense_scores_equal_the_twin(problem, n_threads):
    left, right, parts, _ = problem
    found = kernels.scores_of_factors_and_sparse(left, right, **parts, n_threads=n_threads)
    assert found.dtype == left.dtype
    np.testing.assert_array_equal(found, reference.scores_of_factors_and_sparse(left, right, **parts))


def large_problem(rank, dtype=np.float32):
    rng = np.random.default_rng(rank)
    n_rows, n_features, n_labels = 700, 300, 9000
    left, right = (rng.standard_normal((size, rank)).astype(dtype) for size in (n_rows, n_labels))
    return (
        left,
        right,
        {
            "intercept": rng.standard_normal(n_labels),
            "rows": sp.random(n_rows, n_features, 0.05, format="csr", dtype=dtype, random_state=1),
            "sparse": sp.random(n_features, n_labels, 0.05, format="csr", dtype=np.float32, random_state=2),
        },
    )


@pytest.mark.parametrize("rank", [0, 6])
def test_many_tiles_and_row_blocks_and_the_same_bits_for_one_two_and_three_threads(rank):
    for dtype, k in product(FLOATS, (8, 200)):
        left, right, parts = large_problem(rank, dtype)
        labels, scores = kernels.top_k_of_factors_and_sparse(left, right, k, **parts)
        dense = kernels.scores_of_factors_and_sparse(left, right, **parts)
        exact = reference.scores_of_factors_and_sparse(left, right, **parts)
        np.testing.assert_allclose(scores, -np.sort(-exact, axis=1)[:, :k], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(exact, labels, axis=1), scores, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(dense, exact, rtol=1e-4, atol=1e-5)
        for n in (2, 3):
            again = kernels.top_k_of_factors_and_sparse(left, right, k, **parts, n_threads=n)
            for ours, theirs in zip(again, (labels, scores)):
                np.testing.assert_array_equal(ours, theirs)
            np.testing.assert_array_equal(
                kernels.scores_of_factors_and_sparse(left, right, **parts, n_threads=n), dense
            )


def test_unsorted_lists_and_read_only_inputs_are_left_as_they_are():
    left, right, parts = large_problem(6)
    expected = kernels.top_k_of_factors_and_sparse(left, right, 5, **parts)[0]
    sparse = parts["sparse"]
    backwards = sp.csr_matrix(sparse.shape, dtype=np.float32)
    backwards.indptr = sparse.indptr
    backwards.indices = np.concatenate([sparse[f].indices[::-1] for f in range(sparse.shape[0])])
    backwards.data = np.concatenate([sparse[f].data[::-1] for f in range(sparse.shape[0])])
    before = backwards.indices.copy()
    for array in (left, right, backwards.indices, backwards.data, parts["rows"].data, parts["rows"].indices):
        array.setflags(write=False)
    found = kernels.top_k_of_factors_and_sparse(left, right, 5, **{**parts, "sparse": backwards})[0]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(backwards.indices, before)


def test_parts_that_do_not_fit_are_named():
    parts = {"left": np.ones((4, 2)), "right": np.ones((5, 2)), "rows": sp.csr_matrix((4, 3))}
    parts["sparse"] = sp.csr_matrix((3, 5))
    kernels.top_k_of_factors_and_sparse(**parts, k=1)
    for change, message in [
        ({"right": np.ones((5, 3))}, "left and right must be n×r and L×r"),
        ({"right": np.ones((5, 2), dtype=np.float32)}, "left and right must share one floating type"),
        ({"left": np.ones((4, 2), dtype=int), "right": np.ones((5, 2), dtype=int)}, "one floating type"),
        ({"rows": np.ones((4, 3))}, "rows and sparse must be CSR"),
        ({"sparse": sp.csc_matrix((3, 5))}, "rows and sparse must be CSR"),
        ({"rows": sp.csr_matrix((3, 3))}, "rows and sparse must be 4×d and d×5"),
        ({"sparse": sp.csr_matrix((3, 6))}, "rows and sparse must be 4×d and d×5"),
        ({"intercept": np.ones(4)}, "intercept has shape"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            kernels.top_k_of_factors_and_sparse(**{**parts, **change}, k=1)
        with pytest.raises(InvalidInputError, match=message):
            kernels.scores_of_factors_and_sparse(**{**parts, **change})
    with pytest.raises(InvalidInputError, match="exclude has shape"):
        kernels.top_k_of_factors_and_sparse(**parts, k=1, exclude=sp.csr_matrix((5, 4)))
    with pytest.raises(InvalidInputError, match="k must be at least 1"):
        kernels.top_k_of_factors_and_sparse(**parts, k=0)


@given(
    st.lists(
        st.sampled_from([-np.inf, -1e30, -3.5, -1e-45, 0.0, 1e-45, 1.0, 1 + 2**-23, 7e37, 3e38, np.inf]), min_size=1
    ),
    st.integers(0, 2**32 - 1),
    st.sampled_from([np.float32, np.float64]),
)
def test_the_kth_largest_parts_the_k_largest_from_the_others(some, seed, dtype):
    rng = np.random.default_rng(seed)
    values = np.concatenate([some, rng.standard_normal(rng.integers(0, 60))]).astype(dtype)
    falling = -np.sort(-values)
    for k in range(1, len(values) + 1):
        border = kth_largest(values, k)
        if falling[k - 1] == -np.inf:
            assert border == -np.inf
            continue
        assert (values >= border).sum() >= k
        assert count_above(values, border) == (values > border).sum() <= k
        if (values >= border).sum() > k:  # equal values, of which some are among the k largest
            assert border == falling[k - 1]


@given(st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 1.0, 2.0, np.inf]), min_size=1, max_size=80), st.integers(1, 40))
def test_infinite_scores_have_their_place(some, k):
    """Models refuse them, but only after the best are found."""
    scores = np.array([some], dtype=np.float32)
    labels, best = top_k.top_k_of_scores(scores, k)
    order = np.argsort(-scores[0], kind="stable")[:k]
    order = order[scores[0][order] > -np.inf]
    np.testing.assert_array_equal(labels[0, : len(order)], order)
    np.testing.assert_array_equal(best[0, : len(order)], scores[0][order])
    assert (labels[0, len(order) :] == -1).all()


@given(st.lists(st.integers(0, 500), unique=True, max_size=200), st.sampled_from([501, 50_000]))
def test_names_are_sorted_by_either_way(names, n_places):
    places = np.full(n_places, -1, dtype=np.int32)
    places[names] = 0
    found = np.array(names, dtype=np.int32)
    sort_names(found, places)
    assert found.tolist() == sorted(names)
    for least in (0, 250, 600):
        assert first(found, 0, len(names), least) == np.searchsorted(found, least)
