import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import coverage_error, ndcg_score, recall_score, top_k_accuracy_score

from tagwise.metrics import (
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

METRICS = {
    "precision": precision_at_k,
    "recall": recall_at_k,
    "ndcg": ndcg_at_k,
    "coverage": coverage_at_k,
}
KS = (1, 2, 3, 5, 16, 17)


@pytest.mark.parametrize("name", METRICS)
def test_equals_reference(problem, reference, name):
    Y, S, _ = problem
    expected = [getattr(reference, name)(Y, S, k) for k in KS]
    np.testing.assert_allclose(METRICS[name](Y, S, KS), expected, rtol=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_one_k_is_a_float_and_a_sequence_keeps_its_order(problem, name):
    Y, S, _ = problem
    metric = METRICS[name]
    values = metric(Y, S, [5, 1, 5])
    assert isinstance(values, np.ndarray)
    assert values.dtype == np.float64
    assert isinstance(metric(Y, S, 5), float)
    assert isinstance(metric(Y, S, np.int32(5)), float)
    assert values.tolist() == [metric(Y, S, 5), metric(Y, S, k=1), metric(Y, S)]
    assert metric(Y, S, np.array([3])).shape == (1,)
    assert metric(Y, S, range(1, 4)).shape == (3,)


@pytest.mark.parametrize("name", METRICS)
def test_all_forms_of_prediction_and_truth_agree(problem, name):
    Y, S, _ = problem
    metric = METRICS[name]
    expected = metric(Y, S, KS)
    labels = top_k(S, 17)
    all_stored = sp.csr_matrix(np.ones_like(S))
    all_stored.data = S.ravel()
    pair = (labels, np.take_along_axis(S, labels, axis=1))
    for prediction in (labels, pair, all_stored, sp.csr_array(all_stored), all_stored.tocoo(), S.tolist()):
        assert np.array_equal(metric(Y, prediction, KS), expected)
    for truth in (sp.csr_matrix(Y), sp.csc_array(Y), Y.astype(bool), Y.tolist()):
        assert np.array_equal(metric(truth, S, KS), expected)


def test_ndcg_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    Y, S = rng.random((50, 12)) < 0.2, rng.random((50, 12))
    for k in (1, 4, 12):
        assert ndcg_at_k(Y, S, k) == pytest.approx(ndcg_score(Y, S, k=k), rel=1e-12)


def test_recall_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    Y, S = rng.random((50, 12)) < 0.2, rng.random((50, 12))
    predicted = np.zeros(Y.shape, dtype=int)
    np.put_along_axis(predicted, top_k(S, 4), 1, axis=1)
    assert recall_at_k(Y, S, 4) == pytest.approx(
        recall_score(Y, predicted, average="samples", zero_division=0), rel=1e-12
    )


def test_full_recall_starts_at_the_depth_of_coverage_error():
    rng = np.random.default_rng(3)
    Y, S = rng.random((30, 9)) < 0.3, rng.random((30, 9))
    for y, s in zip(Y[Y.any(axis=1)], S[Y.any(axis=1)]):
        depth = int(coverage_error(y[None], s[None]))
        recall = recall_at_k(y[None], s[None], range(1, 10))
        assert np.flatnonzero(recall == 1.0)[0] + 1 == depth


def test_one_label_a_row_gives_top_k_accuracy():
    rng = np.random.default_rng(0)
    S, y = rng.random((80, 6)), rng.integers(0, 6, 80)
    Y = np.eye(6)[y]
    for k in (1, 2, 4):
        accuracy = top_k_accuracy_score(y, S, k=k, labels=range(6))
        assert k * precision_at_k(Y, S, k) == pytest.approx(accuracy)
        assert recall_at_k(Y, S, k) == pytest.approx(accuracy)


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


def test_rows_with_fewer_candidates_than_k():
    Y = np.array([[1, 0, 0], [0, 1, 0]])
    S = sp.csr_matrix((np.array([0.5]), np.array([0]), np.array([0, 1, 1])), shape=(2, 3))
    assert precision_at_k(Y, S, (1, 2)).tolist() == [1 / 2, 1 / 4]
    assert recall_at_k(Y, S, 2) == 1 / 2


def test_rows_without_true_labels_count_as_zero():
    Y, S = np.array([[1, 0], [0, 0]]), np.array([[0.9, 0.1], [0.9, 0.1]])
    assert precision_at_k(Y, S, 1) == recall_at_k(Y, S, 1) == ndcg_at_k(Y, S, 1) == 1 / 2
    assert coverage_at_k(Y, S, 1) == psp_at_k(Y, S, [1, 1], 1) == psndcg_at_k(Y, S, [1, 1], 1) == 1.0


def test_no_true_label_at_all_gives_zero():
    Y, S = np.zeros((2, 3)), np.ones((2, 3))
    assert set(ranking_report(Y, S, inverse_propensity=np.ones(3)).values()) == {0.0}


def test_no_label_never_counts_as_the_last_label_of_the_row_before():
    # -1 in row i must not be taken for label L-1 of row i-1, nor wrap round to label L-1.
    Y = np.array([[0, 0, 1], [1, 0, 1]])
    prediction = np.full((2, 2), -1)
    report = ranking_report(Y, prediction, ks=(1, 2), inverse_propensity=np.ones(3))
    assert set(report.values()) == {0.0}


def test_report_holds_what_the_functions_give(problem):
    Y, S, q = problem
    ks = (5, 1, 3)
    report = ranking_report(Y, S, ks, q)
    expected = {
        "P": precision_at_k(Y, S, ks),
        "nDCG": ndcg_at_k(Y, S, ks),
        "PSP": psp_at_k(Y, S, q, ks),
        "PSnDCG": psndcg_at_k(Y, S, q, ks),
        "R": recall_at_k(Y, S, ks),
        "coverage": coverage_at_k(Y, S, ks),
    }
    assert list(report) == [f"{name}@{k}" for name in expected for k in ks]
    assert list(report.values()) == [value for values in expected.values() for value in values]
    assert all(type(value) is float for value in report.values())


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
