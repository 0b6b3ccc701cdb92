"""Properties of the ranking metrics for any truth and any scores."""

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagwise.metrics import (
    average_auc,
    coverage_at_k,
    example_accuracy,
    example_f1,
    example_precision,
    example_recall,
    hamming_loss,
    macro_f1,
    micro_f1,
    ranking_report,
    top_k,
)

LIGHT = settings(max_examples=50, deadline=None)


@st.composite
def problems(draw, *, ties=True):
    """Truth, scores, inverse propensities and ks; with ``ties=False`` a row's scores all differ."""
    n, L = draw(st.integers(1, 8)), draw(st.integers(1, 10))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    Y = (rng.random((n, L)) < draw(st.sampled_from([0.0, 0.2, 0.6, 1.0]))).astype(np.int8)
    S = (
        rng.integers(-3, 4, (n, L)).astype(float)
        if ties
        else rng.permuted(np.tile(np.arange(L), (n, 1)), axis=1) - L / 2
    )
    ks = draw(st.lists(st.integers(1, L + 3), min_size=1, max_size=4, unique=True))
    return Y, S, rng.uniform(1.0, 20.0, L), sorted(ks)


def _values(report):
    return np.array(list(report.values()))


@LIGHT
@given(problems())
def test_values_lie_between_zero_and_one(problem):
    Y, S, q, ks = problem
    values = _values(ranking_report(Y, S, ks, q))
    assert ((values >= 0) & (values <= 1)).all()


@LIGHT
@given(problems())
def test_perfect_ranking_gives_the_most_there_is(problem):
    Y, _, q, ks = problem
    report = ranking_report(Y, Y * q, ks, q)
    counts = Y.sum(axis=1)
    for k in ks:
        assert np.isclose(report[f"P@{k}"], (np.minimum(counts, k) / k).mean())
        if Y.any():
            assert np.isclose(report[f"PSP@{k}"], 1)
            assert np.isclose(report[f"PSnDCG@{k}"], 1)
        assert np.isclose(report[f"nDCG@{k}"], (counts > 0).mean())
        if k >= counts.max():
            assert np.isclose(report[f"R@{k}"], (counts > 0).mean())
            assert report[f"coverage@{k}"] == float(Y.any())


@LIGHT
@given(problems())
def test_recall_and_coverage_never_fall_with_k(problem):
    Y, S, _, _ = problem
    ks = range(1, Y.shape[1] + 2)
    report = ranking_report(Y, S, ks)
    for name in ("R", "coverage"):
        assert (np.diff([report[f"{name}@{k}"] for k in ks]) >= 0).all()


@LIGHT
@given(problems(ties=False), st.randoms(use_true_random=False))
def test_renaming_labels_changes_nothing_without_ties(problem, random):
    Y, S, q, ks = problem
    order = list(range(Y.shape[1]))
    random.shuffle(order)
    renamed = ranking_report(Y[:, order], S[:, order], ks, q[order])
    np.testing.assert_allclose(_values(renamed), _values(ranking_report(Y, S, ks, q)), rtol=1e-12)


@LIGHT
@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(problem, random):
    Y, S, q, ks = problem
    order = list(range(len(Y)))
    random.shuffle(order)
    shuffled = ranking_report(Y[order], S[order], ks, q)
    np.testing.assert_allclose(_values(shuffled), _values(ranking_report(Y, S, ks, q)), rtol=1e-12)


@LIGHT
@given(problems())
def test_strictly_rising_maps_of_the_scores_change_nothing(problem):
    Y, S, q, ks = problem
    report = ranking_report(Y, S, ks, q)
    mixed = ((Y.sum(axis=1) > 0) & (Y.sum(axis=1) < Y.shape[1])).any()
    for mapped in (3 * S - 7, np.exp(S), np.arctan(S), S.astype(np.float32)):
        assert ranking_report(Y, mapped, ks, q) == report
        if mixed:
            assert average_auc(Y, mapped) == average_auc(Y, S)


@LIGHT
@given(problems())
def test_all_forms_agree(problem):
    Y, S, q, ks = problem
    stored = sp.csr_matrix(np.ones_like(S))
    stored.data = S.ravel()
    labels = top_k(S, max(ks))
    scores = np.where(labels >= 0, np.take_along_axis(S, np.maximum(labels, 0), axis=1), -np.inf)
    report = ranking_report(Y, S, ks, q)
    for prediction in (stored, labels, (labels, scores)):
        assert ranking_report(sp.csr_matrix(Y), prediction, ks, q) == report


@LIGHT
@given(problems(ties=False))
def test_reversed_scores_give_the_complementary_area(problem):
    Y, S, _, _ = problem
    if ((Y.sum(axis=1) > 0) & (Y.sum(axis=1) < Y.shape[1])).any():
        area = average_auc(Y, S)
        assert 0 <= area <= 1
        assert np.isclose(average_auc(Y, -S), 1 - area)
        assert average_auc(Y, Y.astype(float)) == 1.0


@LIGHT
@given(problems())
def test_setwise_bounds_and_perfect_predictions(problem):
    Y, S, _, _ = problem
    P = (S > 0).astype(np.int8)
    means = (example_precision, example_recall, example_f1, example_accuracy, micro_f1, macro_f1)
    assert all(0 <= metric(Y, P) <= 1 for metric in (*means, hamming_loss))
    assert all(metric(Y, Y, both_empty=1.0) == 1 for metric in means)
    assert hamming_loss(Y, Y) == 0
    # F1 lies between the overlap and twice it, and all are symmetric where their formulas are.
    assert example_accuracy(Y, P) <= example_f1(Y, P) + 1e-12
    assert np.isclose(example_precision(Y, P), example_recall(P, Y))
    assert np.isclose(example_f1(Y, P), example_f1(P, Y))


@LIGHT
@given(problems(ties=False))
def test_coverage_counts_labels_not_rows(problem):
    Y, S, _, ks = problem
    twice = coverage_at_k(np.vstack([Y, Y]), np.vstack([S, S]), ks)
    assert np.array_equal(twice, coverage_at_k(Y, S, ks))
