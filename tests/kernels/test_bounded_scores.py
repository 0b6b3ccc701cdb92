"""Top-k within bounds: the same labels as the plain product, whatever the factors look like."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import top_k_of_factors_and_sparse
from tagwise.kernels.bounded_scores import FactorBounds, top_k_within_bounds


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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 7, 100, 600])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_as_all_products(dtype, k, seed):
    given = problem(dtype, seed=seed)
    left, right = given.pop("left"), given.pop("right")
    exclude = sp.random(12, 500, 0.1, "csr", random_state=seed)
    for hidden in (None, exclude):
        expected = top_k_of_factors_and_sparse(left, right, k, exclude=hidden, **given)
        found = top_k_within_bounds(left, right, FactorBounds.of(right), k, exclude=hidden, **given)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-4)


def test_equal_scores_come_in_the_order_of_their_labels():
    right = np.zeros((50, 2))
    given = {"intercept": np.repeat([1.0, 2.0], 25), "rows": sp.csr_matrix((3, 4)), "sparse": sp.csr_matrix((4, 50))}
    labels, _ = top_k_within_bounds(np.ones((3, 2)), right, FactorBounds.of(right), 30, **given)
    np.testing.assert_array_equal(labels[1], [*range(25, 50), *range(5)])


def test_lengths_are_never_below_the_true_ones():
    right = problem(np.float32)["right"]
    bounds = FactorBounds.of(right)
    assert (bounds.lengths >= np.linalg.norm(right.astype(np.float64), axis=1)[bounds.order]).all()
    assert (np.diff(bounds.lengths) <= 0).all()


def test_parts_that_do_not_fit_are_named():
    given = problem(np.float32)
    left, right = given.pop("left"), given.pop("right")
    with pytest.raises(InvalidInputError, match="n×r, L×r, n×d and d×L"):
        top_k_within_bounds(left[:, :2], right, FactorBounds.of(right), 3, **given)
