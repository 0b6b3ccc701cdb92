import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import coverage_error, ndcg_score, recall_score, top_k_accuracy_score

from tagwise.metrics import (
    RANKINGS,
    coverage_at_k,
    inverse_propensity,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    ranking_report,
    recall_at_k,
    top_k,
)
from tagwise.metrics.ranking import RankingSums, hits_of

KS = (1, 2, 3, 5, 16, 17)


def values_of(metric, Y, prediction, k, q):
    return metric.function(Y, prediction, k=k, **({"inverse_propensity": q} if metric.weighted else {}))


@pytest.mark.parametrize("metric", RANKINGS, ids=lambda metric: metric.name)
def test_every_metric_equals_its_twin_in_all_forms(problem, reference, metric):
    Y, S, q = problem
    twin = getattr(reference, metric.function.__name__.removesuffix("_at_k"))
    expected = values_of(metric, Y, S, KS, q)
    twins = [twin(Y, S, *([q] if metric.weighted else []), k) for k in KS]
    np.testing.assert_allclose(expected, twins, rtol=1e-12)
    labels = top_k(S, 17)
    all_stored = sp.csr_matrix(np.ones_like(S))
    all_stored.data = S.ravel()
    pair = (labels, np.take_along_axis(S, labels, axis=1))
    for prediction in (labels, pair, all_stored, sp.csr_array(all_stored), all_stored.tocoo(), S.tolist()):
        assert np.array_equal(values_of(metric, Y, prediction, KS, q), expected)
    for truth in (sp.csr_matrix(Y), sp.csc_array(Y), Y.astype(bool), Y.tolist()):
        assert np.array_equal(values_of(metric, truth, S, KS, q), expected)
    # One k is a float, and a sequence keeps its order.
    several = values_of(metric, Y, S, [5, 1, 5], q)
    assert isinstance(several, np.ndarray)
    assert several.dtype == np.float64
    five = values_of(metric, Y, S, np.int32(5), q)
    assert isinstance(five, float)
    # Sums over rows are rounded by the width of the ranking.
    np.testing.assert_allclose(several, [five, values_of(metric, Y, S, 1, q), five], rtol=1e-14)
    assert five == (metric.function(Y, S, q) if metric.weighted else metric.function(Y, S))
    assert values_of(metric, Y, S, np.array([3]), q).shape == (1,)
    assert values_of(metric, Y, S, range(1, 4), q).shape == (3,)


def test_metrics_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    Y, S = rng.random((50, 12)) < 0.2, rng.random((50, 12))
    one = rng.integers(0, 12, 50)
    for k in (1, 4, 12):
        assert ndcg_at_k(Y, S, k) == pytest.approx(ndcg_score(Y, S, k=k), rel=1e-12)
        predicted = np.zeros(Y.shape, dtype=int)
        np.put_along_axis(predicted, top_k(S, k), 1, axis=1)
        recall = recall_score(Y, predicted, average="samples", zero_division=0)
        assert recall_at_k(Y, S, k) == pytest.approx(recall, rel=1e-12)
        # One label a row.
        accuracy = top_k_accuracy_score(one, S, k=k, labels=range(12)) if k < 12 else 1.0
        assert k * precision_at_k(np.eye(12)[one], S, k) == pytest.approx(accuracy)
        assert recall_at_k(np.eye(12)[one], S, k) == pytest.approx(accuracy)
    for y, s in zip(Y[Y.any(axis=1)], S[Y.any(axis=1)]):
        depth = int(coverage_error(y[None], s[None]))
        recall = recall_at_k(y[None], s[None], range(1, 13))
        assert np.flatnonzero(recall == 1.0)[0] + 1 == depth


def test_by_hand():
    Y = np.array([[1, 0, 1, 0], [0, 0, 0, 1]])
    prediction = np.array([[0, 1, 2], [1, 2, -1]])
    assert precision_at_k(Y, prediction, (1, 2, 3)).tolist() == [1 / 2, 1 / 4, 1 / 3]
    assert recall_at_k(Y, prediction, (1, 2, 3)).tolist() == [1 / 4, 1 / 4, 1 / 2]
    best = 1 + 1 / np.log2(3)
    np.testing.assert_allclose(ndcg_at_k(Y, prediction, (1, 2, 3)), [1 / 2, 1 / best / 2, (1 + 1 / 2) / best / 2])
    assert coverage_at_k(Y, prediction, (1, 2, 3)).tolist() == [1 / 3, 1 / 3, 2 / 3]


def test_k_beyond_the_labels():
    Y, S = np.array([[1, 0]]), np.array([[0.9, 0.1]])
    assert precision_at_k(Y, S, (2, 4, 10**12)).tolist() == [1 / 2, 1 / 4, 1e-12]
    assert precision_at_k(Y, np.array([[0, 1]]), 4) == 1 / 4
    assert precision_at_k(Y, np.array([[0, 1, -1, -1]]), 4) == 1 / 4
    assert recall_at_k(Y, S, 4) == ndcg_at_k(Y, S, 4) == coverage_at_k(Y, S, 4) == 1.0
    assert psp_at_k(Y, S, [2.0, 3.0], 4) == psndcg_at_k(Y, S, [2.0, 3.0], 4) == 1.0


def test_no_label_never_counts_as_the_last_label_of_the_row_before():
    # -1 in row i must not be taken for label L-1 of row i-1, nor wrap round to label L-1.
    Y = np.array([[0, 0, 1], [1, 0, 1]])
    for truth, prediction in ((Y, np.full((2, 2), -1)), (np.zeros((2, 3)), np.ones((2, 3)))):
        report = ranking_report(truth, prediction, ks=(1, 2), inverse_propensity=np.ones(3))
        assert set(report.values()) == {0.0}


def test_report_holds_what_the_functions_give(problem):
    Y, S, q = problem
    ks = (5, 1, 3)
    report = ranking_report(Y, S, ks, q)
    expected = {
        f"{metric.name}@{k}": value for metric in RANKINGS for k, value in zip(ks, values_of(metric, Y, S, ks, q))
    }
    assert list(report.items()) == list(expected.items())
    assert list(expected)[::3] == ["P@5", "nDCG@5", "PSP@5", "PSnDCG@5", "R@5", "coverage@5"]
    assert all(type(value) is float for value in report.values())


def test_rows_in_parts_give_the_same_report(problem):
    Y, S, q = problem
    ks = np.array([1, 3, 5])
    first, *others = (RankingSums.of(hits_of(Y[rows], S[rows], ks, q)) for rows in np.split(np.arange(60), [7, 30]))
    together = first.plus(*others).report(ks)
    whole = ranking_report(Y, S, ks, q)
    assert list(together) == list(whole)
    np.testing.assert_allclose(list(together.values()), list(whole.values()), rtol=1e-12)


def test_report_without_propensities_leaves_theirs_out(problem):
    Y, S, _ = problem
    assert list(ranking_report(Y, S, 1)) == ["P@1", "nDCG@1", "R@1", "coverage@1"]
    assert len(ranking_report(Y, S)) == 12


def test_report_ranks_once(problem, monkeypatch):
    Y, S, _ = problem
    from tagwise.metrics import ranking

    calls = []
    real = ranking.ranked_labels
    monkeypatch.setattr(ranking, "ranked_labels", lambda *a, **k: calls.append(a) or real(*a, **k))
    ranking_report(Y, S, inverse_propensity=inverse_propensity(Y))
    assert len(calls) == 1
