"""The product of opinions, which folders of version 0.1.0 and the benchmark of the fusion use, against its formula."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from tagwise.kernels.shortlists import behind_shortlist
from tagwise.models.cascade.opinions import LabelFacts, Opinions
from tagwise.models.cascade.product import Product


def facts_of(has_ranker):
    n_labels = len(has_ranker)
    return LabelFacts.of(has_ranker, np.zeros(n_labels), 1, sp.csr_matrix((n_labels, n_labels), dtype=np.int32))


@st.composite
def shortlists(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, n_labels = draw(st.integers(0, 5)), draw(st.integers(1, 40))
    width = draw(st.integers(1, n_labels))
    listed = draw(st.integers(0, width))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    labels = np.array([rng.permutation(n_labels)[:width] for _ in range(n_rows)], dtype=int).reshape(n_rows, width)
    # Whole numbers make ties; so do the limits of the score.
    proposed = -np.sort(-draw(st.sampled_from([0.2, 1.0])) * rng.integers(-3, 4, size=(n_rows, width)), axis=1)
    margins = rng.integers(-3, 4, size=(n_rows, listed)) * draw(st.sampled_from([0.3, 300.0]))
    cosines = rng.integers(-1, 4, size=(n_rows, listed)) / 2.5
    opinions = Opinions(labels, *(part.astype(dtype) for part in (proposed, margins, cosines)), np.zeros((n_rows, 0)))
    return opinions, facts_of(rng.random(n_labels) < 0.7)


@given(shortlists(), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.7]))
def test_scores_follow_the_formula_and_the_best_have_their_bits(shortlist, exponent, prototype_weight):
    opinions, facts = shortlist
    product = Product(3.0, exponent, prototype_weight, 1.15, 1.25)
    width = opinions.margins.shape[1]
    shortlisted = opinions._replace(labels=opinions.labels[:, :width], proposed=opinions.proposed[:, :width])
    scores = product.scores(shortlisted, facts)
    proposed = shortlisted.proposed.astype(np.float64)
    margins = np.where(facts.has_ranker[shortlisted.labels], opinions.margins, 2 * proposed)
    chance = expit(3.0 * margins) * np.clip(proposed + 0.5, 1e-3, 1) ** exponent
    chance = np.clip(chance * ((np.clip(opinions.cosines, 0, 1) + 0.1) / 1.1) ** prototype_weight, 1e-6, 1 - 1e-6)
    expected = expit(1.15 * np.log(chance / (1 - chance)) + 1.25) - 0.5
    np.testing.assert_allclose(scores, expected, atol=1e-5 if scores.dtype == np.float32 else 1e-12)

    everything = np.concatenate([scores, behind_shortlist(opinions.proposed[:, width:])], axis=1)
    labels, best = product.best(opinions, facts, opinions.labels.shape[1])
    np.testing.assert_array_equal(best, -np.sort(-everything, axis=1))
    assert best.dtype == opinions.proposed.dtype
    np.testing.assert_array_equal(np.sort(labels, axis=1), np.sort(opinions.labels, axis=1))


def test_a_closed_form():
    """σ(slope·m) = ¾, the root of a score of ¼, and a cosine of 0.45, half of the way from −0.1 to 1."""
    opinions = Opinions(np.array([[0]]), *(np.array([[x]]) for x in (-0.25, np.log(3) / 2, 0.45)), np.zeros((1, 0)))
    scores = Product(2.0, 0.5, 2.0, 1.0, 0.0).scores(opinions, facts_of(np.array([True])))
    assert scores[0, 0] + 0.5 == pytest.approx(0.75 * 0.5 * 0.25)


def test_equal_products_come_in_the_order_of_their_labels():
    zeros = np.zeros((1, 3), np.float32)
    opinions = Opinions(np.array([[7, 3, 5, 1]]), np.full((1, 4), 0.1, np.float32), zeros, zeros, np.zeros((1, 0)))
    hidden = np.array([[False, False, True, False]])
    product, facts = Product(3.0, 0.5, 0.5, 1.0, 0.0), facts_of(np.ones(8, dtype=bool))
    np.testing.assert_array_equal(product.best(opinions, facts, 4)[0], [[3, 5, 7, 1]])
    np.testing.assert_array_equal(product.best(opinions, facts, 4, hidden)[0], [[3, 7, 1, -1]])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (3, "product_ must hold slope, exponent, prototype_weight, a, b"),
        ({"slope": 3.0}, "product_ must hold"),
        ({"slope": 0.0, "exponent": 0.5, "prototype_weight": 0.0, "a": 1.0, "b": 0.0}, "slope must be"),
        ({"slope": 3.0, "exponent": 0.5, "prototype_weight": -1, "a": 1.0, "b": 0.0}, "prototype_weight must be"),
        ({"slope": 3.0, "exponent": 0.5, "prototype_weight": 0, "a": 1.0, "b": float("nan")}, "b must be"),
    ],
)
def test_values_that_are_no_product_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Product.from_values(values)
