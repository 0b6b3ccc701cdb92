"""Shortlists against the whole product: exact scores of candidates, scores listed for few labels, and of the others."""

import numpy as np
import pytest
import reference_kernels as reference
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import shortlists
from tagwise.kernels.shortlists import (
    behind_shortlist,
    scores_of_listed,
    top_k_of_candidates,
    top_k_of_listed,
    top_k_of_touched,
)


@st.composite
def problems(draw):
    n_rows, n_labels, rank = draw(st.integers(0, 6)), draw(st.integers(1, 40)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    left, right = (rng.integers(-2, 3, size=(size, rank)).astype(dtype) for size in (n_rows, n_labels))
    width = draw(st.integers(0, n_labels))
    candidates = np.array([rng.permutation(n_labels)[:width] for _ in range(n_rows)], dtype=int).reshape(n_rows, width)
    candidates[rng.random(candidates.shape) < 0.2] = -1
    exclude = sp.csr_matrix(rng.random((n_rows, n_labels)) < 0.3) if draw(st.booleans()) else None
    return left, right, rng.integers(-2, 3, size=n_labels).astype(dtype), candidates, exclude


@given(problems(), st.sampled_from([1, 3, 50]), st.integers(1, 3))
def test_the_same_as_all_products_with_the_others_hidden(problem, k, n_threads):
    left, right, intercept, candidates, exclude = problem
    hidden = np.ones((len(left), len(right)), dtype=bool)
    for row, chosen in enumerate(candidates):
        hidden[row, chosen[chosen >= 0]] = False
    if exclude is not None:
        hidden |= exclude.toarray()
    found = top_k_of_candidates(left, right, candidates, k, intercept=intercept, exclude=exclude, n_threads=n_threads)
    expected = reference.top_k_of_factors(left, right, k, intercept, sp.csr_matrix(hidden))
    for ours, theirs in zip(found, expected):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 7, 200])
def test_the_best_of_touched_labels(dtype, k):
    """Against the whole product with all other labels hidden; several chunks, thresholds that rise and fall."""
    rng = np.random.default_rng(k)
    n, d, n_labels, rank = 1100, 30, 90, 4
    rows = sp.random(n, d, 0.1, format="csr", random_state=1, dtype=np.float64).astype(dtype)
    rows.data *= np.repeat(rng.choice([0.01, 1, 10], size=n), np.diff(rows.indptr)).astype(dtype)
    sparse = sp.random(d, n_labels, 0.2, format="csr", random_state=2, dtype=np.float64).astype(dtype)
    left, right = (rng.standard_normal((size, rank)).astype(dtype) for size in (n, n_labels))
    intercept, always = rng.standard_normal(n_labels).astype(dtype), rng.permutation(n_labels)[:3]
    parts = {"intercept": intercept, "rows": rows, "sparse": sparse, "always": always}
    labels, scores = top_k_of_touched(left, right, k, **parts)
    touched = ((rows != 0).astype(int) @ (sparse != 0).astype(int)).toarray() > 0
    touched[:, always] = True
    expected = np.where(touched, left @ right.T + intercept + (rows @ sparse).toarray(), -np.inf)
    best = -np.sort(-expected, axis=1)[:, :k]
    np.testing.assert_allclose(scores[:, :n_labels], best, rtol=1e-4, atol=1e-5)
    of_labels = np.take_along_axis(expected, labels, axis=1)
    np.testing.assert_allclose(scores[labels >= 0], of_labels[labels >= 0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(labels < 0, np.isneginf(scores))
    assert all(len(set(found[found >= 0])) == (found >= 0).sum() for found in labels)
    for n_threads in (2, 3):
        again = top_k_of_touched(left, right, k, **parts, n_threads=n_threads)
        np.testing.assert_array_equal(again[0], labels)
        np.testing.assert_array_equal(again[1], scores)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"right": np.ones((5, 3))}, "must be n×r, L×r, n×m and L"),
        ({"candidates": np.zeros((3, 2), dtype=int)}, "must be n×r, L×r, n×m and L"),
        ({"candidates": np.zeros(4, dtype=int)}, "must be n×r, L×r, n×m and L"),
        ({"intercept": np.zeros(4)}, "must be n×r, L×r, n×m and L"),
        ({"candidates": np.full((4, 2), 5)}, "candidates holds label 5; there are 5"),
        ({"k": 0}, "k must be at least 1"),
        ({"exclude": sp.csr_matrix((4, 4))}, "exclude has shape"),
    ],
)
def test_parts_that_do_not_fit_are_named(change, message):
    given = {
        "left": np.ones((4, 2)), "right": np.ones((5, 2)), "candidates": np.zeros((4, 2), dtype=int), "k": 1,
        "intercept": np.zeros(5),
    }  # fmt: skip
    top_k_of_candidates(**given)
    with pytest.raises(InvalidInputError, match=message):
        top_k_of_candidates(**{**given, **change})


# Scores listed for few labels, the rest by a base score, against the twin that makes them all.


@st.composite
def listings(draw):
    n_rows, n_labels = draw(st.integers(0, 12)), draw(st.integers(1, 15))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    density, dtype = draw(st.sampled_from([0.0, 0.2, 1.0])), draw(st.sampled_from([np.float32, np.float64]))
    listed = sp.csr_matrix((rng.random((n_rows, n_labels)) < density).astype(dtype))
    listed.data = rng.integers(-2, 3, listed.nnz).astype(dtype)
    if draw(st.booleans()):
        for row in range(n_rows):
            stored = slice(listed.indptr[row], listed.indptr[row + 1])
            listed.indices[stored] = listed.indices[stored][::-1].copy()
        listed.has_sorted_indices = False
    base = rng.integers(-2, 3, n_labels).astype(dtype)
    exclude = sp.csr_matrix(rng.random((n_rows, n_labels)) < draw(st.sampled_from([0.2, 1.0])))
    return listed, base, exclude if draw(st.booleans()) else None


@given(listings(), st.sampled_from([1, 2, 5, 20]), st.integers(1, 3))
def test_top_k_equals_the_twin(problem, k, n_threads):
    listed, base, exclude = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shortlists, "_ROWS", 4)
        found = top_k_of_listed(listed, base, k, exclude=exclude, n_threads=n_threads)
    for ours, theirs in zip(found, reference.top_k_of_listed(listed, base, k, exclude)):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


@given(listings())
def test_dense_scores_equal_the_twin(problem):
    listed, base, _ = problem
    found = scores_of_listed(listed, base)
    assert found.dtype == base.dtype
    np.testing.assert_array_equal(found, reference.scores_of_listed(listed, base))


def test_listed_scores_may_be_below_the_base():
    listed = sp.csr_matrix((np.array([-5.0, 7.0]), ([0, 0], [1, 3])), shape=(1, 4))
    labels, scores = top_k_of_listed(listed, np.array([0.0, 9.0, 1.0, 0.0]), 4)
    np.testing.assert_array_equal(labels, [[3, 2, 0, 1]])
    np.testing.assert_array_equal(scores, [[7, 1, 0, -5]])


def test_shapes_that_do_not_fit():
    listed = sp.csr_matrix((2, 3))
    with pytest.raises(InvalidInputError, match=r"base has shape \(4,\)"):
        top_k_of_listed(listed, np.zeros(4), 1)
    with pytest.raises(InvalidInputError, match=r"base has shape \(4,\)"):
        scores_of_listed(listed, np.zeros(4))
    with pytest.raises(InvalidInputError, match="exclude has shape"):
        top_k_of_listed(listed, np.zeros(3), 1, exclude=sp.csr_matrix((3, 3)))
    with pytest.raises(InvalidInputError, match="k must be at least 1"):
        top_k_of_listed(listed, np.zeros(3), 0)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=9), st.sampled_from([np.float32, np.float64]))
def test_scores_behind_a_shortlist_keep_their_order_below_it(scores, dtype):
    proposed = np.sort(np.array([scores], dtype=dtype))
    found = behind_shortlist(proposed)
    assert found.dtype == dtype
    assert (found <= -0.5).all()
    assert (np.diff(found) >= 0).all()
    np.testing.assert_allclose(behind_shortlist(np.array([[-2.0, -0.5, 0.0, 1.0]])), [[-3.0, -1.5, -1.0, -0.75]])
