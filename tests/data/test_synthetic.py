import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import tagwise.data.synthetic
from tagwise.data import make_low_rank_plus_sparse, make_power_law
from tagwise.exceptions import InvalidInputError, InvalidTypeError

SMALL = {"rank": 3, "features_per_row": 6, "labels_per_row": 2.5, "random_state": 0}


def assert_rows_of_distinct_sorted_columns(matrix):
    assert type(matrix) is sp.csr_matrix
    assert matrix.dtype == np.float32
    matrix.check_format(full_check=True)
    fresh = sp.csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
    assert fresh.has_canonical_format
    assert np.diff(matrix.indptr).min() >= 1


def same(one, other):
    return one.shape == other.shape and (one != other).nnz == 0


@given(
    st.integers(1, 30), st.integers(1, 20), st.integers(1, 20), st.floats(0, 1), st.floats(0, 1),
    st.sampled_from([0.0, 0.5, 1.0, 1.7]), st.integers(0, 3), st.integers(0, 30), st.integers(0, 2**32),
)  # fmt: skip
def test_power_law_data_have_the_shape_asked_for(n, d, L, features, labels, exponent, own, topics, seed):
    arguments = {
        "features_per_row": 1 + features * (d - 1),
        "labels_per_row": 1 + labels * (L - 1),
        "feature_exponent": exponent,
        "label_exponent": exponent,
        "n_topics": topics,
        "topic_share": labels,
        "own_features": min(own, d),
        "own_share": features,
        "random_state": seed,
    }
    X, Y = make_power_law(n, d, L, **arguments)
    assert X.shape == (n, d)
    assert Y.shape == (n, L)
    assert_rows_of_distinct_sorted_columns(X)
    assert_rows_of_distinct_sorted_columns(Y)
    assert (Y.data == 1).all()
    np.testing.assert_allclose(np.sqrt(X.multiply(X).sum(axis=1)), 1, rtol=1e-5)
    again = make_power_law(n, d, L, **arguments)
    assert same(X, again[0])
    assert same(Y, again[1])


def test_power_law_means_and_popularity():
    n, d, L = 20_000, 3000, 1000
    X, Y = make_power_law(n, d, L, features_per_row=40, labels_per_row=5, random_state=0)
    assert X.nnz / n == pytest.approx(40, rel=0.02)
    assert Y.nnz / n == pytest.approx(5, rel=0.02)
    for matrix, columns, per_row in ((X, d, 40), (Y, L, 5)):
        per_column = np.bincount(matrix.indices, minlength=columns)
        assert abs(np.corrcoef(np.arange(columns), per_column)[0, 1]) < 0.2  # popularity is in no order of columns
        found = np.sort(per_column)[::-1] / n
        # p(r) = ln((r + 1 + o) / (r + o)) / ln((columns + o) / o): the integral of 1/(r + o) over one rank.
        offset = 1 + columns / 1000
        rank = np.arange(columns)
        expected = per_row * np.log((rank + 1 + offset) / (rank + offset)) / np.log((columns + offset) / offset)
        tail = slice(columns // 10, None)
        assert found[tail].sum() == pytest.approx(expected[tail].sum(), rel=0.1)
        assert found[: columns // 100].sum() > 5 * found[-columns // 100 :].sum()


@pytest.mark.parametrize("share", [0.5, 0.0])
def test_labels_show_in_their_own_features(share):
    n, d, L = 4000, 1000, 20
    sizes = {"features_per_row": 10, "labels_per_row": 1, "feature_exponent": 0, "own_features": 4, "own_share": share}
    X, Y = make_power_law(n, d, L, **sizes, random_state=0)
    found = (Y.T @ (X > 0)).toarray() / np.asarray(Y.sum(axis=0)).reshape(-1, 1)
    # Of t = 1 + Poisson(9) draws each is a given own feature with probability share/4: E (1 − share/4)^t is how often
    # none is. Each is any other feature with probability 1/d.
    expected = 1 - (1 - share / 4) * np.exp(-9 * share / 4)
    largest_first = np.sort(found, axis=1)[:, ::-1]
    assert (largest_first[:, 4:] < 0.1).all()
    if share:
        np.testing.assert_allclose(largest_first[:, :4].mean(), expected, atol=0.03)
        assert (largest_first[:, :4] > 0.4).all()
    else:
        assert (largest_first < 0.15).all()


def test_exponent_nought_makes_all_labels_alike():
    _, Y = make_power_law(5000, 3, 50, features_per_row=1, labels_per_row=3, label_exponent=0, random_state=0)
    per_label = np.bincount(Y.indices, minlength=50)
    assert abs(per_label - 300).max() < 5 * np.sqrt(300)


def test_small_blocks_of_rows_join(monkeypatch):
    monkeypatch.setattr(tagwise.data.synthetic, "_BLOCK_ENTRIES", 8)
    X, Y = make_power_law(100, 30, 9, features_per_row=12, labels_per_row=2, random_state=0)
    assert_rows_of_distinct_sorted_columns(X)
    assert_rows_of_distinct_sorted_columns(Y)


def test_large_power_law_data_need_little_beyond_their_own_size():
    tracemalloc.start()
    X, Y = make_power_law(60_000, 50_000, 30_000, features_per_row=147, labels_per_row=7, random_state=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = sum(part.nbytes for matrix in (X, Y) for part in (matrix.data, matrix.indices, matrix.indptr))
    assert peak < size + 200e6


@given(st.integers(1, 40), st.integers(2, 30), st.integers(1, 25), st.integers(0, 2), st.integers(0, 2**32))
def test_labels_are_the_best_by_the_planted_scores(n, d, L, own, seed):
    problem = make_low_rank_plus_sparse(
        n,
        d,
        L,
        rank=1,
        features_per_row=min(4, d),
        labels_per_row=min(2, L),
        tail_features=own,
        random_state=seed,
    )
    X, Y = problem
    assert_rows_of_distinct_sorted_columns(X)
    assert_rows_of_distinct_sorted_columns(Y)
    assert (Y.data == 1).all()
    assert problem.W.shape == (d, 1)
    assert problem.H.shape == (L, 1)
    assert problem.S.shape == (d, L)
    scores = X.toarray().astype(float) @ (problem.W.astype(float) @ problem.H.T + problem.S.toarray())
    chosen = Y.toarray() > 0
    for row in range(n):
        if not chosen[row].all():
            assert scores[row, chosen[row]].min() >= scores[row, ~chosen[row]].max() - 1e-4


def test_planted_problem_is_deterministic_and_seeds_differ():
    one, other = (make_low_rank_plus_sparse(50, 30, 20, **SMALL) for _ in range(2))
    assert same(one.X, other.X)
    assert same(one.Y, other.Y)
    assert same(one.S, other.S)
    np.testing.assert_array_equal(one.W, other.W)
    np.testing.assert_array_equal(one.H, other.H)
    assert not same(one.X, make_low_rank_plus_sparse(50, 30, 20, **{**SMALL, "random_state": 1}).X)
    assert repr(one).startswith("SyntheticProblem(50 rows, 30 features, 20 labels, rank 3, ")


def test_block_size_does_not_matter(monkeypatch):
    whole = make_low_rank_plus_sparse(50, 30, 20, **SMALL)
    monkeypatch.setattr(tagwise.data.synthetic, "_BLOCK_SCORES", 60)
    assert same(whole.Y, make_low_rank_plus_sparse(50, 30, 20, **SMALL).Y)


def test_sparse_part_is_on_tail_labels_only():
    problem = make_low_rank_plus_sparse(100, 80, 50, **SMALL, tail_features=4)
    per_label = np.bincount(problem.S.indices, minlength=50)
    assert sorted(set(per_label)) == [0, 4]
    assert (per_label == 0).sum() == 5
    strength = np.linalg.norm(problem.H, axis=1)
    assert strength[per_label == 0].mean() > 1.5 * strength[per_label > 0].mean()
    assert make_low_rank_plus_sparse(100, 80, 50, **SMALL, tail_features=0).S.nnz == 0


def test_noise_changes_labels_but_not_the_truth():
    clean = make_low_rank_plus_sparse(200, 80, 50, **SMALL)
    noisy = make_low_rank_plus_sparse(200, 80, 50, **SMALL, noise=0.5)
    assert same(clean.X, noisy.X)
    assert same(clean.S, noisy.S)
    kept = clean.Y.multiply(noisy.Y).nnz / clean.Y.nnz
    assert 0.2 < kept < 0.95


def test_shape_of_eurlex_is_long_tailed():
    problem = make_low_rank_plus_sparse(
        15_539, 5000, 3993, rank=50, features_per_row=236, labels_per_row=5.3, noise=0.1, random_state=0
    )
    assert problem.X.nnz / 15_539 == pytest.approx(236, rel=0.02)
    assert problem.Y.nnz / 15_539 == pytest.approx(5.3, rel=0.02)
    frequency = np.sort(np.bincount(problem.Y.indices, minlength=3993))[::-1]
    share = frequency.cumsum() / frequency.sum()
    assert share[399] > 0.5
    assert 0.005 < 1 - share[1996] < 0.2
    assert (frequency > 0).mean() > 0.7


GOOD = {"n_rows": 10, "n_features": 8, "n_labels": 6, "features_per_row": 3, "labels_per_row": 2}


def test_bad_arguments():
    both = {
        "n_rows": (0, 2.5),
        "n_features": (0,),
        "n_labels": (-1,),
        "features_per_row": (0.5, 9),
        "labels_per_row": (7, "2"),
        "random_state": (-3, "0"),
    }
    truth = {"rank": (0, 7, "2"), "tail_features": (-1, 9), "noise": (-0.1, np.nan)}
    shape = {"feature_exponent": (-1,), "label_exponent": (-1,), "n_topics": (-1, 2.5), "topic_share": (1.2,)}
    for make, more, wrong in (
        (make_low_rank_plus_sparse, {"rank": 2}, both | truth),
        (make_power_law, {}, both | shape),
    ):
        for name, values in wrong.items():
            for value in values:
                with pytest.raises((InvalidInputError, InvalidTypeError), match=name):
                    make(**{**GOOD, **more, name: value})


# ---------------------------------------------------------------------------- topics


def test_topics_tie_labels_to_features_and_leave_popularity_skewed():
    sizes = {"features_per_row": 30, "labels_per_row": 4, "random_state": 0}
    gain = []
    for n_topics in (0, 20):
        X, Y = make_power_law(4000, 1000, 400, n_topics=n_topics, topic_share=0.8, **sizes)
        # How much of the labels of unseen rows a ridge regression explains.
        train, test = slice(0, 3000), slice(3000, None)
        gram = (X[train].T @ X[train]).toarray() + 3 * np.eye(1000)
        mean = np.asarray(Y[train].mean(axis=0))
        Z = np.linalg.solve(gram, (X[train].T @ Y[train]).toarray() - np.outer(X[train].sum(axis=0), mean))
        rest = Y[test].toarray() - mean
        gain.append(1 - np.sum((rest - X[test] @ Z) ** 2) / np.sum(rest**2))
        popular = np.sort(np.bincount(Y.indices, minlength=400))[::-1]
        assert popular[:40].sum() > 5 * popular[-40:].sum()
    assert gain[0] < 0 < 0.05 < gain[1]
