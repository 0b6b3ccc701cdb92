"""Labels by falling length: the same answer as all products give, whatever the lengths are."""

import numpy as np
import pytest
import reference_kernels as reference
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import norm_pruned
from tagwise.kernels.norm_pruned import NormSorted, norm_bounds, norm_pruned_topk

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
@pytest.mark.parametrize("equal_lengths", [False, True])
def test_many_tiles_and_row_blocks(dtype, equal_lengths):
    left, right, intercept = skewed(dtype)
    if equal_lengths:
        right /= np.linalg.norm(right, axis=1, keepdims=True)
    expected, scores = reference.top_k_of_factors(left, right, 6, intercept)
    known = NormSorted.of(right, intercept)
    assert known.rule_out_others != equal_lengths
    for rows in (slice(None), slice(3, 5)):
        labels, found = norm_pruned_topk(left[rows], known, 6, n_threads=2)
        np.testing.assert_array_equal(labels, expected[rows])
        np.testing.assert_allclose(found, scores[rows], rtol=1e-4, atol=1e-4)


def test_bit_identical_for_one_two_and_three_threads():
    left, right, intercept = skewed()
    known = NormSorted.of(right, intercept)
    one = norm_pruned_topk(left, known, 5)
    for n_threads in (2, 3):
        for ours, theirs in zip(norm_pruned_topk(left, known, 5, n_threads=n_threads), one):
            assert ours.tobytes() == theirs.tobytes()


def test_most_labels_are_never_looked_at():
    """What makes it fast: the product of a label that is ruled out would be NaN."""
    left, right, intercept = skewed()
    expected = reference.top_k_of_factors(left, right, 5, intercept)[0]
    known = NormSorted.of(right, intercept)
    spoilt = right.copy()
    spoilt[known.order[2500:]] = np.nan
    beyond = NormSorted(spoilt, intercept, known.order, known.lengths, known.shift, known.highest)
    np.testing.assert_array_equal(norm_pruned_topk(left, beyond, 5)[0], expected)
    np.testing.assert_array_equal(norm_pruned_topk(left[:2], beyond, 5)[0], expected[:2])


def test_equal_scores_come_in_the_order_of_their_labels():
    right = np.repeat([[1.0, 0.0], [2.0, -1.0], [0.0, 0.0]], 20, axis=0)
    labels, _ = norm_pruned_topk(np.array([[1.0, 1.0]] * 30), NormSorted.of(right, np.zeros(60)), 45)
    np.testing.assert_array_equal(labels[0], np.arange(45))
    np.testing.assert_array_equal(labels[29], np.arange(45))


@pytest.mark.parametrize("dtype", FLOATS)
def test_lengths_are_never_below_what_products_can_reach(dtype):
    rng = np.random.default_rng(0)
    right = (rng.standard_normal((500, 300)) * 10.0 ** rng.integers(-6, 6, 500)[:, None]).astype(dtype)
    lengths = norm_bounds(right)
    assert lengths.dtype == dtype
    assert (lengths >= np.linalg.norm(right.astype(np.float64), axis=1)).all()
    # The largest product with a row is that with a row of its own direction.
    with np.errstate(over="ignore"):
        own = np.array([norm_pruned.product(row, right, at) for at, row in enumerate(right)])
    assert (own <= lengths * np.array([norm_pruned.norm(row) for row in right])).all()
    assert (norm_bounds(np.zeros((3, 2), dtype=dtype)) == 0).all()


def test_lengths_and_intercepts_are_in_falling_order():
    _, right, intercept = skewed()
    known = NormSorted.of(right, intercept)
    assert (np.diff(known.lengths) <= 0).all()
    np.testing.assert_array_equal(known.shift, intercept[known.order])
    np.testing.assert_array_equal(known.highest, [intercept[known.order[at:]].max() for at in range(len(intercept))])


def test_what_does_not_fit_is_named():
    known = NormSorted.of(np.ones((5, 3)), np.zeros(5))
    with pytest.raises(InvalidInputError, match="left must be n×3 of type float64; found shape"):
        norm_pruned_topk(np.ones((2, 4)), known, 1)
    with pytest.raises(InvalidInputError, match=r"left must be n×3 of type float64; found .* type float32"):
        norm_pruned_topk(np.ones((2, 3), dtype=np.float32), known, 1)
    with pytest.raises(InvalidInputError, match="k must be at least 1"):
        norm_pruned_topk(np.ones((2, 3)), known, 0)
    with pytest.raises(InvalidInputError, match="exclude has shape"):
        norm_pruned_topk(np.ones((2, 3)), known, 1, exclude=sp.csr_matrix((5, 2)))
    with pytest.raises(InvalidInputError, match="factors and intercept must be L×r and L"):
        NormSorted.of(np.ones((5, 3)), np.zeros(4))
