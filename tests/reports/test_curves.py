"""Head, middle and tail, against counting by hand."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.exceptions import InvalidInputError
from tagwise.reports.curves import frequency_bins, frequency_groups, group_recall


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
