import math

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.metrics import (
    PROPENSITY_CONSTANTS,
    inverse_propensity,
    ndcg_at_k,
    propensity_constants,
    psndcg_at_k,
    psp_at_k,
    top_k,
)

KS = (1, 2, 3, 5, 16, 17)


@pytest.mark.parametrize(("A", "B"), [(0.55, 1.5), (0.5, 0.4), (0.6, 2.6)])
def test_inverse_propensity_is_the_published_formula(A, B):
    Y = np.random.default_rng(0).random((40, 6)) < 0.3
    Y[:, 2] = False
    constant = (math.log(40) - 1) * (B + 1) ** A
    expected = [1 + constant * (int(Y[:, label].sum()) + B) ** -A for label in range(6)]
    np.testing.assert_allclose(inverse_propensity(Y, A, B), expected, rtol=1e-14)
    assert np.array_equal(inverse_propensity(sp.csr_matrix(Y), A, B), inverse_propensity(Y, A, B))


@pytest.mark.parametrize(("A", "B"), [(0.55, 1.5), (0.5, 0.4), (0.6, 2.6), (2.0, 0.1)])
def test_where_labels_are_missing_their_number_is_estimated_too(A, B):
    """N_l is then the number of rows that list a label times its inverse propensity."""
    Y = np.random.default_rng(0).random((400, 6)) < [0.0, 0.005, 0.02, 0.1, 0.5, 1.0]
    found = inverse_propensity(Y, A, B, listed_only=True)
    constant = (math.log(400) - 1) * (B + 1) ** A
    np.testing.assert_allclose(found, 1 + constant * (Y.sum(axis=0) * found + B) ** -A, rtol=1e-9)
    assert (found <= inverse_propensity(Y, A, B)).all()
    with pytest.raises(InvalidTypeError, match="listed_only"):
        inverse_propensity(Y, listed_only=1)


def test_constants_by_name():
    for family, names in {
        "wikipedia": ["Wikipedia-500K", "WikiLSHTC-325K", "LF-WikiSeeAlso-320K"],
        "amazon": ["Amazon-670K", "lf_amazontitles-131k"],
        "other": ["Wiki10-31K", "wiki10", "AmazonCat-13K", "debtags", "EURLex-4K"],
    }.items():
        for name in names:
            assert propensity_constants(name) == PROPENSITY_CONSTANTS[family], name
    with pytest.raises(InvalidTypeError, match="dataset must be a name"):
        propensity_constants(3)


def test_constants_are_the_published_ones_and_cannot_be_changed():
    assert dict(PROPENSITY_CONSTANTS) == {"wikipedia": (0.5, 0.4), "amazon": (0.6, 2.6), "other": (0.55, 1.5)}
    with pytest.raises(TypeError):
        PROPENSITY_CONSTANTS["other"] = (1, 1)
    assert inverse_propensity.__defaults__ == PROPENSITY_CONSTANTS["other"]


def test_equal_weights_make_psp_the_share_of_the_best_precision(problem):
    Y, S, _ = problem
    rows = Y.sum(axis=1)
    for k in (1, 3, 5):
        found = np.take_along_axis(Y, top_k(S, k), axis=1).sum()
        assert psp_at_k(Y, S, np.full(17, 2.5), k) == pytest.approx(found / np.minimum(rows, k).sum())


def test_equal_weights_make_psndcg_ndcg_of_the_rows_with_labels(problem):
    Y, S, _ = problem
    some = Y.any(axis=1)
    np.testing.assert_allclose(psndcg_at_k(Y, S, np.full(17, 3.0), KS), ndcg_at_k(Y[some], S[some], KS), rtol=1e-12)


def test_ideal_order_gives_one_and_both_agree_at_one(problem):
    Y, S, q = problem
    ideal = Y * q
    assert psp_at_k(Y, ideal, q, KS).tolist() == [1.0] * len(KS)
    np.testing.assert_allclose(psndcg_at_k(Y, ideal, q, KS), 1.0, rtol=1e-15)
    assert psp_at_k(Y, S, q, 1) == pytest.approx(psndcg_at_k(Y, S, q, 1), rel=1e-14)


def test_by_hand():
    Y, q = np.array([[1, 1, 0], [0, 0, 1]]), np.array([1.0, 4.0, 2.0])
    prediction = np.array([[0, 2], [0, 2]])
    assert psp_at_k(Y, prediction, q, (1, 2)).tolist() == [1 / 6, 3 / 7]
    second = 1 / math.log2(3)
    gained = 1 / (1 + second) + 2 * second
    best = (4 + second) / (1 + second) + 2
    np.testing.assert_allclose(psndcg_at_k(Y, prediction, q, (1, 2)), [1 / 6, gained / best])


def test_bad_constants_and_too_few_rows():
    for A, B, error in ((-1, 1, "A must"), (0.5, 0, "B must"), (np.nan, 1, "A must")):
        with pytest.raises(InvalidInputError, match=error):
            inverse_propensity(np.ones((5, 2)), A, B)
    for rows in (0, 1, 2):
        with pytest.raises(InvalidInputError, match=rf"Y_train has {rows} rows; propensities need at least 3"):
            inverse_propensity(np.zeros((rows, 3)))
