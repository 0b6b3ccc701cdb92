"""LPSR: the base scorer on few labels, how labels are chosen, forged folders, bad parameters, real data."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import BinaryRelevance, load
from tagwise.baselines import LPSR, WSABIE, lpsr
from tagwise.baselines.lpsr import choose_labels, relaxed_precision
from tagwise.solvers.spherical_k_means import spherical_k_means


@pytest.fixture(scope="module")
def topics():
    """600 rows of 8 topics, each with features and three labels of its own."""
    rng = np.random.default_rng(0)
    topic = rng.integers(0, 8, 600)
    X = (rng.random((600, 40)) < np.where(np.arange(40) // 5 == topic[:, None], 0.6, 0.05)).astype(np.float64)
    Y = (rng.random((600, 24)) < np.where(np.arange(24) // 3 == topic[:, None], 0.6, 0.0)).astype(np.float64)
    return sp.csr_matrix(X), sp.csr_matrix(Y)


@pytest.mark.parametrize("base", ["squared", "wsabie"])
def test_listed_labels_have_the_base_scorers_scores_and_all_others_rank_last(topics, base):
    X, Y = topics
    model = LPSR(base=base, rank=20, n_partitions=8, labels_per_partition=6, n_visited=2).fit(X, Y)
    scores = model.decision_function(X)
    seed = int(np.random.default_rng(0).integers(2**31))
    scorer = WSABIE(rank=20, random_state=seed) if base == "wsabie" else BinaryRelevance()
    full = scorer.fit(X, Y).decision_function(X)
    listed = scores > -1e29
    np.testing.assert_allclose(scores[listed], full[listed], atol=1e-9)
    assert listed.sum(axis=1).max() <= 12
    assert (np.diff(model.partition_labels_.indptr) <= 6).all()


def test_all_labels_in_one_part_is_the_base_scorer(topics):
    X, Y = topics
    model = LPSR(n_partitions=1, labels_per_partition=24).fit(X, Y)
    np.testing.assert_allclose(model.decision_function(X), BinaryRelevance().fit(X, Y).decision_function(X), atol=1e-9)


def test_parts_find_the_labels_of_their_topic(topics):
    X, Y = topics
    model = LPSR(n_partitions=30, labels_per_partition=3, n_visited=1).fit(X, Y)
    groups = [set(part.indices // 3) for part in model.partition_labels_]
    assert np.mean([len(group) == 1 for group in groups]) > 0.7


def relaxed(alpha, ranked, relevant, places):
    """The definition, row by row and label by label."""
    total = 0.0
    for labels, on in zip(ranked, relevant):
        for place in np.flatnonzero(on):
            above = sum(alpha[label] for label, good in zip(labels[:place], on[:place]) if not good)
            total += alpha[labels[place]] * (1 - 1 / (1 + np.exp(places - 0.5 - above))) / on.sum()
    return total


def ranking(seed, rows=9, n_labels=12, width=8):
    rng = np.random.default_rng(seed)
    ranked = np.array([rng.permutation(n_labels)[:width] for _ in range(rows)])
    return ranked, rng.random(ranked.shape) < 0.3, rng.random(n_labels)


@pytest.mark.parametrize("seed", range(3))
def test_relaxed_precision_and_its_gradient(seed):
    ranked, relevant, alpha = ranking(seed)
    value, gradient = relaxed_precision(alpha, ranked, relevant, 2)
    assert value == pytest.approx(relaxed(alpha, ranked, relevant, 2), rel=1e-9)
    for label in range(len(alpha)):
        step = np.where(np.arange(len(alpha)) == label, 1e-6, 0)
        slope = (relaxed(alpha + step, ranked, relevant, 2) - relaxed(alpha - step, ranked, relevant, 2)) / 2e-6
        assert gradient[label] == pytest.approx(slope, abs=1e-6)


def test_rows_in_blocks_add_up_and_missing_labels_count_for_nothing():
    ranked, relevant, alpha = ranking(0, rows=1200)
    value, gradient = relaxed_precision(alpha, ranked, relevant, 2)
    parts = [relaxed_precision(alpha, ranked[a : a + 100], relevant[a : a + 100], 2) for a in range(0, 1200, 100)]
    assert value == pytest.approx(sum(part for part, _ in parts), rel=1e-12)
    np.testing.assert_allclose(gradient, sum(slope for _, slope in parts), atol=1e-9)
    padded = np.column_stack([ranked, np.full(1200, -1)])
    blank = np.column_stack([relevant, np.zeros(1200, dtype=bool)])
    again, same = relaxed_precision(alpha, padded, blank, 2)
    assert again == pytest.approx(value)
    np.testing.assert_allclose(same, gradient, atol=1e-12)


def test_chosen_labels_beat_the_most_frequent_ones():
    """Label 0 is true in a few rows and ranked wrongly above label 1 or 2 in many: it does more harm than good."""
    ranked = np.array([[0, 1, 2]] * 12 + [[0, 2, 1]] * 6 + [[0, 1, 2]] * 7)
    relevant = np.array([[False, True, False]] * 18 + [[True, False, False]] * 7)
    chosen, value = choose_labels(ranked, relevant, 3, 2, k=1)
    most_frequent = relaxed_precision(np.array([1.0, 1.0, 0.0]), ranked, relevant, 1)[0]
    assert chosen.tolist() == [1, 2]
    assert value > most_frequent
    nothing, none = choose_labels(ranked, np.zeros_like(relevant), 3, 2, k=1)
    assert len(nothing) == 0
    assert none == 0


def test_a_stop_after_the_base_scorer_leaves_one_part_of_the_most_frequent_labels(topics, tmp_path):
    X, Y = topics
    seen = []

    def stop(iteration, info):
        seen.append(info["stage"])
        return True

    model = LPSR(n_partitions=8, labels_per_partition=5).fit(X, Y, callback=stop)
    assert seen == ["base"]
    counts = np.asarray(Y.sum(axis=0)).ravel()
    np.testing.assert_array_equal(model.partition_labels_.indices, np.sort(np.argsort(-counts, kind="stable")[:5]))
    scorer = BinaryRelevance().fit(X, Y)
    scores, listed = model.decision_function(X), model.partition_labels_.indices
    np.testing.assert_allclose(scores[:, listed], scorer.decision_function(X)[:, listed], atol=1e-9)
    assert model.objective_[0] == pytest.approx(scorer.objective_[-1])
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").decision_function(X), scores)
    whole = LPSR(n_partitions=8).fit(X, Y)
    assert [info["stage"] for info in whole.history_] == ["base", "partitions"]


def test_rows_that_the_base_scorer_ranks_well_pull_the_centers(topics, monkeypatch):
    X, Y = topics
    given = {}

    def watched(rows, n_clusters, **options):
        given.update(options, rows=rows)
        return spherical_k_means(rows, n_clusters, **options)

    monkeypatch.setattr(lpsr, "spherical_k_means", watched)
    for normalize in (True, False):
        LPSR(n_partitions=4, normalize=normalize).fit(3 * X, Y)
        lengths = np.sqrt(np.asarray(given["rows"].multiply(given["rows"]).sum(axis=1)).ravel())
        np.testing.assert_allclose(lengths[lengths > 0], 1)
        assert len(np.unique(given["weights"])) > 2
