"""Exact scores of candidates against the whole product."""

import numpy as np
import pytest
import reference_kernels as reference
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.shortlists import top_k_of_candidates


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
