"""Head, middle and tail, suggestions to accept, confused tags and rows to check: against counting by hand."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.exceptions import InvalidInputError
from tagwise.reports.figures import (
    PRECISIONS,
    acceptance,
    confusions,
    frequency_bins,
    frequency_groups,
    group_recall,
    surest_mistakes,
)


def test_groups_weigh_about_the_same():
    counts = np.array([1] * 30 + [10] * 3 + [30])
    groups = frequency_groups(counts)
    assert groups[-1] == 0
    assert groups[30:33].tolist() == [1, 1, 1]
    assert set(groups[:30]) == {2}
    assert frequency_groups(np.zeros(3, dtype=int)).tolist() == [2, 2, 2]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_more_frequent_is_never_in_a_rarer_group(counts):
    counts = np.array(counts)
    groups = frequency_groups(counts)
    for one in range(len(counts)):
        for other in range(len(counts)):
            if counts[one] >= counts[other]:
                assert groups[one] <= groups[other]


def random_problem(seed):
    rng = np.random.default_rng(seed)
    Y = sp.csr_matrix((rng.random((30, 12)) < 0.2).astype(np.float32))
    ranked = np.array([rng.permutation(12)[:5] for _ in range(30)])
    ranked[rng.random(ranked.shape) < 0.1] = -1
    return Y, ranked, rng


@pytest.mark.parametrize("seed", range(5))
def test_recall_of_groups_is_what_counting_gives(seed):
    Y, ranked, rng = random_problem(seed)
    groups = rng.integers(0, 2, size=12)
    recall = group_recall(ranked, Y, groups)
    dense = Y.toarray()
    for group in (0, 1):
        for k in range(1, 6):
            found = sum(
                dense[row, label]
                for row in range(30)
                for label in ranked[row, :k]
                if label >= 0 and groups[label] == group
            )
            assert recall[group, k - 1] == pytest.approx(found / dense[:, groups == group].sum())
    assert np.isnan(recall[2]).all()


def test_bins_double():
    counts = np.array([0, 1, 2, 3, 4, 8, 8, 1024])
    true = np.array([0, 2, 1, 1, 0, 5, 5, 10])
    listed = np.array([0, 0, 2, 0, 0, 5, 3, 10])
    right = np.array([0, 0, 1, 0, 0, 5, 1, 9])
    bins = frequency_bins(counts, true, listed, right)
    assert bins.low.tolist() == [0, 1, 2, 4, 8, 1024]
    assert bins.high.tolist() == [0, 1, 3, 7, 15, 2047]
    np.testing.assert_allclose(bins.precision, [np.nan, np.nan, 1 / 2, np.nan, 6 / 8, 0.9])
    np.testing.assert_allclose(bins.recall, [np.nan, 0, 1 / 2, np.nan, 6 / 10, 0.9])
    np.testing.assert_allclose(bins.f1, [np.nan, 0, 2 / 4, np.nan, 12 / 18, 0.9])


def test_rows_must_agree():
    with pytest.raises(InvalidInputError, match="ranked has 2 rows but Y has 3"):
        group_recall(np.zeros((2, 1), dtype=int), sp.csr_matrix((3, 1)), np.zeros(1, dtype=int))


@pytest.fixture
def problem():
    """Truth (200, 9), five different labels of each row (some −1), and confidences with many ties."""
    rng = np.random.default_rng(3)
    truth = sp.csr_matrix((rng.random((200, 9)) < 0.3).astype(np.float32))
    labels = np.array([rng.permutation(9)[:5] for _ in range(200)])
    labels[rng.random(labels.shape) < 0.1] = -1
    return truth, labels, np.round(rng.random(labels.shape), 1)


def test_acceptance_counts_what_is_at_least_as_sure(problem):
    truth, labels, confidence = problem
    found = acceptance(labels, confidence, truth)
    dense = truth.toarray()
    assert found.confidence.tolist() == sorted(set(confidence[labels >= 0].tolist()), reverse=True)
    for place, least in enumerate(found.confidence):
        chosen = [(r, labels[r, k]) for r, k in np.argwhere((labels >= 0) & (confidence >= least))]
        right = sum(dense[pair] for pair in chosen)
        assert found.count[place] == len(chosen)
        assert found.precision[place] == pytest.approx(right / len(chosen))
        assert found.recall[place] == pytest.approx(right / dense.sum())
        assert found.accepted[place] == pytest.approx(len(chosen) / (labels >= 0).sum())


def test_as_many_suggestions_are_accepted_as_the_precision_allows():
    # Of the surest 60 all are right, of the next 40 half, of the rest none.
    right = np.concatenate([np.ones(60), np.tile([1, 0], 20), np.zeros(100)])
    truth = sp.csr_matrix(right[:, None])
    found = acceptance(np.zeros((200, 1), dtype=int), np.linspace(1, 0, 200)[:, None], truth)
    assert [found.count[found.at(wanted)] for wanted in PRECISIONS] == [67, 75, 100]
    assert found.accepted[found.at(0.8)] == 0.5
    assert found.at(0.3) == 199
    # A handful of lucky ones is no promise.
    assert acceptance(np.zeros((10, 1), dtype=int), np.ones((10, 1)), sp.csr_matrix(np.ones((10, 1)))).at(0.8) is None
    assert acceptance(np.full((3, 1), -1), np.ones((3, 1)), sp.csr_matrix((3, 1))).at(0.8) is None


def test_a_planted_confusion_is_found_beyond_chance():
    rng = np.random.default_rng(0)
    n = 300
    truth = np.zeros((n, 6))
    truth[np.arange(n), rng.integers(0, 6, size=n)] = 1
    labels = np.argmax(truth, axis=1)[:, None].copy()
    takes = (labels[:, 0] == 2) & (rng.random(n) < 0.6)
    labels[takes] = 4
    noise = ~takes & (rng.random(n) < 0.1)
    labels[noise, 0] = rng.integers(0, 6, size=noise.sum())
    found = confusions(labels, sp.csr_matrix(truth), 3)
    assert (found[0].tag, found[0].instead) == (2, 4)
    assert found[0].rows == np.count_nonzero(truth[:, 2].astype(bool) & (labels[:, 0] == 4))
    assert found[0].of == int(truth[:, 2].sum())
    assert confusions(np.argmax(truth, axis=1)[:, None], sp.csr_matrix(truth), 3) == []


def test_confusions_count_pairs_of_missed_and_wrong_labels(problem):
    truth, labels, _ = problem
    dense = truth.toarray() > 0
    found = confusions(labels, truth, 100)
    assert found
    for pair in found:
        rows = 0
        for row in range(200):
            size = int(dense[row].sum())
            best = set(labels[row, :size]) - {-1}
            wrong = {label for label in best if not dense[row, label]}
            missed = set(np.flatnonzero(dense[row])) - best
            rows += size <= 5 and pair.tag in missed and pair.instead in wrong
        assert pair.rows == rows > 1


def test_rows_to_check_are_those_of_the_surest_wrong_suggestions(problem):
    truth, labels, confidence = problem
    found = surest_mistakes(labels, confidence, truth, 20)
    wrong = (labels >= 0) & ~(truth.toarray() > 0)[np.arange(200)[:, None], np.maximum(labels, 0)]
    assert all(wrong[row, rank] for row, rank in found)
    best = np.where(wrong, confidence, -1).max(axis=1)
    assert [confidence[row, rank] for row, rank in found] == sorted(best, reverse=True)[:20]
    assert len({row for row, _ in found}) == 20
    assert surest_mistakes(labels[:, :1], confidence[:, :1], sp.csr_matrix(np.ones((200, 9))), 5) == []
