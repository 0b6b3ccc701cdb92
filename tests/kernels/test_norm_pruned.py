"""Search in the order of falling norms, alone and within bounds: the same answer as all products give."""

from functools import partial

import numpy as np
import pytest
import reference_kernels as reference
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from inner import from_python

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import norm_pruned, top_k_of_factors_and_sparse
from tagwise.kernels.norm_pruned import (
    BoundedLabels,
    NormSorted,
    norm_bounds,
    norm_pruned_topk,
    top_k_within_bounds,
)

FLOATS = [np.float32, np.float64]


@st.composite
def problems(draw):
    """Small whole numbers, so that sums are exact and ties common; some labels are much longer than others."""
    n_rows, n_labels, rank = draw(st.integers(0, 9)), draw(st.integers(1, 150)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from(FLOATS))
    left, right = (rng.integers(-2, 3, size=(size, rank)).astype(dtype) for size in (n_rows, n_labels))
    right *= rng.choice(draw(st.sampled_from([[1], [0, 1, 8], [0]])), size=n_labels)[:, None].astype(dtype)
    intercept = rng.integers(-3, 4, size=n_labels).astype(draw(st.sampled_from(FLOATS)))
    exclude = None
    if draw(st.booleans()):
        exclude = sp.csr_matrix(rng.random((n_rows, n_labels)) < draw(st.sampled_from([0.1, 0.5, 1.0])))
    return left, right, intercept, exclude


@given(problems(), st.sampled_from([1, 2, 5, 200]), st.integers(1, 3), st.sampled_from([0, 2, 8]))
def test_the_same_as_the_twin_one_by_one_and_by_blas(problem, k, n_threads, few):
    left, right, intercept, exclude = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(norm_pruned, "FEW_ROWS", few)
        patch.setattr(norm_pruned, "_TILE_WIDTH", 70)
        found = norm_pruned_topk(left, NormSorted.of(right, intercept), k, exclude=exclude, n_threads=n_threads)
    expected = reference.top_k_of_factors(left, right, k, intercept.astype(left.dtype), exclude)
    for ours, theirs in zip(found, expected):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


def skewed(dtype=np.float32, n_rows=700, n_labels=4000, rank=12):
    """Lengths that fall as those of labels of very different frequency."""
    rng = np.random.default_rng(3)
    left = rng.standard_normal((n_rows, rank)).astype(dtype)
    right = (rng.standard_normal((n_labels, rank)) * rng.pareto(1.5, n_labels)[:, None]).astype(dtype)
    return left, right, rng.standard_normal(n_labels).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_many_tiles_row_blocks_and_threads_and_most_labels_are_never_looked_at(dtype):
    left, right, intercept = skewed(dtype)
    equal = right / np.linalg.norm(right, axis=1, keepdims=True)
    for factors, ruled_out in ((right, True), (equal, False)):
        expected, scores = reference.top_k_of_factors(left, factors, 6, intercept)
        known = NormSorted.of(factors, intercept)
        assert known.rule_out_others == ruled_out
        if ruled_out:  # The product of a label that is ruled out would be NaN.
            spoilt = right.copy()
            spoilt[known.order[2500:]] = np.nan
            known = NormSorted(spoilt, intercept, known.order, known.lengths, known.shift, known.highest)
        for rows in (slice(None), slice(3, 5)):
            labels, found = norm_pruned_topk(left[rows], known, 6)
            np.testing.assert_array_equal(labels, expected[rows])
            np.testing.assert_allclose(found, scores[rows], rtol=1e-4, atol=1e-4)
            for n_threads in (2, 3):
                for ours, one in zip(norm_pruned_topk(left[rows], known, 6, n_threads=n_threads), (labels, found)):
                    assert ours.tobytes() == one.tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
def test_lengths_are_never_below_what_products_can_reach(dtype):
    rng = np.random.default_rng(0)
    right = (rng.standard_normal((500, 300)) * 10.0 ** rng.integers(-6, 6, 500)[:, None]).astype(dtype)
    lengths = norm_bounds(right)
    product, norm = from_python(norm_pruned.product), from_python(norm_pruned.norm)
    assert lengths.dtype == dtype
    assert (lengths >= np.linalg.norm(right.astype(np.float64), axis=1)).all()
    # The largest product with a row is that with a row of its own direction.
    with np.errstate(over="ignore"):
        own = np.array([product(row, right, at) for at, row in enumerate(right)])
    assert (own <= lengths * np.array([norm(row) for row in right])).all()
    assert (norm_bounds(np.zeros((3, 2), dtype=dtype)) == 0).all()


def test_what_does_not_fit_is_named():
    right, zeros = np.ones((5, 3)), np.zeros(5)
    known, bounded = NormSorted.of(right, zeros), BoundedLabels(right, norm_bounds(right), zeros)
    left, rows, sparse = np.ones((2, 3)), sp.csr_matrix((2, 4)), sp.csr_matrix((4, 5))
    bad = [
        (lambda: norm_pruned_topk(np.ones((2, 4)), known, 1), "left must be n×3 of type float64; found shape"),
        (lambda: norm_pruned_topk(left.astype(np.float32), known, 1), r"left must be n×3 .* type float32"),
        (lambda: norm_pruned_topk(left, known, 0), "k must be at least 1"),
        (lambda: norm_pruned_topk(left, known, 1, exclude=sp.csr_matrix((5, 2))), "exclude has shape"),
        (lambda: NormSorted.of(right, np.zeros(4)), "factors and intercept must be L×r and L"),
        (lambda: BoundedLabels.of(right, np.zeros(10**6)), "factors and intercept must be L×r and L"),
        (lambda: top_k_within_bounds(left[:, :2], bounded, 3, rows=rows, sparse=sparse), "n×r and L×r"),
    ]
    for lengths, intercept in ((np.ones(4), zeros), (np.ones(5), np.zeros(10**6))):
        wrong = BoundedLabels(right, lengths, intercept)
        call = partial(top_k_within_bounds, left, wrong, 3, rows=rows, sparse=sparse)
        bad.append((call, "lengths and intercept have shapes"))
    for call, words in bad:
        with pytest.raises(InvalidInputError, match=words):
            call()


# Top-k within bounds: the same labels as the plain product, whatever the factors look like.


def within_bounds(left, right, lengths, k, *, intercept, **parts):
    return top_k_within_bounds(left, BoundedLabels(right, lengths, intercept), k, **parts)


def problem(dtype, n=12, n_features=40, n_labels=500, rank=6, seed=0):
    """Long rows of factors for few labels, as with labels of very different frequency."""
    rng = np.random.default_rng(seed)
    right = rng.standard_normal((n_labels, rank)) * rng.pareto(1.0, n_labels)[:, None]
    return {
        "left": rng.standard_normal((n, rank)).astype(dtype),
        "right": right.astype(dtype),
        "intercept": rng.standard_normal(n_labels).astype(dtype),
        "rows": sp.random(n, n_features, 0.3, "csr", random_state=seed, dtype=dtype),
        "sparse": sp.random(n_features, n_labels, 0.05, "csr", random_state=seed, dtype=dtype),
    }


@st.composite
def whole_numbers(draw):
    """Sums are exact and ties common; more labels than groups, or few."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, n_labels, rank = draw(st.integers(1, 4)), draw(st.sampled_from([1, 9, 511, 513, 1500])), 3
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    right = rng.integers(-2, 3, size=(n_labels, rank)) * rng.choice([0, 1, 9], size=(n_labels, 1))
    weights = rng.integers(-9, 10, size=(5, n_labels)).astype(np.float32)
    parts = {
        "intercept": rng.integers(-2, 3, size=n_labels).astype(dtype),
        "rows": sp.csr_matrix(rng.integers(0, 2, size=(n_rows, 5)).astype(dtype)),
        "sparse": sp.csr_matrix(weights * (rng.random((5, n_labels)) < 0.1)),
    }
    hidden = None
    if draw(st.booleans()):
        hidden = sp.csr_matrix(rng.random((n_rows, n_labels)) < draw(st.sampled_from([0.1, 0.99, 1.0])))
    return rng.integers(-2, 3, size=(n_rows, rank)).astype(dtype), right.astype(dtype), parts, hidden


@given(whole_numbers(), st.sampled_from([1, 3, 50, 200]))
def test_the_same_as_the_twin(given, k):
    left, right, parts, hidden = given
    found = within_bounds(left, right, norm_bounds(right), k, exclude=hidden, **parts)
    expected = reference.top_k_of_factors_and_sparse(left, right, k, **parts, exclude=hidden)
    for ours, theirs in zip(found, expected):
        np.testing.assert_array_equal(ours, theirs)


def test_most_labels_are_never_multiplied():
    """What makes it fast: the product of a label that is ruled out would be NaN."""
    given = problem(np.float32, n_labels=5000)
    left, right = given.pop("left"), given.pop("right").clip(-1, 1) / 20
    lengths = norm_bounds(right)
    expected = top_k_of_factors_and_sparse(left, right, 5, **given)[0]
    best = reference.scores_of_factors_and_sparse(left, right, **given)
    worst = -np.sort(-best, axis=1)[:, 4]
    known = reference.scores_of_factors_and_sparse(left, 0 * right, **given)
    reach = known + np.linalg.norm(left, axis=1)[:, None] * lengths
    # Not even for a floor that is a fifth of the spread of scores too low.
    out = (reach < worst[:, None] - 0.2 * np.ptp(best, axis=1)[:, None]).all(axis=0)
    assert out.mean() > 0.5
    right[out] = np.nan
    np.testing.assert_array_equal(within_bounds(left, right, lengths, 5, **given)[0], expected)


def test_a_floor_above_the_kth_best_score_is_lowered():
    """The low rank takes more from the labels with the largest sums than from all others."""
    n_labels = 3000
    right = np.full((n_labels, 1), -0.1)
    right[:40] = -5.0
    intercept = np.linspace(0.5, 0, n_labels)
    intercept[:40] += 3
    given = {"rows": sp.csr_matrix((2, 4)), "sparse": sp.csr_matrix((4, n_labels)), "intercept": intercept}
    left = np.array([[1.0], [0.0]])
    found = within_bounds(left, right, norm_bounds(right), 20, **given)
    for ours, theirs in zip(found, top_k_of_factors_and_sparse(left, right, 20, **given)):
        np.testing.assert_allclose(ours, theirs)
    assert found[0].tolist() == [[*range(40, 60)], [*range(20)]]


def test_in_the_order_of_labels_and_by_any_number_of_threads():
    given = problem(np.float32, n=700, n_labels=2000)
    left, right = given.pop("left"), given.pop("right")
    lengths = norm_bounds(right)
    labels, scores = within_bounds(left, right, lengths, 9, **given)
    for n_threads in (1, 2, 3):
        for ours, theirs in zip(within_bounds(left, right, lengths, 9, **given, n_threads=n_threads), (labels, scores)):
            np.testing.assert_array_equal(ours, theirs)
        unsorted = within_bounds(left, right, lengths, 9, **given, best_first=False, n_threads=n_threads)
        np.testing.assert_array_equal(unsorted[0], np.sort(labels, axis=1))
        np.testing.assert_array_equal(-np.sort(-unsorted[1], axis=1), scores)
    # A row alone has the bits that it has among others.
    parts = given | {"rows": given["rows"][640]}
    alone = within_bounds(left[640:641], right, lengths, 9, **parts)
    np.testing.assert_array_equal(alone[1][0], scores[640])
